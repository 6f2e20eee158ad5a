// The cpu variant: one launch of a blocked, packed, threaded grouped GEMM, and its innermost loop, compiled for several
// instruction sets. Not what is legal.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/cpu/memory.h"
#include "backend/cpu/operands.h"
#include "backend/cpu/thread_pool.h"
#include "variant/cpu/cpu.h"

namespace moetune {

/// Of a register tile. They divide kCpuTileRows and kCpuTileColumns.
constexpr int kTileRows = 8, kTileColumns = 32;

/// One loop nest, compiled for an instruction set.
struct Tile {
  std::string_view isa;
  /// sums [kTileRows, kTileColumns], `pitch` floats from row to row, += A [depth, kTileRows] transposed * B [depth,
  /// kTileColumns].
  void (*add)(int64_t depth, const float* a, const float* b, float* sums, int64_t pitch);
};

/// What this machine can run, the best last.
std::vector<Tile> usable_tiles();
/// The best of them.
const Tile& best_tile();

/// A block of D: rows from `row` and columns from `column` of an expert.
struct Task {
  int64_t expert = 0;
  int64_t row = 0;
  int64_t column = 0;
};

/// Memory that launches share, grown by the first that needs more.
struct Workspace {
  std::vector<Task> tasks;
  std::vector<Buffer> scratch;  // one a thread
  Buffer sums;                  // [rows, N] floats in expert order, where another pass follows
};

/// Runs a legal candidate of the cpu variant on host memory. Threads take tasks from a list; each element is summed by
/// one thread, in an order that only block_k decides, so the result does not depend on the number of threads. Where
/// slots are added, the weights have a gradient, or sums get a bias or an activation, another pass makes the results
/// from all rows: of slots as they are added, or fp32 sums.
void grouped_gemm(const Product& product, const Matrices& matrices, const CpuKnobs& knobs, ThreadPool& pool,
                  Workspace& workspace);

}  // namespace moetune
