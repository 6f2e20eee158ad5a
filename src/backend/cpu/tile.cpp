// One loop nest over arrays of fixed sizes: the compiler keeps them in vector registers, as many rows at a time as the
// registers of an instruction set hold.
#include "backend/cpu/grouped_gemm.h"

namespace moetune {
namespace {

template <int Rows>
__attribute__((always_inline)) inline void add(int64_t depth, const float* a, int64_t row_stride, int64_t depth_stride,
                                               const float* b, float* sums, int64_t sums_stride) {
  for (int first = 0; first < kTileRows; first += Rows, a += Rows * row_stride, sums += Rows * sums_stride) {
    float sum[Rows][kTileColumns] = {};
    for (int64_t k = 0; k < depth; ++k)
      for (int row = 0; row < Rows; ++row)
        for (int column = 0; column < kTileColumns; ++column)
          sum[row][column] += a[row * row_stride + k * depth_stride] * b[k * kTileColumns + column];
    for (int row = 0; row < Rows; ++row)
      for (int column = 0; column < kTileColumns; ++column) sums[row * sums_stride + column] += sum[row][column];
  }
}

#define MOETUNE_TILE(NAME, ROWS, TARGET)                                                                    \
  TARGET void NAME(int64_t depth, const float* a, int64_t row_stride, int64_t depth_stride, const float* b, \
                   float* sums, int64_t sums_stride) {                                                      \
    add<ROWS>(depth, a, row_stride, depth_stride, b, sums, sums_stride);                                    \
  }
MOETUNE_TILE(add_generic, 1, )
#if defined(__x86_64__)
MOETUNE_TILE(add_avx2, 2, __attribute__((target("avx2,fma"))))
MOETUNE_TILE(add_avx512, 8, __attribute__((target("avx512f,avx2,fma"))))
#endif

}  // namespace

std::vector<Tile> usable_tiles() {
  std::vector<Tile> usable = {{"generic", add_generic}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    usable.push_back({"avx2", add_avx2});
    if (__builtin_cpu_supports("avx512f")) usable.push_back({"avx512", add_avx512});
  }
#endif
  return usable;
}

const Tile& best_tile() {
  static const Tile best = usable_tiles().back();
  return best;
}

}  // namespace moetune
