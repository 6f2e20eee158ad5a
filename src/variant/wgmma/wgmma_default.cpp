// The model's first choice: among all plain tiles, then among variations of the fastest.
#include "variant/wgmma/wgmma.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "variant/unit.h"
#include "workload/product/product.h"

namespace moetune {
namespace {

using Knobs = WgmmaKnobs;

const std::vector<int> kDefaultRows = {16, 32, 48, 64, 80, 96, 112, 128, 144, 176, 192, 256};
const std::vector<int> kDefaultColumns = {64, 128, 192, 256}, kFewColumns = {16, 32};
const std::vector<std::pair<Raster, int>> kWalks = {{Raster::m, 1}, {Raster::m, 4}, {Raster::n, 1}, {Raster::n, 4}};
constexpr size_t kFastest = 12;  // tiles whose variations are looked at too
constexpr int kHold = 256, kMaxFp8Stages = 8;

constexpr Peaks kAssumed = {.flops = 989e12, .bandwidth = 4.8e12};  // of a device that has wgmma

// Sums a thread with which kernels like those that are looked at here don't spill, by ptxas of CUDA 13.0.
int sums_without_spills(const Knobs& c, const KernelProblem& p, bool adds_fp16) {
  const bool three = c.consumers == 3, first = c.gather == Gather::first, boxes = c.tma_store == TmaStore::boxes;
  const bool shares = shares_last_round(c), busy_producer = copies_rows(c) || first;
  if (p.w_in_registers()) return c.consumers == 4 ? 32 : three ? 80 : 160;
  if (c.split > 1) return !c.swap ? 48 : three ? 64 : 96;
  if (p.makes_gates) return three ? 72 : c.in_flight > 0 && shares ? 96 : 128;
  if (p.promotes && three) return busy_producer || shares || c.hold > 0 || (boxes && !c.swap) ? 112 : 128;
  if (p.quantises()) return c.swap && (busy_producer || c.in_flight > 0) ? 144 : 160;
  if (p.promotes) return busy_producer ? 144 : c.swap && c.in_flight > 0 ? 176 : 192;
  if (p.scales_at_end && c.in_flight > 0) return three ? 40 : 80;
  if (three) return (p.adds_bias || p.stores_h) && !c.swap ? 32 : adds_fp16 && !boxes ? 64 : 96;
  if ((p.adds_bias || p.stores_h) && c.in_flight > 0) return c.swap ? 144 : 96;
  if (copies_rows(c) || (shares && (pingpong(c) || p.stores_sums()))) return 144;
  const bool begins_with_zeros = !p.accumulates || p.stores_sums();
  const bool more = c.swap && c.mix == 0 && !first && begins_with_zeros && !(pingpong(c) && (boxes || groups(c) > 3));
  return more && !(p.looks_up_rows() && (c.cluster == Cluster::m || shares)) ? 192 : 176;
}

struct Chooser {
  const WgmmaCost& cost;
  const Problem& problem;
  DeviceInfo device;
  const KernelProblem of_kernel = wgmma_problem({}, problem.shape);
  std::vector<std::pair<double, Knobs>> seen = {};

  // With as many stages as fit.
  void look_at(Knobs c) {
    c.stages = kMaxWgmmaStages;
    const KernelProblem of_tile = wgmma_problem(c, problem.shape);
    while (c.stages > 2 && wgmma_layout(c, of_tile).bytes > device.shared_memory_per_block) --c.stages;
    if (wgmma_may_spill(c, problem.shape)) return;
    if (!wgmma_illegal(c, problem.shape, device)) seen.emplace_back(wgmma_seconds(cost, c, problem, device), c);
  }

  void look_at_tiles(Knobs c) {
    const std::pair<int, Schedule> teams[] = {{2, Schedule::cooperative},
                                              {2, Schedule::pingpong},
                                              {3, Schedule::cooperative},
                                              {1, Schedule::cooperative},
                                              {4, Schedule::cooperative}};
    const bool few =
        illegal_gates(kDefaultColumns[0], problem.shape).has_value();  // blocks of scales divide the others
    for (const int rows : kDefaultRows)
      for (const int columns : few ? kFewColumns : kDefaultColumns)
        for (const auto& [consumers, schedule] : teams)
          for (const TileOrder order : {TileOrder::fixed, TileOrder::dynamic})
            for (const TmaStore store : {TmaStore::none, TmaStore::boxes}) {
              c.block_m = rows, c.block_n = columns;
              c.consumers = consumers, c.schedule = schedule, c.tiles = order, c.tma_store = store;
              if (!of_kernel.sums_rows() || (store == TmaStore::boxes) != of_kernel.stores_sums()) look_at(c);
            }
  }

  // Each of another tile than those before it.
  std::vector<Knobs> fastest(size_t count) {
    std::stable_sort(seen.begin(), seen.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Knobs> result;
    for (const auto& one : seen) {
      const Knobs& knobs = one.second;
      const auto alike = [&knobs](const Knobs& other) {
        return std::tie(knobs.block_m, knobs.block_n, knobs.block_k, knobs.schedule) ==
               std::tie(other.block_m, other.block_n, other.block_k, other.schedule);
      };
      if (result.size() < count && std::none_of(result.begin(), result.end(), alike)) result.push_back(knobs);
    }
    return result;
  }
};

// Tiles of dW: all experts have the same. Threads store them more slowly than tensor copies do, and in fp32 they must.
void look_at_sums(Chooser& chooser, Knobs c) {
  c.raster = Raster::n, c.group = 4;
  c.gather = chooser.of_kernel.permutes_x() ? Gather::first : Gather::tiles;
  for (const int in_flight : {1, 0}) {
    if (!chooser.seen.empty()) break;  // an accumulated fp16 dW is legal without steps in flight alone
    for (const bool swap : {true, false})
      for (const int split : {1, 2, 4}) {
        c.swap = swap, c.split = split, c.in_flight = in_flight;
        chooser.look_at_tiles(c);
      }
  }
  // Clusters of swapped tiles, or along n, lose more than the model predicts.
  const std::pair<bool, Cluster> sides[] = {{true, Cluster::none}, {false, Cluster::none}, {false, Cluster::m}};
  for (const Knobs& tile : chooser.fastest(kFastest))
    for (const auto& [swap, cluster] : sides)
      for (const TileOrder order : {TileOrder::fixed, TileOrder::dynamic})
        for (const int in_flight : {1, 0})
          for (const auto& [raster, group] : kWalks)
            for (const int mix : {0, 2, 4}) {
              Knobs other = tile;
              other.swap = swap, other.cluster = cluster, other.tiles = order, other.in_flight = in_flight;
              other.raster = raster, other.group = group, other.mix = mix;
              chooser.look_at(other);
            }
}

// Tiles of an expert's rows, which are on the N side: the last tile multiplies only the rows that it has.
void look_at_rows(Chooser& chooser, Knobs c) {
  const int row = swizzle_columns(chooser.of_kernel);  // of the swizzle
  // Where sums are promoted, swapped tiles multiply all of their rows; where they are scaled, few fit beside steps in
  // flight. Gradients of gates are slower from swapped tiles.
  const std::vector<std::pair<bool, int>> ways =
      multiplies_fp8(chooser.problem.shape.layer.format) || chooser.of_kernel.makes_gates
          ? std::vector<std::pair<bool, int>>{{true, 1}, {true, 0}, {false, 1}, {false, 0}}
          : std::vector<std::pair<bool, int>>{{c.swap, c.in_flight}};
  for (const Gather gather : {Gather::tiles, Gather::first})
    for (const int block_k : {row, 2 * row, 4 * row})
      for (const auto& [swap, in_flight] : ways) {
        c.block_k = block_k, c.gather = gather, c.swap = swap, c.in_flight = in_flight;
        c.tma_x = gather == Gather::first || !chooser.of_kernel.permutes_x();
        chooser.look_at_tiles(c);
      }
  const std::pair<TileOrder, Pace> turns[] = {
      {TileOrder::fixed, Pace::own}, {TileOrder::dynamic, Pace::own}, {TileOrder::fixed, Pace::common}};
  for (const Knobs& tile : chooser.fastest(kFastest))
    for (const auto& [order, pace] : turns)
      for (const TmaStore store : {TmaStore::none, TmaStore::boxes})
        for (const int split : {1, 0})
          for (const int hold : {0, kHold})
            for (const int in_flight : {1, 0})
              for (const auto& [raster, group] : kWalks)
                for (const int mix : {0, 4, 8}) {
                  Knobs other = tile;
                  other.tiles = order, other.pace = pace, other.tma_store = store, other.split = split;
                  other.hold = hold, other.in_flight = in_flight, other.raster = raster, other.group = group;
                  other.mix = mix;
                  // Held rows take stages from a W that is widened: no winner holds any.
                  const bool holds_beside_w = hold > 0 && chooser.of_kernel.w_in_registers();
                  if ((mix == 0 || order == TileOrder::dynamic) && !holds_beside_w) chooser.look_at(other);
                }
}

}  // namespace

bool wgmma_may_spill(const Knobs& c, const Shape& shape) {
  const KernelProblem p = wgmma_problem(c, shape);
  const bool adds_fp16 = p.accumulates && !p.stores_sums() && shape.layer.format.x.dtype == Dtype::fp16;
  if (adds_fp16 && c.tma_store == TmaStore::boxes && c.in_flight > 0) return true;  // wgmma is serialised (C7515)
  return sums(c, p.promotes, p.quantises()) > sums_without_spills(c, p, adds_fp16);
}

WgmmaKnobs wgmma_default(const WgmmaCost& cost, const Problem& problem, const DeviceInfo& device) {
  Chooser chooser{.cost = cost, .problem = problem, .device = with_assumed(device, kAssumed)};
  const Knobs plain{.block_m = 16,
                    .block_n = 128,
                    .block_k = swizzle_columns(chooser.of_kernel),
                    .stages = 2,
                    .raster = Raster::m,
                    .consumers = 2,
                    .swap = true,
                    .in_flight = 1,
                    .tma_x = true,
                    .tma_w = true};
  if (problem.shape.op == Op::dw)
    look_at_sums(chooser, plain);
  else
    look_at_rows(chooser, plain);
  const std::vector<Knobs> found = chooser.fastest(1);
  Knobs best = found.empty() ? plain : found[0];
  // Of fp8 a stage has more copies: beyond eight, stages take up to 9 % longer where tiles are small. Where a tile has
  // three steps, hold takes 4 % longer.
  if (multiplies_fp8(problem.shape.layer.format)) {
    best.stages = std::min(best.stages, kMaxFp8Stages);
    if (problem.shape.layer.k <= 3 * kScaleBlock) best.hold = 0;
  }
  return best;
}

}  // namespace moetune
