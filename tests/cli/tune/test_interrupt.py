"""Ctrl-C, kill -9 of parent and worker, crashes, hangs, two tuners: nothing measured is lost, nothing is done twice."""
import json
import os
import random
import re
import shlex
import signal
import time

import pytest

from conftest import CPU, FEW, LAYER, SLOW_TRIALS, TINY, trials, validate, wait_until_gone, worker_of

CELLS = CPU + LAYER + ["--tokens", "8,16", "--strategy", "exhaustive"]
SEARCH = CPU + LAYER + ["--tokens", "8,16"]


def start(room, *more, env=SLOW_TRIALS):
    process = room.start("tune", *CELLS, *more, env=env)
    return process


def test_ctrl_c_then_resume_repeats_no_trial(planted):
    process = start(planted)
    planted.wait_for_trials(process, 5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopping after this trial" in err and out.rstrip().splitlines()[-1].endswith("--resume")
    validate("table", planted.path / "moetune-table.json")
    assert not planted.json("moetune-table.json")["entries"][-1]["complete"]
    validate("journal", planted.path / "moetune-table.json.journal.jsonl")
    before = trials(planted.journal())
    planted.ok("tune", *CELLS, "--resume")
    after = trials(planted.journal())
    assert after[:len(before)] == before
    assert len(after) == len(set(after)) > len(before)
    assert all(entry["complete"] for entry in planted.json("moetune-table.json")["entries"])


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_without_results_so_far_ends_at_once(room, sent):
    process = room.start("doctor", *CPU, preexec_fn=lambda: signal.signal(sent, signal.SIG_DFL))  # nohup ignores it
    assert "measuring" in process.stderr.readline()
    process.send_signal(sent)
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_ctrl_c_to_the_whole_group_spares_the_worker(planted):
    # As a terminal does: the worker gets the signal too, and the trial under way is finished all the same.
    process = planted.start("tune", *CELLS, env=SLOW_TRIALS, start_new_session=True)
    planted.wait_for_trials(process, 3)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert all(line.get("status", "ok") == "ok" for line in planted.journal())


def test_second_ctrl_c_ends_at_once(planted):
    process = start(planted, env={"MOETUNE_PLANT": "hang:"})
    end = time.monotonic() + 60
    while not any(line["kind"] == "started" for line in planted.journal()):
        assert time.monotonic() < end
        time.sleep(0.01)
    worker = worker_of(process.pid)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None  # waits for the trial, which hangs
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    process.communicate(timeout=10)
    assert time.monotonic() - begin < 5
    assert process.returncode == -signal.SIGINT
    assert worker is None or wait_until_gone(worker)


def test_kill_9_of_the_parent_then_resume_repeats_no_finished_trial(planted):
    process = start(planted)
    planted.wait_for_trials(process, 7)
    worker = worker_of(process.pid)
    process.kill()
    process.communicate()
    assert worker is None or wait_until_gone(worker), "the worker outlives its parent"
    before = trials(planted.journal())
    assert len(before) >= 7 and "moetune-table.json.lock" in planted.files()
    planted.ok("tune", *CELLS, "--resume")
    assert "moetune-table.json.lock" not in planted.files()
    after = trials(planted.journal())
    assert after[:len(before)] == before
    assert len(after) == len(set(after)), "a finished trial was repeated"
    table = planted.json("moetune-table.json")
    assert len(table["entries"]) == 2 and all(entry["complete"] for entry in table["entries"])
    validate("table", planted.path / "moetune-table.json")
    validate("journal", planted.path / "moetune-table.json.journal.jsonl")


def finals(journal):
    return [line["cell"] for line in journal if line["kind"] == "final"]


def winners(room, name="moetune-table.json"):
    path = room.path / name
    entries = json.loads(path.read_text())["entries"] if path.exists() else []
    return {entry["id"]: (entry["candidate"], entry["measurement"]) for entry in entries}


def test_a_run_that_is_killed_after_each_cell_ends(planted):
    """As one in a queue with a time limit does, which requeues with --resume. No cell is decided twice."""
    cells = CPU + LAYER + ["--tokens", "8-12", "--max-candidates", "2", "--resume", "--time-budget", "30s"]
    known = {}
    for count in range(1, 5):
        process = planted.start("tune", *cells, env=SLOW_TRIALS)
        end = time.monotonic() + 120
        while len(finals(planted.journal())) < count and time.monotonic() < end:
            assert process.poll() is None, process.communicate()
            time.sleep(0.005)
        process.kill()
        process.communicate()
        now = winners(planted)
        assert known.items() <= now.items(), "a cell of the table is lost or changed"
        known = now
    result = planted.ok("tune", *cells)
    assert "of 5 cells, which are kept" in result.stderr
    assert known.items() <= winners(planted).items() and len(winners(planted)) == 5
    assert len(finals(planted.journal())) == len(set(finals(planted.journal()))) == 5
    assert not list(planted.path.glob("*.old*"))
    validate("journal", planted.path / "moetune-table.json.journal.jsonl")


def test_a_whole_table_stays_whole_while_its_run_is_resumed(planted):
    cells = CPU + LAYER + ["--tokens", "8-11", "--max-candidates", "2"]
    planted.ok("tune", *cells)
    whole = winners(planted)
    journal = planted.journal()
    planted.ok("tune", *cells, "--resume")
    assert winners(planted) == whole and planted.journal() == journal
    # With more candidates all cells are searched on, and each keeps its entry until it is decided again.
    process = planted.start("tune", *cells[:-1], "4", "--resume", env=SLOW_TRIALS)
    planted.wait_for_trials(process, 10)
    process.kill()
    process.communicate()
    assert winners(planted).keys() == whole.keys()
    assert not list(planted.path.glob("*.old*"))


def blocks_by_candidate(journal):
    """For each (cell, candidate) the times of the blocks in each of its trials."""
    result = {}
    for line in journal:
        if line["kind"] == "trial" and line["status"] == "ok":
            times = line["blocks"]["us"]
            result.setdefault((line["cell"], json.dumps(line["candidate"])), []).append(times)
    return result


def kill_workers(planted, process, journal, draw, most):
    """Kills the worker at random moments inside of trials, until the run ends; how often."""
    kills = done = 0
    while process.poll() is None and kills < most:
        time.sleep(draw.uniform(0.005, 0.06))
        lines, worker = planted.journal(journal), worker_of(process.pid)
        finished = len(trials(lines))
        # Once a trial: a worker that is killed again and again while it loads is taken for out of memory.
        if worker and finished > done and lines[-1]["kind"] == "started":
            done = finished
            try:
                os.kill(worker, signal.SIGKILL)
                kills += 1
            except ProcessLookupError:
                pass
    return kills


MOMENTS = 10


@pytest.mark.parametrize("strategy", ["exhaustive", "auto"])
def test_kill_9_of_the_worker_at_random_moments(planted, strategy):
    draw, kills = random.Random(7), 0
    for run in range(5):
        process = planted.start("tune", *SEARCH, "--strategy", strategy, "--wait", "0", "-o", f"{run}.json",
                                env={"MOETUNE_PLANT": "trial_ms:40"})
        kills += kill_workers(planted, process, f"{run}.json.journal.jsonl", draw, MOMENTS - kills)
        out, err = process.communicate(timeout=200)
        assert process.returncode == 0, err
        journal = planted.journal(f"{run}.json.journal.jsonl")
        for trials_of_one in blocks_by_candidate(journal).values():
            for before, after in zip(trials_of_one, trials_of_one[1:]):
                assert after[:len(before)] == pytest.approx(before) and len(after) > len(before)
        statuses = [line["status"] for line in journal if line["kind"] == "trial"]
        assert set(statuses) <= {"ok", "crashed"} and statuses.count("crashed") <= 2
        table = planted.json(f"{run}.json")
        assert len(table["entries"]) == 2 and all(entry["complete"] for entry in table["entries"])
        if kills == MOMENTS:
            break
    assert kills == MOMENTS


def test_a_cell_without_a_correct_candidate_is_exit_1(planted):
    result = planted.run("tune", *TINY, env={"MOETUNE_PLANT": "wrong:"})
    assert result.returncode == 1
    assert "none: no candidate is right" in result.stdout
    entry, = planted.json("moetune-table.json")["entries"]
    assert "planted" in entry["skipped"]
    validate("table", planted.path / "moetune-table.json")


def test_wrong_results_speak_first(planted):
    result = planted.ok("tune", *TINY, "--strategy", "exhaustive", "--set", "block_m=24,96", env={"MOETUNE_PLANT": "wrong:block_m=96"})
    said = re.search(r"(\d+) candidates with block_m=96 gave wrong results in 1 cell. The first, in custom/.* differs: planted. "
                     r"Again: (moetune verify --device cpu .* --candidate 'cpu block_m=96 [^']*') 1 of 1 cell ",
                     " ".join(result.stdout.split()))
    entry, = planted.json("moetune-table.json")["entries"]
    assert said and int(said[1]) == entry["candidates"]["failed"], result.stdout
    again = planted.run(*shlex.split(said[2])[1:], env={"MOETUNE_PLANT": "wrong:block_m=96"})
    assert again.returncode == 1 and "0 of 1 candidate right" in again.stdout


def test_bench_that_is_interrupted_keeps_its_rounds(planted):
    process = planted.start("bench", *TINY, "--rounds", "100000", "-o", "bench.json", env={"MOETUNE_PLANT": "trial_ms:20"})
    while not process.stderr.readline().startswith("[1/1]"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, out + err
    assert "interrupted: 0 of 1 cell" in planted.json("bench.json").get("fault", "")
    assert all(1 <= point["measurement"]["samples"] < 1000 for point in planted.json("bench.json")["points"])


def test_two_tuners_on_one_device(planted):
    process = start(planted)
    planted.wait_for_trials(process, 1)
    text = planted.error(3, "tune", *TINY, *FEW, "-o", "other.json")
    assert f"another moetune (pid {process.pid}) is using cpu" in text
    assert "hint: wait until it has ended" in text
    assert not (planted.path / "other.json").exists()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    planted.ok("tune", *TINY, *FEW, "-o", "other.json")  # the lock went with its holder


def elsewhere(room):
    """Another lock folder stands in for another device."""
    (room.path / "locks/other").mkdir()
    return {"MOETUNE_LOCK_DIR": str(room.path / "locks/other")}


@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_two_tuners_on_two_devices_with_one_journal(planted, more):
    process = start(planted, "--max-candidates", "20")
    planted.wait_for_trials(process, 3)
    other = elsewhere(planted)
    journal = ["--journal", "moetune-table.json.journal.jsonl", "-o", "other.json"]
    text = planted.error(2, "tune", *TINY, *FEW, *more, *journal, env=other)
    assert re.search(r"another moetune( \(pid \d+\))? is using moetune-table\.json\.journal\.jsonl", text), text
    assert "(pid" not in text or f"(pid {process.pid})" in text
    assert "hint: wait until it has ended" in text
    assert "is using moetune-table.json.journal.jsonl" in planted.error(2, "tune", *TINY, *FEW, *more, *journal)
    # Nothing is put aside, no table is written.
    assert planted.files() == ["moetune-table.json.journal.jsonl", "moetune-table.json.lock"]
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    table = planted.json("moetune-table.json")
    assert len(table["entries"]) == 2 and all(entry["complete"] for entry in table["entries"])
    validate("journal", planted.path / "moetune-table.json.journal.jsonl")
    measured = sum(entry["candidates"]["measured"] for entry in table["entries"])
    assert len(set(trials(planted.journal()))) == len(trials(planted.journal())) == measured  # no line went elsewhere


@pytest.mark.parametrize("more", [["--resume"], ["--journal", "other.jsonl"]])
def test_two_tuners_with_one_table(planted, more):
    process = start(planted, "--max-candidates", "20")
    planted.wait_for_trials(process, 3)
    other = elsewhere(planted)
    for env in ({}, other):  # on one device, and on two
        text = planted.error(2, "tune", *TINY, *FEW, *more, env=env)
        assert f"another moetune (pid {process.pid}) is using moetune-table.json\n" in text
        assert "hint: wait until it has ended, or choose another file" in text
    assert planted.files() == ["moetune-table.json.journal.jsonl", "moetune-table.json.lock"]
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert planted.files() == ["moetune-table.json", "moetune-table.json.journal.jsonl"]
    assert len(planted.json("moetune-table.json")["entries"]) == 2
    planted.ok("tune", *TINY, *FEW, *more, "-o", "other.json")


def test_who_replaces_a_table_that_is_being_tuned_is_refused(planted):
    """A tune --append holds the table that it began with: what others wrote into it meanwhile would be lost."""
    planted.ok("tune", *TINY, *FEW, "-q")
    planted.ok("tune", *TINY, *FEW, "-q", "-o", "other.json", "--seed", "3")
    process = start(planted, "--append", "--journal", "append.jsonl", env={"MOETUNE_PLANT": "hang:"})
    end = time.monotonic() + 60
    while not any(line["kind"] == "started" for line in planted.journal("append.jsonl")):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.01)
    other = elsewhere(planted)
    for command in (["check", "moetune-table.json", "--update", "--reason", "new driver"],
                    ["merge", "moetune-table.json", "other.json", "-o", "moetune-table.json"]):
        text = planted.error(2, *command, env=other)
        assert f"another moetune (pid {process.pid}) is using moetune-table.json\n" in text
        assert "hint: wait until it has ended" in text
    process.kill()
    process.communicate()
    planted.ok("tune", *CPU, *LAYER, "--tokens", "32", *FEW, "-q", "--append", "--journal", "append.jsonl")
    assert len(planted.json("moetune-table.json")["entries"]) == 2
    planted.ok("merge", "moetune-table.json", "other.json", "-o", "moetune-table.json")
    assert len(planted.json("moetune-table.json")["entries"]) == 3
    assert "moetune-table.json.lock" not in planted.files()


def test_bench_and_check_respect_the_lock(planted):
    planted.ok("tune", *TINY, *FEW, "-o", "table.json")
    process = start(planted)
    planted.wait_for_trials(process, 1)
    assert "is using" in planted.error(3, "bench", "--table", "table.json", *CPU)
    assert "is using cpu" in planted.error(3, "check", "table.json")  # a cpu's table is checked on the cpu
    process.kill()
    process.communicate()
