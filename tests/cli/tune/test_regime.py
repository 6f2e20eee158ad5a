"""--regime: which times compare, and where a regime is refused."""
import json

import pytest

from conftest import FEW, LAYER, TINY, validate

SUSTAINED = ["--regime", "sustained"]


@pytest.mark.parametrize("command", [["tune", *TINY, *FEW], ["tune", *TINY, *FEW, "--dry-run"], ["bench", *TINY]])
def test_a_cpu_has_one_regime(room, command):
    text = room.error(2, *command, *SUSTAINED)
    assert "--regime sustained" in text and "is a cpu, which is timed in the regime burst only" in text
    assert "hint: leave --regime out, or name a GPU with --device" in text
    assert room.files() == []


@pytest.mark.parametrize("command", [["tune", *TINY], ["bench", *TINY], ["check", "table.json"]])
def test_an_unknown_regime_names_the_nearest(room, command):
    room.made_table()
    text = room.error(2, *command, "--regime", "sustaned")
    assert "unknown regime 'sustaned'" in text and "sustained" in text.split("hint")[1]


def test_files_names_their_regime(room):
    room.tuned("--regime", "burst")
    assert room.json("moetune-table.json")["regime"] == "burst"
    assert room.journal()[0]["regime"] == "burst"
    validate("journal", room.path / "moetune-table.json.journal.jsonl")
    room.ok("bench", *TINY, "--rounds", "1", "-q", "-o", "bench.json")
    assert room.json("bench.json")["regime"] == "burst"
    validate("bench", room.path / "bench.json")


def test_check_refuses_the_other_regime(room):
    name = room.made_table()
    text = room.error(3, "check", name, *SUSTAINED)
    assert f"{name}: its times are of the regime burst, not sustained" in text
    assert "tune a table with --regime sustained" in text
    table = room.json(name)
    table["regime"] = "sustained"
    room.write(name, table)
    assert "of the regime sustained, not burst" in room.error(3, "check", name, "--regime", "burst")
    assert "is a cpu, which is timed in the regime burst only" in room.error(2, "check", name)


def test_lookup_names_the_regime(room):
    name = room.made_table()
    table = room.json(name)
    table["regime"] = "sustained"
    room.write(name, table)
    cell = [*LAYER, "--tokens", "8", "--routing", "balanced"]
    assert room.ok("lookup", name, *cell).stdout.rstrip().endswith("(sustained).")
    answer = json.loads(room.ok("lookup", name, *cell, "--format", "json").stdout)
    assert answer["regime"] == "sustained"
    room.write("lookup.json", answer)
    validate("lookup", room.path / "lookup.json")
