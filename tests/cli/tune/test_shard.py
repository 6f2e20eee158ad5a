"""tune --shard: each machine tunes its part of the cells, and merge makes of them what one run makes."""
import copy
import json
import signal
import subprocess
import sys

import pytest

from conftest import BINARY, CPU, LAYER, SLOW_TRIALS, SOURCE, trials, validate

SWEEP = [*CPU, *LAYER, "--tokens", "8,16,32", "--routing", "uniform,single", "--strategy", "exhaustive"]
ONE = ["--max-candidates", "1"]  # the default wins with any times
TABLES = [f"table.{i}-of-4.json" for i in (1, 2, 3, 4)]
JOURNALS = [f"{table}.journal.jsonl" for table in TABLES]


def step(rank, size):
    return {"SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(size), "SLURM_JOB_ID": "7"}


def array(task, count):
    return {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_MAX": str(count - 1),
            "SLURM_ARRAY_TASK_STEP": "1", "SLURM_ARRAY_TASK_COUNT": str(count)}


def tune_shards(room, *more):
    for i in range(1, 5):
        room.ok("tune", *SWEEP, *ONE, "-q", "-o", "table.json", "--shard", f"{i}/4", *more)


def without_times(entry):
    """What of an entry doesn't follow from its times."""
    kept = {key: entry[key] for key in ("id", "cell", "m_sizes", "figures", "flops", "bytes", "candidate", "occupancy",
                                        "verdict", "ties", "candidates", "complete")}
    return {**kept, "rivals": [(rival["name"], rival.get("candidate")) for rival in entry["rivals"]]}


def test_merged_shards_are_one_runs_table_and_journal(room):
    tune_shards(room)
    assert room.files() == sorted(TABLES + JOURNALS)
    for name in TABLES:
        validate("table", room.path / name)
        assert len(room.json(name)["entries"]) in (1, 2)
    for name in JOURNALS:
        validate("journal", room.path / name)
    room.ok("tune", *SWEEP, *ONE, "-q", "-o", "one.json")
    result = room.ok("merge", *reversed(TABLES), "-o", "table.json")
    assert result.stdout == "6 cells in table.json.\n" and result.stderr == ""
    merged, one = room.json("table.json"), room.json("one.json")
    validate("table", room.path / "table.json")
    assert [without_times(entry) for entry in merged["entries"]] == [without_times(entry) for entry in one["entries"]]
    assert set(merged) == set(one) and merged["device"] == one["device"]

    assert room.ok("merge", *reversed(JOURNALS), "-o", "joined.jsonl").stdout == "6 cells in joined.jsonl.\n"
    validate("journal", room.path / "joined.jsonl")
    assert room.journal("joined.jsonl")[0] == room.journal("one.json.journal.jsonl")[0]
    joined = trials(room.journal("joined.jsonl"))
    assert sorted(joined) == sorted(trials(room.journal("one.json.journal.jsonl")))
    room.ok("tune", *SWEEP, *ONE, "-q", "-o", "again.json", "--journal", "joined.jsonl", "--resume")
    assert trials(room.journal("joined.jsonl")) == joined  # nothing is measured again


@pytest.mark.parametrize("variables, shard, message", [
    ({**array(1, 2), **step(1, 2)}, "4-of-4",
     "shard 4/4 by SLURM_ARRAY_TASK_ID, SLURM_PROCID and SLURM_STEP_NUM_TASKS (--shard 1/1 for all cells): "),
    ({"PMI_RANK": "3", "PMI_SIZE": "4"}, "4-of-4", "shard 4/4 by PMI_RANK and PMI_SIZE ("),
])
def test_the_environment_of_slurm_and_mpi_names_the_shard(room, variables, shard, message):
    result = room.ok("tune", *SWEEP, *ONE, "-o", "table.json", env=variables)
    assert message in result.stderr and f"of 6 cells, written to table.{shard}.json" in result.stderr
    assert room.files() == [f"table.{shard}.json", f"table.{shard}.json.journal.jsonl"]
    assert result.stdout.rstrip().endswith(f"Next: moetune merge table.*-of-4.json -o table.json")
    by_option = json.loads(room.ok("tune", *SWEEP, "--dry-run", "--format", "json", "--shard",
                                   shard.replace("-of-", "/")).stdout)
    assert [cell["cell"] for cell in by_option["cells"]] == [entry["cell"]
                                                             for entry in room.json(f"table.{shard}.json")["entries"]]


def test_a_shard_without_cells_leaves_an_empty_table(room):
    few = [*CPU, *LAYER, "--tokens", "8,16", *ONE, "-o", "table.json"]
    for i in (1, 2, 3):
        result = room.ok("tune", *few, "--shard", f"{i}/3")
    assert "Shard 3/3 has no cells: there are fewer cells than shards. The table table.3-of-3.json is empty." in result.stdout
    validate("table", room.path / "table.3-of-3.json")
    validate("journal", room.path / "table.3-of-3.json.journal.jsonl")
    assert room.json("table.3-of-3.json")["entries"] == []
    quiet = room.ok("tune", *few, "--shard", "3/3", "--format", "json")
    assert json.loads(quiet.stdout)["entries"] == [] and "Shard 3/3 has no cells" in quiet.stderr
    parts = [f"table.{i}-of-3.json" for i in (3, 1, 2)]
    assert room.ok("merge", *parts, "-o", "table.json").stderr == ""
    assert [entry["cell"]["tokens"] for entry in room.json("table.json")["entries"]] == [8, 16]
    room.ok("merge", *(f"{part}.journal.jsonl" for part in parts), "-o", "joined.jsonl")
    validate("journal", room.path / "joined.jsonl")


def test_a_missing_shard_is_reported_and_may_come_later(room):
    tune_shards(room)
    result = room.ok("merge", TABLES[3], TABLES[0], "-o", "some.json")
    assert "warning: 3 of 6 cells are not here (custom/" in result.stderr and "merge the other shards too" in result.stderr
    validate("table", room.path / "some.json")
    room.ok("merge", TABLES[2], "some.json", TABLES[1], "-o", "late.json")
    room.ok("merge", *TABLES, "-o", "table.json")
    assert room.json("late.json")["entries"] == room.json("table.json")["entries"]
    some = room.ok("merge", JOURNALS[3], JOURNALS[0], "-o", "some.jsonl")
    assert "3 of 6 cells are not here" in some.stderr
    room.ok("merge", JOURNALS[2], "some.jsonl", JOURNALS[1], "-o", "late.jsonl")
    room.ok("merge", *JOURNALS, "-o", "joined.jsonl")
    assert sorted(trials(room.journal("late.jsonl"))) == sorted(trials(room.journal("joined.jsonl")))
    assert room.journal("late.jsonl")[0]["cells"] == room.journal("joined.jsonl")[0]["cells"]


def test_journals_that_differ_in_a_cell_conflict(room):
    exhaustive = ["--strategy", "exhaustive"]  # auto may write several lines of a candidate
    room.ok("tune", *CPU, *LAYER, *exhaustive, "--tokens", "8", "--max-candidates", "2", "-o", "a.json")
    room.ok("tune", *CPU, *LAYER, *exhaustive, "--tokens", "8,16", "--max-candidates", "3", "-o", "b.json")
    names = ["a.json.journal.jsonl", "b.json.journal.jsonl"]
    text = room.error(1, "merge", *names, "-o", "c.jsonl")
    assert "conflict: custom/up/fwd/bf16/t8/" in text and "/t16/" not in text and "--prefer first or last" in text
    assert "c.jsonl" not in room.files()
    for prefer, count in (("first", 2 + 3), ("last", 3 + 3)):
        room.ok("merge", *names, "--prefer", prefer, "-o", f"{prefer}.jsonl")
        assert len(trials(room.journal(f"{prefer}.jsonl"))) == count
    assert room.ok("merge", names[0], names[0]).stdout == (room.path / names[0]).read_text()
    assert "--prefer fastest is for tables" in room.error(2, "merge", *names, "--prefer", "fastest")
    assert "merge tables with tables" in room.error(2, "merge", "a.json", names[0])


def test_journals_of_other_runs_are_refused(room):
    room.ok("tune", *CPU, *LAYER, "--tokens", "8", *ONE, "-o", "a.json")
    header, *records = room.journal("a.json.journal.jsonl")
    for change, code, message in (({"seed": 3}, 2, "the seed is 3, that of the first journal 0"),
                               ({"strategy": "random"}, 2, "the strategy is random"),
                               ({"regime": "sustained"}, 3, "the regimes burst and sustained don't compare"),
                               ({"device": {**header["device"], "name": "another"}}, 3, "journals of different devices")):
        other = {**copy.deepcopy(header), **change}
        room.write("b.jsonl", "".join(json.dumps(line) + "\n" for line in (other, *records)))
        assert message in room.error(code, "merge", "a.json.journal.jsonl", "b.jsonl")


def test_an_interrupted_shard_is_named_where_it_goes_on(planted):
    process = planted.start("tune", *SWEEP, "--max-candidates", "8", "-o", "table.json", env={**SLOW_TRIALS, **array(1, 2)})
    planted.wait_for_trials(process, 3, "table.2-of-2.json.journal.jsonl")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.rstrip().endswith("--resume --shard 2/2")
    before = trials(planted.journal("table.2-of-2.json.journal.jsonl"))
    planted.ok("tune", *SWEEP, "--max-candidates", "8", "-o", "table.json", "--resume", "--shard", "2/2")
    after = trials(planted.journal("table.2-of-2.json.journal.jsonl"))
    assert after[:len(before)] == before and len(after) == len(set(after)) == 3 * 8


def test_the_batch_script_starts_a_task_with_the_options(room):
    srun = room.path / "srun"
    srun.write_text('#!/bin/sh\nSLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 exec "$@"\n')
    srun.chmod(0o755)
    env = {**room.env, **array(1, 2), "MOETUNE": BINARY, "PATH": f"{room.path}:{room.env['PATH']}"}
    command = [SOURCE / "scripts/slurm", *SWEEP, *ONE, "--wait", "0", "-o", "a b.json"]
    for _ in range(2):  # the second time as if it was requeued
        result = subprocess.run(command, cwd=room.path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                universal_newlines=True)
        assert result.returncode == 0, result.stderr
        assert len(trials(room.journal("a b.2-of-2.json.journal.jsonl"))) == 3
    assert "Next: moetune merge 'a b'.*-of-2.json -o 'a b.json'" in result.stdout


def test_the_documented_batch_commands_are_what_sbatch_takes():
    commands = [line for name in ("scripts/slurm", "configs/machines.md")
                for line in (SOURCE / name).read_text(encoding="utf-8").splitlines() if "sbatch --" in line]
    assert len(commands) == 3
    for command in commands:  # sbatch refuses --gpus-per-task where the number of tasks is unknown
        assert "--gpus-per-task" not in command or "--ntasks" in command, command


def test_the_trial_with_slurm_names_what_is_missing(room):
    env = {**room.env, "PATH": str(room.path), "MOETUNE": BINARY}
    result = subprocess.run([sys.executable, SOURCE / "scripts/slurm_trial"], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, universal_newlines=True, check=False)
    assert result.returncode == 3 and "slurm_trial: not found: munged, slurmctld, slurmd" in result.stderr
