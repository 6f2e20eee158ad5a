"""PyTorch operators on kernels that `moetune export --format kernels` wrote: a router's rows sorted by expert, grouped
GEMMs of an MoE layer, and their gradients where the export has kernels of dx and dw. Shapes are known without a device
(fake tensors, torch.compile), launches wait for nothing, CUDA graphs capture them.

    m_sizes, gather = route("kernels-h200", topk_ids, experts=128)
    up = grouped_gemm("kernels-h200", x, w_up, m_sizes, gather, top_k=8, fusion="permute_x")
    down = grouped_gemm("kernels-h200", hidden, w_down, m_sizes, gather, topk_weights, top_k=8,
                        fusion="permute_y+topk_weights")

Fusions, as moetune names them: "plain" (rows in expert order in and out), "permute_x" (x is [tokens, k], rows are
gathered while they are loaded), "permute_y" (y is by slot = token * top_k + choice, rows are scattered while they are
stored), "permute_y+topk_weights" (and weighted). Results of one routing are [tokens * top_k, n].
"""
import contextlib
import threading
from typing import Optional

import torch
from torch import Tensor

import moetune_kernels
from moetune_kernels import Error

_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
_libraries = {}
_workspaces = {}
_local = threading.local()


def library(folder):
    """The export in a folder, loaded once for each device."""
    key = (str(folder), torch.cuda.current_device())
    if key not in _libraries:
        torch.cuda.init()
        torch.cuda.current_stream().synchronize()  # makes the context of torch the current one
        _libraries[key] = moetune_kernels.Library(folder)
    return _libraries[key]


class Workspace:
    """Device memory for launches that follow one another in a stream. For a CUDA graph: make it before the capture, run
    the layer and capture it inside of `with workspace:`, and keep it as long as the graph. The backward pass takes that
    of its forward pass."""

    def __init__(self):
        self._made = []  # those that became too small are kept: a graph may hold their addresses

    def room_for(self, kernel, tokens, rows):
        """A workspace of moetune_kernels with room for the launch."""
        needs = kernel._buffers(tokens, rows)
        for made in reversed(self._made):
            if all(made.room(name) >= size for name, (size, _) in needs.items()):
                return made
        if torch.cuda.is_current_stream_capturing():
            raise Error("a workspace is needed before the capture of a graph: make a moetune_torch.Workspace, and run "
                        "the layer once inside of `with workspace:` before it is captured there")
        self._made.append(moetune_kernels.Workspace([kernel], tokens, rows))
        return self._made[-1]

    def reset(self):
        """After a launch that failed: see moetune_kernels.Workspace.reset."""
        for made in self._made:
            made.reset()

    def __enter__(self):
        _local.used = [*getattr(_local, "used", []), self]
        return self

    def __exit__(self, *_):
        _local.used.pop()


def _choices():
    """The workspace and the skew that `with` gave here. The backward pass runs in a thread of its own."""
    return getattr(_local, "used", [])[-1:], getattr(_local, "skew", None)


@contextlib.contextmanager
def _as(choices):
    used, skew = choices
    with contextlib.ExitStack() as stack:
        for workspace in used:
            stack.enter_context(workspace)
        stack.enter_context(skew_hint(skew))
        yield


def _workspace():
    """The one of the innermost `with`, else one for each stream, whose launches follow one another."""
    used = getattr(_local, "used", [])
    if used:
        return used[-1]
    key = (torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream)
    return _workspaces.setdefault(key, Workspace())


@contextlib.contextmanager
def skew_hint(skew):
    """Inside the `with`, kernels are picked for this skew (rows of the largest expert over the mean), not by robust
    choices."""
    before, _local.skew = getattr(_local, "skew", None), skew
    try:
        yield
    finally:
        _local.skew = before


def _device_of(tensor):
    """A context in which the tensor's GPU is the current one."""
    if tensor.device.type != "cuda":
        raise Error(f"the kernels run on a GPU, and a tensor is on {tensor.device}")
    return torch.cuda.device(tensor.device)


def _launch(folder, op, fusion, w_shape, dtype, top_k, tokens, rows, **operands):
    experts, n, k = w_shape
    if dtype not in _DTYPES:
        raise Error(f"no kernels for {dtype}: they are of torch.bfloat16 and torch.float16")
    with _device_of(next(iter(operands.values()))):
        kernel = library(folder).pick(op=op, dtype=_DTYPES[dtype], fusion=fusion, experts=experts, top_k=top_k, n=n,
                                      k=k, tokens=max(tokens, 1), skew=getattr(_local, "skew", None))
        given = {name: tensor for name, tensor in operands.items() if name in kernel.operands}
        kernel.call(tokens, _workspace().room_for(kernel, tokens, rows), rows).launch(**given)


def _has(folder, op, fusion, w_shape, dtype, top_k):
    experts, n, k = w_shape
    asked = {"op": op, "dtype": _DTYPES[dtype], "experts": experts, "top_k": top_k, "n": n, "k": k, "fusion": fusion}
    _, cells = library(folder)._answers(asked)
    return bool(cells)


def _words(fusion):
    return set(fusion.split("+"))


def _result(like, shape, zeros):
    """Kernels write the rows of slots whose expert is here, and no others."""
    return like.new_zeros(shape) if zeros else like.new_empty(shape)


# ---- Routing --------------------------------------------------------------------------------------------------------

@torch.library.custom_op("moetune::route", mutates_args=())
def _route(folder: str, topk_ids: Tensor, experts: int, first_expert: int) -> tuple[Tensor, Tensor]:
    m_sizes = torch.empty(experts, dtype=torch.int32, device=topk_ids.device)
    gather_indices = torch.empty(topk_ids.numel(), dtype=torch.int32, device=topk_ids.device)
    with _device_of(topk_ids):
        library(folder).route(topk_ids.contiguous(), m_sizes, gather_indices, first_expert)
    return m_sizes, gather_indices


@_route.register_fake
def _(folder, topk_ids, experts, first_expert):
    return (topk_ids.new_empty(experts, dtype=torch.int32), topk_ids.new_empty(topk_ids.numel(), dtype=torch.int32))


def route(folder, topk_ids, experts, first_expert=0):
    """Rows of each expert, and the slot of each row in expert order, both int32 on the device. topk_ids [tokens, top_k]
    of int32 or int64. A rank that holds `experts` of the model's experts names its first; gather_indices behind its
    last row are -1."""
    return _route(str(folder), topk_ids, experts, first_expert)


# ---- The GEMM and its gradients -------------------------------------------------------------------------------------

@torch.library.custom_op("moetune::grouped_gemm", mutates_args=())
def _forward(folder: str, x: Tensor, w: Tensor, m_sizes: Tensor, gather_indices: Tensor, topk_weights: Optional[Tensor],
             top_k: int, fusion: str, zero_rest: bool = False) -> Tensor:
    rows = gather_indices.numel()
    y = _result(x, (rows, w.shape[1]), zero_rest)
    _launch(folder, "fwd", fusion, w.shape, x.dtype, top_k, rows // top_k, rows, x=x, w=w, y=y, m_sizes=m_sizes,
            gather_indices=gather_indices, topk_weights=topk_weights)
    return y


@_forward.register_fake
def _(folder, x, w, m_sizes, gather_indices, topk_weights, top_k, fusion, zero_rest=False):
    return x.new_empty((gather_indices.numel(), w.shape[1]))


@torch.library.custom_op("moetune::grouped_gemm_dx", mutates_args=())
def _dx(folder: str, dy: Tensor, w: Tensor, x: Tensor, m_sizes: Tensor, gather_indices: Tensor,
        topk_weights: Optional[Tensor], top_k: int, fusion: str,
        zero_rest: bool = False) -> tuple[Tensor, Tensor]:
    rows = gather_indices.numel()
    words = _words(fusion)
    dx = _result(dy, (rows // top_k if "sum_slots" in words else rows, w.shape[2]), zero_rest)
    dweights = dy.new_empty(rows if "weight_gradient" in words else 0, dtype=torch.float32)
    _launch(folder, "dx", fusion, w.shape, dy.dtype, top_k, rows // top_k, rows, dy=dy, w=w, dx=dx, x=x,
            m_sizes=m_sizes, gather_indices=gather_indices, topk_weights=topk_weights, dweights=dweights)
    return dx, dweights


@_dx.register_fake
def _(folder, dy, w, x, m_sizes, gather_indices, topk_weights, top_k, fusion, zero_rest=False):
    rows, words = gather_indices.numel(), _words(fusion)
    return (dy.new_empty((rows // top_k if "sum_slots" in words else rows, w.shape[2])),
            dy.new_empty(rows if "weight_gradient" in words else 0, dtype=torch.float32))


@torch.library.custom_op("moetune::grouped_gemm_dw", mutates_args=())
def _dw(folder: str, dy: Tensor, x: Tensor, m_sizes: Tensor, gather_indices: Tensor, topk_weights: Optional[Tensor],
        top_k: int, fusion: str) -> Tensor:
    rows = gather_indices.numel()
    dw = dy.new_empty((m_sizes.numel(), dy.shape[1], x.shape[1]))
    _launch(folder, "dw", fusion, dw.shape, dy.dtype, top_k, rows // top_k, rows, dy=dy, x=x, dw=dw, m_sizes=m_sizes,
            gather_indices=gather_indices, topk_weights=topk_weights)
    return dw


@_dw.register_fake
def _(folder, dy, x, m_sizes, gather_indices, topk_weights, top_k, fusion):
    return dy.new_empty((m_sizes.numel(), dy.shape[1], x.shape[1]))


def _keep(ctx, inputs, output):
    folder, x, w, m_sizes, gather_indices, topk_weights, top_k, fusion, zero_rest = inputs
    ctx.save_for_backward(x, w, m_sizes, gather_indices, topk_weights)
    ctx.rest = folder, top_k, fusion, zero_rest, _choices()


def _backward(ctx, dy):
    """With the workspace and the skew of the forward pass."""
    with _as(ctx.rest[-1]):
        return _gradients(ctx, dy)


def _gradients(ctx, dy):
    x, w, m_sizes, gather_indices, topk_weights = ctx.saved_tensors
    folder, top_k, fusion, zero_rest, _ = ctx.rest
    dy = dy.contiguous()
    _, needs_x, needs_w, _, _, needs_weights, *_ = ctx.needs_input_grad
    dx = dw = dweights = None
    if needs_x or needs_weights:
        wanted = _fusion_of_dx(folder, fusion, w.shape, dy.dtype, top_k, needs_weights)
        by_slot = wanted == "permute_x"
        dx, dweights = _dx(folder, dy, w, x, m_sizes, gather_indices, topk_weights, top_k, wanted, zero_rest or by_slot)
        if by_slot:  # a token's slots are added here; those without an expert here are zero
            dx = dx.view(-1, top_k, dx.shape[1]).sum(1)
        dweights = dweights.view(topk_weights.shape).to(topk_weights.dtype) if needs_weights else None
    if needs_w:
        dw = _dw(folder, dy, x, m_sizes, gather_indices, topk_weights, top_k, fusion)
    return None, dx if needs_x else None, dw, None, None, dweights, None, None, None


def _fusion_of_dx(folder, fusion, w_shape, dtype, top_k, needs_weights):
    """That of the kernel for dx: a kernel may give more than is needed where no other is there."""
    if needs_weights:
        return fusion + "+weight_gradient"

    def has(wanted):
        return _has(folder, "dx", wanted, w_shape, dtype, top_k)

    if fusion == "permute_x" and has("permute_x+sum_slots"):
        return "permute_x+sum_slots"
    if "topk_weights" in _words(fusion) and not has(fusion) and has(fusion + "+weight_gradient"):
        return fusion + "+weight_gradient"
    return fusion


_forward.register_autograd(_backward, setup_context=_keep)


def grouped_gemm(folder, x, w, m_sizes, gather_indices, topk_weights=None, *, top_k, fusion="plain", zero_rest=False):
    """y_e = x_e w_e^T for the rows of each expert e. x [rows, k] in expert order, or with permute_x [tokens, k];
    w [experts, n, k]; y [tokens * top_k, n], in expert order, or with permute_y by slot. topk_weights, in fp32 and by
    slot, with "permute_y+topk_weights". On a rank that holds some of the model's experts, rows of y and of gradients
    that belong to no expert here hold arbitrary values; with zero_rest they are zeros. Differentiable in x, w and
    topk_weights where the export has kernels of dx and dw for the same fusion (with "+weight_gradient" for topk_weights;
    for permute_x those with "+sum_slots" are preferred); Error where it has none. The gradient of a token or a weight is
    zero where none of its experts is here."""
    if ("topk_weights" in _words(fusion)) != (topk_weights is not None):
        raise Error("topk_weights go with the fusion permute_y+topk_weights")
    return _forward(str(folder), x.contiguous(), w.contiguous(), m_sizes, gather_indices, topk_weights, top_k, fusion,
                    zero_rest)
