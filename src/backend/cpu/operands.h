// Operands of a loaded problem: how many sets, how much memory, which values. Not the references.
#pragma once
#include <vector>

#include "backend/cpu/output.h"
#include "kernels/args.h"
#include "variant/device.h"

namespace moetune {

/// X, W and Y of one launch. Only experts that have rows have pages behind their W.
struct OperandSet {
  Buffer x;  // [x_rows, k]
  Buffer w;  // [experts, n, k]
  Output y;  // [y_rows, n]
};
OperandSet make_set(const Problem& problem, Values values, ThreadPool& pool);

/// What a loaded problem takes: sets of operands that are used in turn, so that each is out of the caches when its turn
/// comes again, one more for integer inputs, and two references.
struct MemoryPlan {
  int sets = 0;
  int64_t set_bytes = 0;
  int64_t reference_bytes = 0;
  int64_t total_bytes() const { return (sets + 1) * set_bytes + reference_bytes; }
};

/// Sets that touch three last-level caches in all: at least two (one, where that alone does and memory is short), at
/// most 64. Throws OutOfMemory where they take more than 80 % of `available` bytes.
MemoryPlan plan_memory(const Problem& problem, const DeviceInfo& device, int64_t available);

/// The rotation's sets with random values, all alike but in different memory.
std::vector<OperandSet> make_sets(const Problem& problem, int count, ThreadPool& pool);

/// [tokens * top_k] by flat slot; empty without that fusion.
std::vector<float> make_topk_weights(const Problem& problem);

/// What a launch on this set is handed. Points into the problem, the set and the weights.
Args make_args(const Problem& problem, const OperandSet& set, const std::vector<float>& topk_weights);

}  // namespace moetune
