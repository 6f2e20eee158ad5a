// Operands of a loaded problem: how many sets, how much memory, which values; where those of one launch lie, and their
// elements as floats. Not the references.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/memory.h"
#include "variant/device.h"
#include "workload/product/scale_places.h"

namespace moetune {

/// `count` elements of `dtype` to floats, exactly, and floats to elements, each rounded to nearest even.
void to_floats(Dtype dtype, const void* elements, int64_t count, float* target);
void from_floats(Dtype dtype, const float* values, int64_t count, void* target);

/// The operands as a product describes them.
struct Matrices {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  float* d_scales = nullptr;            // where D is quantised
  const float* topk_weights = nullptr;  // [slots], where the product is weighted
  const float* a_scales = nullptr;      // [scale_count], where the operand has scales
  const float* b_scales = nullptr;
  const void* b_zeros = nullptr;  // nibbles by zero_index, where B has zero points
  const void* x = nullptr;        // with the weights' gradient, without that of gates
  const void* h = nullptr;        // with the gradient of gates
  void* second = nullptr;         // second_result, if there is one
  const void* bias = nullptr;     // where the product has one
  float* dweights = nullptr;      // [slots], the same
};

/// A part of an operand: of its M or N [first, first + count), of K [from, from + depth).
struct Part {
  int64_t expert, first, count, from, depth;
};

/// An operand in memory. Rows and columns are an expert's, by the operand's own axes.
struct Input {
  const Product& product;
  const Operand& operand;
  const void* data;
  const float* scales = nullptr;   // null without
  const float* weights = nullptr;  // null where this operand is not weighted
  const void* zeros = nullptr;     // null without zero points

  /// Elements [column, column + count) of a row, weighted but not scaled.
  void unpack(int64_t expert, int64_t row, int64_t column, int64_t count, float* target) const;
  /// As they enter the product: less their zero points, times their scales, rounded to fp32 or, where scales make the
  /// elements of the stage, to its dtype.
  void unpack_scaled(int64_t expert, int64_t row, int64_t column, int64_t count, float* target) const;
  /// The scale of an element; 1 without scales.
  float scale(int64_t expert, int64_t row, int64_t column) const {
    return scales ? scales[scale_index(product, operand, expert, row, column)] : 1;
  }
};
Input input_a(const Product& product, const Matrices& matrices);
Input input_b(const Product& product, const Matrices& matrices);
/// The bias of an expert's columns.
std::vector<float> bias_of(const Product& product, const Matrices& matrices, int64_t expert);

/// Top-k weight of row `row` of an expert.
float weight_of_row(const Product& product, const float* topk_weights, int64_t expert, int64_t row);

/// Operands and results of one launch. Of an input with one matrix an expert, only experts that have rows have pages
/// behind it.
struct OperandSet {
  Buffer a;
  Buffer b;
  Output d = {};
  Values values = Values::random;
  Buffer a_scales;  // without scales: empty
  Buffer b_scales;
  Buffer b_zeros = {};   // without zero points: empty
  Buffer x = {};         // without the weights' gradient, or with that of gates: empty
  Buffer h = {};         // without the gradient of gates: empty
  Output second = {};    // without a second_result: empty
  Buffer bias = {};      // without a bias: empty
  Output dweights = {};  // without the weights' gradient: empty
  Output d_scales = {};  // where D is not quantised: empty
};
/// All that a launch writes, D first.
std::vector<std::pair<Operand, Output OperandSet::*>> results_of(const Product& product);

/// Inputs are copied from `source`, where there is one.
OperandSet make_set(const Product& product, Values values, ThreadPool& pool, const OperandSet* source = nullptr);

/// Results and their guards as a launch must find them: unwritten, but for what is in a D that accumulates.
void reset_output(const Product& product, const OperandSet& set, ThreadPool& pool);

/// What a loaded problem takes: sets of operands that are used in turn, so that each is out of the caches when its turn
/// comes again, one more for integer inputs, two references, and what launches keep between two passes.
struct MemoryPlan {
  int sets = 0;
  int64_t set_bytes = 0;
  int64_t reference_bytes = 0;
  int64_t partial_bytes = 0;
  int64_t total_bytes() const { return (sets + 1) * set_bytes + reference_bytes + partial_bytes; }
};

/// Sets that touch three last-level caches in all: at least two (one, where that alone does and memory is short), at
/// most 64. Throws OutOfMemory where they take more than 80 % of `available` bytes.
MemoryPlan plan_memory(const Product& product, const DeviceInfo& device, int64_t available);

/// The rotation's sets with random values, all alike but in different memory.
std::vector<OperandSet> make_sets(const Product& product, int count, ThreadPool& pool);

/// [slots]; empty where nothing is weighted.
std::vector<float> make_topk_weights(const Product& product, Values values);

/// Where a launch finds a set. Points into the set and the weights.
Matrices matrices_of(const OperandSet& set, const std::vector<float>& topk_weights);

}  // namespace moetune
