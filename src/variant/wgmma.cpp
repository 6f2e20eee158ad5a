// Host twin of kernels/wgmma.cuh: what is legal, how it launches, its unit.
#include "variant/wgmma.h"

#include <fmt/format.h>

#include <algorithm>

#include "variant/knob_list.h"
#include "variant/unit.h"

namespace moetune {
namespace {

struct Knobs {
  int block_m = 0, block_n = 0, block_k = 0, stages = 0, raster = 0, group = 0, consumers = 0, schedule = 0, swap = 0;
  int cluster = 0, in_flight = 0, tma_x = 0, tma_w = 0, tiles = 0, tma_store = 0, addressing = 0, pace = 0, split = 0;
  int hold = 0, gather = 0, mix = 0;
};

const KnobList<Knobs>& list() {
  static const KnobList<Knobs> knobs =
      KnobList<Knobs>("wgmma")
          .add("block_m", &Knobs::block_m, "rows of X in a block's tile")
          .add("block_n", &Knobs::block_n, "columns of Y in a block's tile")
          .add("block_k", &Knobs::block_k, "depth of one step along k")
          .add("stages", &Knobs::stages, "tiles in flight between memory and the multiplier")
          .add("raster", &Knobs::raster, "which tile index moves fastest", "", {"n", "m"})
          .add("group", &Knobs::group, "tiles of the slow index walked together, for L2 reuse; 1 = plain order")
          .add("consumers", &Knobs::consumers, "warpgroups that multiply, beside the one that loads")
          .add("schedule", &Knobs::schedule, "consumers share a tile, or take turns", "", {"cooperative", "pingpong"})
          .add("swap", &Knobs::swap, "rows of X on the N side of the multiplier, in steps of 8", "", {"no", "yes"})
          .add("cluster", &Knobs::cluster, "two blocks share W (neighbours along m) or X (along n)", "",
               {"none", "m", "n"})
          .add("in_flight", &Knobs::in_flight, "stages of wgmma under way when the next is issued")
          .add("tma_x", &Knobs::tma_x, "X by tensor copies, or by cp.async", "", {"no", "yes"})
          .add("tma_w", &Knobs::tma_w, "W by tensor copies, or by cp.async", "", {"no", "yes"}, 1)
          .add("tma_store", &Knobs::tma_store, "Y by tensor copies, by copies of rows, or by 16-byte stores", "",
               {"no", "yes", "rows"})
          .add("addressing", &Knobs::addressing, "experts by offsets from one base, or by arrays of pointers", "",
               {"base", "pointers"}, 0)
          .add("tiles", &Knobs::tiles, "blocks take tiles by their number, or as they have time", "",
               {"static", "dynamic"})
          .add("pace", &Knobs::pace, "blocks begin each tile on their own, or all together", "", {"own", "common"}, 0)
          .add("split", &Knobs::split,
               "pieces along k that each of the last tiles is cut into; 1 = whole, 0 = as all blocks can share them", 1)
          .add("hold", &Knobs::hold, "rows of Y kept until so many can be stored together; 0 = none", 0)
          .add("gather", &Knobs::gather,
               "rows of X put in order with each tile that reads them, or once, ahead of the tiles", "",
               {"tiles", "first"}, 0)
          .add("mix", &Knobs::mix, "one block in so many takes the experts of fewest rows first; 0 = all in order", 0);
  return knobs;
}

constexpr int64_t kElementBytes = 2;
constexpr int kCooperative = 0, kPingpong = 1;
constexpr int kNoCopies = 0, kBoxes = 1, kRows = 2;  // values of tma_store
constexpr int kBase = 0, kPointers = 1;              // values of addressing
constexpr int kAlongM = 1, kAlongN = 2;              // values of cluster
constexpr int kWithTiles = 0, kFirst = 1;            // values of gather
constexpr int kRowElements = 64;                     // a row of shared memory: the 128 bytes of the swizzle
constexpr int kTileBytes = 20, kKeptTileBytes = 24, kLocatedTileBytes = 48, kSharedOutBytes = 12;
constexpr int kTileAlign = 4, kLocatedTileAlign = 8;
constexpr int kStagedRows = 16;  // at a time, by stmatrix
constexpr int kBarrierBytes = 8;
constexpr int kSchedulerBytes = 56, kMixingSchedulerBytes = 80, kLastRoundBytes = 16;
constexpr int64_t kAlign = 1024;  // of the whole: tiles of the swizzle
constexpr int kMaxStages = 16;
constexpr int kMaxHold = 1024;
constexpr int kMaxMix = 16, kMaxMixed = 1024;
constexpr int64_t kMaxMapRows = 0x7fffff00;  // coordinates are 32 bits with a sign; a last tile begins below
constexpr int kManySteps = 500;              // a block, see fallback
constexpr int kMostParts = 2;                // of a tile that blocks share, beside its beginning
constexpr double kWorthSharing = 0.015;      // of all time; whole tiles take longer to store where others are shared
constexpr int kShallow = 1024;               // k, where storing a tile takes a good part of the time it is multiplied

bool by_rows(const Knobs& c) { return !c.tma_x || !c.tma_w; }

// Whether a tile says how much of X is to stay in L2: where blocks go through tiles in rounds.
bool keeps(const Knobs& c) { return c.pace == 1 && c.tma_x && c.addressing == kBase && c.cluster != kAlongN; }

// Registers a thread of the producer and of each consumer (setmaxnreg, multiples of 8): together no more than the block
// starts with, 168 for each of three warpgroups or 128 of four. Producers that copy rows hold where they begin.
struct Registers {
  int producer = 0, consumer = 0;
};
Registers registers(const Knobs& c) {
  if (c.consumers == 1) return {255, 255};
  if (c.consumers == 3) return by_rows(c) ? Registers{80, 144} : Registers{56, 152};
  const bool keeps_most = c.mix > 0 || (c.addressing == kPointers && c.split != 1);  // of all who find tiles
  if (keeps_most && !by_rows(c)) return {56, 224};
  return by_rows(c) ? Registers{88, 208} : Registers{40, 232};
}

int groups(const Knobs& c) {
  return (c.swap ? c.block_n : c.block_m) / 64 / (c.schedule == kPingpong ? 1 : c.consumers);
}
int width(const Knobs& c) { return c.swap ? c.block_m : c.block_n; }
int sums(const Knobs& c) { return groups(c) * width(c) / 2; }

// Sums a thread beside which nothing spills and no wgmma is serialised: from compiled kernels of all shapes and
// fusions.
int max_sums(const Knobs& c, const Fusion& fusion) {
  if (c.split > 1) {
    if (c.split > 4) return c.tma_store == kRows ? 24 : 40;  // all pieces of a sum are on their way at once
    if (c.consumers == 3 && !c.swap) return c.tma_store == kRows ? 32 : 48;
    const bool high = c.schedule == kPingpong && !c.swap && groups(c) > 2;
    return by_rows(c) || c.tma_store == kRows || c.addressing == kPointers || c.consumers == 3 || high ? 64 : 96;
  }
  if (c.consumers == 3) return 96;
  if (by_rows(c)) return 144;
  if (c.split == 0 && c.schedule == kPingpong) return 144;
  const bool spare = c.swap && c.tma_store == kNoCopies && c.addressing == kBase && c.mix == 0;
  const bool scarce = fusion.permute_y && (c.cluster == kAlongM || c.split == 0);
  const bool four_groups = c.schedule == kPingpong && groups(c) > 3;
  return spare && !scarce && !four_groups ? 192 : 176;
}
bool fits_registers(const Knobs& c, const Fusion& fusion) { return sums(c) <= max_sums(c, fusion); }

// Rows of X in one copy, whole groups of eight, the swizzle's. A copy costs its issue: boxes of 32 rows and fewer took
// ping-pong tiles on an H200 from 332 to 426 us, from 64 on it makes no difference. But what a box has over the rows of
// an expert is read for nothing: where tiles are narrow and high, W's share of a stage is small and rows are few, so
// that large boxes are followed by small ones (Mixtral down, 256 tokens, zipf:1, 176 x 128: 238 to 225 us).
struct Boxes {
  int large = 0, rest = 0;
};
Boxes x_boxes(const Knobs& c) {
  const bool one_size = c.cluster != 0 || c.addressing == kPointers || c.schedule == kPingpong;
  if (!one_size && c.block_n <= 128 && c.block_m > 96) return {64, 16};
  for (int rows = std::min(128, c.cluster == kAlongN ? c.block_m / 2 : c.block_m); rows > 8; rows -= 8)
    if (c.block_m % rows == 0) return {rows, rows};
  return {8, 8};
}

// The twin of Shared in kernels/wgmma_shape.cuh, member by member.
int64_t shared_bytes(const Knobs& c, const Shape& shape) {
  int64_t end = 0;
  const auto aligned = [](int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; };
  const auto add = [&](int64_t bytes, int64_t align) { end = aligned(end, align) + bytes; };
  const auto add_if = [&](bool there, int64_t bytes, int64_t align) {  // what is left out takes a byte
    add(there ? bytes : 1, there ? align : 1);
  };
  if (c.addressing == kPointers) add(kAlign, kAlign);
  add(int64_t{c.stages} * (c.block_m + c.block_n) * c.block_k * kElementBytes, kAlign);
  // Rows of results on their way out: of a warpgroup, held or in two buffers, or of each of its warps. Copies of rows
  // want no swizzle, but 16 bytes between rows.
  const int64_t row_bytes = (c.swap ? groups(c) : 1) * kRowElements * kElementBytes + (c.tma_store == kRows ? 16 : 0);
  const int64_t staged = c.hold > 0 ? c.hold : c.swap ? 2 * (groups(c) == 1 ? 32 : 16) : 4 * 16;
  add(staged * row_bytes * c.consumers, kAlign);
  const int experts = static_cast<int>(shape.layer.local_experts());
  add(c.mix > 0 ? kMixingSchedulerBytes : kSchedulerBytes, 8);
  add(4 * experts, 4);
  const int slots = c.schedule == kPingpong ? 4 : by_rows(c) ? 2 : 1;
  const int64_t tile_align = c.addressing == kPointers ? kLocatedTileAlign : kTileAlign;
  const int kind_bytes = c.addressing == kPointers ? kLocatedTileBytes : keeps(c) ? kKeptTileBytes : kTileBytes;
  const int64_t tile_bytes = aligned(kind_bytes + (c.split == 0 ? kSharedOutBytes : 0), tile_align);
  add(slots * tile_bytes, tile_align);
  add(2 * kBarrierBytes * (c.stages + slots), kBarrierBytes);
  add_if(shape.fusion.permute_y, (by_rows(c) ? c.consumers : 2) * (2 * kBarrierBytes + c.block_m * (4 + kElementBytes)),
         kBarrierBytes);
  const int64_t held_tiles = c.hold / kStagedRows * aligned(tile_bytes + 4, tile_align);
  const int64_t held_targets = shape.fusion.permute_y ? 4 * c.hold : 4;
  add_if(c.hold > 0, c.consumers * aligned(held_tiles + held_targets, tile_align), tile_align);
  add(4 * c.consumers, 4);
  add_if(shape.fusion.permute_x && c.gather == kWithTiles, int64_t{2} * c.block_m * 4, 4);
  add_if(c.mix > 0, int64_t{8} * experts, 4);
  add_if(c.split == 0, kLastRoundBytes, 4);
  return aligned(end, kAlign);
}

std::optional<std::string> illegal_tile(const Knobs& c) {
  const int sharing = c.schedule == kPingpong ? 1 : c.consumers;
  if (c.block_m < 16 || c.block_m > 256 || c.block_m % 16 != 0) return "block_m must be a multiple of 16 in 16 to 256";
  if (c.block_n < 16 || c.block_n > 256 || c.block_n % 16 != 0) return "block_n must be a multiple of 16 in 16 to 256";
  if ((c.swap ? c.block_n : c.block_m) % (64 * sharing) != 0)
    return fmt::format("{} must be a multiple of 64 rows a warpgroup", c.swap ? "swapped, block_n" : "block_m");
  if (c.cluster == kAlongM && c.block_n % 16 != 0) return "two blocks load halves of W in groups of 8 rows";
  return std::nullopt;
}

std::optional<std::string> illegal(const Knobs& c, const Shape& shape, const DeviceInfo& device) {
  if (auto reason = unsupported("wgmma", shape, {Dtype::bf16, Dtype::fp16})) return reason;
  if (device.compute_capability != 90) return "wgmma needs sm_90a";
  if (shape.layer.k % 8 != 0 || shape.layer.n % 8 != 0) return "wgmma needs n and k in multiples of 8";
  if (!one_of(c.consumers, {1, 2, 3})) return "consumers must be 1, 2 or 3";
  if (!one_of(c.schedule, {kCooperative, kPingpong})) return "schedule must be cooperative or pingpong";
  if (c.schedule == kPingpong && c.consumers != 2) return "ping-pong takes two consumers";
  if (!one_of(c.swap, {0, 1})) return "swap must be no or yes";
  if (!one_of(c.cluster, {0, kAlongM, kAlongN})) return "cluster must be none, m or n";
  if (!one_of(c.in_flight, {0, 1})) return "in_flight must be 0 or 1";
  if (!one_of(c.tma_x, {0, 1})) return "tma_x must be no or yes";
  if (!one_of(c.tma_w, {0, 1})) return "tma_w must be no or yes";
  if (!one_of(c.addressing, {kBase, kPointers})) return "addressing must be base or pointers";
  if (c.addressing == kPointers && c.tma_store == kBoxes) return "boxes of Y go by one tensor map for all experts";
  if (!one_of(c.tiles, {0, 1})) return "tiles must be static or dynamic";
  if (c.tiles == 1 && c.cluster != 0) return "the blocks of a cluster take tiles by their number";
  if (!one_of(c.pace, {0, 1})) return "pace must be own or common";
  if (c.tiles == 1 && c.pace == 1) return "blocks that take tiles as they have time begin them on their own";
  if (c.split > 1 && (c.cluster != 0 || c.pace == 1)) return "pieces of tiles go to blocks one by one";
  if (c.split == 0 && (c.cluster != 0 || c.tiles == 1))
    return "blocks share the last tiles by their numbers, one by one";
  if (auto reason = illegal_split(c.split, c.block_m, c.block_n, 0, 1, device)) return reason;
  if (!one_of(c.raster, {0, 1})) return "raster must be n or m";
  if (c.group < 1 || c.group > 64) return "group must lie in 1 to 64";
  if (!one_of(c.block_k, {64, 128})) return "block_k must be 64 or 128";
  if (c.stages < 2 || c.stages > kMaxStages) return fmt::format("stages must lie in 2 to {}", kMaxStages);
  if (auto reason = illegal_tile(c)) return reason;
  if (c.mix == 1 || c.mix > kMaxMix) return fmt::format("mix must be 0 or lie in 2 to {}", kMaxMix);
  if (c.mix > 0 && (c.tiles == 0 || c.split > 1)) return "who mixes experts takes whole tiles as it has time";
  if (c.mix > 0 && (c.addressing == kPointers || c.gather == kFirst)) return "experts that are mixed have no own maps";
  if (c.mix > 0 && shape.layer.local_experts() > kMaxMixed)
    return fmt::format("more than {} experts are too many to sort", kMaxMixed);
  if (!one_of(c.gather, {kWithTiles, kFirst})) return "gather must be tiles or first";
  if (c.gather == kFirst && !shape.fusion.permute_x) return "there are no rows to gather";
  if (c.gather == kFirst && (by_rows(c) || c.addressing == kPointers))
    return "who gathers first has X and W come by a tensor map each";
  if (c.gather == kWithTiles && c.tma_x && shape.fusion.permute_x) return "tensor copies don't gather rows";
  if (!one_of(c.tma_store, {kNoCopies, kBoxes, kRows})) return "tma_store must be no, yes or rows";
  if (c.tma_store == kBoxes && shape.fusion.permute_y) return "tensor copies don't scatter rows";
  if (c.tma_store == kBoxes && c.block_n % kRowElements != 0)
    return "tensor copies store 64 columns each, block_n must be a multiple of that";
  if (!c.tma_x && c.cluster == kAlongN) return "gathered rows are not shared in a cluster";
  if (!c.tma_w && c.cluster == kAlongM) return "W is shared in a cluster by tensor copies only";
  if (!c.tma_x && !c.tma_w && c.consumers == 2 && !c.swap && c.block_m == 256 && c.block_k == 128)
    return "rows in copy over the registers of the producer";
  if (c.tma_w && c.addressing == kBase && shape.layer.local_experts() * shape.layer.n > kMaxMapRows)
    return "W has more rows than tensor copies count";
  if (c.hold > 0 && (!c.swap || c.tma_store != kNoCopies))
    return "rows are held of swapped tiles, for threads to store";
  if (c.hold % kStagedRows != 0 || c.hold > kMaxHold)
    return fmt::format("hold must be a multiple of {} up to {}", kStagedRows, kMaxHold);
  if (c.hold > 0 && c.hold < c.block_m) return "a tile's rows must find room in hold";
  if (!fits_registers(c, shape.fusion)) return "sums over the registers of a warpgroup";
  if (shared_bytes(c, shape) > device.shared_memory_per_block)
    return fmt::format("shared memory over {} bytes", device.shared_memory_per_block);
  return std::nullopt;
}

LaunchPlan plan(const Knobs& c, const Shape& shape) {
  const Boxes x = x_boxes(c);
  return {.threads = 128 * (1 + c.consumers),
          .shared_bytes = shared_bytes(c, shape),
          .min_blocks_per_sm = 1,
          .cluster = c.cluster == 0 ? 1 : 2,
          .tile_rows = c.block_m,
          .tile_columns = c.block_n,
          .pieces = c.split == 0 ? 1 + kMostParts : c.split,
          .workspace = split_workspace(c.split, c.block_m, c.block_n),
          .x_box = c.tma_x ? x.large : 0,
          .x_rest = c.tma_x && x.rest < x.large ? x.rest : 0,
          .w_box = c.tma_w ? (c.cluster == kAlongM ? c.block_n / 2 : c.block_n) : 0,
          .y_box = c.tma_store == kBoxes ? 8 : 0,
          .maps = c.addressing == kPointers ? 2 * (c.stages + 1) : 0,
          .gathers_first = c.gather == kFirst};
}

std::string unit(const Knobs& c, const Shape& shape) {
  const LaunchPlan launch = plan(c, shape);
  const Boxes x = x_boxes(c);
  return print_unit(wgmma_variant(), list().candidate(c), shape, launch,
                    {{"x_box", x.large},
                     {"x_rest", x.rest},
                     {"keeps", keeps(c)},
                     {"experts", shape.layer.local_experts()},
                     {"producer_registers", registers(c).producer},
                     {"consumer_registers", registers(c).consumer},
                     {"shared_bytes", launch.shared_bytes}},
                    "moetune::Wgmma<Config>::run(args)");
}

// Stages of a tile.
int64_t depth_of(const Knobs& c, const Problem& problem) { return (problem.shape.layer.k + c.block_k - 1) / c.block_k; }

// Stages that a block multiplies, on average.
int64_t steps_a_block(const Knobs& c, const Problem& problem, const DeviceInfo& device) {
  return tiles_of(c.block_m, c.block_n, problem) * depth_of(c, problem) / processors_of(device);
}

// Rounds of tiles, one a block each, that begin together: the rows of the highest tile of each, summed up.
int64_t rows_in_turn(const Knobs& c, const Problem& problem, const DeviceInfo& device) {
  const int64_t columns = (problem.shape.layer.n + c.block_n - 1) / c.block_n;
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

// The part of all time that is saved where blocks share the last tiles: the twin of share_out in kernels/scheduler.cuh.
double saved_by_sharing(const Knobs& c, const Problem& problem, const DeviceInfo& device) {
  const int64_t tiles = tiles_of(c.block_m, c.block_n, problem), blocks = processors_of(device),
                depth = depth_of(c, problem);
  const int64_t least = 512 / c.block_k, toll = 192 / c.block_k;
  const int64_t tail = tiles % blocks, others = blocks - tail;
  if (tail == 0) return 0;
  const int64_t parts = std::clamp<int64_t>(others / tail, 1, kMostParts), turns = (tail + others - 1) / others;
  const int64_t part = (depth - (turns - 1) * toll) / (turns + parts);
  if (part < least) return 0;
  return static_cast<double>(parts * part) / static_cast<double>((tiles / blocks + 1) * depth);
}

// Few rows an expert: W passes by once, in a deep ring beside tiles that are no higher than the rows ask. More: tiles
// of which an expert fills some well; where experts are large power bounds the kernel, and blocks that stay together
// save it, and share the last tiles where an incomplete round weighs. Rows of X stand on the N side throughout: what
// the last tile of an expert lacks of its height is not multiplied. Where few experts have most rows, blocks go through
// them from both ends, if there is enough to do (gpt-oss up, recorded rows, H200: 3 to 5 %; under 500 steps 1 to 6 %
// slower: Qwen3 zipf:1, 2048 tokens). Rows are gathered once where that is soon done, or where it is little beside what
// is read for them.
Knobs fallback(const Problem& problem, const DeviceInfo& device) {
  const int64_t mean_rows = problem.rows() / std::max<int64_t>(1, problem.active_experts());
  const std::vector<int>& rows = problem.routing.m_sizes;
  const int64_t most_rows = rows.empty() ? 0 : *std::max_element(rows.begin(), rows.end());
  const bool gathers_first =
      problem.shape.fusion.permute_x &&
      (mean_rows <= 96 ? problem.rows() <= 512 : mean_rows > 384 || problem.shape.layer.n >= 4096);
  const bool gathers = problem.shape.fusion.permute_x && !gathers_first;
  Knobs c{.block_m = 16,
          .block_n = 128,
          .block_k = kRowElements,
          .stages = kMaxStages,
          .raster = 1,
          .group = 2,
          .consumers = 2,
          .schedule = kCooperative,
          .swap = 1,
          .cluster = 0,
          .in_flight = 1,
          .tma_x = gathers ? 0 : 1,
          .tma_w = 1,
          .tiles = 1,
          .tma_store = kNoCopies,
          .addressing = kBase,
          .split = 1,
          .hold = 0,
          .gather = gathers_first ? kFirst : kWithTiles,
          .mix = 0};
  if (mean_rows <= 96) {
    for (const int block_m : {32, 48, 80, 144})
      if (most_rows > c.block_m) c.block_m = block_m;
    if (most_rows > c.block_m && most_rows <= 176) c.block_m = 176;  // rather than read W twice
    if (c.block_m > 16 && c.block_m <= 80) c.hold = 256;             // larger tiles need the room for their stages
    if (most_rows <= 32 && !gathers) {
      c.block_k = 128;
      // Few tiles: a part of a round takes as long as a whole one, and its blocks may all sit in some of the GPCs, each
      // of which reads no more than an eighth of what memory gives (Mixtral down, 16 tokens, zipf:1: 192 to 159 us).
      if (tiles_of(c.block_m, c.block_n, problem) <= 2 * processors_of(device)) c.block_n = 64, c.consumers = 1;
    }
  } else {
    c.block_m = 144;
    c.tiles = 0;
    c.block_n = 256;
    c.group = 1;
    const bool scatters = problem.shape.fusion.permute_y;
    const bool skewed = most_rows > 4 * mean_rows && !gathers_first && problem.shape.layer.local_experts() <= kMaxMixed;
    if (!gathers) {  // a producer that gathers leaves registers for no more sums than 144 x 256 has
      if (mean_rows > 768) {
        c.block_m = 192, c.pace = 1;
        Knobs lower = c;
        lower.block_m = 176;
        if (rows_in_turn(lower, problem, device) < rows_in_turn(c, problem, device)) c = lower;
        Knobs sharing = c;
        sharing.split = 0;
        if (fits_registers(sharing, problem.shape.fusion) && saved_by_sharing(c, problem, device) >= kWorthSharing)
          c = sharing;
      } else if (mean_rows > 384) {
        c.block_m = 192, c.block_n = 192, c.consumers = 3, c.pace = 1;
      } else if (!skewed && (scatters || problem.shape.layer.k < kShallow)) {
        c.block_n = 128;
        c.schedule = kPingpong;  // stores weigh more: one warpgroup's pass while the other multiplies
      }
    }
    if (skewed && mean_rows <= 768 && steps_a_block(c, problem, device) >= kManySteps)
      c.tiles = 1, c.mix = 4, c.pace = 0;
  }
  while (c.stages > 2 && illegal(c, problem.shape, device)) --c.stages;
  return c;
}

}  // namespace

Variant wgmma_variant() {
  return {.name = "wgmma",
          .device = DeviceKind::cuda,
          .summary = "persistent, warp-specialised blocks, tensor copies (TMA) and wgmma; sm_90a",
          .knobs = list().knobs(),
          .retired = {{"l2_promotion", "128"}},
          .illegal = [](const Candidate& c, const Shape& shape,
                        const DeviceInfo& device) { return illegal(list().values(c), shape, device); },
          .plan = [](const Candidate& c, const Shape& shape) { return plan(list().values(c), shape); },
          .unit = [](const Candidate& c, const Shape& shape) { return unit(list().values(c), shape); },
          .fallback = [](const Problem& problem,
                         const DeviceInfo& device) { return list().candidate(fallback(problem, device)); }};
}

}  // namespace moetune
