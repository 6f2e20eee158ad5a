// Host twin of kernels/wgmma.cuh: what is legal, how it launches, its unit.
#include "variant/wgmma.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/wgmma_plan.h"
#include "variant/knob_list.h"
#include "variant/most.h"
#include "variant/unit.h"
#include "workload/product.h"

namespace moetune {
namespace {

using Knobs = WgmmaKnobs;

const std::vector<int> kRows = {16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256};
const std::vector<int> kColumns = {32, 64, 96, 128, 160, 192, 224, 256};

const KnobList<Knobs>& list() {
  static const KnobList<Knobs> knobs =
      KnobList<Knobs>("wgmma")
          .add_blocks(kRows, kColumns, {64, 128})
          .add_walk({2, 3, 4, 5, 6, 8, kMost})
          .add("consumers", &Knobs::consumers, "warpgroups that multiply, beside the one that loads")
          .tries({1, 2, 3})
          .add("schedule", &Knobs::schedule, "consumers share a tile, or take turns", "Schedule",
               {"cooperative", "pingpong"})
          .add("swap", &Knobs::swap, "rows of X on the N side of the multiplier, in steps of 8")
          .add("cluster", &Knobs::cluster, "two blocks share W (neighbours along m) or X (along n)", "Cluster",
               {"none", "m", "n"})
          .add("in_flight", &Knobs::in_flight, "stages of wgmma under way when the next is issued")
          .tries({0, 1})
          .add("tma_x", &Knobs::tma_x, "X is loaded by tensor copies; no = by cp.async")
          .tries({0, 1, kMost})
          .add("tma_w", &Knobs::tma_w, "W is loaded by tensor copies; no = by cp.async", 1)
          .add("tma_store", &Knobs::tma_store, "Y is stored by 16-byte stores, by tensor copies, or by copies of rows",
               "TmaStore", {"no", "yes", "rows"}, kNeeded, {"none", "boxes", "rows"})
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
          .add("hold", &Knobs::hold, "rows of Y that are kept to be stored together; 0 = each tile stores its own", 0)
          .tries({0, 64, 128, 256, 512})
          .add("gather", &Knobs::gather,
               "rows of X are gathered by each tile that reads them, or once before all tiles", "Gather",
               {"tiles", "first"}, 0)
          .add("mix", &Knobs::mix, "one block in N takes the experts with the fewest rows first; 0 = none does", 0)
          .tries({0, 2, 4, 8});
  return knobs;
}

constexpr int kMaxStages = 16;
constexpr int kMaxHold = 1024;
constexpr int kMaxMix = 16, kMaxMixed = 1024;
constexpr int64_t kMaxMapRows = 0x7fffff00;  // coordinates are 32 bits with a sign; a last tile begins below
constexpr int kManySteps = 500;              // a block, see fallback
constexpr double kWorthSharing = 0.015;      // of all time; whole tiles take longer to store where others are shared
constexpr int kShallow = 1024;               // k, where storing a tile takes a good part of the time it is multiplied

bool in_cluster(const Knobs& c) { return c.cluster != Cluster::none; }
bool dynamic(const Knobs& c) { return c.tiles == TileOrder::dynamic; }
bool boxes_of_y(const Knobs& c) { return c.tma_store == TmaStore::boxes; }

// What of a shape the rules depend on, in terms of its product: X, W and Y are its operands a, b and d.
struct Roles {
  int64_t m = 0, n = 0, k = 0;
  bool permutes_x = false;     // rows of X, or of W that are summed, lie elsewhere than in expert order
  bool scatters_y = false;     // those of Y do
  bool looks_up_rows = false;  // they are scattered or weighted
  bool w_across = false;       // rows of W go along k
  bool sums_rows = false;      // so do those of X: k is an expert's number of rows
  bool stores_sums = false;    // Y is stored in fp32
  int weight_bytes = 0;
};
Roles roles_of(const Shape& shape) {
  const Product p = before_last_pass(product_of(shape));
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .permutes_x = p.a.order != RowOrder::in_place || p.b.order != RowOrder::in_place,
          .scatters_y = p.d.order != RowOrder::in_place,
          .looks_up_rows = p.d.order != RowOrder::in_place || weights_result(p),
          .w_across = !is_k_major(p.b),
          .sums_rows = p.ragged == Axis::k,
          .stores_sums = p.d.dtype == Dtype::fp32,
          .weight_bytes = static_cast<int>(size_bytes(p.weighting == Weighting::result ? Dtype::fp32 : p.d.dtype))};
}

bool fits_registers(const Knobs& c, const Roles& roles) {
  return sums(c) <= max_sums(c, roles.looks_up_rows, roles.stores_sums);
}

int shared_bytes(const Knobs& c, const Shape& shape, const Roles& roles) {
  return wgmma_layout(c, {.permutes_x = roles.permutes_x,
                          .looks_up_rows = roles.looks_up_rows,
                          .sums_rows = roles.sums_rows,
                          .stores_sums = roles.stores_sums,
                          .experts = static_cast<int>(shape.layer.local_experts()),
                          .element_bytes = static_cast<int>(size_bytes(shape.layer.dtype)),
                          .weight_bytes = roles.weight_bytes})
      .bytes;
}

std::optional<std::string> illegal_tile(const Knobs& c) {
  if (c.block_m < 16 || c.block_m > 256 || c.block_m % 16 != 0) return "block_m must be a multiple of 16 in 16 to 256";
  if (c.block_n < 16 || c.block_n > 256 || c.block_n % 16 != 0) return "block_n must be a multiple of 16 in 16 to 256";
  if (!one_of(c.block_k, {64, 128})) return "block_k must be 64 or 128";
  if (c.stages < 2 || c.stages > kMaxStages) return fmt::format("stages must lie in 2 to {}", kMaxStages);
  if (c.group < 1 || c.group > 64) return "group must lie in 1 to 64";
  if (!one_of(c.consumers, {1, 2, 3})) return "consumers must be 1, 2 or 3";
  if (!one_of(c.in_flight, {0, 1})) return "in_flight must be 0 or 1";
  if (pingpong(c) && c.consumers != 2) return "schedule=pingpong needs consumers=2";
  if (m_side(c) % (64 * warpgroups_a_tile(c)) != 0)
    return fmt::format("{} must be a multiple of 64 for each consumer that shares a tile",
                       c.swap ? "block_n, with swap=yes," : "block_m, with swap=no,");
  return std::nullopt;
}

// How blocks take tiles, and what goes with that.
std::optional<std::string> illegal_order(const Knobs& c, const Shape& shape, const DeviceInfo& device) {
  if (dynamic(c) && in_cluster(c)) return "tiles must be static in a cluster: its blocks walk through tiles together";
  if (dynamic(c) && c.pace == Pace::common)
    return "tiles must be static with pace=common: blocks can only begin the same number of tiles together";
  if (c.split > 1 && (in_cluster(c) || c.pace == Pace::common))
    return "split above 1 needs cluster=none and pace=own: each block takes pieces of tiles by itself";
  if (c.split == 0 && (in_cluster(c) || dynamic(c)))
    return "split=0 needs cluster=none and tiles=static: blocks share the last round by their numbers";
  if (auto reason = illegal_split(c.split, c.block_m, c.block_n, 0, 1, device)) return reason;
  if (c.mix == 1 || c.mix > kMaxMix) return fmt::format("mix must be 0 or lie in 2 to {}", kMaxMix);
  if (c.mix == 0) return std::nullopt;
  if (!dynamic(c) || c.split > 1) return "mix needs tiles=dynamic and split=1: blocks take whole tiles from a counter";
  if (by_pointers(c) || c.gather == Gather::first)
    return "mix needs addressing=base and gather=tiles: pointers and rows gathered first follow the order of experts";
  if (shape.layer.local_experts() > kMaxMixed)
    return fmt::format("mix must be 0 with more than {} experts: each block sorts them", kMaxMixed);
  return std::nullopt;
}

std::optional<std::string> illegal_loads(const Knobs& c, const Shape& shape, const Roles& roles) {
  if (c.gather == Gather::first && !roles.permutes_x)
    return "gather must be tiles without permute_x: there are no rows to gather";
  if (c.gather == Gather::first && (copies_rows(c) || by_pointers(c)))
    return "gather=first needs tma_x=yes, tma_w=yes and addressing=base: tensor copies read the gathered rows";
  if (c.gather == Gather::tiles && c.tma_x && roles.permutes_x)
    return "tma_x must be no with permute_x and gather=tiles: tensor copies don't gather rows";
  if (!c.tma_x && c.cluster == Cluster::n)
    return "tma_x must be yes with cluster=n: only tensor copies load X for two blocks";
  if (!c.tma_w && c.cluster == Cluster::m)
    return "tma_w must be yes with cluster=m: only tensor copies load W for two blocks";
  if (!c.tma_x && !c.tma_w && c.consumers == 2 && !c.swap && c.block_m == 256 && c.block_k == 128)
    return "block_m must be below 256, or block_k 64, with tma_x=no and tma_w=no: a producer's addresses of rows must "
           "fit its registers";
  if (roles.w_across && !c.tma_w)
    return "tma_w must be yes where W is read across its rows: only tensor copies bring it so";
  const int columns_a_copy = kSwizzleColumns * (c.cluster == Cluster::m && !roles.sums_rows ? 2 : 1);
  if (roles.w_across && c.block_n % columns_a_copy != 0)
    return fmt::format("block_n must be a multiple of {} for dx and dw{}: tensor copies bring {} columns of W",
                       columns_a_copy, columns_a_copy > kSwizzleColumns ? " with cluster=m" : "", kSwizzleColumns);
  if (c.tma_w && !by_pointers(c) && !roles.w_across && shape.layer.local_experts() * roles.n > kMaxMapRows)
    return "tma_w must be no or addressing pointers: W of all experts has more rows than tensor copies can count";
  return std::nullopt;
}

// dW: what is summed over an expert's rows.
std::optional<std::string> illegal_sums(const Knobs& c, const Shape& shape, const Roles& roles) {
  if (roles.permutes_x && c.gather != Gather::first)
    return "gather must be first for dw: tensor copies read rows that are in order";
  if (!c.tma_x || by_pointers(c))
    return "tma_x must be yes and addressing base for dw: one map holds all experts' rows";
  if (c.block_m % kSwizzleColumns != 0)
    return fmt::format("block_m must be a multiple of {} for dw: tensor copies bring so many columns of dY",
                       kSwizzleColumns);
  if (c.pace == Pace::common || c.split == 0 || c.mix > 0)
    return "dw needs pace=own, split above 0 and mix=0: the tiles of an expert take as long as it has rows";
  if (c.hold > 0) return "hold must be 0 for dw: its tiles have rows enough";
  if (shape.layer.local_experts() > kMaxMixed)
    return fmt::format("wgmma has no dw for more than {} experts: each block sorts them", kMaxMixed);
  if (shape.layer.local_experts() * roles.m > kMaxMapRows)
    return "dW of all experts has more rows than a tile can count";
  return std::nullopt;
}

std::optional<std::string> illegal_stores(const Knobs& c, const Roles& roles) {
  if (by_pointers(c) && boxes_of_y(c))
    return "tma_store must be no or rows with addressing=pointers: boxes need one tensor map of Y for all experts";
  if (boxes_of_y(c) && roles.looks_up_rows)
    return "tma_store must be no or rows with permute_y: tensor copies don't scatter rows";
  if (boxes_of_y(c) && c.block_n % kSwizzleColumns != 0)
    return fmt::format("block_n must be a multiple of {0} with tma_store=yes: a box of Y has {0} columns",
                       kSwizzleColumns);
  if (roles.stores_sums && (c.tma_store != TmaStore::none || c.hold > 0))
    return "tma_store must be no and hold 0 for sums in fp32: threads store them from registers";
  if (c.hold > 0 && (!c.swap || c.tma_store != TmaStore::none))
    return "hold needs swap=yes and tma_store=no: threads store the held rows of swapped tiles";
  if (c.hold % kStoreRows != 0 || c.hold > kMaxHold)
    return fmt::format("hold must be a multiple of {} up to {}", kStoreRows, kMaxHold);
  if (c.hold > 0 && c.hold < c.block_m) return "hold must be 0 or at least block_m, the rows of a tile";
  return std::nullopt;
}

std::optional<std::string> illegal(const Knobs& c, const Shape& shape, const DeviceInfo& device) {
  if (auto reason = unsupported("wgmma", shape, {Dtype::bf16, Dtype::fp16}, {Op::fwd, Op::dx, Op::dw})) return reason;
  if (device.compute_capability != 90) return "wgmma needs sm_90a";
  if (shape.layer.k % 8 != 0 || shape.layer.n % 8 != 0) return "wgmma needs n and k in multiples of 8";
  const Roles roles = roles_of(shape);
  if (auto reason = illegal_tile(c)) return reason;
  if (roles.sums_rows)
    if (auto reason = illegal_sums(c, shape, roles)) return reason;
  if (auto reason = illegal_order(c, shape, device)) return reason;
  if (auto reason = illegal_loads(c, shape, roles)) return reason;
  if (auto reason = illegal_stores(c, roles)) return reason;
  if (!fits_registers(c, roles))
    return "block_m or block_n must be smaller: a tile's sums must fit the registers of its consumers";
  if (shared_bytes(c, shape, roles) > device.shared_memory_per_block)
    return fmt::format("stages, block_m, block_n, block_k or hold must be smaller: shared memory over {} bytes",
                       device.shared_memory_per_block);
  return std::nullopt;
}

LaunchPlan plan(const Knobs& c, const Shape& shape) {
  const Roles roles = roles_of(shape);
  const auto rows_along_k = [&](Cluster shared) { return c.cluster == shared ? c.block_k / 2 : c.block_k; };
  const int x_along_k = rows_along_k(Cluster::n);
  const BoxRows x = roles.sums_rows ? BoxRows{x_along_k, x_along_k} : x_boxes(c);
  return {.threads = 128 * (1 + c.consumers),
          .shared_bytes = shared_bytes(c, shape, roles),
          .min_blocks_per_sm = 1,
          .cluster = in_cluster(c) ? 2 : 1,
          .tile_rows = c.block_m,
          .tile_columns = c.block_n,
          .pieces = pieces_of_split(c.split),
          .workspace = split_workspace_bytes(c.split, c.block_m, c.block_n),
          .x_box = c.tma_x ? x.large : 0,
          .x_rest = c.tma_x && x.small < x.large ? x.small : 0,
          .w_box = !c.tma_w          ? 0
                   : roles.sums_rows ? rows_along_k(Cluster::m)
                   : roles.w_across  ? c.block_k
                                     : w_box(c),
          .y_box = boxes_of_y(c) ? kYBox : 0,
          .maps = by_pointers(c) ? 2 * map_turns(c) : 0,
          .gathers_first = c.gather == Gather::first,
          .waits = c.gather == Gather::first || c.pace == Pace::common || shares_last_round(c)};
}

std::string unit(const Knobs& c, const Shape& shape) {
  return print_unit({.variant = "wgmma",
                     .knobs_type = "WgmmaKnobs",
                     .knobs = list().initialiser(c),
                     .constants = {{"experts", shape.layer.local_experts()}},
                     .call = "moetune::Wgmma<Config>::run(args)"},
                    shape, plan(c, shape));
}

// Stages of a tile.
int64_t depth_of(const Knobs& c, const Problem& problem) {
  return (roles_of(problem.shape).k + c.block_k - 1) / c.block_k;
}

// Stages that a block multiplies, on average.
int64_t steps_a_block(const Knobs& c, const Problem& problem, const DeviceInfo& device) {
  return tiles_of(c.block_m, c.block_n, problem) * depth_of(c, problem) / processors_of(device);
}

// Rounds of tiles, one a block each, that begin together: the rows of the highest tile of each, summed up.
int64_t rows_in_turn(const Knobs& c, const Problem& problem, const DeviceInfo& device) {
  const int64_t columns = (roles_of(problem.shape).n + c.block_n - 1) / c.block_n;
  int64_t sum = 0, highest = 0, room = 0;
  for (const int64_t rows : problem.routing.m_sizes) {
    const int64_t high = (rows + c.block_m - 1) / c.block_m;
    for (int64_t tiles = high * columns; tiles > 0;) {
      if (room == 0) sum += highest, highest = 0, room = processors_of(device);
      highest = std::max(highest, (rows + high - 1) / high);  // an expert's tiles share its rows evenly
      const int64_t taken = std::min(tiles, room);
      tiles -= taken, room -= taken;
    }
  }
  return sum + highest;
}

// The part of all time that is saved where blocks share the last round.
double saved_by_sharing(const Knobs& c, const Problem& problem, const DeviceInfo& device) {
  const int64_t tiles = tiles_of(c.block_m, c.block_n, problem), blocks = processors_of(device);
  const LastRound last = share_last_round(static_cast<int>(tiles), static_cast<int>(depth_of(c, problem)),
                                          static_cast<int>(blocks), c.block_k);
  return static_cast<double>(last.steps - last.own) / static_cast<double>((tiles / blocks + 1) * last.steps);
}

// dW: every expert has the same tiles. Where it sums over few rows, one is stored while the next is multiplied; over
// many, tiles are as large as registers allow. Tiles too few for all blocks are smaller, and cut.
Knobs fallback_of_sums(const Problem& problem, const DeviceInfo& device) {
  const int64_t mean_rows = problem.rows() / std::max<int64_t>(1, problem.active_experts());
  const bool deep = mean_rows > 512;
  Knobs c{.block_m = 192,
          .block_n = deep ? 256 : 128,
          .block_k = kSwizzleColumns,
          .stages = kMaxStages,
          .raster = Raster::n,
          .group = 4,
          .consumers = 2,
          .schedule = deep ? Schedule::cooperative : Schedule::pingpong,
          .swap = true,
          .cluster = Cluster::none,
          .in_flight = 1,
          .tma_x = true,
          .tma_w = true,
          .tma_store = TmaStore::none,
          .addressing = Addressing::base,
          .tiles = deep ? TileOrder::dynamic : TileOrder::fixed,
          .split = 1,
          .hold = 0,
          .gather = roles_of(problem.shape).permutes_x ? Gather::first : Gather::tiles,
          .mix = 0};
  const int64_t blocks = processors_of(device);
  if (tiles_of(c.block_m, c.block_n, problem) < blocks) {
    c.block_m = 128, c.block_n = 128;
    c.schedule = Schedule::cooperative, c.swap = false, c.tiles = TileOrder::fixed;
    const int64_t tiles = tiles_of(c.block_m, c.block_n, problem);
    const int64_t steps = mean_rows / c.block_k;
    while (c.split < 4 && tiles * c.split < blocks && steps >= int64_t{8} * c.split) c.split *= 2;
  }
  while (c.stages > 2 && illegal(c, problem.shape, device)) --c.stages;
  return c;
}

// Few rows an expert: W passes by once, in a deep ring beside tiles that are no higher than the rows ask. More: tiles
// of which an expert fills some well; where experts are large power bounds the kernel, and blocks that stay together
// save it, and share the last tiles where an incomplete round weighs. Rows of X stand on the N side throughout: what
// the last tile of an expert lacks of its height is not multiplied. Where few experts have most rows, blocks go through
// them from both ends, if there is enough to do (gpt-oss up, recorded rows, H200: 3 to 5 %; under 500 steps 1 to 6 %
// slower: Qwen3 zipf:1, 2048 tokens). Rows are gathered once where that is soon done, or where it is little beside what
// is read for them.
Knobs fallback(const Problem& problem, const DeviceInfo& device) {
  if (problem.shape.op == Op::dw) return fallback_of_sums(problem, device);
  const int64_t mean_rows = problem.rows() / std::max<int64_t>(1, problem.active_experts());
  const std::vector<int>& rows = problem.routing.m_sizes;
  const int64_t most_rows = rows.empty() ? 0 : *std::max_element(rows.begin(), rows.end());
  const Roles roles = roles_of(problem.shape);
  const bool gathers_first =
      roles.permutes_x && (mean_rows <= 96 ? problem.rows() <= 512 : mean_rows > 384 || roles.n >= 4096);
  const bool gathers = roles.permutes_x && !gathers_first;
  Knobs c{.block_m = 16,
          .block_n = 128,
          .block_k = kSwizzleColumns,
          .stages = kMaxStages,
          .raster = Raster::m,
          .group = 2,
          .consumers = 2,
          .schedule = Schedule::cooperative,
          .swap = true,
          .cluster = Cluster::none,
          .in_flight = 1,
          .tma_x = !gathers,
          .tma_w = true,
          .tma_store = TmaStore::none,
          .addressing = Addressing::base,
          .tiles = TileOrder::dynamic,
          .split = 1,
          .hold = 0,
          .gather = gathers_first ? Gather::first : Gather::tiles,
          .mix = 0};
  if (mean_rows <= 96) {
    for (const int block_m : {32, 48, 80, 144})
      if (most_rows > c.block_m) c.block_m = block_m;
    if (most_rows > c.block_m && most_rows <= 176) c.block_m = 176;  // rather than read W twice
    if (c.block_m > 16 && c.block_m <= 80 && !roles.stores_sums)
      c.hold = 256;  // larger tiles need the room for their stages
    if (most_rows <= 32 && !gathers) {
      c.block_k = 128;
      // Few tiles: a part of a round takes as long as a whole one, and its blocks may all sit in some of the GPCs, each
      // of which reads no more than an eighth of what memory gives (Mixtral down, 16 tokens, zipf:1: 192 to 159 us).
      if (tiles_of(c.block_m, c.block_n, problem) <= 2 * processors_of(device)) c.block_n = 64, c.consumers = 1;
    }
  } else {
    c.block_m = 144;
    c.tiles = TileOrder::fixed;
    c.block_n = 256;
    c.group = 1;
    const bool skewed = most_rows > 4 * mean_rows && !gathers_first && problem.shape.layer.local_experts() <= kMaxMixed;
    if (!gathers) {  // a producer that gathers leaves registers for no more sums than 144 x 256 has
      if (mean_rows > 768) {
        c.block_m = 192, c.pace = Pace::common;
        Knobs lower = c;
        lower.block_m = 176;
        if (rows_in_turn(lower, problem, device) < rows_in_turn(c, problem, device)) c = lower;
        Knobs sharing = c;
        sharing.split = 0;
        if (fits_registers(sharing, roles) && saved_by_sharing(c, problem, device) >= kWorthSharing) c = sharing;
      } else if (mean_rows > 384) {
        c.block_m = 192, c.block_n = 192, c.consumers = 3, c.pace = Pace::common;
      } else if (!skewed && (roles.looks_up_rows || roles.k < kShallow)) {
        c.block_n = 128;
        c.schedule = Schedule::pingpong;  // stores weigh more: one warpgroup's pass while the other multiplies
      }
    }
    if (skewed && mean_rows <= 768 && steps_a_block(c, problem, device) >= kManySteps)
      c.tiles = TileOrder::dynamic, c.mix = 4, c.pace = Pace::own;
  }
  while (c.stages > 2 && illegal(c, problem.shape, device)) --c.stages;
  return c;
}

}  // namespace

Variant wgmma_variant() {
  Variant variant =
      make_variant<Knobs>(list(), "persistent, warp-specialised blocks, tensor copies (TMA) and wgmma; sm_90a",
                          {.illegal = illegal, .plan = plan, .unit = unit, .fallback = fallback});
  variant.retired = {{"l2_promotion", "128"}};
  return variant;
}

}  // namespace moetune
