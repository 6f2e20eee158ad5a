// Times of other libraries, as scripts/peers.py wrote them (moetune.peers/1), and how winners compare with others over
// many cells, op by op. Nothing here measures.
#pragma once
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/text/grid.h"
#include "record/measurement.h"
#include "variant/device.h"
#include "workload/problem.h"

namespace moetune {

struct PeerTime {
  std::string peer;
  Measurement measurement;
};

struct Peers {
  std::string device;  // its name
  Regime regime = Regime::burst;
  std::map<std::string, std::vector<PeerTime>> times = {};  // by the id of the cell, in the order of the file
  std::map<std::string, Cell> cells = {};                   // by their ids
  Json environment = {};                                    // device and versions

  std::span<const PeerTime> of(const std::string& cell) const { return value_in(times, cell); }
  const Measurement* find(const std::string& cell, const std::string& peer) const;  // null where it has none
};

/// Errors name the place, also of a peer that appears twice in one cell.
Peers peers_from_json(const JsonAt& json);
Peers read_peers(const std::string& file);

/// Throws Exit::machine, with both names, where the peers were measured on another device or in another regime.
/// `of_peers` and `others` say whose times these are, and the others.
void require_comparable(const Peers& peers, const std::string& device, Regime regime, std::string_view of_peers,
                        std::string_view others);

/// How many times as fast a cell's winner is as others, by their names.
struct CellSpeedups {
  Cell cell;
  std::vector<std::pair<std::string, double>> factors = {};
};

/// Whether a name is that of another library's kernel: neither the default nor a kernel that moetune exported.
bool is_other(const std::string& name);

/// One op's cells beside one other, or beside the fastest other of each cell.
struct Comparison {
  Op op = Op::fwd;
  std::string other;
  double mean = 0;  // geometric
  double least = 0, most = 0;
  std::string least_cell;  // where the winner does worst
  size_t cells = 0;        // that have a time of it
};

/// The last comparison of an op with several others: with the fastest of them in each cell that has a time of each.
constexpr const char* kFastestOther = "fastest in each cell";

/// In the order in which ops and others appear; none for ops whose winners have nothing beside them.
std::vector<Comparison> compare(const std::vector<CellSpeedups>& cells);

/// A row a comparison.
Grid grid_of(const std::vector<Comparison>& comparisons);
Json to_json(const Comparison& comparison);

}  // namespace moetune
