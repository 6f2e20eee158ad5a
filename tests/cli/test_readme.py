"""Commands of the README work as they stand there.

A fenced block of shell commands is run when the line before its fence is the comment <!-- run -->. In `console` blocks
the lines that begin with "$ " are commands and the rest is output, which is not compared; in `sh` blocks every line is
a command. A leading "moetune" or "build/release/moetune" is the binary under test. Blocks share one folder.
"""
import json
import re
import shlex

import pytest

from conftest import SOURCE, Room

README = SOURCE / "README.md"
BLOCK = re.compile(r"^(?P<mark><!-- run -->\n+)?```(?P<kind>console|sh|bash)\n(?P<body>.*?)^```", re.M | re.S)


def commands(kind, body):
    """Whole command lines, with continuation lines joined."""
    body = body.replace("\\\n", " ")
    lines = [line[2:] for line in body.splitlines() if line.startswith("$ ")] if kind == "console" else body.splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def blocks(marked):
    text = README.read_text(encoding="utf-8") if README.exists() else ""
    return [(m["kind"], m["body"]) for m in BLOCK.finditer(text) if bool(m["mark"]) == marked]


def test_blocks_are_found_in_a_text():
    text = "x\n<!-- run -->\n```console\n$ moetune list \\\n    models\n| out |\n```\n\n```sh\n# no\nls\n```\n"
    found = [(bool(m["mark"]), commands(m["kind"], m["body"])) for m in BLOCK.finditer(text)]
    assert found == [(True, ["moetune list      models"]), (False, ["ls"])]


def test_marked_commands_run(tmp_path):
    if not README.exists():
        pytest.skip("there is no README yet")
    room = Room(tmp_path)
    for folder in ("configs", "tests"):
        (tmp_path / folder).symlink_to(SOURCE / folder)
    lines = [line for kind, body in blocks(True) for line in commands(kind, body)]
    assert lines, "no block of the README is marked to be run"
    for line in lines:
        words = shlex.split(line)
        assert words[0] in ("moetune", "build/release/moetune", "./build/release/moetune"), line
        result = room.run(*words[1:], timeout=600)
        assert result.returncode == 0, f"{line}\n{result.stdout}\n{result.stderr}"


def test_recordings_are_read_as_they_stand_there(tmp_path):
    """The block behind <!-- files -->: a file's name, and what it holds from the same column on."""
    block, = re.findall(r"^<!-- files -->\n```text\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)
    files = {}
    for line in block.splitlines():
        name = line[:12].strip() or name
        files.setdefault(name, []).append(line[12:])
    assert sorted(files) == ["ids.csv", "ids.json", "ids.npy", "rows.csv", "rows.json"]
    numpy = pytest.importorskip("numpy")
    room = Room(tmp_path)
    realised = set()
    for name, lines in files.items():
        if name.endswith(".npy"):
            words = re.search(r"numpy.array\((.*?)\)", lines[0])[1]
            numpy.save(tmp_path / name, numpy.array(json.loads(words)))
        else:
            room.write(name, "\n".join(lines) + "\n")
        plan = json.loads(room.ok("tune", "--device", "cpu", "--experts", 4, "--top-k", 2, "--n", 64, "--k", 64, "--routing",
                                  f"trace:{name}#0", "--dry-run", "--format", "json").stdout)
        realised.add(json.dumps(plan["cells"][0]["figures"]))
    assert len(realised) == 1  # they all tell the same rows


def test_every_moetune_command_in_the_readme_parses(tmp_path):
    if not README.exists():
        pytest.skip("there is no README yet")
    room = Room(tmp_path)
    for marked in (True, False):
        for kind, body in blocks(marked):
            for line in commands(kind, body):
                words = shlex.split(line.split("|")[0].split(">")[0], comments=True)
                if not words or not re.fullmatch(r"(.*/)?moetune", words[0]):
                    continue
                result = room.run(*words[1:], "--help")  # --help is obeyed where the words before it parse
                assert result.returncode == 0, f"{line}\n{result.stderr}"
                options = re.findall(r"--[a-z][a-z-]*", result.stdout)
                for option in [word.split("=")[0] for word in words if word.startswith("--")]:
                    assert option in options, f"{line}: {option}"
