// Reading the files of scripts/peers.py.
#include "cli/peers.h"

#include <fmt/format.h>

#include <set>

namespace moetune {

std::vector<PeerTime> peers_from_json(const JsonAt& json) {
  require_schema(json, "peers");
  const JsonAt entries = json["entries"];
  std::vector<PeerTime> times;
  std::set<std::pair<std::string, std::string>> known;
  for (size_t i = 0; i < entries.size(); ++i) {
    const JsonAt entry = entries[i];
    times.push_back({entry["id"].string(), entry["peer"].string(), measurement_from_json(entry)});
    if (!known.emplace(times.back().cell, times.back().peer).second)
      entry.fail(fmt::format("{} is twice in {}", times.back().peer, times.back().cell));
  }
  return times;
}

std::vector<PeerTime> read_peers(const std::string& file) {
  const Json json = read_json(file);
  return peers_from_json(JsonAt(json, file));
}

}  // namespace moetune
