"""A pack of the Triton kernel on a GPU: compiled, verified, tuned over both projections, checked and exported. Skips without a GPU,
torch and Triton."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("MOETUNE_BINARY", str(SOURCE / "build/release/moetune"))
MODEL = {"model_type": "qwen3_moe", "hidden_size": 256, "moe_intermediate_size": 384, "num_experts": 8, "num_experts_per_tok": 2}
CELLS = ["--model", "config.json", "--projection", "up,down", "--tokens", "16,300", "--routing", "zipf:1.5"]
VALUES = {"BLOCK_SIZE_M": [16, 64], "BLOCK_SIZE_N": [64, 128], "BLOCK_SIZE_K": [64], "GROUP_SIZE_M": [1, 16], "num_warps": [4],
          "num_stages": [3]}
CANDIDATES = 8


def arch():
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A folder with a pack, a table that was tuned over all of its candidates, and the journal."""
    path = tmp_path_factory.mktemp("packs")
    (path / "config.json").write_text(json.dumps(MODEL))
    sets = [word for knob, values in VALUES.items() for word in ("--set", f"{knob}={','.join(map(str, values))}")]
    subprocess.run([sys.executable, "-B", SOURCE / "scripts/pack_triton.py", "-o", "pack", "--arch", arch(), *sets], check=True,
                   cwd=path)
    moetune("tune", *CELLS, "--pack", "pack", "--variant", "triton_moe", "--strategy", "exhaustive", "--wait", "0", "-q", "-o",
            "t.json", cwd=path)
    return path


def moetune(*words, cwd):
    return subprocess.run([BINARY, *map(str, words)], check=True, cwd=cwd, capture_output=True, text=True)


def test_every_candidate_is_right_and_timed(room):
    entries = json.loads((room / "t.json").read_text())["entries"]
    assert len(entries) == 4
    for entry in entries:
        assert entry["candidates"] == {**entry["candidates"], "legal": CANDIDATES, "measured": CANDIDATES, "failed": 0}
        assert entry["candidate"]["variant"] == "triton_moe" and entry["verdict"]["ok"]
        assert "cublas-loop" in {rival["name"] for rival in entry["rivals"]}


def test_the_table_is_verified_and_benched_with_its_pack(room):
    moetune("verify", "--table", "t.json", "--pack", "pack", cwd=room)
    found = json.loads(moetune("bench", "--table", "t.json", "--pack", "pack", "--rounds", "3", "--format", "json", cwd=room).stdout)
    assert "triton_moe" in json.dumps(found)


def test_vllm_gets_one_configuration_that_was_measured(room):
    found = moetune("export", "t.json", "--format", "vllm", "--unproven", "-o", "v.json", cwd=room).stderr
    assert "2 of 2 pairs of up and down get one configuration, by the least sum of their times" in found
    rows = json.loads((room / "v.json").read_text())
    for tokens in ("16", "300"):
        assert all(rows[tokens][knob] in values for knob, values in VALUES.items())


@pytest.mark.parametrize("server, dtype, cells", [("vllm", "bf16", []), ("vllm", "fp8-block", ["--dtype", "fp8"]),
                                                  ("sglang", "fp8-channel", ["--dtype", "fp8", "--scales", "channel", "--fast-sums"]),
                                                  ("vllm", "int8", ["--dtype", "int8"]), ("sglang", "int8-w8a8", ["--dtype", "int8-w8a8"]),
                                                  ("vllm", "int4-group64", ["--dtype", "int4", "--scales", "group64"]),
                                                  ("sglang", "uint4-group128-fp16", ["--dtype", "uint4", "--out-dtype", "fp16"])])
def test_kernels_with_the_parameters_of_servers_are_right_by_slot(tmp_path, server, dtype, cells):
    if torch.cuda.get_device_capability() < (8, 9) and cells:
        pytest.skip("no fp8")
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    sets = [word for knob, values in VALUES.items() for word in ("--set", f"{knob}={','.join(map(str, values))}")]
    subprocess.run([sys.executable, "-B", SOURCE / "scripts/pack_triton.py", "-o", "pack", "--arch", arch(), "--from", server, "--kernel-file",
                    SOURCE / f"tests/cli/files/packs/served_{server}.py", "--top-k", "2", "--dtype", dtype, "--gemm", "up:768,256", "--gemm", "down:256,384", *sets], check=True, cwd=tmp_path)
    found = moetune("verify", *CELLS, "--tokens", "1", "--permute-x", "--by-slot", "--topk-weights", *cells, "--pack", "pack", "--variant",
                   f"{server}_moe", "--space", "all", cwd=tmp_path)
    assert f"{6 * CANDIDATES} of {6 * CANDIDATES} candidates right" in found.stdout


OWN = """
import moetune, triton
from grouped import grouped

def launch(x, w, y, first_rows, experts, n, k, BLOCK_M, BLOCK_N, num_warps):
    grid = (experts, max(1, triton.cdiv(x.shape[0], BLOCK_M)), triton.cdiv(n, BLOCK_N))
    grouped[grid](x, w, y, first_rows, n, k, BLOCK_M, BLOCK_N, BLOCK_K=64, num_warps=num_warps)

table = moetune.tune(launch, {"BLOCK_M": [64, 16], "BLOCK_N": [64, 128], "num_warps": [4]}, "--model config.json --projection up,down "
                     "--tokens 16,300 --routing zipf:1.5", "own.json", "--strategy exhaustive --wait 0 -q")
assert len(table["entries"]) == 4
"""


def test_the_workflow_for_a_gpu_races_base_and_change(tmp_path):
    """Its steps and those of its action from their YAML, but for those that install moetune and talk to GitHub."""
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((SOURCE / "scripts/ci/pack-gpu.yml").read_text())
    make, draw = [step for step in workflow["jobs"]["guard"]["steps"] if "run" in step and step["name"] != "Install moetune"]
    guard, = [step for step in workflow["jobs"]["guard"]["steps"] if step.get("uses", "").endswith("/guard")]
    action = yaml.safe_load((SOURCE / "scripts/ci/guard/action.yml").read_text())
    check, _, leave = action["runs"]["steps"]
    cells = "--model qwen3-30b-a3b --tokens 1024 --patience 0s"
    env = {**os.environ, **workflow["env"], "CELLS": cells, "HISTORY": "past.jsonl", "GITHUB_OUTPUT": "output", "GITHUB_SHA": "c0ffee",
           "INCONCLUSIVE": action["inputs"]["inconclusive"]["default"], "THRESHOLD": action["inputs"]["threshold"]["default"],
           "CHECK": guard["with"]["check"].replace("${{ env.CELLS }}", cells),
           "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/moetune").symlink_to(BINARY)

    def run(step, **more):
        return subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], cwd=tmp_path, env={**env, **more}).returncode

    for side in ("base", "now"):
        (tmp_path / side).mkdir()
    for tile_of_now, verdict in (128, "equivalent"), (16, "inconclusive"):  # another candidate has no counterpart in base
        for side, tile in ("base", 128), ("now", tile_of_now):
            (tmp_path / side / "make_pack.sh").write_text(
                f"rm -rf pack\n{sys.executable} -B {SOURCE}/scripts/pack_triton.py -o pack --arch {arch()} --set BLOCK_SIZE_M={tile} "
                f"--set BLOCK_SIZE_N={tile} --set BLOCK_SIZE_K=64 --set GROUP_SIZE_M=1 --set num_warps=4 --set num_stages=3\n")
        assert run(make, BUILD="bash make_pack.sh") == 0
        (tmp_path / "output").unlink(missing_ok=True)
        assert run(check) == 0
        assert (tmp_path / "output").read_text() == "code=0\n" and run(leave, CODE="0") == 0
        assert verdict in (tmp_path / "check.md").read_text()
    assert run(draw) == 0 and "<svg" in (tmp_path / "history.html").read_text()


def test_a_kernel_of_ones_own_is_tuned_from_its_launch(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "own.py").write_text(OWN)
    subprocess.run([sys.executable, "-B", "own.py"], check=True, cwd=tmp_path, env={
        **os.environ, "MOETUNE_BINARY": BINARY, "PYTHONPATH": f"{SOURCE / 'scripts'}:{SOURCE / 'tests/cli/files/packs'}"})
    for entry in json.loads((tmp_path / "own.json").read_text())["entries"]:
        assert entry["candidates"] == {**entry["candidates"], "legal": 4, "measured": 4, "failed": 0}
        assert entry["candidate"]["variant"] == "grouped" and entry["verdict"]["ok"]
    moetune("check", "own.json", "--pack", "own-pack", "--wait", "0", "--threshold", "50%", "--inconclusive", "pass", cwd=tmp_path)
