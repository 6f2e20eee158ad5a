"""bench --in-process: the backend lives in the command's own process."""
import json
import pathlib
import signal
import time

from conftest import TINY

BENCH = ["bench", *TINY, "--rounds", "2"]


def children(pid):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(entry.name))
    return found


def children_while_it_hangs(planted, *options):
    """How many children the command has while a kernel is measured."""
    process = planted.start(*BENCH, *options, env={"MOETUNE_PLANT": "hang:"})
    try:
        assert "[1/1]" in process.stderr.readline()
        time.sleep(0.5)
        assert process.poll() is None
        return len(children(process.pid))
    finally:
        process.kill()
        process.communicate()


def test_no_child_process_is_started(planted):
    assert children_while_it_hangs(planted) == 1
    assert children_while_it_hangs(planted, "--in-process") == 0


def test_results_are_those_of_a_worker(room):
    def results(*options):
        result = json.loads(room.ok(*BENCH, "--format", "json", "-q", *options).stdout)
        return result["device"], result["environment"], [
            (point["cell"], point["role"], point["contender"], point["status"], point["verdict"]) for point in result["points"]]

    assert results("--in-process") == results()


def test_a_crash_ends_the_command(planted):
    result = planted.run(*BENCH, "--in-process", env={"MOETUNE_PLANT": "crash:"})
    assert result.returncode == -signal.SIGABRT
    assert planted.run(*BENCH, env={"MOETUNE_PLANT": "crash:"}).returncode == 1


def test_nothing_runs_after_a_failed_launch(planted):
    plant = {"MOETUNE_PLANT": "launch:"}
    text = planted.error(3, *BENCH, "--in-process", env=plant)
    assert "kernels cannot run in this process any more: an illegal memory access" in text
    assert "hint: leave it out, or run without --in-process" in text
    points = json.loads(planted.run(*BENCH, "--format", "json", env=plant).stdout)["points"]
    assert {point["role"]: point["status"] for point in points}["baseline"] == "ok"
