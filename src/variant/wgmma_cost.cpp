// A model of the wgmma kernels in cycles.
#include "variant/wgmma_cost.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "workload/product.h"

namespace moetune {
namespace {

constexpr double kLatency = 1413;           // from issuing a stage's copies until they have landed, under load
constexpr double kUnshared = 0.107;         // more to load from L2 what no other block loads at the same time
constexpr double kStep = 10.91;             // of a consumer between two stages: barriers
constexpr double kEmptied = 34.96;          // more where all wgmma is awaited between them
constexpr double kTurn = 1.494;             // more of each step where consumers take turns
constexpr double kLeastWgmma = 42.05;       // of 64 rows and 16 along k, whose A side is read from shared memory
constexpr double kWgmmaColumn = 0.06945;    // more of each column of the N side that is read
constexpr double kLoadedBytes = 86.34;      // a cycle, from L2 to an SM
constexpr double kAllLoadedBytes = 91.82;   // a cycle and SM, from L2 to all SMs at once
constexpr double kStoredSum = 0.05325;      // of a warpgroup for each sum of its tile, when it stores them
constexpr double kStagedSum = 0.003092;     // the same where copies store them while the next tile is multiplied,
constexpr double kStagedTile = 110.3;       // and more of a tile: warpgroups synchronise before and after they stage it
constexpr double kFlops = 4096;             // a cycle and SM, dense, of 16 bits
constexpr double kSustained = 0.8224;       // of the peak clock, where all SMs multiply: power bounds it
constexpr double kWritten = 0.6904;         // of the peak bandwidth
constexpr double kWrittenInOrder = 0.7489;  // the same where a result leaves L2 in the order in which it was stored
constexpr double kNarrow = 1.033;           // times as long to read less than kWide bytes of a row at once
constexpr int kWide = 256;
constexpr double kTurns = 0.9219;  // times as long more to write few rows at once: memory switches from reads to writes
constexpr double kFewRows = 4.117;     // of a store; the more there are, the less switches weigh
constexpr double kStoredLate = 375.6;  // cycles until held rows are stored at the end
constexpr double kLastSteps = 1.635;   // until the last sums are stored
constexpr double kLaunch = 3.408e-06;  // seconds
constexpr int kMeeting = 306;          // until all blocks know that rows are gathered
constexpr double kShared = 1026;       // more where blocks share the last round: to begin parts and to add them up
constexpr double kPaired = 1.047;      // times as long where two blocks wait for each other
constexpr double kTogether = 0.9511;   // of all work, where blocks stay together: they load the same at the same time
constexpr double kSplit = 4280;        // more where tiles are cut: the last piece adds up all
constexpr double kUnswapped = 1.053;   // times memory's time, where rows of X are on the M side
constexpr double kAdapts = 0.9963;     // of memory's time, where blocks with the shorter way to it take more tiles
constexpr double kCounter = 1010;      // cycles more where tiles come from a counter
constexpr double kSumBytes = 4;        // of a sum of a piece or part
constexpr double kCopiedRows = 1.107;  // times as long where threads copy rows
constexpr double kOverlap = 2.896;     // of SMs and memory: the exponent of a norm; the larger, the better they overlap
constexpr double kApart = 0.3731;      // of dW: how far experts with many rows run apart from those with few
constexpr double kApartMixed = 0.1606;      // the same where some blocks begin with the experts of fewest rows
constexpr double kUnfetched = 0.165;        // of dW: how much longer memory takes where stages hold a part of a tile
constexpr double kMixedOrder = 0.09;        // the same where every other block begins with other experts
constexpr double kOverlapOfClocks = 63.83;  // of the busiest SM at the peak clock and all work at the sustained one
constexpr double kOverlapInside = 1.878;    // of an SM's own work and what all SMs load

// Tiles of the same height and depth that follow one another.
struct Tiles {
  double count = 0, rows = 0, steps = 0;
  double loaded_bytes = 0;  // of one step
};

double ceil_div(double a, double b) { return std::ceil(a / b); }

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

// A consumer that has a tile for itself stores while the other multiplies.
double tile_cycles(const WgmmaKnobs& c, const Tiles& tiles) {
  const double multiply = tiles.steps * step_cycles(c, tiles);
  const double sums = c.block_n * multiplied_rows(c, tiles.rows) / warpgroups_a_tile(c);
  const double store = c.tma_store == TmaStore::boxes ? kStagedTile + kStagedSum * sums : kStoredSum * sums;
  const double cycles = pingpong(c) ? std::max(multiply, (multiply + store) / 2) : multiply + store;
  return c.cluster == Cluster::none ? cycles : kPaired * cycles;
}

// Of what all SMs load at once for a tile each, the part that differs: neighbours have rows or columns in common.
double unshared_part(const WgmmaKnobs& c, const Product& p, const std::vector<Tiles>& tiles, double experts,
                     int processors) {
  double count = 0;
  for (const Tiles& t : tiles) count += t.count;
  if (count < 1) return 1;
  const double m = c.block_m, n = c.block_n, columns = ceil_div(static_cast<double>(p.n), n);
  const double rows = std::max(1.0, count / (experts * columns));  // of tiles, of an expert on average
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
  return (high * m + wide * n) / (high * wide * (m + n));
}

// All rounds of tiles that SMs begin together, each as long as its longest tile.
double common_cycles(const WgmmaKnobs& c, const std::vector<Tiles>& tiles, int processors) {
  double sum = 0, longest = 0, free = processors;  // of the round that is not full yet
  for (const Tiles& t : tiles) {
    const double cycles = tile_cycles(c, t);
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
double busiest_cycles(const WgmmaKnobs& c, const std::vector<Tiles>& tiles, int processors) {
  if (c.pace == Pace::common) return common_cycles(c, tiles, processors);
  double sum = 0, longest = 0, count = 0;
  std::vector<double> change(static_cast<size_t>(processors) + 1);  // from SM to SM
  double each = 0;                                                  // of all SMs alike
  int next = 0;
  for (const Tiles& t : tiles) {
    const double cycles = tile_cycles(c, t);
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

double norm(double a, double b, double exponent) {
  const double most = std::max(a, b);
  return most > 0 ? most * std::pow(std::pow(a / most, exponent) + std::pow(b / most, exponent), 1 / exponent) : 0;
}

// Of dW, whose experts follow one another by their rows: each one's part of the SMs' and of memory's time.
double seconds_by_experts(const WgmmaKnobs& c, const Product& p, const std::vector<int>& m_sizes, double inside,
                          double memory) {
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n);
  const auto in = static_cast<double>(size_bytes(p.a.dtype)), out = static_cast<double>(size_bytes(p.d.dtype));
  const auto work_of = [&](int rows) { return ceil_div(rows, c.block_k); };
  const auto bytes_of = [&](int rows) { return rows * (m + n) * in + m * n * out / kWritten; };
  double work = 0, bytes = 0, sum = 0;
  for (const int rows : m_sizes) work += work_of(rows), bytes += bytes_of(rows);
  if (work <= 0) return norm(inside, memory, kOverlap);
  for (const int rows : m_sizes) sum += norm(inside * work_of(rows) / work, memory * bytes_of(rows) / bytes, kOverlap);
  return sum;
}

double memory_seconds(const WgmmaKnobs& c, const Product& p, const std::vector<int>& m_sizes, double bandwidth) {
  double rows = 0, active = 0;
  for (const int of_expert : m_sizes) rows += of_expert, active += of_expert > 0;
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const auto in = static_cast<double>(size_bytes(p.a.dtype)), out = static_cast<double>(size_bytes(p.d.dtype));
  const bool sums_rows = p.ragged == Axis::k;
  const double read = sums_rows ? rows * (m + n) * in : (rows + active * n) * k * in;
  const double written = sums_rows ? static_cast<double>(m_sizes.size()) * m * n * out : rows * n * out;
  const bool narrow = !sums_rows && c.block_k * static_cast<int>(in) < kWide;
  const bool in_order = sums_rows && c.tma_store == TmaStore::boxes;
  return (read * (narrow ? kNarrow : 1) + written / (in_order ? kWrittenInOrder : kWritten)) / bandwidth;
}

// How many times as long memory takes in dW. Sums leave while the next tile's rows come: what its stages don't hold yet
// comes late. And where one block in `mix` begins with other experts than the rest, more rows are read at a time.
double longer_by_experts(const WgmmaKnobs& c, const std::vector<int>& m_sizes) {
  double unfetched = 0, steps = 0;
  for (const int rows : m_sizes) {
    const double of_expert = ceil_div(rows, c.block_k);
    if (of_expert > 0) unfetched += std::max(0.0, 1 - c.stages / of_expert);
    steps += static_cast<double>(rows) / c.block_k;
  }
  const auto experts = static_cast<double>(m_sizes.size());
  const double mixed = c.mix > 0 && steps > experts ? 2.0 / c.mix * (1 - experts / steps) : 0;
  return (1 + kUnfetched * unfetched / experts) * (1 + kMixedOrder * mixed);
}

// Bytes of Y that would take as long as memory's switches from reads to writes.
double turned_bytes(const WgmmaKnobs& c, const Product& p, const std::vector<Tiles>& tiles) {
  if (c.hold > 0) return 0;
  double rows = 0;
  for (const Tiles& t : tiles) rows += kTurns * t.count * t.rows * std::min(1.0, std::pow(kFewRows / t.rows, 2));
  return rows * c.block_n * static_cast<double>(size_bytes(p.d.dtype));
}

// Before all tiles: each token's row is read once, and written for each expert that it goes to.
double gathering_seconds(const WgmmaKnobs& c, const Problem& problem, const Product& p, const Peaks& peaks,
                         int processors) {
  if (c.gather != Gather::first) return 0;
  const double columns =
      static_cast<double>(p.ragged == Axis::k ? p.n : p.k) * static_cast<double>(size_bytes(p.a.dtype));
  const auto rows = static_cast<double>(problem.rows());
  const double read = rows / static_cast<double>(std::max<int64_t>(1, problem.shape.layer.top_k));
  return (read + rows) * columns / peaks.bandwidth + kMeeting * processors * kFlops / peaks.flops;
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
    work += t.count * tile_cycles(knobs, t);
    longest_step = std::max(longest_step, step_cycles(knobs, t));
  }
  const double each = clock / device.processors;
  // SMs that wait leave power to the others: the clock depends on the work of all.
  const double busiest = busiest_cycles(knobs, tiles, device.processors) * shared_part(knobs, tiles, device.processors);
  const double together = knobs.pace == Pace::common ? kTogether : 1;
  const double busy = norm(busiest / each, together * work / (kSustained * clock), kOverlapOfClocks);
  const auto active = static_cast<double>(
      p.ragged == Axis::k ? std::ssize(m_sizes) : std::ranges::count_if(m_sizes, [](int rows) { return rows > 0; }));
  const double unshared = 1 + kUnshared * unshared_part(knobs, p, tiles, active, device.processors);
  const double inside = norm(busy, unshared * loaded / kAllLoadedBytes / clock, kOverlapInside);
  const double idle = count > 0 ? std::max(1.0, device.processors / count) : 1;  // SMs without a tile load nothing
  const double sums_added =                                                      // stored and loaded through L2
      knobs.split == 1 ? 0 : 2 * kSumBytes * knobs.block_m * knobs.block_n / kLoadedBytes;
  const double sharing = knobs.split == 0 ? kShared : knobs.split > 1 ? kSplit : 0;
  const double refills =  // stages are empty when blocks begin together
      knobs.pace == Pace::common ? std::ceil(count / device.processors) * kLatency : 0;
  double memory = memory_seconds(knobs, p, m_sizes, peaks.bandwidth) * std::sqrt(idle) +
                  turned_bytes(knobs, p, tiles) / peaks.bandwidth;
  if (!knobs.swap && p.ragged == Axis::m) memory *= kUnswapped;
  if (knobs.tiles == TileOrder::dynamic && p.ragged == Axis::m) memory *= kAdapts;
  if (p.ragged == Axis::k) memory *= longer_by_experts(knobs, m_sizes);
  memory += refills / each;
  const double last = kLastSteps * longest_step + sums_added + sharing + (knobs.hold > 0 ? kStoredLate : 0) +
                      (knobs.tiles == TileOrder::dynamic ? kCounter : 0);
  double both = norm(inside, memory, kOverlap);
  if (p.ragged == Axis::k) {
    const double apart = knobs.mix > 0 ? kApartMixed : kApart;
    both += apart * (seconds_by_experts(knobs, p, m_sizes, inside, memory) - both);
  }
  return (copies_rows(knobs) ? kCopiedRows : 1) * both + last / each +
         gathering_seconds(knobs, problem, p, peaks, device.processors) + kLaunch;
}

}  // namespace moetune
