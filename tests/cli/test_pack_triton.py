"""scripts/pack_triton.py: what it packs is right (in Triton's interpreter), compiled without a GPU, and read by moetune.
MOETUNE_TRITON_PYTHON names a Python with triton and torch where this one has none."""
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import types

import pytest

from conftest import SOURCE, Room, validate

PYTHON = os.environ.get("MOETUNE_TRITON_PYTHON", sys.executable)
PACK = SOURCE / "scripts/pack_triton.py"
SMALL = ["--set", "BLOCK_SIZE_M=16,64", "--set", "BLOCK_SIZE_N=64", "--set", "BLOCK_SIZE_K=64", "--set", "num_warps=4",
         "--set", "num_stages=3"]

has_triton = subprocess.run([PYTHON, "-c", "import triton, torch"], capture_output=True).returncode == 0
needs_triton = pytest.mark.skipif(not has_triton, reason="needs triton and torch")


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def pack(room, *arguments, code=0):
    result = subprocess.run([PYTHON, "-B", PACK, *map(str, arguments)], capture_output=True, text=True, cwd=room.path,
                            env={**room.env, "TRITON_CACHE_DIR": str(room.path / "cache/triton")})
    assert result.returncode == code, result.stderr
    return result


@needs_triton
@pytest.mark.parametrize("knobs, m_sizes", [
    ("BLOCK_SIZE_M=16,BLOCK_SIZE_N=32,BLOCK_SIZE_K=64,GROUP_SIZE_M=1", "16,0,1,33"),  # the end of k is half a step
    ("BLOCK_SIZE_M=32,BLOCK_SIZE_N=32,BLOCK_SIZE_K=64,GROUP_SIZE_M=2", "31,32,33,0,5"),
    ("BLOCK_SIZE_M=16,BLOCK_SIZE_N=64,BLOCK_SIZE_K=128,GROUP_SIZE_M=16", "0,0,3"),
    ("BLOCK_SIZE_M=64,BLOCK_SIZE_N=32,BLOCK_SIZE_K=64,GROUP_SIZE_M=16", "1,1,1,1,1,1"),
])
def test_the_launches_that_are_described_compute_every_row(room, knobs, m_sizes):
    result = subprocess.run([PYTHON, "-B", SOURCE / "tests/cli/interpret_triton.py", knobs, m_sizes], capture_output=True, text=True,
                            env={**room.env, "TRITON_INTERPRET": "1"})
    assert result.stdout == "right\n", result.stdout + result.stderr


@needs_triton
def test_a_pack_is_compiled_without_a_gpu_and_read(room):
    told = pack(room, "-o", "pack", "--jobs", "1", *SMALL).stdout
    assert told.startswith("pack: 8 of 8 candidates in 2 binaries")  # the four of GROUP_SIZE_M share theirs
    validate("pack", room.path / "pack/pack.json")
    room.ok("validate", "pack/pack.json")
    manifest = room.json("pack/pack.json")
    assert [binary["shared_bytes"] for binary in manifest["binaries"]] == [20480, 49152]
    assert {file.name for file in (room.path / "pack").iterdir()} == {"pack.json", *manifest["files"]}
    command = ["tune", "--device", "arch:sm_90a", "--pack", "pack", "--variant", "triton_moe", "--model", "qwen3-30b-a3b", "--tokens",
               "16", "--dry-run", "--format", "json", "--strategy", "exhaustive"]
    cell, = json.loads(room.ok(*command).stdout)["cells"]
    assert (cell["legal"], cell["total"]) == (8, 8)
    assert "it was compiled for sm_90a" in room.error(2, *command[:2], "arch:sm_80", *command[3:])
    assert "name a new folder" in pack(room, "-o", "pack", code=2).stderr


@needs_triton
def test_what_no_block_has_shared_memory_for_is_left_out(room):
    told = pack(room, "-o", "pack", "--jobs", "1", *SMALL, "--set", "BLOCK_SIZE_M=16,256", "--set", "BLOCK_SIZE_N=256", "--set",
                "BLOCK_SIZE_K=256", "--set", "GROUP_SIZE_M=1", "--set", "num_stages=2").stdout
    assert told.startswith("pack: 1 of 2 candidates in 1 binary")
    assert told.endswith("1 needs more shared memory than a block has.\n")


@needs_triton
def test_wrong_words_are_told(room):
    assert "knobs are BLOCK_SIZE_M," in pack(room, "-o", "pack", "--set", "warps=4", code=2).stderr
    assert "'hopper' is not an architecture" in pack(room, "-o", "pack", "--arch", "hopper", code=2).stderr


@pytest.fixture
def packer(monkeypatch):
    """scripts/pack_triton.py beside a triton that compiles nothing, where it only knows a kernel's parameters."""
    language = types.ModuleType("triton.language")
    language.constexpr = int
    triton = types.ModuleType("triton")
    triton.language = language
    triton.jit = lambda function: types.SimpleNamespace(arg_names=list(inspect.signature(function).parameters))
    for module in (triton, language):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    spec = importlib.util.spec_from_file_location("packer", PACK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_manifest_is_the_golden_text(room, packer):
    description = packer.load(SOURCE / "scripts/triton_moe.py").describe("bf16")
    parser, arguments = packer.parse(["-o", str(room.path / "pack"), *SMALL])
    packer.set_values(parser, description, arguments.set)
    folder = packer.Folder(room.path)
    binary = {"entry": "moe_gemm", "threads": 128, "shared_bytes": 49152, "cluster": 1, "scratch_bytes": 0,
              "trailing": [{"pointer": "null"}, {"pointer": "null"}]}
    align = {**binary, "entry": "align_rows", "shared_bytes": 0}
    tasks, _ = packer.tasks_of(arguments, description)
    results = [(place, key, arch, *((b"gemm", binary, {"registers": 90}) if place is None else (b"align", align, {"registers": 32})))
               for _, _, place, key, _, _, arch in tasks]
    prepared, binaries, failed, other = packer.collect(results, folder)
    assert not failed and not other and len(binaries) == 2 and len(folder.files) == 2  # equal cubins are one file
    made_by = {"name": "pack_triton.py", "triton": "3.6.0", "kernel": "triton_moe.py", "sha256": "0" * 64}
    text = packer.text_of(packer.manifest_of(description, folder, prepared, binaries, made_by))
    golden = SOURCE / "tests/cli/files/pack-triton.json"
    if os.environ.get("MOETUNE_UPDATE_GOLDEN") == "1":
        golden.write_text(text)
    assert text == golden.read_text()
    (room.path / "pack-triton.json").write_text(text)
    validate("pack", room.path / "pack-triton.json")
    room.ok("validate", "pack-triton.json")


@needs_triton
def test_candidates_that_an_architecture_lost_are_told(room):
    """Triton builds the larger tile in another way for sm_80 than for sm_90a."""
    result = pack(room, "-o", "pack", "--jobs", "1", "--arch", "sm_90a,sm_80", *SMALL, code=1)
    assert result.stdout.startswith("pack: 8 of 8 candidates in 2 binaries")
    assert result.stderr.endswith("error: 4 of 8 candidates are missing for sm_80, where they take other threads, shared memory or "
                                  "arguments than for the first architecture\nhint: make a pack for each architecture\n")
    room.ok("validate", "pack/pack.json")
    assert pack(room, "-o", "other", "--jobs", "1", "--arch", "sm_80", *SMALL).stdout.startswith("other: 8 of 8 candidates")


@pytest.mark.parametrize("step_differs", [False, True])
def test_a_pack_for_two_architectures_holds_what_both_have(room, packer, monkeypatch, capsys, step_differs):
    def results(tasks, jobs):
        for _, _, place, key, _, _, arch in tasks:
            large = place is None and dict(key)["BLOCK_SIZE_M"] == 64
            more = arch == "sm_80" and (large or step_differs and place is not None)
            yield place, key, arch, f"{place} {key} {arch}".encode(), {
                "entry": "moe_gemm", "threads": 128, "shared_bytes": 4096 + more, "cluster": 1, "scratch_bytes": 0, "trailing": []}, {}

    monkeypatch.setattr(packer, "compile_all", results)
    monkeypatch.setattr(sys.modules["triton"], "__version__", "3.6.0", raising=False)
    monkeypatch.chdir(room.path)
    assert packer.main(["-o", "pack", "--arch", "sm_90a,sm_80", *SMALL]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("pack: 8 of 8 candidates in 2 binaries")
    assert f"error: {8 if step_differs else 4} of 8 candidates are missing for sm_80, where " in err and "does not compile" not in err
    manifest = room.json("pack/pack.json")
    assert [list(binary["files"]) for binary in manifest["binaries"]] == [["sm_90a", "sm_80"], ["sm_90a"]]
    assert {file.name for file in (room.path / "pack").iterdir()} == {"pack.json", *manifest["files"]}
    validate("pack", room.path / "pack/pack.json")
    room.ok("validate", "pack/pack.json")


def test_without_triton_it_says_so(room):
    result = subprocess.run([sys.executable, "-B", "-S", PACK, "-o", "pack"], capture_output=True, text=True, cwd=room.path)
    assert result.returncode == 3 and "triton is not installed" in result.stderr
    assert not (room.path / "pack").exists()
