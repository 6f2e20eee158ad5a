"""Exported kernels and the library that launches them, over a driver without a device that logs what it is asked for."""
import ctypes
import hashlib
import importlib.util
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
import types

import pytest

from conftest import BINARY, SOURCE, rule_pick, validate

BUILT = pathlib.Path(os.environ.get("MOETUNE_BINARY_DIR", pathlib.Path(BINARY).parent))
DRIVER = BUILT / "fake_driver"
pytestmark = pytest.mark.skipif(not DRIVER.exists(), reason="built without the CUDA toolkit")
LAYER = {"experts": 6, "top_k": 2, "n": 256, "k": 512}

# Does with moetune_kernels.py what tests/runtime/launch_main.cpp does in C.
CALLER = """
import sys
import threading
sys.path.insert(0, sys.argv[1])
import moetune_kernels as kernels

class Tensor:
    def __init__(self, address, shape, dtype, strides=None):
        self.address, self.shape, self.strides = address, shape, strides
        self.dtype = "torch." + {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8_e4m3fn"}.get(dtype, dtype)
    def data_ptr(self):
        return self.address
    def is_contiguous(self):
        return not self.strides
    def stride(self):
        return self.strides or [kernels.math.prod(self.shape[i + 1:]) for i in range(len(self.shape))]
    def numel(self):
        return kernels.math.prod(self.shape)
    def element_size(self):
        return 8 if self.dtype == "torch.int64" else 4

given = dict(word.split("=", 1) for word in sys.argv[2:])
strides = [int(word) for word in given.get("strides", "").split(",") if word]
strides = {"x_scales": strides[:2], "w_scales": strides[2:]}
number = lambda name, otherwise=None: int(given.get(name, otherwise)) if given.get(name, otherwise) is not None else None
try:
    library = kernels.Library(sys.argv[1], other_gpu=given.get("other_gpu") == "1")
    request = {name: given[name] for name in ("op", "dtype", "fusion") if name in given}
    request.update({name: number(name) for name in ("experts", "top_k", "n", "k")})
    skew = float(given["skew"]) if "skew" in given else None
    for tokens in range(1, number("picks", 0) + 1):
        print(library.pick(tokens=tokens, skew=skew, **request).id)
    if "picks" in given:
        sys.exit()
    if "down_n" in given:
        down = dict(request, n=number("down_n"), k=number("down_k"), fusion=given["down_fusion"])
        layer, tokens = library.pick_layer(up=request, down=down, tokens=number("tokens"), skew=skew), number("tokens")
        print(layer.id)
        needs = {need.name: need for need in layer.needs(tokens)}
        operands, address = {}, 0x100000000000
        for name in ("x", "up", "hidden", "m_sizes", "gather_indices", "down", "y", "topk_weights"):
            address += 0x1000000000
            operands[name] = Tensor(address, needs[name].shape, needs[name].dtype)
        if "sum" in given:
            operands["sum"] = Tensor(0x200000000000 + number("sum"), [tokens, needs["y"].shape[1]], needs["y"].dtype)
        layer.launch(tokens, kernels.Workspace(library, tokens, [request, down]), stream=0x77, **operands)
        sys.exit()
    rows, every = number("rows"), [int(tokens) for tokens in given["tokens"].split(",")]
    workspace = kernels.Workspace(library, number("room", every[0]), [request])
    for tokens in every:
        kernel = library.pick(tokens=tokens, skew=skew, **request)
        print(kernel.name, kernel.id)
        operands, address = {}, 0x100000000000
        shifted, _, shift = given.get("shift", "").partition(":")
        for need in kernel.needs(tokens, rows):
            address += 0x1000000000
            operands[need.name] = Tensor(address + int(shift) * (need.name == shifted) if shift else address, need.shape, need.dtype, strides.get(need.name))
        launch = lambda: kernel.launch(tokens, workspace, rows, stream=0x77, **operands)
        launch()
        other = threading.Thread(target=launch)  # without a context
        other.start(), other.join()
    slots = every[0] * number("top_k")
    if "choose" in given:
        experts, chosen = number("choose"), [every[0], number("top_k")]
        library.choose(Tensor(0x5000, [every[0], experts], given["logits"]), Tensor(0x4000, chosen, "fp32"),
                       Tensor(0x3000, chosen, "int32"), Tensor(0x6000, [experts], "fp32") if "bias" in given else None,
                       stream=0x77, score="sigmoid", renormalize=False, scale=2.5, groups=number("groups", 1),
                       top_groups=number("top_groups", 1))
    if number("route", 1):
        library.route(Tensor(0x3008, [every[0], number("top_k")], "int64"), Tensor(0x1000, [number("experts")], "int32"),
                      Tensor(0x2000, [slots], "int32"), stream=0x77)
    workspace.reset()
except kernels.Error as error:
    print("error:", error)
    sys.exit(1)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    subprocess.run([BUILT / "export_main", folder], check=True)
    return folder


class Callers:
    """A program in C++ and one in Python: `run` calls each, checks that they print the same and do the same, and returns what
    they printed and the driver's log."""

    def __init__(self, path):
        self.path = path
        (path / "caller.py").write_text(CALLER)

    def run(self, folder, code=0, env=None, **words):
        words = [f"{name}={value}" for name, value in words.items()]
        results = []
        for command in ([BUILT / "launch_main"], [sys.executable, "-B", self.path / "caller.py"]):
            log = self.path / "log.txt"
            log.write_text("")
            result = subprocess.run([*map(str, [*command, folder]), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    universal_newlines=True,
                                    env={**os.environ, "LD_LIBRARY_PATH": str(DRIVER), "FAKE_CUDA_LOG": str(log), **(env or {})})
            assert result.returncode == code, (result.stdout, result.stderr)
            results.append((result.stdout, log.read_text()))
        assert results[0] == results[1]
        return results[0]


@pytest.fixture
def callers(tmp_path):
    return Callers(tmp_path)


def test_every_kernel_is_handed_what_the_manifest_says(exported, callers):
    manifest = json.loads((exported / "manifest.json").read_text())
    validate("kernels", exported / "manifest.json")
    assert len(manifest["cells"]) == 57
    seen = set()
    for cell in manifest["cells"]:
        out, log = callers.run(exported, **cell["asked"], tokens=cell["tokens"], skew=cell["skew"])
        assert out == f"{cell['kernel']} {cell['id']}\n"
        kernel = next(kernel for kernel in manifest["kernels"] if kernel["name"] == cell["kernel"])
        launches = [line for line in log.splitlines() if line.startswith(("launch", "fill"))]
        assert len(launches) == 2 * len(kernel["launches"]) + 1 and launches[-1].startswith("launch route_int64")
        seen |= {word for launch in kernel["launches"] for word in [launch.get("entry", "fill")]}
        seen |= {buffer["name"] for buffer in kernel["buffers"]}
        seen |= {field["name"] for field in kernel["launches"][0]["arguments"][0]["struct"]["fields"]}
        if any("cooperative 1" in line for line in launches):
            seen.add("cooperative")
    assert seen >= {"moetune_kernel", "invert", "sum_slots", "weigh_rows", "gate_gradient", "add_parts", "fill", "workspace", "gathered_rows", "gathered",
                    "sums", "parts", "x_again", "row_of", "counters", "x_map", "x_rest_map", "w_map", "cooperative", "x_scales", "w_scale_step", "y_scales", "y_scale_row", "w_zeros"}


def test_a_launch_is_what_the_manifest_says(exported, callers):
    out, log = callers.run(exported, op="fwd", **LAYER, tokens=16, skew=1.3, route=0)
    manifest = json.loads((exported / "manifest.json").read_text())
    kernel = next(kernel for kernel in manifest["kernels"] if kernel["name"] == out.split()[0])
    knobs = kernel["candidate"]
    lines = [line.strip() for line in log.splitlines()]
    assert lines[0] == f"alloc 700000000000 {(4 + 16 * 132) * 4}" and lines[1] == f"set 700000000000 0 {(4 + 16 * 132) * 4}"
    assert lines.count(lines[1]) == 2  # when it was made, and when it was reset
    launch = next(line for line in lines if line.startswith("launch"))
    tiles = (32 // knobs["block_m"] + 6) * -(-256 // knobs["block_n"])
    assert f"grid {min(tiles, 132)},1,1 block {128 * (1 + knobs['consumers'])},1,1" in launch
    assert "x 0x101000000000 w 0x102000000000 y 0x103000000000 m_sizes 0x104000000000 gather_indices (nil)" in log
    assert "m 0 n 256 k 512 experts 6 top_k 2" in log
    x = next(line for line in lines if line.startswith("map 0x101000000000"))
    assert f"type 9 swizzle 0 3 promotion 2 fill 0: 512/64/1 32/{knobs['block_m']}/1+1024" in x


PAIR = {"op": "fwd", "fusion": "permute_x+silu", **LAYER, "skew": 1.3, "down_fusion": "permute_y+topk_weights",
        "down_n": 512, "down_k": 128}


def test_one_call_launches_a_layer(exported, callers):
    """Down is the one that was tuned together with up; both get their operands, and down reads what up writes."""
    up, = (cell for cell in json.loads((exported / "manifest.json").read_text())["cells"] if "down" in cell)
    assert "/t16/zipf:1" in up["id"] and "/t256/zipf:1" in up["down"]
    out, log = callers.run(exported, **{**PAIR, "skew": up["skew"]}, tokens=16)
    assert out == f"{up['id']}, then {up['down']}\n"
    assert [line.split()[1] for line in log.splitlines() if line.startswith("launch")] == ["moetune_kernel"] * 2
    arguments = [line.split() for line in log.splitlines() if line.startswith("  x 0x")]
    assert [(line[1], line[3], line[5]) for line in arguments] == [
        ("0x101000000000", "0x102000000000", "0x103000000000"), ("0x103000000000", "0x106000000000", "0x107000000000")]
    assert all(line.endswith(" early") for line in log.splitlines() if line.startswith("launch"))


@pytest.mark.parametrize("env", [{"FAKE_CUDA_VERSION": "12020"}, {"FAKE_CUDA_CAPABILITY": "80"}])
def test_nothing_begins_early_where_it_cannot(exported, tmp_path, callers, env):
    """Drivers before CUDA 12.3 capture no such launch in a graph, and kernels before sm_90 don't wait."""
    def for_sm_80(manifest):
        for served in [*manifest["cells"], *manifest["ranges"]]:
            served["arch"] = "sm_80"
        of_all = [*manifest["route"].values(), *manifest["sum"].values(), manifest["choose"]]
        for kernel in [*manifest["kernels"], {"launches": of_all}]:
            for launch in kernel["launches"]:
                if "cubin" in launch:
                    launch["cubin"] = {"sm_80": launch["cubin"]["sm_90a"]}
    folder = changed(exported, tmp_path, for_sm_80) if "FAKE_CUDA_CAPABILITY" in env else exported
    _, log = callers.run(folder, env=env, **PAIR, tokens=16, sum=0)
    assert "launch sum_bf16" in log and " early" not in log


def test_a_layer_adds_up_its_slots(exported, callers):
    _, log = callers.run(exported, **PAIR, tokens=16, sum=0)
    launches = [line.split() for line in log.splitlines() if line.startswith("launch")]
    assert [line[1] for line in launches] == ["moetune_kernel", "moetune_kernel", "sum_bf16"]
    assert launches[2][2:6] == ["grid", "16,1,1", "block", "256,1,1"]
    out, log = callers.run(exported, code=1, **PAIR, tokens=16, sum=8)
    assert "sum: 'sum' must begin at a multiple of 16 bytes" in out and "launch" not in log
    words = {**PICK, "fusion": "permute_x", "down_fusion": "permute_x", "down_n": 256, "down_k": 512, "sum": 0}
    result = subprocess.run([BUILT / "launch_main", exported, *(f"{k}={v}" for k, v in words.items())],
                            stdout=subprocess.PIPE, universal_newlines=True,
                            env={**os.environ, "LD_LIBRARY_PATH": str(DRIVER), "FAKE_CUDA_LOG": os.devnull})
    assert result.returncode == 1 and "sum: rows of down are not by slot: its fusion is permute_x" in result.stdout


def test_exports_of_before_have_layers_but_no_sum_and_no_choice(exported, tmp_path, callers):
    def of_before(manifest):
        del manifest["sum"], manifest["choose"]
        for kernel in manifest["kernels"]:
            for launch in kernel["launches"]:
                launch.pop("follows", None)
    folder = changed(exported, tmp_path, of_before)
    _, log = callers.run(folder, **PAIR, tokens=16)
    assert log.count("launch moetune_kernel") == 2 and " early" not in log.partition("route")[0]
    for words, name in (({**PAIR, "tokens": 16, "sum": 0}, "sum"), ({**PICK, "choose": 8, "logits": "bf16"}, "choose")):
        out, _ = callers.run(folder, code=1, **words)
        assert f"manifest.json: has no kernel '{name}': export the table again" in out


def test_down_alone_begins_when_the_launch_before_it_has_ended(exported, callers):
    """What writes its x then need not let it begin before. Up waits for any launch itself."""
    manifest = json.loads((exported / "manifest.json").read_text())
    for follows, fusion, ends in (("up", "permute_y", ""), ("any", "permute_x+silu", " early"),
                                  ("none", "permute_x", "")):
        kernel = next(kernel for kernel in manifest["kernels"] if kernel["launches"][0]["follows"] == follows)
        assert kernel["op"] == "fwd" and kernel["fusion"] == fusion or follows == "none"
        cell = next(cell for cell in manifest["cells"] if cell["kernel"] == kernel["name"])
        _, log = callers.run(exported, **cell["asked"], tokens=cell["tokens"], skew=cell["skew"], route=0)
        launches = [line for line in log.splitlines() if "launch moetune_kernel" in line]
        assert launches and all(line.endswith(f"stream 0x77{ends}") for line in launches)


def test_experts_are_chosen_in_one_launch(exported, callers):
    for logits, bias in (("bf16", {}), ("fp16", {"bias": 1}), ("fp32", {"bias": 1, "groups": 8, "top_groups": 4})):
        _, log = callers.run(exported, **{**PICK, "tokens": 17}, choose=256, logits=logits, **bias)
        launches = [line for line in log.splitlines() if "launch choose" in line]
        assert len(launches) == 1 and launches[0].startswith("launch choose grid 5,1,1 block 128,1,1 ")


@pytest.mark.parametrize("words, sentence", [
    ({"choose": 1025}, "choose: takes 1 to 1024 experts"),
    ({"choose": 64, "groups": 3}, "choose: takes 1 to 32 groups that divide the experts"),
    ({"choose": 64, "groups": 4, "top_groups": 5},
     "choose: takes 1 to 32 groups that divide the experts, and of these 1 or more"),
    ({"choose": 128, "groups": 64}, "choose: takes 1 to 32 groups"),
    ({"choose": 32, "groups": 32}, "choose: top_k is 1 to 32, and at most the experts of the top groups"),
    ({"choose": 1}, "choose: top_k is 1 to 32, and at most")])
def test_experts_that_cannot_be_chosen_are_refused(exported, callers, words, sentence):
    out, log = callers.run(exported, code=1, **{**PICK, **words}, logits="bf16")
    assert sentence in out and "launch choose" not in log


def test_a_layer_that_was_not_tuned_as_one_gets_the_nearest_kernels(exported, callers):
    out, _ = callers.run(exported, **PAIR, tokens=256)
    up, down = out.strip().split(", then ")
    assert "/t256/" in up and "/t256/" in down


def test_a_layer_names_the_operand_that_is_missing(exported, tmp_path):
    words = [f"{name}={value}" for name, value in {**PAIR, "tokens": 16, "without": "hidden"}.items()]
    result = subprocess.run([BUILT / "launch_main", exported, *words], stdout=subprocess.PIPE, universal_newlines=True,
                            env={**os.environ, "LD_LIBRARY_PATH": str(DRIVER)})
    assert result.returncode == 1 and "the operand 'y' is missing" in result.stdout


def test_what_a_launch_needs_is_kept(exported, callers):
    """The second launch encodes no tensor map again, other sizes do, and one workspace serves all up to its number."""
    out, log = callers.run(exported, op="fwd", **LAYER, tokens="16,256,16", room=256, skew=1.3, route=0)
    assert len(out.splitlines()) == 3
    maps = [line for line in log.splitlines() if line.startswith("map")]
    assert len(maps) == 4  # of x and w, for each number of tokens
    assert len([line for line in log.splitlines() if line.startswith("launch")]) == 6
    assert len([line for line in log.splitlines() if line.startswith("alloc")]) == 1


SCALED = {"op": "fwd", "dtype": "fp8-block", **LAYER, "tokens": 16, "skew": 1.3, "route": 0}


def test_scales_are_handed_over_as_they_lie(exported, callers):
    """Row by row if nothing else is said, along the rows of X, and with one scale for all columns of k."""
    for strides, strided in (({}, ("4 1", "8 4 1")), ({"strides": "1,32,8,1,2"}, ("1 32", "8 1 2")),
                          ({"strides": "1,0,2,1,0"}, ("1 0", "2 1 0"))):
        _, log = callers.run(exported, **SCALED, **strides)
        scales = [line.split() for line in log.splitlines() if line.startswith("  x_scales")]
        assert len(scales) == 2 and scales[0] == scales[1]
        assert " ".join(scales[0]) == f"x_scales 0x105000000000 {strided[0]} w_scales 0x106000000000 {strided[1]}"
        assert "map 0x101000000000 type 0" in log and "x 0x101000000000 w 0x102000000000 y 0x103000000000" in log
    weighted = {**SCALED, "dtype": "fp8-channel-fp16-fast", "fusion": "permute_y+topk_weights"}
    assert "1 0 w_scales 0x108000000000 256 1 0" in callers.run(exported, **weighted)[1]
    assert "0 0 w_scales 0x107000000000 1 0 0" in callers.run(exported, **{**SCALED, "dtype": "fp8-tensor", "fusion": "permute_y"})[1]


@pytest.mark.parametrize("words, sentence", [
    ({"strides": "-4,1,8,4,1"}, "'x_scales' needs strides of 0 or more, and its last scale within 2^32 scales"),
    ({"strides": f"4,1,{2**31},4,1"}, "'w_scales' needs strides of 0 or more"),
    ({"shift": "x_scales:2"}, "'x_scales' must begin at a multiple of 4 bytes"),
    ({"dtype": "fp8-channel"}, "has no kernel for fwd fp8-channel plain")])
def test_scales_that_kernels_cannot_read_are_refused(exported, callers, words, sentence):
    out, log = callers.run(exported, code=1, **{**SCALED, **words})
    assert sentence in out and "launch" not in log


def test_a_workspace_without_memory_for_more_says_so(exported):
    """Memory that could not be had is missing in the next launch too, and in no other way."""
    source = f"""
import os, sys
sys.path.insert(0, {str(exported)!r})
import moetune_kernels as mk
library = mk.Library({str(exported)!r})
summed = dict(op="dx", fusion="permute_x+sum_slots", **{LAYER})
workspace = mk.Workspace(library, 16, [dict({LAYER})])
kernel = library.pick(tokens=16, **summed)
needs = kernel.needs(16)
def error(run):
    try:
        run()
    except mk.Error as e:
        print(e)
os.environ["FAKE_CUDA_FAULT"] = "2"
error(lambda: workspace.reserve(16, [summed]))
os.environ["FAKE_CUDA_FAULT"] = "0"
error(lambda: mk.Prepared(kernel, 16, None, needs).launch(workspace, [4096] * len(needs), 1))
"""
    result = subprocess.run([sys.executable, "-B", "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            universal_newlines=True, env={**os.environ, "LD_LIBRARY_PATH": str(DRIVER), "FAKE_CUDA_LOG": os.devnull})
    first, second = result.stdout.splitlines()
    assert first == "no memory for a workspace: a planted fault", result.stderr
    assert "the workspace was made for other kernels or fewer tokens" in second


def test_what_an_export_serves_is_listed(exported, tmp_path):
    source = f"import sys; sys.path.insert(0, {str(exported)!r}); import json, moetune_kernels as mk; " \
             f"print(json.dumps(mk.Library({str(exported)!r}).served()))"
    result = subprocess.run([sys.executable, "-B", "-c", source], stdout=subprocess.PIPE, universal_newlines=True, check=True,
                            env={**os.environ, "LD_LIBRARY_PATH": str(DRIVER), "FAKE_CUDA_LOG": os.devnull})
    served, cells = json.loads(result.stdout), json.loads((exported / "manifest.json").read_text())["cells"]
    assert served[0]["id"] == "range" and served[0]["tokens"] == [64, 1000]
    assert [each["id"] for each in served[1:]] == [cell["id"] for cell in cells]
    assert all({**cell["asked"], "skew": cell["skew"]}.items() <= each.items() for each, cell in zip(served[1:], cells))


def test_c_programs_and_cmake_find_the_library(exported, tmp_path):
    """From C, which no other test compiles, through the package in the folder."""
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(user C)\nfind_package(moetune 0.1 REQUIRED)\n"
                                             "add_executable(user user.c)\ntarget_link_libraries(user PRIVATE moetune::moetune)\n")
    (tmp_path / "user.c").write_text('#include "moetune.h"\n#include <stdio.h>\nint main(int count, char** words) {\n'
                                     "  moetune_library* library;\n  if (moetune_open(words[count - 1], 0, &library)) puts(moetune_error());\n"
                                     "  return 0;\n}\n")
    for command in (["cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={exported}", "-DCMAKE_C_FLAGS=-std=c99 -pedantic-errors"],
                    ["cmake", "--build", tmp_path / "b"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    result = subprocess.run([tmp_path / "b/user", tmp_path / "nowhere"], stdout=subprocess.PIPE, universal_newlines=True)
    assert "manifest.json" in result.stdout


def test_a_call_of_other_rows_changes_grid_and_maps_alone(exported, callers):
    _, whole = callers.run(exported, op="fwd", **LAYER, tokens=256, skew=1.3, route=0)
    _, fewer = callers.run(exported, op="fwd", **LAYER, tokens=256, rows=100, skew=1.3, route=0)
    different = [(a, b) for a, b in zip(whole.splitlines(), fewer.splitlines()) if a != b]
    assert different and all(a.startswith(("map", "launch")) for a, _ in different)
    assert any(" 100/" in b for _, b in different)


@pytest.mark.parametrize("hint", [{}, {"skew": 1.0}, {"skew": 2.7}, {"skew": 100.0}], ids=str)
def test_picks_follow_the_rule_of_runtime_for_every_token_count(exported, tmp_path, callers, hint):
    tuned = [(1, 3), (16, 1), (16, 2.5), (20, 1), (25, 1), (64, 1.1), (256, 1.02), (256, 2.4), (4096, 1.01), (4096, 2.2)]
    asked = {**LAYER, "op": "fwd", "dtype": "bf16", "fusion": "plain"}

    def more_cells(manifest):
        one = next(cell for cell in manifest["cells"] if cell["asked"] == asked)
        manifest["cells"] = [{**one, "id": f"t{tokens}/{skew}", "tokens": tokens, "skew": skew} for tokens, skew in tuned]
    folder = changed(exported, tmp_path, more_cells)
    manifest = json.loads((folder / "manifest.json").read_text())
    picked = callers.run(folder, op="fwd", **LAYER, picks=8192, **hint)[0].split()
    rule = [rule_pick(manifest, asked, tokens, hint.get("skew")).get("id", "range") for tokens in range(1, 8193)]
    assert picked == rule and len(set(rule)) >= 4


def changed(exported, tmp_path, change):
    """A copy of the export with another manifest."""
    folder = tmp_path / "changed"
    shutil.copytree(exported, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    sign(folder, json.dumps(manifest))
    return folder


def sign(folder, manifest):
    """Writes a manifest and its digest."""
    (folder / "manifest.json").write_text(manifest)
    (folder / "manifest.sha256").write_text(hashlib.sha256(manifest.encode()).hexdigest() + "  manifest.json\n")


PICK = {**LAYER, "op": "fwd", "tokens": 16, "skew": 1.3}


@pytest.mark.parametrize("capability, archs, closest", [
    (89, ["sm_80", "sm_89"], "sm_89"), (89, ["sm_80", "sm_86"], "sm_86"), (86, ["sm_80", "sm_89"], "sm_80"),
    (90, ["sm_90", "sm_90a"], "sm_90a"), (103, ["sm_100", "sm_100a", "sm_103f"], "sm_100")])
@pytest.mark.parametrize("turned", [False, True])
def test_the_closest_architecture_is_taken_whichever_was_exported_first(exported, tmp_path, callers, capability, archs,
                                                                        closest, turned):
    """Each architecture has cells and a range of its own; all share their kernels, of which only the closest has files."""
    archs = archs[::-1] if turned else archs

    def for_each(manifest):
        for kind in ("cells", "ranges"):
            manifest[kind] = [{**each, "arch": arch, "kernel": each["kernel"] if arch == closest else "wgmma-9"}
                              for arch in archs for each in manifest[kind]]
        others = {f"{arch}.cubin": {"arch": arch, "bytes": 1, "sha256": "0" * 64} for arch in archs}
        manifest["files"].update(others)
        launches = [launch for kernel in manifest["kernels"] for launch in kernel["launches"]]
        for launch in [*launches, *manifest["route"].values()]:
            if "cubin" in launch:
                own = launch["cubin"]["sm_90a"]
                launch["cubin"] = {arch: own if arch == closest else f"{arch}.cubin" for arch in archs}
    folder = changed(exported, tmp_path, for_each)
    cells = json.loads((exported / "manifest.json").read_text())["cells"]
    wanted = next(cell["kernel"] for cell in cells if cell["id"].startswith("custom/up/fwd/bf16/t16/uniform/e6/top2"))
    env = {"FAKE_CUDA_CAPABILITY": str(capability)}
    assert callers.run(folder, env=env, **PICK)[0].split()[0] == wanted
    assert callers.run(folder, env=env, **{**LAYER, "op": "fwd", "tokens": 100})[0] == "wgmma-0 range\n"


def test_a_range_of_another_architecture_does_not_stand_before_cells(exported, tmp_path, callers):
    def for_two(manifest):
        for served, arch in ((manifest["cells"], "sm_89"), (manifest["ranges"], "sm_80")):
            for each in served:
                each["arch"] = arch
        for kernel in [*manifest["kernels"], {"launches": manifest["route"].values()}]:
            for launch in kernel["launches"]:
                if "cubin" in launch:
                    launch["cubin"] = {"sm_80": launch["cubin"]["sm_90a"]}
    folder = changed(exported, tmp_path, for_two)
    out, _ = callers.run(folder, env={"FAKE_CUDA_CAPABILITY": "89"}, op="fwd", **LAYER, tokens=100)
    assert out.split()[1].startswith("custom/up/fwd/bf16/t256/")


@pytest.mark.parametrize("words, env, sentence", [
    ({"n": 128}, {}, "manifest.json: has no kernel for fwd bf16 plain, 6 experts, top 2, n 128, k 512 on this GPU"),
    ({"dtype": "fp16"}, {}, "has no kernel for fwd fp16 plain"),
    ({"fusion": "permute_x+topk_weights"}, {}, "has no kernel for fwd bf16 permute_x+topk_weights"),
    ({}, {"FAKE_CUDA_NAME": "NVIDIA H100"}, "was tuned on NVIDIA H200, and this is NVIDIA H100; pass other_gpu"),
    ({"other_gpu": 1}, {"FAKE_CUDA_CAPABILITY": "80"}, "has no kernels for NVIDIA H200, compute capability 80"),
    ({}, {"FAKE_CUDA_CAPABILITY": "100"}, "has no kernels for NVIDIA H200, compute capability 100"),
    ({"room": 8, "fusion": "permute_x", "experts": 10}, {}, "the workspace was made for other kernels or fewer tokens: it needs "),
    ({"rows": 33}, {}, "tokens * top_k = 32"),
    ({}, {"FAKE_CUDA_FAULT": "719"}, "cannot be launched: a planted fault"),
    ({}, {"FAKE_CUDA_FAULT": "2"}, "no memory for a workspace: a planted fault"),
])
def test_what_does_not_fit_is_refused_in_a_sentence(exported, callers, words, env, sentence):
    out, log = callers.run(exported, code=1, env=env, **{**PICK, **words})
    assert sentence in out
    assert "FAULT" in str(env) or "launch" not in log


def test_another_gpu_is_taken_where_the_caller_says_so(exported, callers):
    callers.run(exported, env={"FAKE_CUDA_NAME": "NVIDIA H100"}, other_gpu=1, **PICK)


def test_an_operand_that_is_too_small_is_refused(exported, callers):
    assert "40 are more rows than tokens * top_k = 32" in callers.run(exported, code=1, **{**PICK, "rows": 40})[0]
    for words, sentence in (({**PICK, "bytes": "y:100"}, "'y' has 100 bytes, but needs 16384"),
                        ({**SCALED, "bytes": "x_scales:508", "strides": "1,32,8,4,1"}, "'x_scales' has 508 bytes, but needs 512")):
        result = subprocess.run([BUILT / "launch_main", exported, *(f"{k}={v}" for k, v in words.items())],
                                stdout=subprocess.PIPE, universal_newlines=True,
                                env={**os.environ, "LD_LIBRARY_PATH": str(DRIVER), "FAKE_CUDA_LOG": os.devnull})
        assert result.returncode == 1 and sentence in result.stdout


@pytest.mark.parametrize("name, shift, alignment", [("x", 8, 16), ("w", 2, 16), ("y", 8, 16), ("m_sizes", 2, 4)])
def test_an_operand_must_begin_where_a_kernel_can_read_it(exported, callers, name, shift, alignment):
    out, log = callers.run(exported, code=1, shift=f"{name}:{shift}", **PICK)
    assert f": '{name}' must begin at a multiple of {alignment} bytes" in out and "launch" not in log
    callers.run(exported, shift=f"{name}:{alignment}", **PICK)


def drop(path):
    def change(manifest):
        *way, last = path
        for key in way:
            manifest = manifest[key]
        del manifest[last]
    return change


def put(path, value):
    def change(manifest):
        *way, last = path
        for key in way:
            manifest = manifest[key]
        manifest[last] = value
    return change


STRUCT = ("kernels", 0, "launches", 0, "arguments", 0, "struct")


def used(manifest):
    """Makes the first kernel that of every cell."""
    for cell in manifest["cells"]:
        cell["kernel"] = manifest["kernels"][0]["name"]


@pytest.mark.parametrize("change, sentence", [
    (drop(("schema",)), "schema"),
    (put(("schema",), "moetune.kernels/2"), "is of another version than this library"),
    (put(("abi",), 2), "is of another version than this library"),
    (drop(("cells",)), "cells"),
    (drop(("kernels", 0, "operands")), "operands"),
    (drop(("kernels", 0, "launches", 0, "grid")), "grid"),
    (put(("kernels", 0, "launches", 0, "grid"), "rows * cols"), "unknown name 'cols'"),
    (put(("kernels", 0, "launches", 0, "grid"), 7), "manifest.json"),
    (put((*STRUCT, "size"), 64), "fields[6].offset: 64 is outside 0 to 60"),
    (put((*STRUCT, "size"), 100000), "struct.size: must be at most 4096"),
    (put((*STRUCT, "fields", 0, "offset"), -8), "fields[0].offset: must be at least 0"),
    (put((*STRUCT, "fields", 0, "offset"), 2**63 - 1), "is outside 0 to 832"),
    (put(("kernels", 0, "name"), "other"), "wgmma-0"),
    (put(("files",), {}), "'route.sm_90a.cubin' is not among files"),
    (put(("kernels", 0, "operands", 0, "shape"), []), "manifest.json"),
    (put(("kernels", 0, "operands", 0, "dtype"), "bf17"), "operands[0].dtype: unknown dtype 'bf17'"),
    (put((*STRUCT, "fields", 0, "pointer"), "xx"), "no operand or buffer is called 'xx'"),
    (put(("kernels", 0, "launches", 0, "arguments"), []), "arguments"),
    (lambda manifest: manifest["kernels"][0]["launches"].append({"fill": {"pointer": "xx", "byte": 0, "bytes": "4"}}),
     "no operand or buffer is called 'xx'"),
])
def test_a_damaged_manifest_is_refused(exported, callers, tmp_path, change, sentence):
    folder = changed(exported, tmp_path, lambda manifest: (used(manifest), change(manifest)))
    out, log = callers.run(folder, code=1, **PICK)
    assert out.startswith("error: ") and sentence in out and "launch" not in log, out


DAMAGER = """
import copy, hashlib, json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(folder))
import moetune_kernels as kernels
whole = json.loads((folder / "manifest.json").read_text())

def places(value, way=()):
    if isinstance(value, (dict, list)):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*way, key)
            yield from places(each, (*way, key))

def use(manifest):
    text = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(text)
    (folder / "manifest.sha256").write_text(hashlib.sha256(text).hexdigest())
    library = kernels.Library(folder)
    workspace = kernels.Workspace(library, 100)
    for skew in (None, 1.0):
        kernel = library.pick(tokens=100, skew=skew, **whole["cells"][0]["asked"])
        needs = kernel.needs(100)
        kernels.Prepared(kernel, 100, None, needs).launch(workspace, [4096] * len(needs), 1)
    kernels.require(kernels._c.moetune_route(library.handle, 6, 200, 0, 200, 8, 4096, 4096, 4096, 1))

use(whole)
refused = 0
for number, place in enumerate(places(whole)):
    for value in ("gone", *("xx", [], 1e999, -1, 2**40, "\\ud800")[number % 2::2]):
        manifest = copy.deepcopy(whole)
        within = manifest
        for key in place[:-1]:
            within = within[key]
        if value == "gone":
            del within[place[-1]]
        else:
            within[place[-1]] = value
        try:
            use(manifest)
        except kernels.Error as error:
            refused += 1
        except Exception as error:
            print(place, value, type(error).__name__, error)
print(refused > 400)
"""


@pytest.mark.parametrize("dtype, fusion", [("bf16", "permute_x+sum_slots"), ("fp8-block", "permute_x")])
def test_whatever_a_manifest_says_ends_in_a_launch_or_an_error(exported, tmp_path, dtype, fusion):
    """Each member is taken out of a manifest that is signed again, or given values of other kinds."""
    def one_cell(manifest):
        one = next(cell for cell in manifest["cells"] if (cell["asked"]["dtype"], cell["asked"]["fusion"]) == (dtype, fusion))
        manifest["cells"], name = [one], one["kernel"]
        manifest["kernels"] = [kernel for kernel in manifest["kernels"] if kernel["name"] == name]
        manifest["ranges"] = [{**manifest["ranges"][0], "kernel": name, "asked": manifest["cells"][0]["asked"],
                               "extents": manifest["cells"][0]["extents"]}]
        used_files = [file for launch in [*manifest["kernels"][0]["launches"], *manifest["route"].values()]
                      for file in launch.get("cubin", {}).values()]
        manifest.pop("reorder", None)
        manifest["files"] = {name: manifest["files"][name] for name in used_files}
    folder = changed(exported, tmp_path, one_cell)
    result = subprocess.run([sys.executable, "-B", "-c", DAMAGER, folder], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, universal_newlines=True,
                            env={**os.environ, "LD_LIBRARY_PATH": str(DRIVER), "FAKE_CUDA_LOG": os.devnull})
    assert result.returncode == 0 and result.stdout == "True\n", result.stdout + result.stderr


def test_a_changed_or_missing_file_is_refused(exported, callers, tmp_path):
    folder = changed(exported, tmp_path, used)
    cubin = folder / "wgmma-0.cubin"
    for text in ("wgmma-1", "wgmma", None):
        cubin.unlink() if text is None else cubin.write_text(text)
        out, log = callers.run(folder, code=1, **PICK)
        assert "wgmma-0.cubin" in out and "launch" not in log
        assert text is None or "is not the file that the manifest names: it was changed or cut short" in out
    sign(folder, '{"schema": ')
    assert "manifest.json" in callers.run(folder, code=1, **PICK)[0]
    (folder / "manifest.json").unlink()
    assert "manifest.json" in callers.run(folder, code=1, **PICK)[0]


def test_validate_sees_changes_of_the_library_and_of_modules(exported, tmp_path):
    def validated(folder):
        result = subprocess.run([BINARY, "validate", folder, "--format", "json"], stdout=subprocess.PIPE, universal_newlines=True)
        return result.returncode, json.loads(result.stdout)["files"][0].get("fault", "")

    folder = tmp_path / "export"
    shutil.copytree(exported, folder)
    assert validated(folder) == (0, "")
    for name in ("lib/libmoetune.so", "moetune_kernels.py", "moetune_torch.py", "include/moetune.h"):
        bytes_before = (folder / name).read_bytes()
        (folder / name).write_bytes(bytes_before + b"\n")
        code, fault = validated(folder)
        assert code == 1 and f"/{name}: was changed or cut short" in fault
        (folder / name).write_bytes(bytes_before)
    (folder / "README.md").write_text("mine")
    assert validated(folder) == (0, "")
    with open(folder / "manifest.sha256", "a") as file:
        file.write("0" * 64 + "  ../outside\n")
    code, fault = validated(folder)
    assert code == 1 and "expected the digest of a file in this folder" in fault


WRAPS = str(2**64 + 16)
BAD_CALLS = {
    "Library('/nowhere')": "/nowhere/manifest.json",
    "Library('a\\0b')": "folder must be a text without zeros",
    f"library.pick(tokens={WRAPS}, **up)": f"tokens must be an integer of 64 bits, not {WRAPS}",
    "library.pick(tokens=1.5, **up)": "tokens must be an integer of 64 bits, not 1.5",
    "library.pick(tokens=None, **up)": "tokens must be an integer of 64 bits, not None",
    "library.pick(tokens=-1, **up)": "tokens must not be negative, found -1",
    "library.pick(tokens=16, skew='much', **up)": "skew must be a number, not 'much'",
    "library.pick(tokens=16, **{**up, 'op': None})": "op must be a text without zeros, not None",
    "library.pick(tokens=16, **{**up, 'n': 2**64 + 256})": "n must be an integer of 64 bits",
    "library.pick(tokens=16, **{**up, 'n': 'wide'})": "n must be an integer of 64 bits, not 'wide'",
    f"library.pick_layer(tokens={WRAPS}, up=up, down=down)": "tokens must be an integer of 64 bits",
    "library.pick_layer(tokens=16, up=up, down={**down, 'dtype': 16})": "dtype must be a text without zeros, not 16",
    f"Workspace(library, {WRAPS})": "tokens must be an integer of 64 bits",
    "Workspace(library, 16, [{**up, 'n': 255}])": "has no kernel for fwd bf16 permute_x+silu",
    f"workspace.reserve({WRAPS})": "tokens must be an integer of 64 bits",
    f"kernel.needs({WRAPS})": "tokens must be an integer of 64 bits",
    f"kernel.needs(16, {WRAPS})": "rows must be an integer of 64 bits",
    f"kernel.launch({WRAPS}, workspace)": "tokens must be an integer of 64 bits",
    "kernel.launch(16, None)": "workspace must be a Workspace, not None",
    "kernel.launch(16, workspace, stream='main')": "stream must be an integer of 64 bits, not 'main'",
    "kernel.launch(16, workspace)": "the operand 'x' is missing",
}


def test_bad_calls_in_python_say_a_sentence(exported):
    source = f"""
import sys
sys.path.insert(0, {str(exported)!r})
from moetune_kernels import *
library = Library({str(exported)!r})
up = dict(fusion="permute_x+silu", experts=6, top_k=2, n=256, k=512)
down = dict(fusion="permute_y+topk_weights", experts=6, top_k=2, n=512, k=128)
kernel, workspace = library.pick(tokens=16, **up), Workspace(library, 16)
for call in {list(BAD_CALLS)!r}:
    try:
        eval(call)
        print("no error")
    except Error as error:
        print(error)
"""
    result = subprocess.run([sys.executable, "-B", "-c", source], stdout=subprocess.PIPE, universal_newlines=True, check=True,
                            env={**os.environ, "LD_LIBRARY_PATH": str(DRIVER), "FAKE_CUDA_LOG": os.devnull})
    for call, sentence, found in zip(BAD_CALLS, BAD_CALLS.values(), result.stdout.splitlines()):
        assert sentence in found, call


def test_a_manifest_is_taken_as_it_was_written_or_not_at_all(exported, callers, tmp_path):
    folder = changed(exported, tmp_path, used)
    text = (folder / "manifest.json").read_text()
    missing = json.loads(text)
    del missing["kernels"][0]["launches"][0]["arguments"][0]["struct"]["fields"][0]
    no_arguments = json.loads(text)
    no_arguments["kernels"][0]["launches"][0]["arguments"] = []
    for damaged in (json.dumps(missing), json.dumps(no_arguments), text[:-2], text.replace("rows", "sows", 1), ""):
        assert damaged != text
        (folder / "manifest.json").write_text(damaged)
        out, log = callers.run(folder, code=1, **PICK)
        assert "manifest.json: was changed or cut short: manifest.sha256 has another digest" in out
        assert "launch" not in log
    (folder / "manifest.json").write_text(text)
    callers.run(folder, **PICK)
    (folder / "manifest.sha256").unlink()
    out, log = callers.run(folder, code=1, **PICK)
    assert "manifest.sha256" in out and "launch" not in log


class Tensor:
    def __init__(self, shape, dtype="torch.bfloat16", contiguous=True):
        self.shape, self.dtype, self.contiguous = shape, dtype, contiguous

    def is_contiguous(self):
        return self.contiguous


@pytest.fixture
def kernels(exported):
    spec = importlib.util.spec_from_file_location("moetune_kernels", exported / "moetune_kernels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_python_refuses_tensors_that_do_not_fit(kernels):
    x = kernels.Need("x", "bf16", [32, 512], False)
    x.require("k", Tensor([4, 10, 512]), 0)  # more rows than needed
    for wrong, sentence in ((Tensor([32, 512], "torch.float16"), "'x' is of torch.float16, but must be of torch.bfloat16"),
                        (Tensor([31, 512]), r"'x' is \[31, 512\], but must be \[32, 512\], or have more rows"),
                        (Tensor([32, 512], contiguous=False), "'x' is not contiguous")):
        with pytest.raises(kernels.Error, match=sentence):
            x.require("k", wrong, 0)
    elsewhere = Tensor([32, 512])
    for kind, index, sentence in (("cpu", None, "'x' is on .*, but the kernel on cuda:0"), ("cuda", 1, "'x' is on ")):
        elsewhere.device = types.SimpleNamespace(type=kind, index=index)
        with pytest.raises(kernels.Error, match=sentence):
            x.require("k", elsewhere, 0)
    elsewhere.device = types.SimpleNamespace(type="cuda", index=0)
    x.require("k", elsewhere, 0)


@pytest.mark.parametrize("shape, exact, top_k, right, wrong, sentence", [
    ([6, 256, 512], True, 0, [[6, 256, 512]], [[1536, 512], [256, 6, 512], [7, 256, 512], [6, 256, 256, 2], [6, 512, 256]],
     r"must be \[6, 256, 512\]$"),
    ([6], True, 0, [[6]], [[7], [5], [1, 6], [6, 1], []], r"must be \[6\]$"),
    ([32, 256], False, 0, [[32, 256], [40, 256], [2, 16, 256]], [[256, 32], [31, 256], [8192], [32, 256, 1]],
     r"must be \[32, 256\], or have more rows$"),
    ([32], False, 0, [[32], [33]], [[31], [16, 2], [2, 16], [32, 1]], r"must be \[32\], or have more rows$"),
    ([32], False, 2, [[32], [40], [16, 2], [17, 2]], [[31], [15, 2], [2, 16], [4, 8], [1, 32]],
     r"must be \[32\] or \[16, 2\], or have more rows$"),
])
def test_python_refuses_other_shapes(kernels, shape, exact, top_k, right, wrong, sentence):
    need = kernels.Need("it", "bf16", shape, exact, top_k)
    for fits in right:
        need.require("k", Tensor(fits), 0)
    for other in wrong:
        with pytest.raises(kernels.Error, match=sentence):
            need.require("k", Tensor(other), 0)


def nvrtc():
    for name in ("libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    pytest.skip("no NVRTC to be called from Python")


def compiled_as_its_readme_says(folder, source):
    options = (folder / "README.md").read_text().split("```\n")[1].replace("-I kernels", f"-I {folder / 'kernels'}")
    assert options.startswith("-std=")
    words = [word.encode() for word in options.split()]
    library, program = nvrtc(), ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), (folder / source).read_bytes(), b"kernel.cu", 0, None, None) == 0
    assert library.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words)) == 0
    size = ctypes.c_size_t()
    assert library.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0 and size.value > 1000


def test_a_table_is_exported_with_what_it_takes_to_launch_it(room, callers):
    table = room.path / "table.json"
    entire = json.loads((SOURCE / "configs/tuned/nvidia-h200-hopper-peers.json").read_text())
    entire["entries"] = [entry for entry in entire["entries"] if entry["cell"]["tokens"] in (16, 4096)][:3]
    entire.pop("sweep", None)
    table.write_text(json.dumps(entire))
    result = room.ok("export", "table.json", "--format", "kernels", "-o", "out")
    assert "wrote 3 kernels of 3 cells to out" in result.stderr
    folder = room.path / "out"
    validate("kernels", folder / "manifest.json")
    manifest = json.loads((folder / "manifest.json").read_text())
    for kernel in manifest["kernels"]:
        assert (folder / kernel["source"]).exists()
        assert (folder / f"{kernel['name']}.sm_90a.cubin").read_bytes().startswith(b"\x7fELF")
    for name in ("include/moetune.h", "lib/libmoetune.so", "lib/cmake/moetune/moetuneConfig.cmake", "moetune_kernels.py", "kernels/wgmma/wgmma.cuh", "README.md"):
        assert (folder / name).exists()
    cell = manifest["cells"][0]
    out, _ = callers.run(folder, **cell["asked"], tokens=cell["tokens"], skew=cell["skew"])
    assert out == f"{cell['kernel']} {cell['id']}\n"
    compiled_as_its_readme_says(folder, manifest["kernels"][0]["source"])
    assert "1 of 1 file valid" in room.ok("validate", "out/manifest.json").stdout
    entire["entries"] = entire["entries"][:1]  # again: nothing stays of what is not exported any more
    table.write_text(json.dumps(entire))
    assert "wrote 1 kernel of 1 cell to out" in room.ok("export", "table.json", "--format", "kernels", "-o", "out").stderr
    left = {path.name for path in folder.iterdir() if path.suffix in (".cu", ".cubin")}
    name = json.loads((folder / "manifest.json").read_text())["kernels"][0]["name"]
    assert left == {f"{name}.cu", f"{name}.sm_90a.cubin", "route.sm_90a.cubin"}
    (room.path / "full").mkdir()
    room.write("full/notes.txt", "mine")
    assert "holds other files, but no export of kernels" in room.error(2, "export", "table.json", "--format", "kernels", "-o", "full")
    for cwd, output in ((folder, "."), (folder / "lib", "..")):
        error = room.error(2, "export", room.path / "table.json", "--format", "kernels", "-o", output, cwd=cwd)
        assert f"{output} holds the working folder" in error and "name a folder inside it" in error
    assert "an export of kernels is a folder" in room.error(2, "export", "table.json", "--format", "kernels")
    assert "--arch has no effect without --format kernels" in room.error(2, "export", "table.json", "--format", "csv", "--arch", "sm_80")


def test_kernels_of_fp8_are_exported_by_their_format(room, callers):
    table = json.loads((SOURCE / "configs/tuned/nvidia-h200-hopper-peers.json").read_text())
    entry = {**table["entries"][0], "candidate": {"variant": "simt", "block_m": 64, "block_n": 64, "block_k": 16}, "rivals": [], "ties": []}
    entry = {key: value for key, value in entry.items() if key not in ("id", "derived", "code")}
    cell, rows, active = entry["cell"], entry["figures"]["rows"], entry["figures"]["active_experts"]
    experts, n, k = cell["experts"], cell["n"], cell["k"]
    scaled = {"block": rows * -(-k // 128) + experts * -(-n // 128) * -(-k // 128), "channel": rows + experts * n, "tensor": 1 + experts}
    table["entries"] = [{**entry, "cell": {**cell, "dtype": "fp8", "scales": scales, "out_dtype": "fp16", "fast_sums": scales != "block"},
                         "bytes": rows * k + active * n * k + rows * n * 2 + 4 * (experts + count)} for scales, count in scaled.items()]
    table.pop("sweep", None)
    room.write("table.json", json.dumps(table))
    assert "wrote 3 kernels of 3 cells" in room.ok("export", "table.json", "--format", "kernels", "-o", "out").stderr
    validate("kernels", room.path / "out/manifest.json")
    manifest = json.loads((room.path / "out/manifest.json").read_text())
    assert [served["asked"]["dtype"] for served in manifest["cells"]] == [
        "fp8-block-fp16", "fp8-channel-fp16-fast", "fp8-tensor-fp16-fast"]
    for served in manifest["cells"]:
        out, log = callers.run(room.path / "out", **served["asked"], tokens=served["tokens"])
        assert out.startswith(served["kernel"]) and "x_scales 0x105000000000" in log
    exported = json.loads(room.ok("export", "table.json", "--format", "runtime").stdout)
    assert {(each["file"], each["asked"]["dtype"]) for each in exported["cells"].values()} == {
        (f"{served['kernel']}.sm_90a.cubin", served["asked"]["dtype"]) for served in manifest["cells"]}


def test_an_architecture_that_gets_nothing_is_answered_no(room):
    sentence = room.error(1, "export", SOURCE / "tests/cli/files/tuned/table-mma.json", "--format", "kernels", "-o", "out", "--arch", "sm_75")
    assert "for sm_75 is left out: mma needs sm_80" in sentence and "can be exported for sm_75" in sentence


def test_other_architectures_get_their_default(room):
    entire = json.loads((SOURCE / "configs/tuned/nvidia-h200-hopper-peers.json").read_text())
    entire["entries"] = [entry for entry in entire["entries"] if entry["cell"]["tokens"] == 16][:1]
    entire.pop("sweep", None)
    (room.path / "table.json").write_text(json.dumps(entire))
    result = room.ok("export", "table.json", "--format", "kernels", "-o", "out", "--arch", "sm_80,sm_80")
    assert "for sm_80 gets its default, mma " in result.stderr and "the winner cannot run there" in result.stderr
    manifest = json.loads((room.path / "out/manifest.json").read_text())
    validate("kernels", room.path / "out/manifest.json")
    assert [(cell["arch"], cell["tuned"]) for cell in manifest["cells"]] == [("sm_90a", True), ("sm_80", False)]
    assert [kernel["candidate"]["variant"] for kernel in manifest["kernels"]] == ["wgmma", "mma"]


def one_cell(room, name, index=0):
    """A table of one cell, whose export takes a moment once its kernels are in the cache."""
    entire = json.loads((SOURCE / "configs/tuned/nvidia-h200-hopper-peers.json").read_text())
    entire["entries"] = [entry for entry in entire["entries"] if entry["cell"]["tokens"] == 16][index:index + 1]
    entire.pop("sweep", None)
    return room.write(name, entire)


def files_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def left_beside(room, name):
    """A lock file stays if its process was killed before it wrote its name there: it may be a user's."""
    return [each for each in room.files() if each.startswith(f"{name}.")]


def killed_exports(room, table, folder, count):
    """Kills an export at a random moment, again and again."""
    begin = time.monotonic()
    room.ok("export", table, "--format", "kernels", "-o", "warm")
    whole = time.monotonic() - begin
    for _ in range(count):
        process = room.start("export", table, "--format", "kernels", "-o", folder)
        try:
            process.communicate(timeout=random.uniform(0, 1.2 * whole))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        yield


KILLS = int(os.environ.get("MOETUNE_KILLS", "6"))  # of each kind


def test_a_killed_export_leaves_the_old_one_or_the_new_one(room):
    old, new = one_cell(room, "old.json"), one_cell(room, "new.json", 1)
    room.ok("export", old, "--format", "kernels", "-o", "out")
    room.write("out/notes.txt", "mine")
    (room.path / "out/kernels/more").mkdir()
    room.write("out/kernels/more/notes.txt", "mine too")
    before = files_in(room.path / "out")
    room.ok("export", new, "--format", "kernels", "-o", "expected")
    after = {**files_in(room.path / "expected"), "notes.txt": b"mine", "kernels/more/notes.txt": b"mine too"}
    for _ in killed_exports(room, new, "out", KILLS):
        found = files_in(room.path / "out")
        assert found in (before, after)
        room.ok("validate", "out/manifest.json")
        room.ok("export", old, "--format", "kernels", "-o", "out")
        assert files_in(room.path / "out") == before
        assert left_beside(room, "out") in ([], ["out.lock"])


def test_a_killed_export_to_a_new_folder_leaves_none_or_all_and_one_over_user_files_nothing(room):
    table = one_cell(room, "table.json")
    room.ok("export", table, "--format", "kernels", "-o", "expected")
    expected = files_in(room.path / "expected")
    for _ in killed_exports(room, table, "new", KILLS):
        if (room.path / "new").exists():
            assert files_in(room.path / "new") == expected
            shutil.rmtree(room.path / "new")
    room.ok("export", table, "--format", "kernels", "-o", "new")
    assert left_beside(room, "new") in ([], ["new.lock"])
    (room.path / "full").mkdir()
    room.write("full/notes.txt", "mine")
    for _ in killed_exports(room, table, "full", KILLS):
        assert files_in(room.path / "full") == {"notes.txt": b"mine"}


def test_half_an_export_of_an_earlier_version_is_replaced_and_user_files_are_not(room):
    table = one_cell(room, "table.json")
    room.ok("export", table, "--format", "kernels", "-o", "out")
    expected = files_in(room.path / "out")
    kernel = next(name for name in expected if name.endswith(".cu"))
    (room.path / "out/manifest.json").unlink()
    room.write(f"out/{kernel}.4711.tmp", "half")
    shutil.copytree(room.path / "out", room.path / "users")
    room.ok("export", table, "--format", "kernels", "-o", "out")
    assert files_in(room.path / "out") == expected
    room.write("users/main.cu", "mine")
    before = files_in(room.path / "users")
    assert "holds other files" in room.error(2, "export", table, "--format", "kernels", "-o", "users")
    assert files_in(room.path / "users") == before


def test_an_export_goes_where_a_link_leads(room):
    table = one_cell(room, "table.json")
    (room.path / "real").mkdir(mode=0o750)
    (room.path / "link").symlink_to("real")
    for _ in range(2):
        room.ok("export", table, "--format", "kernels", "-o", "link/")
    assert (room.path / "link").is_symlink() and (room.path / "real/manifest.json").exists()
    assert [name for name in room.files() if name.startswith(("real", "link"))] == ["link", "real"]
