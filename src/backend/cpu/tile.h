// The innermost loop of the cpu variant, compiled for several instruction sets. Not how blocks are cut and packed.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace moetune {

/// Of a register tile. They divide kCpuTileRows and kCpuTileColumns.
constexpr int kTileRows = 8, kTileColumns = 32;

struct Tile {
  std::string_view isa;
  /// sums [kTileRows, kTileColumns] += A [kTileRows, depth] * B [depth, kTileColumns]. B is contiguous; element (row,
  /// k) of A is a[row * row_stride + k * depth_stride]. Strides count floats.
  void (*add)(int64_t depth, const float* a, int64_t row_stride, int64_t depth_stride, const float* b, float* sums,
              int64_t sums_stride);
};

/// What this machine can run, the best last.
std::vector<Tile> usable_tiles();
/// The best of them.
const Tile& best_tile();

}  // namespace moetune
