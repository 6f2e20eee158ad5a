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
/// Blocks that cover `count` rows or columns.
template <class Count>
constexpr Count reordered_blocks(Count count) {
  return (count + kReorderedRows - 1) / kReorderedRows;
}

}  // namespace moetune
