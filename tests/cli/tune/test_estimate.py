"""tune --dry-run tells about how long the run takes."""
import json

import pytest

from conftest import CPU, FEW, LAYER, validate
from conftest import TINY as CELL_OPTIONS

LISTED = ["--strategy", "exhaustive"]
TINY = [*CELL_OPTIONS, *LISTED]
JOURNAL = "moetune-table.json.journal.jsonl"
CELL = "custom/up/fwd/bf16/t8/uniform/e4/top2/n64/k64"


def plan(room, *more):
    return json.loads(room.ok("tune", *TINY, "--dry-run", "--format", "json", *more).stdout)


def plant_times(room, trial_us, final_us):
    """A journal of three trials and a final that took so long."""
    room.tuned(*LISTED)
    lines = room.journal()
    for line in lines:
        if line["kind"] == "trial":
            line["took_us"] = trial_us
        if line["kind"] == "final":
            line["took_us"] = final_us
    assert [line["kind"] for line in lines].count("trial") == 3 and lines[-1]["kind"] == "final"
    room.write(JOURNAL, "".join(json.dumps(line) + "\n" for line in lines))
    return lines


def test_without_a_journal_it_is_a_guess(room):
    estimate = plan(room)["estimate"]
    assert estimate["by"] == "guess" and estimate["trials"] == 37 and estimate["seconds"] > 0
    text = " ".join(room.ok("tune", *TINY, "--dry-run").stdout.split())
    assert " for about 37 candidates (a guess: there is no journal of such trials). " in text


def test_a_journal_tells(room):
    plant_times(room, 2e6, 3e6)
    made = plan(room)
    assert made["estimate"] == {"trials": 37, "seconds": 77.0, "by": "journal"}
    assert made["cells"][0]["estimate"] == made["estimate"]
    validate("plan", room.path / room.write("plan.json", made))
    text = " ".join(room.ok("tune", *TINY, "--dry-run").stdout.split())
    assert f"Would take about 77.0 s for about 37 candidates (by the trials in {JOURNAL})." in text
    assert "Would take about 77.0 s" in room.ok("tune", *TINY, "--dry-run", "--format", "markdown").stdout
    assert "unknown --format 'csv'" in room.error(2, "tune", *TINY, "--dry-run", "--format", "csv")


@pytest.mark.parametrize("options, seconds", [(["--max-candidates", "5"], 13), (["--time-budget", "10s"], 10),
                                              (["--resume", "--max-candidates", "5"], 7)])
def test_limits_and_resumed_trials_count(room, options, seconds):
    plant_times(room, 2e6, 3e6)
    assert plan(room, *options)["estimate"]["seconds"] == seconds


@pytest.mark.parametrize("change", [{"regime": "sustained"}, {"device": "another"}])
def test_a_journal_that_does_not_compare_tells_nothing(room, change):
    header, *records = plant_times(room, 2e6, 3e6)
    if "device" in change:
        header["device"]["name"] = change["device"]
    else:
        header.update(change)
    room.write(JOURNAL, "".join(json.dumps(line) + "\n" for line in (header, *records)))
    assert plan(room)["estimate"]["by"] == "guess"


def test_a_run_writes_what_it_took(room):
    room.ok("tune", *TINY, *FEW, "-q")
    records = room.journal()
    assert all(line["took_us"] > 0 for line in records if line["kind"] == "trial")
    final, = (line for line in records if line["kind"] == "final")
    assert final["cell"] == CELL and final["took_us"] > 0
    validate("journal", room.path / JOURNAL)
    assert plan(room)["estimate"]["by"] == "journal"


def test_gpus_share_the_time(planted):
    def seconds(count):
        cells = [*LAYER, *LISTED, "--tokens", "8,16,32,64"]
        return json.loads(planted.ok("tune", "--device", "cuda:all", *cells, "--dry-run", "--format", "json",
                                     env={"MOETUNE_PLANT": f"gpus:{count}"}).stdout)["estimate"]["seconds"]

    assert seconds(2) == pytest.approx(seconds(1) / 2, rel=0.02)


def test_a_search_of_all_counts_what_it_tries_at_most(room):
    tokens = "8,10,4096"
    made = json.loads(room.ok("tune", *CPU, *LAYER, "--tokens", tokens, "--dry-run", "--format", "json").stdout)
    validate("plan", room.path / room.write("plan.json", made))
    first, near, far = (cell["estimate"]["trials"] for cell in made["cells"])
    assert first == far > near > 0, "a cell near one with a winner needs fewer"
    assert made["estimate"]["trials"] == first + near + far
    few = json.loads(room.ok("tune", *CPU, *LAYER, "--tokens", tokens, *FEW, "--dry-run", "--format", "json").stdout)
    assert few["estimate"]["trials"] == 9
