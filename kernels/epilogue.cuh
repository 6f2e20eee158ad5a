// Where the rows of operands lie, where a row of the result goes, and its weight.
#pragma once
#include "args.h"
#include "config.cuh"
#include "rows.h"

namespace moetune {

// The row of memory, in this order, of row `row` of expert order.
template <RowOrder order>
__forceinline__ long long memory_row(const Args& args, int row) {
  if constexpr (order == RowOrder::by_token)
    return static_cast<unsigned>(args.gather_indices[row]) / static_cast<unsigned>(args.top_k);
  if constexpr (order == RowOrder::by_slot) return args.gather_indices[row];
  return row;
}
template <class Config>
__forceinline__ long long source_row(const Args& args, int row) {
  return memory_row<Config::problem.x_rows>(args, row);
}
template <class Config>
__forceinline__ long long target_row(const Args& args, int row) {
  return memory_row<Config::problem.y_rows>(args, row);
}

// Columns of Y, and where those of a tile begin: args.n and Tile::column count columns of the product, of which the
// function of the result may join several.
template <class Config>
__forceinline__ long long y_columns(const Args& args) {
  return args.n / Config::Function::columns_per_output;
}
template <class Config>
__forceinline__ int y_column(const Tile& tile) {
  return tile.column / Config::Function::columns_per_output;
}

// The row of an expert's W that makes column `column` of the product: where two make one
// column of Y, gate and up rows alternate in groups of eight.
template <class Config>
__forceinline__ long long w_row(const Args& args, long long column) {
  if constexpr (Config::Function::columns_per_output == 1) return column;
  const long long y = column / 16 * 8 + column % 8, up = column / 8 % 2;
  return Config::problem.interleaved ? 2 * y + up : y + up * (args.n / 2);
}
// What is added to sums of an expert's column.
template <class Config>
__forceinline__ float bias(const Args& args, int expert, long long column) {
  if (column >= args.n) return 0;
  return to_float(
      static_cast<const typename Config::Function::Result*>(args.bias)[expert * args.n + w_row<Config>(args, column)]);
}

// Where the gate of `column` of the product lies in row `row` of H.
template <class Config>
__forceinline__ typename Config::Function::Result* place_in_h(const Args& args, int row, long long column) {
  return static_cast<typename Config::Function::Result*>(args.h) + row * args.n + w_row<Config>(args, column);
}
// From a gate in H to its up.
template <class Config>
__forceinline__ long long up_after_gate(const Args& args) {
  return Config::problem.interleaved ? 1 : args.n / 2;
}
// Stores two neighbouring gates and their ups, of 16 bits each.
template <class Config>
__forceinline__ void store_pairs_in_h(const Args& args, int row, long long column, unsigned gates, unsigned ups) {
  if (column >= args.n) return;
  auto* const h = reinterpret_cast<unsigned*>(place_in_h<Config>(args, row, column));
  if constexpr (Config::problem.interleaved)
    *reinterpret_cast<uint2*>(h) = {__byte_perm(gates, ups, 0x5410), __byte_perm(gates, ups, 0x7632)};
  else
    h[0] = gates, h[up_after_gate<Config>(args) / 2] = ups;
}

// The weight that multiplies a row of the result; 1 without weights.
template <class Config>
using RowWeight = typename Config::Function::Weight;
template <class Config>
__forceinline__ RowWeight<Config> row_weight(const Args& args, int row) {
  return round_to<RowWeight<Config>>(Config::Function::weighs ? args.topk_weights[args.gather_indices[row]] : 1.0f);
}
// The weights of two neighbours in a column.
template <class Element>
__forceinline__ unsigned both(Element weight) {
  return weight.bits | static_cast<unsigned>(weight.bits) << 16;
}
__forceinline__ float2 both(fp32 weight) { return {weight.value, weight.value}; }

}  // namespace moetune
