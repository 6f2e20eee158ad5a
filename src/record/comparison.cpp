// Geometric means over cells, and reading the files of scripts/peers.py.
#include "record/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/stats.h"
#include "record/table/table.h"

namespace moetune {
namespace {

// How many times as fast the cell's winner is as one of these names. The fastest of the others only where the cell has
// all of them: where one is missing, another would pass for the fastest.
std::optional<double> factor_of(const CellSpeedups& cell, const std::string& name, std::ptrdiff_t others) {
  std::vector<double> found;
  for (const auto& [other, factor] : cell.factors)
    if (name == kFastestOther ? is_other(other) : other == name) found.push_back(factor);
  if (found.empty() || (name == kFastestOther && std::ssize(found) < others)) return std::nullopt;
  return std::ranges::min(found);
}

}  // namespace

bool is_other(const std::string& name) { return name != "default" && !name.starts_with("moetune-"); }

std::vector<Comparison> compare(const std::vector<CellSpeedups>& cells) {
  std::vector<Comparison> result;
  for (const auto& of_op : grouped_by(cells, [](const CellSpeedups& one) { return one.cell.shape.op; })) {
    std::vector<std::string> names;
    for (const CellSpeedups& one : of_op)
      for (const auto& [other, factor] : one.factors) add_once(names, other);
    const auto others = std::ranges::count_if(names, is_other);
    if (others > 1) names.emplace_back(kFastestOther);
    for (const std::string& name : names) {
      Comparison one{.op = of_op[0].cell.shape.op, .other = name, .least_cell = ""};
      std::vector<double> factors;
      for (const CellSpeedups& cell : of_op)
        if (const auto factor = factor_of(cell, name, others)) {
          if (factors.empty() || *factor < one.least) one.least = *factor, one.least_cell = id(cell.cell);
          factors.push_back(*factor);
        }
      if (factors.empty()) continue;
      one.mean = geometric_mean(factors), one.most = std::ranges::max(factors), one.cells = factors.size();
      result.push_back(std::move(one));
    }
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
