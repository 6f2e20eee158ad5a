"""Launches kernels that `moetune export --format kernels` wrote, from Python: a thin face of lib/libmoetune.so, whose
interface include/moetune.h describes. Takes torch tensors (anything with data_ptr(), dtype, shape, is_contiguous() and
stride()) and torch's current stream.

    library = Library("kernels")
    layer = {"experts": 128, "top_k": 8, "n": 1536, "k": 2048}
    workspace = Workspace(library, tokens=4096)
    kernel = library.pick(tokens=256, **layer)
    kernel.launch(256, workspace, x=x, w=w, y=y, m_sizes=m_sizes)
"""
import ctypes
import functools
import json
import math
import operator
import pathlib
import re
import sys
import typing


class Error(Exception):
    """What cannot be done, and why: a damaged export, another GPU, operands that do not fit, a driver's error."""


# ---- The C interface ------------------------------------------------------------------------------------------------

class Request(ctypes.Structure):
    """A computation; see moetune_request."""
    _fields_ = [("op", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("fusion", ctypes.c_char_p),
                ("experts", ctypes.c_int64), ("top_k", ctypes.c_int64), ("n", ctypes.c_int64), ("k", ctypes.c_int64)]


class _Served(ctypes.Structure):
    _fields_ = [("id", ctypes.c_char_p), ("kernel", ctypes.c_char_p), ("request", Request),
                ("tokens_from", ctypes.c_int64), ("tokens_to", ctypes.c_int64), ("skew", ctypes.c_double),
                ("time_us", ctypes.c_double)]


class _Need(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("dims", ctypes.c_int32),
                ("exact", ctypes.c_int32), ("shape", ctypes.c_int64 * 3), ("top_k", ctypes.c_int64),
                ("bytes", ctypes.c_int64), ("alignment", ctypes.c_int64)]


class Strides(ctypes.Structure):
    """How scales lie; see moetune_strides."""
    _fields_ = [(name, ctypes.c_int64) for name in ("x_row", "x_step", "w_expert", "w_row", "w_step")]

    @classmethod
    def of(cls, x_scales, w_scales):
        """Those of tensors; sides of 1 at their ends may be missing."""
        x, w = x_scales.stride(), w_scales.stride()
        return cls(*(*x, 0, 0)[:2], *(*w, 0, 0, 0)[:3])


class Choice(ctypes.Structure):
    """How experts are chosen; see moetune_choice."""
    _fields_ = [*[(name, ctypes.c_int64) for name in ("experts", "top_k", "groups", "top_groups")],
                ("sigmoid", ctypes.c_int), ("renormalize", ctypes.c_int), ("scale", ctypes.c_float)]


class _Operand(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("bytes", ctypes.c_int64)]


_MAX_OPERANDS = 16
_Out = ctypes.POINTER(ctypes.c_void_p)
_ARGUMENTS = {
    "moetune_open": [ctypes.c_char_p, ctypes.c_int, _Out],
    "moetune_list": [ctypes.c_void_p, ctypes.POINTER(ctypes.POINTER(_Served)), ctypes.POINTER(ctypes.c_size_t)],
    "moetune_pick": [ctypes.c_void_p, ctypes.POINTER(Request), ctypes.c_int64, ctypes.c_double, _Out],
    "moetune_pick_layer": [ctypes.c_void_p, ctypes.POINTER(Request), ctypes.POINTER(Request), ctypes.c_int64,
                           ctypes.c_double, _Out, _Out],
    "moetune_needs": [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(_Need), ctypes.c_size_t,
                      ctypes.POINTER(ctypes.c_size_t)],
    "moetune_make_workspace": [ctypes.c_void_p, ctypes.POINTER(Request), ctypes.c_size_t, ctypes.c_int64, _Out],
    "moetune_reserve": [ctypes.c_void_p, ctypes.POINTER(Request), ctypes.c_size_t, ctypes.c_int64],
    "moetune_reset": [ctypes.c_void_p],
    "moetune_launch": [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.POINTER(_Operand),
                       ctypes.c_size_t, ctypes.c_void_p],
    "moetune_launch_layer": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
                             ctypes.POINTER(_Operand), ctypes.c_size_t, ctypes.c_void_p],
    "moetune_launch_scaled": [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
                              ctypes.POINTER(_Operand), ctypes.c_size_t, ctypes.POINTER(Strides), ctypes.c_void_p],
    "moetune_choose": [ctypes.c_void_p, ctypes.POINTER(Choice), ctypes.c_int64, ctypes.c_char_p,
                       *[ctypes.c_void_p] * 5],
    "moetune_route": [ctypes.c_void_p, *[ctypes.c_int64] * 4, ctypes.c_int, *[ctypes.c_void_p] * 4],
    "moetune_reorder": [ctypes.c_void_p, ctypes.c_char_p, *[ctypes.c_int64] * 3, ctypes.c_int, *[ctypes.c_void_p] * 6]}


def _load():
    here = pathlib.Path(__file__).parent
    by_pip = here.name.endswith("-packages")  # in lib/python3.x/
    path = here / ("../../libmoetune.so" if by_pip else "lib/libmoetune.so")
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"{path}: {error}") from error
    for name, arguments in _ARGUMENTS.items():
        getattr(loaded, name).argtypes = arguments
    for name in ("moetune_error", "moetune_kernel_name", "moetune_kernel_id"):
        getattr(loaded, name).restype = ctypes.c_char_p
    for name in ("moetune_close", "moetune_device", "moetune_free_workspace", "moetune_workspace_bytes",
                 "moetune_kernel_name", "moetune_kernel_id"):
        getattr(loaded, name).argtypes = [ctypes.c_void_p]
    loaded.moetune_workspace_bytes.restype = ctypes.c_int64
    return loaded


_c = _load()


def require(result):
    """Raises Error, with the library's sentence, for a result that is not 0."""
    if result:
        raise Error(_c.moetune_error().decode(errors="replace"))


def _integer(name, value):
    """For ctypes, which would wrap a larger number."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or not -2**63 <= number < 2**63:
        raise Error(f"{name} must be an integer of 64 bits, not {value!r}")
    return number


def _number(name, value):
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Error(f"{name} must be a number, not {value!r}") from None


def _text(name, value):
    """For ctypes, which would end a text at a zero."""
    if not isinstance(value, str) or "\0" in value:
        raise Error(f"{name} must be a text without zeros, not {value!r}")
    return value.encode(errors="surrogateescape")


def request_of(*, experts, top_k, n, k, op="fwd", dtype="bf16", fusion="plain"):
    return Request(_text("op", op), _text("dtype", dtype), _text("fusion", fusion), _integer("experts", experts),
                   _integer("top_k", top_k), _integer("n", n), _integer("k", k))


def _handle_of(stream):
    """Of torch's current stream, if it is None."""
    if stream is not None:
        return stream if isinstance(stream, ctypes.c_void_p) else _integer("stream", stream)
    torch = sys.modules.get("torch")
    return torch.cuda.current_stream().cuda_stream if torch else None


# ---- Operands -------------------------------------------------------------------------------------------------------

_TORCH_DTYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32", "int32": "torch.int32",
                 "int64": "torch.int64", "fp8": "torch.float8_e4m3fn", "int8": "torch.int8", "uint8": "torch.uint8"}


class Need(typing.NamedTuple):
    """What an operand must be. `exact`: of this shape; others may have more rows, in any number of dimensions before
    the columns. With `top_k`, a value for each slot, which may also be [tokens, top_k]. Scales may lie anyhow, and end
    in more sides of 1."""
    name: str
    dtype: str
    shape: list
    exact: bool
    top_k: int = 0

    @classmethod
    def of(cls, need):
        """From the C interface. Two elements of 4 bits are one of torch.uint8, and so is a power of two (e8m0)."""
        dtype, shape = need.dtype.decode(), need.shape[:need.dims]
        if dtype in ("int4", "uint4", "e2m1"):
            dtype, shape = "uint8", [*shape[:-1], shape[-1] // 2]
        elif dtype == "e8m0":
            dtype = "uint8"
        return cls(need.name.decode(), dtype, shape, bool(need.exact), need.top_k)

    @property
    def is_scales(self):
        return self.name.endswith("_scales")

    def fits(self, shape):
        if self.is_scales:
            shape, ones = (shape or [1])[:len(self.shape)], shape[len(self.shape):]
            if len(shape) < len(self.shape) or set(ones) - {1}:
                return False
        if self.exact:
            return shape == self.shape
        rows, *columns = self.shape
        if not columns and self.top_k and shape[1:] == [self.top_k]:
            return math.prod(shape) >= rows
        if not columns:
            return len(shape) == 1 and shape[0] >= rows
        return len(shape) > 1 and shape[-1:] == columns and math.prod(shape[:-1]) >= rows

    def require(self, kernel, tensor, ordinal):
        """Raises Error for a tensor that does not fit, or is on another device."""
        if str(tensor.dtype) != _TORCH_DTYPES[self.dtype]:
            raise Error(f"{kernel}: '{self.name}' is of {tensor.dtype}, but must be of {_TORCH_DTYPES[self.dtype]}")
        device = getattr(tensor, "device", None)  # of a torch tensor; of others it isn't known
        if device is not None and (device.type, device.index) != ("cuda", ordinal):
            raise Error(f"{kernel}: '{self.name}' is on {device}, but the kernel on cuda:{ordinal}")
        if not tensor.is_contiguous() and not self.is_scales:
            raise Error(f"{kernel}: '{self.name}' is not contiguous")
        if not self.fits(list(tensor.shape)):
            by_token = f" or [{self.shape[0] // self.top_k}, {self.top_k}]" if self.top_k else ""
            more = "" if self.exact else f"{by_token}, or have more rows"
            raise Error(f"{kernel}: '{self.name}' is {list(tensor.shape)}, but must be {self.shape}{more}")


# ---- Libraries, kernels and workspaces ------------------------------------------------------------------------------

class Library:
    """A folder of exported kernels, on the device of the current CUDA context (torch's, or the first device).
    `other_gpu`: launch kernels also on a GPU of another name than the one that they were tuned on, if they run
    there."""

    def __init__(self, folder, other_gpu=False):
        self.folder, self.handle = pathlib.Path(folder), ctypes.c_void_p()
        require(_c.moetune_open(_text("folder", str(folder)), bool(other_gpu), ctypes.byref(self.handle)))
        self.device = _c.moetune_device(self.handle)

    def __del__(self):
        if getattr(self, "handle", None) and _c:
            _c.moetune_close(self.handle)

    def served(self):
        """What the export serves on this GPU: a dict for each tuned cell and each range of token counts."""
        first, count = ctypes.POINTER(_Served)(), ctypes.c_size_t()
        require(_c.moetune_list(self.handle, ctypes.byref(first), ctypes.byref(count)))
        texts = ("op", "dtype", "fusion")
        return [{"id": each.id.decode(), "kernel": each.kernel.decode(),
                 **{name: getattr(each.request, name).decode() for name in texts},
                 **{name: getattr(each.request, name) for name in ("experts", "top_k", "n", "k")},
                 "tokens": (each.tokens_from, None if each.tokens_to < 0 else each.tokens_to),
                 "skew": each.skew, "time_us": each.time_us} for each in first[:count.value]]

    @functools.cached_property
    def sums(self):
        """Whether layers add up their slots; exports of before don't."""
        return "sum" in json.loads((self.folder / "manifest.json").read_text())

    @functools.cached_property
    def requests(self):
        """(op, dtype, fusion, experts, top_k, n, k) of every computation that the export serves on this GPU."""
        return {tuple(each[name] for name, _ in Request._fields_) for each in self.served()}

    def pick(self, *, tokens, skew=None, **request):
        """The kernel for a computation (op="fwd", dtype="bf16" (or "fp16", "fp8-block", ...), fusion="plain", experts,
        top_k, n, k); see moetune_pick in moetune.h for which one it is. Error if the export has none."""
        handle = ctypes.c_void_p()
        asked = request_of(**request)
        require(_c.moetune_pick(self.handle, ctypes.byref(asked), _integer("tokens", tokens),
                                _number("skew", skew or 0), ctypes.byref(handle)))
        return Kernel(self, asked, handle)

    def pick_layer(self, *, tokens, up, down, skew=None):
        """The kernels of up and of down, whose computations are dicts as pick() takes them, as one Layer; see
        moetune_pick_layer in moetune.h."""
        handles, asked = (ctypes.c_void_p(), ctypes.c_void_p()), (request_of(**up), request_of(**down))
        require(_c.moetune_pick_layer(self.handle, *map(ctypes.byref, asked), _integer("tokens", tokens),
                                      _number("skew", skew or 0), *map(ctypes.byref, handles)))
        return Layer(*(Kernel(self, *part) for part in zip(asked, handles)))

    def choose(self, logits, topk_weights, topk_ids, bias=None, *, stream=None, **how):
        """Chooses experts from a router's logits [tokens, experts], in one kernel: writes topk_weights (fp32) and
        topk_ids (int32) [tokens, top_k]. `how`: score, renormalize, scale, groups and top_groups, as
        moetune_torch.choose takes them."""
        self.chooser(logits, topk_weights, topk_ids, bias, **how)(
            logits.data_ptr(), bias.data_ptr() if bias is not None else None, topk_weights.data_ptr(),
            topk_ids.data_ptr(), _handle_of(stream))

    def chooser(self, logits, topk_weights, topk_ids, bias, *, score="softmax", renormalize=True, scale=1.0, groups=1,
                top_groups=1):
        """`choose` of such tensors, which are checked, as a function of their addresses and a stream."""
        if score not in ("softmax", "sigmoid"):
            raise Error(f"choose: the score is softmax or sigmoid, not {score}")
        (tokens, top_k), experts = topk_ids.shape, logits.shape[-1]
        dtype = next((name for name in ("bf16", "fp16") if str(logits.dtype) == _TORCH_DTYPES[name]), "fp32")
        for tensor, *need in ((logits, "logits", dtype, [tokens, experts]), (bias, "bias", "fp32", [experts]),
                              (topk_weights, "topk_weights", "fp32", [tokens, top_k]),
                              (topk_ids, "topk_ids", "int32", [tokens, top_k])):
            if tensor is not None:
                Need(*need, True).require("choose", tensor, self.device)
        how = ctypes.byref(Choice(experts, top_k, _integer("groups", groups), _integer("top_groups", top_groups),
                                  score == "sigmoid", bool(renormalize), _number("scale", scale)))
        call, dtype = _c.moetune_choose, dtype.encode()
        return lambda *addresses: require(call(self.handle, how, tokens, dtype, *addresses))

    def route(self, topk_ids, m_sizes, gather_indices, first_expert=0, stream=None):
        """Sorts a routing by expert, in one kernel, without a sync. topk_ids [tokens, top_k] are int32 or int64; those
        of the experts from first_expert on are sorted. Writes m_sizes [experts] and gather_indices [rows], both int32:
        the slot (token * top_k + choice) of each row in expert order, -1 behind the last."""
        ids = "int64" if str(topk_ids.dtype) == "torch.int64" else "int32"
        stream = _handle_of(stream)
        Need("topk_ids", ids, list(topk_ids.shape), True).require("route", topk_ids, self.device)
        for name, tensor in (("m_sizes", m_sizes), ("gather_indices", gather_indices)):
            Need(name, "int32", [math.prod(tensor.shape)], True).require("route", tensor, self.device)
        self.launch_route(topk_ids, m_sizes, gather_indices, _integer("first_expert", first_expert), stream)

    def launch_route(self, topk_ids, m_sizes, gather_indices, first_expert, stream):
        """`route`, of tensors that were checked before."""
        require(_c.moetune_route(self.handle, m_sizes.numel(), topk_ids.numel(), first_expert, gather_indices.numel(),
                                 topk_ids.element_size(), topk_ids.data_ptr(), m_sizes.data_ptr(),
                                 gather_indices.data_ptr(), stream))

    def reorder(self, format, w, w_scales, w_zeros=None, *, out, gates=None, stream=None):
        """Reorders weights of 4 bits as kernels of `format` ("mxfp4-reordered") read them, once ahead of time, and waits
        for it. w is torch.uint8 [experts, n, k / 2], the even column in the low bits; w_scales [experts, n, k / group] of
        the format's dtype (mxfp4: torch.uint8, powers of two plus 127); w_zeros, of uint4 alone, torch.uint8 [experts,
        n / 2, k / group], the even row in the low bits. gates is None, "first" where W has all gates before all ups, or
        "interleaved" where they alternate. `out` is torch.uint8, contiguous, as the kernel's need of "w" says."""
        words = {None: 0, "first": 1, "interleaved": 2}
        if gates not in words:
            raise Error(f"reorder: gates is {gates!r}, but must be None, 'first' or 'interleaved'")
        for name, tensor in (("w", w), ("w_scales", w_scales), ("w_zeros", w_zeros), ("out", out)):
            if tensor is not None and (len(tensor.shape) != 3 or not tensor.is_contiguous()):
                raise Error(f"reorder: '{name}' must be contiguous and have three sides")
        experts, n, half = w.shape
        for name, tensor in (("w", w), ("out", out)):
            if str(tensor.dtype) != "torch.uint8":
                raise Error(f"reorder: '{name}' is of {tensor.dtype}, but must be of torch.uint8")
        words_of_group = re.search(r"group(\d+)", format)
        groups = -(-2 * half // (int(words_of_group[1]) if words_of_group else 32))
        if list(w_scales.shape) != [experts, n, groups]:
            raise Error(f"reorder: w_scales are {list(w_scales.shape)}, but must be {[experts, n, groups]}")
        if w_zeros is not None and list(w_zeros.shape) != [experts, n // 2, groups]:
            raise Error(f"reorder: w_zeros are {list(w_zeros.shape)}, but must be {[experts, n // 2, groups]}")
        refused = w.new_zeros((8,))
        require(_c.moetune_reorder(self.handle, format.encode(), experts, n, 2 * half, words[gates], w.data_ptr(),
                                   w_scales.data_ptr(), None if w_zeros is None else w_zeros.data_ptr(),
                                   out.data_ptr(), refused.data_ptr(), _handle_of(stream)))
        if place := int.from_bytes(bytes(refused.tolist()), "little"):
            raise Error(f"reorder: scale {place - 1} of {format} can't be stored: those of mxfp4 are 2 at most")


class Kernel:
    """A kernel for one computation. `id` is that of the cell that it was picked by, or "range"."""
    call = staticmethod(_c.moetune_launch)

    def __init__(self, library, request, handle):
        self.library, self.handles, self.requests = library, (handle,), [request]  # the library must live as long
        self.name, self.id = _c.moetune_kernel_name(handle).decode(), _c.moetune_kernel_id(handle).decode()

    def needs(self, tokens, rows=None):
        """A Need for each operand of a launch with so many tokens. `rows` is the capacity of operands in expert order:
        tokens * top_k unless this rank holds fewer; m_sizes must not sum to more."""
        needs, count = (_Need * _MAX_OPERANDS)(), ctypes.c_size_t()
        tokens, rows = _integer("tokens", tokens), _integer("rows", -1 if rows is None else rows)
        require(_c.moetune_needs(*self.handles, tokens, rows, needs, _MAX_OPERANDS, ctypes.byref(count)))
        return [Need.of(need) for need in needs[:count.value]]

    def needs_met(self, tokens, rows, operands):
        """The needs of a launch that these operands fit. Error for operands that are missing or do not fit."""
        needs = self.needs(tokens, rows)
        for need in needs:
            if operands.get(need.name) is None:
                raise Error(f"{self.name}: the operand '{need.name}' is missing")
            need.require(self.name, operands[need.name], self.library.device)
        return needs

    def launch(self, tokens, workspace, rows=None, stream=None, **operands):
        """Puts the launch into the stream (a handle; torch's current one if it is None): nothing is synchronised,
        m_sizes stay on the device. A graph that captures the launch uses the same addresses in every replay. Error for
        operands that are missing, of another dtype or shape, too small, or not aligned."""
        if not isinstance(workspace, Workspace):
            raise Error(f"{self.name}: workspace must be a Workspace, not {workspace!r}")
        stream, needs = _handle_of(stream), self.needs_met(tokens, rows, operands)
        unknown = set(operands) - {need.name for need in needs}
        if unknown:
            raise Error(f"{self.name}: takes no operand '{min(unknown)}'; it takes {', '.join(n.name for n in needs)}")
        strides = Strides.of(operands["x_scales"], operands["w_scales"]) if "x_scales" in operands else None
        addresses = [operands[need.name].data_ptr() for need in needs]
        Prepared(self, tokens, rows, needs, strides).launch(workspace, addresses, stream)


class Layer(Kernel):
    """Two kernels, `up` and `down`, that one call launches. Operands are those of moetune_launch_layer: x, up, hidden,
    down, y, m_sizes, gather_indices, topk_weights, up_bias, down_bias, and sum where slots are to be added up."""
    call = staticmethod(_c.moetune_launch_layer)

    def __init__(self, up, down):
        self.up, self.down, self.library = up, down, up.library
        self.handles, self.requests = up.handles + down.handles, up.requests + down.requests
        self.name, self.id = f"{up.name}, then {down.name}", f"{up.id}, then {down.id}"

    def needs(self, tokens, rows=None):
        """A Need for each operand of both launches."""
        names = {self.up: {"w": "up", "y": "hidden", "bias": "up_bias"},
                 self.down: {"x": "hidden", "w": "down", "bias": "down_bias"}}
        needs = [need._replace(name=its.get(need.name, need.name))
                 for part, its in names.items() for need in part.needs(tokens, rows)]
        return list({need.name: need for need in needs}.values())

    def needs_met(self, tokens, rows, operands):
        needs = super().needs_met(tokens, rows, operands)
        if operands.get("sum") is not None:
            y = next(need for need in needs if need.name == "y")
            needs.append(Need("sum", y.dtype, [tokens, y.shape[-1]], True))
            needs[-1].require(self.name, operands["sum"], self.library.device)
        return needs


class Prepared:
    """A kernel with a number of tokens, for launches whose operands were checked. `strides` are those of its scales."""

    def __init__(self, kernel, tokens, rows, needs, strides=None):
        self._kernel, self._handles = kernel, kernel.handles
        self._launch = kernel.call if strides is None else _c.moetune_launch_scaled
        self._strides = () if strides is None else (strides,)
        self._tokens, self._rows = tokens, -1 if rows is None else rows
        self._names, self._free = [need.name.encode() for need in needs], []

    def launch(self, workspace, addresses, stream):
        """`addresses` in the order of the kernel's needs."""
        try:
            array, operands = self._free.pop()  # threads take different ones
        except IndexError:
            array = (_Operand * len(self._names))(*((name, None, -1) for name in self._names))
            operands = list(array)
        for operand, address in zip(operands, addresses):
            operand.data = address
        result = self._launch(*self._handles, self._tokens, self._rows, workspace.handle, array, len(operands),
                              *self._strides, stream)
        self._free.append((array, operands))
        if result:
            require(result)


class Workspace:
    """The device memory of one launch in flight, for the requests (all that the library serves, if there are none) with
    at most so many tokens. Make it before a graph is captured, and keep it as long as the graph. Launches that may run
    at the same time need one each."""

    def __init__(self, library, tokens, requests=()):
        self.library, self.handle = library, ctypes.c_void_p()
        require(_c.moetune_make_workspace(library.handle, *self._array(requests),
                                          _integer("tokens", tokens), ctypes.byref(self.handle)))

    def __del__(self):
        if getattr(self, "handle", None) and _c:
            _c.moetune_free_workspace(self.handle)

    @staticmethod
    def _array(requests):
        requests = [each if isinstance(each, Request) else request_of(**each) for each in requests]
        return (Request * len(requests))(*requests), len(requests)

    def reserve(self, tokens, requests=()):
        """Adds room. Captured graphs keep the memory that they have."""
        require(_c.moetune_reserve(self.handle, *self._array(requests), _integer("tokens", tokens)))

    @property
    def bytes(self):
        return _c.moetune_workspace_bytes(self.handle)

    def reset(self):
        """Zeroes the counters again, after a launch that failed or was cut off. Waits for the device."""
        require(_c.moetune_reset(self.handle))
