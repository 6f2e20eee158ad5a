"""diff: cells, winners and times of two tables, told in every format."""
import copy
import csv
import io
import json
import re

import pytest

from conftest import made_entry, validate

OTHER = {"variant": "cpu", "block_m": 48, "block_n": 64, "block_k": 128, "threads": 1}


@pytest.fixture
def tables(room):
    """old.json with tokens 8 and 16, and what new.json becomes: a function of a change of the old one."""
    room.made_table("old.json")
    old = room.json("old.json")

    def new(change):
        table = copy.deepcopy(old)
        change(table)
        return room.write("new.json", table)
    return new


def slower(table, by=1.1, entry=0):
    for key in ("median_us", "low_us", "high_us"):
        table["entries"][entry]["measurement"][key] *= by


def answer(result):
    return " ".join(result.stdout.split("\n\n")[-1].split())


def test_no_difference(room, tables):
    result = room.ok("diff", "old.json", tables(lambda table: None))
    assert answer(result) == "No difference in 2 cells."
    assert room.ok("diff", "old.json", "old.json", "-h")


def test_a_cell_of_one_table_alone(room, tables):
    new = tables(lambda table: table["entries"].pop(0))
    result = room.run("diff", "old.json", new)
    assert result.returncode == 1
    assert "|      8 | balanced | old     | cpu" in result.stdout
    assert answer(result) == "1 of 2 cells differ: 1 in one table only."
    assert "| new     | cpu" in room.run("diff", new, "old.json").stdout


def test_another_winner_is_told_by_its_knobs(room, tables):
    def change(table):
        table["entries"][1]["candidate"] = OTHER
        table["entries"][1]["occupancy"] = round(8 / 48, 5)
    result = room.run("diff", "old.json", tables(change))
    assert result.returncode == 1
    line, = [line for line in result.stdout.splitlines() if "block_m=48" in line]
    assert "block_m=24" in line and "block_n" not in line  # only what differs
    assert answer(result) == "1 of 2 cells differ: 1 with another winner."


def test_a_tie_of_the_other_table_is_marked(room, tables):
    def change(table):
        table["entries"][1].update(candidate=OTHER, occupancy=round(8 / 48, 5), ties=[table["entries"][1]["candidate"]])
    assert "block_m=24 (tie)" in room.run("diff", "old.json", tables(change)).stdout


def test_a_time_outside_noise_is_marked(room, tables):
    result = room.run("diff", "old.json", tables(slower))
    assert result.returncode == 1
    assert answer(result) == "1 of 2 cells differ: 1 slower."
    line, = [line for line in result.stdout.splitlines() if line.endswith("| slower |")]
    assert "10.0 µs" in line and "11.0 µs" in line and "1.10x ± 1.4 %" in line
    assert "1 faster." in room.run("diff", "new.json", "old.json").stdout


def test_a_time_within_noise_is_no_difference(room, tables):
    result = room.ok("diff", "old.json", tables(lambda table: slower(table, 1.01)))
    assert "1.01x ± 1.4 %" in result.stdout and "slower" not in result.stdout


def test_a_journal_is_no_table(room):
    room.tuned()
    told = room.error(2, "diff", "moetune-table.json", "moetune-table.json.journal.jsonl")
    assert "moetune-table.json.journal.jsonl: a journal, not a table" in told


def test_a_small_change_has_its_digits(room, tables):
    def change(table):
        for entry, time in ((old["entries"][0], 10), (table["entries"][0], 10.04)):
            entry["measurement"].update(median_us=time, low_us=0.9999 * time, high_us=1.0001 * time)
    old = room.json("old.json")
    new = tables(change)
    room.write("old.json", old)
    result = room.run("diff", "old.json", new)
    assert re.search(r"\| 1\.004x ± 0\.0 % \| slower \|", result.stdout), result.stdout


def test_times_of_unlike_environments_are_not_compared(room, tables):
    def change(table):
        table["environment"]["compiler"] = "13.0"
        slower(table)
    result = room.run("diff", "old.json", tables(change))
    assert result.returncode == 1
    assert "- environment, compiler: " in result.stdout
    assert answer(result) == "No difference in 2 cells. Times are not compared: the origins differ."
    assert "µs" not in result.stdout


def test_a_lost_winner_is_told_with_its_reason(room, tables):
    def change(table):
        entry = table["entries"][0]
        for key in ("candidate", "measurement", "occupancy", "derived", "verdict", "rivals", "ties"):
            del entry[key]
        entry["skipped"] = "no candidate is correct"
    text = " ".join(room.run("diff", "old.json", tables(change)).stdout.split())
    assert "no winner: no candidate" in text and "1 with another winner." in text


def test_options_of_cells_pick(room, tables):
    new = tables(slower)
    room.ok("diff", "old.json", new, "--tokens", "16")
    assert room.run("diff", "old.json", new, "--tokens", "8").returncode == 1
    assert "--tokens 9 (the table has 8, 16)" in room.error(1, "diff", "old.json", new, "--tokens", "9")
    fewer = tables(lambda table: table["entries"].pop(0))
    assert "1 in one table only." in room.run("diff", "old.json", fewer, "--tokens", "8").stdout


def test_formats(room, tables):
    new = tables(slower)
    whole = room.run("diff", "old.json", new, "--format", "json").stdout
    validate("diff", text=whole)
    document = json.loads(whole)
    assert [cell["time"] for cell in document["cells"]] == ["slower", "within_noise"]
    assert document["cells"][0]["ratio"] == pytest.approx(1.1)
    assert document["cells"][0]["ratio_low"] < 1.1 < document["cells"][0]["ratio_high"]
    rows = list(csv.DictReader(io.StringIO(room.run("diff", "old.json", new, "--format", "csv").stdout)))
    assert [row["time"] for row in rows] == ["slower", "within_noise"]
    assert [row["differs"] for row in rows] == ["true", "false"]
    assert [float(row["new_us"]) for row in rows] == pytest.approx([11, 10])
    assert "## custom up, fwd bf16" in room.run("diff", "old.json", new, "--format", "markdown").stdout


def test_text_fits_in_80_columns(room, tables):
    def change(table):
        slower(table)
        table["entries"][1].update(candidate=OTHER, occupancy=round(8 / 48, 5))
        table["environment"]["compiler"] = "a long name of a compiler, " * 5
        table["entries"].append(made_entry("up", 32))
    for line in room.run("diff", "old.json", tables(change)).stdout.splitlines():
        assert len(line) <= 80, line


def test_what_is_no_table_is_refused(room, tables):
    room.write("other.json", {"schema": "moetune.bench/1"})
    assert "its schema is 'moetune.bench/1', expected 'moetune.table/1'" in room.error(2, "diff", "old.json", "other.json")
    assert "NEW is required" in room.error(2, "diff", "old.json")
