"""moetune_torch.py over the driver without a device: shapes, schemas, gradients and which kernels they take. Skips where
torch is missing; results are compared on a GPU, tests/gpu/test_kernels.py."""
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import BINARY

BUILT = pathlib.Path(os.environ.get("MOETUNE_BINARY_DIR", pathlib.Path(BINARY).parent))
DRIVER = BUILT / "fake_driver"
pytestmark = [pytest.mark.skipif(not DRIVER.exists(), reason="built without the CUDA toolkit"),
              pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")]

HEAD = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
import moetune_kernels, moetune_torch as mt
library = moetune_kernels.Library(sys.argv[1])
mt.library = lambda folder, device: library
class OfNoDevice:  # tensors are the cpu's here
    def __init__(self, tensor): self.tensor = tensor
    def __getattr__(self, name):
        if name == "device": raise AttributeError(name)
        return getattr(self.tensor, name)
fit = moetune_kernels.Need.require
moetune_kernels.Need.require = lambda need, kernel, tensor, ordinal: fit(need, kernel, OfNoDevice(tensor), ordinal)
capturing = False
mt._stream = lambda device: 7
torch.cuda.is_current_stream_capturing = lambda: capturing
E, N, K, k, T = 6, 256, 512, 2, 16
w = torch.randn(E, N, K, dtype=torch.bfloat16, requires_grad=True)
x = torch.randn(T, K, dtype=torch.bfloat16, requires_grad=True)
rows = torch.randn(T * k, K, dtype=torch.bfloat16, requires_grad=True)
weights = torch.rand(T, k, requires_grad=True)
m, gather = mt.route("f", torch.randint(0, E, (T, k)), E)
"""


def run(tmp_path, text):
    """Standard output, and the lines of the driver's log."""
    folder, log = tmp_path / "export", tmp_path / "log.txt"
    folder.mkdir()
    subprocess.run([BUILT / "export_main", folder], check=True)
    (tmp_path / "program.py").write_text(HEAD + text)
    result = subprocess.run([sys.executable, "-B", tmp_path / "program.py", folder, log],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                            env={**os.environ, "LD_LIBRARY_PATH": str(DRIVER), "FAKE_CUDA_LOG": str(log)})
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines(), log.read_text().splitlines()


def entries(log):
    return [line.split()[1] for line in log if line.startswith("launch")]


def test_shapes_and_gradients(tmp_path):
    out, log = run(tmp_path, """
y = mt.grouped_gemm("f", x, w, m, gather, top_k=k, fusion="permute_x")
print(m.shape, gather.shape, y.shape, [tuple(g.shape) for g in torch.autograd.grad(y, [x, w], torch.ones_like(y))])
y = mt.grouped_gemm("f", rows, w, m, gather, weights.reshape(-1), top_k=k, fusion="permute_y+topk_weights")
print([(tuple(g.shape), g.dtype) for g in torch.autograd.grad(y, [rows, w, weights], torch.ones_like(y))])
""")
    assert out == ["torch.Size([6]) torch.Size([32]) torch.Size([32, 256]) [(16, 512), (6, 256, 512)]",
                   "[((32, 512), torch.bfloat16), ((6, 256, 512), torch.bfloat16), ((16, 2), torch.float32)]"]
    # dx of permute_x sums the slots in a pass of its own; weights have a gradient in another.
    assert entries(log) == ["route_int64", "moetune_kernel", "moetune_kernel", "invert", "sum_slots", "moetune_kernel",
                            "moetune_kernel", "moetune_kernel", "weigh_rows", "moetune_kernel"]


def test_only_wanted_gradients_are_computed(tmp_path):
    _, log = run(tmp_path, """
y = mt.grouped_gemm("f", rows, w.detach(), m, gather, weights.detach().reshape(-1), top_k=k, fusion="permute_y+topk_weights")
torch.autograd.grad(y, [rows], torch.ones_like(y))
""")
    assert entries(log) == ["route_int64", "moetune_kernel", "moetune_kernel"]


def test_a_frozen_router_needs_no_kernel_of_its_own(tmp_path):
    _, log = run(tmp_path, """
library.requests = {each for each in library.requests if each[0] != "dx" or each[2] != "permute_y+topk_weights"}
y = mt.grouped_gemm("f", rows, w.detach(), m, gather, weights.detach().reshape(-1), top_k=k, fusion="permute_y+topk_weights")
torch.autograd.grad(y, [rows], torch.ones_like(y))
""")
    assert entries(log) == ["route_int64", "moetune_kernel", "moetune_kernel", "weigh_rows"]


def test_operators_keep_their_schemas(tmp_path):
    out, _ = run(tmp_path, """
check = torch.library.opcheck
tests = ("test_schema", "test_faketensor")
check(torch.ops.moetune.choose.default, ("f", torch.randn(T, E), k, None, "softmax", True, 1.0, 1, 1), test_utils=tests)
check(torch.ops.moetune.route.default, ("f", torch.randint(0, E, (T, k)), E, 0), test_utils=tests)
check(torch.ops.moetune.grouped_gemm.default, ("f", x, w, m, gather, None, k, "permute_x"),
      test_utils=(*tests, "test_autograd_registration"))
dy = torch.randn(T * k, N, dtype=torch.bfloat16)
check(torch.ops.moetune.grouped_gemm_dx.default, ("f", dy, w, x, m, gather, None, k, "permute_x+sum_slots"), test_utils=tests)
check(torch.ops.moetune.grouped_gemm_dx.default,
      ("f", dy, w, rows, m, gather, weights.reshape(-1), k, "permute_y+topk_weights+weight_gradient"), test_utils=tests)
check(torch.ops.moetune.grouped_gemm_dw.default, ("f", dy, x, m, gather, None, k, "permute_x"), test_utils=tests)
print("checked")
""")
    assert out[-1] == "checked"


def test_requests_that_the_export_lacks_are_refused(tmp_path):
    out, _ = run(tmp_path, """
def error(call):
    try:
        call()
        print("no error")
    except moetune_kernels.Error as e:
        print(e)
error(lambda: mt.grouped_gemm("f", x, w.half(), m, gather, top_k=k, fusion="permute_x"))
error(lambda: mt.grouped_gemm("f", x.float(), w, m, gather, top_k=k, fusion="permute_x"))
error(lambda: mt.grouped_gemm("f", x, w[:4], m[:4], gather, top_k=k, fusion="permute_x"))
error(lambda: mt.grouped_gemm("f", x, w, m, gather, top_k=k, fusion="permute_y+topk_weights"))
capturing = True
with mt.Workspace():
    error(lambda: mt.grouped_gemm("f", x, w, m, gather, top_k=k, fusion="permute_x"))
""")
    for line, sentence in zip(out, ("'w' is of torch.float16, but must be of torch.bfloat16", "no kernels for torch.float32",
                                "has no kernel for fwd bf16 permute_x, 4 experts", "topk_weights go with a fusion",
                                "a workspace is needed before the capture of a graph")):
        assert sentence in line


def test_gates_halve_the_columns_and_a_bias_goes_along(tmp_path):
    out, log = run(tmp_path, """
w, x = w.detach(), x.detach()
gated = mt.grouped_gemm("f", x, w, m, gather, top_k=k, fusion="permute_x+silu")
rows, bias = rows.detach(), torch.randn(E, N, dtype=torch.bfloat16)
biased = mt.grouped_gemm("f", rows, w, m, gather, top_k=k, fusion="gpt_oss+interleaved+bias", bias=bias)
print(*gated.shape, *biased.shape)
fake = torch.compile(lambda: mt.grouped_gemm("f", x, w, m, gather, top_k=k, fusion="permute_x+silu"), backend="eager")
print(*fake().shape)
for options in (dict(fusion="permute_x+silu", bias=bias), dict(fusion="gpt_oss+interleaved+bias")):
    try:
        mt.grouped_gemm("f", x, w, m, gather, top_k=k, **options)
    except moetune_kernels.Error as error:
        print(error)
try:
    mt.grouped_gemm("f", x.requires_grad_(), w, m, gather, top_k=k, fusion="permute_x+silu")
except moetune_kernels.Error as error:
    print(error)
""")
    assert out[:2] == ["32 128 32 128", "32 128"]
    assert out[2] == out[3] == "bias goes with a fusion that has 'bias'"
    assert out[4] == "permute_x+silu has no gradients: call it under torch.no_grad()"
    assert entries(log).count("moetune_kernel") == 3


def test_experts_of_a_layer_in_one_call(tmp_path):
    out, log = run(tmp_path, """
x, up, ids = x.detach(), w.detach(), torch.randint(0, E, (T, k))
down = torch.randn(E, N, K, dtype=torch.bfloat16)  # of an intermediate width of K: torch's activation is replaced
mt._activated = lambda hidden, *_: torch.cat([hidden, hidden], -1)
try:
    mt.experts("f", x, up, down, ids, weights.detach())
except moetune_kernels.Error as error:
    print(error)  # the fused one makes N / 2 columns
print(*mt.experts("f", x.requires_grad_(), up, down, ids, weights).shape)
""")
    assert "'hidden' is [32, 128], but must be [32, 512]" in out[0]
    assert out[1] == "16 256"
    assert entries(log).count("moetune_kernel") == 2


def test_experts_without_gradients_are_one_call(tmp_path):
    out, log = run(tmp_path, """
x, up, ids, down = x.detach(), w.detach(), torch.randint(0, E, (T, k)), torch.randn(E, 512, 128, dtype=torch.bfloat16)
calls, real = [], moetune_kernels.Layer.call
moetune_kernels.Layer.call = staticmethod(lambda *given: calls.append(given) or real(*given))
for _ in range(2):
    print(*mt.experts("f", x, up, down, ids, weights.detach()).shape, len(calls))
torch.library.opcheck(torch.ops.moetune.layer.default,
                      ("f", x, up, down, m, gather, weights.detach().reshape(-1), k, "permute_x+silu",
                       "permute_y+topk_weights"), test_utils=("test_schema", "test_faketensor"))
print("checked")
""")
    assert out == ["16 512 1", "16 512 2", "checked"]
    assert entries(log)[:9] == ["route_int64", *["route_int64", "moetune_kernel", "moetune_kernel", "sum_bf16"] * 2]


def test_experts_of_an_export_of_before_are_added_up_by_torch(tmp_path):
    out, log = run(tmp_path, """
library.__dict__["sums"] = False
x, up, ids, down = x.detach(), w.detach(), torch.randint(0, E, (T, k)), torch.randn(E, 512, 128, dtype=torch.bfloat16)
print(*mt.experts("f", x, up, down, ids, weights.detach()).shape)
""")
    assert out == ["16 512"]
    assert entries(log) == ["route_int64", "route_int64", "moetune_kernel", "moetune_kernel"]


@pytest.mark.parametrize("sums", [False, True])
def test_a_step_of_experts_keeps_the_product_of_up_alone(tmp_path, sums):
    """down is the exported layer, [E, 256, 512], that of 12 experts sums its slots; up has no kernels here, and is
    replaced."""
    out, log = run(tmp_path, f"E = {12 if sums else 6}" + """
w = torch.randn(E, N, K, dtype=torch.bfloat16, requires_grad=True)
x, up, down = rows.detach()[:T].requires_grad_(), torch.randn(E, 2 * K, K, dtype=torch.bfloat16), w
real, calls = mt._forward, []
def forward(folder, x, w, *rest, **more):
    if w.shape[1] == 2 * K:
        return torch.randn(T * k, 2 * K, dtype=torch.bfloat16)
    return real(folder, x, w, *rest, **more)
mt._forward = forward
mt._dx = lambda folder, dh, up, *rest: calls.append(("dx", tuple(dh.shape), rest[-2])) or (torch.zeros(T * k, K), None)
real_dw = mt._dw
mt._dw = lambda folder, dy, x, *rest: calls.append(("dw", tuple(dy.shape), tuple(x.shape))) or (
    real_dw(folder, dy, x, *rest) if dy.shape[1] == N else torch.zeros(E, dy.shape[1], x.shape[1]))
y = mt.experts("f", x, up.requires_grad_(), down, torch.randint(0, E, (T, k)), weights)
gradients = torch.autograd.grad(y, [x, up, down, weights], torch.ones_like(y))
print(*[tuple(g.shape) for g in (y, *gradients)])
print(*calls, sep="; ")
""")
    assert out[0].replace("(12,", "(6,") == "(16, 256) (16, 512) (6, 1024, 512) (6, 256, 512) (16, 2)"
    assert out[1] == (f"('dw', ({16 if sums else 32}, 256), (32, 512)); ('dx', (32, 1024), 'permute_x'); "
                      "('dw', (32, 1024), (16, 512))")
    assert entries(log).count("sum_slots") == int(sums)
    assert entries(log).count("add_parts") == 1 and entries(log).count("moetune_kernel") == 3


def test_a_workspace_serves_launches_that_follow_one_another(tmp_path):
    out, log = run(tmp_path, """
kept = mt.Workspace()
with kept:
    for _ in range(3):
        mt.grouped_gemm("f", x, w, m, gather, top_k=k, fusion="permute_x")
capturing = True
with kept:
    mt.grouped_gemm("f", x, w, m, gather, top_k=k, fusion="permute_x")
with mt.skew_hint(6.0):
    print(mt._local.skew)
print(mt._local.skew)
""")
    assert out == ["6.0", "None"]
    made = [line for line in log if line.startswith("alloc")]
    assert len(made) == len(set(made)) and entries(log).count("moetune_kernel") == 4
    counters = {line.split()[2] for line in log if line.strip().startswith("counters")}
    assert len(counters) == 1


def test_a_backward_pass_takes_what_its_forward_pass_had(tmp_path):
    out, log = run(tmp_path, """
import threading
kept, skews, pick = mt.Workspace(), [], library.pick
library.pick = lambda **words: (skews.append(words["skew"]), pick(**words))[1]
with kept, mt.skew_hint(6.0):
    y = mt.grouped_gemm("f", x, w, m, gather, top_k=k, fusion="permute_x")
# As torch does on a GPU.
backward = threading.Thread(target=lambda: torch.autograd.grad(y, [x, w], torch.ones_like(y)))
backward.start(), backward.join()
print(skews, mt._workspaces, len(kept._made) > 0)
""")
    assert out == ["[6.0, 6.0, 6.0] {} True"]
    assert entries(log).count("moetune_kernel") == 3


def test_a_compiled_layer_has_gradients(tmp_path):
    out, log = run(tmp_path, """
layer = torch.compile(lambda x, w: mt.grouped_gemm("f", x, w, m, gather, top_k=k, fusion="permute_x").relu(),
                      backend="aot_eager", fullgraph=True)
y = layer(x, w)
print(tuple(y.shape), [tuple(g.shape) for g in torch.autograd.grad(y, [x, w], torch.ones_like(y))])
""")
    assert out == ["(32, 256) [(16, 512), (6, 256, 512)]"]
    assert entries(log).count("moetune_kernel") == 3


FP8 = """
e4m3 = torch.float8_e4m3fn
x8, rows8, w8 = x.detach().to(e4m3), rows.detach().to(e4m3), w.detach().to(e4m3)
x_scales, w_scales = torch.rand(T * k, 4), torch.rand(E, 2, 4)
def block(x=rows8, w=w8, x_scales=x_scales, w_scales=w_scales, **words):
    return mt.scaled_grouped_gemm("f", x, w, x_scales, w_scales, m, gather, top_k=k, **words)
"""


def test_fp8_is_launched_with_its_scales_as_they_lie(tmp_path):
    out, log = run(tmp_path, FP8 + """
along_rows = torch.rand(4, 36).t()[:T * k]
y = block()
print(tuple(y.shape), y.dtype)
block(x_scales=along_rows, w_scales=w_scales.transpose(1, 2).contiguous().transpose(1, 2))
block(x8, x_scales=x_scales[:T], fusion="permute_x")
y = mt.scaled_grouped_gemm("f", rows8, w8, torch.rand(T * k, 1), torch.rand(E, N, 1), m, gather, weights.detach().reshape(-1),
                           top_k=k, fusion="permute_y+topk_weights", scales="channel", out_dtype=torch.float16, fast_sums=True)
print(y.dtype)
block(x_scales=torch.tensor(2.0), w_scales=torch.rand(E), fusion="permute_y", scales="tensor")
layer = torch.compile(lambda x, s: block(x, x_scales=s).relu(), backend="aot_eager", fullgraph=True)
print(tuple(layer(rows8, along_rows).shape))
torch.library.opcheck(torch.ops.moetune.scaled_grouped_gemm.default, ("f", rows8, w8, x_scales, w_scales, m, gather, None, k, "plain",
                      "block", torch.bfloat16), test_utils="test_faketensor")
""")
    assert out == ["(32, 256) torch.bfloat16", "torch.float16", "(32, 256)"]
    strides = [" ".join(line.split()[2:4] + line.split()[6:]) for line in log if line.startswith("  x_scales")]
    assert strides[:6] == ["4 1 8 4 1", "1 36 8 1 2", "4 1 8 4 1", "1 0 256 1 0", "0 0 1 0 0", "1 36 8 4 1"]


def test_a_layer_in_fp8_takes_two_launches(tmp_path):
    out, log = run(tmp_path, FP8 + """
y, scales = block(x8, x_scales=x_scales[:T], fusion="permute_x+silu", out_dtype=e4m3)
print(tuple(y.shape), y.dtype, tuple(scales.shape), scales.dtype, scales.data_ptr())
torch.library.opcheck(torch.ops.moetune.quantised_grouped_gemm.default, ("f", x8, w8, x_scales[:T].contiguous(), w_scales, m, gather, k,
                      "permute_x+silu"), test_utils="test_faketensor")
mark = len(open(sys.argv[2]).readlines())
down = torch.randn(E, K, N // 2, dtype=torch.bfloat16).to(e4m3)
y = mt.experts("f", x8, w8, down, torch.randint(0, E, (T, k)), weights.detach(), x_scales=x_scales[:T], up_scales=w_scales,
               down_scales=torch.rand(E, 4, 1))
print(tuple(y.shape), y.dtype, mark)
for wrong in (dict(fusion="permute_x"), dict(fusion="permute_x+silu", scales="channel")):
    try: block(x8, x_scales=x_scales[:T], out_dtype=e4m3, **wrong)
    except moetune_kernels.Error as e: print(e)
""")
    first, layer, *errors = out
    assert first.startswith("(32, 128) torch.float8_e4m3fn (32, 1) torch.float32 ")
    written = [line.split() for line in log if line.startswith("  y_scales")]
    assert int(written[0][1], 16) == int(first.split()[-1]) and written[0][2:] == ["1", "1"]
    assert layer.startswith("(16, 512) torch.bfloat16 ")
    of_layer = log[int(layer.split()[-1]):]
    assert entries(of_layer).count("moetune_kernel") == 2
    ups, downs = (line.split() for line in of_layer if line.startswith("  x_scales"))
    assert downs[1] == [line.split()[1] for line in of_layer if line.startswith("  y_scales")][0] and downs[2:4] == ["1", "1"]
    assert len(errors) == 2 and all("belongs to scales of blocks and an activation" in line for line in errors)


def test_what_does_not_fit_fp8_is_refused(tmp_path):
    out, _ = run(tmp_path, FP8 + """
def error(*args, call=block, **words):
    try:
        call(*args, **words)
        print("no error")
    except moetune_kernels.Error as e:
        print(e)
error(rows.detach())
error(rows8.view(torch.float8_e5m2))
error(x_scales=x_scales.half())
error(x_scales=x_scales[:, :3])
error(w_scales=torch.rand(E, N))
error(x_scales=None)
error(scales="channel")
error(out_dtype=torch.float32)
error("f", rows8, w8, m, gather, top_k=k, call=mt.grouped_gemm)
error(fusion="permute_y+topk_weights", topk_weights=weights.reshape(-1))
""")
    for line, sentence in zip(out, ("'x' is of torch.bfloat16, but must be of torch.float8_e4m3fn", "'x' is of torch.float8_e5m2",
                                "'x_scales' is of torch.float16, but must be of torch.float32",
                                "'x_scales' is [32, 3], but must be [32, 4], or have more rows",
                                "'w_scales' is [6, 256], but must be [6, 2, 4]", "needs both x_scales and w_scales",
                                "has no kernel for fwd fp8-channel plain", "no kernels give torch.float32 of fp8",
                                "with scales for scaled_grouped_gemm", "has no gradients: call it under torch.no_grad()")):
        assert sentence in line
    assert len(out) == 10
