// Host twin of kernels/simt/simt.cuh.

#include "kernels/simt/simt_plan.h"
#include "variant/catalog.h"
#include "variant/knob_list.h"
#include "variant/unit.h"

namespace moetune {
namespace {

using Knobs = SimtKnobs;

const KnobList<Knobs>& list() {
  static const KnobList<Knobs> knobs =
      KnobList<Knobs>("simt").add_blocks({16, 32, 64}, {32, 64, 128, 256}, {8, 16, 32});
  return knobs;
}

constexpr int64_t kStaticShared = 48 * 1024;  // what a block has without opting in, on every GPU

std::optional<std::string> illegal(const Knobs& c, const Shape& shape, const DeviceInfo& device) {
  if (auto reason = unsupported(
          "simt", shape,
          {Dtype::bf16, Dtype::fp16, Dtype::fp32, Dtype::fp8, Dtype::int8, Dtype::int4, Dtype::uint4, Dtype::e2m1},
          {Op::fwd, Op::dx, Op::dw}))
    return reason;
  if (shape.layer.format.w.reordered) return "simt reads W in rows, --weights as-is: wgmma reads it reordered";
  if (device.compute_capability < 75) return "simt needs sm_75 or newer, the oldest that NVRTC compiles for";
  if (c.block_m < 4 || c.block_m % 4 != 0 || c.block_n < 4 || c.block_n % 4 != 0)
    return "block_m and block_n must be multiples of 4: a thread computes 4 x 4 elements";
  if (combines_gates(shape) && c.block_n % 32 != 0)
    return "block_n must be a multiple of 32 for gates: a thread has both sums of an element";
  if (auto reason = illegal_quantised(c.block_n, shape)) return reason;
  if (c.block_k < 1 || c.block_k > 64) return "block_k must lie in 1 to 64";
  // With 1024, which have 64 registers each, some kernels spill.
  if (simt_threads(c) < 32 || simt_threads(c) > 512) return "block_m * block_n / 16 threads must lie in 32 to 512";
  if (simt_shared_bytes(c, has_scales(shape.layer.format.y)) > kStaticShared)
    return "block_k, block_m or block_n must be smaller: shared memory over 48 KB";
  return std::nullopt;
}

LaunchPlan plan(const Knobs& c, const Shape&) {
  return {.threads = simt_threads(c), .tile_rows = c.block_m, .tile_columns = c.block_n};
}

std::string unit(const Knobs& c, const Shape& shape) {
  return print_unit({.variant = "simt",
                     .knobs_type = "SimtKnobs",
                     .knobs = list().initialiser(c),
                     .problem = kernel_problem(shape),
                     .call = "moetune::simt<Config>(args)"},
                    shape, plan(c, shape));
}

Knobs fallback(const Problem& problem, const DeviceInfo&) {
  const bool few_rows = problem.rows() <= 32 * problem.active_experts();
  const bool quantises = has_scales(problem.shape.layer.format.y);
  return {.block_m = few_rows ? 16 : quantises ? 32 : 64, .block_n = quantises ? 256 : 64, .block_k = 16};
}

}  // namespace

Variant simt_variant() {
  return make_variant<Knobs>(list(), "CUDA cores with every access checked; sm_75 and newer",
                             {.illegal = illegal, .plan = plan, .unit = unit, .fallback = fallback});
}

}  // namespace moetune
