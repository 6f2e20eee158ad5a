"""tune --for: from a model to a server's file, on an imaginary GPU, with a stand-in for Triton."""
import json
import sys

import pytest

from conftest import PLANTED, SOURCE, Room, validate

FP8 = {"model_type": "qwen3_next", "hidden_act": "silu", "hidden_size": 2048, "moe_intermediate_size": 512, "num_experts": 512,
       "num_experts_per_tok": 10, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
ROW = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
NAME = "E=512,N=128,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"

SGLANG_NAME = NAME.replace("[128,128]", "[128, 128]")

# Stands in for Python with Triton: writes the pack that pack_triton.py would write, of empty kernels.
PYTHON = f"""#!{sys.executable}
import argparse, hashlib, json, pathlib, sys
sys.path.insert(0, str(pathlib.Path(sys.argv[2]).parent))
parser = argparse.ArgumentParser()
for name in ("--from", "--dtype", "--top-k", "--kernel-file", "--arch", "--candidates", "-o"):
    parser.add_argument(name)
parser.add_argument("--size", action="append")
parser.add_argument("--gemm", action="append")
parser.add_argument("--find", action="store_true")
options = parser.parse_args(sys.argv[3:])
out = pathlib.Path(options.o)
if options.find:
    out.write_text(json.dumps({{"kernel": options.kernel_file, "triton": "3.6.0", "servers_triton": ""}}))
    sys.exit()
listed = json.loads(pathlib.Path(options.candidates).read_text())
names = {ROW!r}
manifest = json.loads(pathlib.Path({str(SOURCE / "tests/cli/files/packs/pack-toy.json")!r}).read_text())
word = options.dtype if not options.dtype.startswith("fp8-") or options.dtype == "fp8-block" else options.dtype + "-fast"
kernel = b"a kernel"
for operand in manifest["operands"][:2]:
    operand["dtype"] = options.dtype.split("-")[0] if operand["name"] == "w" or options.dtype[:3] in ("fp8", "fp1") else "bf16"
if options.dtype.startswith("int4"):
    assert options.gemm == ["down:2048,128", "up:256,2048"]
manifest.update(variant=getattr(options, "from") + "_moe", rules=[], buffers=[], files={{"a.cubin": {{
    "arch": options.arch, "bytes": len(kernel), "sha256": hashlib.sha256(kernel).hexdigest()}}}},
    knobs=[{{"name": name, "help": "", "values": sorted({{each["knobs"][name] for each in listed}}), "default": listed[0]["knobs"][name]}}
           for name in names],
    computes=[{{"op": "fwd", "dtype": word, "fusion": fusion, "weighting": weighting}} for fusion, weighting in
              (("permute_x+by_slot", "none"), ("by_slot+topk_weights", "result"))],
    binaries=[{{"files": {{options.arch: "a.cubin"}}, "entry": "a", "threads": 128, "shared_bytes": 0}}],
    launches=[{{"cubin": "candidate", "cooperative": False, "grid": "1", "arguments": [{{"pointer": "x"}}]}}],
    candidates=[[*(each["knobs"][name] for name in names), 0] for each in listed])
out.mkdir()
(out / "a.cubin").write_bytes(kernel)
(out / "pack.json").write_text(json.dumps(manifest))
"""


@pytest.fixture
def room(tmp_path):
    room = Room(tmp_path, PLANTED)
    room.write("config.json", FP8)
    room.write("fused_moe.py", "the kernel")
    room.write("python", PYTHON)
    (tmp_path / "python").chmod(0o755)
    room.env.update(MOETUNE_PYTHON=str(tmp_path / "python"), MOETUNE_PLANT="h200:")
    return room


def tune(server, *more):
    return ["tune", "--for", server, "--model", "config.json", "--tp", "4", "--kernel-file", "fused_moe.py", "-o", "out", *more]


def rows(room, path):
    return {int(tokens): tuple(row[name] for name in ROW) for tokens, row in room.json(path).items()}


SMALL = ["--tokens", "16,4096", "--set", "GROUP_SIZE_M=1", "--set", "num_stages=2,3"]


def test_a_dry_run_names_files_cells_and_time_without_a_gpu(room):
    room.env.pop("MOETUNE_PLANT")
    text = room.ok(*tune("vllm", "--dry-run", "--device", "h200")).stdout
    assert f"vLLM looks for:\nout/{NAME}\n" in text
    assert "Whether it has such files is unknown, because vLLM was not found here" in " ".join(text.split())
    assert "72 cells: up and down of 1 layer, 18 token counts, routings uniform, zipf:1." in text
    assert "170 of the 1280 configurations of its tuner are tried" in text and "Would take about " in text
    assert not (room.path / "out").exists()
    plan = json.loads(room.ok(*tune("sglang", "--dry-run", "--device", "h200", "--shared-experts", "1", "--format", "json")).stdout)
    assert "--shared-experts is for one model without --ep" in room.error(2, *tune("sglang"), "--shared-experts", "1", "--ep", "2")
    name = "E=513,N=128,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128]"
    assert plan["files"] == [f"out/configs/triton_3_6_0/{name}{end}.json" for end in ("", "_down")]
    assert "/t16/shared:1:zipf:1/e513/top11/n2048/k128/by_slot+topk_weights/" in "\n".join(plan["cells"])
    room.write("file", "")
    here = room.ok(*tune("vllm", "--dry-run", "--device", "h200"), env={"XDG_CACHE_HOME": str(room.path / "file")}).stdout
    assert "cannot make the folder: Not a directory: name a folder for such files in XDG_CACHE_HOME" in " ".join(here.split())
    room.env["MOETUNE_PYTHON"] = "/bin/false"
    assert "The kernel cannot be compiled here: pack_triton.py" in room.ok(*tune("vllm", "--dry-run", "--device", "h200")).stdout


@pytest.mark.parametrize("device, name", [
    ("h20", "NVIDIA_H20"), ("h20-3e", "NVIDIA_H20-3e"), ("h800", "NVIDIA_H800"), ("gh200", "NVIDIA_GH200_480GB"),
    ("gb200", "NVIDIA_GB200"), ("b300", "NVIDIA_B300_SXM6_AC"), ("l20", "NVIDIA_L20"),
    ("rtx-pro-6000", "NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition"), ("NVIDIA H100 NVL@sm_90a", "NVIDIA_H100_NVL"),
    ("NVIDIA H200 NVL@sm_90", "NVIDIA_H200")])
def test_a_plan_for_a_gpu_elsewhere_names_its_file(room, device, name):
    room.env.pop("MOETUNE_PLANT")
    plan = room.ok(*tune("vllm", "--dry-run", "--device", device)).stdout
    assert NAME.replace("NVIDIA_H200", name) in plan


@pytest.mark.parametrize("device", ["a100", "a30", "rtx3090"])
def test_fp8_is_refused_below_sm_89(room, device):
    room.env.pop("MOETUNE_PLANT")
    assert "Triton has no fp8 on NVIDIA" in " ".join(room.error(2, *tune("vllm", "--dry-run", "--device", device)).split())


def test_a_file_has_the_servers_rows_where_ours_are_not_faster(room):
    base = {str(tokens): dict(zip(ROW, (16, 64, 128, 1, 4, 2) if tokens == 16 else (64, 256, 128, 8, 4, 4))) for tokens in (16, 4096)}
    (room.path / "configs").mkdir()
    room.write(f"configs/{NAME}", base)  # beside the kernel's file, as vLLM has it
    text = room.ok(*tune("vllm", *SMALL)).stdout
    written = rows(room, f"out/{NAME}")
    assert written[16] == (16, 64, 128, 1, 4, 2)  # nothing is faster
    assert written[4096][1] == 64 and written[4096][5] == 2  # best by the planted formula
    assert "1 of 2 rows are faster than vLLM's own" in text and "Next: VLLM_TUNED_CONFIG_FOLDER=out vllm serve ..." in text
    assert any(line.startswith("|     16 | 16 64 128 1 4 2 ") and "the same" in line for line in text.splitlines()), text
    table = room.json("out/moetune-table.json")
    validate("table", room.path / "out/moetune-table.json")
    assert {choice["rule"] for choice in table["choices"]} == {"layer"} and len(table["choices"]) == 4
    for tokens in (16, 4096):  # one row for up and down
        assert len({json.dumps(choice["candidate"]) for choice in table["choices"] if f"/t{tokens}/" in choice["cells"][0]}) == 1
    again = room.ok(*tune("vllm", *SMALL, "--resume"))
    assert "the kernels are those of an earlier run" in again.stderr and "the journal has decided 8 of 8 cells" in again.stderr


def test_sglang_gets_two_files_with_the_same_block_size_m(room):
    room.ok(*tune("sglang", *SMALL))
    folder = "out/configs/triton_3_6_0/" + NAME[:-5].replace("128,128", "128, 128")
    up, down = rows(room, folder + ".json"), rows(room, folder + "_down.json")
    assert up.keys() == down.keys() and all(up[tokens][0] == down[tokens][0] for tokens in up)


def test_of_4_bits_vllms_other_kernel_keeps_its_rows(room):
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
    room.write("config.json", {**FP8, "quantization_config": gptq})
    text = room.ok(*tune("vllm", "--tokens", "4096", "--set", "GROUP_SIZE_M=1", "--set", "num_stages=2,3")).stdout
    assert "vllm serve --quantization moe_wna16 ..." in text
    written = room.json("out/E=512,N=128,device_name=NVIDIA_H200,dtype=int4_w4a16.json")
    assert {row["SPLIT_K"] for row in written.values()} == {1} and "BLOCK_SIZE_N" not in written["256"]  # 5 rows an expert
    assert written["4096"]["num_stages"] == 2 and written["512"]["BLOCK_SIZE_K"] == 32  # its default
    assert "vLLM runs its CUDA kernel moe_wna16 for so few tokens" in room.error(2, *tune("vllm", "--tokens", "256"))
    names = json.loads(room.ok(*tune("sglang", "--dry-run", "--format", "json")).stdout)["files"]
    assert names[0].endswith("E=512,N=64,device_name=NVIDIA_H200,dtype=int4_w4a16.json")


def test_what_the_server_has_already_is_not_written(room):
    room.write(NAME, {"1": dict(zip(ROW, (16, 64, 128, 1, 4, 2)))})
    error = room.error(1, *tune("vllm", "--tokens", "16", "--set", "GROUP_SIZE_M=1", "--base", NAME))
    assert "vLLM needs no file for this layer" in error and not (room.path / f"out/{NAME}").exists()


@pytest.mark.parametrize("more, sentence", [
    (["--op", "fwd"], "--op has no effect with --for"),
    (["--choose", "worst"], "--choose has no effect with --for"),
    (["--space", "quick"], "--space quick: --for tries rows that may win, or with --space full all"),
    (["--set", "BLOCK_M=16"], "unknown knob of the server's kernel 'BLOCK_M'"),
    (["--base", "config.json"], "--base config.json: the program does not look it up for this layer"),
    (["--dtype", "fp32"], "vLLM's kernel has no fp32: it looks up no file for it"),
    (["--dtype", "bf16,fp8"], "compiles the kernel for one top_k and format"),
    (["--shared-experts", "1"], "--shared-experts: vLLM does not fuse them into the routed experts"),
])
def test_requests_that_cannot_be_served_are_refused(room, more, sentence):
    assert sentence in room.error(2, *tune("vllm"), *more)


def test_a_folder_that_cannot_be_is_refused_before_kernels_are_compiled(room):
    room.write("out", "mine")
    for more in ([], ["--dry-run"]):
        assert "out: is not a folder" in room.error(2, *tune("vllm", *SMALL, *more))
    assert (room.path / "out").read_text() == "mine" and not list((room.path / "cache").rglob("pack.json"))


def test_what_is_missing_is_named_with_the_remedy(room):
    assert "--for vllm needs a GPU, and this machine has none" in room.error(3, *tune("vllm"), "--device", "cpu", env={"MOETUNE_PLANT": ""})
    assert "--base has no effect without --for" in room.error(2, "tune", "--model", "config.json", "--base", NAME)
    elsewhere = [word.replace("fused_moe.py", "nowhere.py") for word in tune("vllm")]
    assert "--kernel-file nowhere.py: no such file" in room.error(2, *elsewhere)
    error = room.error(3, *tune("vllm"), env={"MOETUNE_PYTHON": "/nowhere/python3"})
    assert "/nowhere/python3 is not here, which compiles the server's kernel" in error and "MOETUNE_PYTHON" in error


# The real script, with a Python that has no Triton: it finds the kernel, and what the server requires.
@pytest.mark.parametrize("required, version", [
    ({}, "3.8.0, that of SGLang 0.5.23"),
    ({"torch": "2.14.1", "sglang": "0.5.23"}, "3.7.2, that of the SGLang installed here"),
    ({"torch": "2.14.1", "triton": "3.7.4"}, "3.7.4, that of the SGLang installed here")])
def test_the_triton_to_install_is_the_servers(room, required, version):
    kernel = "site/sglang/kernels/ops/moe/fused_moe_triton_kernels.py"
    configs = "site/sglang/srt/layers/moe/moe_runner/triton_utils/configs/triton_3_6_0"
    for path, text in [(kernel, "the kernel"), (f"{configs}/{SGLANG_NAME}", {"1": dict(zip(ROW, (16, 64, 128, 1, 4, 2)))}),
                       *((f"site/{name}-{number}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n" + (
                           'Requires-Dist: triton~=3.7.2; platform_system == "Linux"\n' if name == "torch" else ""))
                         for name, number in required.items())]:
        (room.path / path).parent.mkdir(parents=True, exist_ok=True)
        room.write(path, text)
    room.write("python", f"#!/bin/sh\nexec {sys.executable} -S \"$@\"\n")
    command = [word.replace("fused_moe.py", kernel) for word in tune("sglang")]
    assert f"pip install triton=={version}; or name a Python" in room.error(3, *command)
    text = " ".join(room.ok(*command, "--dry-run").stdout.split())  # which finds the server's rows without Triton
    assert f"It has 1 of these files: their rows stay where ours are not faster. {room.path / configs / SGLANG_NAME}" in text
    assert f"pip install triton=={version}" in text


def test_what_sglang_bundles_is_copied_beside_our_file(room):
    configs = "sglang/srt/layers/moe/moe_runner/triton_utils/configs"
    kernel = "sglang/kernels/ops/moe/fused_moe_triton_kernels.py"
    row = dict(zip(ROW, (64, 256, 128, 8, 4, 4)))
    for path, text in [(kernel, "the kernel"), (f"{configs}/triton_3_4_0/E=1.json", {"1": row}), (f"{configs}/triton_3_4_0/{SGLANG_NAME}", {"1": row})]:
        (room.path / path).parent.mkdir(parents=True, exist_ok=True)
        room.write(path, text)
    result = room.ok(*[word.replace("fused_moe.py", kernel) for word in tune("sglang", *SMALL)])
    for name in ("E=1.json", SGLANG_NAME):
        assert room.json(f"out/configs/triton_3_4_0/{name}") == {"1": row}
    assert f"2 files were copied from {room.path / configs}, because SGLANG_MOE_CONFIG_DIR replaces that folder" in result.stderr
    assert "Next: SGLANG_MOE_CONFIG_DIR=out python3 -m sglang.launch_server ..." in result.stdout
    assert f"SGLang's own are those of {room.path / configs / 'triton_3_4_0' / SGLANG_NAME}" in " ".join(result.stdout.split())


def test_without_what_sglang_bundles_our_file_goes_to_its_folder(room):
    text = room.ok(*tune("sglang", *SMALL)).stdout
    assert "Next: cp out/configs/triton_3_6_0/*.json sglang/srt/layers/moe/moe_runner/triton_utils/configs/triton_3_6_0" in text
    assert "SGLANG_MOE_CONFIG_DIR would hide its other files" in text


def test_files_are_for_the_servers_triton(room):
    room.write("python", PYTHON.replace('"servers_triton": ""', '"servers_triton": "3.8.0"'))
    stderr = room.ok(*tune("sglang", *SMALL)).stderr
    assert "the kernels are compiled by Triton 3.6.0, and SGLang runs 3.8.0" in stderr and "pip install triton==3.8.0" in stderr
    assert (room.path / f"out/configs/triton_3_8_0/{SGLANG_NAME}").exists()


def test_the_folder_of_the_servers_variable_is_looked_at(room):
    (room.path / "mine").mkdir()
    room.write(f"mine/{NAME}", {"1": dict(zip(ROW, (16, 64, 128, 1, 4, 2)))})
    text = room.ok(*tune("vllm", "--dry-run"), env={"VLLM_TUNED_CONFIG_FOLDER": "mine"}).stdout
    assert f"It has 1 of these files: their rows stay where ours are not faster.\nmine/{NAME}\n" in text


def test_kernels_that_do_not_compile_are_counted_and_named(room):
    room.write("python", PYTHON.replace("out.mkdir()", '''out.mkdir()
for each in listed:
    if each["knobs"]["BLOCK_SIZE_M"] in (16, 32):
        print("the kernel", *(f"{name}={value}" for name, value in each["knobs"].items()), "for sm_90a does not compile: no layout",
              file=sys.stderr)
'''))
    text = room.ok(*tune("vllm", *SMALL)).stderr
    assert "kernels do not compile with Triton 3.6.0 and are left out, all with BLOCK_SIZE_M 16 or 32; the first: the kernel BLOCK_SIZE_M=16" in text


def test_a_layer_with_a_ready_file_is_said_to_have_one(room):
    name = NAME[:-5]
    sentence = f"a tuned file for this layer is in configs/tuned/served/vllm/{NAME} of moetune: moetune list served --show '{name}' prints it"
    assert "A" + sentence[1:] + "." in " ".join(room.ok(*tune("vllm", "--dry-run")).stdout.split())
    assert sentence in room.ok(*tune("vllm", *SMALL)).stderr
    assert json.loads(room.ok("list", "served", "--show", name).stdout) == json.loads((SOURCE / f"configs/tuned/served/vllm/{NAME}").read_text())
    assert name in room.ok("list", "served").stdout


def test_a_time_budget_that_is_too_short_is_reported(room):
    error = room.error(1, *tune("vllm", *SMALL, "--time-budget", "1ms"))
    assert "the time budget ended before the rows of a token count were chosen" in error and "--resume" in error


def test_ctrl_c_keeps_what_was_measured(room):
    process = room.start(*tune("vllm", "--tokens", "1-4096*2", "-q"))
    room.wait_for_trials(process, 3, "out/moetune-table.json.journal.jsonl")
    process.send_signal(2)
    process.communicate(timeout=60)
    assert process.returncode in (130, 0)
    assert "trial" in (room.path / "out/moetune-table.json.journal.jsonl").read_text()
