"""Launches kernels that `moetune export --format kernels` wrote, over the CUDA driver API: no moetune, no NVRTC, no
other package. Takes torch tensors (anything with data_ptr(), dtype, shape and is_contiguous()) and torch's current
stream.

    library = Library("kernels-h200")
    kernel = library.pick(op="fwd", experts=128, top_k=8, n=1536, k=2048, tokens=256)
    workspace = Workspace([kernel], tokens=256)
    kernel.call(256, workspace).launch(x=x, w=w, y=y, m_sizes=m_sizes)
"""
import ast
import ctypes
import hashlib
import json
import math
import operator
import pathlib
import re
import sys

SCHEMA, ABI = "moetune.kernels/1", 1


class Error(Exception):
    """What cannot be done, and why: a damaged manifest or cubin, another GPU, operands that do not fit, a driver's
    error."""


# ---- Formulas -------------------------------------------------------------------------------------------------------

def _wrapped(value):
    """64 bits with a sign, as in C++."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _divide(left, right):
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _ceil_div(left, right):
    quotient = _divide(left, right)
    return quotient + 1 if quotient * right < left else quotient


_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: _divide,
              ast.Mod: lambda left, right: left - _divide(left, right) * right}
_FUNCTIONS = {"min": min, "max": max, "ceil_div": _ceil_div}
_ALLOWED = re.compile(r"[0-9A-Za-z_+\-*/%(), ]*")


def evaluate(formula, sizes):
    """Integer arithmetic over named sizes: numbers, names, + - * / % with the usual precedence, parentheses, min(a, b),
    max(a, b), ceil_div(a, b). Division rounds towards zero; 64 bits, which wrap. ValueError for anything else."""
    def fail(what):
        raise ValueError(f"formula '{formula}': {what}")

    def value_of(node):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value < 1 << 63:
            return node.value
        if isinstance(node, ast.Name):
            if node.id not in sizes:
                fail(f"unknown name '{node.id}'")
            return sizes[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = value_of(node.left), value_of(node.right)
            if right == 0 and isinstance(node.op, (ast.Div, ast.Mod)):
                fail("division by zero")
            return _wrapped(_OPERATORS[type(node.op)](left, right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            if node.func.id not in _FUNCTIONS:
                fail(f"unknown function '{node.func.id}'")
            if len(node.args) == 2:
                left, right = map(value_of, node.args)
                if right == 0 and node.func.id == "ceil_div":
                    fail("division by zero")
                return _FUNCTIONS[node.func.id](left, right)
        return fail("not a formula")

    if not isinstance(formula, str) or not _ALLOWED.fullmatch(formula) or "**" in formula or "//" in formula:
        fail("not a formula")
    try:
        return value_of(ast.parse(formula.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        return fail("not a formula")


# ---- The driver -----------------------------------------------------------------------------------------------------

class _Dim(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class _AttributeValue(ctypes.Union):
    _fields_ = [("bytes", ctypes.c_char * 64), ("cooperative", ctypes.c_int), ("cluster", _Dim)]


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("_pad", ctypes.c_int), ("value", _AttributeValue)]


class _Config(ctypes.Structure):
    _fields_ = [("grid", _Dim), ("block", _Dim), ("shared_bytes", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.POINTER(_Attribute)), ("attribute_count", ctypes.c_uint)]


_COOPERATIVE, _CLUSTER = 2, 4  # CUlaunchAttributeID
_MAX_DYNAMIC_SHARED = 8  # CUfunction_attribute
_MAJOR, _MINOR, _PROCESSORS = 75, 76, 16  # CUdevice_attribute
_MAP_TYPES = {"fp16": 6, "bf16": 9}  # CUtensorMapDataType
_SWIZZLE_128, _PROMOTION = 3, {0: 0, 128: 2}
_MAP_BYTES, _MAX_STRUCT = 128, 4096


def _aligned(size, alignment):
    """A buffer of `size` zeros whose address is a multiple of `alignment`, and that address."""
    buffer = ctypes.create_string_buffer(size + alignment)
    return buffer, (ctypes.addressof(buffer) + alignment - 1) // alignment * alignment


class _Driver:
    def __init__(self):
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Error(f"no CUDA driver: {error}") from error

    def __call__(self, name, *arguments, what):
        result = getattr(self.library, name)(*arguments)
        if result:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(result, ctypes.byref(text))
            raise Error(f"{what}: {text.value.decode() if text.value else f'error {result}'}")

    def need_context(self):
        """The device of the current context. Where there is none, the first device's primary context, as torch uses it,
        becomes the current one."""
        self("cuInit", 0, what="no CUDA device")
        self.context = ctypes.c_void_p()
        self("cuCtxGetCurrent", ctypes.byref(self.context), what="no CUDA context")
        if not self.context:
            self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0, what="no CUDA device")
            self.enter()
        device = ctypes.c_int()
        self("cuCtxGetDevice", ctypes.byref(device), what="no CUDA context")
        self.ordinal = device.value
        return device

    def enter(self):
        """Makes need_context's context current in a thread without one, such as that of torch's backward pass."""
        context = ctypes.c_void_p()
        self("cuCtxGetCurrent", ctypes.byref(context), what="no CUDA context")
        if not context:
            self("cuCtxSetCurrent", self.context, what="no CUDA context")

    def attribute(self, which, device):
        value = ctypes.c_int()
        self("cuDeviceGetAttribute", ctypes.byref(value), which, device, what="cannot read the device's attributes")
        return value.value

    def held_blocks(self, function, launch, processors):
        """How many blocks of a launch fit on the device at once."""
        threads, shared, cluster = launch["threads"], launch["shared_bytes"], launch["cluster"]
        self("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared, what="cannot set the kernel's shared memory")
        count = ctypes.c_int()
        if cluster > 1:
            attribute = _Attribute(id=_CLUSTER)
            attribute.value.cluster = _Dim(cluster, 1, 1)
            config = _Config(_Dim(cluster, 1, 1), _Dim(threads, 1, 1), shared, None, ctypes.pointer(attribute), 1)
            self("cuOccupancyMaxActiveClusters", ctypes.byref(count), function, ctypes.byref(config),
                 what="cannot tell how many clusters fit on the device")
            if count.value == 0:
                raise Error("no cluster of the kernel fits on the device")
            return count.value * cluster
        self("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(count), function, threads,
             ctypes.c_size_t(shared), what="cannot tell the kernel's occupancy")
        if count.value == 0:
            raise Error("no block of the kernel fits on a processor")
        most = launch["most_per_processor"]
        return (count.value if most is None else min(count.value, most)) * processors

    def launch(self, function, grid, threads, shared_bytes, cooperative, arguments, stream, what):
        attribute = _Attribute(id=_COOPERATIVE)
        attribute.value.cooperative = 1
        config = _Config(_Dim(grid, 1, 1), _Dim(threads, 1, 1), shared_bytes, stream, ctypes.pointer(attribute),
                         1 if cooperative else 0)
        addresses = (ctypes.c_void_p * len(arguments))(*arguments)
        self("cuLaunchKernelEx", ctypes.byref(config), function, addresses, None, what=what)


def _current_stream():
    torch = sys.modules.get("torch")
    return torch.cuda.current_stream().cuda_stream if torch else 0


def closeness(arch, capability):
    """How close an architecture comes to a compute capability; 0 where it doesn't run there. "sm_90a" runs on 9.0 alone,
    "sm_80" on 8.0 and what is newer of 8; the newest that runs is the closest."""
    found = re.fullmatch(r"sm_(\d+)(a?)", arch)
    if not found:
        return 0
    number = int(found[1])
    runs = number == capability if found[2] else number // 10 == capability // 10 and number <= capability
    return 2 * number + len(found[2]) if runs else 0


# ---- Operands -------------------------------------------------------------------------------------------------------

_DTYPES = {"bf16": ("torch.bfloat16", 2), "fp16": ("torch.float16", 2), "fp32": ("torch.float32", 4),
           "int32": ("torch.int32", 4), "int64": ("torch.int64", 8)}


def _known(table, key, what):
    if key not in table:
        raise ValueError(f"'{key}' is {what} that this loader does not know")
    return table[key]


def _whole(given, name, least):
    if type(given[name]) is not int or given[name] < least:
        raise ValueError(f"'{name}' must be a whole number from {least} on, and is {given[name]!r}")
    return given[name]


class _Need:
    """What an operand must be. Weights and m_sizes have one exact shape: [experts, rows, columns] or [experts]. Others
    may have more rows than needed, in any number of dimensions before the columns. A value for each slot may also be
    [tokens, top_k]. `by_element`: kernels read one element at a time."""

    def __init__(self, dtype, shape, exact=False, top_k=None, by_element=False):
        self.dtype, size = _known(_DTYPES, dtype, "a type")
        self.shape, self.exact, self.top_k = shape, exact, top_k
        # Kernels read and write at most 16 bytes at a time, and no more than what divides a row's bytes.
        self.alignment = math.gcd(16, size * (1 if by_element or len(shape) < 2 else shape[-1]))

    def fits(self, shape):
        if self.exact:
            return shape == self.shape
        rows, *columns = self.shape
        if not columns and self.top_k and shape[1:] == [self.top_k]:
            return math.prod(shape) >= rows
        if not columns:
            return len(shape) == 1 and shape[0] >= rows
        return len(shape) > 1 and shape[-1:] == columns and math.prod(shape[:-1]) >= rows

    def __str__(self):
        if self.exact:
            return str(self.shape)
        by_token = f" or [{self.shape[0] // self.top_k}, {self.top_k}]" if self.top_k else ""
        return f"{self.shape}{by_token}, or have more rows"


def _need_of(operand, sizes):
    """By the manifest's operand, whose matrices of experts lie one behind another: their rows are "experts * n"."""
    rows, *columns = operand["shape"]
    shape = [evaluate(side, sizes) for side in (rows, *columns)]
    if rows.startswith("experts * "):
        return _Need(operand["dtype"], [sizes["experts"], evaluate(rows[len("experts * "):], sizes), *shape[1:]], exact=True)
    by_slot = rows == "slots" and not columns
    return _Need(operand["dtype"], shape, exact=rows == "experts", top_k=sizes["top_k"] if by_slot else None)


def _require_fit(kernel, name, tensor, need, ordinal):
    device = getattr(tensor, "device", None)  # of a torch tensor; of others it isn't known
    if device is not None and (device.type, device.index) != ("cuda", ordinal):
        raise Error(f"{kernel}: '{name}' is on {device}, but the kernel on cuda:{ordinal}")
    if str(tensor.dtype) != need.dtype:
        raise Error(f"{kernel}: '{name}' is of {tensor.dtype}, but must be of {need.dtype}")
    if not tensor.is_contiguous():
        raise Error(f"{kernel}: '{name}' is not contiguous")
    shape = list(tensor.shape)
    if not need.fits(shape):
        raise Error(f"{kernel}: '{name}' is {shape}, but must be {need}")
    if tensor.data_ptr() % need.alignment:
        raise Error(f"{kernel}: '{name}' must begin at a multiple of {need.alignment} bytes")


class _Step:
    """A launch or a fill, with all that follows from the size of a call."""

    def __init__(self, launch, function, held, sizes):
        self.function = function
        if "fill" in launch:
            fill = launch["fill"]
            self.filled, self.byte, self.bytes = fill["pointer"], _whole(fill, "byte", 0), evaluate(fill["bytes"], sizes)
            self.pointers = [self.filled]
            return
        sizes = {**sizes, "held": held}
        self.grid = evaluate(launch["grid"], sizes)
        self.threads, self.shared_bytes = launch["threads"], launch["shared_bytes"]
        self.cooperative = launch["cooperative"]
        self.arguments = [self._argument(argument, sizes) for argument in launch["arguments"]]
        if not self.arguments:
            raise ValueError("a kernel has no arguments")
        self.pointers = [value[0] if kind == "map" else value for _, fields in self.arguments
                         for _, kind, value in fields if kind in ("pointer", "map")]

    def _argument(self, argument, sizes):
        """(size, [(offset, kind, value)])."""
        if "struct" not in argument:
            return 8, [(0, *self._field(argument, sizes))]
        struct = argument["struct"]
        if not 0 < struct["size"] <= _MAX_STRUCT or struct["alignment"] > 64:
            raise ValueError("it has a struct that no kernel takes")
        fields = [(field["offset"], *self._field(field, sizes)) for field in struct["fields"]]
        for offset, kind, _ in fields:
            if not 0 <= offset <= struct["size"] - {"map": _MAP_BYTES, "int32": 4}.get(kind, 8):
                raise ValueError("it has a field outside its struct")
        return struct["size"], fields

    def _field(self, field, sizes):
        if "pointer" in field:
            return "pointer", field["pointer"]
        if "tensor_map" in field:
            given = field["tensor_map"]
            size = [evaluate(formula, sizes) for formula in given["sizes"]]
            stride = [evaluate(formula, sizes) for formula in given["strides"]]
            box = [*given["box"], *[1] * (len(size) - 2)]
            if given["swizzle"] != 128 or not 2 <= len(size) <= 5 or len(stride) + 1 != len(size):
                raise ValueError("it has a tensor map that this loader does not know")
            return "map", (given["pointer"], _known(_MAP_TYPES, given["dtype"], "a type of maps"),
                           _known(_PROMOTION, given["l2_promotion"], "a promotion"),
                           (ctypes.c_uint64 * len(size))(*size), (ctypes.c_uint64 * len(stride))(*stride),
                           (ctypes.c_uint32 * len(size))(*box), (ctypes.c_uint32 * len(size))(*[1] * len(size)))
        kind = "int32" if "int32" in field else "int64"
        return kind, evaluate(field[kind], sizes)

    def launch(self, driver, address, stream, what):
        if self.function is None:
            if self.bytes > 0:
                driver("cuMemsetD8Async", ctypes.c_uint64(address(self.filled)), ctypes.c_ubyte(self.byte),
                       ctypes.c_size_t(self.bytes), ctypes.c_void_p(stream), what=f"{what}: cannot fill memory")
            return
        kept, places = [], []
        for size, fields in self.arguments:
            buffer, at = _aligned(size, 64)
            kept.append(buffer)
            places.append(at)
            for offset, kind, value in fields:
                if kind == "pointer":
                    ctypes.c_uint64.from_address(at + offset).value = address(value)
                elif kind == "map":
                    name, element, promotion, size_of, stride, box, every = value
                    driver("cuTensorMapEncodeTiled", ctypes.c_void_p(at + offset), element, len(size_of),
                           ctypes.c_void_p(address(name)), size_of, stride, box, every, 0, _SWIZZLE_128, promotion, 0,
                           what=f"{what}: no tensor map of '{name}', which must begin at a multiple of 16 bytes")
                elif kind == "int32":
                    ctypes.c_int32.from_address(at + offset).value = value
                else:
                    ctypes.c_int64.from_address(at + offset).value = value
        driver.launch(self.function, self.grid, self.threads, self.shared_bytes, self.cooperative, places, stream,
                      f"{what}: cannot be launched")


class Call:
    """One kernel with all that follows from the size of a call: cheap to launch again."""

    def __init__(self, driver, name, operands, steps, workspace):
        self._driver, self._name, self._operands, self._steps, self._workspace = driver, name, operands, steps, workspace
        known = {*operands, *(workspace._buffers if workspace else ())}
        for pointer in (pointer for step in steps for pointer in step.pointers):
            if pointer not in known:
                raise Error(f"{name}: no operand or buffer is called '{pointer}'")

    def launch(self, stream=None, **operands):
        """Puts the launches into the stream (a handle; torch's current one where it is None): nothing is synchronised,
        m_sizes stay on the device. Tensor maps contain the operands' addresses: a graph that captures the launch
        uses the same addresses in every replay. Error for operands that are missing, of another dtype or shape, too
        small, or not aligned."""
        for name, need in self._operands.items():
            if operands.get(name) is None:
                raise Error(f"{self._name}: the operand '{name}' is missing")
            _require_fit(self._name, name, operands[name], need, self._driver.ordinal)
        unknown = set(operands) - set(self._operands)
        if unknown:
            raise Error(f"{self._name}: takes no operand '{min(unknown)}'; it takes {', '.join(self._operands)}")

        def address(name):
            return operands[name].data_ptr() if name in operands else self._workspace.address(name)

        stream = _current_stream() if stream is None else stream
        self._driver.enter()
        for step in self._steps:
            step.launch(self._driver, address, stream, self._name)


class Kernel:
    """A kernel for one computation, loaded into the context that was current. `description` is the manifest's kernel,
    `cell` the cell or range that it was picked by."""

    def __init__(self, library, description, cell):
        self.name, self.description, self.cell = description["name"], description, cell
        self._library = library
        self.operands = [operand["name"] for operand in description["operands"]]
        self._loaded = [(None, 0) if "fill" in launch else library._loaded(launch)
                        for launch in description["launches"]]

    def _sizes(self, tokens, rows):
        top_k = self.cell["asked"]["top_k"]
        slots = tokens * top_k
        rows = slots if rows is None else rows
        if tokens < 0 or not 0 <= rows <= slots:
            raise Error(f"{self.name}: {rows} rows of {tokens} tokens: at most tokens * top_k = {slots}")
        extents = {name: _whole(self.cell["extents"], name, 0) for name in ("m", "n", "k")}
        sizes = {**extents, "experts": self.cell["asked"]["experts"], "top_k": top_k, "tokens": tokens,
                 "slots": slots, "rows": rows, "processors": self._library.processors}
        for name, formula in self.description["sizes"].items():
            sizes[name] = evaluate(formula, sizes)
        return sizes

    def _buffers(self, tokens, rows):
        with _telling(self._library.folder / "manifest.json"):
            sizes = {**self._sizes(tokens, rows), "held": self._loaded[0][1]}
            sizes["blocks"] = evaluate(self.description["launches"][0]["grid"], sizes)
            return {buffer["name"]: (evaluate(buffer["bytes"], sizes), buffer["zeroed"])
                    for buffer in self.description["buffers"]}

    def call(self, tokens, workspace, rows=None):
        """All that a launch of this many tokens needs. `rows` is the capacity of operands in expert order: tokens * top_k
        unless this rank holds fewer; m_sizes must not sum to more. Error where the workspace lacks room."""
        with _telling(self._library.folder / "manifest.json"):
            sizes = self._sizes(tokens, rows)
            for name, (needed, _) in self._buffers(tokens, rows).items():
                if workspace.room(name) < needed:
                    raise Error(f"{self.name}: the workspace was made for other kernels or fewer tokens: it needs {needed} "
                                f"bytes of {name}")
            operands = {operand["name"]: _need_of(operand, sizes) for operand in self.description["operands"]}
            steps = [_Step(launch, function, held, sizes)
                     for launch, (function, held) in zip(self.description["launches"], self._loaded)]
            return Call(self._library._driver, self.name, operands, steps, workspace)


class Workspace:
    """The device memory of one launch in flight: counters, sums, gathered rows and maps that blocks rewrite. Counters
    are zeroed once, here, and every launch leaves them zero. Make it before a graph is captured, and keep it as long as
    the graph. Launches that may run at the same time need one each."""

    def __init__(self, kernels, tokens, rows=None):
        self._driver, self._buffers = kernels[0]._library._driver, {}
        self._driver.enter()
        needs = {}
        for kernel in kernels:
            for name, (needed, zeroed) in kernel._buffers(tokens, rows).items():
                before = needs.get(name, (1, False))
                needs[name] = (max(before[0], needed), before[1] or zeroed)
        for name, (needed, zeroed) in sorted(needs.items(), key=str):
            data = ctypes.c_uint64()
            self._driver("cuMemAlloc_v2", ctypes.byref(data), ctypes.c_size_t(needed), what="no memory for a workspace")
            self._buffers[name] = (data.value, needed, zeroed)
        self.reset()

    def __del__(self):
        for data, _, _ in getattr(self, "_buffers", {}).values():
            self._driver.library.cuMemFree_v2(ctypes.c_uint64(data))

    def room(self, name):
        return self._buffers[name][1] if name in self._buffers else -1

    def address(self, name):
        return self._buffers[name][0]

    @property
    def bytes(self):
        return sum(size for _, size, _ in self._buffers.values())

    def reset(self):
        """Zeroes the counters again, after a launch that failed or was cut off. Waits for the device."""
        self._driver.enter()
        for data, size, zeroed in self._buffers.values():
            if zeroed:
                self._driver("cuMemsetD8_v2", ctypes.c_uint64(data), ctypes.c_ubyte(0), ctypes.c_size_t(size),
                             what="cannot clear the workspace")
        self._driver("cuCtxSynchronize", what="cannot clear the workspace")


class Library:
    """A folder of exported kernels. Checks the manifest against the device of the current context (torch's, or the
    first). `other_gpu`: launch kernels also on a GPU of another name than the one that they were tuned on, where the
    architecture allows it."""

    def __init__(self, folder, other_gpu=False):
        self.folder = pathlib.Path(folder)
        path = self.folder / "manifest.json"
        try:
            text = path.read_bytes()
            digest = (self.folder / "manifest.sha256").read_text(encoding="ascii")[:64]
            if digest != hashlib.sha256(text).hexdigest():
                raise Error(f"{path}: was changed or cut short: manifest.sha256 has another digest")
            self.manifest = json.loads(text)
        except (OSError, ValueError) as error:
            raise Error(f"{path}: {error}") from error
        with _telling(path):
            if self.manifest["schema"] != SCHEMA or self.manifest["abi"] != ABI:
                raise Error(f"{path}: is of another version than this loader ({SCHEMA}, abi {ABI})")
            self._driver = _Driver()
            device = self._driver.need_context()
            name = ctypes.create_string_buffer(256)
            self._driver("cuDeviceGetName", name, 256, device, what="cannot read the device's name")
            name = name.value.decode()
            self.capability = self._driver.attribute(_MAJOR, device) * 10 + self._driver.attribute(_MINOR, device)
            self.processors = self._driver.attribute(_PROCESSORS, device)
            self._modules, self._kernels = {}, {}
            if not any(closeness(cell["arch"], self.capability) for cell in self.manifest["cells"]):
                raise Error(f"{path}: has no kernels for {name}, compute capability {self.capability}")
            tuned_on = self.manifest["device"]
            if closeness(tuned_on["arch"], self.capability) and tuned_on["name"] != name and not other_gpu:
                raise Error(f"{path}: was tuned on {tuned_on['name']}, and this is {name}; pass other_gpu=True to launch "
                            "its kernels all the same")

    def pick(self, *, tokens, experts, top_k, n, k, op="fwd", dtype="bf16", fusion="plain", skew=None):
        """The kernel for a computation. `fusion` is spelled as moetune does: "plain", "permute_x",
        "permute_y+topk_weights". `skew` is a hint: rows of the largest expert over the mean; with it the nearest cell
        counts, by doublings of tokens and of skew together. Without it the robust choice for the tokens; where the
        table has none, of the cells nearest in tokens the most skewed. Of two equally near cells the one with fewer
        tokens. Where the export is for several architectures that run here, those of the closest count. Error where
        there is no kernel for it."""
        asked = {"op": op, "dtype": dtype, "experts": experts, "top_k": top_k, "n": n, "k": k, "fusion": fusion}
        with _telling(self.folder / "manifest.json"):
            ranges, cells = self._answers(asked)
            for place, served in ranges if skew is None else []:
                tokens_of = served["tokens"]
                if tokens_of["from"] <= tokens and (tokens_of["to"] is None or tokens <= tokens_of["to"]):
                    return self._load(("range", place), served)
            best, least = None, None
            for place, cell in cells:
                distance = _doublings(tokens, cell["tokens"])
                if skew is not None:
                    distance = math.hypot(distance, _doublings(skew, cell["skew"]))
                rank = (_rounded(distance), cell["tokens"], -cell["skew"] if skew is None else 0)
                if best is None or rank < least:
                    best, least = (("cell", place), cell), rank
            if best is None:
                raise Error(f"{self.folder / 'manifest.json'}: has no kernel for {op} {dtype} {fusion}, {experts} experts, "
                            f"top {top_k}, n {n}, k {k} on this GPU")
            return self._load(*best)

    def route(self, topk_ids, m_sizes, gather_indices, first_expert=0, stream=None):
        """Sorts a routing by expert, in one kernel, without a sync. topk_ids [tokens, top_k] are int32 or int64; those of
        the experts from first_expert on are sorted. Writes m_sizes [experts] and gather_indices [rows], both int32: the
        slot (token * top_k + choice) of each row in expert order, -1 behind the last."""
        ids = "int64" if str(topk_ids.dtype) == "torch.int64" else "int32"
        slots, rows = math.prod(topk_ids.shape), math.prod(gather_indices.shape)
        sizes = {"experts": math.prod(m_sizes.shape), "slots": slots, "rows": rows, "first_expert": first_expert}
        operands = {"m_sizes": _Need("int32", [sizes["experts"]], exact=True), "gather_indices": _Need("int32", [rows]),
                    "topk_ids": _Need(ids, list(topk_ids.shape), exact=True, by_element=True)}
        with _telling(self.folder / "manifest.json"):
            launch = self.manifest["route"][ids]
            call = Call(self._driver, "route", operands, [_Step(launch, *self._loaded(launch), sizes)], None)
        call.launch(stream=stream, m_sizes=m_sizes, gather_indices=gather_indices, topk_ids=topk_ids)

    def _answers(self, asked):
        """Ranges and cells of the closest architecture that has any for what is asked, each with its place."""
        with _telling(self.folder / "manifest.json"):
            served = [[(closeness(each["arch"], self.capability), place, each)
                       for place, each in enumerate(self.manifest[kind]) if each["asked"] == asked]
                      for kind in ("ranges", "cells")]
        closest = max([1, *(close for each in served for close, _, _ in each)])
        return [[(place, each) for close, place, each in kind if close == closest] for kind in served]

    def _load(self, key, cell):
        if key not in self._kernels:
            found = [kernel for kernel in self.manifest["kernels"] if kernel["name"] == cell["kernel"]]
            if not found:
                raise Error(f"{self.folder / 'manifest.json'}: has no kernel '{cell['kernel']}', which a cell names")
            self._kernels[key] = Kernel(self, found[0], cell)
        return self._kernels[key]

    def _loaded(self, launch):
        """(function, how many of its blocks fit on the device at once)."""
        arch = max(launch["cubin"], key=lambda arch: closeness(arch, self.capability), default="")
        if not closeness(arch, self.capability):
            raise Error(f"{launch['entry']}: has no cubin for compute capability {self.capability}")
        for name, least in (("threads", 1), ("shared_bytes", 0), ("cluster", 1), ("most_per_processor", 1)):
            if name != "most_per_processor" or launch[name] is not None:
                _whole(launch, name, least)
        function = self._function(launch["cubin"][arch], launch["entry"])
        return function, self._driver.held_blocks(function, launch, self.processors)

    def _function(self, file, entry):
        path = self.folder / file
        self._driver.enter()
        if file not in self._modules:
            expected = self.manifest["files"][file]
            if "/" in file or "\\" in file:
                raise Error(f"{path}: a cubin lies beside the manifest")
            try:
                data = path.read_bytes()
            except OSError as error:
                raise Error(f"{path}: {error}") from error
            if len(data) != expected["bytes"] or hashlib.sha256(data).hexdigest() != expected["sha256"]:
                raise Error(f"{path}: is not the file that the manifest names: it was changed or cut short")
            module = ctypes.c_void_p()
            self._driver("cuModuleLoadData", ctypes.byref(module), data, what=f"{path}: cannot be loaded")
            self._modules[file] = module
        function = ctypes.c_void_p()
        self._driver("cuModuleGetFunction", ctypes.byref(function), self._modules[file], entry.encode(),
                     what=f"{path}: has no kernel {entry}")
        return function


def _doublings(a, b):
    return abs(math.log2(max(a, 1e-9) / max(b, 1e-9)))


def _rounded(distance):
    """In millionths, so that rounding errors don't decide between two cells that are equally near."""
    return round(1e6 * distance)


class _telling:
    """Turns what a damaged manifest leads to into an Error that names it."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if isinstance(error, KeyError):
            raise Error(f"{self.path}: {error} is missing") from error
        if isinstance(error, (TypeError, ValueError, AttributeError, IndexError, OverflowError)):
            raise Error(f"{self.path}: is damaged: {error}") from error
