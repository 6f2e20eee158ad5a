"""Grouped GEMMs with the signatures that Triton kernels have elsewhere, for tests of scripts/pack_triton.py."""
import triton
import triton.language as tl

SMALL = [triton.Config({"BLOCK_M": 16, "BLOCK_N": 32, "SWAPPED": swapped}, num_warps=4, num_stages=2) for swapped in (True, False)]


@triton.jit
def tile_of(x, w, rows, columns, row_valid, n, k, stride_xm, stride_xk, stride_wn, stride_wk, EVEN_K: tl.constexpr, BLOCK_K: tl.constexpr):
    total = tl.zeros((rows.shape[0], columns.shape[0]), tl.float32)
    for begin in range(0, k, BLOCK_K):
        depth = begin + tl.arange(0, BLOCK_K)
        left = depth < (depth + 1 if EVEN_K else k)
        a = tl.load(x + rows[:, None] * stride_xm + depth[None, :] * stride_xk, mask=row_valid[:, None] & left[None, :], other=0.0)
        b = tl.load(w + columns[None, :] * stride_wn + depth[:, None] * stride_wk, mask=(columns < n)[None, :] & left[:, None], other=0.0)
        total = tl.dot(a, b, total)
    return total


@triton.autotune(SMALL, key=["N", "K"])
@triton.heuristics({"EVEN_K": lambda arguments: arguments["K"] % arguments["BLOCK_K"] == 0})
@triton.jit
def persistent(x_ptr, w_ptr, y_ptr, m_sizes_ptr, NUM_EXPERTS: tl.constexpr, N: tl.constexpr, K: tl.constexpr, NUM_SMS: tl.constexpr,
               BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SWAPPED: tl.constexpr, EVEN_K: tl.constexpr, BLOCK_K: tl.constexpr = 32):
    # A fixed number of blocks walks over the tiles of all experts.
    tile, first_tile, first_row = tl.program_id(0), 0, 0
    for expert in range(NUM_EXPERTS):
        size = tl.load(m_sizes_ptr + expert).to(tl.int32)
        tiles_m, tiles_n = tl.cdiv(size, BLOCK_M), tl.cdiv(N, BLOCK_N)
        while tile < first_tile + tiles_m * tiles_n:
            own = tile - first_tile
            place_m, place_n = (own // tiles_n, own % tiles_n) if SWAPPED else (own % tiles_m, own // tiles_m)
            rows = place_m * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = place_n * BLOCK_N + tl.arange(0, BLOCK_N)
            total = tile_of(x_ptr + first_row * K, w_ptr + expert * N * K, rows, columns, rows < size, N, K, K, 1, K, 1, EVEN_K, BLOCK_K)
            tl.store(y_ptr + (first_row + rows[:, None]) * N + columns[None, :], total.to(y_ptr.dtype.element_ty),
                     mask=(rows < size)[:, None] & (columns < N)[None, :])
            tile += NUM_SMS
        first_tile += tiles_m * tiles_n
        first_row += size


@triton.autotune([triton.Config({"BLOCK_M": 16, "BLOCK_N": 32}, num_warps=4, num_stages=2),
                  triton.Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 64}, num_warps=4, num_stages=2, maxnreg=128)], key=["n", "k"])
@triton.jit
def by_ends(A, stride_am, stride_ak, B, stride_be, stride_bn, stride_bk, C, stride_cm, stride_cn, bias_ptr, m_offsets, n, k,
            BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr = 32):
    # A grid of two sides over tiles and experts; m_offsets [experts] is where their rows end, in int64 elsewhere.
    expert = tl.program_id(1).to(tl.int64)
    first = tl.load(m_offsets + expert - 1, mask=expert > 0, other=0).to(tl.int64)
    end = tl.load(m_offsets + expert).to(tl.int64)
    tiles_n = tl.cdiv(n, BLOCK_N)
    rows = first + tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tile_of(A, B + expert * stride_be, rows, columns, rows < end, n, k, stride_am, stride_ak, stride_bn, stride_bk, False, BLOCK_K)
    if bias_ptr is not None:
        total += tl.load(bias_ptr + expert * n + columns, mask=columns < n, other=0.0)[None, :]
    tl.store(C + rows[:, None] * stride_cm + columns[None, :] * stride_cn, total.to(C.dtype.element_ty),
             mask=(rows < end)[:, None] & (columns < n)[None, :])


@triton.autotune([triton.Config({"BLOCK_N": 32}, num_warps=4, num_stages=2)], key=["K"])
@triton.jit
def by_row(x, w, y, expert_idxs_ptr, m, n, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ACC_TYPE: tl.constexpr):
    # Blocks of sorted rows walk over the experts that they have rows of.
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    of_row = tl.load(expert_idxs_ptr + rows, mask=rows < m, other=-1)
    total = tl.zeros((BLOCK_M, BLOCK_N), ACC_TYPE)
    for expert in range(tl.load(expert_idxs_ptr + tl.program_id(0) * BLOCK_M), tl.max(of_row) + 1):
        total += tile_of(x, w + expert * n * K, rows, columns, of_row == expert, n, K, K, 1, K, 1, False, 32)
    tl.store(y + rows[:, None] * n + columns[None, :], total.to(y.dtype.element_ty), mask=(rows < m)[:, None] & (columns < n)[None, :])


@triton.autotune(SMALL, key=["n"])
@triton.jit
def own_descriptors(x, w, y, first_rows, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SWAPPED: tl.constexpr):
    # TMA descriptors are made on the device, in memory that Triton asks for.
    expert = tl.program_id(2)
    first, end = tl.load(first_rows + expert), tl.load(first_rows + expert + 1)
    x_rows = tl.make_tensor_descriptor(x, shape=[end, k], strides=[k, 1], block_shape=[BLOCK_M, 32])
    w_rows = tl.make_tensor_descriptor(w + expert.to(tl.int64) * n * k, shape=[n, k], strides=[k, 1], block_shape=[BLOCK_N, 32])
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for begin in range(0, k, 32):
        total = tl.dot(x_rows.load([first + tl.program_id(0) * BLOCK_M, begin]), w_rows.load([tl.program_id(1) * BLOCK_N, begin]).T, total)
    rows = first + tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    tl.store(y + rows[:, None] * n + columns[None, :], total.to(y.dtype.element_ty), mask=(rows < end)[:, None] & (columns < n)[None, :])


@triton.jit
def host_descriptors(x_desc, w, y, n, BLOCK_M: tl.constexpr):
    tile = x_desc.load([0, 0])
    tl.store(y + tl.arange(0, BLOCK_M), tl.sum(tile, 1))


@triton.autotune([triton.Config({"BLOCK_M": 16}, pre_hook=lambda arguments: None)], key=["n"])
@triton.jit
def hooked(x, y, n, BLOCK_M: tl.constexpr):
    tl.store(y + tl.arange(0, BLOCK_M), tl.load(x + tl.arange(0, BLOCK_M)))


@triton.autotune([triton.Config({"BLOCK_M": 16})], key=["n"], reset_to_zero=["y"])
@triton.jit
def adding(x, y, n, BLOCK_M: tl.constexpr):
    tl.atomic_add(y + tl.arange(0, BLOCK_M), tl.load(x + tl.arange(0, BLOCK_M)))
