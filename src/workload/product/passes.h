// The products of one that is computed in several passes: without what acts on its sums, in expert order, before its
// last pass.
#pragma once
#include "workload/product/product.h"

namespace moetune {

/// The same product without bias, activation and quantisation: D has N columns, in bf16 if it was quantised.
Product without_finish(const Product& product);
/// Whether the operand is gathered, scattered or weighted by row: a plain GEMM needs its rows moved before or after.
bool is_moved(const Product& product, const Operand& operand);

/// The product of that plain GEMM: moved operands lie in expert order without padding, nothing is weighted, and D is
/// the only result. D is fp32 where sums are weighted before they are rounded, or become gradients of gates.
Product in_expert_order(const Product& product);

/// Whether a last pass makes the results: where it adds the rows of slots, or makes the weights' gradient and D of the
/// fp32 sums of all rows.
bool takes_another_pass(const Product& product);

/// The product before that pass: D lies in expert order and is the only result, with the rows of slots as they are
/// added, or in fp32 and unweighted. Any other product is returned as it is, and so are gradients of gates where the
/// kernel makes them.
Product before_last_pass(const Product& product, bool makes_gates = false);

}  // namespace moetune
