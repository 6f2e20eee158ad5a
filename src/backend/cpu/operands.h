// Operands of a loaded problem: how many sets, how much memory, which values. Not the references.
#pragma once
#include <vector>

#include "backend/cpu/matrices.h"
#include "backend/cpu/memory.h"
#include "variant/device.h"

namespace moetune {

/// Operands and results of one launch. Of an input with one matrix an expert, only experts that have rows have pages
/// behind it.
struct OperandSet {
  Buffer a;
  Buffer b;
  Output d;
  Values values = Values::random;
  Buffer a_scales;  // without scales: empty
  Buffer b_scales;
  Buffer x = {};         // without the weights' gradient: empty
  Output dweights = {};  // the same
};
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
