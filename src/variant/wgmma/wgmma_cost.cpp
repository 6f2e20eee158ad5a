// A model of the wgmma kernels in cycles.
#include "variant/wgmma/wgmma_cost.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "variant/cost.h"
#include "workload/product.h"

namespace moetune {
namespace {

constexpr double kLatency = 1636;          // from issuing a stage's copies until they have landed, under load
constexpr double kUnshared = 0.3072;       // more to load from L2 what no other block loads at the same time
constexpr double kStep = 52.55;            // of a consumer between two stages: barriers
constexpr double kEmptied = 29.23;         // more where all wgmma is awaited between them
constexpr double kTurn = 0.2992;           // more of each step where consumers take turns
constexpr double kLeastWgmma = 49.67;      // of 64 rows and 16 along k, whose A side is read from shared memory
constexpr double kWgmmaColumn = 0.1154;    // more of each column of the N side that is read
constexpr double kLoadedBytes = 76.73;     // a cycle, from L2 to an SM
constexpr double kAllLoadedBytes = 85.64;  // a cycle and SM, from L2 to all SMs at once
constexpr double kStoredSum = 0.04133;     // of a warpgroup for each sum of its tile, when it stores them
constexpr double kStaged = 204.2;  // of a tile that copies store: warpgroups synchronise before and after they stage it
constexpr double kFlops = 4096;    // a cycle and SM, dense, of 16 bits
constexpr double kSustained = 0.8874;      // of the peak clock, where all SMs multiply: power bounds it
constexpr double kRead = 1.005;            // of the peak bandwidth
constexpr double kWritten = 0.9058;        // of the peak bandwidth, at most
constexpr double kWrittenBytes = 14.16;    // a cycle and SM, at most
constexpr double kWrittenInOrder = 1.136;  // times as many where a result leaves L2 in the order in which it was stored
constexpr double kNarrow = 1.029;          // times as long to read less than kWide bytes of a row at once
constexpr int kWide = 256;
constexpr double kTurns = 6.344;  // times as long more to write few rows at once: memory switches from reads to writes
constexpr double kFewRows = 4.566;        // of a store; the more there are, the less switches weigh
constexpr double kStoredLate = 467.7;     // cycles until held rows are stored at the end
constexpr double kLastSteps = 5.338;      // until the last sums are stored
constexpr double kLaunch = 2.019e-06;     // seconds
constexpr double kMeeting = 49510;        // cycles more where rows are gathered first: tiles wait for the first of them
constexpr double kGatheredLoads = 17.22;  // what copying them costs, in passes between L2 and SMs
constexpr double kGatheredReads = 0.8233;  // and how often they pass memory more
constexpr double kShared = 2444;           // more where blocks share the last round: to begin parts and to add them up
constexpr double kPaired = 1.061;          // times as long where two blocks wait for each other
constexpr double kTogether = 0.9539;  // of all work, where blocks stay together: they load the same at the same time
constexpr double kSplit = 15110;      // more where tiles are cut: the last piece adds up all
constexpr double kUnswapped = 1.084;  // times memory's time, where rows of X are on the M side
constexpr double kAdapts = 0.995;     // of memory's time, where blocks with the shorter way to it take more tiles
constexpr double kCounter = 957.1;    // cycles more where tiles come from a counter
constexpr double kSumBytes = 4;       // of a sum of a piece or part
constexpr double kCopiedRows = 1.06;  // times as long where threads copy rows
constexpr double kOverlap = 3.21;     // of SMs and memory: the exponent of a norm; the larger, the better they overlap
constexpr double kAtOnce = 1.341;     // rounds of tiles that overlap
constexpr double kMixed = 0.8494;     // over the experts: more of SMs' work, where some blocks begin with other experts
constexpr double kCached = 0.405;     // of L2, by an expert's operands, before its tiles load them from memory again
constexpr double kRefetched = 0.6079;     // of those bytes: the rest comes from L2 all the same
constexpr double kOverlapInside = 1.803;  // of an SM's own work and what all SMs load

// Of dW.
constexpr double kStagedDw = 128.5;              // cycles of a tile that copies store, in place of kStaged
constexpr double kStagedSwapped = 0.02621;       // and for each sum, where X and W trade places
constexpr double kUnswappedDw = 1.049;           // in place of kUnswapped
constexpr double kAdaptsDw = 0.9906;             // in place of kAdapts
constexpr double kCachedDw = 0.2569;             // in place of kCached: results pass through L2 too
constexpr double kCachedMixed = 0.1188;          // of that, where some blocks begin with other experts
constexpr double kRefetchedInOrder = 0.215;      // in place of kRefetched, where tiles have a fixed order
constexpr double kRefetchedFromCounter = 1.541;  // where they come from a counter: fewer blocks load the same at once
constexpr double kSmallTiles = 0.02444;          // more of memory's time for tiles of 128 x 128, less for larger ones
constexpr double kUnfetched = 0.299;             // how much longer memory takes where stages hold a part of a tile

// Tiles of the same height and depth that follow one another.
struct Tiles {
  double count = 0, rows = 0, steps = 0;
  double loaded_bytes = 0;  // of one step
};

// Rows of X that are copied for a tile: in boxes.
double loaded_rows(const WgmmaKnobs& c, const Product& p, int rows) {
  if (p.ragged == Axis::k) return c.block_m;
  if (!c.tma_x) return rows;
  const BoxRows box = x_boxes(c, {}), count = count_boxes(box, rows);
  return count.large * box.large + count.small * box.small;
}

double loaded_bytes(const WgmmaKnobs& c, const Product& p, int rows) {
  const double w = c.cluster == Cluster::m ? c.block_n / 2.0 : c.block_n;
  const double x = loaded_rows(c, p, rows) / (c.cluster == Cluster::n ? 2 : 1);
  return c.block_k * (w + x) * static_cast<double>(size_bytes(p.a.dtype));
}

std::vector<Tiles> tiles_of(const WgmmaKnobs& c, const Product& p, const std::vector<int>& m_sizes) {
  std::vector<Tiles> tiles;
  const double pairs_n = c.cluster == Cluster::n ? 2 : 1;
  const double columns = ceil_div(static_cast<double>(p.n), pairs_n * c.block_n) * pairs_n;
  const auto add = [&](double count, int rows, double steps) {
    if (c.split > 1) count *= c.split, steps = ceil_div(steps, c.split);
    if (count > 0 && rows > 0) tiles.push_back({count, static_cast<double>(rows), steps, loaded_bytes(c, p, rows)});
  };
  for (const int rows : m_sizes) {
    if (p.ragged == Axis::k) {
      add(columns * ceil_div(static_cast<double>(p.m), c.block_m), c.block_m, ceil_div(rows, c.block_k));
    } else {
      const double steps = ceil_div(static_cast<double>(p.k), c.block_k);
      const int whole = rows / c.block_m, rest = rows % c.block_m;
      if (c.cluster == Cluster::m) {  // a pair takes as long as its higher tile, even where the other is empty
        const int high = whole + (whole % 2), low = rest > 0 && whole % 2 == 0 ? 2 : 0;
        add(high * columns, c.block_m, steps), add(low * columns, rest, steps);
      } else {
        add(whole * columns, c.block_m, steps), add(columns, rest, steps);
      }
    }
  }
  return tiles;
}

// Rows of a tile that wgmma multiplies.
double multiplied_rows(const WgmmaKnobs& c, double rows) {
  return c.swap ? ceil_div(rows, 8) * 8 : ceil_div(rows, 64) * 64;
}

// What a block's consumers take for one step along k.
double multiply_cycles(const WgmmaKnobs& c, double rows) {
  const double m = c.swap ? c.block_n : multiplied_rows(c, rows), n = c.swap ? multiplied_rows(c, rows) : c.block_n;
  const double wgmma = std::max(n / 2, kLeastWgmma + kWgmmaColumn * n);
  const double all = c.block_k / 16.0 * m / 64 * wgmma;
  const double between = kStep + (c.in_flight == 0 ? kEmptied : 0);
  return pingpong(c) ? all + between + kTurn : std::max(all, all / c.consumers + between);
}

double step_cycles(const WgmmaKnobs& c, const Tiles& tiles) {
  const double multiply = multiply_cycles(c, tiles.rows);
  const double filled = (kLatency + (1 + c.in_flight) * multiply) / c.stages;
  return std::max({multiply, filled, tiles.loaded_bytes / kLoadedBytes});
}

double store_cycles(const WgmmaKnobs& c, const Product& p, const Tiles& tiles) {
  const double sums = c.block_n * multiplied_rows(c, tiles.rows) / warpgroups_a_tile(c);
  if (c.tma_store != TmaStore::boxes) return kStoredSum * sums;
  return p.ragged == Axis::k ? kStagedDw + (c.swap ? kStagedSwapped * sums : 0) : kStaged;
}

// A consumer that has a tile for itself stores while the other multiplies.
double tile_cycles(const WgmmaKnobs& c, const Product& p, const Tiles& tiles) {
  const double multiply = tiles.steps * step_cycles(c, tiles);
  const double store = store_cycles(c, p, tiles);
  const double cycles = pingpong(c) ? std::max(multiply, (multiply + store) / 2) : multiply + store;
  return c.cluster == Cluster::none ? cycles : kPaired * cycles;
}

// Tiles of an expert that blocks have at the same time.
struct Walk {
  double high = 0, wide = 0;
};
Walk walk(const WgmmaKnobs& c, double rows, double columns, int processors) {
  double high = rows, wide = columns;
  if (rows * columns > processors) {
    double& fast = c.raster == Raster::m ? high : wide;
    double& slow = c.raster == Raster::m ? wide : high;
    const double walked = std::min(slow, static_cast<double>(c.group));
    if (fast * walked >= processors)
      slow = walked, fast = processors / walked;
    else
      slow = processors / fast;
  }
  return {high, wide};
}

// Of what all SMs load at once for a tile each, the part that differs: neighbours have rows or columns in common.
double unshared_part(const WgmmaKnobs& c, const Product& p, const std::vector<Tiles>& tiles, double experts,
                     int processors) {
  double count = 0;
  for (const Tiles& t : tiles) count += t.count;
  if (count < 1) return 1;
  const double m = c.block_m, n = c.block_n, columns = ceil_div(static_cast<double>(p.n), n);
  const double rows = std::max(1.0, count / (experts * columns));  // of tiles, of an expert on average
  const auto [high, wide] = walk(c, rows, columns, processors);
  return (high * m + wide * n) / (high * wide * (m + n));
}

// Bytes of an expert's operands that stay in L2 until their next tiles need them.
double cached_bytes(const WgmmaKnobs& c, const Product& p, const DeviceInfo& device) {
  const auto all = static_cast<double>(device.cache_bytes);
  if (p.ragged == Axis::m) return kCached * all;
  return kCachedDw * (c.mix > 0 ? kCachedMixed : 1) * all;
}

// Bytes that come from memory again, because they didn't stay in L2.
double refetched_bytes(const WgmmaKnobs& c, const Product& p, const std::vector<int>& m_sizes,
                       const DeviceInfo& device) {
  const auto in = static_cast<double>(size_bytes(p.a.dtype));
  const double cached = cached_bytes(c, p, device);
  const bool sums_rows = p.ragged == Axis::k;
  double sum = 0;
  for (const int size : m_sizes) {
    const double m = sums_rows ? static_cast<double>(p.m) : size, n = static_cast<double>(p.n);
    const double k = sums_rows ? size : static_cast<double>(p.k);
    const double rows = ceil_div(m, c.block_m), columns = ceil_div(n, c.block_n);
    const double rounds = rows * columns / device.processors, once = (m + n) * k * in;
    if (rounds <= 1 || once <= cached) continue;
    const auto [high, wide] = walk(c, rows, columns, device.processors);
    const double loaded = rounds * (high * c.block_m + wide * c.block_n) * k * in;
    sum += std::max(0.0, loaded - once) * (1 - cached / once);
  }
  const double in_dw = c.tiles == TileOrder::dynamic ? kRefetchedFromCounter : kRefetchedInOrder;
  return sum * (sums_rows ? in_dw : kRefetched);
}

// All rounds of tiles that SMs begin together, each as long as its longest tile.
double common_cycles(const WgmmaKnobs& c, const Product& p, const std::vector<Tiles>& tiles, int processors) {
  double sum = 0, longest = 0, free = processors;  // of the round that is not full yet
  for (const Tiles& t : tiles) {
    const double cycles = tile_cycles(c, p, t);
    double left = t.count;
    if (left < free) {
      longest = std::max(longest, cycles), free -= left;
      continue;
    }
    left -= free, sum += std::max(longest, cycles);
    sum += std::floor(left / processors) * cycles;
    free = processors - std::fmod(left, processors);
    longest = free < processors ? cycles : 0;
  }
  return sum + longest;
}

// What is left of the busiest SM's time where all share the last round.
double shared_part(const WgmmaKnobs& c, const std::vector<Tiles>& tiles, int processors) {
  double count = 0, steps = 0;
  for (const Tiles& t : tiles) count += t.count, steps = std::max(steps, t.steps);
  if (c.split != 0 || count < 1) return 1;
  const LastRound last = share_last_round(static_cast<int>(count), static_cast<int>(steps), processors, c.block_k);
  return 1 - (last.steps - last.own) / ((std::floor(count / processors) + 1) * last.steps);
}

// Cycles of the busiest SM. In a fixed order SM i has tile i of every round; else each takes the next when it is free,
// and the last ones end half a tile after the others on average.
double busiest_cycles(const WgmmaKnobs& c, const Product& p, const std::vector<Tiles>& tiles, int processors) {
  if (c.pace == Pace::common) return common_cycles(c, p, tiles, processors);
  double sum = 0, longest = 0, count = 0;
  std::vector<double> change(static_cast<size_t>(processors) + 1);  // from SM to SM
  double each = 0;                                                  // of all SMs alike
  int next = 0;
  for (const Tiles& t : tiles) {
    const double cycles = tile_cycles(c, p, t);
    sum += t.count * cycles, count += t.count, longest = std::max(longest, cycles);
    const double rounds = std::floor(t.count / processors);
    const int rest = static_cast<int>(t.count - rounds * processors), end = next + rest;
    each += rounds * cycles;
    change[static_cast<size_t>(next)] += cycles, change[static_cast<size_t>(std::min(end, processors))] -= cycles;
    if (end > processors) change[0] += cycles, change[static_cast<size_t>(end - processors)] -= cycles;
    next = end % processors;
  }
  if (c.tiles == TileOrder::dynamic)
    return std::max(longest, sum / processors + (count > processors ? longest / 2 : 0));
  double most = 0, here = 0;
  for (int i = 0; i < processors; ++i) here += change[static_cast<size_t>(i)], most = std::max(most, here);
  return each + most;
}

// Bytes a second that are stored.
double written_rate(const WgmmaKnobs& c, const Product& p, const Peaks& peaks) {
  const bool in_order = p.ragged == Axis::k && c.tma_store == TmaStore::boxes;
  return std::min(kWritten * peaks.bandwidth, kWrittenBytes * (in_order ? kWrittenInOrder : 1) * peaks.flops / kFlops);
}

// Tiles that blocks work on at about the same time, and what is left of them.
struct Part {
  double inside = 0, memory = 0;  // seconds, if bound by SMs or by memory alone
};

// All tiles in parts, of which the whole takes `inside` and `memory` seconds; a byte takes `written` times as long to
// write as to read.
std::vector<Part> parts_of(const WgmmaKnobs& c, const Product& p, std::vector<int> m_sizes, int processors,
                           double inside, double memory, double written) {
  const bool sums_rows = p.ragged == Axis::k;
  if (sums_rows || c.mix > 0) std::sort(m_sizes.begin(), m_sizes.end(), std::greater<>());
  const double whole = multiply_cycles(c, c.block_m), columns = ceil_div(static_cast<double>(p.n), c.block_n);
  const double most = kAtOnce * processors;  // tiles of a part
  std::vector<Part> parts(1);
  Part all;
  double filled = 0;
  for (const int rows : m_sizes) {
    if (rows == 0 && !sums_rows) continue;
    const int rest = rows % c.block_m;
    const double work =
        sums_rows ? ceil_div(rows, c.block_k) : rows / c.block_m * whole + (rest > 0 ? multiply_cycles(c, rest) : 0);
    const MovedBytes moved = moved_bytes(p, rows);
    const double bytes = moved.read + written * moved.written;
    const double tiles = columns * ceil_div(sums_rows ? static_cast<double>(p.m) : rows, c.block_m);
    all.inside += work, all.memory += bytes;
    for (double left = tiles; left > 0;) {
      if (filled >= most) parts.emplace_back(), filled = 0;
      const double taken = std::min(left, most - filled);
      parts.back().inside += work * taken / tiles, parts.back().memory += bytes * taken / tiles;
      filled += taken, left -= taken;
    }
  }
  for (Part& part : parts) {
    part.inside *= all.inside > 0 ? inside / all.inside : 0;
    part.memory *= all.memory > 0 ? memory / all.memory : 0;
  }
  return parts;
}

// Each part is bound by SMs or by memory. One block in `mix` begins with the experts of fewest rows, and goes on until
// it meets the others.
double seconds_by_parts(const WgmmaKnobs& c, std::vector<Part> parts) {
  double sum = 0;
  size_t high = 0, low = parts.size() - 1;
  const double few = c.mix > 0 ? 1.0 / c.mix : 0;  // of all blocks
  while (high < low && few > 0 && parts[high].inside > 0 && parts[low].inside > 0) {
    Part &a = parts[high], &b = parts[low];
    const double of_a = a.inside / (1 - few), of_b = b.inside / few, both = std::min(of_a, of_b);
    sum += both * norm(1, a.memory / of_a + b.memory / of_b, kOverlap);
    for (const auto& [part, seconds] : {std::pair(&a, of_a), std::pair(&b, of_b)})
      part->inside *= 1 - both / seconds, part->memory *= 1 - both / seconds;
    if (of_a <= of_b) ++high;
    if (of_b <= of_a) --low;
  }
  for (; high <= low && high < parts.size(); ++high) sum += norm(parts[high].inside, parts[high].memory, kOverlap);
  return sum;
}

double memory_seconds(const WgmmaKnobs& c, const Product& p, const std::vector<int>& m_sizes, const Peaks& peaks) {
  const auto [read, written] = moved_bytes(p, m_sizes);
  const bool narrow = p.ragged == Axis::m && c.block_k * static_cast<int>(size_bytes(p.a.dtype)) < kWide;
  return read * (narrow ? kNarrow : 1) / (kRead * peaks.bandwidth) + written / written_rate(c, p, peaks);
}

// How many times as long memory takes in dW. Sums leave while the next tile's rows come: what its stages don't hold yet
// comes late.
double longer_by_experts(const WgmmaKnobs& c, const std::vector<int>& m_sizes) {
  double unfetched = 0;
  for (const int rows : m_sizes) {
    const double of_expert = ceil_div(rows, c.block_k);
    if (of_expert > 0) unfetched += std::max(0.0, 1 - c.stages / of_expert);
  }
  return 1 + kUnfetched * unfetched / static_cast<double>(m_sizes.size());
}

// The same by the size of tiles: sums of smaller ones leave more often.
double longer_by_tiles(const WgmmaKnobs& c) { return 1 + kSmallTiles * 128 * 128 / (c.block_m * c.block_n); }

// Bytes of Y that would take as long as memory's switches from reads to writes.
double turned_bytes(const WgmmaKnobs& c, const Product& p, const std::vector<Tiles>& tiles) {
  if (c.hold > 0) return 0;
  double rows = 0;
  for (const Tiles& t : tiles) rows += kTurns * t.count * t.rows * std::min(1.0, std::pow(kFewRows / t.rows, 2));
  return rows * c.block_n * static_cast<double>(size_bytes(p.d.dtype));
}

// Bytes of the rows that are put in order first.
double gathered_bytes(const WgmmaKnobs& c, const Problem& problem, const Product& p) {
  if (c.gather != Gather::first) return 0;
  const int64_t of_sums = p.b.order == RowOrder::in_place ? p.m : p.n;
  const int64_t columns = p.ragged == Axis::k ? of_sums : p.k;
  return static_cast<double>(problem.rows() * columns * size_bytes(p.a.dtype));
}

}  // namespace

double wgmma_seconds(const WgmmaKnobs& knobs, const Problem& problem, const DeviceInfo& device) {
  const Peaks peaks = modelled_peaks(device);
  if (peaks.flops <= 0 || peaks.bandwidth <= 0 || device.processors <= 0) return 0;
  const Product p = before_last_pass(product_of(problem.shape));
  const std::vector<int>& m_sizes = problem.routing.m_sizes;
  const std::vector<Tiles> tiles = tiles_of(knobs, p, m_sizes);
  const double clock = peaks.flops / kFlops;  // cycles a second of all SMs
  double loaded = 0, work = 0, longest_step = 0, count = 0;
  for (const Tiles& t : tiles) {
    loaded += t.count * t.steps * t.loaded_bytes, count += t.count;
    work += t.count * tile_cycles(knobs, p, t);
    longest_step = std::max(longest_step, step_cycles(knobs, t));
  }
  const double each = clock / device.processors, gathered = gathered_bytes(knobs, problem, p);
  loaded += kGatheredLoads * gathered;
  // SMs that wait leave power to the others: the clock depends on the work of all.
  const double busiest =
      busiest_cycles(knobs, p, tiles, device.processors) * shared_part(knobs, tiles, device.processors);
  const double together = knobs.pace == Pace::common ? kTogether : 1;
  const double busy = std::max(busiest / each, together * work / (kSustained * clock));
  const auto active = static_cast<double>(
      p.ragged == Axis::k ? std::ssize(m_sizes) : std::ranges::count_if(m_sizes, [](int rows) { return rows > 0; }));
  const double unshared = 1 + kUnshared * unshared_part(knobs, p, tiles, active, device.processors);
  const double mixed = knobs.mix > 0 && p.ragged == Axis::m ? 1 + kMixed / active : 1;
  const double inside = mixed * norm(busy, unshared * loaded / kAllLoadedBytes / clock, kOverlapInside);
  const double idle = count > 0 ? std::max(1.0, device.processors / count) : 1;  // SMs without a tile load nothing
  const double sums_added =                                                      // stored and loaded through L2
      knobs.split == 1 ? 0 : 2 * kSumBytes * knobs.block_m * knobs.block_n / kLoadedBytes;
  const double sharing = knobs.split == 0 ? kShared : knobs.split > 1 ? kSplit : 0;
  const double refills =  // stages are empty when blocks begin together
      knobs.pace == Pace::common ? std::ceil(count / device.processors) * kLatency : 0;
  double memory =
      memory_seconds(knobs, p, m_sizes, peaks) * std::sqrt(idle) +
      (turned_bytes(knobs, p, tiles) + kGatheredReads * gathered + refetched_bytes(knobs, p, m_sizes, device)) /
          peaks.bandwidth;
  if (!knobs.swap) memory *= p.ragged == Axis::m ? kUnswapped : kUnswappedDw;
  if (knobs.tiles == TileOrder::dynamic) memory *= p.ragged == Axis::m ? kAdapts : kAdaptsDw;
  if (p.ragged == Axis::k) memory *= longer_by_experts(knobs, m_sizes) * longer_by_tiles(knobs);
  memory += refills / each;
  const double last = kLastSteps * longest_step + sums_added + sharing + (knobs.hold > 0 ? kStoredLate : 0) +
                      (knobs.tiles == TileOrder::dynamic ? kCounter : 0);
  const double written = peaks.bandwidth / written_rate(knobs, p, peaks);
  const double both = seconds_by_parts(knobs, parts_of(knobs, p, m_sizes, device.processors, inside, memory, written));
  return (copies_rows(knobs) ? kCopiedRows : 1) * both + (last + (gathered > 0 ? kMeeting : 0)) / each + kLaunch;
}

}  // namespace moetune
