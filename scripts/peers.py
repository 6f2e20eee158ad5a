#!/usr/bin/env python3
"""Measures other libraries' grouped GEMMs on the problems of tables that moetune tuned: same rows per expert, same
cold-L2 method. Needs torch and a GPU; other libraries are used where they can be imported, and left out with a word
where not.

    moetune tune --suite hopper-peers -o table.json
    scripts/peers.py table.json -o peers.json
    moetune bench --table table.json --peers peers.json

Standard output gets a Markdown table, -o a JSON file (moetune.peers/1); everything else goes to standard error.
The method: operand sets rotate through at least three L2s; whole rotations are captured in one CUDA graph of about
2 ms; CUDA events stand around its replays, with a rest before each; the result is the median of the blocks. Each
result is checked against an fp32 product expert by expert before and after it is timed.

Exit codes: 0 measured, 1 nothing was measured or the GPU was lost, 2 wrong request, 3 no torch or no GPU here,
130 interrupted (what was measured is kept).
"""
import argparse
import bisect
import fnmatch
import importlib.util
import itertools
import json
import math
import os
import sys
import time

try:
    import triton
    import triton.language as tl
except Exception:  # a broken installation is as good as none
    triton = None

SCHEMA = "moetune.peers/1"
COLD_FACTOR = 3  # operand sets hold this many L2s together
MAX_SETS = 1024
MAX_LAUNCHES = 4096  # in a graph
BLOCK_SECONDS = 2e-3
WARM_UP_SECONDS = 5e-3
SPIN_CYCLES = 2_000_000  # of a kernel that holds the stream while a graph is being launched behind it
TOLERANCE = 1e-2  # of the result's root mean square, expert by expert
CONTIGUOUS_ALIGNS = (64, 128, 256)  # rows an expert in DeepGEMM's contiguous layout, and in a tile
MASKED_ALIGN = 256  # rows an expert in DeepGEMM's masked layout: a tile must not reach into the next expert

# vLLM's files of tuned configurations for the H200, bf16, by experts and intermediate width. For each token count:
# BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M, num_warps, num_stages. The nearest token count is used.
VLLM_H200 = {
    (8, 14336): {
        1: (16, 128, 128, 16, 4, 5), 2: (32, 64, 128, 1, 4, 5), 4: (16, 64, 64, 1, 4, 5), 8: (16, 128, 128, 1, 4, 5),
        16: (16, 64, 256, 16, 4, 3), 24: (16, 128, 256, 16, 4, 2), 32: (16, 128, 128, 16, 8, 3),
        48: (32, 128, 128, 16, 4, 3), 64: (32, 128, 128, 64, 4, 3), 96: (32, 128, 128, 64, 4, 3),
        128: (64, 128, 128, 1, 8, 4), 256: (128, 256, 64, 1, 8, 4), 512: (128, 256, 64, 16, 8, 4),
        1024: (128, 256, 64, 16, 8, 4), 1536: (128, 256, 64, 16, 8, 4), 2048: (128, 256, 64, 32, 8, 4),
        3072: (128, 256, 64, 16, 8, 4), 4096: (128, 256, 64, 16, 8, 4),
    },
    (128, 768): {
        1: (16, 64, 64, 1, 4, 5), 2: (16, 64, 64, 1, 4, 4), 4: (16, 64, 128, 16, 4, 2), 8: (16, 64, 128, 1, 4, 3),
        16: (16, 64, 256, 1, 4, 2), 24: (16, 64, 128, 1, 4, 4), 32: (16, 64, 128, 16, 4, 2),
        48: (16, 128, 128, 16, 4, 3), 64: (16, 256, 128, 1, 8, 2), 96: (16, 128, 128, 1, 4, 2),
        128: (16, 128, 128, 1, 4, 2), 256: (32, 256, 128, 16, 4, 2), 512: (64, 128, 64, 1, 4, 3),
        1024: (128, 256, 64, 16, 8, 4), 1536: (128, 256, 64, 1, 8, 4), 2048: (128, 256, 64, 1, 8, 4),
        3072: (128, 256, 64, 1, 8, 4), 4096: (128, 256, 64, 16, 8, 4),
    },
}

# What --triton-tune tries beside vLLM's own choice, for few, some and many rows per active expert.
TRITON_SPACE = (
    (24, ((16, 64, 128, 1, 4, 4), (16, 64, 128, 1, 4, 5), (16, 64, 256, 1, 4, 3), (16, 128, 128, 1, 4, 4),
          (16, 128, 64, 1, 4, 5), (16, 128, 256, 1, 4, 2), (16, 32, 256, 1, 4, 4), (16, 256, 64, 1, 4, 4),
          (16, 128, 128, 16, 8, 4), (32, 64, 128, 1, 4, 4), (32, 128, 128, 1, 4, 3))),
    (96, ((16, 128, 128, 8, 4, 4), (32, 128, 128, 1, 4, 4), (32, 128, 64, 8, 4, 4), (32, 256, 64, 8, 4, 4),
          (64, 64, 128, 1, 4, 4), (64, 128, 128, 1, 8, 3), (64, 128, 64, 8, 4, 4), (64, 256, 64, 1, 4, 4),
          (64, 256, 64, 8, 8, 4), (128, 128, 64, 8, 8, 4), (128, 256, 64, 1, 8, 3))),
    (math.inf, ((64, 128, 64, 8, 4, 4), (64, 256, 64, 1, 4, 4), (64, 256, 64, 8, 8, 4), (128, 128, 64, 1, 4, 4),
                (128, 128, 64, 8, 8, 4), (128, 128, 128, 8, 8, 3), (128, 256, 64, 1, 8, 3), (128, 256, 64, 1, 8, 4),
                (128, 256, 64, 8, 8, 3), (128, 256, 64, 16, 8, 4), (256, 128, 64, 8, 8, 3))),
)


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


def choose_sets(touched_bytes, cache_bytes):
    """Operand sets that one rotation needs to find nothing of itself in the cache; at least two."""
    return min(max(math.ceil(COLD_FACTOR * cache_bytes / touched_bytes), 2), MAX_SETS)


def launches_in_block(seconds_once, sets, block_seconds=BLOCK_SECONDS):
    """Whole rotations that take about block_seconds."""
    wanted = min(max(block_seconds / max(seconds_once, 1e-6), 1), MAX_LAUNCHES)
    return max(1, round(wanted / sets)) * sets


# --- rows ----------------------------------------------------------------------------------------------------------


def align(value, multiple):
    return -(-value // multiple) * multiple


def padded_starts(m_sizes, multiple):
    """Where each expert's rows begin when each is padded to a multiple, and the sum; no rows take no room."""
    return [0, *itertools.accumulate(align(m, multiple) for m in m_sizes)]


def slots_of_rows(m_sizes, tokens, top_k, order):
    """The slot token * top_k + choice behind each row, rows in expert order. `order` permutes the tokens. An expert
    with at most `tokens` rows gets each token once, and its slots ascend, as a stable sort by expert gives them."""
    slots = [order[i % tokens] * top_k + i // tokens for i in range(sum(m_sizes))]
    starts = [0, *itertools.accumulate(m_sizes)]
    return [slot for begin, end in zip(starts, starts[1:]) for slot in sorted(slots[begin:end])]


def blocks_of_slots(m_sizes, slots, block_m, pad):
    """What vLLM's align step gives: slots padded with `pad` to whole blocks expert by expert, and each block's
    expert."""
    ids, experts, begin = [], [], 0
    for expert, m in enumerate(m_sizes):
        room = align(m, block_m)
        ids += slots[begin : begin + m] + [pad] * (room - m)
        experts += [expert] * (room // block_m)
        begin += m
    return ids, experts


def vllm_config(experts, width, tokens):
    """vLLM's configuration for bf16 and where it comes from: its H200 file for this layer, else its default rule."""
    tuned = VLLM_H200.get((experts, width))
    if tuned:
        return tuned[min(tuned, key=lambda known: abs(known - tokens))], "vLLM's H200 file"
    block_m = (16, 32, 64, 128)[bisect.bisect_left((32, 96, 512), tokens)]
    block_n, block_k = (64, 128) if tokens <= 64 else (128, 64)
    group = 16 if tokens // experts > 128 else 1
    return (block_m, block_n, block_k, group, 4 if tokens <= 128 else 8, 4 if tokens <= 32 else 3), "vLLM's default"


def triton_configs(experts, width, tokens, m_sizes, tune):
    """(configuration, origin) to try: vLLM's first, about twelve with `tune`."""
    first, origin = vllm_config(experts, width, tokens)
    rows = sum(m_sizes) / max(1, sum(m > 0 for m in m_sizes))
    more = next(configs for limit, configs in TRITON_SPACE if rows <= limit) if tune else ()
    return [(first, origin)] + [(config, "tuned") for config in more if config != first]


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
        raise WrongRequest(f"{', '.join(map(str, paths))}: no entries")
    return list(entries.values())


def unsuited(entry):
    """Why no peer can stand beside this cell, or nothing."""
    cell = entry["cell"]
    if cell.get("op", "fwd") != "fwd":
        return f"op {cell['op']} is not measured here"
    if cell.get("dtype") not in ("bf16", "fp16"):
        return f"dtype {cell.get('dtype')} is not measured here"
    return None if sum(entry["m_sizes"]) else "it has no rows"


# --- the Triton kernel, of the shape of vLLM's fused_moe -----------------------------------------------------------

if triton:

    # What differs from cell to cell is no constant: one compilation serves all cells of a configuration.
    @triton.jit(do_not_specialize=["m_blocks", "slots", "slots_a_row"])
    def gathered_rows_kernel(x, w, y, slot_ids, block_experts, m_blocks, n, k, slots, slots_a_row,
                             EVEN_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                             BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr):
        # One tile of Y. Tiles run through GROUP_M row blocks before the next column block.
        pid = tl.program_id(0)
        in_group = GROUP_M * tl.cdiv(n, BLOCK_N)
        first = pid // in_group * GROUP_M
        height = tl.minimum(m_blocks - first, GROUP_M)
        row_block = first + pid % in_group % height
        column_block = pid % in_group // height

        slot = tl.load(slot_ids + row_block * BLOCK_M + tl.arange(0, BLOCK_M))
        live = slot < slots
        expert = tl.load(block_experts + row_block).to(tl.int64)
        column = column_block * BLOCK_N + tl.arange(0, BLOCK_N)
        inner = tl.arange(0, BLOCK_K)
        x_at = x + (slot // slots_a_row).to(tl.int64)[:, None] * k + inner[None, :]
        w_at = w + expert * n * k + (column % n).to(tl.int64)[None, :] * k + inner[:, None]
        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for begin in range(0, k, BLOCK_K):
            if EVEN_K:
                a = tl.load(x_at, mask=live[:, None], other=0.0)
                b = tl.load(w_at)
            else:
                a = tl.load(x_at, mask=live[:, None] & (inner[None, :] < k - begin), other=0.0)
                b = tl.load(w_at, mask=inner[:, None] < k - begin, other=0.0)
            sums = tl.dot(a, b, sums)
            x_at += BLOCK_K
            w_at += BLOCK_K
        y_at = y + slot.to(tl.int64)[:, None] * n + column[None, :]
        tl.store(y_at, sums.to(y.dtype.element_ty), mask=live[:, None] & (column[None, :] < n))


# --- problems and peers --------------------------------------------------------------------------------------------


class Problem:
    """One cell's operand sets on the GPU. x is in expert order; x_source is what it was gathered from."""

    def __init__(self, torch, entry, device, seed=0):
        cell = entry["cell"]
        self.torch, self.device, self.m_sizes = torch, device, entry["m_sizes"]
        self.n, self.k, self.tokens, self.top_k = cell["n"], cell["k"], cell["tokens"], cell["top_k"]
        self.experts, self.rows = len(self.m_sizes), sum(self.m_sizes)
        self.down = cell.get("projection") == "down"
        self.gathers, self.scatters = bool(cell.get("permute_x")), bool(cell.get("permute_y"))
        self.width = self.k if self.down else self.n // 2  # what vLLM's files call N, of gated layers
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[cell["dtype"]]
        self.starts = [0, *itertools.accumulate(self.m_sizes)]
        self.active = [e for e, m in enumerate(self.m_sizes) if m > 0]
        touched = 2 * (self.rows * (self.k + self.n) + len(self.active) * self.n * self.k)
        cache = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or 64 << 20
        self.sets = choose_sets(touched, cache)
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(seed)
        order = torch.randperm(self.tokens, generator=torch.Generator().manual_seed(seed)).tolist()
        self.slots = slots_of_rows(self.m_sizes, self.tokens, self.top_k, order)
        self.slot_index = torch.tensor(self.slots, dtype=torch.int64, device=device)
        # Before `up` the rows of a token are one row; before `down` every slot has its own.
        self.source_of_row = self.slot_index if self.down else self.slot_index // self.top_k
        sources = self.tokens * self.top_k if self.down else self.tokens
        self.x_source = [self.random(sources, self.k) for _ in range(self.sets)]
        self.x = [source[self.source_of_row].contiguous() for source in self.x_source]
        self.w = [self.random(self.experts, self.n, self.k) for _ in range(self.sets)]
        self.expected = self.multiply()

    def random(self, *shape):
        return self.torch.randn(shape, dtype=self.dtype, device=self.device, generator=self.generator)

    def indices(self, values):
        return self.torch.tensor(values, dtype=self.torch.int32, device=self.device)

    def empty(self, *shape):
        """A result a set."""
        return [self.torch.empty(shape, dtype=self.dtype, device=self.device) for _ in range(self.sets)]

    def multiply(self):
        """The first set's product in fp32, expert by expert."""
        y = self.torch.empty((self.rows, self.n), dtype=self.torch.float32, device=self.device)
        for e in self.active:
            rows = slice(self.starts[e], self.starts[e + 1])
            self.torch.mm(self.x[0][rows].float(), self.w[0][e].float().t(), out=y[rows])
        return y

    def error_of(self, y):
        """The largest error of an expert: root mean square of the difference over that of the result."""
        worst = 0.0
        for e in self.active:
            rows = slice(self.starts[e], self.starts[e + 1])
            expected = self.expected[rows]
            error = ((y[rows].float() - expected).square().mean() / expected.square().mean()).sqrt().item()
            if not error <= worst:  # a NaN stays
                worst = error
            if math.isnan(worst):
                break
        return worst


class Variant:
    """One way to run a peer. launch(set) enqueues; outputs[set] is its result; in_order turns that into rows in expert
    order."""

    def __init__(self, note, launch, outputs, in_order=lambda y: y):
        self.note, self.launch, self.outputs, self.in_order = note, launch, outputs, in_order


def torch_grouped_mm(p, options):
    multiply = getattr(p.torch, "_grouped_mm", None) or p.torch.nn.functional.grouped_mm
    ends = p.indices(p.starts[1:])
    outputs = [None] * p.sets

    def launch(i):
        outputs[i] = None  # its memory is what the allocator gives out next
        outputs[i] = multiply(p.x[i], p.w[i].transpose(-2, -1), offs=ends)

    return [Variant("X permuted before", launch, outputs)]


def torch_permuting(p, options):
    multiply = getattr(p.torch, "_grouped_mm", None) or p.torch.nn.functional.grouped_mm
    ends = p.indices(p.starts[1:])
    outputs = [None] * p.sets

    def launch(i):
        if p.gathers:
            p.torch.index_select(p.x_source[i], 0, p.source_of_row, out=p.x[i])
        outputs[i] = None
        y = multiply(p.x[i], p.w[i].transpose(-2, -1), offs=ends)
        outputs[i] = p.torch.empty_like(y).index_copy_(0, p.slot_index, y) if p.scatters else y

    steps = ["index_select"] * p.gathers + ["torch._grouped_mm"] + ["index_copy_"] * p.scatters
    return [Variant(", ".join(steps), launch, outputs, lambda y: y[p.slot_index] if p.scatters else y)]


def cublas_loop(p, options):
    outputs = p.empty(p.rows, p.n)
    parts = [[(p.x[i][p.starts[e] : p.starts[e + 1]], p.w[i][e].t(), outputs[i][p.starts[e] : p.starts[e + 1]])
              for e in p.active] for i in range(p.sets)]

    def launch(i):
        for x, w, y in parts[i]:
            p.torch.mm(x, w, out=y)

    return [Variant("X permuted before; one torch.mm an expert", launch, outputs)]


def triton_vllm(p, options):
    outputs = p.empty(p.tokens * p.top_k, p.n)

    def variant(config, origin):
        block_m, block_n, block_k, group, warps, stages = config
        ids, experts = blocks_of_slots(p.m_sizes, p.slots, block_m, p.tokens * p.top_k)
        ids, experts = p.indices(ids), p.indices(experts)
        m_blocks = experts.numel()
        grid = (m_blocks * -(-p.n // block_n),)

        def launch(i):
            gathered_rows_kernel[grid](p.x_source[i], p.w[i], outputs[i], ids, experts, m_blocks, p.n, p.k,
                                       p.tokens * p.top_k, 1 if p.down else p.top_k, EVEN_K=p.k % block_k == 0,
                                       BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=group,
                                       num_warps=warps, num_stages=stages)

        words = "x".join(map(str, config[:3]))
        note = (f"X not permuted: gathered and scattered in the kernel; {words} group {group} warps {warps} "
                f"stages {stages}, {origin}")
        return Variant(note, launch, outputs, lambda y: y[p.slot_index])

    return [variant(*pair) for pair in triton_configs(p.experts, p.width, p.tokens, p.m_sizes, options.triton_tune)]


def deepgemm_contiguous(p, options):
    import deep_gemm

    ask = (getattr(deep_gemm, "get_mk_alignment_for_contiguous_layout", None)
           or getattr(deep_gemm, "get_m_alignment_for_contiguous_layout", None))
    choose = getattr(deep_gemm, "set_mk_alignment_for_contiguous_layout", None)

    def variant(multiple):
        starts = padded_starts(p.m_sizes, multiple)
        owners, places = [-1] * starts[-1], []
        for e, m in enumerate(p.m_sizes):
            owners[starts[e] : starts[e] + m] = [e] * m
            places += range(starts[e], starts[e] + m)
        owners, places = p.indices(owners), p.torch.tensor(places, dtype=p.torch.int64, device=p.device)
        inputs = []
        for x in p.x:
            inputs.append(p.random(starts[-1], p.k))
            inputs[-1][places] = x
        outputs = p.empty(starts[-1], p.n)

        def launch(i):
            if choose:
                choose(multiple)
            deep_gemm.m_grouped_bf16_gemm_nt_contiguous(inputs[i], p.w[i], outputs[i], owners)

        return Variant(f"X permuted before; experts padded to {multiple} rows", launch, outputs, lambda y: y[places])

    # Its tiles are as high as the alignment, which callers may choose in newer releases: the fastest counts.
    own = int(ask()) if ask else 128
    return [variant(multiple) for multiple in (sorted({own, *CONTIGUOUS_ALIGNS}) if choose else [own])]


def deepgemm_masked(p, options):
    import deep_gemm

    room = align(max(p.m_sizes), MASKED_ALIGN)
    places = p.torch.tensor([e * room + i for e, m in enumerate(p.m_sizes) for i in range(m)], dtype=p.torch.int64,
                            device=p.device)
    inputs = []
    for x in p.x:
        inputs.append(p.random(p.experts, room, p.k))
        inputs[-1].view(-1, p.k)[places] = x
    outputs = p.empty(p.experts, room, p.n)
    masked = p.indices(p.m_sizes)

    def variant(expected):
        def launch(i):
            deep_gemm.m_grouped_bf16_gemm_nt_masked(inputs[i], p.w[i], outputs[i], masked, expected)

        note = f"X permuted before, {p.experts} x {room} rows of memory; expected_m {expected}"
        return Variant(note, launch, outputs, lambda y: y.view(-1, p.n)[places])

    # What a caller expects steers its choice of tiles: both guesses that callers make, the faster one counts.
    return [variant(expected) for expected in sorted({-(-p.rows // p.experts), max(p.m_sizes)})]


def missing(module):
    if module == "triton" and importlib.util.find_spec(module) and triton is None:
        return "triton is not installed whole"
    try:
        found = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        found = False
    return None if found else f"{module} is not installed"


# name: how it is prepared, and the modules that it needs. The riskiest come last.
PEERS = {
    "torch-grouped-mm": (torch_grouped_mm, ("torch",)),
    "torch-permuting": (torch_permuting, ("torch",)),
    "cublas-loop": (cublas_loop, ("torch",)),
    "triton-vllm": (triton_vllm, ("torch", "triton")),
    "deepgemm-contiguous": (deepgemm_contiguous, ("torch", "deep_gemm")),
    "deepgemm-masked": (deepgemm_masked, ("torch", "deep_gemm")),
}


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
        variant.outputs[0].fill_(math.nan)
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


def require_right(p, variant):
    error = p.error_of(variant.in_order(variant.outputs[0]))
    if not error < TOLERANCE:
        raise ArithmeticError(f"wrong result: error {error:.3g} of the root mean square ({variant.note})")


def prove(p, variant):
    """Launches once into outputs full of NaN, and checks."""
    if variant.outputs[0] is not None:
        variant.outputs[0].fill_(math.nan)
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
    variant = best_variant(p, peer, PEERS[peer][0](p, options))
    seconds, launches = measure(p, variant, options.blocks, options.rest_ms * 1e-3)
    low, high = median_interval(seconds)
    return {"median_us": rounded(median(seconds) * 1e6), "low_us": rounded(low * 1e6), "high_us": rounded(high * 1e6),
            "samples": len(seconds), "launches": launches * len(seconds), "clock_mhz": 0, "note": variant.note}


def measure_cell(torch, entry, peers, options, keep):
    """Measures every peer on one cell; one that fails is told and left out."""
    problem = Problem(torch, entry, options.device)
    for peer in peers:
        if peer == "torch-permuting" and not (problem.gathers or problem.scatters):
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
    """One row a cell, a column a peer, microseconds, the best in bold."""
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


def environment_of(torch, device):
    properties = torch.cuda.get_device_properties(device)
    return {"device": properties.name, "torch": torch.__version__, "cuda": torch.version.cuda,
            "triton": version_of("triton"), "deep_gemm": version_of("deep_gemm") if not missing("deep_gemm") else None}


def read_results(path, environment):
    """What an earlier run left, for --resume."""
    if not os.path.exists(path):
        return []
    before = read_json(path)
    if not isinstance(before, dict) or before.get("schema") != SCHEMA or not isinstance(before.get("entries"), list):
        raise WrongRequest(f"{path}: not a file of {SCHEMA}: it cannot be continued")
    if before.get("environment") != environment:
        raise WrongRequest(f"{path}: measured in another environment: {json.dumps(before.get('environment'))}")
    return before["entries"]


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
    results = read_results(options.output, environment) if options.resume else []
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
        tell(f"peers.py: error: {error}\nGo on with --resume and --peers without it.")
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
    parser.add_argument("--peers", metavar="LIST", default=",".join(PEERS), help="such as %(default)s")
    parser.add_argument("--cells", metavar="GLOB", action="append", help="only cells with such ids: '*/t16/*'")
    parser.add_argument("--blocks", type=int, default=11, metavar="N", help="blocks of launches [%(default)s]")
    parser.add_argument("--rest-ms", type=float, default=15, metavar="MS", help="idle before each block [%(default)s]")
    parser.add_argument("--triton-tune", action=argparse.BooleanOptionalAction, default=True,
                        help="try about twelve configurations of the Triton kernel a cell, and keep the fastest")
    parser.add_argument("--device", default="cuda:0", metavar="WORD", help="[%(default)s]")
    parser.add_argument("--list", action="store_true", help="tell the peers, and which can be imported, and stop")
    options = parser.parse_args(argv)  # exits with 2 by itself
    options.peers = [name.strip() for name in options.peers.split(",")]
    for name in options.peers:
        if name not in PEERS:
            raise WrongRequest(f"--peers: '{name}' is none of {', '.join(PEERS)}")
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
