"""scripts/knobs: what each value of a knob is worth in recorded journals."""
import json
import lzma
import subprocess

from conftest import SOURCE

SCRIPT = SOURCE / "scripts/knobs"


def knobs(*arguments):
    return subprocess.run([SCRIPT, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def trial(cell, us, status="ok", variant="wgmma", **values):
    return json.dumps({"kind": "trial", "cell": cell, "status": status, "candidate": {"variant": variant, **values},
                       "measurement": {"median_us": us}})


def test_names_the_cell_in_which_a_value_matters_most(tmp_path):
    lines = ['{"kind":"header"}',
             trial("a", 100, swap="yes", hold=0), trial("a", 110, swap="no", hold=0), trial("a", 90, swap="no", hold=0),
             trial("a", 1, "wrong", swap="no", hold=1), trial("a", 1, variant="mma", swap="no", hold=1),
             trial("b", 50, swap="yes", hold=0), trial("b", 60, swap="no", hold=2),
             trial("c", 100, swap="yes", hold=0), trial("c", 132, swap="no", hold=0)]
    path = tmp_path / "journal.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(lines).encode()))
    result = knobs(path)
    assert result.returncode == 0, result.stderr
    rows = [line.split(" | ") for line in result.stdout.splitlines()[2:]]
    message = {(row[0].lstrip("| "), row[1]): (*row[2:6], row[6].rstrip(" |")) for row in rows}
    assert message["swap", "yes"] == ("3", "2", "25.9%", "32.0%", "c")  # the geometric mean of 20 % and 32 %
    assert message["swap", "no"] == ("3", "1", "11.1%", "11.1%", "a")  # its last trial counts
    assert message["hold", "0"] == ("1", "1", "20.0%", "20.0%", "b")
    assert message["hold", "2"] == ("1", "0", "0.0%", "0.0%", "")
    assert ("hold", "1") not in message


def test_wrong_files(tmp_path):
    missing = knobs(tmp_path / "none.jsonl")
    assert missing.returncode == 1 and "none.jsonl: No such file" in missing.stderr
    (tmp_path / "text").write_text("not a journal\n")
    assert "text:1: not valid JSON" in knobs(tmp_path / "text").stderr
