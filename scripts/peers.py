#!/usr/bin/env python3
"""Measures other libraries' grouped GEMMs, forward and backward, on the problems
of tables that moetune tuned: same rows per expert, same cold-L2 method. Needs
torch and a GPU; other libraries are used where they can be imported, and left
out with a message where not.

    moetune tune --suite hopper-peers -o table.json
    scripts/peers.py table.json -o peers.json
    moetune bench --table table.json --peers peers.json

Standard output gets a Markdown table, -o a JSON file (moetune.peers/1);
everything else goes to standard error. The method: operand sets rotate over at
least three times the L2 size; whole rotations are captured in a CUDA graph of 2
ms; CUDA events stand around its replays, with a rest before each; the result is
the median of the blocks. Each result is checked against an fp32 product expert
by expert before and after it is timed. Of cells with gates a peer's product is
followed by torch's compiled activation, and with --out-dtype fp8 by its
quantisation in the same pass, within the measured time; QuACK and SonicMoE
(which has bf16 of `up --gated silu` and of `down` alone) join gates and ups of
silu by themselves. A peer without a cell's op or dtype is left out there: fp8
with scales of blocks has DeepGEMM and Triton, with scales of channels or
tensors torch (`torch._scaled_grouped_mm`) and Triton.

Exit codes: 0 measured, 1 nothing was measured or the GPU was lost, 2 wrong
request, 3 no torch or no GPU here, 130 interrupted (what was measured is kept).
"""
import argparse
import fnmatch
import importlib.metadata
import importlib.util
import json
import math
import os
import sys
import time

from peer_libraries import FORWARD, FP8_PEERS, GRADIENTS, PEERS, Problem, triton, with_pass

SCHEMA = "moetune.peers/1"
MAX_LAUNCHES = 4096  # in a graph
BLOCK_SECONDS = 2e-3
EXPORTED = "moetune-export"
WEIGHING = ("torch-permuting", EXPORTED)  # peers that multiply rows by top-k weights
LIBRARIES = ("triton", "deep_gemm", "quack", "sonicmoe", "unsloth")  # of the environment: those of single peers
WARM_UP_SECONDS = 5e-3
SPIN_CYCLES = 2_000_000  # of a kernel that holds the stream while a graph is being launched behind it
TOLERANCE = 1e-2  # of the result's root mean square, expert by expert
TOLERANCE_OF_FP8 = 4e-2  # of a quantised result, whose rounding is 2.6e-2


class WrongRequest(Exception):
    """Exit code 2."""


class CannotHere(Exception):
    """Exit code 3."""


class GpuLost(Exception):
    """A peer broke the CUDA context: nothing more can run in this process."""


def tell(text):
    print(text, file=sys.stderr, flush=True)


# --- figures -------------------------------------------------------------------------------------------------------


def median(samples):
    """Middle value, mean of the middle two."""
    values = sorted(samples)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def median_interval(samples, confidence=0.95):
    """Distribution-free interval of the median from binomial order statistics; with too few samples the whole range."""
    values = sorted(samples)
    n = len(values)
    tail = (1 - confidence) / 2
    term = below = 0.5**n
    r = 0
    while r < n // 2 and below <= tail:
        r += 1
        term *= (n - r + 1) / r
        below += term
    low = max(r - 1, 0)
    return values[low], values[n - 1 - low]


def rounded(value, digits=6):
    return float(f"{value:.{digits}g}")


def launches_in_block(seconds_once, sets, block_seconds=BLOCK_SECONDS):
    """Whole rotations that take about block_seconds."""
    wanted = min(max(block_seconds / max(seconds_once, 1e-6), 1), MAX_LAUNCHES)
    return max(1, round(wanted / sets)) * sets


# --- requests ------------------------------------------------------------------------------------------------------


def integer_of(json_object, key, where, low):
    value = json_object.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise WrongRequest(f"{where}.{key}: expected a whole number of at least {low}, found {json.dumps(value)}")
    return value


def checked_entry(entry, where):
    """An entry of a table, with what this program reads of it checked."""
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str) or not isinstance(entry.get("cell"), dict):
        raise WrongRequest(f"{where}: expected an entry with 'id' and 'cell'")
    cell = entry["cell"]
    sizes = {key: integer_of(cell, key, f"{where}.cell", 1) for key in ("n", "k", "experts", "top_k", "tokens")}
    m_sizes = entry.get("m_sizes")
    if not isinstance(m_sizes, list) or not m_sizes:
        raise WrongRequest(f"{where}: 'm_sizes' is missing")
    for i, m in enumerate(m_sizes):
        if isinstance(m, bool) or not isinstance(m, int) or not 0 <= m <= sizes["tokens"]:
            raise WrongRequest(f"{where}.m_sizes[{i}]: expected 0 to {sizes['tokens']} rows, found {json.dumps(m)}")
    if len(m_sizes) > sizes["experts"] or sum(m_sizes) > sizes["tokens"] * sizes["top_k"]:
        raise WrongRequest(f"{where}: m_sizes contradict the cell's experts, tokens and top_k")
    return {"id": entry["id"], "cell": cell, "m_sizes": m_sizes}


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise WrongRequest(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise WrongRequest(f"{path}: not JSON: {error}") from error


def read_entries(paths):
    """The cells of all tables, each once."""
    entries = {}
    for path in paths:
        table = read_json(path)
        schema = table.get("schema") if isinstance(table, dict) else None
        if schema == "moetune.bench/1":
            raise WrongRequest(f"{path}: bench files hold no rows per expert; give the table that 'tune' wrote")
        if schema != "moetune.table/1":
            raise WrongRequest(f"{path}: its schema is {json.dumps(schema)}, expected \"moetune.table/1\"")
        if not isinstance(table.get("entries"), list):
            raise WrongRequest(f"{path}: entries: expected a list")
        for i, raw in enumerate(table["entries"]):
            entry = checked_entry(raw, f"{path}: entries[{i}]")
            known = entries.setdefault(entry["id"], entry)
            if known["m_sizes"] != entry["m_sizes"]:
                raise WrongRequest(f"{path}: entries[{i}]: {entry['id']} has other rows than in an earlier table")
    if not entries:
        raise WrongRequest(f"{', '.join(map(str, paths))}: the tables have no entries")
    return list(entries.values())


def unsuited(entry):
    """Why no peer can be measured on this cell, or nothing."""
    cell = entry["cell"]
    if cell.get("op", "fwd") not in FORWARD + GRADIENTS:
        return f"op {cell['op']} is not measured here"
    for flag in ("accumulate", "fp32_dw", "sum_slots", "weight_gradient", "store_h"):
        if cell.get(flag):
            return f"{flag} is not measured here"
    if cell.get("dtype") == "fp8":
        if cell.get("op", "fwd") not in FORWARD or cell.get("out_dtype") not in ("bf16", "fp16", "fp8"):
            return f"fp8 {cell.get('op')} to {cell.get('out_dtype')} is not measured here"
        if cell.get("scales") not in FP8_PEERS:
            return f"fp8 with scales of {cell.get('scales')} is not measured here"
    elif cell.get("dtype") not in ("bf16", "fp16"):
        return f"dtype {cell.get('dtype')} is not measured here"
    return None if sum(entry["m_sizes"]) else "it has no rows"


def missing(module):
    if module == "triton" and importlib.util.find_spec(module) and triton is None:
        return "triton is not installed whole"
    try:
        found = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        found = False
    return None if found else f"{module} is not installed"


def absent(peer):
    """Why a peer can't be measured here, or nothing."""
    return next((reason for reason in map(missing, PEERS[peer][1]) if reason), None)


# --- measuring -----------------------------------------------------------------------------------------------------


def timed(torch, work):
    """Seconds of what `work` enqueues. A spinning kernel holds the stream meanwhile: launching costs nothing."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    if hasattr(torch.cuda, "_sleep"):
        torch.cuda._sleep(SPIN_CYCLES)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3


def measure(p, variant, blocks, rest, block_seconds=BLOCK_SECONDS):
    """Seconds a launch, one figure a block, and the launches in a block."""
    torch = p.torch
    warm_until = time.monotonic() + WARM_UP_SECONDS
    while time.monotonic() < warm_until:
        for i in range(p.sets):
            variant.launch(i)
        torch.cuda.synchronize()

    def rotate():
        for i in range(p.sets):
            variant.launch(i)

    launches = launches_in_block(timed(torch, rotate) / p.sets, p.sets, block_seconds)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for i in range(launches):
            variant.launch(i % p.sets)
    try:
        spoil(variant)
        graph.replay()
        torch.cuda.synchronize()
        seconds = []
        for _ in range(blocks):
            time.sleep(rest)
            seconds.append(timed(torch, graph.replay) / launches)
        require_right(p, variant)
    finally:
        torch.cuda.synchronize()
        graph.reset()
    return seconds, launches


def spoil(variant):
    """Fills the first result with NaN; of a quantised one the scales."""
    result = variant.outputs[0]
    (result[1] if isinstance(result, tuple) else result).fill_(math.nan)


def require_right(p, variant):
    error = p.error_of(variant.in_order(variant.outputs[0]))
    if not error < (TOLERANCE_OF_FP8 if p.quantised else TOLERANCE):
        raise ArithmeticError(f"wrong result: error {error:.3g} of the root mean square ({variant.note})")


def prove(p, variant):
    """Launches once into outputs full of NaN, and checks."""
    if variant.outputs[0] is not None:
        spoil(variant)
    variant.launch(0)
    p.torch.cuda.synchronize()
    require_right(p, variant)


def require_alive(torch, peer):
    try:
        torch.cuda.synchronize()
    except Exception as error:
        raise GpuLost(f"{peer} broke the CUDA context: {first_line(error)}") from error


def first_line(error):
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no text'}"


def best_variant(p, peer, variants):
    """The variant that is right and fastest in a short trial."""
    scores, reason = [], None
    for index, variant in enumerate(variants):
        try:
            prove(p, variant)
            if len(variants) > 1:
                seconds, _ = measure(p, variant, blocks=3, rest=2e-3, block_seconds=BLOCK_SECONDS / 2)
                scores.append((median(seconds), index))
            else:
                scores.append((0.0, index))
        except Exception as error:  # such as too much shared memory
            reason = error
            require_alive(p.torch, peer)
            if len(variants) > 1:
                tell(f"  {peer}: passed over: {variant.note.rsplit('; ', 1)[-1]}: {first_line(error)}")
    if not scores:
        raise reason
    return variants[min(scores)[1]]


def measure_peer(p, peer, options):
    """An entry's figures of one peer."""
    variant = best_variant(p, peer, [with_pass(p, variant) for variant in PEERS[peer][0](p, options)])
    seconds, launches = measure(p, variant, options.blocks, options.rest_ms * 1e-3)
    low, high = median_interval(seconds)
    return {"median_us": rounded(median(seconds) * 1e6), "low_us": rounded(low * 1e6), "high_us": rounded(high * 1e6),
            "samples": len(seconds), "launches": launches * len(seconds), "clock_mhz": 0, "note": variant.note}


def measure_cell(torch, entry, peers, options, keep):
    """Measures every peer on one cell; one that fails is reported and left out."""
    if entry["cell"].get("bias"):
        return tell("  left out: no peer adds a bias")
    problem = Problem(torch, entry, options.device)
    for peer in peers:
        if problem.op not in PEERS[peer][2]:
            continue
        if entry["cell"].get("dtype") == "fp8" and peer not in FP8_PEERS[entry["cell"]["scales"]]:
            continue
        if problem.weighted and peer not in WEIGHING:
            tell(f"  {peer}: left out: it does not multiply rows by weights")
            continue
        if peer == "torch-permuting" and not (problem.gathered or problem.scatters):
            continue  # it would be torch-grouped-mm
        try:
            figures = measure_peer(problem, peer, options)
            keep({"id": entry["id"], "cell": entry["cell"], "peer": peer, **figures})
            tell(f"  {peer}: {figures['median_us']:g} us ({figures['note']})")
        except GpuLost:
            raise
        except Exception as error:
            tell(f"  {peer}: left out: {first_line(error)}")
            require_alive(torch, peer)
        torch.cuda.empty_cache()


# --- results -------------------------------------------------------------------------------------------------------


def markdown(results):
    """One row per cell, one column per peer, in microseconds, the best in bold."""
    peers = [peer for peer in PEERS if any(result["peer"] == peer for result in results)]
    times = {}
    for result in results:
        times.setdefault(result["id"], {})[result["peer"]] = result["median_us"]
    lines = ["| cell, us | " + " | ".join(peers) + " |", "| --- |" + " ---: |" * len(peers)]
    for cell, row in times.items():
        best = min(row.values())
        texts = {peer: f"**{us:.4g}**" if us == best else f"{us:.4g}" for peer, us in row.items()}
        lines.append(f"| {cell} | " + " | ".join(texts.get(peer, "") for peer in peers) + " |")
    return "\n".join(lines)


def write_atomic(path, text):
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def version_of(module):
    try:
        return str(importlib.import_module(module).__version__)
    except Exception:  # not there, broken, or without a version
        return None


def package_versions():
    """Of peers whose import changes what other peers run on, so that it waits for their turn."""
    versions = {}
    for key, package in (("quack", "quack-kernels"), ("sonicmoe", "sonicmoe"), ("unsloth", "unsloth")):
        try:
            versions[key] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return versions


def environment_of(torch, device):
    properties = torch.cuda.get_device_properties(device)
    return {"device": properties.name, "torch": torch.__version__, "cuda": torch.version.cuda,
            "triton": version_of("triton"), "deep_gemm": version_of("deep_gemm") if not missing("deep_gemm") else None,
            **package_versions()}


def read_results(path, environment):
    """What an earlier run left, for --resume, and the environment of both; one of them may lack a library."""
    if not os.path.exists(path):
        return [], environment
    before = read_json(path)
    if not isinstance(before, dict) or before.get("schema") != SCHEMA or not isinstance(before.get("entries"), list):
        raise WrongRequest(f"{path}: not a file of {SCHEMA}: it cannot be continued; give another -o")
    then = before.get("environment") or {}
    for key, value in environment.items():
        lacking = key in LIBRARIES and (value is None or then.get(key) is None)
        if not lacking and then.get(key) != value:
            raise WrongRequest(f"{path}: measured in another environment: {json.dumps(then)}")
    return before["entries"], environment | {key: value for key, value in then.items() if value is not None}


def open_gpu(device):
    """torch, or the reason why not."""
    try:
        import torch
    except Exception as error:
        raise CannotHere(f"torch cannot be imported: {error}") from error
    if not torch.cuda.is_available():
        raise CannotHere("torch finds no GPU here")
    try:
        torch.cuda.set_device(torch.device(device))
    except Exception as error:
        raise CannotHere(f"{device} cannot be used: {first_line(error)}") from error
    torch.backends.cuda.matmul.allow_tf32 = False  # the reference is fp32
    return torch


def run(options):
    entries = read_entries(options.tables)
    if options.cells:
        entries = [entry for entry in entries if any(fnmatch.fnmatchcase(entry["id"], cell) for cell in options.cells)]
        if not entries:
            raise WrongRequest(f"--cells: no cell matches {', '.join(options.cells)}")
    if options.resume and not options.output:
        raise WrongRequest("--resume needs -o, the file to continue")
    if options.output and not os.path.isdir(os.path.dirname(os.path.abspath(options.output))):
        raise WrongRequest(f"-o: {options.output}: its folder does not exist")
    torch = open_gpu(options.device)
    environment = environment_of(torch, options.device)
    results = []
    if options.resume:
        results, environment = read_results(options.output, environment)
    done = {(result["id"], result["peer"]) for result in results}
    peers = []
    for peer in options.peers:
        reason = absent(peer)
        if reason:
            tell(f"{peer}: left out: {reason}")
        else:
            peers.append(peer)

    def keep(result):
        results.append(result)
        if options.output:
            file = {"schema": SCHEMA, "tool": {"name": "peers.py", "argv": sys.argv}, "environment": environment,
                    "entries": results}
            write_atomic(options.output, json.dumps(file, indent=1) + "\n")

    code = 0
    try:
        for number, entry in enumerate(entries, 1):
            tell(f"[{number}/{len(entries)}] {entry['id']}")
            wanted = [peer for peer in peers if (entry["id"], peer) not in done]
            reason = unsuited(entry)
            if reason:
                tell(f"  left out: {reason}")
            elif wanted:
                try:
                    measure_cell(torch, entry, wanted, options, keep)
                except GpuLost:
                    raise
                except Exception as error:  # such as too little memory
                    tell(f"  left out: {first_line(error)}")
                    require_alive(torch, "this cell")
                torch.cuda.empty_cache()
    except GpuLost as error:
        tell(f"peers.py: error: {error}\nhint: go on with --resume, and leave that peer out of --peers")
        code = 1
    except KeyboardInterrupt:
        code = 130
    if not results:
        tell("peers.py: error: nothing was measured")
        return code or 1
    print(markdown(results), flush=True)
    return code


def arguments_of(argv):
    parser = argparse.ArgumentParser(prog="peers.py", formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="tables that 'moetune tune' wrote")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the times as JSON, anew after each peer")
    parser.add_argument("--resume", action="store_true", help="keep what -o holds and measure the rest")
    parser.add_argument("--peers", metavar="LIST", help=f"such as {','.join(PEERS)}")
    parser.add_argument("--export", metavar="DIR",
                        help="what 'moetune export --format kernels' wrote, for the peer moetune-export")
    parser.add_argument("--cells", metavar="GLOB", action="append", help="only cells with such ids: '*/t16/*'")
    parser.add_argument("--blocks", type=int, default=11, metavar="N", help="blocks of launches [%(default)s]")
    parser.add_argument("--rest-ms", type=float, default=15, metavar="MS", help="idle before each block [%(default)s]")
    parser.add_argument("--triton-tune", action=argparse.BooleanOptionalAction, default=True,
                        help="try about twelve configurations of the Triton kernel a cell, and keep the fastest")
    parser.add_argument("--device", default="cuda:0", metavar="WORD", help="[%(default)s]")
    parser.add_argument("--list", action="store_true", help="tell the peers, and which can be imported, and stop")
    options = parser.parse_args(argv)  # exits with 2 by itself
    asked = options.peers is not None
    options.peers = [name.strip() for name in (options.peers or ",".join(PEERS)).split(",")]
    if not options.export and not options.list:
        if asked and EXPORTED in options.peers:
            raise WrongRequest(f"--peers: {EXPORTED} needs --export DIR")
        options.peers = [name for name in options.peers if name != EXPORTED]
    for name in options.peers:
        if name not in PEERS:
            raise WrongRequest(f"--peers: '{name}' is none of {', '.join(PEERS)}")
    if options.export and not os.path.isfile(os.path.join(options.export, "manifest.json")):
        raise WrongRequest(f"--export: {options.export} has no manifest.json")
    if options.blocks < 1:
        raise WrongRequest(f"--blocks: {options.blocks} is less than 1")
    if not 0 <= options.rest_ms <= 10000:
        raise WrongRequest(f"--rest-ms: {options.rest_ms:g} is outside 0 to 10000")
    if not options.tables and not options.list:
        raise WrongRequest("no table is given, such as one that 'moetune tune' wrote")
    return options


def main(argv):
    try:
        options = arguments_of(argv)
        if options.list:
            for peer in options.peers:
                print(f"{peer:<21}{absent(peer) or 'can be imported'}")
            return 0
        return run(options)
    except WrongRequest as error:
        tell(f"peers.py: error: {error}")
        return 2
    except CannotHere as error:
        tell(f"peers.py: error: {error}")
        return 3
    except OSError as error:
        tell(f"peers.py: error: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
