"""PyTorch operators on kernels that `moetune export --format kernels` wrote: a router's rows sorted by expert, grouped
GEMMs of an MoE layer, and their gradients if the export has kernels of dx and dw. Shapes are known without a device
(fake tensors, torch.compile), launches wait for nothing, CUDA graphs capture them. README.md has an example.

Fusions, as moetune names them: "plain" (rows in expert order in and out), "permute_x" (x is [tokens, k], rows are
gathered while they are loaded), "permute_y" (y is by slot = token * top_k + choice, rows are scattered while they are
stored), "permute_y+topk_weights" (and weighted). Results of one routing are [tokens * top_k, n]. With "silu", "gelu"
or "gpt_oss", as in "permute_x+silu", they are act(gate) * up, [tokens * top_k, n / 2]: the first half of w's rows are
gates, or with "+interleaved" every other row is. With "+bias" a bias is added to the sums.
"""
import contextlib
import threading

import torch
from torch._subclasses.fake_tensor import FakeTensor

import moetune_kernels
from moetune_kernels import Error

_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
_FP8_RESULTS = {torch.bfloat16: "", torch.float16: "-fp16"}
_MAX_READY = 4096  # launches; then all are prepared again
_libraries = {}
_workspaces = {}
_ready = {}


class _Local(threading.local):
    """What `with` gave in this thread: workspaces, the innermost last, and a skew."""
    used, skew = (), None


_local = _Local()


def library(folder, device):
    """The export in a folder, opened once for each device."""
    if (folder, device) not in _libraries:
        if device.type != "cuda":
            raise Error(f"the kernels run on a GPU, and a tensor is on {device}")
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()  # makes the context of torch the current one
            _libraries[folder, device] = moetune_kernels.Library(folder)
    return _libraries[folder, device]


def _stream(device):
    return torch._C._cuda_getCurrentRawStream(device.index)


class Workspace:
    """Device memory for launches that follow one another in a stream. For a CUDA graph: make it before the capture, run
    the layer and capture it inside of `with workspace:`, and keep it as long as the graph. It grows with the launches
    outside of a capture, or at once, for all kernels of an export: Workspace("kernels", tokens=4096). The backward pass
    takes that of its forward pass."""

    def __init__(self, folder=None, tokens=0):
        self._made, self._room = {}, {}  # by library; tokens by library and request
        if folder is not None:
            its = library(str(folder), torch.device("cuda", torch.cuda.current_device()))
            self._made[its] = moetune_kernels.Workspace(its, tokens)
            self._room[its, None] = tokens

    def room_for(self, prepared):
        """A workspace of moetune_kernels with room for the launch."""
        its, key = prepared.library, prepared.request_key
        if max(self._room.get((its, key), -1), self._room.get((its, None), -1)) < prepared.tokens:
            if torch.cuda.is_current_stream_capturing():
                raise Error("a workspace is needed before the capture of a graph: make a moetune_torch.Workspace, and "
                            "run the layer once inside of `with workspace:` before it is captured there")
            if its not in self._made:
                self._made[its] = moetune_kernels.Workspace(its, prepared.tokens, prepared.requests)
            else:
                self._made[its].reserve(prepared.tokens, prepared.requests)
            self._room[its, key] = prepared.tokens
        return self._made[its]

    def reset(self):
        """After a launch that failed: see moetune_kernels.Workspace.reset."""
        for made in self._made.values():
            made.reset()

    def __enter__(self):
        _local.used = (*_local.used, self)
        return self

    def __exit__(self, *_):
        _local.used = _local.used[:-1]


def _workspace(device, stream):
    """The one of the innermost `with`, else one for each stream, whose launches follow one another."""
    if _local.used:
        return _local.used[-1]
    found = _workspaces.get((device, stream))
    return found or _workspaces.setdefault((device, stream), Workspace())


@contextlib.contextmanager
def skew_hint(skew):
    """Inside the `with`, kernels are picked for this skew (rows of the largest expert over the mean), not by robust
    choices."""
    before, _local.skew = _local.skew, skew
    try:
        yield
    finally:
        _local.skew = before


class _Prepared(moetune_kernels.Prepared):
    """A launch of operands of known shapes: everything but their addresses. Of a layer ("layer") the fusion and the
    shape of W are those of up and of down."""

    def __init__(self, folder, op, fusion, w_shape, top_k, rows, tensors, fp8):
        first, operands = tensors[0], dict(zip(_NAMES[op], tensors))
        if not fp8 and first.dtype not in _DTYPES:
            raise Error(f"no kernels for {first.dtype}: they are of torch.bfloat16 and torch.float16, and of "
                        "torch.float8_e4m3fn with scales for scaled_grouped_gemm")
        self.library, self.tokens = library(folder, first.device), rows // top_k
        dtype = fp8 or _DTYPES[first.dtype]
        asked = dict(tokens=max(self.tokens, 1), skew=_local.skew)

        def request(op, fusion, w_shape):
            experts, n, k = w_shape
            return dict(op=op, dtype=dtype, fusion=fusion, experts=experts, top_k=top_k, n=n, k=k)

        if op == "layer":
            up, down = (request("fwd", *part) for part in zip(fusion, w_shape))
            kernel = self.library.pick_layer(up=up, down=down, **asked)
        else:
            kernel = self.library.pick(**asked, **request(op, fusion, w_shape))
        self.requests, self.request_key = kernel.requests, (op, fusion, w_shape, top_k, dtype)
        needs = kernel.needs_met(self.tokens, rows, operands)
        self.places = [_NAMES[op].index(need.name) for need in needs]
        strides = moetune_kernels.Strides.of(operands["x_scales"], operands["w_scales"]) if fp8 else None
        super().__init__(kernel, self.tokens, rows, needs, strides)


_NAMES = {"fwd": ("x", "w", "y", "m_sizes", "gather_indices", "topk_weights", "bias", "y_scales", "x_scales",
                 "w_scales", "h"),
          "dx": ("dy", "w", "dx", "x", "m_sizes", "gather_indices", "topk_weights", "dweights", "h", "dh"),
          "layer": ("x", "up", "hidden", "down", "y", "m_sizes", "gather_indices", "topk_weights", "up_bias",
                    "down_bias", "sum"),
          "dw": ("dy", "x", "dw", "m_sizes", "gather_indices", "topk_weights")}


def _kept(key, make):
    """What `make` prepared for launches of this key."""
    ready = _ready.get(key)
    if ready is None:
        if len(_ready) >= _MAX_READY:
            _ready.clear()
        ready = _ready[key] = make()
    return ready


def _launch(folder, op, fusion, w_shape, top_k, rows, *tensors, fp8=None):
    """Tensors in the order of _NAMES, the first of the kernel's dtype; those that the fusion doesn't read may be there
    too. Everything that costs time and depends on shapes alone is done once. `fp8`: the word of a format with scales,
    which are the last two."""
    if _lacks_data(tensors[0]):
        return
    key = [folder, op, fusion, w_shape, top_k, rows, _local.skew]
    for tensor in tensors:
        if tensor is not None:
            key += tensor.shape, tensor.dtype, tensor.device
    if fp8:
        key += fp8, tensors[-2].stride(), tensors[-1].stride()
    ready = _kept(tuple(key), lambda: _Prepared(folder, op, fusion, w_shape, top_k, rows, tensors, fp8))
    addresses = []
    for place in ready.places:
        tensor = tensors[place]
        if not tensor.is_contiguous() and not (fp8 and place >= len(tensors) - 2):
            raise Error(f"'{_NAMES[op][place]}' is not contiguous")
        addresses.append(tensor.data_ptr())
    device = tensors[0].device
    stream = _stream(device)
    ready.launch(_workspace(device, stream).room_for(ready), addresses, stream)


def _has(folder, device, op, fusion, w_shape, dtype, top_k):
    return (op, _DTYPES.get(dtype, dtype), fusion, w_shape[0], top_k, *w_shape[1:]) in library(folder, device).requests


def _words(fusion):
    return set(fusion.split("+"))


_ACTIVATIONS = {"silu", "gelu", "gpt_oss"}
_GPT_OSS_SLOPE, _GPT_OSS_LIMIT = 1.702, 7  # as kernels have them: kernels/formulas.h


def _columns(w, fusion):
    """Of y."""
    return w.shape[1] // 2 if _ACTIVATIONS & _words(fusion) else w.shape[1]


def _rows(slots, top_k, fusion, permuted):
    """Of y (permute_y) or dx (permute_x)."""
    return slots // top_k if {"sum_slots", permuted} <= _words(fusion) else slots


def _require_operands(fusion, topk_weights, bias):
    for word, operand, goes in (("topk_weights", topk_weights, "go"), ("bias", bias, "goes")):
        if (word in _words(fusion)) != (operand is not None):
            raise Error(f"{word} {goes} with a fusion that has '{word}'")


def _result(like, shape, zeros):
    """Kernels write the rows of slots whose expert is here, and no others."""
    return like.new_zeros(shape) if zeros else like.new_empty(shape)


_operators = torch.library.Library("moetune", "DEF")


def _operator(schema):
    """Defines an operator of the function that follows. Of tensors without data it makes results without a launch."""
    def define(function):
        name = schema[:schema.index("(")]
        _operators.define(schema)
        _operators.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"moetune::{name}", function, lib=_operators)
        return function
    return define


def _lacks_data(tensor):
    """While torch.compile traces."""
    return isinstance(tensor, FakeTensor) or tensor.is_meta


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _eager(*tensors):
    """Whether operators may be called as functions of Python, which saves the dispatcher's time: no tracing, no
    modes."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    for tensor in tensors:
        if type(tensor) not in _PLAIN:
            return False
    return True


# ---- Routing --------------------------------------------------------------------------------------------------------

@_operator("choose(str folder, Tensor logits, int top_k, Tensor? bias, str score, bool renormalize, float scale, "
           "int groups, int top_groups) -> (Tensor, Tensor)")
def _choose(folder, logits, top_k, bias, score, renormalize, scale, groups, top_groups):
    weights = logits.new_empty((logits.shape[0], top_k), dtype=torch.float32)
    ids = logits.new_empty(weights.shape, dtype=torch.int32)
    if _lacks_data(logits):
        return weights, ids
    logits, device = logits.contiguous(), logits.device
    key = (folder, logits.shape, logits.dtype, device, top_k, score, renormalize, scale, groups, top_groups,
           None if bias is None else (bias.shape, bias.dtype, bias.device, bias.is_contiguous()))
    ready = _kept(key, lambda: library(folder, device).chooser(
        logits, weights, ids, bias, score=score, renormalize=renormalize, scale=scale, groups=groups,
        top_groups=top_groups))
    ready(logits.data_ptr(), None if bias is None else bias.data_ptr(), weights.data_ptr(), ids.data_ptr(),
          _stream(device))
    return weights, ids


def choose(folder, logits, top_k, *, bias=None, score="softmax", renormalize=True, scale=1.0, groups=1, top_groups=1):
    """(topk_weights, topk_ids) [tokens, top_k] in fp32 and int32, the best expert first, in one launch. logits [tokens,
    experts] are a router's, in torch.bfloat16, torch.float16 or torch.float32. Scores are their "softmax" or "sigmoid",
    in fp32. A bias [experts] (torch.float32) is added to scores for the choice alone, not in the weights. With
    renormalize weights are divided by their sum; then they are multiplied by scale. With groups of neighbouring experts
    only those of the top_groups are chosen: a group counts by its largest score, with a bias by the sum of its two
    largest. At most 1024 experts, 32 groups and a top_k of 32. It has no gradients.

        Mixtral, Qwen3, gpt-oss   choose(kernels, logits, top_k)
        OLMoE                     choose(kernels, logits, top_k, renormalize=False)
        DeepSeek-V3               choose(kernels, logits, 8, bias=bias, score="sigmoid", scale=2.5,
                                         groups=8, top_groups=4)
    """
    if torch.is_grad_enabled() and logits.requires_grad:
        raise Error("choose has no gradients: call it under torch.no_grad(), or choose with torch's operations")
    run = _choose if _eager(logits) else torch.ops.moetune.choose.default
    return run(str(folder), logits, top_k, bias, score, renormalize, scale, groups, top_groups)


@_operator("route(str folder, Tensor topk_ids, int experts, int first_expert) -> (Tensor, Tensor)")
def _route(folder, topk_ids, experts, first_expert):
    m_sizes = topk_ids.new_empty(experts, dtype=torch.int32)
    gather_indices = topk_ids.new_empty(topk_ids.numel(), dtype=torch.int32)
    if topk_ids.dtype not in (torch.int32, torch.int64):
        raise Error(f"topk_ids are of {topk_ids.dtype}, but must be of torch.int32 or torch.int64")
    if not _lacks_data(topk_ids):
        library(folder, topk_ids.device).launch_route(topk_ids.contiguous(), m_sizes, gather_indices, first_expert,
                                                      _stream(topk_ids.device))
    return m_sizes, gather_indices


def route(folder, topk_ids, experts, first_expert=0):
    """Rows of each expert, and the slot of each row in expert order, both int32 on the device. topk_ids [tokens, top_k]
    of int32 or int64. A rank that holds `experts` of the model's experts names its first; gather_indices behind its
    last row are -1."""
    run = _route if _eager(topk_ids) else torch.ops.moetune.route.default
    return run(str(folder), topk_ids, experts, first_expert)


# ---- The GEMM and its gradients -------------------------------------------------------------------------------------

@_operator("grouped_gemm(str folder, Tensor x, Tensor w, Tensor m_sizes, Tensor gather_indices, Tensor? topk_weights, "
           "int top_k, str fusion, bool zero_rest=False, Tensor? bias=None) -> Tensor")
def _forward(folder, x, w, m_sizes, gather_indices, topk_weights, top_k, fusion, zero_rest=False, bias=None):
    rows = gather_indices.numel()
    y = _result(x, (_rows(rows, top_k, fusion, "permute_y"), _columns(w, fusion)), zero_rest)
    _launch(folder, "fwd", fusion, w.shape, top_k, rows, x, w, y, m_sizes, gather_indices, topk_weights, bias)
    return y


@_operator("grouped_gemm_dx(str folder, Tensor dy, Tensor w, Tensor x, Tensor m_sizes, Tensor gather_indices, "
           "Tensor? topk_weights, int top_k, str fusion, bool zero_rest=False) -> (Tensor, Tensor)")
def _dx(folder, dy, w, x, m_sizes, gather_indices, topk_weights, top_k, fusion, zero_rest=False):
    rows = gather_indices.numel()
    words = _words(fusion)
    dx = _result(dy, (_rows(rows, top_k, fusion, "permute_x"), w.shape[2]), zero_rest)
    dweights = dy.new_empty(rows if "weight_gradient" in words else 0, dtype=torch.float32)
    _launch(folder, "dx", fusion, w.shape, top_k, rows, dy, w, dx, x, m_sizes, gather_indices, topk_weights, dweights)
    return dx, dweights


@_operator("grouped_gemm_dw(str folder, Tensor dy, Tensor x, Tensor m_sizes, Tensor gather_indices, "
           "Tensor? topk_weights, int top_k, str fusion) -> Tensor")
def _dw(folder, dy, x, m_sizes, gather_indices, topk_weights, top_k, fusion):
    rows = gather_indices.numel()
    dw = dy.new_empty((m_sizes.numel(), dy.shape[1], x.shape[1]))
    _launch(folder, "dw", fusion, dw.shape, top_k, rows, dy, x, dw, m_sizes, gather_indices, topk_weights)
    return dw


def _keep(ctx, inputs, output):
    folder, x, w, m_sizes, gather_indices, topk_weights, top_k, fusion, zero_rest, bias = inputs
    if bias is not None or _ACTIVATIONS & _words(fusion):
        raise Error(f"{fusion} has no gradients: call it under torch.no_grad()")
    ctx.save_for_backward(x, w, m_sizes, gather_indices, topk_weights)
    ctx.rest = folder, top_k, fusion, zero_rest, (_local.used, _local.skew)


def _backward(ctx, dy, gradients=None):
    """With the workspace and the skew of the forward pass, in whose thread it need not run."""
    before = _local.used, _local.skew
    _local.used, _local.skew = ctx.rest[-1]
    try:
        return (gradients or _gradients)(ctx, dy.contiguous())
    finally:
        _local.used, _local.skew = before


def _gradients(ctx, dy):
    x, w, m_sizes, gather_indices, topk_weights = ctx.saved_tensors
    folder, top_k, fusion, zero_rest, _ = ctx.rest
    eager = _eager(dy, x)
    _, needs_x, needs_w, _, _, needs_weights, *_ = ctx.needs_input_grad
    dx = dw = dweights = None
    if needs_x or needs_weights:
        wanted = _fusion_of_dx(folder, dy, fusion, w.shape, top_k, needs_weights)
        by_slot = wanted == "permute_x"
        run = _dx if eager else torch.ops.moetune.grouped_gemm_dx.default
        dx, dweights = run(folder, dy, w, x, m_sizes, gather_indices, topk_weights, top_k, wanted, zero_rest or by_slot)
        if by_slot:  # a token's slots are added here; those without an expert here are zero
            dx = dx.view(-1, top_k, dx.shape[1]).sum(1)
        dweights = dweights.view(topk_weights.shape).to(topk_weights.dtype) if needs_weights else None
    if needs_w:
        run = _dw if eager else torch.ops.moetune.grouped_gemm_dw.default
        dw = run(folder, dy, x, m_sizes, gather_indices, topk_weights, top_k, fusion)
    return None, dx if needs_x else None, dw, None, None, dweights, None, None, None, None


def _fusion_of_dx(folder, dy, fusion, w_shape, top_k, needs_weights):
    """That of the kernel for dx: a kernel may give more than is needed where no other is there."""
    if needs_weights:
        return fusion + "+weight_gradient"

    def has(wanted):
        return _has(folder, dy.device, "dx", wanted, w_shape, dy.dtype, top_k)

    if fusion == "permute_x" and has("permute_x+sum_slots"):
        return "permute_x+sum_slots"
    if "topk_weights" in _words(fusion) and not has(fusion) and has(fusion + "+weight_gradient"):
        return fusion + "+weight_gradient"
    return fusion


torch.library.register_autograd("moetune::grouped_gemm", _backward, setup_context=_keep, lib=_operators)


class _Differentiable(torch.autograd.Function):
    """The same in eager mode."""
    backward = staticmethod(_backward)

    @staticmethod
    def forward(ctx, *inputs):
        _keep(ctx, inputs, None)
        return _forward(*inputs)


def grouped_gemm(folder, x, w, m_sizes, gather_indices, topk_weights=None, *, top_k, fusion="plain", zero_rest=False,
                 bias=None):
    """y_e = x_e w_e^T for the rows of each expert e. x [rows, k] in expert order, or with permute_x [tokens, k]; w
    [experts, n, k]; y [tokens * top_k, n], or with an activation n / 2 columns, in expert order, with permute_y by
    slot, or with permute_y and sum_slots [tokens, n]. topk_weights, in fp32 and by slot, with "permute_y+topk_weights";
    bias [experts, n] with "+bias". On a rank that holds some of the model's experts, rows of y and of gradients that
    belong to no expert here hold arbitrary values; with zero_rest they are zeros. Differentiable in x, w and
    topk_weights, without an activation or a bias, where the export has kernels of dx and dw for the same fusion (with
    "+weight_gradient" for topk_weights; for permute_x those with "+sum_slots" are preferred); Error where it has none.
    The gradient of a token or a weight is zero where none of its experts is here."""
    _require_operands(fusion, topk_weights, bias)
    run = torch.ops.moetune.grouped_gemm.default
    if _eager(x, w):
        needs_grad = any(one is not None and one.requires_grad for one in (x, w, topk_weights, bias))
        run = _Differentiable.apply if needs_grad and torch.is_grad_enabled() else _forward
    return run(str(folder), x.contiguous(), w.contiguous(), m_sizes, gather_indices, topk_weights, top_k, fusion,
               zero_rest, bias)


# ---- The experts of a layer ------------------------------------------------------------------------------------------

def _activated(hidden, activation, interleaved):
    """act(gate) * up by torch."""
    gate, up = (hidden[..., ::2], hidden[..., 1::2]) if interleaved else hidden.chunk(2, dim=-1)
    if activation == "gpt_oss":
        gate, up = gate.clamp(max=_GPT_OSS_LIMIT), up.clamp(-_GPT_OSS_LIMIT, _GPT_OSS_LIMIT)
        return gate * torch.sigmoid(_GPT_OSS_SLOPE * gate) * (up + 1)
    return getattr(torch.nn.functional, activation)(gate) * up


def _summed(y, tokens):
    """Y by token, of slots that a kernel has added or not."""
    return y if y.shape[0] == tokens else y.view(tokens, -1, y.shape[1]).sum(dim=1)


def _gradients_of_experts(ctx, dy):
    """dx of down gives the gradients of gate and up, X and the gradient of the weights too."""
    x, up, down, h, m_sizes, gather, weights = ctx.saved_tensors
    folder, top_k, (fusion, of_dw, sums, zero_rest), _ = ctx.rest
    if "sum_slots" not in of_dw:
        dy = dy.repeat_interleave(top_k, 0)
    _, needs_x, needs_up, needs_down, *_ = ctx.needs_input_grad
    rows = gather.numel()
    dh, hidden = _result(h, h.shape, False), _result(h, (rows, down.shape[2]), False)
    dweights = dy.new_empty(rows, dtype=torch.float32)
    _launch(folder, "dx", fusion, down.shape, top_k, rows, dy, down, None, hidden, m_sizes, gather, weights, dweights,
            h, dh)
    dx = dup = ddown = None
    if needs_down:
        ddown = _dw(folder, dy, hidden, m_sizes, gather, weights, top_k, of_dw)
    if needs_x:
        dx, _ = _dx(folder, dh, up, x, m_sizes, gather, None, top_k, "permute_x" + "+sum_slots" * sums,
                    zero_rest or not sums)
        dx = _summed(dx, x.shape[0])
    if needs_up:
        dup = _dw(folder, dh, x, m_sizes, gather, None, top_k, "permute_x")
    return None, dx, dup, ddown, None, None, dweights.view(weights.shape), None, None, None, None, None


class _Experts(torch.autograd.Function):
    """Both GEMMs in eager mode: H is kept between the passes, and X made again from it."""
    @staticmethod
    def forward(ctx, folder, x, up, down, m_sizes, gather, weights, top_k, fusions, activation, interleaved, zero_rest):
        rows, gated = gather.numel(), "+".join(["permute_x", activation, *["interleaved"] * interleaved, "store_h"])
        if _has(folder, x.device, "fwd", gated, up.shape, x.dtype, top_k):
            h, hidden = _result(x, (rows, up.shape[1]), False), _result(x, (rows, up.shape[1] // 2), False)
            _launch(folder, "fwd", gated, up.shape, top_k, rows, x, up, hidden, m_sizes, gather, None, None, None, None,
                    None, h)
        else:
            h = _forward(folder, x, up, m_sizes, gather, None, top_k, "permute_x")
            hidden = _activated(h, activation, interleaved)
        sums = _has(folder, x.device, "dx", "permute_x+sum_slots", up.shape, x.dtype, top_k)
        ctx.save_for_backward(x, up, down, h, m_sizes, gather, weights)
        fusion, *of_gradients = fusions
        ctx.rest = folder, top_k, (*of_gradients, sums, zero_rest), (_local.used, _local.skew)
        return _summed(_forward(folder, hidden, down, m_sizes, gather, weights, top_k, fusion, zero_rest), x.shape[0])

    @staticmethod
    def backward(ctx, dy):
        return _backward(ctx, dy, _gradients_of_experts)


@_operator("layer(str folder, Tensor x, Tensor up, Tensor down, Tensor m_sizes, Tensor gather_indices, "
           "Tensor topk_weights, int top_k, str up_fusion, str down_fusion, bool zero_rest=False, Tensor? up_bias=None, "
           "Tensor? down_bias=None) -> Tensor")
def _layer(folder, x, up, down, m_sizes, gather_indices, topk_weights, top_k, up_fusion, down_fusion, zero_rest=False,
           up_bias=None, down_bias=None):
    rows = gather_indices.numel()
    hidden = x.new_empty((rows, _columns(up, up_fusion)))
    y = _result(x, (_rows(rows, top_k, down_fusion, "permute_y"), down.shape[1]), zero_rest)
    sums = y.shape[0] != x.shape[0] and not _lacks_data(x) and library(folder, x.device).sums
    total = x.new_empty((x.shape[0], y.shape[1])) if sums else None
    _launch(folder, "layer", (up_fusion, down_fusion), (up.shape, down.shape), top_k, rows, x, up, hidden, down, y,
            m_sizes, gather_indices, topk_weights, up_bias, down_bias, total)
    return total if sums else _summed(y, x.shape[0])


def experts(folder, x, up, down, topk_ids, topk_weights, *, activation="silu", interleaved=False, up_bias=None,
            down_bias=None, first_expert=0, part_of_experts=False, x_scales=None, up_scales=None, down_scales=None):
    """The experts of a layer, [tokens, hidden]: for each token the weighted sum of what its experts make of it. x
    [tokens, hidden]; up [experts, 2 * intermediate, hidden], gates first or interleaved; down [experts, hidden,
    intermediate]; topk_ids and topk_weights [tokens, top_k]; activation "silu", "gelu" or "gpt_oss"; biases [experts,
    n]. With part_of_experts those of other experts than these, which begin at first_expert, add nothing. One call
    launches both kernels, the pair that tune --projection ffn found if there is one, and the sum over slots. Needs
    kernels of "permute_x+silu" (or "permute_x", with torch's activation behind it, which gradients take) and of
    "permute_y+topk_weights", and of dx and dw for gradients; with "+bias" where there are any. Where dx of down is of
    "permute_y+topk_weights+weight_gradient+silu" (tuned with --gated silu), it gives the gradients of gate and up, and
    the product of up is all that is kept between the passes; with a kernel of "permute_x+silu+store_h" the forward pass
    too has nothing between its GEMMs. Where dx and dw of down have "+sum_slots" (tuned with --sum-slots), they read dY
    by token, and no pass copies it to every slot.

    With x_scales, up_scales and down_scales x and both weights are torch.float8_e4m3fn in blocks, as
    scaled_grouped_gemm takes them, and up gives down its rows in fp8 with scales: two launches, which need kernels tuned
    with --gated and --out-dtype fp8. Without biases and gradients."""
    top_k = topk_ids.shape[1]
    m_sizes, gather = route(folder, topk_ids, up.shape[0], first_expert)
    needs_grad = torch.is_grad_enabled() and any(one.requires_grad for one in (x, up, down, topk_weights))
    weights = topk_weights.float().reshape(-1)
    words = [activation, *["interleaved"] * interleaved]
    dtype = x.dtype if x_scales is None else "fp8-block"

    def has(op, fusion, w):
        return _has(str(folder), x.device, op, fusion, w.shape, dtype, top_k)

    def of_dx(fusion):
        return "+".join([fusion, "weight_gradient", *words])

    by_slot, by_token = "permute_y+topk_weights", "permute_y+topk_weights+sum_slots"
    last = by_slot + "+bias" * (down_bias is not None)  # torch's sum is as fast as the pass of by_token
    if down_bias is None and has("fwd", by_token, down) and (
            not has("fwd", last, down) or (needs_grad and not has("dw", last, down))):
        last = by_token
    if x_scales is not None:
        if up_bias is not None or down_bias is not None:
            raise Error("experts in fp8 have no biases")
        hidden, scales = scaled_grouped_gemm(folder, x, up, x_scales, up_scales, m_sizes, gather, top_k=top_k,
                                             fusion="+".join(["permute_x", *words]), out_dtype=torch.float8_e4m3fn)
        y = scaled_grouped_gemm(folder, hidden, down, scales, down_scales, m_sizes, gather, weights, top_k=top_k,
                                fusion=last, zero_rest=part_of_experts)
        return _summed(y, x.shape[0])
    if needs_grad and _eager(x, up, down) and up_bias is None and down_bias is None:
        summed = has("dx", of_dx(by_token), down) and has("dw", by_token, down)
        if summed or has("dx", of_dx(by_slot), down):
            back = by_token if summed else by_slot
            return _Experts.apply(str(folder), x.contiguous(), up.contiguous(), down.contiguous(), m_sizes, gather,
                                  weights, top_k, (last, of_dx(back), back), activation, interleaved, part_of_experts)
    bias = ["bias"] * (up_bias is not None)
    gated = "+".join(["permute_x", *words, *bias])
    if not needs_grad and has("fwd", gated, up):
        run = _layer if _eager(x, up, down) else torch.ops.moetune.layer.default
        return run(str(folder), x.contiguous(), up.contiguous(), down.contiguous(), m_sizes, gather, weights, top_k,
                   gated, last, part_of_experts, up_bias, down_bias)
    hidden = grouped_gemm(folder, x, up, m_sizes, gather, top_k=top_k, bias=up_bias,
                          fusion="+".join(["permute_x", *bias]))
    y = grouped_gemm(folder, _activated(hidden, activation, interleaved), down, m_sizes, gather, weights,
                     top_k=top_k, bias=down_bias, fusion=last, zero_rest=part_of_experts)
    return _summed(y, x.shape[0])


# ---- The GEMM of fp8 ------------------------------------------------------------------------------------------------

@_operator("scaled_grouped_gemm(str folder, Tensor x, Tensor w, Tensor x_scales, Tensor w_scales, Tensor m_sizes, "
           "Tensor gather_indices, Tensor? topk_weights, int top_k, str fusion, str scales, ScalarType out_dtype, "
           "bool fast_sums=False, bool zero_rest=False, Tensor? bias=None) -> Tensor")
def _scaled(folder, x, w, x_scales, w_scales, m_sizes, gather_indices, topk_weights, top_k, fusion, scales, out_dtype,
            fast_sums=False, zero_rest=False, bias=None):
    if out_dtype not in _FP8_RESULTS:
        raise Error(f"no kernels give {out_dtype} of fp8: they give torch.bfloat16 and torch.float16")
    rows = gather_indices.numel()
    y = (x.new_zeros if zero_rest else x.new_empty)((_rows(rows, top_k, fusion, "permute_y"), _columns(w, fusion)),
                                                    dtype=out_dtype)
    _launch(folder, "fwd", fusion, w.shape, top_k, rows, x, w, y, m_sizes, gather_indices, topk_weights, bias, None,
            x_scales, w_scales, fp8=f"fp8-{scales}{_FP8_RESULTS[out_dtype]}{'-fast' * fast_sums}")
    return y


@_operator("quantised_grouped_gemm(str folder, Tensor x, Tensor w, Tensor x_scales, Tensor w_scales, Tensor m_sizes, "
           "Tensor gather_indices, int top_k, str fusion, bool zero_rest=False) -> (Tensor, Tensor)")
def _quantised(folder, x, w, x_scales, w_scales, m_sizes, gather_indices, top_k, fusion, zero_rest=False):
    rows, columns = gather_indices.numel(), _columns(w, fusion)
    y = _result(x, (rows, columns), zero_rest)
    y_scales = (x.new_zeros if zero_rest else x.new_empty)((rows, -(-columns // 128)), dtype=torch.float32)
    _launch(folder, "fwd", fusion, w.shape, top_k, rows, x, w, y, m_sizes, gather_indices, None, None, y_scales, x_scales,
            w_scales, fp8="fp8-block-fp8")
    return y, y_scales


def scaled_grouped_gemm(folder, x, w, x_scales, w_scales, m_sizes, gather_indices, topk_weights=None, *, top_k,
                        fusion="plain", scales="block", out_dtype=torch.bfloat16, fast_sums=False, zero_rest=False,
                        bias=None):
    """grouped_gemm of x and w in torch.float8_e4m3fn, whose values are elements times scales. Scales are of
    torch.float32 and may lie anyhow, such as row-major or along the rows of x. x_scales are, for each row in memory of
    x, [rows, ceil(k / 128)] with scales="block", [rows] with "channel", and one of all with "tensor"; w_scales are
    [experts, ceil(n / 128), ceil(k / 128)], [experts, n] or [experts]. y is of out_dtype, torch.bfloat16 or
    torch.float16; or torch.float8_e4m3fn with blocks and an activation: the result is then (y, y_scales), which another call
    takes as x and x_scales. With fast_sums the kernel was tuned with --fast-sums. It has no gradients."""
    _require_operands(fusion, topk_weights, bias)
    if x_scales is None or w_scales is None:
        raise Error("scaled_grouped_gemm needs both x_scales and w_scales")
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad or
                                    (topk_weights is not None and topk_weights.requires_grad)):
        raise Error("scaled_grouped_gemm has no gradients: call it under torch.no_grad()")
    if out_dtype == torch.float8_e4m3fn:
        if scales != "block" or not _ACTIVATIONS & _words(fusion) or bias is not None:
            raise Error("y in torch.float8_e4m3fn belongs to scales of blocks and an activation, without a bias")
        run = _quantised if _eager(x, w) else torch.ops.moetune.quantised_grouped_gemm.default
        return run(str(folder), x.contiguous(), w.contiguous(), x_scales, w_scales, m_sizes, gather_indices, top_k, fusion,
                   zero_rest)
    run = _scaled if _eager(x, w) else torch.ops.moetune.scaled_grouped_gemm.default
    return run(str(folder), x.contiguous(), w.contiguous(), x_scales, w_scales, m_sizes, gather_indices, topk_weights,
               top_k, fusion, scales, out_dtype, fast_sums, zero_rest, bias)
