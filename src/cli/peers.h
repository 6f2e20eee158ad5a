// Times of other libraries, as scripts/peers.py wrote them (moetune.peers/1). Nothing here measures.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "table/measurement.h"

namespace moetune {

struct PeerTime {
  std::string cell;  // its id
  std::string peer;
  Measurement measurement;
};

/// In the order of the file. Errors name the place; a peer twice in one cell is one.
std::vector<PeerTime> peers_from_json(const JsonAt& json);
std::vector<PeerTime> read_peers(const std::string& file);

}  // namespace moetune
