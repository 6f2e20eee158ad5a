"""Tunes a Triton kernel of your own with the program moetune, from the Python function that launches it.

    import moetune
    table = moetune.tune(launch, {"BLOCK_M": [64, 128], "num_warps": [4, 8]}, "--model qwen3-30b-a3b --tokens 16,4096", "mine.json")

`launch` takes operands, sizes and knobs by name, and launches one kernel, under @triton.jit, @triton.autotune or @triton.heuristics.
  operands  x, w, y, bias (of --op dx: dy, w, dx; of dw: dy, x, dw), m_sizes [experts], first_rows [experts + 1],
            gather_indices [rows], topk_weights [slots], x_scales, w_scales
  sizes     n, k, experts, top_k, tokens, slots, rows, processors
  knobs     all other parameters. The space lists their values, the default's first; without one, @triton.autotune does
It is called with stand-ins for tensors, once for each cell and combination of knobs, and its grids and arguments are recorded as
formulas over sizes and knobs. `legal`, a function of knobs, leaves combinations out. Kernels are compiled as Triton compiles them
at a launch, but no size that depends on the tokens is taken for a multiple of 16. `moetune tune` searches, verifies and times them.

Raises Wrong, with a sentence, for what cannot be recorded or compiled, and subprocess.CalledProcessError where the program says no.
A script that catches neither ends with that sentence alone. Needs triton, and torch and a GPU only to tune.
"""
import builtins
import functools
import hashlib
import importlib.util
import inspect
import itertools
import json
import operator
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time
from unittest import mock

_spec = importlib.util.spec_from_file_location("moetune_pack_triton", pathlib.Path(__file__).with_name("pack_triton.py"))
_packer = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_packer)
Wrong = _packer.Wrong

BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1}  # of an element of a matrix
TORCH = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8_e4m3fn"}
TRITON = {"fp8": "fp8e4nv", "int32": "i32", "int64": "i64", "int8": "i8", "uint8": "u8"}
OPERANDS = {"fwd": "x:x_rows,k w:experts,n,k y:y_rows,n", "dx": "dy:x_rows,n w:experts,n,k dx:y_rows,k",
            "dw": "dy:x_rows,n x:w_rows,k dw:experts,n,k"}
RESULTS = {"y", "dx", "dw"}
FUSIONS = ("permute_x", "permute_y", "by_slot", "topk_weights", "accumulate", "fp32_dw", "silu", "gelu", "gpt_oss", "interleaved", "store_h", "bias")
VARYING = {"tokens", "slots", "rows", "x_rows", "w_rows", "y_rows"}  # with the cell of a layer
_tasks = []  # of the processes that compile


def _end_with_a_sentence(kind, error, trace, otherwise=sys.excepthook):
    """Of an error that nobody caught: the program has said its own on standard error."""
    if issubclass(kind, subprocess.CalledProcessError) and error.cmd[0] == _packer.program():
        raise SystemExit(error.returncode)
    if not issubclass(kind, Wrong):
        return otherwise(kind, error, trace)
    print(f"moetune: error: {error}", file=sys.stderr)


sys.excepthook = _end_with_a_sentence


class Size(int):
    """An integer that knows by which formula of sizes and knobs it was computed."""

    def __new__(cls, value, formula):
        size = super().__new__(cls, value)
        size.formula = formula
        return size


def formula_of(value):
    return value.formula if isinstance(value, Size) else str(int(value))


def plain(value):
    """A knob's value as pack.json has it."""
    return int(value) if isinstance(value, int) else value


def _operation(symbol, compute):
    def result(left, right):
        if not isinstance(left, int) or not isinstance(right, int):
            return NotImplemented
        return Size(compute(int(left), int(right)), f"({formula_of(left)} {symbol} {formula_of(right)})")
    return result, lambda self, other: result(other, self)


Size.__add__, Size.__radd__ = _operation("+", int.__add__)
Size.__sub__, Size.__rsub__ = _operation("-", int.__sub__)
Size.__mul__, Size.__rmul__ = _operation("*", int.__mul__)
Size.__floordiv__, Size.__rfloordiv__ = _operation("/", int.__floordiv__)
Size.__mod__, Size.__rmod__ = _operation("%", int.__mod__)


def _extreme(compute):
    """min or max, which know sizes."""
    def choose(*values, **options):
        values = list(values[0]) if len(values) == 1 else values
        chosen = compute(values, **options)
        if options or not any(isinstance(value, Size) for value in values):
            return chosen
        return Size(chosen, functools.reduce(lambda one, other: f"{compute.__name__}({one}, {other})", map(formula_of, values)))
    return choose


class Tensor:
    """Stands for an operand."""
    is_cuda = True

    def __init__(self, name, kind, shape):
        self.name, self.kind, self.shape, self.ndim = name, kind, shape, len(shape)

    def size(self, axis=None):
        return self.shape if axis is None else self.shape[axis]

    def stride(self, axis=None):
        strides = tuple(functools.reduce(operator.mul, self.shape[place + 1:] or (1,)) for place in range(self.ndim))
        return strides if axis is None else strides[axis]

    @property
    def dtype(self):
        try:
            import torch
        except ImportError:
            raise Wrong(f"{self.name}.dtype is one of torch, which is not installed: pip install torch") from None
        return getattr(torch, TORCH.get(self.kind, self.kind))

    def __getattr__(self, name):
        raise Wrong(f"{self.name}.{name}: what is recorded has only shape, stride(), size(), ndim and dtype")


class Cell:
    """What launches are recorded for: sizes by name, and operands, (type, shape) by name."""

    def __init__(self, plan, processors):
        of = plan["cell"]
        op, kind, fusions = of["op"], of["dtype"], [name for name in FUSIONS if of.get(name)]
        gated, result = bool({"silu", "gelu", "gpt_oss"} & set(fusions)), of.get("out_dtype", kind)
        if kind not in TORCH or of.get("sum_slots") or of.get("weight_gradient") or (gated and op == "dx"):
            raise Wrong("kernels of your own compute bf16, fp16, fp32 and fp8, without --sum-slots and gradients of gates and weights")
        self.text = f"{of['projection']} of {of['tokens']} tokens"
        word = f"fp8-{of['scales']}{'-fp16' * (result == 'fp16')}{'-fast' * of['fast_sums']}" if kind == "fp8" else kind
        self.computes = {"op": op, "dtype": word, "fusion": "+".join(fusions) or "plain",
                         "weighting": "none" if "topk_weights" not in fusions else "a" if op == "dw" else "result"}
        tokens, slots, rows = of["tokens"], of["tokens"] * of["top_k"], plan["figures"]["rows"]
        values = {"experts": of["experts"] // of["ep"], "top_k": of["top_k"], "tokens": tokens, "slots": slots, "rows": rows,
                  "processors": processors}
        letters = {"fwd": ("n", "k"), "dx": ("k", "n"), "dw": ("m", "n")}[op]  # of n and k, in formulas of the product
        self.sizes = {name: Size(value, name) for name, value in values.items()}
        self.sizes.update({name: Size(of[name], letter) for name, letter in zip("nk", letters)})
        y = slots if {"permute_y", "by_slot"} & set(fusions) else rows
        lengths = {"x": tokens if "permute_x" in fusions else slots if "by_slot" in fusions else rows, "y": y, "dy": y,
                   "dx": slots if "permute_x" in fusions else rows}
        self.operands = {}
        for name, sides in (word.split(":") for word in OPERANDS[op].split()):
            shape = [Size(lengths[name], side) if side.endswith("_rows") else self.sizes[side] for side in sides.split(",")]
            shape[-1] = shape[-1] // 2 if gated and name == "y" else shape[-1]
            self.operands[name] = result if name == "y" else "fp32" if name == "dw" and "fp32_dw" in fusions else kind, tuple(shape)
        self.matrices = set(self.operands)
        n, k, experts, x_rows = self.sizes["n"], self.sizes["k"], self.sizes["experts"], Size(lengths["x"], "x_rows")
        self.operands.update(m_sizes=("int32", (experts,)), first_rows=("int32", (experts + 1,)), gather_indices=("int32", (self.sizes["rows"],)),
                             topk_weights=("fp32", (self.sizes["slots"],)), **({"bias": (result, (experts, n))} if "bias" in fusions else {}))
        if kind == "fp8":
            blocks = (x_rows, (k + 127) // 128), (experts, (n + 127) // 128, (k + 127) // 128)
            x, w = {"block": blocks, "channel": ((x_rows,), (experts, n)), "tensor": ((1,), (experts,))}[of["scales"]]
            self.operands.update(x_scales=("fp32", x), w_scales=("fp32", w))


class Trace:
    """What one call of `launch` launches: the kernel, its arguments by name, its options, and its grid."""

    def __init__(self, launch, knobs, cell):
        self.cell, self.launches, self.configs = cell, [], []
        own = {name: Size(value, name) if type(value) is int else value for name, value in knobs.items()}
        self.sizes = {**{size.formula: int(size) for size in cell.sizes.values()},
                      **{name: int(value) for name, value in knobs.items() if isinstance(value, int)}}
        given = {**{name: Tensor(name, *each) for name, each in cell.operands.items()}, **cell.sizes, **own}
        takes = inspect.signature(launch).parameters.values()
        words = {each.name: given[each.name] for each in takes if each.name in given}
        lacking = [each.name for each in takes if each.name not in given and each.default is each.empty
                   and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        words.update(own if any(each.kind is each.VAR_KEYWORD for each in takes) else {})
        left = {name: value for name, value in own.items() if name not in words}  # for a kernel under @triton.autotune
        try:
            if lacking:
                known = ", ".join([*cell.operands, *cell.sizes])
                raise Wrong(f"{lacking[0]} is neither a knob of the space nor one of {known}")
            self.record(lambda: launch(**words), left)
            if left and not self.configs:
                raise Wrong(f"it does not take {', '.join(left)} of the space")
            if len(self.launches) != 1:
                raise Wrong(f"it launches {len(self.launches)} kernels: expected one. scripts/pack_triton.py packs kernels with steps that prepare")
        except Exception as error:  # a user's function may raise anything
            place = f"{launch.__name__}() for {cell.text}{''.join(f', {name}={value}' for name, value in knobs.items())}"
            raise Wrong(f"{place}: {error if isinstance(error, Wrong) else f'{type(error).__name__}: {error}'}") from error
        self.function, self.arguments, self.options, self.grid = self.launches[0]

    def record(self, call, left):
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        def run(kernel, *args, grid, warmup=False, **words):
            bound = kernel.signature.bind(*args, **{name: value for name, value in words.items() if name in kernel.arg_names})
            bound.apply_defaults()
            grid = grid(dict(bound.arguments)) if callable(grid) else grid
            options = {name: value for name, value in words.items() if name not in kernel.arg_names}
            self.launches.append((kernel, dict(bound.arguments), options, [*grid, 1, 1][:3]))

        def autotuned(tuner, *args, **words):
            self.configs = tuner.configs
            return tuner.fn.run(*args, **words, **(left or tuner.configs[0].all_kwargs()))

        with mock.patch.object(JITFunction, "run", run), mock.patch.object(Autotuner, "run", autotuned), \
                mock.patch.object(builtins, "min", _extreme(min)), mock.patch.object(builtins, "max", _extreme(max)):
            call()


def distance(sizes):
    """A formula that is 0 where each of the sizes has its value."""
    return " + ".join(f"max({name} - {value}, {value} - {name})" for name, value in sizes.items())


def merged(traces, values, what):
    """One formula for the values of all traces: where they differ, by the first size or knob that says which."""
    formulas = [formula_of(value) for value in values]
    if len(set(formulas)) == 1:
        return formulas[0]
    for name in sorted(traces[0].sizes, key=VARYING.__contains__):
        by_value = {}
        for trace, formula in zip(traces, formulas):
            by_value.setdefault(trace.sizes[name], set()).add(formula)
        if all(len(each) == 1 for each in by_value.values()):
            return " + ".join(f"max(1 - {distance({name: value})}, 0) * ({each.pop()})" for value, each in by_value.items())
    raise Wrong(f"{what} differs in a way that no single size or knob explains: {', '.join(sorted(set(formulas))[:3])}")


def arguments_of(traces):
    """The kernel's arguments that are passed at a launch, by name: (type, value in pack.json). All others are compiled in."""
    passed = {}
    for parameter in traces[0].function.params:
        name, values = parameter.name, [trace.arguments[parameter.name] for trace in traces]
        one = all(type(value) is int and value == 1 for value in values)  # as Triton has it
        if parameter.is_constexpr or one or all(isinstance(value, (bool, float, str, type(None))) for value in values):
            continue
        if all(isinstance(value, int) for value in values):
            word = parameter.annotation_type or ("i64" if any(value >> 31 for value in values) else "i32")
            if word not in _packer.TYPES:
                raise Wrong(f"the kernel's {name} is annotated as {word}: expected i32, i64 or nothing")
            passed[name] = word, {_packer.TYPES[word]: merged(traces, values, name)}
        elif {type(value) for value in values} == {Tensor} and len({value.name for value in values}) == 1:
            passed[name] = f"*{TRITON.get(values[0].kind, values[0].kind)}", {"pointer": values[0].name}
        else:
            raise Wrong(f"the kernel's {name} is a {type(values[-1]).__name__}: expected an operand, the same in all launches, or a number")
    return passed


def build_of(trace, passed):
    """What a trace compiles, for pack_triton.py: kernel, options, and a key that says whether other traces compile the same."""
    arguments, constants = {}, {}
    for parameter in trace.function.params:
        name, value = parameter.name, trace.arguments[parameter.name]
        if name not in passed:
            constants[name] = int(value) if isinstance(value, Size) else value
        else:
            if isinstance(value, Tensor):  # a matrix begins at a multiple of 16 bytes where its rows do
                aligned = value.name not in trace.cell.matrices or value.shape[-1] * BYTES[value.kind] % 16 == 0
            else:
                aligned = value % 16 == 0 and not VARYING & set(re.findall(r"\w+", formula_of(value)))
            arguments[name] = *passed[name], bool(aligned and not parameter.do_not_specialize and not parameter.do_not_specialize_on_alignment)
    options = {name: int(value) if isinstance(value, Size) else value for name, value in trace.options.items()}
    key = (*((name, aligned) for name, (_, _, aligned) in arguments.items()), *constants.items(), *options.items())
    return {"function": trace.function, "arguments": arguments, "constants": constants}, options, key


def candidates_of(launch, space, legal, cell):
    """The values of the knobs of each candidate; without a space those of @triton.autotune."""
    if space is None:
        if configs := Trace(launch, {}, cell).configs:
            return [config.all_kwargs() for config in configs]
        raise Wrong(f"{launch.__name__}() launches no kernel under @triton.autotune: pass a space, such as {{'BLOCK_M': [64, 128]}}")
    every = [dict(zip(space, values)) for values in itertools.product(*space.values())]
    if candidates := [knobs for knobs in every if legal is None or legal(**knobs)]:
        return candidates
    raise Wrong("no combination of the space is legal")


def groups_of(cells, keys):
    """Places of cells by what they compute and when: those of a layer, or of each token count where what is compiled depends on it."""
    for names in (("n", "k", "experts", "top_k"), ("n", "k", "experts", "top_k", "tokens")):
        groups = {}
        for place, cell in enumerate(cells):
            sizes = distance({cell.sizes[name].formula: int(cell.sizes[name]) for name in names})
            groups.setdefault((*cell.computes.items(), ("when", f"max(1 - ({sizes}), 0)")), []).append(place)
        if all(len({row[place] for place in group}) == 1 for row in keys for group in groups.values()):
            return groups
    raise Wrong("what is compiled depends on the rows that the routing gives: only n, k, experts, top_k, tokens and knobs may decide it")


def _built(place):
    kernel, *rest = _tasks[place]
    return _packer.built(None, place, lambda: kernel, *rest)


def pack(launch, space=None, cells="", folder="pack", legal=None, name=None, jobs=None):
    """Compiles what `launch` launches to a pack in a new folder, for --pack. Returns the name of its variant, which --variant takes."""
    global _tasks
    try:
        import triton
    except ImportError:
        raise Wrong("triton is not installed: pip install triton") from None
    if not _packer.program():
        raise Wrong("there is no moetune here: put it into the PATH, or name it in MOETUNE_BINARY")
    plan = json.loads(subprocess.run([_packer.program(), "tune", *shlex.split(cells), "--variant", "simt", "--dry-run", "--format", "json"],
                                     stdout=subprocess.PIPE, check=True).stdout)
    arch = "sm_{}{}".format(plan["device"]["compute_capability"], "a" * (plan["device"]["compute_capability"] >= 90))
    cells = [Cell(each, plan["device"]["processors"]) for each in plan["cells"]]
    candidates, begin = candidates_of(launch, space, legal, cells[0]), time.monotonic()
    rows = [[Trace(launch, knobs, cell) for cell in cells] for knobs in candidates]
    traces = [trace for row in rows for trace in row]
    if len({trace.function for trace in traces}) > 1:
        raise Wrong(f"{launch.__name__}() must launch the same kernel for all knobs and cells")
    function, passed = traces[0].function, arguments_of(traces)
    grid = [merged(traces, side, "the grid") for side in zip(*(trace.grid for trace in traces))]
    builds = [[build_of(trace, passed) for trace in row] for row in rows]
    groups = groups_of(cells, [[build[2] for build in row] for row in builds])
    tasks = {key: (kernel, {}, options, arch) for row in builds for kernel, options, key in row}
    numbers, _tasks = {key: place for place, key in enumerate(tasks)}, list(tasks.values())
    files, variant = _packer.Folder(pathlib.Path(folder)), name or function.__name__
    files.path.mkdir(parents=True, exist_ok=True)
    if any(files.path.iterdir()):
        raise Wrong(f"{files.path} is not empty: name a new folder")
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    results = _packer.compile_all(range(len(_tasks)), jobs or len(os.sched_getaffinity(0)), _built, "fork")  # a kernel may be of a script
    _, binaries, failed, _ = _packer.collect(results, files)
    for _, place, _, reason in failed:
        knobs = {**_tasks[place][0]["constants"], **_tasks[place][2]}
        print(f"{variant} {' '.join(f'{key}={value}' for key, value in knobs.items())} does not compile: {reason}", file=sys.stderr)
    if not binaries:
        raise Wrong("nothing was compiled that can be launched")
    listed = [(map(plain, knobs.values()), [numbers[row[group[0]][2]] for group in groups.values()]) for knobs, row in zip(candidates, builds)]
    used, script = {value.get("pointer") for _, value in passed.values()}, pathlib.Path(inspect.getsourcefile(function.fn))
    access = "update" if "accumulate" in cells[0].computes["fusion"] else "write"

    def shape_of(operand):
        return [merged(traces, side, operand) for side in zip(*(trace.cell.operands[operand][1] for trace in traces))]
    description = {
        "variant": variant, "summary": f"{function.__name__} of {script.name}", "computes": [dict(group) for group in groups],
        "knobs": [{"name": knob, "help": f"of {launch.__name__}", "values": list(dict.fromkeys(plain(each[knob]) for each in candidates)),
                   "default": plain(candidates[0][knob])} for knob in candidates[0]],
        "operands": [{"name": each, "dtype": kind, "shape": shape_of(each), "access": access if each in RESULTS else "read"}
                     for each, (kind, _) in cells[0].operands.items() if each in used],
        "rules": [], "buffers": [], "prepare": [], "kernel": {"function": function, "grid": grid, "arguments": passed}}
    made_by = {"name": "moetune.py", "triton": triton.__version__, "kernel": script.name, "sha256": hashlib.sha256(script.read_bytes()).hexdigest()}
    manifest = _packer.manifest_of(description, listed, files, {}, binaries, made_by)
    (files.path / "pack.json").write_text(_packer.text_of(manifest), encoding="utf-8")
    print(f"{files.path}: {len(manifest['candidates'])} of {len(candidates)} candidates in {len(binaries)} binaries, compiled in "
          f"{time.monotonic() - begin:.0f} s", file=sys.stderr)
    return variant


def tune(launch, space=None, cells="", output="moetune-table.json", options="", legal=None, name=None, folder=None, jobs=None):
    """Makes a pack, by default beside the table in `output`, in place of that of an earlier call, and tunes it. `cells` are options of
    moetune tune that say what is computed and on which device, `options` all others. Returns the table, None with --dry-run."""
    folder, options = pathlib.Path(folder or f"{pathlib.Path(output).with_suffix('')}-pack"), shlex.split(options)
    if folder.is_dir() and all(file.suffix == ".cubin" or file.name == "pack.json" for file in folder.iterdir()):
        shutil.rmtree(folder)
    variant = pack(launch, space, cells, folder, legal, name, jobs)
    subprocess.run([_packer.program(), "tune", *shlex.split(cells), *options, "--pack", folder, "--variant", variant, "-o", output], check=True)
    return None if "--dry-run" in options else json.loads(pathlib.Path(output).read_text(encoding="utf-8"))
