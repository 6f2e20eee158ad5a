"""`moetune replay`: strategies on recorded journals."""
import json

import pytest

from conftest import CPU, LAYER, Room

JOURNAL = "moetune-table.json.journal.jsonl"
SET = ["--set", "block_m=24,96", "--set", "block_n=64,128", "--set", "block_k=128", "--set", "threads=1,2"]


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """An exhaustive journal of two cells, with planted times: slower with smaller blocks, without noise."""
    room = Room(tmp_path_factory.mktemp("recorded"))
    room.ok("tune", *CPU, *LAYER, "--tokens", "8,64", "--strategy", "exhaustive", *SET, "-q")
    lines = room.journal()
    for line in lines:
        if line["kind"] != "trial" or line["status"] != "ok":
            continue
        c = line["candidate"]
        us = 100 * (1 + 24 / c["block_m"] + 64 / c["block_n"]) / c["threads"]
        count = line["measurement"]["samples"]
        line["measurement"].update(median_us=us, low_us=us, high_us=us)
        line["blocks"]["us"] = [us] * count
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.fixture
def recorded(room, journal):
    room.write(JOURNAL, journal)
    return room


def test_a_small_space_is_found_whole(recorded):
    report = json.loads(recorded.ok("replay", JOURNAL, "--runs", "3", "--format", "json").stdout)
    assert report["schema"] == "moetune.replay/1" and report["strategy"] == "auto"
    assert report["mean_loss"] == 0 and report["worst_loss"] == 0
    assert len(report["cells"]) == 2
    for cell in report["cells"]:
        assert cell["best"]["threads"] == 2
        assert len(cell["losses"]) == len(cell["candidates"]) == len(cell["blocks"]) == 3
        assert max(cell["candidates"]) <= cell["recorded"] <= 9  # and the default


def test_a_strategy_that_tries_one_candidate_loses(recorded):
    first = ["replay", JOURNAL, "--strategy", "random", "--max-candidates", "1", "--runs", "2"]
    report = json.loads(recorded.ok(*first, "--format", "json").stdout)
    assert report["most_candidates"] == 1
    for cell in report["cells"]:
        assert cell["losses"] == [pytest.approx(cell["default_loss"], rel=1e-3)] * 2
    if report["worst_loss"] > 0.01:
        text = recorded.run(*first, "--max-worst", "1%")
        assert text.returncode == 1 and "That is more than allowed." in text.stdout


def test_formats(recorded):
    text = recorded.ok("replay", JOURNAL).stdout
    assert "auto in 2 cells: winners are 0.0 % slower than the journal's best" in text
    assert all(len(line) <= 80 for line in text.splitlines()[:-1])
    header, *rows = recorded.ok("replay", JOURNAL, "--format", "csv").stdout.splitlines()
    assert header.endswith("recorded,best_us,default_loss,mean_loss,worst_loss,mean_candidates,most_candidates")
    assert len(rows) == 2
    assert recorded.ok("replay", JOURNAL, "--format", "markdown").stdout.startswith("| cell")


@pytest.mark.parametrize("arguments,words", [
    ([], "JOURNAL"),
    (["nowhere.jsonl"], "there is no such journal"),
    ([JOURNAL, "--strategy", "luck"], "unknown strategy 'luck'"),
    ([JOURNAL, "--runs", "0"], "--runs: 0 is outside 1 to 1000"),
    ([JOURNAL, "--max-loss", "-1%"], "--max-loss"),
])
def test_wrong_requests(recorded, arguments, words):
    assert words in recorded.error(2, "replay", *arguments)


def test_a_journal_without_times_is_refused(room):
    room.tuned()
    lines = [line for line in room.journal() if line["kind"] == "header"]
    (room.path / "empty.jsonl").write_text(json.dumps(lines[0]) + "\n")
    assert "has a candidate that was timed" in room.error(2, "replay", "empty.jsonl")


def test_what_is_no_journal_is_told_with_a_remedy(room):
    room.tuned()
    told = room.error(2, "replay", "moetune-table.json")
    assert "moetune-table.json: not a journal of moetune" in told and "TABLE.journal.jsonl" in told
    (room.path / "j.jsonl.xz").write_bytes(b"\xfd7zXZ")
    assert "unpack it first: xz -dk j.jsonl.xz" in room.error(2, "replay", "j.jsonl.xz")
    note = room.ok("replay", "moetune-table.json.journal.jsonl", "--runs", "1").stderr
    assert "a journal of the strategy auto: what it did not try is no candidate here" in note
