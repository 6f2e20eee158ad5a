"""The progress line: on a terminal one line that fits it, elsewhere a line a cell."""
import errno
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
import unicodedata

import pytest

from conftest import CPU, FEW, LAYER, PLANTED, Room, SLOW_TRIALS, TINY

CELLS = CPU + LAYER + ["--tokens", "8,16"]
SOME = ["--max-candidates", "10"]


def on_terminal(room, *arguments, columns=80, env=None, stream="stderr"):
    """Runs with a stream on a terminal; returns (exit code, what it showed, stdout where that is none)."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = room.start(*arguments, **{stream: slave}, env=env)
    os.close(slave)
    shown = b""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        ready, _, _ = select.select([master], [], [], 0.1)
        if ready:
            try:
                piece = os.read(master, 65536)
            except OSError as error:
                assert error.errno == errno.EIO
                break
            if not piece:
                break
            shown += piece
        elif process.poll() is not None:
            break
    out, _ = process.communicate(timeout=60)
    os.close(master)
    return process.returncode, shown.decode("utf-8"), out


def frames(shown):
    """The states of the moving line: what is taken away again."""
    return [frame for frame in re.findall(r"\r\033\[K([^\r\n]*)(?=\r\033)", shown) if frame]


def width(text):
    return sum(0 if unicodedata.combining(c) else 1 for c in re.sub(r"\033\[[0-9;]*m", "", text))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run on a terminal of 80 columns: (exit code, shown, stdout)."""
    return on_terminal(Room(tmp_path_factory.mktemp("run"), PLANTED), "tune", *CELLS, *SOME, env=SLOW_TRIALS)


def test_line_shows_count_best_and_eta(run):
    code, shown, out = run
    assert code == 0
    lines = frames(shown)
    assert len(lines) > 5
    assert any(re.match(r"\[1/2\] .*\d+/\d+  best [\d.]+ (µs|ms)  ETA ", line) for line in lines), lines
    assert "\033" not in out


def test_line_fits_80_columns(run):
    assert all(width(line) < 80 for line in frames(run[1]))


def test_line_is_gone_at_the_end(run):
    # What is left is whole lines: one a cell, and notes where the machine is noisy.
    stays = re.sub(r"[^\r\n]*\r\033\[K", "", run[1].replace("\r\n", "\n"))
    assert stays.endswith("\n") and "ETA" not in stays
    cells = [line for line in stays.splitlines() if not line.startswith("moetune: ")]
    assert [line[:6] for line in cells if line[:2] != "  "] == ["[1/2] ", "[2/2] "], stays
    assert all(width(line) <= 80 for line in cells)


def test_quiet_shows_no_line(room):
    _, shown, _ = on_terminal(room, "tune", *TINY, *FEW, "-q")
    assert shown == ""


def test_a_dumb_terminal_gets_plain_lines(room):
    _, shown, _ = on_terminal(room, "tune", *TINY, *FEW, env={"TERM": "dumb"})
    assert "\033" not in shown and "[1/1]" in shown


def test_without_a_terminal_a_line_a_cell(room):
    text = room.ok("tune", *CELLS, *FEW).stderr
    assert "\r" not in text and "\033" not in text
    assert len([line for line in text.splitlines() if re.match(r"\[[12]/2\] ", line)]) == 2


def test_errors_are_red_on_a_terminal(room):
    _, shown, _ = on_terminal(room, "list", "modles")
    assert "\033[1;31merror:\033[0m" in shown


def test_no_color(room):
    _, shown, _ = on_terminal(room, "list", "modles", env={"NO_COLOR": "1"})
    assert "error:" in shown and "\033" not in shown
    _, shown, _ = on_terminal(room, "list", "modles", "--color", "always", env={"NO_COLOR": "1"})
    assert "\033[1;31m" in shown


@pytest.mark.timing
def test_a_log_says_every_30_seconds_where_the_run_stands(tmp_path):
    result = Room(tmp_path, PLANTED).run("tune", *TINY, "--max-candidates", "8", "-o", "table.json",
                                         env={"MOETUNE_PLANT": "trial_ms:2500"}, timeout=300)
    assert result.returncode == 0
    lines = re.findall(r"^\[1/1\] \S+  (\d)/8  best .*  ETA .*$", result.stderr, re.MULTILINE)
    assert lines and lines == sorted(lines)
