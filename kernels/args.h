// What the host hands to every kernel. Read by the host compiler and by NVRTC alike: no includes, plain types only.
#pragma once

namespace moetune {

// A CUtensorMap: how a copy engine sees a matrix. Opaque; made by the driver.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// Counters: tiles taken or begun, blocks done, two halves of the tiles taken from each end; then, from first_arrival,
// the pieces done of each part of a tile that is cut along k. Fewer than two tiles a block are cut, and an SM runs
// eight blocks, or one of three parts a tile.
constexpr int taken_from_ends = 2, first_arrival = 4, arrivals_per_sm = 16;
// Rows that are gathered before tiles read them are counted together, so many at a time.
constexpr int gathered_together = 128;

struct Args {
  const void* x;              // [x_rows, k], expert order; with permute_x [tokens, k]
  const void* w;              // [experts, n, k], k contiguous
  void* y;                    // [rows, n], expert order; with permute_y [tokens * top_k, n] in (token, slot) order
  const int* m_sizes;         // [experts] rows per expert, zeros legal
  const int* gather_indices;  // [rows] flat slot (token * top_k + slot) of each row in expert order
  const float* topk_weights;  // [tokens * top_k] by flat slot
  long long n;
  long long k;
  int experts;
  int top_k;
  // [first_arrival + arrivals_per_sm * SMs] zeros, left as zeros.
  unsigned* counters = nullptr;
  float* workspace = nullptr;  // sums of those pieces, as many bytes as the plan says
  // Where the plan gathers rows first: room for them in expert order, [rows, k], and their counts, [rows /
  // gathered_together] zeros, left as zeros.
  void* gathered_x = nullptr;
  unsigned* gathered = nullptr;
  // Of x or gathered_x, of w as [experts * n, k] ([n, k] for pointers) and of y, where the candidate's plan asks for
  // them; of x in small boxes too.
  TensorMap x_map = {};
  TensorMap x_rest_map = {};
  TensorMap w_map = {};
  TensorMap y_map = {};
  // For candidates that address by pointers: where each expert's matrices begin, [experts] each, and room for tensor
  // maps that blocks write. x_of is null with permute_x and y_of with permute_y, whose rows belong to all experts.
  const void* const* x_of = nullptr;
  const void* const* w_of = nullptr;
  void* const* y_of = nullptr;
  TensorMap* maps = nullptr;  // [blocks][stages + 1][2]
};

}  // namespace moetune
