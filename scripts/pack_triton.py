#!/usr/bin/env python3
"""Makes a kernel pack (moetune tune --pack DIR) of a Triton kernel, compiled for an architecture without a GPU.

    scripts/pack_triton.py -o triton-pack              # scripts/triton_moe.py over vLLM's 1,920 configurations
    scripts/pack_triton.py -o mine --kernel my_moe.py --arch sm_80 --set num_stages=3,4
    moetune tune --pack triton-pack --variant triton_moe --strategy exhaustive --model qwen3-30b-a3b --tokens 1,64,4096

FILE.py of --kernel has a function describe(dtype), as scripts/triton_moe.py has: kernels, their arguments, preparing
steps, knobs, rules, operands and buffers. Candidates that differ only in values of launches share a cubin. Those that
do not compile are left out of the pack and reported. Needs triton; configs/schema/pack.json describes what it writes.

Make a pack for each architecture. One for several (--arch sm_90a,sm_80) holds the threads, shared memory and trailing
arguments of a kernel once, and Triton often builds it in another way for each: such a kernel is there for the first of
them alone. The pack is written, and the last sentence tells how many candidates are missing for which architecture.

Exit 0: all that compiles is in the pack. 1: an architecture builds candidates in another way than the first, so that
they are missing for it, or nothing can be launched. 2: wrong usage. 3: no triton.
"""
import argparse
import concurrent.futures
import hashlib
import importlib.util
import itertools
import json
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import time

SHARED_BYTES = {80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 120: 101376}  # that a block may have


def load(path):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def capability(arch):
    return int(re.fullmatch(r"sm_(\d+)a?", arch).group(1))


def combinations(knobs):
    names = [knob["name"] for knob in knobs]
    return [dict(zip(names, values)) for values in itertools.product(*(knob["values"] for knob in knobs))]


def registers_of(cubin):
    """Registers per thread, by cuobjdump where triton has one and the kernel tells its stack."""
    try:
        from triton import knobs
        path = knobs.nvidia.cuobjdump.path
    except Exception:
        return {}
    temporary = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"moetune-{os.getpid()}.cubin"
    try:
        temporary.write_bytes(cubin)
        told = subprocess.run([path, "-res-usage", temporary], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    finally:
        temporary.unlink(missing_ok=True)
    registers, stack = re.search(r"REG:(\d+)", told), re.search(r"STACK:(\d+)", told)
    return {"registers": int(registers.group(1))} if registers and stack else {}


def compile_kernel(kernel, constants, options, arch):
    """The binary of a pack for one architecture: its bytes and what the manifest says of it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    function, arguments = kernel["function"], kernel["arguments"]
    constants = {**kernel["constants"], **constants}
    names = function.arg_names
    if missing := [name for name in names if name not in arguments and name not in constants]:
        raise ValueError(f"{function.__name__} has parameters that describe() says nothing of: {', '.join(missing)}")
    signature = {name: arguments[name][0] if name in arguments else "constexpr" for name in names}
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name, (_, _, divisible) in arguments.items() if divisible}
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


def built_for(task):
    """Runs in a process of its own: (place, key, architecture, cubin, binary, registers); without a cubin the reason stands in
    place of the binary."""
    path, dtype, place, key, constants, options, arch = task
    description = load(path).describe(dtype)
    kernel = description["kernel"] if place is None else description["prepare"][place]
    try:
        cubin, binary = compile_kernel(kernel, constants, options, arch)
    except Exception as error:  # of the compiler's own kinds
        return place, key, arch, None, f"{type(error).__name__}: {error}".splitlines()[0], {}
    return place, key, arch, cubin, binary, registers_of(cubin)


def tasks_of(arguments, description):
    """What is to be compiled, and how many candidates need more shared memory than a block has."""
    host = (str(arguments.kernel), arguments.dtype)
    tasks, large = [], 0
    for place, step in enumerate(description["prepare"]):
        tasks += [(*host, place, (), {}, step.get("options", {}), arch) for arch in arguments.arch]
    seen = set()
    for knobs in combinations(description["knobs"]):
        constants = {name: knobs[name] for name in description["constants"]}
        options = {name: knobs[name] for name in description["options"]}
        key = (*constants.items(), *options.items())
        fits = [arch for arch in arguments.arch
                if description["least_shared_bytes"](knobs) <= SHARED_BYTES.get(capability(arch), 1 << 20)]
        large += not fits
        if key not in seen:
            tasks += [(*host, None, key, constants, options, arch) for arch in fits]
        seen.add(key)
    return tasks, large


def compile_all(tasks, jobs):
    """Results of built_for, as they come."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for done, result in enumerate(pool.map(built_for, tasks, chunksize=1), 1):
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


def manifest_of(description, folder, prepared, binaries, made_by):
    """pack.json. `binaries` are by key, in the order of candidates."""
    places = {key: place for place, key in enumerate(binaries)}
    candidates = []
    for knobs in combinations(description["knobs"]):
        key = tuple((name, knobs[name]) for name in (*description["constants"], *description["options"]))
        if key in places:
            candidates.append([*knobs.values(), places[key]])
    launches = []
    for place, step in enumerate(description["prepare"]):
        files, binary = prepared[place]
        launches.append({"cubin": files, "entry": binary["entry"], "threads": binary["threads"],
                         "shared_bytes": binary["shared_bytes"], "cluster": binary["cluster"], "most_per_processor": None,
                         "cooperative": False, "grid": step["grid"], "arguments": [*values_of(step), *binary["trailing"]]})
    launches.append({"cubin": "candidate", "cooperative": False, "grid": description["kernel"]["grid"],
                     "arguments": values_of(description["kernel"])})
    scratch = any(binary["scratch_bytes"] for _, binary in binaries.values())
    return {"schema": "moetune.pack/1", "made_by": made_by,
            **{name: description[name] for name in ("variant", "summary", "knobs", "computes", "rules")},
            "operands": description["operands"],
            "buffers": description["buffers"] + [{"name": "scratch", "bytes": "blocks * scratch_bytes", "zeroed": False}] * scratch,
            "launches": launches, "files": folder.files,
            "binaries": [{"files": files, **binary} for files, binary in binaries.values()], "candidates": candidates}


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
        if binary != first:  # shared memory and threads are told once for all architectures
            other.append((place, key, arch))
            continue
        files[arch] = folder.add(arch, cubin, registers)
    return prepared, binaries, failed, other


def tell_missing(other, manifest, binaries):
    """Says for each architecture how many of the pack's candidates it lacks, and returns the exit code."""
    places = {key: place for place, key in enumerate(binaries)}
    for arch in dict.fromkeys(arch for _, _, arch in other):
        lost = {places[key] for place, key, at in other if at == arch and place is None}
        no_steps = any(at == arch and place is not None for place, _, at in other)
        missing = sum(no_steps or binary in lost for *_, binary in manifest["candidates"])
        print(f"pack_triton.py: error: {missing} of {len(manifest['candidates'])} candidates are missing for {arch}, where "
              "they take other threads, shared memory or arguments than for the first architecture", file=sys.stderr)
    if other:
        print("hint: make a pack for each architecture", file=sys.stderr)
    return 1 if other else 0


def parse(argv):
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="DIR", help="a folder that is not there yet, or empty")
    parser.add_argument("--kernel", type=pathlib.Path, default=here / "triton_moe.py", metavar="FILE.py")
    parser.add_argument("--arch", default="sm_90a", help="better one than several: see above [sm_90a]")
    parser.add_argument("--dtype", choices=["bf16", "fp16"], default="bf16")
    parser.add_argument("--set", action="append", default=[], metavar="KNOB=LIST", help="other values for a knob")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes that compile [all cores]")
    arguments = parser.parse_args(argv)
    arguments.arch = arguments.arch.split(",")
    for arch in arguments.arch:
        if not re.fullmatch(r"sm_\d\d\d?a?", arch):
            parser.error(f"--arch: '{arch}' is not an architecture such as sm_90a")
    if arguments.output.exists() and (not arguments.output.is_dir() or any(arguments.output.iterdir())):
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


def main(argv):
    parser, arguments = parse(argv)
    try:
        import triton
    except ImportError:
        print("pack_triton.py: error: triton is not installed\nhint: pip install triton", file=sys.stderr)
        return 3
    description = load(arguments.kernel).describe(arguments.dtype)
    set_values(parser, description, arguments.set)
    begin = time.monotonic()
    tasks, large = tasks_of(arguments, description)
    arguments.output.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # as jit-compiled kernels have it; Triton warns where nothing is said
    folder = Folder(arguments.output)
    prepared, binaries, failed, other = collect(compile_all(tasks, arguments.jobs), folder)
    for place, key, arch, reason in failed:
        what = "the kernel" if place is None else f"preparing step {place}"
        print(f"{what} {' '.join(f'{name}={value}' for name, value in key)} for {arch} does not compile: {reason}", file=sys.stderr)
    if not binaries or len(prepared) < len(description["prepare"]):
        print("pack_triton.py: error: nothing that can be launched was compiled", file=sys.stderr)
        return 1
    made_by = {"name": "pack_triton.py", "triton": triton.__version__, "kernel": arguments.kernel.name,
               "sha256": hashlib.sha256(arguments.kernel.read_bytes()).hexdigest()}
    manifest = manifest_of(description, folder, prepared, binaries, made_by)
    (arguments.output / "pack.json").write_text(text_of(manifest), encoding="utf-8")
    every = len(combinations(description["knobs"]))
    print(f"{arguments.output}: {len(manifest['candidates'])} of {every} candidates in {len(binaries)} "
          f"{'binary' if len(binaries) == 1 else 'binaries'}, compiled in {time.monotonic() - begin:.0f} s; {large} "
          f"{'needs' if large == 1 else 'need'} more shared memory than a block has.")
    return tell_missing(other, manifest, binaries)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
