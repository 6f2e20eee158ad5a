"""bench and check when something is wrong after the first cell: found before any work, else what is measured is kept."""
import json
import re
import signal
import time
import xml.etree.ElementTree

import pytest

from conftest import CPU, FEW, LAYER, SLOW_TRIALS, validate, worker_of

RECORDING = {"experts": 4, "top_k": 2, "tokens": 6, "layers": {"a": [6, 3, 2, 1]}}
CELLS = CPU + LAYER + ["--routing", "uniform,trace:loads.json"]
JUNIT, PAGE, SUMMARY = "check.xml", "check.md", "summary.md"
SLOW_START = {"MOETUNE_PLANT": "start_ms:1500"}


def tuned(room):
    room.write("loads.json", RECORDING)
    room.ok("tune", *CELLS, *FEW, "-q")
    return "moetune-table.json"


def run_and_lose_the_trace(room, *arguments):
    """Takes the second cell's trace away when the request has been looked at and nothing is measured yet."""
    process = room.start(*arguments, env={**SLOW_START, "GITHUB_STEP_SUMMARY": str(room.path / SUMMARY)})
    end = time.monotonic() + 60
    while worker_of(process.pid) is None:
        assert time.monotonic() < end and process.poll() is None, process.communicate()
        time.sleep(0.005)
    (room.path / "loads.json").unlink()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 2, f"{out}\n{err}"
    error, = [line for line in err.splitlines() if line.startswith("moetune: error: ")]
    assert error == "moetune: error: loads.json: No such file or directory"
    return out, err


@pytest.mark.parametrize("command", [["bench", "--table"], ["check"]])
def test_a_missing_trace_is_an_error_before_anything_is_measured(room, command):
    table = tuned(room)
    (room.path / "loads.json").unlink()
    result = room.run(*command, table, *CPU, "-o", "out.json")
    assert result.returncode == 2
    assert result.stderr == "moetune: error: loads.json: No such file or directory\n"  # no cell was begun
    assert result.stdout == "" and not (room.path / "out.json").exists()


@pytest.mark.parametrize("command", [["verify", "--table"], ["check", "--threshold", "90%", "--wait", "0"]])
def test_a_trace_beside_its_table_is_found_from_elsewhere(room, command):
    table = room.path / tuned(room)
    (room.path / "elsewhere").mkdir()
    result = room.run(*command, table, *CPU, "--format", "json", cwd=room.path / "elsewhere")
    assert result.returncode in (0, 4) and "No such file" not in result.stderr, result.stderr
    found = json.loads(result.stdout)
    assert len(found.get("points") or found["findings"]) == 2


def test_check_needs_no_trace_of_a_cell_that_it_passes_over(room):
    table = room.json(tuned(room))
    bare = {key: table["entries"][1][key] for key in ("cell", "m_sizes", "figures", "flops", "bytes",
                                                     "candidates", "complete")}
    table["entries"][1] = {**bare, "skipped": "out of memory"}
    room.write("skipped.json", table)
    (room.path / "loads.json").unlink()
    result = room.run("check", "skipped.json", *CPU, "--threshold", "90%", "--format", "json")
    assert result.returncode in (0, 4), result.stderr
    assert "[1/1] " in result.stderr and len(json.loads(result.stdout)["findings"]) == 1


def test_bench_keeps_the_cells_before_an_error(planted):
    table = tuned(planted)
    out, err = run_and_lose_the_trace(planted, "bench", "--table", table, *CPU, "--rounds", "3", "-o", "bench.json")
    assert "[2/2]" in err
    validate("bench", planted.path / "bench.json")
    bench = planted.json("bench.json")
    assert {point["cell"]["routing"] for point in bench["points"]} == {"uniform"}
    assert len(bench["points"]) >= 2 and all(point["status"] == "ok" for point in bench["points"])
    assert bench["fault"] == "loads.json: No such file or directory"
    assert "| contender " in out and "trace:" not in out
    assert " measured in 1 of 2 cells. Written to bench.json.\n" in out


def test_bench_that_fails_in_its_first_cell_leaves_an_older_file_alone(planted):
    planted.write("loads.json", RECORDING)
    older = '{"schema": "moetune.bench/1"}\n'
    planted.write("bench.json", older)
    out, _ = run_and_lose_the_trace(planted, "bench", *CPU, *LAYER, "--routing", "trace:loads.json", "-o", "bench.json")
    assert out == "" and (planted.path / "bench.json").read_text() == older


def test_a_report_that_fails_too_is_a_warning(planted):
    table = tuned(planted)
    with open("/dev/full", "w", encoding="utf-8") as full:
        process = planted.start("bench", "--table", table, *CPU, "--rounds", "3", "-o", "bench.json", env=SLOW_START,
                                stdout=full)
        while worker_of(process.pid) is None:
            assert process.poll() is None
            time.sleep(0.005)
        (planted.path / "loads.json").unlink()
        _, err = process.communicate(timeout=300)
    assert process.returncode == 2, err  # the first error's, not the full disk's
    assert "moetune: warning: cannot write to standard output: No space left on device\n" in err
    assert err.endswith("moetune: error: loads.json: No such file or directory\n")
    assert len(planted.json("bench.json")["points"]) >= 2


def test_check_keeps_the_cells_before_an_error(planted):
    table = tuned(planted)
    out, err = run_and_lose_the_trace(planted, "check", table, "--threshold", "90%", "-o", "check.json", "--junit", JUNIT,
                                      "--markdown", PAGE)
    assert "[1/2]" in err and "[2/2]" not in err
    validate("check", planted.path / "check.json")
    check = planted.json("check.json")
    finding, = check["findings"]
    assert finding["cell"]["routing"] == "uniform"
    assert check["fault"] == "loads.json: No such file or directory"
    suite = xml.etree.ElementTree.parse(planted.path / JUNIT).getroot()
    suite = suite if suite.tag == "testsuite" else suite.find("testsuite")
    assert suite.get("tests") == "2"  # what is left out has not passed
    assert fault_of(suite, check["findings"]) == "loads.json: No such file or directory"
    for text in (out, (planted.path / PAGE).read_text(), (planted.path / SUMMARY).read_text()):
        assert "1 cell: " in text and "\nCut short: loads.json: No such file or directory\n" in text


def fault_of(suite, findings):
    """The sentence of the last error; those before it are cells that could not be judged."""
    undecided = sum(finding["finding"] == "inconclusive" for finding in findings)  # untrusted ones are skipped
    errors = list(suite.iter("error"))
    assert len(errors) == int(suite.get("errors")) == undecided + 1
    return errors[-1].get("message")


THREE = CPU + LAYER + ["--tokens", "8,16,24"]


def interrupt_at(room, mark, *arguments):
    """Ctrl-C as soon as `mark` is on standard error; three cells leave one to lose, however late it comes."""
    process = room.start(*arguments, env={**SLOW_TRIALS, "GITHUB_STEP_SUMMARY": str(room.path / SUMMARY)})
    err = ""
    for line in process.stderr:
        err += line
        if mark in line:
            break
    process.send_signal(signal.SIGINT)
    out, rest = process.communicate(timeout=300)
    assert process.returncode == 130, f"{out}\n{err}{rest}"
    return out


def test_an_interrupted_check_is_no_pass(planted):
    planted.ok("tune", *THREE, *FEW, "-q")
    out = interrupt_at(planted, "[1/3]", "check", "moetune-table.json", "--threshold", "90%", "-o", "check.json",
                       "--junit", JUNIT, "--markdown", PAGE)
    validate("check", planted.path / "check.json")
    check = planted.json("check.json")
    done = len(check["findings"])
    # Cells that seem slower or faster come last: then all may have been measured once.
    assert 1 <= done <= 3
    fault = f"interrupted: {done} of 3 cells checked" if done < 3 else "interrupted while cells were measured again"
    assert check["fault"] == fault
    suite = xml.etree.ElementTree.parse(planted.path / JUNIT).getroot()
    assert suite.get("tests") == str(done + ("mean" in check) + 1)
    assert fault_of(suite, check["findings"]) == fault
    for text in (out, (planted.path / PAGE).read_text(), (planted.path / SUMMARY).read_text()):
        assert text.rstrip("\n").endswith(f"\n\nCut short: {fault}"), text


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_an_interrupted_verify_names_what_is_left_out(planted, form):
    out = interrupt_at(planted, "[2/3]", "verify", *THREE, "--space", "quick", "--max-candidates", "4", "--repeat-for",
                       "6s", "-o", "verify.json", "--format", form)
    validate("verify", planted.path / "verify.json")
    document = planted.json("verify.json")
    whole, rest = re.fullmatch(r"interrupted: (\d) of 3 cells( verified)", document["fault"]).groups()
    assert whole in "12" and 4 <= len(document["points"]) < 12
    if form == "json":
        assert json.loads(out)["fault"] == document["fault"]
    elif form == "markdown":
        assert out.endswith(f"\nCut short: interrupted: {whole} of 3 cells{rest}\n")
    else:
        assert f" right in {whole} of 3 cells, " in out and out.endswith("; interrupted.\n")


def test_verify_keeps_the_cells_before_an_error(planted):
    planted.write("loads.json", RECORDING)
    out, _ = run_and_lose_the_trace(planted, "verify", *CELLS, "-o", "verify.json")
    validate("verify", planted.path / "verify.json")
    assert planted.json("verify.json")["fault"] == "loads.json: No such file or directory"
    assert " ".join(out.split()).endswith(
        "1 of 1 candidate right in 1 of 2 cells; cut short: loads.json: No such file or directory.")
