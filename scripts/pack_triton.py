#!/usr/bin/env python3
r"""Makes a kernel pack (moetune tune --pack DIR) of a Triton kernel, compiled for
an architecture without a GPU.

    scripts/pack_triton.py -o triton-pack
    scripts/pack_triton.py -o vllm-pack --from vllm --dtype fp8-block --top-k 8
    scripts/pack_triton.py -o moe_pack.py --template my_moe.py:my_kernel
    scripts/pack_triton.py -o mine --kernel moe_pack.py --gemm 1536,2048 \
      --gemm 2048,768 --size experts=128 --set num_stages=3,4
    moetune tune --pack triton-pack --variant triton_moe \
      --strategy exhaustive --model qwen3-30b-a3b --tokens 1,64,4096

--from takes the kernel of an installed vLLM or SGLang unchanged (or that of
--kernel-file), for both GEMMs of a layer:

    moetune tune --pack vllm-pack --variant vllm_moe --projection up,down \
      --permute-x --by-slot --topk-weights ...

FILE.py of --kernel has a function describe(dtype) that says what a launch of
the kernel passes; --template writes one to fill in, with guesses for parameters
of usual names. The configurations of @triton.autotune are the candidates, with
all values of the knobs that describe names beside; @triton.heuristics are
computed. A formula for a tl.constexpr is compiled in, for the sizes of --gemm
and --size. scripts/triton_moe.py uses all fields: computes, kernel, knobs,
rules, operands, buffers and steps of prepare. An entry of computes may have
`constants`: a dict, or a function from knobs to one (None where it has no
kernel). A step of prepare may have `timed`: False. Candidates that differ only
in values of launches share a cubin. Those that do not compile are left out of
the pack and reported. Needs triton; configs/schema/pack.json describes what it
writes, and where a moetune is found (MOETUNE_BINARY, PATH, build/release), it
validates the pack, once before it compiles.

Make a pack for each architecture. One for several (--arch sm_90a,sm_80) holds
the threads, shared memory and trailing arguments of a kernel once, and Triton
often builds it in another way for each: such a kernel is there for the first of
them alone. The pack is written, and the last sentence says how many candidates
are missing for which architecture.

Exit 0: all that compiles is in the pack. 1: an architecture builds candidates
in another way than the first, so that they are missing for it, or nothing can
be launched. 2: wrong usage, or a description that lacks something. 3: no
triton.
"""
import argparse
import concurrent.futures
import contextlib
import difflib
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import io
import itertools
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types

INTEGERS = ["int8", "int8-w8a8", *(f"{kind}-group{columns}" for kind in ("int4", "uint4") for columns in (32, 64, 128))]
DTYPES = ["bf16", "fp16", "fp8-block", "fp8-channel", "fp8-tensor", *INTEGERS, *(f"{word}-fp16" for word in INTEGERS)]
# Where servers have their kernels, newer places first.
SERVERS = {"vllm": ["vllm/model_executor/layers/fused_moe/fused_moe.py"],
           "sglang": ["sglang/kernels/ops/moe/fused_moe_triton_kernels.py",
                      "sglang/srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_kernels.py",
                      *(f"sglang/srt/layers/moe/fused_moe_triton/{name}.py" for name in ("fused_moe_triton_kernels", "fused_moe"))]}
SHARED_BYTES = {80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 120: 101376}  # that a block may have


def load(path):
    """The module of a file. Its relative imports work, without running the __init__.py of its packages."""
    path = pathlib.Path(path).resolve()
    levels = max(map(len, re.findall(r"^\s*from (\.+)", path.read_text(encoding="utf-8"), re.M)), default=0)
    folder, packages = path.parent, []
    while len(packages) < levels or (folder / "__init__.py").exists():
        folder, packages = folder.parent, [folder, *packages]
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    for place, package in enumerate(packages, 1):
        module = types.ModuleType(".".join(each.name for each in packages[:place]))
        module.__path__ = [str(package)]
        sys.modules.setdefault(module.__name__, module)
    spec = importlib.util.spec_from_file_location(".".join([*(each.name for each in packages), path.stem]), path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def installed(server):
    """The file with the kernel of an installed server, found without importing it; None where there is none."""
    spec = importlib.util.find_spec(server)
    roots = [pathlib.Path(place).parent for place in (spec.submodule_search_locations or [])] if spec else []
    return next((path for path in (root / file for root in roots for file in SERVERS[server]) if path.exists()), None)


def triton_of(server, kernel):
    """The version of Triton that the server with this kernel runs: the one installed beside it, or that its torch or it requires;
    "" where neither is known."""
    site = next((folder.parent for folder in kernel.resolve().parents if folder.name == server), None)
    packages = {each.metadata["Name"].lower(): each for each in importlib.metadata.distributions(path=[str(site)])} if site else {}
    if "triton" in packages:
        return packages["triton"].version
    required = [line for name in (server, "torch") if name in packages for line in packages[name].requires or []]
    found = (re.match(r"triton\s*(?:==|~=)\s*([\w.]+)", line) for line in required)
    return next((each.group(1) for each in found if each), "")


def capability(arch):
    return int(re.fullmatch(r"sm_(\d+)a?", arch).group(1))


def evaluate(formula, sizes):
    """A formula of a manifest, over sizes that are not negative."""
    return eval(formula.replace("/", "//"), {"__builtins__": {}, "min": min, "max": max, "ceil_div": lambda a, b: -(-a // b), **sizes})


def candidates_of(description):
    """The values of the knobs of each candidate: those listed, or all combinations."""
    if "listed" in description:  # --candidates
        return [each["knobs"] for each in description["listed"]]
    names = [knob["name"] for knob in description["knobs"]]
    every = (dict(zip(names, values)) for values in itertools.product(*(knob["values"] for knob in description["knobs"])))
    listed = description.get("candidates")
    return [knobs for knobs in every if listed is None or knobs in listed]


def constants_of(description, knobs, computation):
    """What is compiled in, or None where the computation has no binary for these knobs."""
    own, more = description["constants"], computation.get("constants", {})
    constants = own(knobs) if callable(own) else {name: knobs[name] for name in own}
    more = more(knobs) if callable(more) else more
    if more is None:
        return None
    constants = {**constants, **more}
    constants.update({name: bool(constants[name]) for name in description.get("flags", ()) if name in constants})
    known = {**knobs, **computation.get("sizes", {})}
    values = {**description["kernel"].get("constants", {}), **constants}
    constants.update({name: evaluate(value, known) for name, value in values.items() if names_in(value, known)})
    values.update(constants)
    arguments = known_arguments(description["kernel"], known)
    for name, function in description.get("heuristics", {}).items():
        if name not in values:
            values[name] = constants[name] = computed(name, function, {**arguments, **values})
    return constants


def names_in(value, names):
    """Which of the names a formula has: none where the value is not a formula over them."""
    found = set(re.findall(r"[A-Za-z_]\w*", value)) - {"min", "max", "ceil_div"} if isinstance(value, str) else set()
    return found if found <= set(names) else set()


def known_arguments(kernel, known):
    """The arguments whose value is known when the kernel is compiled; pointers by what they point at."""
    found = {}
    for name, (_, value, _) in kernel["arguments"].items():
        (kind, formula), = value.items()
        if kind == "pointer":
            found[name] = None if formula == "null" else formula
        elif names_in(formula, known) or formula.isdigit():
            found[name] = evaluate(formula, known)
    return found


def computed(name, function, arguments):
    try:
        return function(arguments)
    except KeyError as error:
        raise Wrong(f"'{name}' of @triton.heuristics depends on {error.args[0]}, which is not known when the kernel is compiled: name the "
                    f"sizes of its layers with --gemm N,K and --size, or say what {name} is in the constants") from None


def keys_of(description, knobs, given):
    """Of each computation what its binary is compiled with, (name, value) by (name, value): None where there is none,
    also where `given`, lists of sizes of the layers, never let it apply."""
    keys = []
    own = next((each for each in description.get("listed", []) if each["knobs"] == knobs), {})
    given = {**given, **({"tokens": own["tokens"]} if "tokens" in own else {})}
    for computation in description["computes"]:
        constants = constants_of(description, knobs, computation)
        if constants is None or not any(applies(computation, {**knobs, **dict(zip(given, sizes))})
                                        for sizes in itertools.product(*given.values())):
            keys.append(None)
        else:
            keys.append((*constants.items(), *((name, knobs[name]) for name in description["options"])))
    return keys


def applies(computation, sizes):
    if {"tokens", "top_k"} <= set(sizes):
        sizes = {**sizes, "slots": sizes["tokens"] * sizes["top_k"], "rows": sizes["tokens"] * sizes["top_k"]}
    try:
        return evaluate(computation.get("when", "1"), sizes) != 0
    except NameError:
        return True


# The fields of a description, with what each is for. Those behind "?" may be left out.
FIELDS = {
    "kernel": (dict, "function, grid and arguments of the candidate's kernel"),
    "variant": (str, "the name by which moetune knows the pack"), "summary": (str, "a line for people"),
    "computes": (list, 'such as [{"op": "fwd", "dtype": "bf16", "fusion": "plain", "weighting": "none"}]'),
    "operands": (list, 'such as [{"name": "x", "dtype": "bf16", "shape": ["rows", "k"], "access": "read"}]'),
    "knobs": (list, "name, help, values and default of each knob; @triton.autotune may say it"),
    "options": (list, "which knobs are options of the compiler: num_warps, num_stages"),
    "constants": (object, "which knobs are constants of the kernel, or a function from knobs to constants"),
}
DEFAULTS = {"computes": [{}], "prepare": [], "buffers": [], "least_shared_bytes": lambda knobs: 0,
            "rules": [{"zero": f"{size} % 16", "reason": f"{size} must be a multiple of 16"} for size in "nk"]}
OPERANDS = {"x": ["x_rows", "k"], "w": ["experts * n", "k"], "y": ["y_rows", "n"], "m_sizes": ["experts"], "first_rows": ["experts + 1"],
            "gather_indices": ["rows"], "topk_weights": ["slots"]}  # where a description names none
ORDER = {"row_ends": "experts", "row_experts": "rows"}  # what order_rows of triton_moe.py writes: int32
OPTIONS = ["num_warps", "num_stages", "num_ctas", "maxnreg"]  # of the compiler
ELEMENTS = {"int32": "i32", "fp8": "fp8e4nv", "int8": "i8", "uint8": "u8", "int4": "u8", "uint4": "u8"}
TYPES = {"i32": "int32", "i64": "int64"}
SIZES = {"m", "n", "k", "experts", "top_k", "tokens", "slots", "rows", "x_rows", "w_rows", "y_rows", "held", "blocks", "processors",
         "x_scale_row", "x_scale_step", "w_scale_expert", "w_scale_row", "w_scale_step", "threads", "shared_bytes", "scratch_bytes"}


class Wrong(ValueError):
    """What is wrong with a description, in a sentence."""


def name_of(function):
    return getattr(function, "__name__", str(function))


def sentence_of(error):
    """An error in a sentence: of a user's file with the line that raised it."""
    if isinstance(error, ValueError) and type(error).__name__ == "Wrong":
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"{error.filename} is not there"
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    place = f" ({pathlib.Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})" if trace else ""
    gpu = re.search(r"active drivers|NVIDIA|CUDA", str(error))
    return (f"the description cannot be read: {type(error).__name__}: {error}{place}"
            + ("\nhint: the file of the kernel looks for a GPU while it is imported; move the kernel to a file that does not" if gpu else ""))


def unwrapped(function):
    """A kernel without @triton.autotune and @triton.heuristics, the configurations of the former, the functions of the latter,
    and the arguments that are set to zero before each launch."""
    configs, heuristics, adds = [], {}, []
    while type(function).__name__ in ("Autotuner", "Heuristics"):
        if type(function).__name__ == "Heuristics":
            heuristics.update(function.values)
        else:
            if function.user_defined_pre_hook or any(config.pre_hook for config in function.configs):
                raise Wrong(f"{name_of(function.base_fn)} has a pre_hook, which runs on the host before each launch (for TMA descriptors, for "
                            "instance): a pack cannot run it")
            configs, adds = configs + function.configs, adds + function.reset_to_zero
        function = function.fn
    return function, configs, heuristics, adds


def knobs_of(configs, function):
    """The values of each configuration of @triton.autotune, the knobs with all of them (the first is the default), and the
    names of those that are True or False."""
    def settings(config):
        return {**config.kwargs, **{name: getattr(config, name, None) for name in OPTIONS}}
    defaults = {**defaults_of(function), "num_ctas": 1, "maxnreg": 0}
    names = list(dict.fromkeys(name for config in configs for name in config.kwargs))
    names += [name for name in OPTIONS if name in ("num_warps", "num_stages")
              or any(settings(config)[name] not in (None, defaults[name]) for config in configs)]
    candidates, flags = [], set()
    for config in configs:
        candidates.append({})
        for name in names:
            value = settings(config).get(name)
            value = defaults.get(name) if value is None else value
            if not isinstance(value, (int, str)):
                raise Wrong(f"'{name}' of a configuration of @triton.autotune is {value}: a knob is a number or a word")
            flags |= {name} if isinstance(value, bool) else set()
            candidates[-1][name] = int(value) if isinstance(value, bool) else value
    knobs = [{"name": name, "help": "of @triton.autotune", "values": sorted({each[name] for each in candidates}),
              "default": candidates[0][name]} for name in names]
    return candidates, knobs, flags


def signature_of(function):
    """The parameters of a kernel by name; none where Triton is not what made it."""
    return inspect.signature(function.fn).parameters if hasattr(function, "fn") else {}


def defaults_of(function):
    return {name: each.default for name, each in signature_of(function).items() if each.default is not each.empty}


def constexprs_of(function):
    return {name for name, each in signature_of(function).items() if "constexpr" in str(each.annotation)}


def found_at(text, folder):
    """The kernel FILE.py:NAME, by a path from a folder."""
    path, _, name = text.rpartition(":")
    path = pathlib.Path(folder) / path
    if not name or not path.is_file():
        raise Wrong(f"'{text}' is not a kernel: expected FILE.py:NAME, a file that is there and a kernel in it")
    function = getattr(load(path), name, None)
    if not hasattr(unwrapped(function)[0], "arg_names"):
        raise Wrong(f"{path} has no Triton kernel '{name}'")
    return function


def settled(kernel, types, names):
    """A kernel of a description whose arguments are (type, value, whether 16 divides it), with what is compiled in among its
    constants. `types` are those of pointers, by name."""
    function, given = kernel["function"], kernel["arguments"]
    constants, arguments, constexprs = dict(kernel.get("constants", {})), {}, constexprs_of(function)
    for name, value in given.items():
        if value is None or isinstance(value, (bool, int, float)) or name in constexprs and not isinstance(value, tuple):
            constants[name] = value
        elif isinstance(value, str) and value in types and types[value] is None:
            raise Wrong(f'describe(): argument \'{name}\': expected None, or a type with the buffer: ("*i32", {{"pointer": "{value}"}}, True)')
        elif isinstance(value, str):
            arguments[name] = (f"*{types[value]}", {"pointer": value}, True) if value in types else \
                ("i32", {"int32": value}, bool(re.fullmatch(r"[nk]( \* [nk])*", value)))
        else:
            arguments[name] = value
    constants = {**{name: value for name, value in defaults_of(function).items() if name not in arguments}, **constants}
    numbers = {name: str(int(value)) for name, value in constants.items() if isinstance(value, int) and name not in names}
    sides = kernel["grid"] if isinstance(kernel["grid"], (list, tuple)) else [kernel["grid"]]
    grid = [re.sub(r"[A-Za-z_]\w*", lambda name: numbers.get(name.group(), name.group()), str(side)) for side in sides]
    return {**kernel, "arguments": arguments, "constants": constants, "grid": grid if len(grid) > 1 else grid[0]}


def require_formula(formula, names, place, others=""):
    try:
        evaluate(formula, dict.fromkeys(names, 1))
    except ZeroDivisionError:
        pass
    except Exception as error:
        raise Wrong(f"{place}: '{formula}' is not a formula over sizes and knobs{others}: {error}") from None


def require_kernel(kernel, where, pointers, names):
    """Wrong for what a kernel of a description lacks, or what cannot be."""
    constexprs, text = constexprs_of(kernel["function"]), getattr(kernel["function"], "src", "")
    for name, argument in kernel["arguments"].items():
        place = f"describe(): {where}, argument '{name}'"
        if not isinstance(argument, (tuple, list)) or len(argument) != 3 or not isinstance(argument[1], dict) or len(argument[1]) != 1:
            raise Wrong(f'{place}: expected an operand, a formula, a number or (type, value, whether 16 divides it), such as "x", "n", 1 or '
                        '("i32", {"int32": "n"}, True)')
        kind, value = argument[0], argument[1]
        if "TODO" in value.values():
            raise Wrong(f"{place}: still TODO")
        if name in constexprs:
            raise Wrong(f"{place} is a tl.constexpr, which is compiled in: give it as a number, or as a formula over n, k, experts and top_k")
        if str(kind).startswith("tensordesc") or re.search(rf"\b{name}\.(load|store|gather|scatter)\(", text):
            raise Wrong(f"{place} is a TMA descriptor that the host makes, which a pack cannot hand over: take a kernel that makes its own "
                        "(tl.make_tensor_descriptor), or loads by pointers")
        wanted = "pointer" if str(kind).startswith("*") else TYPES.get(kind)
        if wanted is None:
            raise Wrong(f"{place}: '{kind}' is not a type; use *bf16, *fp16, *fp32, *fp8e4nv, *i8, *u8, *i32, i32 or i64")
        if wanted not in value:
            raise Wrong(f"{place}: a value of {kind} is {{'{wanted}': ...}}, not {value}")
        if wanted != "pointer":
            require_formula(value[wanted], names, place, f", nor one of {', '.join(sorted(name for name in pointers if name != 'null'))}")
        if wanted == "pointer" and value["pointer"] not in pointers:
            raise Wrong(f"{place}: '{value['pointer']}' is none of the operands and buffers: {', '.join(sorted(pointers))}")
        of = pointers[value["pointer"]] if wanted == "pointer" else None
        if of in ("i32", "bf16", "fp16", "fp32") and kind != f"*{of}":
            raise Wrong(f"{place}: {value['pointer']} is of *{of}, not {kind}")
    for side in launch_of(kernel).values():
        if side is not False:  # cooperative
            require_formula(side, names, f"describe(): {where}, grid")
    for name, value in kernel.get("constants", {}).items():
        if value == "TODO":
            raise Wrong(f"describe(): {where}, constant '{name}': still TODO")
    parameters = kernel["function"].arg_names
    if unknown := [name for name in (*kernel["arguments"], *kernel.get("constants", {})) if name not in parameters]:
        raise Wrong(f"describe(): {where} names {', '.join(unknown)}, which {name_of(kernel['function'])} does not take")


def require_known(given, known, where):
    """Wrong for a field that nothing reads."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise Wrong(f"describe(): {where}'{name}' is not a field" + (f"; did you mean '{near[0]}'?" if near else f"; fields are {', '.join(known)}"))


def require_fields(kernel, where):
    for field in ("function", "grid", "arguments"):
        if not isinstance(kernel, dict) or field not in kernel:
            raise Wrong(f"describe(): {where} has no '{field}'")
    require_known(kernel, ("function", "grid", "arguments", "constants", "options", "timed"), f"{where}: ")
    for field in {"arguments", "constants"} & set(kernel):
        if not isinstance(kernel[field], dict):
            raise Wrong(f"describe(): {where}: '{field}' is a {type(kernel[field]).__name__}, "
                        "not a dict by the kernel's parameters")
    sides = kernel["grid"] if isinstance(kernel["grid"], (list, tuple)) else [kernel["grid"]]
    if not 1 <= len(sides) <= 3 or not all(isinstance(side, (str, int)) for side in sides):
        raise Wrong(f"describe(): {where}: 'grid' is a formula or a list of up to three, such as "
                    f'["ceil_div(n, 64)", "experts"], not {kernel["grid"]}')
    if not hasattr(kernel["function"], "arg_names"):
        raise Wrong(f"describe(): {where}: 'function' is no Triton kernel, which stands under @triton.jit")


def named_pointers(kernels):
    """What the arguments of kernels may point at, by all forms of an argument."""
    given = [value for kernel in kernels for value in kernel.get("arguments", {}).values()]
    typed = [value[1] for value in given if isinstance(value, tuple) and len(value) == 3 and isinstance(value[1], dict)]
    return [value for value in given if isinstance(value, str)] + [value["pointer"] for value in typed if "pointer" in value]


def complete(description, dtype):
    """A description with the fields that follow from its kernel: operands, knobs and steps that put rows in order."""
    description = {**DEFAULTS, **description}
    function, configs, heuristics, adds = unwrapped(description["kernel"]["function"])
    description["kernel"] = {**description["kernel"], "function": function}
    require_fields(description["kernel"], "kernel")
    description.setdefault("variant", name_of(function).strip("_"))
    description.setdefault("summary", f"the Triton kernel {name_of(function)}")
    own = description.get("knobs", [])
    if configs and isinstance(own, list) and all(isinstance(each, dict) and {"name", "values"} <= set(each) for each in own):
        candidates, knobs, flags = knobs_of(configs, function)
        if not {each["name"] for each in own} & {each["name"] for each in knobs}:  # those of describe() are more of them, or all there are
            more = [dict(zip([each["name"] for each in own], values)) for values in itertools.product(*(each["values"] for each in own))]
            description.update(candidates=[{**each, **those} for each in candidates for those in more], knobs=[*knobs, *own], flags=flags)
    if others := [name for name in heuristics if name not in function.arg_names]:
        raise Wrong(f"@triton.heuristics computes {', '.join(others)}, which {name_of(function)} does not take: make it a knob")
    description["heuristics"], description["adds"] = heuristics, adds
    if isinstance(description.get("knobs"), list) and all(isinstance(each, dict) and "name" in each for each in description["knobs"]):
        names = [knob["name"] for knob in description["knobs"]]
        description.setdefault("options", [name for name in names if name in OPTIONS])
        description.setdefault("constants", [name for name in names if name in function.arg_names
                                             and name not in description["kernel"]["arguments"]])
    if not isinstance(description["prepare"], list):
        raise Wrong("describe(): 'prepare' is not a list of kernels")
    for place, step in enumerate(description["prepare"]):
        require_fields(step, f"prepare[{place}]")
    used = named_pointers([description["kernel"], *description["prepare"]])
    if steps := [name for name in ORDER if name in used and name not in [each["name"] for each in description["buffers"]]]:
        own = {name: name if name in steps else None for name in ORDER}
        description["prepare"] = [{
            "function": load(pathlib.Path(__file__).resolve().parent / "triton_moe.py").order_rows, "grid": "experts", "timed": False,
            "constants": {"CHUNK": 1024}, "arguments": {**own, "first_rows": "first_rows"}}, *description["prepare"]]
        description["buffers"] = [*description["buffers"], *({"name": name, "bytes": f"max({ORDER[name]}, 1) * 4", "zeroed": False,
                                                              "dtype": "int32"} for name in steps)]
        used = [*used, "first_rows"]
    if "operands" not in description:
        if dtype not in ("bf16", "fp16") or any(each.get("op", "fwd") != "fwd" for each in description["computes"] if isinstance(each, dict)):
            raise Wrong(f"describe(): 'operands' is missing: {FIELDS['operands'][1]}. It may be left out for fwd in bf16 and fp16")
        kinds = {"x": dtype, "w": dtype, "y": dtype, "topk_weights": "fp32"}
        description["operands"] = [{"name": name, "dtype": kinds.get(name, "int32"), "shape": shape,
                                    "access": "write" if name == "y" else "read"} for name, shape in OPERANDS.items() if name in used]
    if isinstance(description["computes"], list) and all(isinstance(each, dict) for each in description["computes"]):
        plain = {"op": "fwd", "dtype": dtype, "fusion": "plain", "weighting": "none"}
        description["computes"] = [{**plain, **each} for each in description["computes"]]
    return description


def with_sizes(description, cases):
    """A description whose kernels are compiled for each of the sizes that its constants and heuristics depend on. `cases` are
    those of --gemm and --size: dicts of sizes by name."""
    kernel, knobs = description["kernel"], {knob["name"] for knob in description["knobs"]}
    more = [each.get("constants") for each in description["computes"]]
    values = [value for each in [kernel["constants"], *more] if isinstance(each, dict) for value in each.values()]
    needed = set().union(*(names_in(value, SIZES | knobs) for value in values)) - knobs
    if any(name not in kernel["constants"] for name in description["heuristics"]):
        given = [formula for _, value, _ in kernel["arguments"].values() for kind, formula in value.items() if kind != "pointer"]
        needed |= set().union(*(names_in(formula, SIZES | knobs) for formula in given)) & set().union(*cases)
    for name in sorted(needed - set().union(*cases)):
        which = next((each for each, value in kernel["constants"].items() if name in names_in(value, SIZES | knobs)), "a constant")
        how = "--gemm N,K for each GEMM, such as --gemm 1536,2048 --gemm 2048,768" if name in "nk" else f"--size {name}=VALUE"
        raise Wrong(f"{name_of(kernel['function'])} has {name} compiled in ({which}): name it with {how}")
    cases = [dict(each) for each in dict.fromkeys(tuple((name, case[name]) for name in case if name in needed) for case in cases)]
    if needed:
        description["computes"] = [
            {**each, "sizes": case, "when": " * ".join([*([f"({each['when']})"] if "when" in each else []), *(
                f"max(1 - max({name} - {value}, {value} - {name}), 0)" for name, value in case.items())])}
            for each in description["computes"] for case in cases]
    description["others"] = {name: sorted({case[name] for case in cases}) for name in sorted(needed - {"n", "k", "experts", "top_k"})}
    sizes = needed & {"n", "k", "experts", "top_k"}
    if sizes:  # other sizes are not those of a layer
        sets = dict.fromkeys(tuple((name, case[name]) for name in sorted(sizes)) for case in cases)
        others = " * ".join("min(" + " + ".join(f"max({name} - {value}, {value} - {name})" for name, value in each) + ", 1)" for each in sets)
        description["rules"] = [*description["rules"], {"zero": others, "reason": "the kernels were compiled for "
                                + " or ".join(", ".join(f"{name} = {value}" for name, value in each) for each in sets)}]
    return description


@functools.lru_cache
def described(path, dtype, options=(), cases=((),)):
    """The description of a file, completed and checked. Wrong, with the field, for what is missing or cannot be. `cases` are sizes,
    (name, value), that kernels are compiled for."""
    module = load(path)
    if not callable(getattr(module, "describe", None)):
        raise Wrong(f"{path} has no function describe(dtype); --template writes one")
    description = module.describe(dtype, **dict(options))
    if not isinstance(description, dict):
        raise Wrong(f"describe() of {path} returned {type(description).__name__}, not a dict of fields")
    require_known(description, (*FIELDS, *DEFAULTS, "candidates", "file"), "")
    if "kernel" not in description:
        raise Wrong(f"describe(): 'kernel' is missing: {FIELDS['kernel'][1]}")
    if not isinstance(description["kernel"], dict) or "function" not in description["kernel"]:
        raise Wrong("describe(): kernel has no 'function'")
    function = description["kernel"]["function"]
    if isinstance(function, str):
        description["kernel"] = {**description["kernel"], "function": found_at(function, pathlib.Path(path).resolve().parent)}
        description.setdefault("file", pathlib.Path(path).resolve().parent / function.rpartition(":")[0])
    description = complete(description, dtype)
    for field, (kind, meaning) in FIELDS.items():
        if field not in description:
            raise Wrong(f"describe(): '{field}' is missing: {meaning}")
        if not isinstance(description[field], kind):
            raise Wrong(f"describe(): '{field}' is a {type(description[field]).__name__}, not a {kind.__name__}: {meaning}")
    for field, keys in (("knobs", ("name", "help", "values", "default")), ("computes", ("op", "dtype", "fusion", "weighting")),
                        ("operands", ("name", "dtype", "shape", "access")), ("buffers", ("name", "bytes", "zeroed")),
                        ("rules", ("zero", "reason"))):
        for place, entry in enumerate(description[field]):
            for key in keys:
                if not isinstance(entry, dict) or key not in entry:
                    raise Wrong(f"describe(): {field}[{place}] has no '{key}'")
            if field == "computes":
                require_known(entry, (*keys, "when", "constants"), f"{field}[{place}]: ")
            if field == "knobs" and entry["default"] not in entry["values"]:
                raise Wrong(f"describe(): {field}[{place}]: the default {entry['default']} is none of the values {entry['values']}")
    names = {knob["name"] for knob in description["knobs"]}
    if not description["knobs"] or not description["computes"]:
        raise Wrong("describe(): 'knobs' and 'computes' have one entry at least")
    named = [*description["options"], *(() if callable(description["constants"]) else description["constants"])]
    if unknown := [name for name in named if name not in names]:
        raise Wrong(f"describe(): {', '.join(unknown)} of options and constants is no knob")
    types = {each["name"]: ELEMENTS.get(each["dtype"], each["dtype"]) for each in description["operands"]}
    types.update({each["name"]: ELEMENTS.get(each.get("dtype"), each.get("dtype")) for each in description["buffers"]}, null=None)
    if twice := names & set(description["kernel"]["arguments"]) & constexprs_of(description["kernel"]["function"]):
        raise Wrong(f"describe(): {', '.join(sorted(twice))} is a knob and an argument: name it once")
    description["kernel"] = settled(description["kernel"], types, names | SIZES)
    stored = {each["name"] for each in description["operands"] if each["access"] != "read"}
    for name in description["adds"]:
        if description["kernel"]["arguments"].get(name, (None, {}))[1].get("pointer") in stored:
            raise Wrong(f"{name_of(description['kernel']['function'])} adds to {name}, which is set to zero before each launch "
                        "(reset_to_zero of @triton.autotune): in a pack each element is stored once")
    require_kernel(description["kernel"], "kernel", types, names | SIZES)
    description["prepare"] = list(description["prepare"])
    for place, step in enumerate(description["prepare"]):
        description["prepare"][place] = settled(step, types, names | SIZES)
        require_kernel(description["prepare"][place], f"prepare[{place}]", types, names | SIZES)
    description = with_sizes(description, [dict(case) for case in cases])
    knobs = candidates_of(description)[0]
    for computation in description["computes"]:
        known = {**description["kernel"].get("constants", {}), **(constants_of(description, knobs, computation) or {})}
        missing = [name for name in description["kernel"]["function"].arg_names
                   if name not in known and name not in description["kernel"]["arguments"]]
        if missing and constants_of(description, knobs, computation) is not None:
            raise Wrong(f"describe(): {name_of(description['kernel']['function'])} takes {', '.join(missing)}, which neither arguments "
                        "nor constants name")
    return description


# What a launch passes for parameters of usual names, in lower case and without _ptr: of the first that matches.
USUAL = [(r"a|x|xs|input|inputs|hidden_states|lhs|tokens_ptr", '"x"'), (r"b|w|weights?|rhs|experts_weights?", '"w"'),
         (r"c|y|out|output", '"y"'), (r"(group_|expert_)?(m_)?sizes|m_sizes|tokens_per_expert|split_sizes", '"m_sizes"'),
         (r"(m_|group_)?(offset_)?ends", '"row_ends"'), (r"topk_weights?|routing_weights?", '"topk_weights"'),
         (r"gather_(indices|idx|ids)|grouped_idx|sorted_(token_)?(idx|ids|indices)", '"gather_indices"'), (r"expert_idxs", '"row_experts"'),
         (r"n|dim_n|out_features", '"n"'), (r"k|dim_k|in_features|hidden_size", '"k"'),
         (r"m|total_(m|rows|tokens)|num_rows", '"rows"'), (r"e|g|num_experts|num_groups|n_experts|group_size", '"experts"'),
         (r"num_tokens", '"tokens"'), (r"top_?k|fan_out", '"top_k"'), (r"num_sms?", '"processors"'), (r"stride_(a|x)m", '"k"'),
         (r"stride_(b|w)e", '"n * k"'), (r"stride_(b|w)n", '"k"'), (r"stride_(c|y)m", '"n"'), (r"stride_(a|b|x|w)k|stride_(c|y)n", "1")]
TEMPLATE = """# What scripts/pack_triton.py needs to know of {function}: fill in what says TODO, and see whether the guesses are right.
# An argument is what a launch passes: an operand (x [rows, k] in expert order, w [experts, n, k], y [rows, n], m_sizes [experts],
# first_rows [experts + 1], row_ends [experts], row_experts [rows], gather_indices [rows], topk_weights [slots]), a formula (+ - * / %,
# min, max, ceil_div over n, k, experts, top_k, tokens, slots, rows, x_rows, processors and knobs), a number or None. A formula
# for a tl.constexpr is compiled in, for the sizes of --gemm N,K and --size NAME=VALUE.


def describe(dtype):
    return {{{knobs}"kernel": {{
        "function": {path!r},
        "grid": {grid}
        "arguments": {{
            {arguments}
        }},
    }}}}
"""


def write_template(arguments):
    if arguments.output.exists():
        raise Wrong(f"--output: {arguments.output} is there already")
    try:
        function, configs, heuristics, _ = unwrapped(found_at(arguments.template, "."))
    except Wrong as error:
        raise Wrong(f"--template {arguments.template}: {error}") from None
    path, _, name = arguments.template.rpartition(":")
    swept = {*heuristics, *(key for config in configs for key in config.kwargs)}
    short = {each: re.sub(r"_?(ptr|pointer)s?$", "", each.lower()) for each in function.arg_names}
    biased = "w" in short.values()  # b is not W then
    persistent = next((each for each in short if re.fullmatch("num_sms?", short[each])), None)
    lines = [""]
    for parameter in function.arg_names:
        if parameter not in swept and parameter not in defaults_of(function):
            usual = [*USUAL, *((each, f'"{each}"') for each in [*OPERANDS, *ORDER])]
            guess = next((value for pattern, value in usual if re.fullmatch(pattern, short[parameter])), '"TODO"')
            for end, offsets in (("+", '"first_rows"'), ("-", '"row_ends"')):  # offset + 1 behind an expert, or offset - 1 before it
                if "off" in short[parameter] and re.search(rf"\b{parameter} \+ \w+ \{end} 1\b", getattr(function, "src", "")):
                    guess = offsets
            guess = '"TODO"' if biased and re.fullmatch("b|stride_b.", short[parameter]) else guess
            lines += [""] * (len(lines[-1]) + len(parameter + guess) > 100)
            lines[-1] += f'"{parameter}": {guess}, '
    grid = '"processors",' if persistent and persistent not in swept else f'"{persistent}",' if persistent else (
        '"TODO",  # such as "max(1, ceil_div(rows, 64)) * ceil_div(n, 64)", or a list of up to three formulas')
    knobs = "" if configs else '"knobs": [{"name": "num_warps", "help": "warps of a block", "values": [4, 8], "default": 4}], '
    place = os.path.relpath(path, arguments.output.resolve().parent)
    arguments.output.write_text(TEMPLATE.format(function=name, grid=grid, path=f"{place}:{name}", knobs=knobs,
                                                arguments="\n            ".join(line.rstrip() for line in lines)), encoding="utf-8")
    print(f"{arguments.output}: fill in what says TODO, then scripts/pack_triton.py -o DIR --kernel {arguments.output}")
    return 0


def program():
    """The path of moetune: named, of this Python's environment, in the PATH, built or installed beside this; or None."""
    here = pathlib.Path(__file__).resolve().parents
    near = [here[1] / "build/release/moetune", here[1] / "build/dev/moetune", *(place / "bin/moetune" for place in here[3:4])]
    return (os.environ.get("MOETUNE_BINARY") or shutil.which("moetune", path=pathlib.Path(sys.executable).parent) or shutil.which("moetune")
            or next((path for path in near if path.exists()), None))


def validated(folder, name):
    """The exit code of moetune validate, where there is a moetune; None where there is none. `name` is what messages call the
    folder."""
    binary = program()
    if not binary:
        return None
    result = subprocess.run([binary, "validate", folder], capture_output=True, text=True)
    if result.returncode:
        lines = [line for line in f"{result.stdout}{result.stderr}".replace(str(folder), str(name)).splitlines() if line and line[0] in "- "]
        print("\n".join(["pack_triton.py: error: moetune does not take the pack", *lines]), file=sys.stderr)
    return 1 if result.returncode else 0


def is_refused(arguments, description, tasks):
    """What moetune validate says of the pack before its kernels are compiled."""
    binary = {"entry": "kernel", "threads": 128, "shared_bytes": 0, "cluster": 1, "scratch_bytes": 0, "trailing": []}
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(pathlib.Path(path))
        prepared, binaries, _, _ = collect([(place, key, arch, arch.encode(), binary, {}) for _, place, key, _, _, arch in tasks], folder)
        manifest = manifest_of(description, keyed(description, arguments), folder, prepared, binaries, {})
        (folder.path / "pack.json").write_text(text_of(manifest), encoding="utf-8")
        return validated(folder.path, arguments.output) if binaries else None


def registers_of(cubin):
    """Registers per thread, by cuobjdump where triton has one and the cubin names its stack."""
    try:
        from triton import knobs
        path = knobs.nvidia.cuobjdump.path
    except Exception:
        return {}
    temporary = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"moetune-{os.getpid()}.cubin"
    try:
        temporary.write_bytes(cubin)
        usage = subprocess.run([path, "-res-usage", temporary], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    finally:
        temporary.unlink(missing_ok=True)
    registers, stack = re.search(r"REG:(\d+)", usage), re.search(r"STACK:(\d+)", usage)
    return {"registers": int(registers.group(1))} if registers and stack else {}


def compile_kernel(kernel, constants, options, arch):
    """The binary of a pack for one architecture: its bytes and what the manifest says of it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    function, arguments = kernel["function"], kernel["arguments"]
    constants = {**kernel.get("constants", {}), **constants}
    names = function.arg_names
    if missing := [name for name in names if name not in arguments and name not in constants]:
        raise ValueError(f"{function.__name__} has parameters that describe() says nothing of: {', '.join(missing)}")
    signature = {name: arguments[name][0] if name in arguments else "constexpr" for name in names}
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name, (_, _, divisible) in arguments.items() if divisible}
    options = {name: value for name, value in options.items() if name != "maxnreg" or value}  # 0: no limit
    built = triton.compile(ASTSource(function, signature, constants, attributes),
                           target=GPUTarget("cuda", capability(arch), 32), options=options)
    ptx, metadata = built.asm["ptx"], built.metadata
    entry = re.search(r"\.entry\s+(\w+)\s*\((.*?)\)", ptx, re.S)
    threads = re.search(r"\.reqntid\s+(\d+)", ptx)
    # Behind the kernel's own parameters Triton puts scratch memory for the grid, then for its profiler.
    trailing = entry.group(2).count(".param") - sum(name in arguments for name in names)
    scratch = metadata.global_scratch_size
    if trailing not in (0, 1, 2) or (scratch > 0 and trailing == 0) or getattr(metadata, "profile_scratch_size", 0):
        raise ValueError(f"{function.__name__} takes {trailing} arguments more than pack_triton.py knows")
    return built.asm["cubin"], {
        "entry": entry.group(1),
        "threads": int(threads.group(1)) if threads else 32 * metadata.num_warps,
        "shared_bytes": metadata.shared,
        "cluster": metadata.num_ctas,
        "scratch_bytes": scratch,
        "trailing": [{"pointer": "scratch" if i == 0 and scratch else "null"} for i in range(trailing)],
    }


def reason_of(error):
    """An error of the compiler in a line: where it points at source, that source and what it says of it."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).strip().splitlines()] or [""]
    if "^" in lines[1:]:
        return ": ".join([type(error).__name__, lines[lines.index("^") - 1], *lines[lines.index("^") + 1:]])
    return ": ".join([type(error).__name__, *lines[::len(lines) - 1 or 1]])


def built_for(task):
    """Runs in a process of its own."""
    source, place, key, constants, options, arch = task

    def kernel():
        description = described(*source)
        return description["kernel"] if place is None else description["prepare"][place]
    return built(place, key, kernel, constants, options, arch)


def built(place, key, kernel, constants, options, arch):
    """(place, key, architecture, cubin, binary, registers) of what kernel() gives; without a cubin the reason stands in place of the
    binary."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # what files print and warn of, each time
            cubin, binary = compile_kernel(kernel(), constants, options, arch)
    except Exception as error:  # of the compiler's own kinds
        return place, key, arch, None, reason_of(error), {}
    return place, key, arch, cubin, binary, registers_of(cubin)


def tasks_of(arguments, description):
    """What is to be compiled, and how many candidates need more shared memory than a block has."""
    tasks, large = [], 0
    for place, step in enumerate(description["prepare"]):
        tasks += [(arguments.source, place, (), {}, step.get("options", {}), arch) for arch in arguments.arch]
    seen = {None}
    for knobs in candidates_of(description):
        options = {name: knobs[name] for name in description["options"]}
        fits = [arch for arch in arguments.arch
                if description["least_shared_bytes"](knobs) <= SHARED_BYTES.get(capability(arch), 1 << 20)]
        large += not fits
        for key in keys_of(description, knobs, arguments.given):
            if key not in seen:
                constants = dict(key[:len(key) - len(options)])
                tasks += [(arguments.source, None, key, constants, options, arch) for arch in fits]
            seen.add(key)
    return tasks, large


def compile_all(tasks, jobs, build=built_for, start="spawn"):
    """Results of `build`, as they come."""
    context = multiprocessing.get_context(start)
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for done, result in enumerate(pool.map(build, tasks, chunksize=1), 1):
            if sys.stderr.isatty():
                print(f"\r{done}/{len(tasks)} compiled", end="", file=sys.stderr)
            yield result
    if sys.stderr.isatty():
        print(file=sys.stderr)


class Folder:
    """The files of a pack. Equal cubins are one file."""

    def __init__(self, path):
        self.path, self.files = path, {}

    def add(self, arch, cubin, registers):
        digest = hashlib.sha256(cubin).hexdigest()
        name = f"{digest[:16]}.cubin"
        if name not in self.files:
            (self.path / name).write_bytes(cubin)
            self.files[name] = {"arch": arch, "bytes": len(cubin), "sha256": digest, **registers}
        return name


def values_of(kernel):
    return [kernel["arguments"][name][1] for name in kernel["function"].arg_names if name in kernel["arguments"]]


def launch_of(kernel):
    """What every launch has. A grid of several sides is a list of formulas."""
    sides = kernel["grid"] if isinstance(kernel["grid"], (list, tuple)) else [kernel["grid"]]
    return {"cooperative": False, **{f"grid{axis}": side for axis, side in zip(("", "_y", "_z"), sides)}}


def keyed(description, arguments):
    """For each candidate its values and the keys of its binaries."""
    return [(knobs.values(), keys_of(description, knobs, arguments.given)) for knobs in candidates_of(description)]


def rows_of(candidates, binaries):
    """The candidates of pack.json, of pairs of values and the keys of their binaries: one for each computation."""
    places, rows = {key: place for place, key in enumerate(binaries)}, []
    for values, keys in candidates:
        own = [places.get(key) for key in keys]
        if any(place is not None for place in own):
            rows.append([*values, *(own[:1] if len(set(own)) == 1 else own)])
    return rows


def manifest_of(description, candidates, folder, prepared, binaries, made_by):
    """pack.json. `binaries` are by key, in the order of candidates."""
    launches = []
    for place, step in enumerate(description["prepare"]):
        files, binary = prepared[place]
        launches.append({"cubin": files, "entry": binary["entry"], "threads": binary["threads"],
                         "shared_bytes": binary["shared_bytes"], "cluster": binary["cluster"], "most_per_processor": None,
                         **launch_of(step), "arguments": [*values_of(step), *binary["trailing"]],
                         **({} if step.get("timed", True) else {"timed": False})})
    launches.append({"cubin": "candidate", **launch_of(description["kernel"]), "arguments": values_of(description["kernel"])})
    scratch = any(binary["scratch_bytes"] for _, binary in binaries.values())
    return {"schema": "moetune.pack/1", "made_by": made_by,
            **{name: description[name] for name in ("variant", "summary", "knobs")},
            "computes": [{name: value for name, value in each.items() if name not in ("constants", "sizes")}
                         for each in description["computes"]],
            "rules": description["rules"],
            "operands": description["operands"],
            "buffers": [{name: each[name] for name in ("name", "bytes", "zeroed")} for each in description["buffers"]]
            + [{"name": "scratch", "bytes": "blocks * scratch_bytes", "zeroed": False}] * scratch,
            "launches": launches, "files": folder.files,
            "binaries": [{"files": files, **binary} for files, binary in binaries.values()],
            "candidates": rows_of(candidates, binaries)}


def text_of(manifest):
    """The JSON, with one line for each knob, launch, file, binary and candidate."""
    def lines(value, indent):
        inner = "\n" + " " * indent
        if isinstance(value, dict):
            return "{" + ",".join(f"{inner}{json.dumps(key)}: {json.dumps(each)}" for key, each in value.items()) + "\n" + " " * (indent - 2) + "}"
        return "[" + ",".join(inner + json.dumps(each) for each in value) + "\n" + " " * (indent - 2) + "]"
    parts = (f"  {json.dumps(key)}: {lines(value, 4) if isinstance(value, (dict, list)) and value else json.dumps(value)}"
             for key, value in manifest.items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def collect(results, folder):
    """Preparing steps by place, and binaries by key, each with a file for every architecture; what failed; and (place,
    key, architecture) of what is built in another way than for the first architecture."""
    prepared, binaries, failed, other = {}, {}, [], []
    for place, key, arch, cubin, binary, registers in results:
        if cubin is None:
            failed.append((place, key, arch, binary))
            continue
        table, index = (binaries, key) if place is None else (prepared, place)
        files, first = table.setdefault(index, ({}, binary))
        if binary != first:  # shared memory and threads are stated once for all architectures
            other.append((place, key, arch))
            continue
        files[arch] = folder.add(arch, cubin, registers)
    return prepared, binaries, failed, other


def report_missing(other, manifest, binaries):
    """Says for each architecture how many of the pack's candidates it lacks, and returns the exit code."""
    places = {key: place for place, key in enumerate(binaries)}
    for arch in dict.fromkeys(arch for _, _, arch in other):
        lost = {places[key] for place, key, at in other if at == arch and place is None}
        no_steps = any(at == arch and place is not None for place, _, at in other)
        knobs = len(manifest["knobs"])
        missing = sum(no_steps or not lost.isdisjoint(row[knobs:]) for row in manifest["candidates"])
        print(f"pack_triton.py: error: {missing} of {len(manifest['candidates'])} candidates are missing for {arch}, where "
              "they take other threads, shared memory or arguments than for the first architecture", file=sys.stderr)
    if other:
        print("hint: make a pack for each architecture", file=sys.stderr)
    return 1 if other else 0


def gemms_of(parser, arguments):
    """(projection, n, k) of each --gemm, once."""
    words = arguments.gemm or (["up:64,128", "down:64,128"] if arguments.find else [""] if arguments.server else [])
    for word in words:
        if not re.fullmatch(r"(up|down):\d+,\d+" if arguments.server else r"((up|down):)?\d+,\d+", word):
            parser.error(f"--gemm {word}: the kernel of {arguments.dtype} has n and k compiled in; expected up:N,K or down:N,K, such as "
                         "up:1536,2048" if arguments.server else f"--gemm {word}: expected N,K, such as 1536,2048")
    return tuple(dict.fromkeys((word.rpartition(":")[0], *map(int, word.rpartition(":")[2].split(","))) for word in words))


def parse(argv):
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="DIR", help="a folder that is not there yet, or empty")
    parser.add_argument("--kernel", type=pathlib.Path, default=here / "triton_moe.py", metavar="FILE.py",
                        help="[scripts/triton_moe.py, over vLLM's 1,920 configurations]")
    parser.add_argument("--arch", default="sm_90a", help="better one than several: see above [sm_90a]")
    parser.add_argument("--from", dest="server", choices=list(SERVERS), help="the kernel of this program, as it is installed")
    parser.add_argument("--kernel-file", type=pathlib.Path, metavar="FILE.py", help="the file of its kernel, where it is not installed")
    parser.add_argument("--top-k", type=int, metavar="T", help="of the layers (--from): it is compiled in [8]")
    parser.add_argument("--time-steps", action="store_true", help="with --from: sorting the rows belongs to the time")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=LIST",
                        help="sizes of all layers and cells, such as k=2048,768 or tokens=64: fewer kernels are compiled")
    parser.add_argument("--template", metavar="FILE.py:NAME", help="write a description of this kernel to fill in to --output")
    parser.add_argument("--dtype", choices=DTYPES, metavar="DTYPE", default="bf16",
                        help=f"{', '.join(DTYPES[:-len(INTEGERS)])}; integers with -fp16 behind have X or Y in fp16 [bf16]")
    parser.add_argument("--gemm", action="append", default=[], metavar="[up:|down:]N,K",
                        help="n and k of a GEMM, for kernels that have them compiled in: int4 and uint4 of --from, and yours")
    parser.add_argument("--set", action="append", default=[], metavar="KNOB=LIST", help="other values for a knob")
    parser.add_argument("--candidates", type=pathlib.Path, metavar="FILE.json",
                        help='only these: a list of {"knobs": {NAME: VALUE, ...}, "tokens": [COUNT, ...]}, of which the first is the '
                        "default; tokens are the counts that they are for, and may be left out")
    parser.add_argument("--find", action="store_true", help="with --from: write to --output where the kernel lies, as JSON, and stop")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes that compile [all cores]")
    arguments = parser.parse_args(argv)
    arguments.arch = arguments.arch.split(",")
    for arch in arguments.arch:
        if not re.fullmatch(r"sm_\d\d\d?a?", arch):
            parser.error(f"--arch: '{arch}' is not an architecture such as sm_90a")
    if not arguments.server and (arguments.kernel_file or arguments.top_k or arguments.time_steps):
        parser.error("--kernel-file, --top-k and --time-steps go with --from")
    if arguments.server and not arguments.kernel_file:
        arguments.kernel_file = installed(arguments.server)
        if not arguments.kernel_file:
            print(f"pack_triton.py: error: {arguments.server} is not installed for this Python; name the file of its kernel with "
                  f"--kernel-file, such as {SERVERS[arguments.server][0]}", file=sys.stderr)
            sys.exit(2)
    arguments.given = {}
    for setting in arguments.size:
        name, _, values = setting.partition("=")
        if not re.fullmatch(r"[a-z_]+=\d+(,\d+)*", setting):
            parser.error(f"--size {setting}: expected NAME=NUMBER,NUMBER, such as k=2048,768")
        arguments.given[name] = [int(value) for value in values.split(",")]
    if arguments.server:
        arguments.given.setdefault("top_k", [arguments.top_k or 8])
        if len(arguments.arch) > 1:
            parser.error("--from takes one --arch: constants of the kernels depend on it")
        options = {"server": arguments.server, "top_k": arguments.top_k or 8, "timed": arguments.time_steps, "arch": arguments.arch[0],
                   **({"gemms": gemms_of(parser, arguments)} if "int4" in arguments.dtype else {}),
                   "file": str(arguments.kernel_file.resolve())}
        arguments.kernel = here / "served_moe.py"
        cases = ((),)
    else:
        options = {}
        sets = [[(name, value) for value in values] for name, values in arguments.given.items()]
        gemms = [(("n", n), ("k", k)) for _, n, k in gemms_of(parser, arguments)] or [()]
        cases = tuple(gemm + sizes for gemm in gemms for sizes in itertools.product(*sets))
    arguments.source = (str(arguments.kernel), arguments.dtype, tuple(options.items()), cases)
    if not arguments.template and not arguments.find and arguments.output.exists() and (not arguments.output.is_dir() or any(arguments.output.iterdir())):
        parser.error(f"--output: {arguments.output} is there already; name a new folder")
    return parser, arguments


def set_values(parser, description, settings):
    for setting in settings:
        name, _, values = setting.partition("=")
        knob = next((knob for knob in description["knobs"] if knob["name"] == name), None)
        if knob is None or not re.fullmatch(r"\d+(,\d+)*", values):
            known = ", ".join(knob["name"] for knob in description["knobs"])
            parser.error(f"--set {setting}: expected KNOB=NUMBER,NUMBER; knobs are {known}")
        knob["values"] = [int(value) for value in values.split(",")]
        if knob["default"] not in knob["values"]:
            knob["default"] = knob["values"][0]
    if settings and not candidates_of(description):
        parser.error(f"{' '.join(f'--set {each}' for each in settings)}: no configuration of @triton.autotune has these values; "
                     "name the knobs in describe() to try others")


def take_candidates(parser, description, path):
    """Those of --candidates take the place of all combinations."""
    names = [knob["name"] for knob in description["knobs"]]
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        listed = [{**each, "knobs": {name: int(each["knobs"][name]) for name in names}} for each in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"--candidates {path}: {type(error).__name__}: {error}")
    for knob in description["knobs"]:
        knob["values"] = sorted({each["knobs"][knob["name"]] for each in listed})
        knob["default"] = listed[0]["knobs"][knob["name"]]
    description["listed"] = listed


def write_found(arguments, triton):
    """Of --find: the kernel, the Triton that would compile it (empty: none), and the server's."""
    found = {"kernel": str(arguments.kernel_file.resolve()), "triton": triton,
             "servers_triton": triton_of(arguments.server, arguments.kernel_file)}
    arguments.output.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return 0


def main(argv):
    parser, arguments = parse(argv)
    try:
        import triton
    except ImportError:
        if arguments.find:
            return write_found(arguments, "")
        print("pack_triton.py: error: triton is not installed\nhint: pip install triton", file=sys.stderr)
        return 3
    try:
        if arguments.template:
            return write_template(arguments)
        with contextlib.redirect_stdout(sys.stderr):
            description = described(*arguments.source)
    except Exception as error:  # a user's file may raise anything
        print(f"pack_triton.py: error: {sentence_of(error)}", file=sys.stderr)
        return 2
    if arguments.find:
        return write_found(arguments, triton.__version__)
    set_values(parser, description, arguments.set)
    if arguments.candidates:
        take_candidates(parser, description, arguments.candidates)
    begin = time.monotonic()
    tasks, large = tasks_of(arguments, description)
    if is_refused(arguments, description, tasks):
        return 2
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--output: {arguments.output} cannot be made: {error.strerror}; name another folder")
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # as jit-compiled kernels have it; Triton warns where nothing is said
    folder = Folder(arguments.output)
    prepared, binaries, failed, other = collect(compile_all(tasks, arguments.jobs), folder)
    for place, key, arch, reason in failed:
        what = "the kernel" if place is None else f"preparing step {place}"
        print(f"{what} {' '.join(f'{name}={value}' for name, value in key)} for {arch} does not compile: {reason}", file=sys.stderr)
    if not binaries or len(prepared) < len(description["prepare"]):
        print("pack_triton.py: error: nothing that can be launched was compiled", file=sys.stderr)
        return 1
    kernel = pathlib.Path(description.get("file", arguments.kernel))
    made_by = {"name": "pack_triton.py", "triton": triton.__version__, "kernel": kernel.name,
               "sha256": hashlib.sha256(kernel.read_bytes()).hexdigest()}
    manifest = manifest_of(description, keyed(description, arguments), folder, prepared, binaries, made_by)
    (arguments.output / "pack.json").write_text(text_of(manifest), encoding="utf-8")
    every = len(candidates_of(description))
    print(f"{arguments.output}: {len(manifest['candidates'])} of {every} candidates in {len(binaries)} "
          f"{'binary' if len(binaries) == 1 else 'binaries'}, compiled in {time.monotonic() - begin:.0f} s; {large} "
          f"{'needs' if large == 1 else 'need'} more shared memory than a block has.")
    for name, values in description["others"].items():  # rules know sizes of the layer alone
        print(f"It can be launched for {name} = {', '.join(map(str, values))} alone: the kernels were compiled so.")
    for step in description["prepare"]:
        if not step.get("timed", True):
            print(f"{name_of(step['function'])} runs once before all launches: it is not timed.")
    print(f"Next: moetune tune --pack {arguments.output} --variant {manifest['variant']} --model ...")
    if (wrong := validated(arguments.output, arguments.output)) is None:
        print(f"there is no moetune here: see what 'moetune validate {arguments.output}' says of it", file=sys.stderr)
    return wrong or report_missing(other, manifest, binaries)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
