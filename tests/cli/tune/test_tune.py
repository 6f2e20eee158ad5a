"""Tuning on the cpu, from the command line to the files."""
import csv
import io
import json
import re

import pytest

from conftest import CANDIDATE, CPU, FEW, FEW_ROUNDS, LAYER, NO_WAIT, TINY, validate


def test_leaves_a_table_and_a_journal(room):
    result = room.ok("tune", *TINY)
    assert room.files() == ["moetune-table.json", "moetune-table.json.journal.jsonl"]
    validate("table", room.path / "moetune-table.json")
    validate("journal", room.path / "moetune-table.json.journal.jsonl")
    table = room.json("moetune-table.json")
    assert table["tool"]["argv"][1:] == ["tune", *NO_WAIT, *FEW_ROUNDS, *TINY] and table["device"]["kind"] == "cpu"
    entry, = table["entries"]
    assert entry["complete"] and entry["verdict"]["ok"]
    assert [rival["name"] for rival in entry["rivals"]][0] == "default"
    assert len(entry["rivals"]) >= 2  # the baseline too
    last, _, following = result.stdout.rstrip("\n").split("\n\n")[-1].rpartition("\nNext: ")
    message = "1 of 1 cell is too noisy to trust: " if "untrusted" in entry else "1 of 1 cell tuned: the winner is "
    assert " ".join(last.split()).startswith(message) and max(map(len, last.splitlines())) <= 80
    assert following == "moetune check moetune-table.json" or "untrusted" in entry


def test_noisy_winners_are_marked_in_the_table_the_sentence_and_with_quiet(planted):
    noise = {"MOETUNE_PLANT": "waited:0.5"}
    command = ["tune", *TINY, "--max-candidates", "1", "--wait", "0"]
    result = planted.ok(*command, env=noise)
    words = "1 of 1 cell is too noisy to trust: custom/up/fwd/bf16/t8/uniform/e4/top2/n64/k64 (other programs took 50 % of"
    assert words in " ".join(result.stdout.split()) and "(too noisy to trust)" in result.stdout
    assert "as fast as" not in result.stdout  # no claim
    again = f"Next: {' '.join(planted.command(command))}\n"  # and no check of noise
    assert result.stdout.endswith(again) and planted.ok(*command, "--resume", env=noise).stdout.endswith(again)
    validate("table", planted.path / "moetune-table.json")
    entry, = planted.json("moetune-table.json")["entries"]
    assert entry["untrusted"] == "other programs took 50 % of the processors' time"
    looked_up = " ".join(planted.ok("lookup", "moetune-table.json", *TINY[2:]).stdout.split())
    assert "; its winner is too noisy to trust: other programs took 50 % of" in looked_up
    quiet = planted.run(*command, "--resume", "-q", "--format", "markdown", "--require-quiet", env=noise)
    assert quiet.returncode == 4 and "warning: " + words in quiet.stderr
    exported = planted.ok("export", "moetune-table.json", "--format", "markdown").stdout
    assert "(too noisy to trust)" in exported and "1 of 1 cell is too noisy to trust: custom/up/fwd/bf16/t8/uniform/e4" in exported
    row, = csv.DictReader(io.StringIO(planted.ok("export", "moetune-table.json", "--format", "csv").stdout))
    assert row["untrusted"] == entry["untrusted"]


@pytest.mark.parametrize("rounds", [5, 12])
def test_a_final_has_the_rounds_that_are_asked_for(room, rounds):
    room.ok("tune", *TINY, *FEW, "--rounds", rounds)
    entry, = room.json("moetune-table.json")["entries"]
    # Rounds with a disturbed baseline are left out.
    assert 5 <= entry["measurement"]["samples"] <= rounds
    assert "--rounds" in room.error(2, "tune", *TINY, "--rounds", "4")


def in_short(entry):
    """The winner with the knobs that differ from the default, as every command names it."""
    default = next(rival["candidate"] for rival in entry["rivals"] if rival["name"] == "default")
    differs = [f"{knob}={value}" for knob, value in entry["candidate"].items() if value != default[knob]]
    return " ".join([entry["candidate"]["variant"], *differs]) if differs else "cpu, the default"


def flat(table):
    """The words of a table's column of winners, its lines joined."""
    return " ".join(line.split("|")[-3].strip() for line in table.strip().splitlines())


def test_result_tables_are_markdown(room):
    text = room.ok("tune", *CPU, *LAYER, "--tokens", "8,16", *FEW).stdout
    layer, routing, times, winners, _ = text.split("\n\n")
    assert layer == "custom up, fwd bf16: 4 experts, top 2, n 64, k 64"
    assert all(len(line) <= 80 for line in text.splitlines()[:-1]), text
    for table in (routing, times, winners):
        lines = table.strip().splitlines()
        assert len(lines) >= 2 + 2  # a winner may take several lines
        assert len({line.count("|") for line in lines}) == 1
        assert len({len(line) for line in lines}) == 1  # aligned
    for word in ("active", "max/mean", "CV", "effective", "occupancy"):
        assert word in routing.splitlines()[0]
    for word in ("time", "vs default", "vs loop"):
        assert word in times.splitlines()[0]
    assert len(re.findall(r"± [\d.]+ %|s to \d|x to \d|noisy", times)) == 6  # of a noisy machine: ranges, and no ratios
    for entry in room.json("moetune-table.json")["entries"]:
        assert in_short(entry) in flat(winners)


def test_formats_hold_the_table(room):
    result = room.ok("tune", *TINY, *FEW, "--format", "json")
    validate("table", text=result.stdout)
    assert json.loads(result.stdout) == room.json("moetune-table.json")
    assert "\nNext: " in result.stderr
    row, = csv.DictReader(io.StringIO(room.ok("tune", *TINY, *FEW, "--format", "csv").stdout))
    assert float(row["median_us"]) > 0
    for line in room.ok("tune", *TINY, *FEW, "--format", "markdown").stdout.splitlines():
        assert line == "" or line.startswith(("|", "## "))


def test_dry_run_writes_nothing_and_says_what_it_would(room):
    result = room.ok("tune", *TINY, "--set", "block_m=8,7,64", "--dry-run", "-o", "out/t.json")
    assert room.files() == []
    assert "Would write out/t.json and out/t.json.journal.jsonl." in result.stdout
    assert "| legal |" in result.stdout


def test_dry_run_counts_what_is_pruned(room):
    result = room.ok("tune", *TINY, "--space", "full", "--set", "threads=1,100000", "--dry-run", "--format", "json")
    validate("plan", text=result.stdout)
    plan = json.loads(result.stdout)
    cell, = plan["cells"]
    assert cell["legal"] + sum(cell["pruned"].values()) == cell["total"]
    assert any("threads" in reason for reason in cell["pruned"])
    assert sum(cell["figures"]["rows"] for cell in plan["cells"]) == 16


def test_a_search_tries_few_of_many_and_some_again(room):
    plan = json.loads(room.ok("tune", *CPU, *LAYER, "--tokens", "64", "--dry-run", "--format", "json").stdout)
    room.ok("tune", *CPU, *LAYER, "--tokens", "64")
    tried = [line for line in room.journal() if line["kind"] == "trial"]
    different = {json.dumps(line["candidate"]) for line in tried}
    assert 8 <= len(different) <= 150 < plan["cells"][0]["legal"]
    entry, = room.json("moetune-table.json")["entries"]
    assert entry["candidates"]["measured"] == len(different)
    assert all(line["took_us"] > 0 for line in room.journal() if line["kind"] in ("trial", "final"))
    for line in tried:
        if line["status"] == "ok":
            assert len(line["blocks"]["us"]) == line["measurement"]["samples"] >= 1


def test_a_search_begins_with_what_won_before(room):
    threads = ["--set", "threads=1"]  # with as many candidates on every machine
    room.ok("tune", *CPU, *LAYER, "--tokens", "64", "-o", "a.json", "-q", *threads)
    winner = room.json("a.json")["entries"][0]["candidate"]
    room.ok("tune", *CPU, *LAYER, "--tokens", "48", "-o", "b.json", "--warm-start", "a.json", "-q", *threads)
    tried = [line["candidate"] for line in room.journal("b.json.journal.jsonl") if line["kind"] == "trial"]
    assert winner in tried[:2]
    assert len({json.dumps(candidate) for candidate in tried}) <= 32
    assert "a.json" in room.error(2, "tune", *TINY, "-o", "a.json", "--warm-start", "a.json")
    assert "nowhere.json" in room.error(2, "tune", *TINY, "--warm-start", "nowhere.json")
    assert "--warm-start is for the strategy auto" in room.error(2, "tune", *TINY, "--strategy", "exhaustive", "--warm-start", "a.json")
    message = room.ok("tune", *CPU, *LAYER, "--tokens", "48", "--op", "dw", "-o", "c.json", "--warm-start", "a.json").stderr
    assert "it helps no cell" in message


def test_time_budget_ends_early_and_says_so(room):
    result = room.ok("tune", *CPU, *LAYER, "--tokens", "1-200", "--space", "full", "--time-budget", "300ms")
    entries = room.json("moetune-table.json")["entries"]
    assert 1 <= len(entries) < 200
    assert "budget" in result.stderr
    assert "--resume" in result.stdout.splitlines()[-1]


def require_sums(table, entries, message):
    """The one step's sums are those of its entries, and the text names each contender."""
    step, = table["training_steps"]
    assert step["cells"] == [entry["id"] for entry in entries]
    assert [total["contender"] for total in step["sums"]] == ["winners", "default", "loop"]
    for number, total in enumerate(step["sums"]):
        times = [entry["rivals"][number - 1]["measurement"] if number else entry["measurement"] for entry in entries]
        for ours, theirs in (("sum_us", "median_us"), ("low_us", "low_us"), ("high_us", "high_us")):
            assert total[ours] == pytest.approx(sum(time[theirs] for time in times), rel=1e-4)
        winner_us = step["sums"][0]["sum_us"]
        ratios = [1 / entry["rivals"][number - 1]["ratio"] if number else 1 for entry in entries]  # of the same rounds
        weighted = sum(entry["measurement"]["median_us"] * ratio for entry, ratio in zip(entries, ratios))
        assert total["speedup"] == pytest.approx(weighted / winner_us, rel=2e-3)
        assert re.search(rf"\| {total['contender']} +\| +[\d.]+ [µm]s", message), message
    assert ("untrusted" in step) == any("untrusted" in entry for entry in entries)


def test_bench_sums_a_training_step(room):
    layer = [*CPU, "--experts", "4", "--top-k", "2", "--hidden", "64", "--intermediate", "24", "--tokens", "8",
             "--projection", "up,down", "--op", "fwd,dx,dw"]
    bench = ["bench", *layer, "--rounds", "2", "--candidate", CANDIDATE]
    written = json.loads(room.ok(*bench, "--format", "json").stdout)
    validate("bench", text=json.dumps(written))
    step, = written["training_steps"]
    contenders = [total["contender"] for total in step["sums"]]
    assert contenders[0] == "default" and contenders[-1] == "loop" and len(contenders) == 3
    for total, role in zip(step["sums"], ("default", "candidate", "baseline")):
        times = [point["measurement"]["median_us"] for point in written["points"] if role in point["role"]]
        assert len(times) == 6 and total["sum_us"] == pytest.approx(sum(times), rel=1e-4)
    text = room.ok(*bench).stdout
    assert "custom training step, bf16: " in text and "speedup of default" in " ".join(text.split())
    for point in written["points"]:
        assert 0 < point["baseline_speedup_low"] <= point["baseline_speedup"] <= point["baseline_speedup_high"]
    five = json.loads(room.ok("bench", *layer[:-1], "fwd,dx", "--rounds", "1", "--format", "json").stdout)
    assert "training_steps" not in five


def test_the_six_gemms_of_a_training_step(room):
    layer = [*CPU, "--experts", "4", "--top-k", "2", "--hidden", "64", "--intermediate", "24", "--tokens", "8",
             "--projection", "up,down", "--op", "fwd,dx,dw", "--permute-x", "--permute-y"]
    message = room.ok("tune", *layer, *FEW).stdout
    heading = "custom training step, bf16: 4 experts, top 2, hidden 64, intermediate 24, up permute_x, down permute_y"
    assert heading in message.replace("\n", " ")
    assert all(len(line) <= 80 for line in message.splitlines()[:-1]), message
    validate("table", room.path / "moetune-table.json")
    validate("journal", room.path / "moetune-table.json.journal.jsonl")
    entries = room.json("moetune-table.json")["entries"]
    require_sums(room.json("moetune-table.json"), entries, message)
    row, *others = csv.DictReader(io.StringIO(room.ok("export", "moetune-table.json", "--format", "csv").stdout))
    sums = room.json("moetune-table.json")["training_steps"][0]["sums"]
    for column, total in zip(("step_us", "step_default_us", "step_baseline_us"), sums):
        assert float(row[column]) == pytest.approx(total["sum_us"], rel=1e-4) and {other[column] for other in others} == {row[column]}
    steps = [(entry["cell"]["projection"], entry["cell"]["op"]) for entry in entries]
    assert steps == [(projection, op) for projection in ("up", "down") for op in ("fwd", "dx", "dw")]
    for entry in entries:
        cell = entry["cell"]
        assert f"/{cell['projection']}/{cell['op']}/" in entry["id"]
        assert entry["verdict"]["ok"] and entry["flops"] == 2 * 16 * cell["n"] * cell["k"]
        assert (cell["permute_x"], cell["permute_y"]) == (cell["projection"] == "up", cell["projection"] == "down")
        if cell["op"] == "dw":  # its rows are those of n, for any routing
            block_m = entry["candidate"]["block_m"]
            assert entry["occupancy"] == pytest.approx(cell["n"] / (-(-cell["n"] // block_m) * block_m), abs=1e-5)
    header, *lines = room.journal()
    assert [cell["op"] for cell in header["cells"]] == ["fwd", "dx", "dw"] * 2
    assert {line["status"] for line in lines if line["kind"] == "trial"} == {"ok"}
    found = json.loads(room.ok("lookup", "moetune-table.json", *layer[2:], "--format", "json").stdout)
    assert [answer["match"] for answer in found["answers"]] == ["exact"] * 6
    for command, more in (("verify", []), ("bench", ["--rounds", "1"])):
        text = room.ok(command, *CPU, "--table", "moetune-table.json", "--op", "dw", *more, "--format", "json").stdout
        assert {point["cell"]["op"] for point in json.loads(text)["points"]} == {"dw"}
    check = room.run("check", "moetune-table.json", "--op", "dx,dw", "--rounds", "5", "--threshold", "50%", "--format",
                     "json")
    assert check.returncode in (0, 1, 4), check.stderr  # by the machine's mood
    assert [finding["cell"]["op"] for finding in json.loads(check.stdout)["findings"]] == ["dx", "dw"] * 2


def test_dx_may_be_summed_over_slots(room):
    summed = ["--permute-x", "--sum-slots"]
    room.ok("tune", *CPU, *LAYER, "--tokens", "8", "--op", "fwd,dx", *summed, *FEW)
    validate("table", room.path / "moetune-table.json")
    forward, dx = room.json("moetune-table.json")["entries"]
    assert "sum_slots" not in forward["id"] and "sum_slots" not in forward["cell"]
    assert dx["id"].endswith("/permute_x+sum_slots") and dx["verdict"]["ok"] and dx["cell"]["sum_slots"]
    assert dx["verdict"]["elements"] == 2 * 8 * 64  # rows of tokens, of integers and of random inputs
    active = dx["figures"]["active_experts"]
    assert dx["bytes"] == 2 * (active * 64 * 64 + 16 * 64 + 8 * 64) + 4 * 4 + 4 * 16  # W, dY, dX; counts and indices
    answer = ("lookup", "moetune-table.json", *LAYER, "--tokens", "8", "--op", "dx", "--permute-x")
    assert room.run(*answer).returncode == 1  # no entry by slot
    assert "permute_x+sum_slots" in room.ok(*answer, "--sum-slots").stdout
    room.ok("verify", *CPU, "--table", "moetune-table.json", "--sum-slots")
    room.ok("bench", *CPU, "--table", "moetune-table.json", "--sum-slots", "--rounds", "1")
    assert "sum_slots of dx needs permute_y or permute_x" in room.error(2, "tune", *TINY, "--op", "dx", "--sum-slots")
    assert "sum_slots of fwd needs permute_y" in room.error(2, "tune", *TINY, *summed)


def test_variants_without_a_model_are_reported(room):
    message = "there is no cost model for cpu: "
    assert message + "--strategy model tries its default alone" in room.ok("tune", *TINY, "--strategy", "model").stderr
    assert message not in room.ok("tune", *TINY, "--max-candidates", "1", "-o", "other.json").stderr
