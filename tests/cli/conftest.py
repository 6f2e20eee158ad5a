"""What the tests of the program share: the binary, a folder for each test, small problems."""
import json
import math
import os
import pathlib
import subprocess
import sys
import time

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("MOETUNE_BINARY", str(SOURCE / "build/release/moetune"))
PLANTED = os.environ.get("MOETUNE_PLANTED", str(pathlib.Path(BINARY).parent / "moetune_planted"))
VALIDATE = SOURCE / "tests/cli/validate.py"

LAYER = ["--experts", "4", "--top-k", "2", "--n", "64", "--k", "64"]
CPU = ["--device", "cpu"]
TINY = CPU + LAYER + ["--tokens", "8"]          # under a second to tune
FEW = ["--max-candidates", "3"]
NO_WAIT = ["--wait", "0"]
FEW_ROUNDS = ["--rounds", "9"]                  # of finals, which go on while other tests disturb them
SLOW_TRIALS = {"MOETUNE_PLANT": "trial_ms:15"}  # of the planted binary: time to hit a run in its middle
CANDIDATE = "cpu block_m=24 block_n=64 block_k=128 threads=1"


TOOL = {"name": "moetune", "version": "0.1.0", "commit": "0", "dirty": False, "argv": ["moetune", "tune"]}


def made_entry(projection, tokens, experts=4, top_k=2, n=64, k=64):
    """An entry of a table whose rows are balanced."""
    each = tokens * top_k // experts
    assert each * experts == tokens * top_k
    return {"id": f"custom/{projection}/fwd/bf16/t{tokens}/balanced/e{experts}/top{top_k}/n{n}/k{k}",
            "cell": {"model": "custom", "projection": projection, "op": "fwd", "experts": experts, "top_k": top_k, "n": n,
                     "k": k, "dtype": "bf16", "tp": 1, "ep": 1, "permute_x": False, "permute_y": False,
                     "topk_weights": False, "tokens": tokens, "routing": "balanced", "seed": 0},
            "m_sizes": [each] * experts,
            "figures": {"rows": each * experts, "active_experts": experts, "max_rows": each, "max_over_mean": 1.0,
                        "cv": 0.0, "effective_experts": float(experts)},
            "flops": 2 * each * experts * n * k,
            "bytes": 2 * (experts * n * k + each * experts * (n + k)) + 4 * experts,
            "candidate": {"variant": "cpu", "block_m": 24, "block_n": 64, "block_k": 128, "threads": 1},
            "measurement": {"median_us": 10.0, "low_us": 9.9, "high_us": 10.1, "samples": 11, "launches": 1000,
                            "clock_mhz": 0.0, "waited": 0.0},
            "occupancy": round(each / (-(-each // 24) * 24), 5),
            "derived": {},
            "verdict": {"ok": True, "reason": "", "elements": 2048, "mismatches": 0, "normalised_error": 0.001,
                        "max_ulps": 0.5},
            "rivals": [], "ties": [], "candidates": {"legal": 36, "measured": 36, "failed": 0}, "complete": True}


def doublings(one, other):
    return abs(math.log2(one) - math.log2(other)) if one > 0 and other > 0 else 0


def rule_pick(table, asked, tokens, skew=None):
    """The cell or range that an export answers with, by the rule of configs/schema/runtime.json."""
    if skew is None:
        for served in table["ranges"]:
            to = served["tokens"]["to"]
            if served["asked"] == asked and served["tokens"]["from"] <= tokens and (to is None or tokens <= to):
                return served

    def rank(cell):
        distance = doublings(cell["tokens"], tokens)
        if skew is None:
            return round(1e6 * distance), cell["tokens"], -cell["skew"]
        return round(1e6 * math.hypot(distance, doublings(cell["skew"], skew))), cell["tokens"]
    cells = table["cells"].values() if isinstance(table["cells"], dict) else table["cells"]
    return min((cell for cell in cells if cell["asked"] == asked), key=rank)


def pytest_collection_modifyitems(items):
    """Keeps one hand of the tests, where MOETUNE_TEST_HAND says which of how many ("0/4")."""
    hand, _, hands = os.environ.get("MOETUNE_TEST_HAND", "0/1").partition("/")
    items[:] = items[int(hand)::int(hands)]


WAITING = ("tune", "check")  # commands that wait for undisturbed processors


class Room:
    """A folder to run the program in, with its own locks and caches. Other tests run beside it: unless a test says
    otherwise, commands don't wait for undisturbed processors, and finals have few rounds."""

    def __init__(self, path, binary=BINARY):
        self.path = path
        self.binary = binary
        self.env = {key: value for key, value in os.environ.items()
                    if key not in ("NO_COLOR", "COLUMNS", "GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS", "MOETUNE_PLANT")
                    and not key.startswith(("SLURM_", "OMPI_", "PMI_", "PMIX_"))}
        self.env.update(MOETUNE_LOCK_DIR=str(path / "locks"), XDG_CACHE_HOME=str(path / "cache"), TERM="xterm", LC_ALL="C")
        (path / "locks").mkdir(exist_ok=True)

    def command(self, arguments):
        words = [self.binary, *map(str, arguments)]
        if not arguments or "--help" in arguments:
            return words
        more = []
        if arguments[0] in WAITING and "--wait" not in arguments:
            more += NO_WAIT
        if arguments[0] == "tune" and "--rounds" not in arguments:
            more += FEW_ROUNDS
        return [*words[:2], *more, *words[2:]]

    def run(self, *arguments, timeout=300, env=None, **kwargs):
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        kwargs.setdefault("cwd", self.path)
        return subprocess.run(self.command(arguments), env={**self.env, **(env or {})},
                              timeout=timeout, universal_newlines=True, encoding="utf-8", **kwargs)

    def start(self, *arguments, env=None, **kwargs):
        kwargs.setdefault("stdout", subprocess.PIPE)
        kwargs.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(self.command(arguments), cwd=self.path, env={**self.env, **(env or {})},
                                stdin=subprocess.DEVNULL, universal_newlines=True, encoding="utf-8", **kwargs)

    def ok(self, *arguments, **kwargs):
        result = self.run(*arguments, **kwargs)
        assert result.returncode == 0, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result

    def error(self, code, *arguments, **kwargs):
        """Runs what must fail with `code`; returns standard error. Nothing but words may be there."""
        result = self.run(*arguments, **kwargs)
        assert result.returncode == code, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
        assert "moetune: error: " in result.stderr, result.stderr
        assert "terminate called" not in result.stderr and "what():" not in result.stderr, result.stderr
        return result.stderr

    def tuned(self, *more):
        """A small tuned table, made once a test."""
        self.ok("tune", *TINY, *FEW, "-q", *more)
        return self.path / "moetune-table.json"

    def made_table(self, name="table.json", tokens=(8, 16), projections=("up",)):
        """A table of this machine's cpu with made-up times: balanced rows of LAYER, one cell a number of tokens. Tuning
        takes seconds, this none."""
        device, = json.loads(self.ok("doctor", *CPU, "--quick", "--format", "json").stdout)["devices"]
        entries = [made_entry(projection, count) for projection in projections for count in tokens]
        return self.write(name, {"schema": "moetune.table/1", "tool": TOOL,
                                 "device": device["device"], "environment": device["environment"], "regime": "burst",
                                 "entries": entries})

    def files(self):
        return sorted(p.name for p in self.path.iterdir() if p.name not in ("locks", "cache"))

    def write(self, name, content):
        (self.path / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return name

    def json(self, name):
        return json.loads((self.path / name).read_text(encoding="utf-8"))

    def journal(self, name="moetune-table.json.journal.jsonl"):
        """Whole lines of a journal, parsed."""
        path = self.path / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def wait_for_trials(self, process, count, name="moetune-table.json.journal.jsonl", seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if sum(line["kind"] == "trial" for line in self.journal(name)) >= count:
                return
            assert process.poll() is None, f"it ended early: {process.communicate()}"
            time.sleep(0.005)
        raise AssertionError(f"no {count} trials within {seconds} s")


def trials(journal):
    """(cell, candidate) of every finished trial, in order."""
    return [(line["cell"], json.dumps(line["candidate"])) for line in journal if line["kind"] == "trial"]


def validate(kind, *paths, text=None):
    """Checks files, or a text, against configs/schema."""
    command = [sys.executable, "-B", str(VALIDATE), kind, *(["-"] if text is not None else map(str, paths))]
    result = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    assert result.returncode == 0, result.stderr


def h200_device():
    """The device of a table that was tuned on an H200."""
    path = SOURCE / "configs/tuned/nvidia-h200-hopper-peers.json"
    return json.loads(path.read_text(encoding="utf-8"))["device"]


def made_pack(room, name="toy", **changes):
    """A folder with the pack of the tests: five candidates of six were compiled."""
    folder = room.path / name
    folder.mkdir(parents=True, exist_ok=True)
    manifest = json.loads((SOURCE / "tests/cli/files/packs/pack-toy.json").read_text())
    for file in manifest["files"]:
        (folder / file).write_text(f"the bytes of {file}")
    manifest.update(changes)
    (folder / "pack.json").write_text(json.dumps(manifest))
    return name


def worker_of(pid):
    """The process id of a tuner's worker, or None."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    pids = [int(word) for word in children.read_text().split()] if children.exists() else []
    for child in pids:
        try:
            if b"worker" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        except OSError:
            pass
    return None


def wait_until_gone(pid, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


@pytest.fixture
def planted(tmp_path):
    """The program with planted faults (tests/tune/planted.cpp), steered by MOETUNE_PLANT."""
    assert pathlib.Path(PLANTED).exists(), f"{PLANTED} is not built"
    return Room(tmp_path, PLANTED)
