"""Help, versions, mistyped words, and what goes to which stream."""
import os
import pty
import re
import subprocess
import sys

import pytest

from conftest import FEW, SOURCE, TINY

COMMANDS = ["tune", "bench", "verify", "check", "lookup", "compile", "export", "report", "merge", "validate",
            "list", "doctor", "completions"]


def test_help_names_every_command_and_no_hidden_one(room):
    text = room.ok("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w", text, re.M), command
    assert "worker" not in text


def test_help_explains_exit_codes(room):
    text = " ".join(room.ok("--help").stdout.split())
    for code in ("0 yes", "1 the answer is no", "2 the request is wrong", "3 this machine cannot", "4 inconclusive", "130"):
        assert code in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_ends_with_examples(room, command):
    result = room.ok(command, "--help")
    assert result.stderr == ""
    assert f"moetune {command} [OPTIONS]" in result.stdout
    examples = result.stdout.split("Examples:\n")[1].replace(" \\\n", " ").strip().splitlines()
    assert len(examples) >= 2
    for line in examples:
        assert line.startswith(f"  moetune {command} ") or line.strip().startswith(f"moetune {command}"), line


@pytest.mark.parametrize("command", COMMANDS)
def test_options_of_examples_exist(room, command):
    text = room.ok(command, "--help").stdout
    declared, examples = text.split("Examples:\n")
    for option in re.findall(r"(?<=\s)--?[a-z][a-z-]*", examples):
        assert re.search(rf"(^|[\s,]){option}\b", declared), option


def test_the_manual_has_the_help_of_every_command(room):
    manual = room.ok("--manual").stdout.replace("\\-", "-").replace("\\e", "\\")
    sections = dict(section.split("\n", 1) for section in manual.split("\n.SH ")[1:])
    assert list(sections) == ["NAME", "DESCRIPTION"] + [f"moetune {command}" for command in COMMANDS]
    for command in COMMANDS:
        text = room.ok(command, "--help").stdout
        page = " ".join(sections[f"moetune {command}"].split())
        assert len(re.findall(r"(?<=\.B )--?\w", page)) == len(re.findall(r"^  --?\w", text, re.MULTILINE)) > 0
        for block in text.split("\n\n")[:2]:
            assert " ".join(block.split()) in page, command


def help_on_a_terminal(room, columns, *command):
    master, slave = pty.openpty()
    try:
        room.run(*command, "--help", stdout=slave, env={"COLUMNS": str(columns)})
        os.close(slave)
        text = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
        return text.decode().replace("\r\n", "\n")
    finally:
        os.close(master)


@pytest.mark.parametrize("columns, widest", [(50, 50), (80, 80), (95, 95), (200, 100)])
def test_help_fits_the_terminal(room, columns, widest):
    for command in [[], *([command] for command in COMMANDS)]:
        lines = help_on_a_terminal(room, columns, *command).splitlines()
        assert len(lines) > 10
        for line in lines:
            assert len(line) <= widest, (command, line)


@pytest.mark.parametrize("script", ["ci/compiled.py", "convert_recording.py", "fit_cost", "gate", "knobs", "pack_triton.py", "peers.py", "soak"])
def test_help_of_a_script_fits_80_columns(room, script):
    result = subprocess.run([sys.executable, "-B", SOURCE / "scripts" / script, "--help"], capture_output=True, text=True,
                            env={**room.env, "COLUMNS": "80"})
    assert result.returncode == 0 and result.stderr == "" and result.stdout.lower().count("usage: ") == 1
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("script", ["package", "quickstart", "setup", "test"])
def test_help_of_a_script_that_installs_and_builds_does_neither(script):
    result = subprocess.run([SOURCE / "scripts" / script, "--help"], capture_output=True, text=True, env={"PATH": "/bin:/usr/bin"}, timeout=10)
    assert result.returncode == 0 and result.stderr == "" and len(result.stdout) > 50
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []


def test_errors_leave_standard_output_empty(room):
    result = room.run("tune", "--experts", "x")
    assert result.returncode == 2
    assert result.stdout == ""


@pytest.mark.parametrize("arguments, hint", [
    (["tune", *TINY, "--space", "alll"], "did you mean 'all'?"),
    (["tune", *TINY, "--variant", "cpuu"], "did you mean 'cpu'?"),
    (["tune", *TINY, "--set", "blokc_m=64"], "did you mean 'block_m'?"),
    (["tune", *TINY, "--strategy", "exhuastive"], "did you mean 'exhaustive'?"),
    (["tune", *TINY, "--format", "jsn"], "did you mean 'json'?"),
    (["tune", *TINY, "--color", "allways"], "did you mean 'always'?"),
    (["list", "modles"], "did you mean 'models'?"),
    (["bench", *TINY, "--candidate", "cpuu block_m=8"], "did you mean 'cpu'?"),
])
def test_mistyped_words_get_the_nearest(room, arguments, hint):
    assert hint in room.error(2, *arguments)


def test_unknown_device(room):
    room.error(2, "tune", "--device", "cuba", *TINY[2:])
    for word, meant in (("gpu", "cuda"), ("gpu:1", "cuda:1"), ("h101", "h100")):
        assert f"unknown device '{word}'\nhint: did you mean '{meant}'?" in room.error(2, "tune", "--device", word, *TINY[2:])


def test_results_on_stdout_and_the_rest_on_stderr(room):
    result = room.ok("tune", *TINY, *FEW)
    assert result.stdout.startswith("custom up, fwd bf16: 4 experts")
    assert "[1/1]" in result.stderr and "[1/1]" not in result.stdout


def test_tune_notes_that_it_takes_the_cpu_where_no_gpu_is(room):
    message = room.ok("tune", *TINY[2:], *FEW, env={"CUDA_VISIBLE_DEVICES": "-1"}).stderr
    assert "there is no GPU here" in message and "no GPU" not in room.ok("tune", *TINY, *FEW).stderr


def test_a_plan_that_nothing_can_run_names_no_files(room):
    message = room.run("tune", *TINY, "--set", "block_m=3", "--space", "quick", "--dry-run")
    assert message.returncode == 2 and "block_m must be a multiple of 8" in message.stdout and "Would write" not in message.stdout


def test_quiet_says_nothing_on_stderr(room):
    assert room.ok("tune", *TINY, *FEW, "-q").stderr == ""


def test_the_worker_is_not_for_hands(room):
    assert "other commands start it" in room.error(2, "worker")
