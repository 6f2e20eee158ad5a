// Reading the files of scripts/peers.py.
#include "record/peers.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"

namespace moetune {

Peers peers_from_json(const JsonAt& json) {
  require_schema(json, "peers");
  const JsonAt entries = json["entries"];
  Peers peers{.device = json["environment"]["device"].string(), .times = {}};
  if (json.has("regime")) peers.regime = parse_regime(json["regime"].string());
  std::vector<PeerTime>& times = peers.times;
  std::set<std::pair<std::string, std::string>> known;
  for (size_t i = 0; i < entries.size(); ++i) {
    const JsonAt entry = entries[i];
    times.push_back({entry["id"].string(), entry["peer"].string(), measurement_from_json(entry)});
    if (!known.emplace(times.back().cell, times.back().peer).second)
      entry.fail(fmt::format("{} appears twice in {}", times.back().peer, times.back().cell));
  }
  return peers;
}

Peers read_peers(const std::string& file) {
  const Json json = read_json(file);
  return peers_from_json(JsonAt(json, file));
}

void require_comparable(const Peers& peers, const DeviceInfo& device, Regime regime) {
  if (peers.regime != regime)
    throw machine_error(
        fmt::format("--peers: these times are of the regime {}, this run is {}", name(peers.regime), name(regime)),
        fmt::format("times of two regimes cannot be compared: pass --regime {}", name(peers.regime)));
  if (peers.device == device.name) return;
  throw machine_error(fmt::format("--peers: these times are of '{}', this device is '{}'", peers.device, device.name),
                      "times of two devices cannot be compared: run scripts/peers.py on this device");
}

}  // namespace moetune
