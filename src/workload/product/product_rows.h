// Which rows of an operand or a result belong to which expert, and where they lie in memory.
#pragma once
#include <cstdint>
#include <vector>

#include "workload/product/product.h"

namespace moetune {

int64_t experts(const Product& product);
/// Rows that the router gave to these experts.
int64_t routed_rows(const Product& product);
int64_t extent(const Product& product, int64_t expert, Axis axis);
/// Whether it is one matrix whose rows are divided among experts; else it is one matrix an expert.
bool is_ragged(const Product& product, const Operand& operand);
/// Whether K is contiguous in A or B; else M (of A) or N (of B) is.
bool is_k_major(const Operand& operand);
/// The first row of `expert` in expert order: rows that experts own, one expert after another. 0 <= expert <= experts.
int64_t first_row(const Product& product, const Operand& operand, int64_t expert);
/// How many they own in all: rows in memory less padding, rows of other ranks and the like.
int64_t owned_rows(const Product& product, const Operand& operand);
/// Where in memory row `row` of an expert lies, by the operand's own row axis.
int64_t memory_row(const Product& product, const Operand& operand, int64_t expert, int64_t row);
/// [owned_rows] memory_row of every row in expert order.
std::vector<int64_t> row_map(const Product& product, const Operand& operand);

struct Place {
  int64_t expert = 0;
  int64_t row = 0;  // in that expert
};
/// The expert that owns row `row` of expert order; 0 <= row < owned_rows.
Place place_of(const Product& product, const Operand& operand, int64_t row);

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
