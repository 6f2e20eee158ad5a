// The parts of the wgmma variant: what is legal, how long a launch should take, and what is taken where nothing is
// tuned.
#pragma once
#include <optional>
#include <string>

#include "kernels/wgmma/wgmma_plan.h"
#include "variant/cost.h"
#include "variant/device.h"
#include "workload/problem.h"

namespace moetune {

constexpr int kMaxWgmmaStages = 16;

/// What of a shape the kernel with these knobs depends on, in terms of its product: X, W and Y are its operands a, b
/// and d.
KernelProblem wgmma_problem(const WgmmaKnobs& knobs, const Shape& shape);

/// Why the kernel can't run with these knobs, or nothing.
std::optional<std::string> wgmma_illegal(const WgmmaKnobs& knobs, const Shape& shape, const DeviceInfo& device);

/// What configs/cost/wgmma.json holds, and describes.
struct WgmmaCost {
  Constants of;
  double latency = of.at("latency"), step = of.at("step"), drained_step = of.at("drained_step"), turn = of.at("turn");
  double promoted_sum = of.at("promoted_sum"), wgmma = of.at("wgmma"), wgmma_column = of.at("wgmma_column"),
         load_rate = of.at("load_rate");
  double all_load_rate = of.at("all_load_rate"), unshared_load = of.at("unshared_load");
  double stored_sum = of.at("stored_sum"), staged_tile = of.at("staged_tile");
  double gate_sum = of.at("gate_sum"), gate_swapped = of.at("gate_swapped");
  double clock_under_power = of.at("clock_under_power"), read_rate = of.at("read_rate");
  double write_rate = of.at("write_rate"), write_rate_sms = of.at("write_rate_sms");
  double write_in_order = of.at("write_in_order"), narrow_read = of.at("narrow_read"), turnaround = of.at("turnaround");
  double turnaround_rows = of.at("turnaround_rows"), held_store = of.at("held_store"), last_steps = of.at("last_steps");
  double launch = of.at("launch"), gather_wait = of.at("gather_wait"), gather_loads = of.at("gather_loads");
  double gather_reads = of.at("gather_reads"), shared_round = of.at("shared_round"), paired = of.at("paired");
  double common_pace = of.at("common_pace"), cut_tiles = of.at("cut_tiles"), unswapped = of.at("unswapped");
  double dynamic = of.at("dynamic"), counter = of.at("counter"), copied_rows = of.at("copied_rows");
  double overlap = of.at("overlap"), rounds_at_once = of.at("rounds_at_once"), mixed_experts = of.at("mixed_experts");
  double cached = of.at("cached"), refetched = of.at("refetched"), overlap_inside = of.at("overlap_inside");
  double staged_tile_dw = of.at("staged_tile_dw"), staged_swapped_dw = of.at("staged_swapped_dw");
  double unswapped_dw = of.at("unswapped_dw"), dynamic_dw = of.at("dynamic_dw"), cached_dw = of.at("cached_dw");
  double cached_mixed_dw = of.at("cached_mixed_dw"), refetched_dw = of.at("refetched_dw");
  double refetched_dynamic_dw = of.at("refetched_dynamic_dw"), small_tiles_dw = of.at("small_tiles_dw");
  double unfetched_dw = of.at("unfetched_dw"), promoted_swapped = of.at("promoted_swapped");
  double promoted_part = of.at("promoted_part"), promoted_clock = of.at("promoted_clock");
  double copied_scales = of.at("copied_scales"), copied_scales_latency = of.at("copied_scales_latency");
  double widened_block = of.at("widened_block"), widened_alone = of.at("widened_alone"),
         widened_step = of.at("widened_step");
};

/// Seconds that a launch should take with these rows of each expert; 0 where the device's peaks are unknown. The
/// slowest of four, as far as they don't overlap: what the busiest SM multiplies and waits for, tile by tile, at the
/// peak clock; what all SMs do, at the clock that power allows them; bytes through L2; bytes from and to memory. The
/// device enters by its SMs, its L2 and its peaks. Addressing makes no difference to it.
double wgmma_seconds(const WgmmaCost& cost, const WgmmaKnobs& knobs, const Problem& problem, const DeviceInfo& device);

/// Whether registers of a legal candidate may spill, by what was seen of compiled kernels. Compiling one is what
/// decides: this says which ones a search tries first, and what may run where nothing is compiled before.
bool wgmma_may_spill(const WgmmaKnobs& knobs, const Shape& shape);

/// The candidate that is taken where nothing is tuned. Legal where the variant supports the shape.
WgmmaKnobs wgmma_default(const WgmmaCost& cost, const Problem& problem, const DeviceInfo& device);

}  // namespace moetune
