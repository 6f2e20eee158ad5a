// Who is measured beside a winner, and whether they all run. What their times show: significance.h.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "check/judge.h"
#include "record/table/table.h"
#include "tune/rounds.h"

namespace moetune {

/// One comparison: an entry's winner and those that it is measured beside. Against a table these are the entry's
/// rivals, with the times that the table has. Against another program they are a baseline here, the same one there (the
/// witness), and last the same winner there, whose ratio should be 1.
struct Lineup {
  const Entry* entry = nullptr;
  std::vector<Runner> runners;  // the winner first, then the rivals
  std::vector<Rival> rivals;    // the control, whose ratio is judged, is the last
  bool paired = false;          // with another program

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
                                   const CheckRequest& request);

/// The finding of a cell where the fault of a runner ended the lineup.
CellFinding ended(const CellFinding& finding, const Lineup& lineup, const ContenderFault& fault,
                  const CheckRequest& request);

CellFinding settled(CellFinding finding, Finding what, std::string reason, Remedy remedy = Remedy::none);

}  // namespace moetune
