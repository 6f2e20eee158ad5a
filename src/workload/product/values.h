// The values of operands, of their scales and zero points and of top-k weights, each by its index.
#pragma once
#include <cstdint>

#include "workload/product/product.h"

namespace moetune {

/// The values that fill an input: X, W or dY; or dW before a launch that accumulates, where no W is read.
ValueStream stream_of(LayerMatrix matrix);

/// The largest integer of an operand's integer values: 4, or 16 in fp8 whose sums are promoted. Tensor cores sum fp8
/// with 14 bits: products of such integers fit these over 128 of k, where their sums are about 1,000 (standard
/// deviation), but not over thousands, so that missing promotions show. Results in fp16 have no room for such sums.
int max_integer(const Product& product, const Operand& operand);
/// Element `index` of an input in memory, by itself. Random values of integers are spread over their range.
float stored_value(const Product& product, const Operand& operand, Values values, int64_t index);
/// Top-k weight of a flat slot.
float topk_weight(const Product& product, Values values, int64_t slot);

/// Quarters for integer inputs that are weighted before they are added: weights of few bits let sums stay exact in
/// fp32.
Filling weight_filling(const Product& product, Values values);
/// Zero point `index` of W, in nibbles as they lie in memory; see zero_index.
float zero_value(const Product& product, const Operand& operand, Values values, int64_t index);

/// An element of an input as it enters the product, but for top-k weights.
double entering_value(const Product& product, const Operand& operand, Values values, int64_t expert, int64_t row,
                      int64_t column);
/// The seed of an operand's scales.
uint64_t scale_seed(uint64_t seed, const Operand& operand);
/// Scale `index` of an input.
float scale_value(const Product& product, const Operand& operand, Values values, int64_t index);
Filling scale_filling(const Operand& operand, Values values);

}  // namespace moetune
