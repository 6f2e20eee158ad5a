// Times of other libraries, as scripts/peers.py wrote them (moetune.peers/1). Nothing here measures.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "record/measurement.h"
#include "variant/device.h"

namespace moetune {

struct PeerTime {
  std::string peer;
  Measurement measurement;
};

struct Peers {
  std::string device;  // its name
  Regime regime = Regime::burst;
  std::map<std::string, std::vector<PeerTime>> times;  // by the id of the cell, in the order of the file

  std::span<const PeerTime> of(const std::string& cell) const;  // empty where it has none
};

/// Errors name the place, also of a peer that appears twice in one cell.
Peers peers_from_json(const JsonAt& json);
Peers read_peers(const std::string& file);

/// Throws Exit::machine, with both names, where the peers were measured on another device or in another regime.
void require_comparable(const Peers& peers, const DeviceInfo& device, Regime regime);

}  // namespace moetune
