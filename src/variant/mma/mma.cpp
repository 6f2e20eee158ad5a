// Host twin of kernels/mma/mma.cuh: what is legal, how it launches, its unit.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "kernels/args.h"
#include "kernels/mma/mma_plan.h"
#include "kernels/scales.h"
#include "variant/catalog.h"
#include "variant/knob_list.h"
#include "variant/mma/mma_cost.h"
#include "variant/unit.h"
#include "workload/product/product_rows.h"

namespace moetune {
namespace {

using Knobs = MmaKnobs;

constexpr Peaks kAssumed = {.flops = 312e12, .bandwidth = 2.0e12};  // of an A100, where the device's are unknown

const KnobList<Knobs>& list() {
  static const KnobList<Knobs> knobs =
      KnobList<Knobs>("mma")
          .add_blocks({16, 32, 48, 64, 80, 96, 128, 160, 192, 256}, {32, 48, 64, 96, 128, 160, 192, 256}, {32, 64, 128})
          .add("warps", &Knobs::warps, "warps in a block")
          .tries({4, 8})
          .add_walk({2, 3, 4, 5, 6})
          .add("split", &Knobs::split, "pieces along k that each of the last tiles is cut into; 1 = not cut", 1)
          .tries({1, 2, 4, 8});
  return knobs;
}

constexpr int kRegistersPerSm = 65536;
constexpr int kMaxRegisters = 255;  // a thread
constexpr int kMaxBlocksPerSm = 8;  // more does not help a persistent kernel
static_assert(2 * kMaxBlocksPerSm <= arrivals_per_sm, "every tile that is cut has a counter");
constexpr int64_t kSharedPerSm = 227 * 1024;  // the largest of all GPUs: a bound on what launch bounds may promise
constexpr int64_t kReservedShared = 1024;     // a block, by the driver
bool promotes(const Shape& shape) { return shape.layer.format.sums == Sums::promoted; }

// Beside accumulators and fragments: addresses, tile and scheduler state. From compiled kernels of small tiles; large
// ones make do with fewer. fp8 needs more for scales, and where elements are copied one or two at a time.
struct StateRegisters {
  int usual, fewest;
};
StateRegisters state_registers(const Shape& shape) {
  const Product p = product_of(shape);
  if (!is_k_major(p.a) || !is_k_major(p.b)) return {112, 74};
  if (p.a.type.dtype != Dtype::fp8) return {76, 38};
  const int small_copies = row_bytes(p.a) % 4 != 0 ? 48 : 0;
  return {76 + small_copies, (promotes(shape) ? 79 : 38) + small_copies};
}

// Chunks of 16 bytes of one operand's stage that a thread copies. Where rows are steps along k, compiled kernels with
// 32 of them spill.
constexpr int kMaxChunks = 16;
int chunks(const Knobs& c, int rows) { return rows * c.block_k / (8 * 32 * c.warps); }

// Equal parts of a quantised tile's columns, each with gates of one block of W's scales and ups of one.
int scale_parts(const Product& p) {
  if (!quantises(p)) return 1;
  return p.interleaved ? 2 : static_cast<int>(kScaleBlock / alignment(p.d.columns, kScaleBlock));
}

KernelProblem problem_of(const Knobs& c, const Shape& shape) {
  const Product p = product_of(shape);
  KernelProblem problem = kernel_problem(shape);
  problem.scale_parts = scale_parts(p);
  if (problem.scales_at_end) {
    problem.x_scale_bytes = row_scale_bytes(c.block_m), problem.w_scale_bytes = row_scale_bytes(c.block_n);
  } else if (has_scales(p.a.type)) {
    problem.x_scale_bytes = x_block_scale_bytes(c.block_m, kScaleBlock);
    problem.w_scale_bytes =
        problem.scale_parts * w_block_scale_bytes(c.block_n, kScaleBlock, problem.columns_per_output);
  }
  problem.x_load_bytes = static_cast<int>(alignment(row_bytes(p.a), 16));
  problem.w_load_bytes = static_cast<int>(alignment(row_bytes(p.b), 16));
  problem.store_bytes = problem.quantises()    ? static_cast<int>(alignment(row_bytes(p.d), 16))
                        : p.d.columns % 8 == 0 ? 16
                        : p.d.columns % 2 == 0 ? 4
                                               : 2;
  return problem;
}

int shared_bytes(const Knobs& c, const Shape& shape) { return mma_layout(c, problem_of(c, shape)).bytes; }

// With the scales of W's blocks beyond those of one part.
int registers(const Knobs& c, const Shape& shape) {
  const int parts_of_warp = scale_parts(product_of(shape)) / warp_grid(c).n;
  return mma_registers(c, promotes(shape)) + 2 * (std::max(1, parts_of_warp) - 1);
}

int blocks_per_sm(const Knobs& c, const Shape& shape) {
  const int by_registers = kRegistersPerSm / (32 * c.warps) / (registers(c, shape) + state_registers(shape).usual);
  const auto by_shared = static_cast<int>(kSharedPerSm / (shared_bytes(c, shape) + kReservedShared));
  return std::max(1, std::min({by_registers, by_shared, kMaxBlocksPerSm}));
}

std::optional<std::string> illegal(const Knobs& c, const Shape& shape, const DeviceInfo& device) {
  if (auto reason = unsupported("mma", shape, {Dtype::bf16, Dtype::fp16, Dtype::fp8}, {Op::fwd, Op::dx, Op::dw}))
    return reason;
  if (device.compute_capability < 80) return "mma needs sm_80 or newer";
  if (multiplies_fp8(shape.layer.format) && device.compute_capability < 89) return "mma needs sm_89 or newer for fp8";
  if (c.block_m < 16 || c.block_m > 256 || c.block_m % 16 != 0) return "block_m must be a multiple of 16 in 16 to 256";
  if (c.block_n < 32 || c.block_n > 256 || c.block_n % 16 != 0) return "block_n must be a multiple of 16 in 32 to 256";
  if (c.block_k != 32 && c.block_k != 64 && c.block_k != 128) return "block_k must be 32, 64 or 128";
  const Product product = product_of(shape);
  if (auto reason = quantises(product) ? illegal_quantised(c.block_n, shape) : illegal_gates(c.block_n, shape))
    return reason;
  if (c.warps != 4 && c.warps != 8) return "warps must be 4 or 8";
  if (c.stages < 2 || c.stages > 6) return "stages must lie in 2 to 6";
  if (c.group < 1 || c.group > 64) return "group must lie in 1 to 64";
  if (warp_grid(c).m == 0)
    return fmt::format("block_m x block_n cannot be divided among {} warps in multiples of 16 x 16", c.warps);
  if (!(is_k_major(product.a) && is_k_major(product.b)) &&
      std::max(chunks(c, c.block_m), chunks(c, c.block_n)) > kMaxChunks)
    return fmt::format(
        "block_m, block_n or block_k must be smaller for {}: a thread would copy over {} chunks of a stage",
        name(shape.op), kMaxChunks);
  if (registers(c, shape) + state_registers(shape).fewest > kMaxRegisters)
    return "block_m or block_n must be smaller: sums and fragments need over 255 registers a thread";
  if (shared_bytes(c, shape) > device.shared_memory_per_block)
    return fmt::format("stages, block_m, block_n or block_k must be smaller: shared memory over {} bytes",
                       device.shared_memory_per_block);
  return illegal_split(c.split, c.block_m, c.block_n, 1, blocks_per_sm(c, shape), device);
}

LaunchPlan plan(const Knobs& c, const Shape& shape) {
  return {.threads = 32 * c.warps,
          .shared_bytes = shared_bytes(c, shape),
          .min_blocks_per_sm = blocks_per_sm(c, shape),
          .tile_rows = c.block_m,
          .tile_columns = c.block_n,
          .pieces = c.split,
          .workspace = split_workspace_bytes(c.split, c.block_m, c.block_n)};
}

std::string unit(const Knobs& c, const Shape& shape) {
  return print_unit({.variant = "mma",
                     .knobs_type = "MmaKnobs",
                     .knobs = list().initialiser(c),
                     .problem = problem_of(c, shape),
                     .call = "moetune::Mma<Config>::run(args)"},
                    shape, plan(c, shape));
}

double seconds(const MmaCost& cost, const Knobs& c, const Problem& problem, const DeviceInfo& device) {
  return mma_seconds(cost, c, blocks_per_sm(c, problem.shape), problem, device);
}

// The fastest by the model; small tiles where nothing is legal.
Knobs fallback(const MmaCost& cost, const Problem& problem, const DeviceInfo& device) {
  const DeviceInfo known = with_assumed(device, kAssumed);
  Knobs best{.block_m = 16,
             .block_n = 64,
             .block_k = 32,
             .warps = 4,
             .stages = 2,
             .raster = Raster::m,
             .group = 8,
             .split = 1};
  double least = std::numeric_limits<double>::infinity();
  const auto look_at = [&](const Knobs& c) {
    if (illegal(c, problem.shape, device)) return;
    const double time = seconds(cost, c, problem, known);
    if (time < least) least = time, best = c;
  };
  for (const int block_m : {16, 32, 64, 128})
    for (const int block_n : {64, 128, 256})
      for (const int block_k : {32, 64, 128})
        for (const int warps : {4, 8})
          for (const int stages : {4, 3, 2})
            for (const int split : {1, 4})
              look_at({.block_m = block_m,
                       .block_n = block_n,
                       .block_k = block_k,
                       .warps = warps,
                       .stages = stages,
                       .raster = Raster::m,
                       .group = 8,
                       .split = split});
  return best;
}

}  // namespace

Variant mma_variant(const Constants& constants) {
  const MmaCost cost{constants};
  return make_variant<Knobs>(
      list(), "persistent blocks, cp.async ring, ldmatrix and mma.sync; sm_80 and newer",
      {.illegal = illegal,
       .plan = plan,
       .unit = unit,
       .fallback = std::bind_front(fallback, cost),
       .seconds = std::bind_front(seconds, cost),
       .canonical = [](const Knobs& c, const Problem& problem) { return with_plain_walk(c, problem); }});
}

}  // namespace moetune
