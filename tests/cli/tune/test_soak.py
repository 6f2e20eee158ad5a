"""scripts/soak on the cpu: what it counts, and that failures don't end it."""
import re
import shlex
import signal
import subprocess
import sys

from conftest import SOURCE

SCRIPT = SOURCE / "scripts/soak"


def soak(room, *arguments, **env):
    return subprocess.run([sys.executable, "-B", str(SCRIPT), *arguments], cwd=room.path, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True, timeout=500,
                          env={**room.env, "MOETUNE": room.binary, "PER_CELL": "2", **env})


def test_soak_counts_and_goes_on_to_the_next_seed(planted):
    planted.write("few.json", {"schema": "moetune.suite/1", "cells": [
        {"experts": 4, "top_k": 1, "n": 40, "k": 24, "tokens": "1-6", "dtype": "bf16,fp16"}]})
    result = soak(planted, "25", "--device", "cpu", "--set", "block_n=32", "--set", "block_k=64,4",
                  SUITES="few.json", MOETUNE_PLANT="wrong:block_m=96")
    assert result.returncode == 1, result.stderr
    rows = dict(re.findall(r"^\| (\w+) \| (\d+) \|$", result.stdout, re.M))
    right, wrong = int(rows["right"]), int(rows["wrong_result"])
    assert right == wrong == 3 * 6  # of the two that each problem draws, one is wrong; 6 problems have one dtype
    assert rows["fwd"] == "36"
    commands = [line for line in result.stdout.splitlines() if line.startswith("moetune verify ")]
    assert len(commands) == wrong and all("block_m=96" in line for line in commands)
    assert {re.search(r"--seed (\d)", line)[1] for line in commands} == {"1", "2"}
    assert "36 candidate runs with 2 seeds on " in result.stdout and result.stdout.endswith(f": {wrong} failed.\n")
    assert result.stderr.count("warning: wrong_result: ") == wrong
    again = subprocess.run([planted.binary, *shlex.split(commands[0])[1:]], env=planted.env, stdout=subprocess.DEVNULL)
    assert again.returncode == 0  # without the fault


def test_soak_gives_up_when_verify_itself_fails(room):
    result = soak(room, "10", "--kernels", str(room.path), "--device", "cuda:99")
    assert result.returncode == 1
    assert result.stdout.count("ended with exit 3") == 3 and "0 candidate runs with 1 seed on " in result.stdout


def test_soak_names_what_ran_when_it_is_interrupted(room):
    command = [sys.executable, "-B", str(SCRIPT), "1000000", "--device", "cpu"]
    with subprocess.Popen(command, cwd=room.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**room.env, "MOETUNE": room.binary, "PER_CELL": "2"}) as process:
        while not process.stderr.readline().startswith("seed 1: "):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=100)
    assert process.returncode == 130
    runs = int(re.search(r"^(\d+) candidate runs with 1 seed on .*: 0 failed\.$", output, re.M)[1])
    assert runs > 0 and sum(map(int, re.findall(r"^\| (?:fwd|dx|dw) \| (\d+) \|$", output, re.M))) == runs


def test_soak_refuses_what_is_no_suite(room):
    result = soak(room, "10", SUITES="missing.json")
    assert result.returncode == 2 and "missing.json: no suite can be read: " in result.stderr


def test_soak_refuses_wrong_words(room):
    result = soak(room, "10", "--variant", "nonsense")
    assert result.returncode == 2 and "unknown variant 'nonsense'" in result.stderr
