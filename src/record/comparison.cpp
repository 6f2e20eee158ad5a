// Geometric means over cells, and reading the files of scripts/peers.py.
#include "record/comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/stats.h"
#include "record/table/table.h"

namespace moetune {
namespace {

struct Factors {
  std::string other;
  std::vector<double> factors = {};
  std::vector<std::string> cells = {};

  void add(const Cell& cell, double factor) {
    factors.push_back(factor);
    cells.push_back(id(cell));
  }
};

// Over cells that have a time of each of `others`: where one is missing, another would pass for the fastest.
Factors beside_fastest(Op op, const std::vector<CellSpeedups>& cells, std::ptrdiff_t others) {
  Factors fastest{.other = kFastestOther};
  for (const CellSpeedups& one : cells) {
    if (one.cell.shape.op != op) continue;
    std::vector<double> factors;
    for (const auto& [other, factor] : one.factors)
      if (is_other(other)) factors.push_back(factor);
    if (std::ssize(factors) == others) fastest.add(one.cell, *std::ranges::min_element(factors));
  }
  return fastest;
}

std::vector<Factors> factors_of(Op op, const std::vector<CellSpeedups>& cells) {
  std::vector<Factors> all;
  for (const CellSpeedups& one : cells) {
    if (one.cell.shape.op != op) continue;
    for (const auto& [other, factor] : one.factors) {
      auto found = std::ranges::find(all, other, &Factors::other);
      if (found == all.end()) found = all.insert(all.end(), {.other = other});
      found->add(one.cell, factor);
    }
  }
  const auto others = std::ranges::count_if(all, [](const Factors& each) { return is_other(each.other); });
  if (others < 2) return all;
  if (Factors fastest = beside_fastest(op, cells, others); !fastest.factors.empty()) all.push_back(std::move(fastest));
  return all;
}

}  // namespace

bool is_other(const std::string& name) { return name != "default" && !name.starts_with("moetune-"); }

std::vector<Comparison> compare(const std::vector<CellSpeedups>& cells) {
  std::vector<Op> ops;
  for (const CellSpeedups& one : cells) add_once(ops, one.cell.shape.op);
  std::vector<Comparison> result;
  for (const Op op : ops)
    for (const Factors& each : factors_of(op, cells)) {
      const auto least = std::ranges::min_element(each.factors);
      result.push_back({.op = op,
                        .other = each.other,
                        .mean = geometric_mean(each.factors),
                        .least = *least,
                        .most = *std::ranges::max_element(each.factors),
                        .least_cell = each.cells[static_cast<size_t>(least - each.factors.begin())],
                        .cells = each.factors.size()});
    }
  return result;
}

Grid grid_of(const std::vector<Comparison>& comparisons) {
  Grid grid = titled("compared with|op|geometric mean>|least>|most>|cells>");
  for (const Comparison& one : comparisons)
    grid.rows.push_back({one.other, std::string(name(one.op)), fmt::format("{:.3f}x", one.mean), factor_text(one.least),
                         factor_text(one.most), std::to_string(one.cells)});
  return grid;
}

Json to_json(const Comparison& comparison) {
  return {{"op", name(comparison.op)},
          {"other", comparison.other},
          {"geometric_mean", rounded(comparison.mean)},
          {"least", rounded(comparison.least)},
          {"least_cell", comparison.least_cell},
          {"most", rounded(comparison.most)},
          {"cells", comparison.cells}};
}

const Measurement* Peers::find(const std::string& cell, const std::string& peer) const {
  const std::span<const PeerTime> own = of(cell);
  const auto found = std::ranges::find(own, peer, &PeerTime::peer);
  return found == own.end() ? nullptr : &found->measurement;
}

Peers peers_from_json(const JsonAt& json) {
  require_schema(json, "peers");
  Peers peers{.device = json["environment"]["device"].string()};
  peers.environment = json["environment"].value();
  if (json.has("regime")) peers.regime = parse_regime(json["regime"].string());
  each(json["entries"], [&](const JsonAt& entry) {
    const std::string cell = entry["id"].string(), peer = entry["peer"].string();
    std::vector<PeerTime>& times = peers.times[cell];
    if (contains(times, peer, &PeerTime::peer)) entry.fail(fmt::format("{} appears twice in {}", peer, cell));
    times.push_back({peer, measurement_from_json(entry)});
    peers.cells.emplace(cell, cell_from_json(entry["cell"]));
  });
  return peers;
}

Peers read_peers(const std::string& file) {
  const Json json = read_json(file);
  return peers_from_json(JsonAt(json, file));
}

void require_comparable(const Peers& peers, const std::string& device, Regime regime, std::string_view of_peers,
                        std::string_view others) {
  if (peers.device == device && peers.regime == regime) return;
  throw machine_error(fmt::format("{}: these times are of {} ({}), {} of {} ({})", of_peers, peers.device,
                                  name(peers.regime), others, device, name(regime)),
                      peers.device != device ? "measure both on one model of GPU: scripts/peers.py TABLE -o FILE"
                                             : fmt::format("measure both with --regime {}", name(peers.regime)));
}

}  // namespace moetune
