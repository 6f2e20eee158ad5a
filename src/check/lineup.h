// Which contenders are measured for a cell, and whether each of them runs.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "check/finding.h"
#include "tune/rounds.h"

namespace moetune {

/// Another program, or this one with other kernels.
struct Against {
  Backend* backend = nullptr;  // of the same device
  std::string name;            // for people: its file
  // Of packs, by the table's entries: what runs there instead of the entry's winner, and entries of kernels that a side
  // lacks, which are not measured: their finding and its reason.
  std::map<const Entry*, Candidate> winners = {};
  std::map<const Entry*, std::pair<Finding, std::string>> lacking = {};
};

/// One comparison: an entry's winner and those that it is measured beside. Against a table these are the entry's
/// rivals, with the times that the table has. Against another program they are a baseline here, the same one there (the
/// witness), and last the same winner there, whose ratio should be 1.
struct Lineup {
  const Entry* entry = nullptr;
  std::vector<Runner> runners;     // the winner first, then the rivals
  std::vector<Rival> rivals = {};  // the control, whose ratio is judged, is the last
  bool paired = false;             // with another program

  const Rival& control() const { return rivals.back(); }
  /// Whether the baseline that both programs run takes part: runners 1 and 2.
  bool has_witness() const { return paired && rivals.size() == 3; }
};

/// The winner, its default, the first baseline of the table and its control; or, where `all`, every rival of the table.
/// Baselines only where the backend offers them. Nothing where no control is left.
std::optional<Lineup> line_up(const Entry& entry, Backend& backend, bool all);

/// The winner here and there, and a baseline that both offer, of the table if it has one.
Lineup line_up_pair(const Entry& entry, Backend& here, const Against& there);

/// Loads the problem in every backend that a runner has.
void load(const Lineup& lineup, const Problem& problem);

/// Compiles and verifies the winner and runs each contender once; a rival besides the control that fails leaves the
/// lineup. A finding where the winner fails or no control is left.
std::optional<CellFinding> try_out(CellFinding& finding, const Problem& problem, Lineup& lineup,
                                   const SampleRequest& sample);

/// The finding of a cell where the fault of a runner ended the lineup.
CellFinding ended(const CellFinding& finding, const Lineup& lineup, const ContenderFault& fault);

}  // namespace moetune
