// What a launch writes: D, and dweights where the product has them. Which rows of them, and what errors they may have.
#pragma once
#include <cstdint>
#include <vector>

#include "workload/product.h"

namespace moetune {

/// Whether every row in memory is written, with zeros where no expert has a row of it: D that sums slots, and dweights.
/// Of other results the rows that experts own are written.
bool is_filled(const Product& product, const Operand& result);

/// Rows that are written, in the order of references: those of filled results as they lie in memory, those of others in
/// expert order.
int64_t result_rows(const Product& product, const Operand& result);
/// [result_rows] where each lies in memory.
std::vector<int64_t> result_map(const Product& product, const Operand& result);
/// [result_rows] how many products add rounding errors to an element: K for every slot that is summed; K + N for
/// dweights, as each of its N terms has the error of a sum over K. 0 where there is nothing to sum.
std::vector<int64_t> result_terms(const Product& product, const Operand& result);

/// [slots] the row of expert order that has each slot, -1 where none has.
std::vector<int32_t> rows_of_slots(const Product& product);

}  // namespace moetune
