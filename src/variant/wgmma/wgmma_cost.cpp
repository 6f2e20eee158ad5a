// A model of the wgmma kernels in cycles. What its constants mean is said in configs/cost/wgmma.json.
#include "variant/wgmma/wgmma.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <ranges>
#include <vector>

#include "kernels/reordered.h"
#include "workload/product/passes.h"
#include "workload/product/scale_places.h"

namespace moetune {
namespace {

constexpr double kFlops = 4096;  // a cycle and SM, dense, of 16 bits
constexpr int kWide = 256;       // bytes of a row that are read at once as fast as more
constexpr double kSumBytes = 4;  // of a sum of a piece or part

// Tiles of the same height and depth that follow one another.
struct Tiles {
  double count = 0, rows = 0, steps = 0;
  double of_step = 0, of_tile = 0;  // cycles
};

// Tiles of an expert that blocks have at the same time.
struct Walk {
  double high = 0, wide = 0;
};

// Tiles that blocks work on at about the same time, and what is left of them.
struct Part {
  double inside = 0, memory = 0;  // seconds, if bound by SMs or by memory alone
};

struct Model {
  const WgmmaCost& cost;
  const WgmmaKnobs& c;
  const Problem& problem;
  const DeviceInfo& device;
  const Product p = before_last_pass(product_of(problem.shape), true);
  const std::vector<int>& m_sizes = problem.routing.m_sizes;
  const Peaks peaks = {device.peak_flops, device.peak_bandwidth};
  const double clock = peaks.flops / kFlops;  // cycles a second of all SMs
  const int processors = device.processors;
  const bool sums_rows = p.ragged == Axis::k;  // dW
  const double m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const double in_bytes = static_cast<double>(size_bytes(p.a.type.dtype));
  const bool widens = p.b.type.reordered;
  // Of W, for each of its rows and a step along k.
  const double w_bytes =
      widens ? static_cast<double>(reordered_block_bytes(p.b.type)) / kReorderedRows / kReorderedColumns : in_bytes;
  const bool promotes = p.sums == Sums::promoted;
  const double columns = ceil_div(n, c.block_n);

  double tile_rows(int rows) const { return ceil_div(sums_rows ? m : rows, c.block_m); }

  std::vector<Tiles> tiles_of() const {
    std::vector<Tiles> tiles;
    const double pairs_n = c.cluster == Cluster::n ? 2 : 1;
    const double all_columns = ceil_div(n, pairs_n * c.block_n) * pairs_n;
    tiles.reserve(2 * m_sizes.size());
    const auto add = [&](double count, int rows, double steps) {
      if (c.split > 1) count *= c.split, steps = ceil_div(steps, c.split);
      if (count <= 0 || rows <= 0) return;
      Tiles added{.count = count, .rows = static_cast<double>(rows), .steps = steps};
      const auto latest = tiles | std::views::reverse | std::views::take(2);
      const auto alike = std::ranges::find_if(  // the expert before often has as many rows
          latest, [&](const Tiles& other) { return other.rows == rows && other.steps == steps; });
      added.of_step = alike != latest.end() ? alike->of_step : step_cycles(added);
      added.of_tile = alike != latest.end() ? alike->of_tile : tile_cycles(added);
      tiles.push_back(added);
    };
    for (const int rows : m_sizes) {
      const double steps = ceil_div(sums_rows ? rows : k, c.block_k);
      const int whole = rows / c.block_m, rest = rows % c.block_m;
      if (sums_rows) {
        add(all_columns * tile_rows(rows), c.block_m, steps);
      } else if (c.cluster == Cluster::m) {  // a pair takes as long as its higher tile, even where the other is empty
        const int high = whole + (whole % 2), low = rest > 0 && whole % 2 == 0 ? 2 : 0;
        add(high * all_columns, c.block_m, steps), add(low * all_columns, rest, steps);
      } else {
        add(whole * all_columns, c.block_m, steps), add(all_columns, rest, steps);
      }
    }
    return tiles;
  }

  // Rows of X that are copied for a tile: in boxes.
  double loaded_rows(double rows) const {
    if (sums_rows) return c.block_m;
    if (!c.tma_x) return rows;
    const BoxRows box = x_boxes(c, {.w_block_bytes = widens ? 1 : 0}), count = count_boxes(box, static_cast<int>(rows));
    return count.large * box.large + count.small * box.small;
  }

  // Of one step.
  double loaded_bytes(const Tiles& tiles) const {
    const double w = c.cluster == Cluster::m ? c.block_n / 2.0 : c.block_n;
    const double x = loaded_rows(tiles.rows) / (c.cluster == Cluster::n ? 2 : 1);
    return c.block_k * (w * w_bytes + x * in_bytes);
  }

  double multiplied_rows(double rows) const {
    if (c.swap && promotes) return c.block_m;
    return c.swap ? ceil_div(rows, 8) * 8 : ceil_div(rows, 64) * 64;
  }

  // What a block's consumers take for one step along k.
  double multiply_cycles(double rows) const {
    const double a = c.swap ? c.block_n : multiplied_rows(rows), b = c.swap ? multiplied_rows(rows) : c.block_n;
    const double wgmma = std::max(b / 2, cost.wgmma + cost.wgmma_column * b);
    const double all = c.block_k * in_bytes / 32 * a / 64 * wgmma;  // 32 bytes along k at a time
    const double parts = c.block_k * in_bytes / kSwizzleBytes;      // along k
    const double a_sum = cost.promoted_sum * (c.swap ? 1 + cost.promoted_swapped : 1);
    const double promoted = promotes ? a_sum * sums(c) * parts + cost.promoted_part * (groups(c) * parts - 1) : 0;
    const double blocks = widens ? static_cast<double>(c.block_n) / kReorderedRows * c.block_k / kReorderedColumns : 0;
    if (widens)
      return cost.widened_step + std::max(all, cost.widened_block * blocks * (1 + cost.widened_alone / c.consumers));
    const double between = cost.step + (c.in_flight == 0 ? cost.drained_step + promoted : 0);
    if (pingpong(c)) return all + between + cost.turn;
    // With in_flight=1 a consumer promotes one part while wgmma makes the next.
    return std::max({all, all / c.consumers + between, cost.step + promoted});
  }

  double step_cycles(const Tiles& tiles) const {
    const double multiply = multiply_cycles(tiles.rows);
    const bool copies_scales = has_scales(p.a.type) && !c.tma_x;
    const double latency = cost.latency * (copies_scales ? 1 + cost.copied_scales_latency : 1);
    const double filled = (latency + (1 + c.in_flight) * multiply) / c.stages;
    const double copied = copies_scales ? cost.copied_scales : 0;
    return std::max({multiply, filled, copied, loaded_bytes(tiles) / cost.load_rate});
  }

  double store_cycles(const Tiles& tiles) const {
    const double sums = c.block_n * multiplied_rows(tiles.rows) / warpgroups_a_tile(c);
    if (p.gate_gradient) return cost.gate_sum * sums;
    if (c.tma_store != TmaStore::boxes) return cost.stored_sum * sums;
    return sums_rows ? cost.staged_tile_dw + (c.swap ? cost.staged_swapped_dw * sums : 0) : cost.staged_tile;
  }

  // A consumer that has a tile for itself stores while the other multiplies.
  double tile_cycles(const Tiles& tiles) const {
    const double multiply = tiles.steps * tiles.of_step;
    const double store = store_cycles(tiles);
    const double cycles = pingpong(c) ? std::max(multiply, (multiply + store) / 2) : multiply + store;
    return c.cluster == Cluster::none ? cycles : cost.paired * cycles;
  }

  Walk walk(double high, double wide) const {
    if (high * wide <= processors) return {high, wide};
    double& fast = c.raster == Raster::m ? high : wide;
    double& slow = c.raster == Raster::m ? wide : high;
    const double walked = std::min(slow, static_cast<double>(c.group));
    if (fast * walked >= processors)
      slow = walked, fast = processors / walked;
    else
      slow = processors / fast;
    return {high, wide};
  }

  // Of what all SMs load at once for a tile each, the part that differs: neighbours have rows or columns in common.
  double unshared_part(double count, double experts) const {
    if (count < 1) return 1;
    const auto [high, wide] = walk(std::max(1.0, count / (experts * columns)), columns);
    return (high * c.block_m + wide * c.block_n) / (high * wide * (c.block_m + c.block_n));
  }

  // Bytes of an expert's operands that stay in L2 until their next tiles need them.
  double cached_bytes() const {
    const auto all = static_cast<double>(device.cache_bytes);
    if (!sums_rows) return cost.cached * all;
    return cost.cached_dw * (c.mix > 0 ? cost.cached_mixed_dw : 1) * all;
  }

  // Bytes that come from memory again, because they didn't stay in L2.
  double refetched_bytes() const {
    const double cached = cached_bytes();
    double sum = 0;
    for (const int size : m_sizes) {
      const double of_m = sums_rows ? m : size, of_k = sums_rows ? size : k;
      const double rows = tile_rows(size);
      const double rounds = rows * columns / processors, once = of_k * (of_m * in_bytes + n * w_bytes);
      if (rounds <= 1 || once <= cached) continue;
      const auto [high, wide] = walk(rows, columns);
      const double loaded = rounds * (high * c.block_m * in_bytes + wide * c.block_n * w_bytes) * of_k;
      sum += std::max(0.0, loaded - once) * (1 - cached / once);
    }
    const double in_dw = c.tiles == TileOrder::dynamic ? cost.refetched_dynamic_dw : cost.refetched_dw;
    return sum * (sums_rows ? in_dw : cost.refetched);
  }

  // All rounds of tiles that SMs begin together, each as long as its longest tile.
  double common_cycles(const std::vector<Tiles>& tiles) const {
    double sum = 0, longest = 0, free = processors;  // of the round that is not full yet
    for (const Tiles& t : tiles) {
      const double cycles = t.of_tile;
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
  double shared_part(const std::vector<Tiles>& tiles, double count) const {
    if (c.split != 0 || count < 1) return 1;
    double steps = 0;
    for (const Tiles& t : tiles) steps = std::max(steps, t.steps);
    const LastRound last = share_last_round(static_cast<int>(count), static_cast<int>(steps), processors, c.block_k);
    return 1 - (last.steps - last.own) / ((std::floor(count / processors) + 1) * last.steps);
  }

  // Cycles of the busiest SM. In a fixed order SM i has tile i of every round; else each takes the next when it is
  // free, and the last ones end half a tile after the others on average.
  double busiest_cycles(const std::vector<Tiles>& tiles) const {
    if (c.pace == Pace::common) return common_cycles(tiles);
    double sum = 0, longest = 0, count = 0;
    std::vector<double> change(static_cast<size_t>(processors) + 1);  // from SM to SM
    double each = 0;                                                  // of all SMs alike
    int next = 0;
    for (const Tiles& t : tiles) {
      const double cycles = t.of_tile;
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
  double written_rate() const {
    const bool in_order = sums_rows && c.tma_store == TmaStore::boxes;
    return std::min(cost.write_rate * peaks.bandwidth,
                    cost.write_rate_sms * (in_order ? cost.write_in_order : 1) * peaks.flops / kFlops);
  }

  // All tiles in parts, of which the whole takes `inside` and `memory` seconds.
  std::vector<Part> parts_of(double inside, double memory) const {
    const double written = peaks.bandwidth / written_rate();  // times as long as to read
    std::vector<int> sizes = m_sizes;
    if (sums_rows || c.mix > 0) std::sort(sizes.begin(), sizes.end(), std::greater<>());
    const double whole = multiply_cycles(c.block_m);
    const double most = cost.rounds_at_once * processors;  // tiles of a part
    std::vector<Part> parts(1);
    Part all;
    double filled = 0;
    for (const int rows : sizes) {
      if (rows == 0 && !sums_rows) continue;
      const int rest = rows % c.block_m;
      const double work =
          sums_rows ? ceil_div(rows, c.block_k) : rows / c.block_m * whole + (rest > 0 ? multiply_cycles(rest) : 0);
      const MovedBytes moved = moved_bytes(p, rows);
      const double bytes = moved.read + written * moved.written;
      const double tiles = columns * tile_rows(rows);
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

  // Each part is bound by SMs or by memory. One block in `mix` begins with the experts of fewest rows, and goes on
  // until it meets the others.
  double seconds_by_parts(std::vector<Part> parts) const {
    double sum = 0;
    size_t high = 0, low = parts.size() - 1;
    const double few = c.mix > 0 ? 1.0 / c.mix : 0;  // of all blocks
    while (high < low && few > 0 && parts[high].inside > 0 && parts[low].inside > 0) {
      Part &a = parts[high], &b = parts[low];
      const double of_a = a.inside / (1 - few), of_b = b.inside / few, both = std::min(of_a, of_b);
      sum += both * norm(1, a.memory / of_a + b.memory / of_b, cost.overlap);
      for (const auto& [part, seconds] : {std::pair(&a, of_a), std::pair(&b, of_b)})
        part->inside *= 1 - both / seconds, part->memory *= 1 - both / seconds;
      if (of_a <= of_b) ++high;
      if (of_b <= of_a) --low;
    }
    for (; high <= low && high < parts.size(); ++high)
      sum += norm(parts[high].inside, parts[high].memory, cost.overlap);
    return sum;
  }

  double moved_seconds() const {
    const auto [read, written] = moved_bytes(p, m_sizes);
    const bool narrow = !sums_rows && c.block_k * static_cast<int>(size_bytes(p.a.type.dtype)) < kWide;
    return read * (narrow ? cost.narrow_read : 1) / (cost.read_rate * peaks.bandwidth) + written / written_rate();
  }

  // How many times as long memory takes in dW. Sums leave while the next tile's rows come: what its stages don't hold
  // yet comes late. Sums of smaller tiles leave more often.
  double longer_in_dw() const {
    double unfetched = 0;
    for (const int rows : m_sizes) {
      const double of_expert = ceil_div(rows, c.block_k);
      if (of_expert > 0) unfetched += std::max(0.0, 1 - c.stages / of_expert);
    }
    return (1 + cost.unfetched_dw * unfetched / static_cast<double>(m_sizes.size())) *
           (1 + cost.small_tiles_dw * 128 * 128 / (c.block_m * c.block_n));
  }

  // Bytes of Y that would take as long as memory's switches from reads to writes.
  double turned_bytes(const std::vector<Tiles>& tiles) const {
    if (c.hold > 0) return 0;
    double rows = 0;
    for (const Tiles& t : tiles)
      rows += cost.turnaround * t.count * t.rows * std::min(1.0, std::pow(cost.turnaround_rows / t.rows, 2));
    return rows * c.block_n * static_cast<double>(size_bytes(p.d.type.dtype)) * (p.gate_gradient ? 3 : 1);
  }

  double gathered_bytes() const {
    if (c.gather != Gather::first) return 0;
    const int64_t of_sums = p.b.order == RowOrder::in_place ? p.m : p.n;
    return static_cast<double>(problem.rows() * (sums_rows ? of_sums : p.k) * size_bytes(p.a.type.dtype));
  }

  // Of H, dH and X: swapped tiles have short rows of them.
  double gate_bytes() const {
    return p.gate_gradient && c.swap ? static_cast<double>(problem.rows()) * 5 * n * in_bytes : 0;
  }

  double memory_seconds(const std::vector<Tiles>& tiles, double count) const {
    const double idle = count > 0 ? std::max(1.0, processors / count) : 1;  // SMs without a tile load nothing
    double memory = moved_seconds() * std::sqrt(idle) + (turned_bytes(tiles) + cost.gather_reads * gathered_bytes() +
                                                         refetched_bytes() + cost.gate_swapped * gate_bytes()) /
                                                            peaks.bandwidth;
    if (!c.swap) memory *= sums_rows ? cost.unswapped_dw : cost.unswapped;
    if (c.tiles == TileOrder::dynamic) memory *= sums_rows ? cost.dynamic_dw : cost.dynamic;
    return sums_rows ? memory * longer_in_dw() : memory;
  }

  double seconds() const {
    const std::vector<Tiles> tiles = tiles_of();
    double loaded = 0, work = 0, longest_step = 0, count = 0;
    for (const Tiles& t : tiles) {
      loaded += t.count * t.steps * loaded_bytes(t), count += t.count;
      work += t.count * t.of_tile;
      longest_step = std::max(longest_step, t.of_step);
    }
    const double each = clock / processors, gathered = gathered_bytes();
    loaded += cost.gather_loads * gathered;
    // SMs that wait leave power to the others: the clock depends on the work of all.
    const double busiest = busiest_cycles(tiles) * shared_part(tiles, count);
    const double together = c.pace == Pace::common && !promotes ? cost.common_pace : 1;
    const double busy = std::max(
        busiest / each, together * work / (cost.clock_under_power * (promotes ? cost.promoted_clock : 1) * clock));
    const auto active = static_cast<double>(
        sums_rows ? std::ssize(m_sizes) : std::ranges::count_if(m_sizes, [](int rows) { return rows > 0; }));
    const double unshared = 1 + cost.unshared_load * unshared_part(count, active);
    const double mixed = c.mix > 0 && !sums_rows ? 1 + cost.mixed_experts / active : 1;
    const double inside = mixed * norm(busy, unshared * loaded / cost.all_load_rate / clock, cost.overlap_inside);
    const double sums_added =  // stored and loaded through L2
        c.split == 1 ? 0 : 2 * kSumBytes * c.block_m * c.block_n / cost.load_rate;
    const double sharing = c.split == 0 ? cost.shared_round : c.split > 1 ? cost.cut_tiles : 0;
    const double refills =  // stages are empty when blocks begin together
        c.pace == Pace::common ? std::ceil(count / processors) * cost.latency : 0;
    const double last = cost.last_steps * longest_step + sums_added + sharing + (c.hold > 0 ? cost.held_store : 0) +
                        (c.tiles == TileOrder::dynamic ? cost.counter : 0);
    const double both = seconds_by_parts(parts_of(inside, memory_seconds(tiles, count) + refills / each));
    return (copies_rows(c) ? cost.copied_rows : 1) * both + (last + (gathered > 0 ? cost.gather_wait : 0)) / each +
           cost.launch;
  }
};

}  // namespace

double wgmma_seconds(const WgmmaCost& cost, const WgmmaKnobs& knobs, const Problem& problem, const DeviceInfo& device) {
  const Model model{.cost = cost, .c = knobs, .problem = problem, .device = device};
  return model.peaks.flops > 0 && model.peaks.bandwidth > 0 && device.processors > 0 ? model.seconds() : 0;
}

}  // namespace moetune
