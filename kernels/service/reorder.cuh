// The pass that reorders W of 4 bits, once ahead of time.
#pragma once
#include "reordered.cuh"

namespace moetune {

// Rows of W as they lie: elements [experts, n, k], two in a byte, scales [experts, n, k / columns], zero points
// [experts, n / 2, k / columns], two rows in a byte. `per_output` is 2 where gates and ups are combined. Rows and
// columns past the end are zeros. Where a scale can't be stored `refused` becomes 1 + its index. Blocks have 128
// threads.
template <class Type>
struct Reorder {
  using W = RegisterW<Type>;
  using Scale = W::ScaleElement;
  static constexpr int columns = W::group_columns;
  const unsigned char* elements;
  const Scale* scales;
  const unsigned char* zeros;
  long long n, k;
  int per_output;
  bool interleaved;

  __device__ __forceinline__ long long row_of(long long column) const {
    if (per_output == 1) return column;
    const long long y = column / 16 * 8 + column % 8, up = column / 8 % 2;
    return interleaved ? 2 * y + up : y + up * (n / 2);
  }
  __device__ __forceinline__ void run(unsigned char* out, long long number, unsigned long long* refused) const {
    const long long across = reordered_across(k), down = reordered_down(n), expert = number / (down * across);
    const long long first_row = number / across % down * kReorderedRows, first_k = number % across * kReorderedColumns;
    const long long groups = (k + columns - 1) / columns;
    unsigned char* const block = out + number * W::bytes;
    const int thread = threadIdx.x;
    // Where the zero point of a row and a group of it lies, as a nibble.
    const auto zero_of = [&](long long row, long long group) {
      const long long even = (expert * n + row / 2 * 2) * groups + group * 2 + row % 2;
      return zeros[even / 2] >> even % 2 * 4 & 15u;
    };
    const auto element_of = [&](long long column, long long at) {
      if (column >= n || at >= k) return W::outside;
      const long long index = (expert * n + row_of(column)) * k + at;
      return elements[index / 2] >> index % 2 * 4 & 15u;
    };
    for (int j = 0; j < W::steps; ++j) {
      unsigned word = 0;
      for (int i = 0; i < 4; ++i)
        for (int half = 0; half < 2; ++half)
          word |=
              W::Bits::place(
                  element_of(first_row + reordered_row(thread, i), first_k + reordered_column(thread, j, i, half)), i)
              << 16 * half;
      reinterpret_cast<unsigned*>(block)[thread * W::steps + j] = word;
    }
    if (thread % 4 >= 2) return;
    // Two threads of four have the scales of a row each.
    const int at_row = thread % 4, pair = reordered_pair(thread);
    const long long column = first_row + reordered_row(thread, at_row);
    for (int g = 0; g < W::groups; ++g) {
      const long long group = (first_k + g * columns) / columns;
      const bool inside = column < n && group < groups;
      const long long row = inside ? row_of(column) : 0, index = (expert * n + row) * groups + group;
      Scale scale = round_to<Scale>(1.0f);
      if (inside) scale = scales[index];
      if (!W::ScaleBits::legal(scale)) atomicMax(refused, index + 1ull);
      const int first = pair * W::groups * 2;
      const auto stored = W::ScaleBits::place(scale);
      reinterpret_cast<decltype(W::ScaleBits::place(scale))*>(
          block + W::scales_at)[first + reordered_place(sizeof stored, W::groups, g, at_row)] = stored;
      if constexpr (W::has_zeros)
        block[W::zeros_at + first + reordered_place(1, W::groups, g, at_row)] =
            inside ? zero_of(row, group) : W::outside;
    }
  }
};

}  // namespace moetune

extern "C" __global__ void reorder(unsigned char* out, const unsigned char* elements, const void* scales,
                                   const unsigned char* zeros, unsigned long long* refused, long long experts,
                                   long long n, long long k, int per_output, int interleaved) {
  using Reorder = moetune::Reorder<WeightType>;
  const Reorder pass = {elements,        static_cast<const typename Reorder::Scale*>(scales), zeros, n, k, per_output,
                        interleaved != 0};
  const long long blocks = experts * moetune::reordered_down(n) * moetune::reordered_across(k);
  for (long long number = blockIdx.x; number < blocks; number += gridDim.x) pass.run(out, number, refused);
}
