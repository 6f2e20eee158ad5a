"""tune --device cuda:all: a worker a GPU, one journal and one table. Planted GPUs are the cpu under several names."""
import json
import pathlib

import pytest

from conftest import LAYER, trials, validate, wait_until_gone

CELLS = [*LAYER, "--tokens", "8,16,32,64", "--strategy", "exhaustive"]
ALL_GPUS, ONE_GPU = ["--device", "cuda:all", *CELLS], ["--device", "cuda:0", *CELLS]
ALL, ONE = [*ALL_GPUS, "--at-once", "1"], [*ONE_GPU, "--at-once", "1"]
FIVE = ["--max-candidates", "5"]


def gpus(count, more="trial_ms:15"):
    return {"MOETUNE_PLANT": f"gpus:{count};{more}"}


def workers_of(pid):
    children = pathlib.Path(f"/proc/{pid}/task").glob("*/children")  # of each thread
    pids = {int(word) for child in children for word in child.read_text().split()}
    return [p for p in pids if b"worker" in pathlib.Path(f"/proc/{p}/cmdline").read_bytes()]


def tokens_of(table):
    return [entry["cell"]["tokens"] for entry in table["entries"]]


def most_under_way(journal):
    """Of how many cells some of their five trials had ended at the same time, and not all."""
    counts, most = {}, 0
    for cell, _ in trials(journal):
        counts[cell] = counts.get(cell, 0) + 1
        most = max(most, sum(count < 5 for count in counts.values()))
    return most


def test_two_gpus_share_the_cells_and_the_table_is_in_order(planted):
    result = planted.ok("tune", *ALL, *FIVE, env=gpus(2))
    table = planted.json("moetune-table.json")
    assert tokens_of(table) == [8, 16, 32, 64] and all(entry["complete"] for entry in table["entries"])
    validate("table", planted.path / "moetune-table.json")
    validate("journal", planted.path / "moetune-table.json.journal.jsonl")
    measured = trials(planted.journal())
    assert len(measured) == len(set(measured)) == 20
    assert most_under_way(planted.journal()) == 2
    for index, tokens in enumerate((8, 16, 32, 64)):
        assert f"[{index + 1}/4] custom/up/fwd/bf16/t{tokens}/" in result.stderr
    assert "4 of 4 cells " in result.stdout


def test_all_gpus_lost_keeps_what_was_measured(planted):
    process = planted.start("tune", *ALL, *FIVE, env=gpus(1, "trial_ms:15;gone:gone"))
    planted.wait_for_trials(process, 7)
    planted.write("gone", "")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert "the driver has lost the GPU" in err and "--resume" in err
    before = trials(planted.journal())
    planted.ok("tune", *ALL, *FIVE, "--resume", env=gpus(2))
    assert trials(planted.journal())[:len(before)] == before
    assert tokens_of(planted.json("moetune-table.json")) == [8, 16, 32, 64]


def test_kill_9_of_the_parent_ends_all_workers_and_any_gpu_resumes(planted):
    process = planted.start("tune", *ALL, *FIVE, env=gpus(2))
    planted.wait_for_trials(process, 6)
    workers = workers_of(process.pid)
    assert len(workers) == 2
    process.kill()
    process.communicate()
    assert all(wait_until_gone(worker) for worker in workers)
    before = trials(planted.journal())
    planted.ok("tune", *ALL, *FIVE, "--resume", env=gpus(3))
    after = trials(planted.journal())
    assert after[:len(before)] == before and len(after) == len(set(after)) == 20


def test_unlike_gpus_are_refused(planted):
    text = planted.error(3, "tune", *ALL, *FIVE, env=gpus(2, "unlike:"))
    assert "cuda:1 is another model with" in text and "a table is of one model" in text
    assert "name GPUs of one model in CUDA_VISIBLE_DEVICES" in text
    assert planted.files() == []


def test_every_gpu_is_locked(planted):
    process = planted.start("tune", *ALL, *FIVE, env=gpus(2))
    planted.wait_for_trials(process, 2)
    text = planted.error(3, "tune", "--device", "cuda:1", *LAYER, "--tokens", "8", "-o", "other.json", env=gpus(2))
    assert f"another moetune (pid {process.pid}) is using cuda:1" in text
    process.kill()
    process.communicate()


@pytest.mark.parametrize("command", ["bench", "verify"])
def test_other_commands_run_on_one_device(room, command):
    text = room.error(2, command, *ALL_GPUS[:-2])
    assert "--device cuda:all is for tune: this command runs on one device" in text and "such as cuda:0" in text


def test_no_gpu_is_reported_with_the_reason(room):
    devices = json.loads(room.ok("list", "devices", "--format", "json").stdout)
    if "cuda:0" in json.dumps(devices):
        pytest.skip("this machine has a GPU")
    assert "no CUDA device: " in room.error(3, "tune", *ALL)
    assert room.files() == []


def test_two_cells_of_a_gpu_are_tuned_at_the_same_time(planted):
    planted.ok("tune", *ONE_GPU, *FIVE, "--at-once", "2", env=gpus(1, f"trial_ms:40;alone:{planted.path}"))
    measured = trials(planted.journal())
    assert len(measured) == len(set(measured)) == 20
    assert most_under_way(planted.journal()) == 2
    table = planted.json("moetune-table.json")
    assert tokens_of(table) == [8, 16, 32, 64] and all(entry["candidates"]["failed"] == 0 for entry in table["entries"])


def test_a_gpu_in_exclusive_mode_has_one_worker(planted):
    planted.ok("tune", *ONE_GPU, *FIVE, env=gpus(1, f"exclusive:{planted.path}"))
    assert most_under_way(planted.journal()) == 1
    assert tokens_of(planted.json("moetune-table.json")) == [8, 16, 32, 64]


def test_a_cpu_tunes_one_cell_at_a_time(planted):
    planted.ok("tune", "--device", "cpu", *CELLS, *FIVE, "--at-once", "2")
    assert most_under_way(planted.journal()) == 1


def test_a_wrong_number_of_cells_at_once_is_refused(planted):
    for number in ("0", "9", "two"):
        assert "--at-once" in planted.error(2, "tune", *ONE_GPU, "--at-once", number, env=gpus(1))
