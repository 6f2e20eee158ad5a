"""scripts/pack_triton.py: what it packs is right (in Triton's interpreter), compiled without a GPU, and read by moetune.
MOETUNE_TRITON_PYTHON names a Python with triton and torch where this one has none."""
import importlib.util
import inspect
import json
import os
import re
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
# Triton's interpreter makes numbers of arrays with one element, which numpy 2.4 refuses.
interprets = subprocess.run([PYTHON, "-c", "import numpy; int(numpy.ones(1))"], capture_output=True).returncode == 0


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)


def pack(room, *arguments, code=0):
    result = subprocess.run([PYTHON, "-B", PACK, *map(str, arguments)], capture_output=True, text=True, cwd=room.path,
                            env={**room.env, "TRITON_CACHE_DIR": str(room.path / "cache/triton"), "CUDA_VISIBLE_DEVICES": ""})
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
    interpret(room, "plain", knobs, m_sizes, 1)


def interpret(room, *words):
    if not interprets:
        pytest.skip("Triton's interpreter needs numpy below 2.4")
    result = subprocess.run([PYTHON, "-B", SOURCE / "tests/cli/packs/interpret_triton.py", *map(str, words)], capture_output=True, text=True,
                            env={**room.env, "TRITON_INTERPRET": "1"})
    assert result.stdout == "right\n", result.stdout + result.stderr


SERVED = {server: SOURCE / f"tests/cli/files/packs/served_{server}.py" for server in ("vllm", "sglang")}  # with parameters as theirs


@needs_triton
@pytest.mark.parametrize("server, dtype, fusion, columns, m_sizes", [
    ("vllm", "fp16", "permute_x+by_slot", 32, "16,0,1,33"),
    ("vllm", "fp8-block", "by_slot+topk_weights", 64, "16,0,1,33"),  # operands are swapped
    ("vllm", "fp8-tensor", "permute_x+by_slot", 32, "1,0,0,0,0,0,0,1"),  # each slot is a block
    ("sglang", "fp16", "by_slot+topk_weights", 32, "16,0,1,33"),
    ("sglang", "fp8-channel", "permute_x+by_slot", 64, "16,0,1,33"),
    ("vllm", "int8-fp16", "permute_x+by_slot", 64, "1,0,0,0,0,0,0,1"),
    ("vllm", "int4-group32-fp16", "by_slot+topk_weights", 32, "16,0,1,33"),  # the end of k is half a step
    ("sglang", "int8-w8a8", "by_slot+topk_weights", 64, "16,0,1,33"),
    ("sglang", "uint4-group32-fp16", "permute_x+by_slot", 32, "16,0,1,33"),
])
def test_kernels_of_servers_read_and_store_by_slot(room, server, dtype, fusion, columns, m_sizes):
    knobs = f"BLOCK_SIZE_M=16,BLOCK_SIZE_N={columns},BLOCK_SIZE_K=64,GROUP_SIZE_M=1,num_warps=4,num_stages=3"
    interpret(room, fusion, knobs, m_sizes, 2, SOURCE / "scripts/served_moe.py", dtype, server, SERVED[server])


def served(room, server, *words, dtype="fp8-block", **more):
    return pack(room, "-o", server, "--from", server, "--kernel-file", SERVED[server], "--dtype", dtype, "--jobs", "1", *SMALL, *words,
                "--set", "GROUP_SIZE_M=1", **more)


def plan(room, server, *words):
    return json.loads(room.ok("tune", "--device", "arch:sm_90a", "--pack", server, "--variant", f"{server}_moe", "--model", "qwen3-30b-a3b",
                              "--projection", "up,down", "--permute-x", "--by-slot", "--topk-weights", "--tokens", "16", "--dry-run",
                              "--format", "json", "--strategy", "exhaustive", *words).stdout)["cells"]


@needs_triton
def test_a_pack_of_vllm_clamps_the_depth_to_a_block_of_scales(room):
    out = served(room, "vllm", "--set", "BLOCK_SIZE_K=128,256", "--size", "tokens=16", "--size", "experts=128").stdout
    assert out.startswith("vllm: 4 of 4 candidates in 4 binaries")  # two of up and two of down; each slot a block is of fewer tokens
    assert "\nalign_slots runs once before all launches: it is not timed.\nNext: moetune tune --pack vllm " in out
    room.ok("validate", "vllm")
    cells = plan(room, "vllm", "--dtype", "fp8")
    assert [(cell["legal"], cell["cell"]["by_slot"]) for cell in cells] == [(4, True), (4, True)]
    assert "compiled for top_k 8" in room.error(2, "tune", "--device", "arch:sm_90a", "--pack", "vllm", "--variant", "vllm_moe", "--model",
                                                "mixtral-8x7b", "--dtype", "fp8", "--permute-x", "--by-slot", "--tokens", "16", "--dry-run")


@needs_triton
def test_a_pack_of_sglang_refuses_a_depth_beyond_a_block_of_scales(room):
    served(room, "sglang", "--set", "BLOCK_SIZE_K=128,256", "--size", "k=2048,768")
    cell = plan(room, "sglang", "--dtype", "fp8")[0]
    assert cell["legal"] == 2 and cell["pruned"] == {"BLOCK_SIZE_K must be at most 128: SGLang reads one scale a step": 2}
    served(room, "sglang", dtype="bf16", code=2)  # the folder is there


@needs_triton
def test_a_kernel_with_sizes_compiled_in_is_compiled_for_those_of_each_gemm(room):
    words = ["--size", "n=1536,2048", "--size", "k=2048,768", "--size", "tokens=16", "--size", "experts=128"]
    gemms = ["--gemm", "up:1536,2048", "--gemm", "down:2048,768"]
    out = served(room, "vllm", *words, *gemms, "--set", "BLOCK_SIZE_K=64,128", dtype="uint4-group128").stdout
    assert out.startswith("vllm: 4 of 4 candidates in 8 binaries")  # two each of up and down
    assert [cell["legal"] for cell in plan(room, "vllm", "--dtype", "uint4")] == [4, 4]
    other = room.error(2, "tune", "--device", "arch:sm_90a", "--pack", "vllm", "--variant", "vllm_moe", "--model", "qwen3-30b-a3b", "--tp",
                       "2", "--dtype", "uint4", "--permute-x", "--by-slot", "--tokens", "16", "--dry-run")
    assert "the kernels were compiled for n x k of 1536 x 2048, 2048 x 768" in other
    served(room, "sglang", *words, dtype="int8-w8a8")
    assert [cell["legal"] for cell in plan(room, "sglang", "--dtype", "int8-w8a8")] == [2, 2]
    error = served(room, "sglang", "-o", "other", dtype="int4-group32", code=2).stderr
    assert "the kernel of int4-group32 has n and k compiled in; expected up:N,K or down:N,K" in error


@needs_triton
def test_listed_candidates_are_compiled_for_their_token_counts(room):
    knobs = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8, "num_warps": 4, "num_stages": 3}
    room.write("rows.json", [{"knobs": knobs, "tokens": [1, 64]}, {"knobs": {**knobs, "num_stages": 2}, "tokens": [64]}])
    words = ["--from", "vllm", "--kernel-file", SERVED["vllm"], "--dtype", "bf16"]
    pack(room, "-o", "pack", *words, "--jobs", "1", "--candidates", "rows.json", "--size", "experts=128", "--size", "tokens=1,64")
    manifest = room.json("pack/pack.json")
    assert [row[5:] for row in manifest["candidates"]] == [[3, 0, 1, 2, 3], [2, None, 4, None, 5]]  # by slot and sorted, up and down
    assert [knob["default"] for knob in manifest["knobs"]] == list(knobs.values())
    assert "--candidates none.json: FileNotFoundError" in pack(room, "-o", "other", *words, "--candidates", "none.json", code=2).stderr
    pack(room, "-o", "found.json", *words, "--find")
    assert room.json("found.json")["kernel"] == str(SERVED["vllm"])


@needs_triton
@pytest.mark.parametrize("change, sentence", [
    (("SPLIT_K", "SPLIT_N"), "fused_moe_kernel has parameters that moetune does not know: SPLIT_N"),
    (("def fused_moe_kernel(", "def fused("), "has no function fused_moe_kernel"),
    (("def scaled(", "def scale("), "fused_moe_kernel uses 'scaled', which the file does not define"),
    (("def ", "de "), "cannot be read as Python"),
])
def test_a_kernel_of_a_server_that_cannot_be_packed_is_reported(room, change, sentence):
    (room.path / "own.py").write_text(SERVED["vllm"].read_text().replace(*change))
    assert sentence in pack(room, "-o", "pack", "--from", "vllm", "--kernel-file", "own.py", code=2).stderr
    assert "is not installed" in pack(room, "-o", "pack", "--from", "vllm", code=2).stderr


@needs_triton
def test_the_kernel_of_another_server_is_reported(room):
    for server, other in (("vllm", "sglang"), ("sglang", "vllm")):
        error = pack(room, "-o", "pack", "--from", server, "--kernel-file", SERVED[other], code=2).stderr
        assert f"the kernel of {SERVED[other]} is not {'vLLM' if server == 'vllm' else 'SGLang'}'s" in error


@needs_triton
def test_a_template_of_an_autotuned_kernel_becomes_a_pack(room):
    pack(room, "-o", "own.py", "--template", f"{SOURCE / 'tests/cli/files/packs/autotuned.py'}:grouped")
    for old, new, sentence in [
            ('"TODO",  # such', '["experts", "max(1, ceil_div(rows, BLOCK_M))", "ceil_div(n, BLOCK_N)"],  # such', "grid: 'TODO' is not a formula"),
            ('"BLOCK_K": "TODO"', '"BLOCK_K": 32', "constant 'BLOCK_K': still TODO")]:
        assert sentence in pack(room, "-o", "pack", "--kernel", "own.py", code=2).stderr
        (room.path / "own.py").write_text((room.path / "own.py").read_text().replace(old, new))
    assert pack(room, "-o", "pack", "--kernel", "own.py", "--jobs", "1").stdout.startswith("pack: 2 of 2 candidates in 2 binaries")
    room.ok("validate", "pack")
    room.ok("compile", "--arch", "sm_90a", "--pack", "pack", "--variant", "grouped", "--model", "qwen3-30b-a3b")
    interpret(room, "plain", "BLOCK_M=16,BLOCK_N=32,num_warps=4,num_stages=2", "16,0,1,33", 1, room.path / "own.py", "fp16")


SIGNATURES = SOURCE / "tests/cli/files/packs/signatures.py"


def filled(room, kernel, **arguments):
    """The template of a kernel with the grid and arguments that it leaves open."""
    pack(room, "-o", f"{kernel}.py", "--template", f"{SIGNATURES}:{kernel}")
    text = (room.path / f"{kernel}.py").read_text()
    if "BLOCK_M" in arguments and arguments["BLOCK_M"] is None:
        text = text.replace('"BLOCK_M": "TODO", ', "").replace('"kernel"', '"knobs": [{"name": "BLOCK_M", "help": "", "values": [16, 32], '
                                                              '"default": 16}], "kernel"')
        del arguments["BLOCK_M"]
    for name, value in arguments.items():
        text, count = re.subn(f'"{name}": "TODO"', lambda _: f'"{name}": {value}', text)
        assert count == 1, text
    assert '"TODO"' not in text
    (room.path / f"{kernel}.py").write_text(f"import triton.language as tl\n\n{text}")
    return f"{kernel}.py"


@needs_triton
@pytest.mark.parametrize("kernel, more, knobs, candidates, binaries, sizes", [
    ("persistent", {}, "BLOCK_M=16,BLOCK_N=32,SWAPPED=1,num_warps=4,num_stages=2", 2, 4, ["experts=4", "processors=132"]),
    ("by_ends", {"grid": '["max(1, ceil_div(rows, BLOCK_M)) * ceil_div(n, BLOCK_N)", "experts"]', "bias_ptr": None},
     "BLOCK_M=16,BLOCK_N=32,BLOCK_K=32,num_warps=4,num_stages=2,maxnreg=0", 2, 2, []),
    ("by_row", {"grid": '["max(1, ceil_div(rows, BLOCK_M))", "ceil_div(n, BLOCK_N)"]', "BLOCK_M": None, "ACC_TYPE": "tl.float32"},
     "BLOCK_N=32,num_warps=4,num_stages=2,BLOCK_M=16", 2, 4, []),  # with a knob that @triton.autotune lacks
    ("own_descriptors", {"grid": '["max(1, ceil_div(rows, BLOCK_M))", "ceil_div(n, BLOCK_N)", "experts"]'},
     "BLOCK_M=16,BLOCK_N=32,SWAPPED=0,num_warps=4,num_stages=2", 2, 2, []),
])
def test_kernels_of_many_signatures_are_packed_by_what_their_launch_passes(room, kernel, more, knobs, candidates, binaries, sizes):
    own = filled(room, kernel, **more)
    words = [word for size in sizes for word in ("--size", size)]
    message = pack(room, "-o", "pack", "--kernel", own, "--gemm", "64,96", "--gemm", "96,32", *words, "--jobs", "1").stdout
    assert message.startswith(f"pack: {candidates} of {candidates} candidates in {binaries} binar")
    room.ok("validate", "pack")
    manifest = room.json("pack/pack.json")
    assert any(binary["scratch_bytes"] for binary in manifest["binaries"]) == (kernel == "own_descriptors")
    layer = ["--pack", "pack", "--variant", kernel, "--experts", "4", "--top-k", "2", "--n", "96", "--tokens", "16", "--k"]
    room.ok("compile", "--arch", "sm_90a", *layer, "32")
    cell, = json.loads(room.ok("tune", "--device", "h200", *layer, "32", "--dry-run", "--format", "json").stdout)["cells"]
    assert cell["legal"] == candidates
    other = ["tune", "--device", "h200", *layer, "64", "--dry-run"]
    if binaries > candidates:  # sizes are compiled in
        assert "the kernels were compiled for " in room.error(2, *other)
    else:
        room.ok(*other)
    interpret(room, "plain", knobs, "16,0,1,33", 1, room.path / own, "fp16")


@needs_triton
@pytest.mark.parametrize("kernel, more, sentence", [
    ("persistent", {}, "persistent has experts compiled in (NUM_EXPERTS): name it with --size experts=VALUE"),
    ("host_descriptors", {"grid": '"experts"', "x_desc": '"x"', "BLOCK_M": 16},
     "argument 'x_desc' is a TMA descriptor that the host makes, which a pack cannot hand over"),
    ("adding", {"grid": '"experts"'}, "adding adds to y, which is set to zero before each launch (reset_to_zero of @triton.autotune)"),
])
def test_a_kernel_that_lacks_something_is_refused_with_the_reason(room, kernel, more, sentence):
    assert sentence in pack(room, "-o", "pack", "--kernel", filled(room, kernel, **more), code=2).stderr


@needs_triton
def test_what_moetune_refuses_is_reported_before_kernels_are_compiled(room):
    own = room.path / filled(room, "by_ends", grid='"experts"', bias_ptr=None)
    own.write_text(own.read_text().replace('"kernel": {', '"computes": [{"fusion": "permute"}], "kernel": {'))
    error = pack(room, "-o", "pack", "--kernel", own, code=2).stderr
    assert error.startswith("pack_triton.py: error: moetune does not take the pack\n- pack/pack.json: computes[0].fusion: 'permute' is not a fusion")
    assert not (room.path / "pack").exists()
    words = ["--size", "experts=4", "--size", "processors=1", "--gemm", "64,64", "--set", "BLOCK_M=64"]
    error = pack(room, "-o", "pack", "--kernel", filled(room, "persistent"), *words, code=2).stderr
    assert "no configuration of @triton.autotune has these values" in error


@needs_triton
def test_what_does_not_compile_is_reported_with_its_line(room):
    own = room.path / filled(room, "persistent")
    own.write_text(own.read_text().replace('"arguments": {', '"constants": {"BLOCK_K": 24}, "arguments": {'))
    sizes = ["--gemm", "64,96", "--size", "experts=4", "--size", "processors=132"]
    error = pack(room, "-o", "pack", "--kernel", own, "--jobs", "1", *sizes, code=1).stderr
    assert "does not compile: ValueError: arange's range must be a power of 2" in error
    assert error.endswith("error: nothing that can be launched was compiled\n")
    own.write_text(own.read_text().replace('"BLOCK_K": 24', '"BLOCK_K": "16 * max(tokens / 16, 1)"'))
    assert "It can be launched for processors = 132 alone: the kernels were compiled so.\nIt can be launched for tokens = 16, 32 alone" in pack(
        room, "-o", "other", "--kernel", own, "--jobs", "1", *sizes, "--size", "tokens=16,32").stdout


@needs_triton
def test_what_a_pack_cannot_hold_is_refused_by_the_template(room):
    assert "hooked has a pre_hook, which runs on the host before each launch" in pack(
        room, "-o", "own.py", "--template", f"{SIGNATURES}:hooked", code=2).stderr
    (room.path / "asks.py").write_text("import triton\ntriton.runtime.driver.active.get_current_target()\n")
    assert "hint: the file of the kernel looks for a GPU while it is imported" in pack(
        room, "-o", "own.py", "--template", "asks.py:kernel", code=2).stderr


@needs_triton
def test_a_pack_is_compiled_without_a_gpu_and_read(room):
    message = pack(room, "-o", "pack", "--jobs", "1", *SMALL).stdout
    assert message.startswith("pack: 8 of 8 candidates in 2 binaries")  # the four of GROUP_SIZE_M share theirs
    assert message.endswith("Next: moetune tune --pack pack --variant triton_moe --model ...\n")
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
    message = pack(room, "-o", "pack", "--jobs", "1", *SMALL, "--set", "BLOCK_SIZE_M=16,256", "--set", "BLOCK_SIZE_N=256", "--set",
                "BLOCK_SIZE_K=256", "--set", "GROUP_SIZE_M=1", "--set", "num_stages=2").stdout
    assert message.startswith("pack: 1 of 2 candidates in 1 binary")
    assert "1 needs more shared memory than a block has.\nNext: moetune tune --pack " in message


@needs_triton
def test_wrong_words_are_reported(room):
    assert "knobs are BLOCK_SIZE_M," in pack(room, "-o", "pack", "--set", "warps=4", code=2).stderr
    assert "'hopper' is not an architecture" in pack(room, "-o", "pack", "--arch", "hopper", code=2).stderr
    assert "--gemm 1536: expected N,K" in pack(room, "-o", "pack", "--gemm", "1536", code=2).stderr
    room.write("file", "")
    assert "--output: file/pack cannot be made: Not a directory" in pack(room, "-o", "file/pack", code=2).stderr


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
    description = packer.described(str(SOURCE / "scripts/triton_moe.py"), "bf16")
    parser, arguments = packer.parse(["-o", str(room.path / "pack"), *SMALL])
    packer.set_values(parser, description, arguments.set)
    folder = packer.Folder(room.path)
    binary = {"entry": "moe_gemm", "threads": 128, "shared_bytes": 49152, "cluster": 1, "scratch_bytes": 0,
              "trailing": [{"pointer": "null"}, {"pointer": "null"}]}
    align = {**binary, "entry": "align_rows", "shared_bytes": 0}
    tasks, _ = packer.tasks_of(arguments, description)
    results = [(place, key, arch, *((b"gemm", binary, {"registers": 90}) if place is None else (b"align", align, {"registers": 32})))
               for _, place, key, _, _, arch in tasks]
    prepared, binaries, failed, other = packer.collect(results, folder)
    assert not failed and not other and len(binaries) == 2 and len(folder.files) == 2  # equal cubins are one file
    made_by = {"name": "pack_triton.py", "triton": "3.6.0", "kernel": "triton_moe.py", "sha256": "0" * 64}
    candidates = [(knobs.values(), packer.keys_of(description, knobs, {})) for knobs in packer.candidates_of(description)]
    text = packer.text_of(packer.manifest_of(description, candidates, folder, prepared, binaries, made_by))
    golden = SOURCE / "tests/cli/files/packs/pack-triton.json"
    if os.environ.get("MOETUNE_UPDATE_GOLDEN") == "1":
        golden.write_text(text)
    assert text == golden.read_text()
    (room.path / "pack-triton.json").write_text(text)
    validate("pack", room.path / "pack-triton.json")
    room.ok("validate", "pack-triton.json")


@needs_triton
def test_candidates_that_an_architecture_lost_are_reported(room):
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
        for _, place, key, _, _, arch in tasks:
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


@pytest.mark.parametrize("change, sentence", [
    (lambda d: d.pop("kernel"), "describe(): 'kernel' is missing: function, grid and arguments of the candidate's kernel"),
    (lambda d: d.update(knobs={}), "describe(): 'knobs' is a dict, not a list"),
    (lambda d: d["knobs"][2].pop("default"), "describe(): knobs[2] has no 'default'"),
    (lambda d: d.update(options=["warps"]), "describe(): warps of options and constants is no knob"),
    (lambda d: d["kernel"].pop("grid"), "describe(): kernel has no 'grid'"),
    (lambda d: d["kernel"].update(function=len), "describe(): kernel: 'function' is no Triton kernel"),
    (lambda d: d["kernel"]["arguments"].pop("k"), "takes k, which neither arguments nor constants name"),
    (lambda d: d["kernel"]["arguments"].update(more=("i32", {"int32": "n"}, True)), "describe(): kernel names more, which"),
    (lambda d: d["kernel"]["arguments"].update(n=("i32", "n")), "argument 'n': expected an operand, a formula, a number or (type, value"),
    (lambda d: d["kernel"]["arguments"].update(n=("int", {"int32": "n"}, True)), "argument 'n': 'int' is not a type"),
    (lambda d: d["kernel"]["arguments"].update(n=("i32", {"int64": "n"}, True)), "argument 'n': a value of i32 is {'int32': ...}"),
    (lambda d: d["kernel"]["arguments"].update(n=("i32", {"int32": "cols"}, True)), "argument 'n': 'cols' is not a formula"),
    (lambda d: d["prepare"][0]["arguments"].update(m_sizes=("*i32", {"pointer": "sizes"}, True)),
     "describe(): prepare[0], argument 'm_sizes': 'sizes' is none of the operands and buffers"),
    (lambda d: d.update(compute=[]), "describe(): 'compute' is not a field; did you mean 'computes'?"),
    (lambda d: d["kernel"].update(argument={}), "describe(): kernel: 'argument' is not a field; did you mean 'arguments'?"),
    (lambda d: d["kernel"].update(arguments=[]), "describe(): kernel: 'arguments' is a list, not a dict by the kernel's parameters"),
    (lambda d: d["kernel"].update(grid=lambda meta: (1,)), "describe(): kernel: 'grid' is a formula or a list of up to three"),
    (lambda d: d["kernel"].update(function="own.py"), "'own.py' is not a kernel: expected FILE.py:NAME"),
    (lambda d: d["knobs"][0].update(default=48), "describe(): knobs[0]: the default 48 is none of the values [16, 32, 64, 128, 256]"),
    (lambda d: d["kernel"]["arguments"].update(a="rows_of_x"), "argument 'a': 'rows_of_x' is not a formula over sizes and knobs, nor one of expert_ids, m_sizes, "),
    (lambda d: d["kernel"]["arguments"].update(a=("*fp16", {"pointer": "x"}, True)), "argument 'a': x is of *bf16, not *fp16"),
    (lambda d: d["kernel"]["arguments"].update(k=("i32", {"int32": "TODO"}, True)), "argument 'k': still TODO"),
    (lambda d: d["kernel"]["arguments"].update(expert_ids="expert_ids"), "argument 'expert_ids': expected None, or a type with the buffer"),
    (lambda d: d["operands"].clear() or d.pop("operands") or d.update(computes=[{"op": "dx"}]), "It may be left out for fwd in bf16 and fp16"),
])
def test_a_field_that_is_missing_or_wrong_is_reported(room, packer, monkeypatch, change, sentence):
    module = packer.load(SOURCE / "scripts/triton_moe.py")
    description = module.describe("bf16")
    change(description)
    monkeypatch.setattr(packer, "load", lambda path: types.SimpleNamespace(describe=lambda dtype: description))
    packer.described.cache_clear()
    with pytest.raises(packer.Wrong) as error:
        packer.described("own.py", "bf16")
    assert sentence in str(error.value)
    assert packer.sentence_of(error.value) == str(error.value)


def test_without_triton_it_says_so(room):
    result = subprocess.run([sys.executable, "-B", "-S", PACK, "-o", "pack"], capture_output=True, text=True, cwd=room.path)
    assert result.returncode == 3 and "triton is not installed" in result.stderr
    assert not (room.path / "pack").exists()
