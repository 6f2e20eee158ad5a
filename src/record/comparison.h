// How winners compare with others over many cells, op by op. Nothing here measures.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/text/grid.h"
#include "base/json.h"
#include "workload/problem.h"

namespace moetune {

/// How many times as fast a cell's winner is as others, by their names.
struct CellSpeedups {
  Cell cell;
  std::vector<std::pair<std::string, double>> factors;
};

/// One op's cells beside one other, or beside the fastest other of each cell.
struct Comparison {
  Op op = Op::fwd;
  std::string other;
  double mean = 0;  // geometric
  double least = 0, most = 0;
  std::string least_cell;  // where the winner does worst
  size_t cells = 0;        // that have a time of it
};

/// The last comparison of an op with several others: with the fastest of them in each cell that has a time of each. The
/// default and kernels that moetune exported are not among them.
constexpr const char* kFastestOther = "fastest in each cell";

/// In the order in which ops and others appear; none for ops whose winners have nothing beside them.
std::vector<Comparison> compare(const std::vector<CellSpeedups>& cells);

/// A row a comparison.
Grid grid_of(const std::vector<Comparison>& comparisons);
Json to_json(const Comparison& comparison);

}  // namespace moetune
