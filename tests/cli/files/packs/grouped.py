"""A grouped GEMM in Triton over rows in expert order, as a user of `import moetune` has one."""
import triton
import triton.language as tl


@triton.jit
def grouped(x, w, y, first_rows, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MASKED: tl.constexpr = True):
    expert = tl.program_id(0).to(tl.int64)
    first, end = tl.load(first_rows + expert), tl.load(first_rows + expert + 1)
    rows = first + tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    if first + tl.program_id(1) * BLOCK_M >= end:
        return
    columns = tl.program_id(2) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for begin in range(0, k, BLOCK_K):
        depth = begin + tl.arange(0, BLOCK_K)
        inside = (depth < k)[None, :] if MASKED else (depth >= 0)[None, :]
        a = tl.load(x + rows[:, None] * k + depth[None, :], mask=(rows < end)[:, None] & inside, other=0.0)
        b = tl.load(w + (expert * n + columns[:, None]) * k + depth[None, :], mask=(columns < n)[:, None] & inside, other=0.0)
        total = tl.dot(a, b.T, total)
    tl.store(y + rows[:, None] * n + columns[None, :], total.to(y.dtype.element_ty), mask=(rows < end)[:, None] & (columns < n)[None, :])
