// Where a row of the result goes and what it is multiplied by.
#pragma once
#include "args.h"
#include "numbers.cuh"

namespace moetune {

// Row of X that row `row` of expert order reads.
template <class Config>
__forceinline__ long long source_row(const Args& args, int row) {
  if constexpr (Config::permute_x)
    return static_cast<unsigned>(args.gather_indices[row]) / static_cast<unsigned>(args.top_k);
  return row;
}

// Row of Y that row `row` of expert order is stored to.
template <class Config>
__forceinline__ long long target_row(const Args& args, int row) {
  if constexpr (Config::permute_y) return args.gather_indices[row];
  return row;
}

// The factor of that row, rounded as an operand is; 1 without the fusion.
template <class Config>
__forceinline__ typename Config::Element row_weight(const Args& args, int row) {
  return round_to<typename Config::Element>(Config::topk_weights ? args.topk_weights[args.gather_indices[row]] : 1.0f);
}

// The accumulator as it is stored: rounded once, and with weights multiplied and rounded again.
template <class Config>
__forceinline__ float finish(float accumulator, typename Config::Element weight) {
  if constexpr (Config::topk_weights)
    return to_float(round_to<typename Config::Element>(accumulator)) * to_float(weight);
  return accumulator;
}

// Two neighbours of a row or of a column in one register, times the weights of their rows, as two elements in one.
template <class Config>
__forceinline__ unsigned finish_pair(float low, float high, unsigned weights) {
  using Element = typename Config::Element;
  const unsigned pair = pack<Element>(low, high);
  if constexpr (Config::topk_weights) return multiply_pair<Element>(pair, weights);
  return pair;
}
// The weights of two neighbours of one row.
template <class Element>
__forceinline__ unsigned both(Element weight) {
  return weight.bits | static_cast<unsigned>(weight.bits) << 16;
}

}  // namespace moetune
