// W of 4 bits in the order in which the registers of a multiplier take it: what host and device agree on.
#pragma once

namespace moetune {

/// W of an expert, [n, k] with n and k rounded up, lies in blocks of so many rows and columns, those of the same rows
/// one after another: first the elements, 16 bytes for each of 128 threads, then the scales, then the zero points. Rows
/// are columns of the product: where gates are combined, rows of gates and ups alternate in groups of eight.
constexpr int kReorderedRows = 64, kReorderedColumns = 64;

/// Groups of `columns` along k, with a scale each, in a row of a block.
constexpr int reordered_groups(int columns) { return columns < kReorderedColumns ? kReorderedColumns / columns : 1; }
/// Bytes of a block, a multiple of 16. A zero point takes a byte.
constexpr int reordered_bytes(int group_columns, int scale_bytes, bool zero_points) {
  const int elements = kReorderedRows * kReorderedColumns / 2;
  return elements + kReorderedRows * reordered_groups(group_columns) * (scale_bytes + (zero_points ? 1 : 0));
}
/// Blocks that cover `rows` rows, and `columns` columns: those of whole steps along k, of the longest that kernels
/// take.
template <class Count>
constexpr Count reordered_down(Count rows) {
  return (rows + kReorderedRows - 1) / kReorderedRows;
}
template <class Count>
constexpr Count reordered_across(Count columns) {
  constexpr int longest = 256;
  return (columns + longest - 1) / longest * (longest / kReorderedColumns);
}

}  // namespace moetune
