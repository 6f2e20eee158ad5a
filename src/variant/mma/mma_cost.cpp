// A model of the mma kernels in cycles. What its constants mean is said in configs/cost/mma.json.
#include "variant/mma/mma_cost.h"

#include <vector>

#include "kernels/args.h"
#include "workload/product/passes.h"

namespace moetune {
namespace {

constexpr double kFlops = 2048;       // a cycle and SM at the peak of a device before wgmma, as an A100's
constexpr double kWgmmaFlops = 4096;  // the same of a device with wgmma
constexpr double kSumBytes = 4;       // of a sum of a piece
constexpr double kAdded = 128;        // fp32 sums that are promoted, a cycle and SM

// Tiles of the same depth.
struct Tiles {
  double count = 0, steps = 0;
};

std::vector<Tiles> tiles_of(const MmaKnobs& c, const Product& p, const std::vector<int>& m_sizes) {
  std::vector<Tiles> tiles;
  const double columns = ceil_div(static_cast<double>(p.n), c.block_n);
  for (const int rows : m_sizes) {
    if (p.ragged == Axis::k)
      tiles.push_back({columns * ceil_div(static_cast<double>(p.m), c.block_m), ceil_div(rows, c.block_k)});
    else if (rows > 0)
      tiles.push_back({columns * ceil_div(rows, c.block_m), ceil_div(static_cast<double>(p.k), c.block_k)});
  }
  return tiles;
}

// Cycles of a step along k of a block.
struct Step {
  double work = 0;   // of the SM, which its blocks divide
  double alone = 0;  // until the block is through, if it has the SM for itself
};

Step step_of(const MmaCost& cost, const MmaKnobs& c, const Product& p, double flops) {
  const WarpGrid grid = warp_grid(c);
  const auto bytes = static_cast<double>(size_bytes(p.a.type.dtype)) * c.block_k;
  const bool promotes = p.sums == Sums::promoted;
  const double promote = promotes ? c.block_m * c.block_n / kAdded * c.block_k / kScaleBlock : 0;
  const double multiply = 2.0 * c.block_m * c.block_n * c.block_k / flops + promote;
  const double fragments = c.warps * bytes * (c.block_m / grid.m + c.block_n / grid.n);
  const double work =
      norm(multiply, (fragments + bytes * (c.block_m + c.block_n)) / cost.shared_rate, cost.overlap_shared);
  return {work, std::max(work + cost.step, (cost.latency + work) / (c.stages - 1))};
}

// Cycles of the busiest SM. The last tiles may be cut into pieces, for blocks that would have none.
double busiest_cycles(const MmaCost& cost, const MmaKnobs& c, const Step& step, const std::vector<Tiles>& tiles,
                      int blocks, int processors) {
  double count = 0, steps = 0, most = 0;
  for (const Tiles& t : tiles) count += t.count, steps += t.count * t.steps, most = std::max(most, t.steps);
  if (count <= 0) return 0;
  const double slots = static_cast<double>(blocks) * processors;
  const double store = cost.stored_sum * c.block_m * c.block_n, average = steps / count;
  const double together = std::max(blocks * step.work, step.alone);  // of a step of each block of an SM
  const double whole = std::floor(count / slots), rest = count - whole * slots;
  double cycles = whole * (average * together + store);
  if (rest > 0) {
    const double pieces = c.split > 1 ? std::min<double>(c.split, std::max(1.0, std::floor(slots / rest))) : 1;
    const double on_sm = std::min<double>(blocks, ceil_div(rest * pieces, processors));
    cycles += (whole > 0 ? average : most) / pieces * std::max(on_sm * step.work, step.alone) + store +
              (pieces > 1 ? 2 * kSumBytes * c.block_m * c.block_n / cost.load_rate : 0);
  }
  return cycles;
}

}  // namespace

double mma_seconds(const MmaCost& cost, const MmaKnobs& knobs, int blocks, const Problem& problem,
                   const DeviceInfo& device) {
  const Peaks peaks = {device.peak_flops, device.peak_bandwidth};
  if (peaks.flops <= 0 || peaks.bandwidth <= 0 || device.processors <= 0) return 0;
  const Product p = before_last_pass(product_of(problem.shape));
  const std::vector<int>& m_sizes = problem.routing.m_sizes;
  const std::vector<Tiles> tiles = tiles_of(knobs, p, m_sizes);
  const bool has_wgmma = device.compute_capability == 90;
  const double clock = peaks.flops / (has_wgmma ? kWgmmaFlops : kFlops) / device.processors;
  // Where mma.sync has no fp8, kernels widen it (kernels/ptx.cuh).
  const bool twice =
      p.a.type.dtype == Dtype::fp8 && (device.compute_capability < 90 || device.compute_capability >= 120);
  const Step step = step_of(cost, knobs, p, has_wgmma ? cost.mma_flops : (twice ? 2 : 1) * kFlops);
  const double busy = busiest_cycles(cost, knobs, step, tiles, blocks, device.processors) / clock;
  const auto [read, written] = moved_bytes(p, m_sizes);
  const double memory = (read + written / cost.write_rate) / peaks.bandwidth;
  return norm(busy, memory, cost.overlap_memory) + cost.launch;
}

}  // namespace moetune
