// Where the rows of operands lie, where a row of the result goes, and what it is multiplied by.
#pragma once
#include "args.h"
#include "numbers.cuh"
#include "rows.h"
#include "tiles.h"

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
  return memory_row<Config::x_rows>(args, row);
}
template <class Config>
__forceinline__ long long target_row(const Args& args, int row) {
  return memory_row<Config::y_rows>(args, row);
}

// The weight that multiplies a row of the result: in fp32, or rounded to Element; 1 without weights.
template <class Config>
using RowWeight = typename Choice<Config::weighting == Weighting::result, fp32, typename Config::Element>::type;
template <class Config>
constexpr bool weights_result = weighs_result(Config::weighting);
template <class Config>
__forceinline__ RowWeight<Config> row_weight(const Args& args, int row) {
  return round_to<RowWeight<Config>>(weights_result<Config> ? args.topk_weights[args.gather_indices[row]] : 1.0f);
}

// The accumulator as it is stored, before its last rounding.
template <class Config>
__forceinline__ float finish(float accumulator, RowWeight<Config> weight) {
  if constexpr (Config::weighting == Weighting::rounded_result)
    return to_float(round_to<typename Config::Element>(accumulator)) * to_float(weight);
  if constexpr (Config::weighting == Weighting::result) return accumulator * weight.value;
  return accumulator;
}

// The weights of two neighbours in a row or a column.
template <class Config>
using PairOfWeights = typename Choice<Config::weighting == Weighting::result, float2, unsigned>::type;
template <class Element>
__forceinline__ unsigned both(Element weight) {
  return weight.bits | static_cast<unsigned>(weight.bits) << 16;
}
__forceinline__ float2 both(fp32 weight) { return {weight.value, weight.value}; }

// Two neighbours of the result as they are stored, in one register.
template <class Config>
__forceinline__ unsigned finish_pair(float low, float high, const PairOfWeights<Config>& weights) {
  using Element = typename Config::Element;
  if constexpr (Config::weighting == Weighting::result) return pack<Element>(low * weights.x, high * weights.y);
  const unsigned pair = pack<Element>(low, high);
  if constexpr (Config::weighting == Weighting::rounded_result) return multiply_pair<Element>(pair, weights);
  return pair;
}

}  // namespace moetune
