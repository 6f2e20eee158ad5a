// Reading the files of scripts/peers.py.
#include "record/peers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace moetune {

Peers peers_from_json(const JsonAt& json) {
  require_schema(json, "peers");
  const JsonAt entries = json["entries"];
  Peers peers{.device = json["environment"]["device"].string(), .times = {}};
  if (json.has("regime")) peers.regime = parse_regime(json["regime"].string());
  for (size_t i = 0; i < entries.size(); ++i) {
    const JsonAt entry = entries[i];
    const std::string cell = entry["id"].string(), peer = entry["peer"].string();
    std::vector<PeerTime>& times = peers.times[cell];
    if (std::ranges::find(times, peer, &PeerTime::peer) != times.end())
      entry.fail(fmt::format("{} appears twice in {}", peer, cell));
    times.push_back({peer, measurement_from_json(entry)});
  }
  return peers;
}

std::span<const PeerTime> Peers::of(const std::string& cell) const {
  const auto found = times.find(cell);
  return found == times.end() ? std::span<const PeerTime>() : found->second;
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
