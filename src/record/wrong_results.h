// Candidates whose results are wrong: how many, what they have in common, and the first of them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "record/journal/journal.h"
#include "record/table/table.h"

namespace moetune {

/// What a verification found of a candidate in a cell.
struct VerifiedCandidate {
  Cell cell;
  Candidate candidate;
  std::string fault = {};  // what is wrong with its result; empty where it is right
};

struct WrongResults {
  size_t candidates = 0, cells = 0;     // different candidates, and cells with one of them
  std::vector<std::string> knobs = {};  // "block_m=128": values of all of them that right candidates lack
  VerifiedCandidate first = {};
};

/// The candidates of a table's cells that ran, as the journal has them.
std::vector<VerifiedCandidate> verified_candidates(const TunedTable& table, const JournalContents& journal);

/// Nothing where all are right.
std::optional<WrongResults> wrong_results(const std::vector<VerifiedCandidate>& verified);

/// "2 candidates with block_m=128 gave wrong results in 1 cell. The first, in CELL: FAULT."
std::string sentence(const WrongResults& wrong);

}  // namespace moetune
