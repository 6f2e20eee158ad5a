// What the host hands to every kernel. Read by the host compiler and by NVRTC alike: no includes, plain types only.
#pragma once

namespace moetune {

// A CUtensorMap, which describes a matrix to tensor copies. Opaque; the driver makes it.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// Layout of Args::counters. At tiles_begun: tiles taken or begun. At blocks_done: blocks that are done. From
// taken_from_ends: two halves of one 64-bit number, the tiles taken from each end of the mixed experts. From
// first_arrival: for each tile that is cut along k, how many pieces or parts have their sums in memory. An SM needs at
// most arrivals_per_sm of these: fewer than two tiles for each of eight blocks, or one part for each of three
// warpgroups.
constexpr int tiles_begun = 0, blocks_done = 1, taken_from_ends = 2, first_arrival = 4, arrivals_per_sm = 16;
// Rows that one counter of Args::gathered counts.
constexpr int gathered_together = 128;

// Ragged maps, of y and of operands whose rows are summed over, have four dimensions: columns, kRaggedRows rows, and
// two that shift the matrix so that any of its rows can be the last, as in Triton's ragged descriptors. Row `row` of
// rows [first, end) is at (column, row + kRaggedRows - (end - first), end, kRaggedRows). Loads past `end` give zeros,
// and stores past it write nothing.
constexpr int kRaggedRows = 1 << 30;
// Rows of a map at most: coordinates are signed 32-bit numbers, and a tile may end past the last row.
constexpr int kMaxMapRows = 0x7fff0000;

struct Args {
  // The operands of the product y_e = x_e w_e^T, whatever a layer calls them:
  //   forward  x [rows, k], w [experts, n, k], y [rows, n]
  //   dX       x = dY [rows, k], w = W [experts, k, n], y = dX [rows, n]
  //   dW       x = dY [rows, m], w = X [rows, n], y = dW [experts, m, n]; k is the expert's number of rows
  // n counts columns of the product: one for each row of W, or each column where w has k rows. Where the function of
  // the result combines columns, y has fewer: kernels ask y_columns(), and w_row() for the row of W of a column.
  // Rows lie in expert order, by token ([tokens, ..]) or by flat slot ([tokens * top_k, ..]).
  const void* x;
  const void* w;
  void* y;
  const int* m_sizes;         // [experts] rows per expert, zeros legal
  const int* gather_indices;  // [rows] flat slot (token * top_k + slot) of each row in expert order
  const float* topk_weights;  // [tokens * top_k] by flat slot
  long long n;                // columns of the product
  long long k;
  int experts;
  int top_k;
  // [first_arrival + arrivals_per_sm * SMs], zeros before and after a launch.
  unsigned* counters = nullptr;
  float* workspace = nullptr;  // sums of pieces and parts of tiles: split_workspace_bytes() for each block
  // With gather=first:
  void* gathered_rows = nullptr;  // room for the gathered rows of x, or of w for dW, in expert order
  // [max(rows / gathered_together + 1, experts)], zeros before and after a launch: how many rows are already gathered,
  // of each gathered_together in expert order, or of each expert where rows are summed over.
  unsigned* gathered = nullptr;
  // With tensor copies: maps of x in large and in small boxes, of w as [experts * n, k] ([n, k] with pointers; where
  // columns are combined, as [experts, n / 16, gate or up, 8, k]), and a ragged one of y.
  TensorMap x_map = {};
  TensorMap x_rest_map = {};
  TensorMap w_map = {};
  TensorMap y_map = {};
  // With addressing=pointers: where each expert's matrices begin. Rows of X with permute_x, and of Y with permute_y,
  // belong to all experts: x_of or y_of is null.
  const void* const* x_of = nullptr;  // [experts]
  const void* const* w_of = nullptr;  // [experts]
  void* const* y_of = nullptr;        // [experts]
  TensorMap* maps = nullptr;          // [blocks][map_turns][2] room for maps that blocks write
  long long m = 0;                    // rows of each expert's result, where k is ragged
  // Scales of fp8 operands, and the distances between them in floats: from a row of X in memory to the next, from an
  // expert to the next, from 128 rows of W (from one, where scales are of rows) to the next, and along k from 128
  // columns to the next. A distance of 0 repeats a scale. Scales of groups along k have elements of y, and distances
  // from one row and from one group to the next.
  const float* x_scales = nullptr;
  const void* w_scales = nullptr;  // floats, but for groups along k
  long long x_scale_row = 0, x_scale_step = 0;
  long long w_scale_expert = 0, w_scale_row = 0, w_scale_step = 0;
  const void* bias = nullptr;  // [experts, n] elements of y, in the order of W's rows
  // Of an fp8 y: one for each row and kScaleBlock columns, with the distances from a row of y in memory to the next and
  // from kScaleBlock columns to the next.
  float* y_scales = nullptr;
  long long y_scale_row = 0, y_scale_step = 0;
  // [rows, n] elements of y: gates and ups before the activation, columns in the order of W's rows.
  void* h = nullptr;
  // Where y is dH [rows, 2 n]: h, of as many columns, is read, and X [rows, n] made of it again. Parts of the products
  // of a row's sums with its row of X, [rows, n / block_n, gate_parts()].
  void* x_again = nullptr;
  float* parts = nullptr;
  const void* w_zeros = nullptr;  // zero points of W, beside scales of groups along k
};

// Rows of W and columns along k that one scale of a block covers; of X it covers one row.
constexpr int kScaleBlock = 128;

}  // namespace moetune
