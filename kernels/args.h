// What the host hands to every kernel. Read by the host compiler and by NVRTC alike: no includes, plain types only.
#pragma once

namespace moetune {

// A CUtensorMap: how a copy engine sees a matrix. Opaque; made by the driver.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// What Args::counters holds: [0] tiles taken or begun, [1] blocks that are done, from taken_from_ends two halves of one
// 64-bit number, the tiles taken from each end of the mixed experts; from first_arrival on, for each tile that is cut
// along k, the pieces or parts whose sums are in memory. An SM's blocks cut at most arrivals_per_sm: fewer than two
// tiles for each of eight blocks, or one part for each of three warpgroups.
constexpr int taken_from_ends = 2, first_arrival = 4, arrivals_per_sm = 16;
// Rows that are gathered first are counted together, so many by one counter.
constexpr int gathered_together = 128;

// Ragged maps, of operands whose rows go along k and of y, have four dimensions: columns, kRaggedRows rows, and two
// that move the matrix so that any of its rows is the last, as in Triton's ragged descriptors: rows [first, end) of the
// matrix are at (column, row + kRaggedRows - (end - first), end, kRaggedRows). Behind them zeros are read, and nothing
// is written.
constexpr int kRaggedRows = 1 << 30;

struct Args {
  // The operands of the product y_e = x_e w_e^T, whatever a layer calls them:
  //   forward  x [rows, k], w [experts, n, k], y [rows, n]
  //   dX       x = dY [rows, k], w = W [experts, k, n], y = dX [rows, n]
  //   dW       x = dY [rows, m], w = X [rows, n], y = dW [experts, m, n]; k is the expert's number of rows
  // Rows lie in expert order, by token ([tokens, ..]) or by flat slot ([tokens * top_k, ..]).
  const void* x;
  const void* w;
  void* y;
  const int* m_sizes;         // [experts] rows per expert, zeros legal
  const int* gather_indices;  // [rows] flat slot (token * top_k + slot) of each row in expert order
  const float* topk_weights;  // [tokens * top_k] by flat slot
  long long n;
  long long k;
  int experts;
  int top_k;
  // [first_arrival + arrivals_per_sm * SMs] zeros, left as zeros.
  unsigned* counters = nullptr;
  float* workspace = nullptr;  // sums of pieces and parts of tiles: workspace bytes of the plan for each block
  // Where the plan gathers rows of X, or of W for dW, first:
  void* gathered_x = nullptr;  // room for them, in expert order
  // [max(rows / gathered_together + 1, experts)] zeros, left as zeros: rows that are in order, of each place, or of
  // each expert where they are summed over.
  unsigned* gathered = nullptr;
  // Where the plan has boxes: maps of x in large and in small boxes, of w as [experts * n, k] ([n, k] for
  // pointers), and a ragged one of y.
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
  long long m = 0;                    // rows of the result an expert, where k is ragged
};

}  // namespace moetune
