"""A grouped GEMM under @triton.autotune with a grid of three sides and expert offsets, for tests."""
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK_M": 16, "BLOCK_N": 32}, num_warps=4, num_stages=2),
                  triton.Config({"BLOCK_M": 32, "BLOCK_N": 16}, num_warps=2, num_stages=2)], key=["n", "k"])
@triton.jit
def grouped(a_ptr, b_ptr, c_ptr, offsets, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    expert = tl.program_id(0).to(tl.int64)
    first, end = tl.load(offsets + expert), tl.load(offsets + expert + 1)
    rows = first + tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(2) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for begin in range(0, k, BLOCK_K):
        depth = begin + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows[:, None] * k + depth[None, :], mask=(rows < end)[:, None] & (depth < k)[None, :], other=0.0)
        b = tl.load(b_ptr + (expert * n + columns[:, None]) * k + depth[None, :], mask=(columns < n)[:, None] & (depth < k)[None, :], other=0.0)
        total = tl.dot(a, b.T, total)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total.to(c_ptr.dtype.element_ty), mask=(rows < end)[:, None] & (columns < n)[None, :])
