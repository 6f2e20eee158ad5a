// What the variants have in common: printing units, counting tiles, and rules of legality that aren't one variant's.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "kernels/problem.h"
#include "variant/variant.h"

namespace moetune {

/// What a kernel depends on of a shape whatever its knobs; `makes_gates` if it makes gradients of gates itself.
/// Variants add what they know: experts, scales beside a stage, alignments.
KernelProblem kernel_problem(const Shape& shape, bool makes_gates = false);

/// What differs between the units of the variants.
struct UnitText {
  std::string_view variant;     // includes <variant>/<variant>.cuh
  std::string_view knobs_type;  // "MmaKnobs", of the header that both compilers read
  std::string knobs;            // its initialiser
  KernelProblem problem;
  std::string_view call;  // "moetune::Mma<Config>::run(args)"
};

/// A unit of about 20 lines: struct Config with the operands' types, the function of the result, the knobs and those
/// members of the problem that differ from their defaults; and the entry moetune_kernel.
std::string print_unit(const UnitText& text, const Shape& shape, const LaunchPlan& plan);

/// An element as kernels/numbers.cuh has it.
std::string_view element_name(Dtype dtype);
/// An operand's type, X or W, as kernels/operand_type.cuh has it.
std::string operand_type(const OperandType& type, char which);
/// The unit of the pass that reorders W of such a type: kernels/service/reorder.cuh.
std::string reorder_unit(const OperandType& type);

/// Largest power of two, at most `most`, that divides `bytes`: the widest aligned access to rows of that stride.
int64_t alignment(int64_t bytes, int64_t most);

/// Why a kernel variant can't compute a shape: its op or dtype. Nothing where it can.
std::optional<std::string> unsupported(std::string_view variant, const Shape& shape, const std::vector<Dtype>& dtypes,
                                       const std::vector<Op>& ops = {Op::fwd});

/// Why a tile of so many columns of the product can't combine gates and ups of fp8 with scales of blocks.
std::optional<std::string> illegal_gates(int block_n, const Shape& shape);

/// Why such a tile can't give Y in fp8.
std::optional<std::string> illegal_quantised(int block_n, const Shape& shape);

/// Tiles of block_m x block_n of the results of all experts.
int64_t tiles_of(int64_t block_m, int64_t block_n, const Problem& problem);

/// How many processors the device has; as many as the largest of its kind where only its architecture is known.
int processors_of(const DeviceInfo& device);

/// Why `split` is illegal, or nothing. At most `blocks_per_sm` blocks run on an SM; `fewest` is the variant's smallest
/// split.
std::optional<std::string> illegal_split(int split, int block_m, int block_n, int fewest, int blocks_per_sm,
                                         const DeviceInfo& device);

}  // namespace moetune
