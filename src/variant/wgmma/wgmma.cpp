// Host twin of kernels/wgmma/wgmma.cuh: its knobs, how it launches, its unit.
#include "variant/wgmma/wgmma.h"
#include "kernels/wgmma/wgmma_plan.h"
#include "variant/catalog.h"
#include "variant/knob_list.h"
#include "variant/unit.h"
#include "variant/variant.h"

namespace moetune {
namespace {

using Knobs = WgmmaKnobs;

const KnobList<Knobs>& list() {
  const std::vector<int> rows = {16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256};
  const std::vector<int> columns = {32, 64, 96, 128, 160, 192, 224, 256};
  static const KnobList<Knobs> knobs =
      KnobList<Knobs>("wgmma")
          .add_blocks(rows, columns, {64, 128, 256})
          .add_walk({2, 3, 4, 5, 6, 8, kLargestLegal})
          .add("consumers", &Knobs::consumers, "warpgroups that multiply, beside the one that loads")
          .tries({1, 2, 3, 4})
          .add("schedule", &Knobs::schedule, "consumers share a tile, or take turns", "Schedule",
               {"cooperative", "pingpong"})
          .add("swap", &Knobs::swap, "rows of X on the N side of the multiplier, in steps of 8")
          .add("cluster", &Knobs::cluster, "two blocks share W (neighbours along m) or X (along n)", "Cluster",
               {"none", "m", "n"})
          .add("in_flight", &Knobs::in_flight, "stages of wgmma still running when the next is issued")
          .tries({0, 1})
          .add("tma_x", &Knobs::tma_x, "X is loaded by tensor copies; no = by cp.async")
          .tries({0, 1, kLargestLegal})
          .add("tma_w", &Knobs::tma_w, "W is loaded by tensor copies; no = by cp.async", 1)
          .add("tma_store", &Knobs::tma_store,
               "Y is stored by 16-byte stores, by tensor copies of whole tiles, or by copies of rows", "TmaStore",
               {"no", "yes", "rows"}, kNeeded, {"none", "boxes", "rows"})
          .add("addressing", &Knobs::addressing, "experts by offsets from one base, or by arrays of pointers",
               "Addressing", {"base", "pointers"}, 0)
          .add("tiles", &Knobs::tiles, "blocks take tiles in a fixed order, or as they become free", "TileOrder",
               {"static", "dynamic"}, kNeeded, {"fixed", "dynamic"})
          .add("pace", &Knobs::pace, "blocks begin each tile on their own, or all together", "Pace", {"own", "common"},
               0)
          .add("split", &Knobs::split,
               "pieces along k that each of the last tiles is cut into; 1 = not cut, 0 = all blocks share the last "
               "round",
               1)
          .tries({0, 1, 2, 4})
          .add("hold", &Knobs::hold, "rows of Y that wait to be stored together; 0 = each tile stores its own", 0)
          .tries({0, 64, 128, 256, 512})
          .add("gather", &Knobs::gather,
               "rows of X are gathered by each tile that reads them, or once before all tiles", "Gather",
               {"tiles", "first"}, 0)
          .add("mix", &Knobs::mix, "one block in N takes the experts with the fewest rows first; 0 = none does", 0)
          .tries({0, 2, 4, 8});
  return knobs;
}

LaunchPlan plan(const Knobs& c, const Shape& shape) {
  const KernelProblem problem = wgmma_problem(c, shape);
  const BoxRows x = x_boxes(c, problem);
  return {.threads = 128 * (1 + c.consumers),
          .shared_bytes = wgmma_layout(c, problem).bytes,
          .cluster = c.cluster != Cluster::none ? 2 : 1,
          .tile_rows = c.block_m,
          .tile_columns = c.block_n,
          .pieces = pieces_of_split(c.split),
          .workspace = split_workspace_bytes(c.split, c.block_m, c.block_n),
          .x_box = c.tma_x ? x.large : 0,
          .x_rest = c.tma_x && x.small < x.large ? x.small : 0,
          .w_box = c.tma_w && !problem.w_in_registers() ? w_box(c, problem) : 0,
          .y_box = c.tma_store == TmaStore::boxes ? y_box(c) : 0,
          .maps = by_pointers(c) ? 2 * map_turns(c) : 0,
          .gate_parts = problem.makes_gates ? gate_parts(c) : 0,
          .gathers_first = c.gather == Gather::first,
          .waits = blocks_wait(c),
          .follows = pdl_waits_for_x(c, problem)                     ? Follows::up
                     : pdl_waits_at_once(problem) && !blocks_wait(c) ? Follows::any
                                                                     : Follows::none};
}

std::string unit(const Knobs& c, const Shape& shape) {
  return print_unit({.variant = "wgmma",
                     .knobs_type = "WgmmaKnobs",
                     .knobs = list().initialiser(c),
                     .problem = wgmma_problem(c, shape),
                     .call = "moetune::Wgmma<Config>::run(args)"},
                    shape, plan(c, shape));
}

// What may spill counts as slower, so that a search tries other candidates first. Of three consumers most don't spill.
double seconds(const WgmmaCost& cost, const Knobs& c, const Problem& problem, const DeviceInfo& device) {
  constexpr double kSpilled = 1.5;
  const bool slower = c.consumers < 3 && wgmma_may_spill(c, problem.shape);
  return wgmma_seconds(cost, c, problem, device) * (slower ? kSpilled : 1);
}

// Clusters along m are pairs of tiles, which a walk may choose.
Knobs canonical(const Knobs& c, const Problem& problem) {
  return c.cluster == Cluster::m ? c : with_plain_walk(c, problem);
}

}  // namespace

Variant wgmma_variant(const Constants& constants) {
  const WgmmaCost cost{constants};
  Variant variant =
      make_variant<Knobs>(list(), "persistent, warp-specialised blocks, tensor copies (TMA) and wgmma; sm_90a",
                          {.illegal = wgmma_illegal,
                           .plan = plan,
                           .unit = unit,
                           .fallback = std::bind_front(wgmma_default, cost),
                           .seconds = std::bind_front(seconds, cost),
                           .canonical = canonical});
  return variant;
}

}  // namespace moetune
