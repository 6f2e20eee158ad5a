"""The grouped GEMM of a mixture-of-experts layer in Triton, by the calling convention of vLLM's fused_moe_kernel, and
how scripts/pack_triton.py makes a pack of it.

    sorted_token_ids [padded]     rows sorted by expert, each expert's padded to whole blocks of BLOCK_SIZE_M; ids of
                                  num_valid_tokens and more are padding
    expert_ids [padded / BLOCK_SIZE_M]  the expert of each block
    num_tokens_post_padded [1]    how many sorted_token_ids there are
    a [.., k]: row id // top_k    b [experts, n, k]    c [num_valid_tokens, n]: row id

The pack computes `plain`: its ids are the rows in expert order, top_k is 1, and each row of X is read from, and each row
of Y stored to, a row of its own. vLLM reads and stores rows by slot: pack_triton.py --from vllm packs its own kernel so.
"""
import triton
import triton.language as tl

MOST_EXPERTS = 1024  # one block sums the row counts of all experts


@triton.jit
def moe_gemm(a, b, c, topk_weights, sorted_token_ids, expert_ids, num_tokens_post_padded, n, k, blocks_m, num_valid_tokens,
             stride_am, stride_be, stride_bn, stride_cm, top_k, GROUP_SIZE_M, MUL_ROUTED_WEIGHT: tl.constexpr,
             BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr):
    # Blocks of rows walk together in groups, so that tiles of B stay in L2.
    pid = tl.program_id(0)
    blocks_n = tl.cdiv(n, BLOCK_SIZE_N)
    in_group = GROUP_SIZE_M * blocks_n
    first_m = pid // in_group * GROUP_SIZE_M
    group_m = min(blocks_m - first_m, GROUP_SIZE_M)
    pid_m = first_m + pid % in_group % group_m
    pid_n = pid % in_group // group_m
    if pid_m * BLOCK_SIZE_M >= tl.load(num_tokens_post_padded):
        return

    ids = tl.load(sorted_token_ids + pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)).to(tl.int64)
    valid = ids < num_valid_tokens
    expert = tl.load(expert_ids + pid_m).to(tl.int64)
    columns = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N).to(tl.int64)
    depth = tl.arange(0, BLOCK_SIZE_K)
    a_at = a + (ids // top_k)[:, None] * stride_am + depth[None, :]
    b_at = b + expert * stride_be + (columns % n)[None, :] * stride_bn + depth[:, None]
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_SIZE_K)):
        left = k - step * BLOCK_SIZE_K
        a_tile = tl.load(a_at, mask=valid[:, None] & (depth[None, :] < left), other=0.0)
        b_tile = tl.load(b_at, mask=depth[:, None] < left, other=0.0)
        total = tl.dot(a_tile, b_tile, total)
        a_at += BLOCK_SIZE_K
        b_at += BLOCK_SIZE_K
    if MUL_ROUTED_WEIGHT:
        total *= tl.load(topk_weights + ids, mask=valid, other=0.0)[:, None]
    c_at = c + ids[:, None] * stride_cm + columns[None, :]
    tl.store(c_at, total.to(c.dtype.element_ty), mask=valid[:, None] & (columns[None, :] < n))


@triton.jit
def align_rows(sorted_token_ids, expert_ids, num_tokens_post_padded, m_sizes, rows, experts, block_size_m,
               EXPERTS: tl.constexpr, CHUNK: tl.constexpr):
    # One block per expert: its rows in expert order, then padding up to a whole block.
    expert = tl.program_id(0)
    others = tl.arange(0, EXPERTS)
    sizes = tl.load(m_sizes + others, mask=others < experts, other=0)
    blocks = (sizes + block_size_m - 1) // block_size_m
    first_row = tl.sum(tl.where(others < expert, sizes, 0), 0)
    first_block = tl.sum(tl.where(others < expert, blocks, 0), 0)
    own_rows = tl.sum(tl.where(others == expert, sizes, 0), 0)
    own_blocks = tl.sum(tl.where(others == expert, blocks, 0), 0)
    chunk = tl.arange(0, CHUNK)
    for begin in range(0, own_blocks * block_size_m, CHUNK):
        row = begin + chunk
        tl.store(sorted_token_ids + first_block * block_size_m + row, tl.where(row < own_rows, first_row + row, rows),
                 mask=row < own_blocks * block_size_m)
    for begin in range(0, own_blocks, CHUNK):
        tl.store(expert_ids + first_block + begin + chunk, tl.zeros((CHUNK,), tl.int32) + expert,
                 mask=begin + chunk < own_blocks)
    if expert == experts - 1:
        tl.store(num_tokens_post_padded, (first_block + own_blocks) * block_size_m)


@triton.jit
def order_rows(row_ends, row_experts, first_rows, CHUNK: tl.constexpr):
    # One block per expert: where its rows end, and for each of them which expert's it is. Either may be None.
    expert = tl.program_id(0)
    first, end = tl.load(first_rows + expert), tl.load(first_rows + expert + 1)
    if row_ends is not None:
        tl.store(row_ends + expert, end)
    if row_experts is not None:
        for begin in range(first, end, CHUNK):
            row = begin + tl.arange(0, CHUNK)
            tl.store(row_experts + row, tl.zeros((CHUNK,), tl.int32) + expert, mask=row < end)


def pointer(name):
    return {"pointer": name}


def int32(formula):
    return {"int32": formula}


# The most blocks of rows that any routing makes: each expert ends in a partial block, and every block has a row.
BLOCKS_M = "max(1, min(ceil_div(rows + experts * (BLOCK_SIZE_M - 1), BLOCK_SIZE_M), rows))"


def describe(dtype):
    """What pack_triton.py compiles, and what pack.json says of it. `dtype` is bf16 or fp16."""
    return {
        "variant": "triton_moe",
        "summary": "a Triton grouped GEMM by vLLM's calling convention",
        "computes": [{"op": "fwd", "dtype": dtype, "fusion": "plain", "weighting": "none"}],
        # vLLM's space. A knob is an option of the compiler, a constant of the kernel, or seen by launches alone.
        "knobs": [
            {"name": "BLOCK_SIZE_M", "help": "rows of a tile", "values": [16, 32, 64, 128, 256], "default": 64},
            {"name": "BLOCK_SIZE_N", "help": "columns of a tile", "values": [32, 64, 128, 256], "default": 128},
            {"name": "BLOCK_SIZE_K", "help": "depth of a step", "values": [64, 128, 256], "default": 64},
            {"name": "GROUP_SIZE_M", "help": "blocks of rows walked together", "values": [1, 16, 32, 64], "default": 1},
            {"name": "num_warps", "help": "warps of a block", "values": [4, 8], "default": 4},
            {"name": "num_stages", "help": "tiles in flight", "values": [2, 3, 4, 5], "default": 3},
        ],
        "options": ["num_warps", "num_stages"],
        "constants": ["BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"],
        # The kernel was compiled for sizes that 16 divides.
        "rules": [
            {"zero": "n % 16", "reason": "n must be a multiple of 16"},
            {"zero": "k % 16", "reason": "k must be a multiple of 16"},
            {"zero": f"max(experts - {MOST_EXPERTS}, 0)", "reason": f"{MOST_EXPERTS} experts are the most"},
        ],
        # The least bytes of any build of a candidate: it is not compiled where a block may have fewer.
        "least_shared_bytes": lambda knobs: 2 * (knobs["num_stages"] - 1) * knobs["BLOCK_SIZE_K"]
        * (knobs["BLOCK_SIZE_M"] + knobs["BLOCK_SIZE_N"]),
        "kernel": {
            "function": moe_gemm,
            "constants": {"MUL_ROUTED_WEIGHT": False},
            "grid": f"{BLOCKS_M} * ceil_div(n, BLOCK_SIZE_N)",
            # By the kernel's parameters: type, value of the manifest, whether 16 divides it.
            "arguments": {
                "a": (f"*{dtype}", pointer("x"), True),
                "b": (f"*{dtype}", pointer("w"), True),
                "c": (f"*{dtype}", pointer("y"), True),
                "topk_weights": ("*fp32", pointer("null"), True),
                "sorted_token_ids": ("*i32", pointer("sorted_token_ids"), True),
                "expert_ids": ("*i32", pointer("expert_ids"), True),
                "num_tokens_post_padded": ("*i32", pointer("num_tokens_post_padded"), True),
                "n": ("i32", int32("n"), True),
                "k": ("i32", int32("k"), True),
                "blocks_m": ("i32", int32(BLOCKS_M), False),
                "num_valid_tokens": ("i32", int32("rows"), False),
                "stride_am": ("i32", int32("k"), True),
                "stride_be": ("i64", {"int64": "n * k"}, True),
                "stride_bn": ("i32", int32("k"), True),
                "stride_cm": ("i32", int32("n"), True),
                "top_k": ("i32", int32("1"), False),
                "GROUP_SIZE_M": ("i32", int32("GROUP_SIZE_M"), False),
            },
        },
        "prepare": [{
            "function": align_rows,
            "constants": {"EXPERTS": MOST_EXPERTS, "CHUNK": 1024},
            "grid": "experts",
            "options": {"num_warps": 4},
            "arguments": {
                "sorted_token_ids": ("*i32", pointer("sorted_token_ids"), True),
                "expert_ids": ("*i32", pointer("expert_ids"), True),
                "num_tokens_post_padded": ("*i32", pointer("num_tokens_post_padded"), True),
                "m_sizes": ("*i32", pointer("m_sizes"), True),
                "rows": ("i32", int32("rows"), False),
                "experts": ("i32", int32("experts"), False),
                "block_size_m": ("i32", int32("BLOCK_SIZE_M"), True),
            },
        }],
        "operands": [
            {"name": "x", "dtype": dtype, "shape": ["rows", "k"], "access": "read"},
            {"name": "w", "dtype": dtype, "shape": ["experts * n", "k"], "access": "read"},
            {"name": "y", "dtype": dtype, "shape": ["rows", "n"], "access": "write"},
            {"name": "m_sizes", "dtype": "int32", "shape": ["experts"], "access": "read"},
        ],
        "buffers": [
            {"name": "sorted_token_ids", "bytes": f"{BLOCKS_M} * BLOCK_SIZE_M * 4", "zeroed": False},
            {"name": "expert_ids", "bytes": f"{BLOCKS_M} * 4", "zeroed": False},
            {"name": "num_tokens_post_padded", "bytes": "4", "zeroed": False},
        ],
    }
