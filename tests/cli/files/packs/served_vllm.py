"""A kernel with the parameters of vLLM's fused_moe_kernel, for tests; only what tests need of it works."""
import missing_package.envs as envs
from missing_package.triton_utils import tl, triton


@triton.jit
def scaled(product, a_scale, b_scale, SWAP_AB: tl.constexpr):
    if SWAP_AB:
        return product * b_scale[:, None] * a_scale[None, :]
    else:
        return product * a_scale[:, None] * b_scale[None, :]


@triton.jit
def fused_moe_kernel(
        a_ptr, b_ptr, c_ptr, b_bias_ptr, a_scale_ptr, b_scale_ptr, topk_weights_ptr, sorted_token_ids_ptr, expert_ids_ptr,
        num_tokens_post_padded_ptr, N, K, EM, num_valid_tokens, stride_am, stride_ak, stride_be, stride_bk, stride_bn, stride_cm, stride_cn,
        stride_asm, stride_ask, stride_bse, stride_bsk, stride_bsn, stride_bbe, stride_bbn, group_n: tl.constexpr, group_k: tl.constexpr,
        naive_block_assignment: tl.constexpr, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
        GROUP_SIZE_M: tl.constexpr, SPLIT_K: tl.constexpr, MUL_ROUTED_WEIGHT: tl.constexpr, top_k: tl.constexpr,
        compute_type: tl.constexpr, use_fp8_w8a8: tl.constexpr, use_int8_w8a8: tl.constexpr, use_int8_w8a16: tl.constexpr,
        per_channel_quant: tl.constexpr, HAS_BIAS: tl.constexpr, SWAP_AB: tl.constexpr, USE_TD: tl.constexpr = False):
    """The blocks of one row of blocks lie behind one another."""
    tl.static_assert(not (HAS_BIAS or USE_TD) and SPLIT_K == 1 and (group_k == 0 or BLOCK_SIZE_K <= group_k))
    block_m, block_n = tl.program_id(0) // tl.cdiv(N, BLOCK_SIZE_N), tl.program_id(0) % tl.cdiv(N, BLOCK_SIZE_N)
    if block_m * BLOCK_SIZE_M >= tl.load(num_tokens_post_padded_ptr):
        return
    lane = tl.arange(0, BLOCK_SIZE_M)
    if naive_block_assignment:
        slots = tl.where(lane == 0, block_m, num_valid_tokens).to(tl.int64)
    else:
        slots = tl.load(sorted_token_ids_ptr + block_m * BLOCK_SIZE_M + lane).to(tl.int64)
    valid = slots < num_valid_tokens
    expert = tl.load(expert_ids_ptr + block_m).to(tl.int64)
    columns = block_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    total = tl.zeros((BLOCK_SIZE_N, BLOCK_SIZE_M) if SWAP_AB else (BLOCK_SIZE_M, BLOCK_SIZE_N), tl.float32)
    for begin in range(0, K, BLOCK_SIZE_K):
        depth = begin + tl.arange(0, BLOCK_SIZE_K)
        a = tl.load(a_ptr + (slots // top_k)[:, None] * stride_am + depth[None, :] * stride_ak, mask=valid[:, None] & (depth < K)[None, :],
                    other=0.0)
        b = tl.load(b_ptr + expert * stride_be + columns[:, None] * stride_bn + depth[None, :] * stride_bk,
                    mask=(columns < N)[:, None] & (depth < K)[None, :], other=0.0)
        if use_int8_w8a16:
            b = b.to(compute_type)
        product = tl.dot(b, a.T) if SWAP_AB else tl.dot(a, b.T)
        if group_k > 0:
            a_scale = tl.load(a_scale_ptr + slots // top_k * stride_asm + begin // group_k * stride_ask, mask=valid, other=0.0)
            b_scale = tl.load(b_scale_ptr + expert * stride_bse + columns % N // group_n * stride_bsn + begin // group_k * stride_bsk)
            product = scaled(product, a_scale, b_scale, SWAP_AB)
        total += product
    if SWAP_AB:
        total = tl.trans(total, (1, 0))
    if use_int8_w8a16:
        total *= tl.load(b_scale_ptr + expert * stride_bse + columns % N * stride_bsn)[None, :]
    if (use_fp8_w8a8 or use_int8_w8a8) and group_k == 0:
        if per_channel_quant:
            total *= (tl.load(a_scale_ptr + slots // top_k * stride_asm, mask=valid, other=0.0)[:, None]
                      * tl.load(b_scale_ptr + expert * stride_bse + columns % N * stride_bsn)[None, :])
        else:
            total *= tl.load(a_scale_ptr) * tl.load(b_scale_ptr + expert)
    if MUL_ROUTED_WEIGHT:
        total *= tl.load(topk_weights_ptr + slots, mask=valid, other=0.0)[:, None]
    tl.store(c_ptr + slots[:, None] * stride_cm + columns[None, :] * stride_cn, total.to(compute_type),
             mask=valid[:, None] & (columns < N)[None, :])


@triton.jit
def fused_moe_kernel_gptq_awq(
        a_ptr, b_ptr, c_ptr, b_scale_ptr, b_zp_ptr, topk_weights_ptr, sorted_token_ids_ptr, expert_ids_ptr, num_tokens_post_padded_ptr,
        N: tl.constexpr, K: tl.constexpr, EM, num_valid_tokens, stride_am, stride_ak, stride_be, stride_bk, stride_bn, stride_cm, stride_cn,
        stride_bse, stride_bsk, stride_bsn, stride_bze, stride_bzk, stride_bzn, block_k_diviable: tl.constexpr, group_size: tl.constexpr,
        BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
        SPLIT_K: tl.constexpr, MUL_ROUTED_WEIGHT: tl.constexpr, top_k: tl.constexpr, compute_type: tl.constexpr, has_zp: tl.constexpr,
        use_int4_w4a16: tl.constexpr, use_int8_w8a16: tl.constexpr):
    """Two elements of W share a byte along k, two zero points along n."""
    tl.static_assert(use_int4_w4a16 and not use_int8_w8a16 and block_k_diviable == (K % BLOCK_SIZE_K == 0))
    block_m, block_n = tl.program_id(0) // tl.cdiv(N, BLOCK_SIZE_N), tl.program_id(0) % tl.cdiv(N, BLOCK_SIZE_N)
    if block_m * BLOCK_SIZE_M >= tl.load(num_tokens_post_padded_ptr):
        return
    slots = tl.load(sorted_token_ids_ptr + block_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)).to(tl.int64)
    valid = slots < num_valid_tokens
    expert = tl.load(expert_ids_ptr + block_m).to(tl.int64)
    columns = block_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    row = columns[None, :] % N
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), tl.float32)
    for begin in range(0, K, BLOCK_SIZE_K):
        depth = begin + tl.arange(0, BLOCK_SIZE_K)
        inside = (depth < K)[:, None]
        a = tl.load(a_ptr + (slots // top_k)[:, None] * stride_am + depth[None, :] * stride_ak, mask=valid[:, None] & (depth < K)[None, :],
                    other=0.0)
        group = depth[:, None] // group_size
        pair = tl.load(b_ptr + expert * stride_be + row * stride_bn + depth[:, None] // 2 * stride_bk, mask=inside, other=0)
        zero = 8.0
        if has_zp:
            zeros = tl.load(b_zp_ptr + expert * stride_bze + row // 2 * stride_bzn + group * stride_bzk, mask=inside, other=0)
            zero = ((zeros >> row % 2 * 4) & 15).to(tl.float32)
        scale = tl.load(b_scale_ptr + expert * stride_bse + row * stride_bsn + group * stride_bsk, mask=inside, other=0.0).to(tl.float32)
        b = (((pair >> depth[:, None] % 2 * 4) & 15).to(tl.float32) - zero) * scale
        total = tl.dot(a, b.to(compute_type), acc=total)
    if MUL_ROUTED_WEIGHT:
        total *= tl.load(topk_weights_ptr + slots, mask=valid, other=0.0)[:, None]
    tl.store(c_ptr + slots[:, None] * stride_cm + columns[None, :] * stride_cn, total.to(compute_type),
             mask=valid[:, None] & (columns < N)[None, :])


def invoke(*tensors):
    return fused_moe_kernel[lambda meta: (envs.BLOCKS,)](*tensors)
