"""The problems of tables on a GPU, and how each library multiplies them, for peers.py. Nothing here is timed.

    fwd  y = x w[e]^T         dx  dx = dy w[e]         dw  dw[e] = dy[e]^T x[e]      for the rows of each expert e

fp8 has fwd only. Its x and w are float8_e4m3fn, with fp32 scales: `block` has x_scales [rows, k / 128] and w_scales
[experts, n / 128, k / 128], rounded up; `channel` has x_scales [rows] and w_scales [experts, n]; those of `tensor` are
laid out as channels of equal scales.
"""
import bisect
import contextlib
import functools
import itertools
import math
import os
import sys

try:
    import triton
    import triton.language as tl
except Exception:  # a broken installation is as good as none
    triton = None

COLD_FACTOR = 3  # operand sets hold this many L2s together
MAX_SETS = 1024
CONTIGUOUS_ALIGNS = (64, 128, 256)  # rows an expert in DeepGEMM's contiguous layout, and in a tile
FP8_ALIGNS = (64, 128)  # the same of fp8
MASKED_ALIGN = 256  # rows an expert in DeepGEMM's masked layout: a tile must not reach into the next expert
SUMMED_ALIGN = 128  # rows an expert in DeepGEMM's layout for dW, the last of them zeros
SCALE_BLOCK = 128  # elements along k, and rows of w, that a scale of `block` covers

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

# The same for fp8: BLOCK_SIZE_K is SCALE_BLOCK, and the last says whether the tile of Y is multiplied transposed, as
# vLLM does with few rows.
FP8_SPACE = (
    (24, ((16, 64, 1, 4, 4, True), (16, 64, 1, 4, 6, True), (16, 128, 1, 4, 3, True), (16, 128, 1, 4, 5, True),
          (16, 128, 1, 8, 4, True), (32, 128, 1, 4, 4, True), (16, 32, 1, 4, 5, False), (16, 64, 1, 4, 5, False),
          (16, 128, 1, 4, 3, False), (16, 128, 1, 4, 4, False))),
    (96, ((16, 128, 8, 4, 4, True), (32, 64, 8, 4, 5, True), (32, 128, 8, 4, 4, True), (32, 128, 8, 4, 4, False),
          (64, 64, 8, 4, 5, False), (64, 128, 1, 4, 4, False), (64, 128, 8, 4, 3, False), (64, 128, 8, 8, 4, False),
          (64, 256, 8, 8, 3, False), (128, 128, 8, 8, 3, False))),
    (math.inf, ((64, 64, 8, 4, 5, False), (64, 128, 8, 4, 3, False), (64, 128, 8, 4, 4, False),
                (64, 256, 8, 8, 3, False), (128, 64, 8, 4, 4, False), (128, 128, 8, 4, 3, False),
                (128, 128, 8, 8, 3, False), (128, 128, 32, 8, 4, False), (128, 256, 8, 8, 3, False),
                (256, 128, 8, 8, 3, False))),
)


# As kernels have them: kernels/formulas.h.
GPT_OSS_SLOPE, GPT_OSS_LIMIT = 1.702, 7
MAX_FP8, MIN_LARGEST = 448, 1e-10


def _gpt_oss(torch, gate, up):
    gate = gate.clamp(max=GPT_OSS_LIMIT)
    return gate * torch.sigmoid(GPT_OSS_SLOPE * gate) * (up.clamp(-GPT_OSS_LIMIT, GPT_OSS_LIMIT) + 1)


ACTIVATIONS = {
    "silu": lambda torch, gate, up: torch.nn.functional.silu(gate) * up,
    "gelu": lambda torch, gate, up: torch.nn.functional.gelu(gate) * up,
    "gpt_oss": _gpt_oss,
}


def choose_sets(touched_bytes, cache_bytes):
    """Operand sets that a rotation needs so that the cache has none of its operands left; at least two."""
    return min(max(math.ceil(COLD_FACTOR * cache_bytes / touched_bytes), 2), MAX_SETS)


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


def default_config(experts, tokens):
    """vLLM's default rule for bf16."""
    block_m = (16, 32, 64, 128)[bisect.bisect_left((32, 96, 512), tokens)]
    block_n, block_k = (64, 128) if tokens <= 64 else (128, 64)
    group = 16 if tokens // experts > 128 else 1
    return block_m, block_n, block_k, group, 4 if tokens <= 128 else 8, 4 if tokens <= 32 else 3


def vllm_config(experts, width, tokens):
    """vLLM's configuration for bf16 and where it comes from: its H200 file for this layer, else its default rule."""
    tuned = VLLM_H200.get((experts, width))
    if tuned:
        return tuned[min(tuned, key=lambda known: abs(known - tokens))], "vLLM's H200 file"
    return default_config(experts, tokens), "vLLM's default"


def triton_configs(experts, width, tokens, m_sizes, tune):
    """(configuration, origin) to try: vLLM's first, about twelve with `tune`."""
    first, origin = vllm_config(experts, width, tokens)
    rows = sum(m_sizes) / max(1, sum(m > 0 for m in m_sizes))
    more = next(configs for limit, configs in TRITON_SPACE if rows <= limit) if tune else ()
    return [(first, origin)] + [(config, "tuned") for config in more if config != first]


def fp8_configs(experts, tokens, m_sizes, scales, tune):
    """As triton_configs, of the kernel with scales; configurations are those of FP8_SPACE."""
    if scales == "block":
        first = (16 if tokens <= 64 else 64, 64 if tokens <= 8 else 128, 1 if tokens <= 16 else 32, 4,
                 4 if tokens <= 4 else 3)
    else:
        block_m, block_n, _, *others = default_config(experts, tokens)
        first = (block_m, block_n, *others)
    first += (first[0] < 64 <= first[1],)
    rows = sum(m_sizes) / max(1, sum(m > 0 for m in m_sizes))
    more = next(configs for limit, configs in FP8_SPACE if rows <= limit) if tune else ()
    return [(first, "vLLM's default")] + [(config, "tuned") for config in more if config != first]


# --- the Triton kernel, of the shape of vLLM's fused_moe -----------------------------------------------------------

if triton:

    # What differs from cell to cell is not specialised: one compilation serves all cells of a configuration.
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

    # The same of fp8. BLOCKED: scales of blocks of 128, one a step along k. Else they multiply the finished sums, which
    # FAST leaves in the tensor core's accumulator. TRANSPOSED: the tile is w x^T, so that few rows fill an instruction.
    @triton.jit(do_not_specialize=["m_blocks", "slots", "slots_a_row"])
    def scaled_rows_kernel(x, w, y, x_scales, w_scales, slot_ids, block_experts, m_blocks, n, k, slots, slots_a_row,
                           BLOCKED: tl.constexpr, FAST: tl.constexpr, TRANSPOSED: tl.constexpr, EVEN_K: tl.constexpr,
                           BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                           GROUP_M: tl.constexpr):
        pid = tl.program_id(0)
        in_group = GROUP_M * tl.cdiv(n, BLOCK_N)
        first = pid // in_group * GROUP_M
        height = tl.minimum(m_blocks - first, GROUP_M)
        row_block = first + pid % in_group % height
        column_block = pid % in_group // height

        slot = tl.load(slot_ids + row_block * BLOCK_M + tl.arange(0, BLOCK_M))
        live = slot < slots
        row = (slot // slots_a_row).to(tl.int64)
        expert = tl.load(block_experts + row_block).to(tl.int64)
        column = column_block * BLOCK_N + tl.arange(0, BLOCK_N)
        inner = tl.arange(0, BLOCK_K)
        x_at = x + row[:, None] * k + inner[None, :]
        w_at = w + expert * n * k + (column % n).to(tl.int64)[:, None] * k + inner[None, :]
        if BLOCKED:
            steps = tl.cdiv(k, BLOCK_K)
            x_scales_at = x_scales + row * steps
            w_scales_at = w_scales + expert * tl.cdiv(n, BLOCK_K) * steps
            if BLOCK_K % BLOCK_N == 0:
                w_scales_at += column_block * BLOCK_N // BLOCK_K * steps
            else:
                w_scales_at += (column % n) // BLOCK_K * steps
        if TRANSPOSED:
            sums = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        else:
            sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for begin in range(0, k, BLOCK_K):
            if EVEN_K:
                a = tl.load(x_at, mask=live[:, None], other=0.0)
                b = tl.load(w_at)
            else:
                a = tl.load(x_at, mask=live[:, None] & (inner[None, :] < k - begin), other=0.0)
                b = tl.load(w_at, mask=inner[None, :] < k - begin, other=0.0)
            if BLOCKED:
                of_rows = tl.load(x_scales_at, mask=live, other=0.0)
                of_columns = tl.load(w_scales_at)
                if TRANSPOSED:
                    part = tl.dot(b, tl.trans(a))
                    if BLOCK_K % BLOCK_N == 0:
                        sums += part * (of_rows * of_columns)[None, :]
                    else:
                        sums += part * of_rows[None, :] * of_columns[:, None]
                else:
                    part = tl.dot(a, tl.trans(b))
                    if BLOCK_K % BLOCK_N == 0:
                        sums += part * (of_rows * of_columns)[:, None]
                    else:
                        sums += part * of_rows[:, None] * of_columns[None, :]
                x_scales_at += 1
                w_scales_at += 1
            elif FAST:
                if TRANSPOSED:
                    sums = tl.dot(b, tl.trans(a), sums)
                else:
                    sums = tl.dot(a, tl.trans(b), sums)
            else:
                if TRANSPOSED:
                    sums += tl.dot(b, tl.trans(a))
                else:
                    sums += tl.dot(a, tl.trans(b))
            x_at += BLOCK_K
            w_at += BLOCK_K
        if TRANSPOSED:
            sums = tl.trans(sums)
        if not BLOCKED:
            of_rows = tl.load(x_scales + row, mask=live, other=0.0)
            of_columns = tl.load(w_scales + expert * n + column % n)
            sums = sums * of_rows[:, None] * of_columns[None, :]
        y_at = y + slot.to(tl.int64)[:, None] * n + column[None, :]
        tl.store(y_at, sums.to(y.dtype.element_ty), mask=live[:, None] & (column[None, :] < n))


# --- problems ------------------------------------------------------------------------------------------------------


class Problem:
    """One cell's operand sets on the GPU: those of x, w and dy that the op reads, and weights by slot if it has them.
    x and dy are in expert order; x_source and dy_source are what they were gathered from."""

    def __init__(self, torch, entry, device, seed=0):
        cell = entry["cell"]
        self.torch, self.device, self.m_sizes = torch, device, entry["m_sizes"]
        self.op = cell.get("op", "fwd")
        self.n, self.k, self.tokens, self.top_k = cell["n"], cell["k"], cell["tokens"], cell["top_k"]
        self.experts, self.rows = len(self.m_sizes), sum(self.m_sizes)
        self.down = cell.get("projection") == "down"
        self.permute_x, self.permute_y = bool(cell.get("permute_x")), bool(cell.get("permute_y"))
        self.scatters = {"fwd": self.permute_y, "dx": self.permute_x, "dw": False}[self.op]
        self.weighted = bool(cell.get("topk_weights"))
        self.activation = next((name for name in ACTIVATIONS if cell.get(name)), None)
        self.interleaved = bool(cell.get("interleaved"))
        self.compiled = None  # the activation, once a peer needs it
        self.width = self.k if self.down else self.n // 2  # what vLLM's files call N, of gated layers
        self.dtype_name = cell["dtype"]
        self.scales = cell["scales"] if cell["dtype"] == "fp8" else None
        self.fast_sums = bool(cell.get("fast_sums"))
        self.quantised = self.scales == "block" and cell["out_dtype"] == "fp8"  # by the pass behind a bf16 product
        self.dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}[
            cell["out_dtype"] if self.scales else cell["dtype"]]  # of the product, and without scales of all
        self.starts = [0, *itertools.accumulate(self.m_sizes)]
        self.active = [e for e, m in enumerate(self.m_sizes) if m > 0]
        self.blocks = [-(-side // SCALE_BLOCK) for side in (self.n, self.k)]  # of scales
        of_row, of_expert = {None: (0, 0), "block": (self.blocks[1], self.blocks[0] * self.blocks[1]),
                             "channel": (1, self.n), "tensor": (1, self.n)}[self.scales]
        size = 1 if self.scales else 2
        touched = (self.rows * (size * self.k + 2 * self.n + 4 * of_row)
                   + len(self.active) * (size * self.n * self.k + 4 * of_expert))
        cache = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or 64 << 20
        self.sets = choose_sets(touched, cache)
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(seed)
        order = torch.randperm(self.tokens, generator=torch.Generator().manual_seed(seed)).tolist()
        self.slots = slots_of_rows(self.m_sizes, self.tokens, self.top_k, order)
        self.slot_index = torch.tensor(self.slots, dtype=torch.int64, device=device)
        # Before `up` the rows of a token are one row; before `down` every slot has its own.
        self.source_of_row = self.slot_index if self.down else self.slot_index // self.top_k
        self.make_operands()
        if self.scales:
            self.make_scales()
        self.expected = self.multiply()

    def make_operands(self):
        slots = self.tokens * self.top_k
        self.gathered = []  # (sources, source of each row, operands), of the operands that the layer gathers
        if self.op != "dx":
            self.x_source = [self.random(slots if self.down else self.tokens, self.k) for _ in range(self.sets)]
            self.x = [self.taken(source, self.source_of_row) for source in self.x_source]
            if self.permute_x:
                self.gathered.append((self.x_source, self.source_of_row, self.x))
        if self.op != "fwd":
            self.dy_source = [self.random(slots, self.n) for _ in range(self.sets)]
            self.dy = [source[self.slot_index].contiguous() for source in self.dy_source]
            if self.permute_y:
                self.gathered.append((self.dy_source, self.slot_index, self.dy))
        self.weights = self.torch.rand(slots, device=self.device, generator=self.generator) if self.weighted else None
        if self.op != "dw":
            self.w = [self.random(self.experts, self.n, self.k) for _ in range(self.sets)]

    def make_scales(self):
        of_n, of_k = self.blocks
        rows, block, tensor = self.x_source[0].shape[0], self.scales == "block", self.scales == "tensor"
        of_x = (rows, of_k) if block else (rows,)
        of_w = (self.experts, of_n, of_k) if block else (self.experts, self.n)
        self.x_scale_source = [self.random_scales(of_x, (1,) if tensor else of_x) for _ in range(self.sets)]
        self.x_scales = [source[self.source_of_row] for source in self.x_scale_source]
        self.w_scales = [self.random_scales(of_w, (self.experts, 1) if tensor else of_w) for _ in range(self.sets)]

    def random_scales(self, shape, drawn):
        """Of `shape`, of which only `drawn` are drawn, and spread."""
        values = self.torch.rand(drawn, device=self.device, generator=self.generator) + 0.5
        return self.torch.zeros(shape, dtype=self.torch.float32, device=self.device) + values

    def scaled(self, left, right, e):
        """The factors of the first set's product of expert e, times their scales."""
        of_x, of_w = self.x_scales[0][self.starts[e] : self.starts[e + 1]], self.w_scales[0][e]
        if self.scales == "block":
            of_n, of_k = (self.torch.tensor([i // SCALE_BLOCK for i in range(side)], dtype=self.torch.int64,
                                            device=self.device) for side in (self.n, self.k))
            return left * of_x[:, of_k], right * of_w[of_n][:, of_k].t()
        return left * of_x[:, None], right * of_w[None, :]

    def random(self, *shape):
        values = self.torch.randn(shape, dtype=self.dtype, device=self.device, generator=self.generator)
        return values.to(self.torch.float8_e4m3fn) if self.scales else values

    def taken(self, rows, index):
        """rows[index]; as bytes, because not every release of torch indexes fp8."""
        return rows.view(self.torch.uint8)[index].view(rows.dtype)

    def spread(self, rows, places, *shape, scales=None):
        """Random rows, but for `rows` at `places`. With scales a pair, as DeepGEMM takes it: its kernels read scales of
        X along rows first, and it would transpose others within the measured time."""
        result = self.random(*shape)
        result.reshape(-1, shape[-1]).view(self.torch.uint8)[places] = rows.view(self.torch.uint8)
        if scales is None:
            return result
        all_scales = self.torch.zeros((*shape[:-1], self.blocks[1]), dtype=self.torch.float32, device=self.device)
        all_scales.reshape(-1, self.blocks[1])[places] = scales
        return result, all_scales.transpose(-2, -1).contiguous().transpose(-2, -1)

    def indices(self, values):
        return self.torch.tensor(values, dtype=self.torch.int32, device=self.device)

    def empty(self, *shape, dtype=None):
        """A result a set."""
        return [self.torch.empty(shape, dtype=dtype or self.dtype, device=self.device) for _ in range(self.sets)]

    def result_shape(self):
        return {"fwd": (self.rows, self.n), "dx": (self.rows, self.k), "dw": (self.experts, self.n, self.k)}[self.op]

    def operands(self, i):
        """The two factors of set i, all experts': as autograd of x w^T multiplies them, without copies."""
        if self.op == "fwd":
            return self.x[i], self.w[i].transpose(-2, -1)
        return (self.dy[i], self.w[i]) if self.op == "dx" else (self.dy[i].t(), self.x[i])

    def factors(self, i, e):
        """The two factors of set i and expert e."""
        left, right = self.operands(i)
        rows = slice(self.starts[e], self.starts[e + 1])
        return (left[:, rows], right[rows]) if self.op == "dw" else (left[rows], right[e])

    def part(self, result, e):
        """What expert e has of a result: its rows, or its dW."""
        return result[e] if self.op == "dw" else result[self.starts[e] : self.starts[e + 1]]

    def multiply(self):
        """The first set's product in fp32, expert by expert; the dW of an expert without rows is zeros. Weights multiply
        rows of Y and of dX, and in dW those of dY."""
        result = self.torch.zeros(self.result_shape(), dtype=self.torch.float32, device=self.device)
        weights = self.weights[self.slot_index] if self.weighted else None
        for e in self.active:
            left, right = (factor.float() for factor in self.factors(0, e))
            if self.scales:
                left, right = self.scaled(left, right, e)
            if self.weighted and self.op == "dw":
                left = left * weights[self.starts[e] : self.starts[e + 1]]
            self.torch.mm(left, right, out=self.part(result, e))
        if self.activation:
            return self.activated(result)
        return result * weights[:, None] if self.weighted and self.op != "dw" else result

    def activated(self, product):
        """act(gate) * up of a product, whose columns are both: all gates first, or by turns."""
        gate, up = ((product[..., ::2], product[..., 1::2]) if self.interleaved else
                    (product[..., :self.n // 2], product[..., self.n // 2:]))
        return ACTIVATIONS[self.activation](self.torch, gate, up)

    def finished(self, product):
        """The activation of a product; of a quantised result e4m3 and a scale for SCALE_BLOCK columns of a row."""
        if not self.quantised:
            return self.activated(product)
        blocks = self.activated(product.float()).reshape(*product.shape[:-1], -1, SCALE_BLOCK)
        scales = blocks.abs().amax(-1, keepdim=True).clamp(min=MIN_LARGEST) / MAX_FP8
        return (blocks / scales).to(self.torch.float8_e4m3fn).reshape(*product.shape[:-1], -1), scales[..., 0]

    def dequantised(self, result):
        """A result as it is compared: that of finished() in fp32."""
        if not self.quantised:
            return result
        values, scales = result
        return (values.float().reshape(*scales.shape, SCALE_BLOCK) * scales[..., None]).reshape(values.shape)

    def error_of(self, result):
        """The largest error of an expert: root mean square of the difference over that of the result. Infinite where an
        expert without rows has a dW other than zeros."""
        if self.op == "dw":
            for e in set(range(self.experts)) - set(self.active):
                if not bool((result[e] == 0).all()):
                    return math.inf
        worst = 0.0
        for e in self.active:
            expected = self.part(self.expected, e)
            difference = self.part(result, e).float() - expected
            error = (difference.square().mean() / expected.square().mean()).sqrt().item()
            if not error <= worst:  # a NaN stays
                worst = error
            if math.isnan(worst):
                break
        return worst

    def moved_before(self):
        """What a note says of rows that are in expert order before the clock starts."""
        return {"fwd": "X", "dx": "dY", "dw": "X and dY"}[self.op] + " permuted before"


class Variant:
    """One way to run a peer. launch(set) enqueues; outputs[set] is its result; in_order turns that into rows in expert
    order. `activates`: gates and ups are joined in the result."""

    def __init__(self, note, launch, outputs, in_order=lambda y: y, activates=False):
        self.note, self.launch, self.outputs, self.in_order = note, launch, outputs, in_order
        self.activates = activates


def with_pass(p, variant):
    """The same with torch's compiled activation behind it, and its quantisation, where the cell has them and the peer
    doesn't know them."""
    if not p.activation or variant.activates:
        return variant
    if p.compiled is None:
        p.torch._dynamo.reset()  # of the sizes of other cells
        p.compiled = p.torch.compile(p.finished, dynamic=False)
    outputs = [None] * p.sets

    def launch(i):
        variant.launch(i)
        outputs[i] = None
        outputs[i] = p.compiled(variant.outputs[i])

    pass_behind = "activation and quantisation" if p.quantised else "activation"
    return Variant(f"{variant.note}; {pass_behind} by torch.compile", launch, outputs,
                   lambda y: variant.in_order(p.dequantised(y)), True)


# --- peers ---------------------------------------------------------------------------------------------------------


def torch_grouped_mm(p, options):
    ends = p.indices(p.starts[1:])
    outputs = [None] * p.sets
    if p.scales:
        def multiply(i):
            return p.torch._scaled_grouped_mm(*p.operands(i), p.x_scales[i], p.w_scales[i], offs=ends,
                                              out_dtype=p.dtype, use_fast_accum=p.fast_sums)
    else:
        grouped_mm = getattr(p.torch, "_grouped_mm", None) or p.torch.nn.functional.grouped_mm

        def multiply(i):
            return grouped_mm(*p.operands(i), offs=ends)

    def launch(i):
        outputs[i] = None  # its memory is what the allocator gives out next
        outputs[i] = multiply(i)

    return [Variant(p.moved_before() + ("; torch._scaled_grouped_mm" if p.scales else ""), launch, outputs)]


def torch_permuting(p, options):
    multiply = getattr(p.torch, "_grouped_mm", None) or p.torch.nn.functional.grouped_mm
    ends = p.indices(p.starts[1:])
    outputs = [None] * p.sets
    weights = p.weights[p.slot_index, None].to(p.dtype) if p.weighted else None
    weighs_before, weighs_after = p.weighted and p.op == "dw", p.weighted and p.op != "dw"

    def launch(i):
        for sources, source_of_row, operands in p.gathered:
            p.torch.index_select(sources[i], 0, source_of_row, out=operands[i])
        if weighs_before:
            p.dy[i].mul_(weights)
        outputs[i] = None
        y = multiply(*p.operands(i), offs=ends)
        if weighs_after:
            y.mul_(weights)
        outputs[i] = p.torch.empty_like(y).index_copy_(0, p.slot_index, y) if p.scatters else y

    steps = (["index_select"] * len(p.gathered) + ["mul_"] * weighs_before + ["torch._grouped_mm"] +
             ["mul_"] * weighs_after + ["index_copy_"] * p.scatters)
    return [Variant(", ".join(steps), launch, outputs, lambda y: y[p.slot_index] if p.scatters else y)]


def cublas_loop(p, options):
    outputs = p.empty(*p.result_shape())
    parts = [[(*p.factors(i, e), p.part(outputs[i], e)) for e in p.active] for i in range(p.sets)]
    empty = [e for e in range(p.experts) if p.op == "dw" and e not in p.active]

    def launch(i):
        for left, right, result in parts[i]:
            p.torch.mm(left, right, out=result)
        for e in empty:
            outputs[i][e].zero_()

    return [Variant(f"{p.moved_before()}; one torch.mm an expert", launch, outputs)]


def triton_scaled(p, options):
    gathers = p.permute_x or p.permute_y
    places, ids_of_rows = (p.tokens * p.top_k, p.slots) if gathers else (p.rows, list(range(p.rows)))
    x, x_scales = (p.x_source, p.x_scale_source) if gathers else (p.x, p.x_scales)
    outputs = p.empty(places, p.n)

    def variant(config, origin):
        block_m, block_n, group, warps, stages, transposed = config
        ids, experts = blocks_of_slots(p.m_sizes, ids_of_rows, block_m, places)
        ids, experts = p.indices(ids), p.indices(experts)
        m_blocks = experts.numel()
        grid = (m_blocks * -(-p.n // block_n),)

        def launch(i):
            scaled_rows_kernel[grid](x[i], p.w[i], outputs[i], x_scales[i], p.w_scales[i], ids, experts, m_blocks, p.n,
                                     p.k, places, p.top_k if gathers and not p.down else 1,
                                     BLOCKED=p.scales == "block", FAST=p.fast_sums, TRANSPOSED=transposed,
                                     EVEN_K=p.k % SCALE_BLOCK == 0, BLOCK_M=block_m, BLOCK_N=block_n,
                                     BLOCK_K=SCALE_BLOCK, GROUP_M=group, num_warps=warps, num_stages=stages)

        moved = "X not permuted: gathered and scattered in the kernel" if gathers else p.moved_before()
        note = (f"{moved}; {block_m}x{block_n}x{SCALE_BLOCK} group {group} warps {warps} stages {stages}"
                f"{' transposed' if transposed else ''}, {origin}")
        return Variant(note, launch, outputs, lambda y: y[p.slot_index] if gathers else y)

    configs = fp8_configs(p.experts, p.tokens, p.m_sizes, p.scales, options.triton_tune)
    return [variant(*pair) for pair in configs]


def triton_vllm(p, options):
    if p.scales:
        return triton_scaled(p, options)
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
    forward = p.op == "fwd"  # else W is summed over its rows: nn in place of nt
    kind = "fp8" if p.scales else "bf16"
    multiply = getattr(deep_gemm, f"m_grouped_{kind}_gemm_{'nt' if forward else 'nn'}_contiguous")
    rows, inner, width = (p.x, p.k, p.n) if forward else (p.dy, p.n, p.k)
    weights = list(zip(p.w, p.w_scales)) if p.scales else p.w
    scales = p.x_scales if p.scales else [None] * p.sets

    def variant(multiple):
        starts = padded_starts(p.m_sizes, multiple)
        owners, places = [-1] * starts[-1], []
        for e, m in enumerate(p.m_sizes):
            owners[starts[e] : starts[e] + m] = [e] * m
            places += range(starts[e], starts[e] + m)
        owners, places = p.indices(owners), p.torch.tensor(places, dtype=p.torch.int64, device=p.device)
        inputs = [p.spread(x, places, starts[-1], inner, scales=of_x) for x, of_x in zip(rows, scales)]
        outputs = p.empty(starts[-1], width)

        def launch(i):
            if choose:
                choose(multiple)
            multiply(inputs[i], weights[i], outputs[i], owners)

        return Variant(f"{p.moved_before()}; experts padded to {multiple} rows", launch, outputs, lambda y: y[places])

    # Its tiles are as high as the alignment, which callers may choose in newer releases: the fastest alignment counts.
    own = int(ask()) if ask else 128
    aligns = FP8_ALIGNS if p.scales else sorted({own, *CONTIGUOUS_ALIGNS})
    return [variant(multiple) for multiple in (aligns if choose else [own])]


def deepgemm_masked(p, options):
    import deep_gemm

    room = align(max(p.m_sizes), MASKED_ALIGN)
    places = p.torch.tensor([e * room + i for e, m in enumerate(p.m_sizes) for i in range(m)], dtype=p.torch.int64,
                            device=p.device)
    if p.scales:  # newer releases name it with fp4
        multiply = (getattr(deep_gemm, "m_grouped_fp8_gemm_nt_masked", None)
                    or deep_gemm.m_grouped_fp8_fp4_gemm_nt_masked)
    else:
        multiply = deep_gemm.m_grouped_bf16_gemm_nt_masked
    weights = list(zip(p.w, p.w_scales)) if p.scales else p.w
    scales = p.x_scales if p.scales else [None] * p.sets
    inputs = [p.spread(x, places, p.experts, room, p.k, scales=of_x) for x, of_x in zip(p.x, scales)]
    outputs = p.empty(p.experts, room, p.n)
    masked = p.indices(p.m_sizes)

    def variant(expected):
        def launch(i):
            multiply(inputs[i], weights[i], outputs[i], masked, expected)

        note = f"X permuted before, {p.experts} x {room} rows of memory; expected_m {expected}"
        return Variant(note, launch, outputs, lambda y: y.reshape(-1, y.shape[-1])[places])

    # The expected rows steer its choice of tiles. Callers guess either the mean or the maximum: the faster one counts.
    return [variant(expected) for expected in sorted({-(-p.rows // p.experts), max(p.m_sizes)})]


def deepgemm_summed(p, options):
    import deep_gemm

    choose = getattr(deep_gemm, "set_mk_alignment_for_contiguous_layout", None)
    heights = [align(m, SUMMED_ALIGN) for m in p.m_sizes]
    starts = padded_starts(p.m_sizes, SUMMED_ALIGN)
    places = p.torch.tensor([starts[e] + i for e, m in enumerate(p.m_sizes) for i in range(m)], dtype=p.torch.int64,
                            device=p.device)

    def padded(rows):
        result = p.torch.zeros((starts[-1], rows.shape[1]), dtype=p.dtype, device=p.device)
        result[places] = rows
        return result

    dy, x, layout = [padded(rows) for rows in p.dy], [padded(rows) for rows in p.x], p.indices(heights)

    def variant(note, dtype, adds):
        outputs = p.empty(*p.result_shape(), dtype=dtype)

        def launch(i):
            if choose:
                choose(SUMMED_ALIGN)
            if adds:
                outputs[i].zero_()
            deep_gemm.k_grouped_bf16_gemm_tn_contiguous(dy[i], x[i], outputs[i], heights, layout,
                                                        outputs[i] if adds else None)

        return Variant(f"{p.moved_before()}; experts padded to {SUMMED_ALIGN} rows; {note}", launch, outputs)

    # Not every release and GPU writes dW in the dtype of its inputs.
    return [variant("dW overwritten", p.dtype, False), variant("fp32 dW, zeroed, then added to", p.torch.float32, True)]


def deepgemm_contiguous_or_summed(p, options):
    return (deepgemm_summed if p.op == "dw" else deepgemm_contiguous)(p, options)


def quack(p, options):
    from quack import gemm_interface

    gated = p.activation == "silu"
    outputs = p.empty(p.rows, p.n // 2) if gated else p.empty(*p.result_shape())
    ragged = {"cu_seqlens_k" if p.op == "dw" else "cu_seqlens_m": p.indices(p.starts)}
    if gated:
        multiply, result = functools.partial(gemm_interface.gemm_gated, activation="swiglu", store_preact=False,
                                             concat_layout=None if p.interleaved else ("B",)), "postact_out"
    else:
        multiply, result = gemm_interface.gemm, "out"

    def variant(dynamic):
        def launch(i):
            multiply(*p.operands(i), **{result: outputs[i]}, dynamic_scheduler=dynamic, tuned=True, **ragged)

        note = f"{p.moved_before()}; {'dynamic' if dynamic else 'static'} scheduler, tuned{', gemm_gated' * gated}"
        return Variant(note, launch, outputs, activates=gated)

    return [variant(False), variant(True)]


def sonicmoe(p, options):
    """Of SonicMoE its two forward products: its up gathers X and always has an activation, and its down has neither."""
    gated = p.activation == "silu"
    if p.dtype_name != "bf16" or p.activation and not gated or not (gated or p.down):
        raise ValueError("it has bf16 alone, of up with --gated silu and of down")
    from sonicmoe.functional.forward import _down_projection_forward, _up_projection_forward

    weights, moved, by_turns = p.w, p.moved_before(), gated and not p.interleaved
    if by_turns:
        weights = [w.reshape(p.experts, 2, p.n // 2, p.k).transpose(1, 2).reshape(*w.shape) for w in p.w]
    weights = [w.permute(1, 2, 0) for w in weights]  # [n, k, experts] of the same memory
    gathers = gated and p.permute_x
    x = p.x_source if gathers else p.x
    common = {"expert_frequency_offset": p.indices(p.starts), "expert_schedule_order": None,
              "x_gather_idx": p.indices([slot // p.top_k for slot in p.slots] if gathers else range(p.rows))}
    outputs = p.empty(p.rows, p.n // 2 if gated else p.n)
    # The product, which it takes and leaves unwritten in inference mode.
    z = p.torch.empty((p.rows, p.n), dtype=p.dtype, device=p.device) if gated else None

    def launch(i):
        stream = p.torch.cuda.current_stream().cuda_stream  # another one while a graph is captured
        if gated:
            _up_projection_forward(x=x[i], w1=weights[i], z=z, y1=outputs[i], b1=None, stream_id=stream,
                                   activation_type="swiglu", is_glu_activation=True, is_inference_mode_enabled=True,
                                   **common)
        else:
            _down_projection_forward(w2=weights[i], y1=x[i], y2=outputs[i], b2=None, stream_id=stream, **common)

    note = "permute_x in the kernel" if gathers else moved
    note += "; gates and ups of W by turns before" if by_turns else ""
    return [Variant(note + ("; swiglu in the kernel" if gated else ""), launch, outputs, activates=gated)]


def unsloth(p, options):
    with contextlib.redirect_stdout(sys.stderr):  # it greets
        from unsloth.kernels.moe.grouped_gemm import interface

    # Its tuner knows a problem by E, N, K and flags only, and would use its choice for another number of tokens again.
    for name, kernel in vars(interface).items():
        if name.startswith("_autotuned") and hasattr(kernel, "cache"):
            kernel.cache.clear()
    outputs = [None] * p.sets
    x = [] if p.op == "dx" else p.x_source if p.permute_x else p.x
    dy = [] if p.op == "fwd" else p.dy_source if p.permute_y else p.dy
    common = {"m_sizes": p.indices(p.m_sizes), "gather_indices": p.slot_index, "topk": p.top_k, "autotune": True,
              "permute_x": p.permute_x, "permute_y": p.permute_y}
    multiply = {"fwd": lambda i: interface.grouped_gemm_forward(x[i], p.w[i], **common),
                "dx": lambda i: interface.grouped_gemm_dX(dy[i], p.w[i], **common),
                "dw": lambda i: interface.grouped_gemm_dW(x[i], dy[i], **common)}[p.op]

    def launch(i):
        outputs[i] = None
        outputs[i] = multiply(i)

    fused = [flag for flag in ("permute_x", "permute_y") if common[flag]]
    note = f"{' and '.join(fused)} in the kernel" if fused else p.moved_before()
    return [Variant(f"{note}; autotuned", launch, outputs, lambda y: y[p.slot_index] if p.scatters else y)]


def moetune_export(p, options):
    """The winners as another program launches them: what an export costs over moetune's own time."""
    folder = os.path.abspath(options.export)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import moetune_kernels

    if p.permute_x and p.down:
        raise ValueError("no operands for this fusion are made here")
    fusion = "permute_x" if p.permute_x else "permute_y" if p.permute_y else "plain"
    fusion += "+topk_weights" if p.weighted else ""
    library = moetune_kernels.Library(folder)
    request = dict(op=p.op, dtype=p.dtype_name, fusion=fusion, experts=p.experts, top_k=p.top_k, n=p.n, k=p.k)
    activates = False
    if p.activation:  # an export without such a kernel multiplies alone
        gated = "+".join([*([] if fusion == "plain" else [fusion]), p.activation, *["interleaved"] * p.interleaved])
        activates = tuple({**request, "fusion": gated}.values()) in {
            tuple(served[name] for name in request) for served in library.served()}
        request["fusion"] = gated if activates else fusion
    kernel = library.pick(tokens=p.tokens, skew=max(p.m_sizes) * p.experts / p.rows, **request)
    workspace = moetune_kernels.Workspace(library, p.tokens, [request])
    *lead, columns = p.result_shape()
    outputs = p.empty(*([p.tokens * p.top_k] if p.scatters else lead), columns // 2 if activates else columns)
    sets = {{"fwd": "y", "dx": "dx", "dw": "dw"}[p.op]: outputs}
    if p.op != "dx":
        sets["x"] = p.x_source if p.permute_x else p.x
    if p.op != "fwd":
        sets["dy"] = p.dy_source if p.permute_y else p.dy
    if p.op != "dw":
        sets["w"] = p.w
    rows = {"m_sizes": p.indices(p.m_sizes), "gather_indices": p.indices(p.slots), "topk_weights": p.weights}
    taken = {need.name for need in kernel.needs(p.tokens, p.rows)}
    rows = {name: values for name, values in rows.items() if name in taken}

    def launch(i):
        kernel.launch(p.tokens, workspace, p.rows, **{name: values[i] for name, values in sets.items()}, **rows)

    return [Variant(f"{kernel.name} of {kernel.id}", launch, outputs, lambda y: y[p.slot_index] if p.scatters else y,
                    activates)]


FORWARD, GRADIENTS = ("fwd",), ("dx", "dw")

# name: how it is prepared, the modules that it needs, and the ops that it has. The riskiest come last.
PEERS = {
    "torch-grouped-mm": (torch_grouped_mm, ("torch",), FORWARD + GRADIENTS),
    "torch-permuting": (torch_permuting, ("torch",), FORWARD + GRADIENTS),
    "cublas-loop": (cublas_loop, ("torch",), FORWARD + GRADIENTS),
    "triton-vllm": (triton_vllm, ("torch", "triton"), FORWARD),
    "deepgemm-contiguous": (deepgemm_contiguous_or_summed, ("torch", "deep_gemm"), FORWARD + GRADIENTS),
    "deepgemm-masked": (deepgemm_masked, ("torch", "deep_gemm"), FORWARD),
    "quack": (quack, ("torch", "quack"), FORWARD + GRADIENTS),
    "sonicmoe": (sonicmoe, ("torch", "triton", "quack", "sonicmoe"), FORWARD),
    "unsloth": (unsloth, ("torch", "triton", "unsloth"), FORWARD + GRADIENTS),
    "moetune-export": (moetune_export, ("torch",), FORWARD + GRADIENTS),
}

# Of fp8, by what a scale covers.
FP8_PEERS = {
    "block": ("triton-vllm", "deepgemm-contiguous", "deepgemm-masked"),
    "channel": ("torch-grouped-mm", "triton-vllm"),
    "tensor": ("torch-grouped-mm", "triton-vllm"),
}
