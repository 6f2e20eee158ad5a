// The options that make cells, the same on every command: a sweep is the product of its lists.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "cli/options/options.h"
#include "workload/problem.h"

namespace moetune {

/// As typed; an empty text or list was not given.
struct CellOptions {
  std::vector<std::string> models = {}, projections = {}, ops = {}, tokens = {}, routings = {}, dtypes = {};
  std::string experts = {}, top_k = {}, hidden = {}, intermediate = {}, n = {}, k = {}, tp = {}, ep = {}, seed = {};
  std::string suite = {};  // a name or a file, instead of all others but the seed
  Fusion fusion = {};

  bool operator==(const CellOptions&) const = default;
};

/// One of them but --suite: of `list`, `value` and `flag` the member that it sets.
struct CellOption {
  const char *name, *help;  // "top_k", as suites spell it: --top-k
  const char* placeholder = nullptr;
  std::vector<std::string> CellOptions::*list = nullptr;
  std::string CellOptions::*value = nullptr;
  bool Fusion::*flag = nullptr;
  std::vector<std::string> (*words)() = nullptr;
};
std::span<const CellOption> cell_options();
/// "--top-k".
std::string typed_name(const CellOption& option);

/// `title` is the heading of these options in --help.
void declare(OptionSet& set, CellOptions& options, const std::string& title = "Cells: the product of these lists");

/// The product, in the order model, tp, ep, projection, op, dtype, routing, tokens; duplicates dropped. A trace that
/// names no layer becomes one cell per recorded layer, and without --tokens has its recorded count. With both
/// projections, permute_x and sum_slots go to up, permute_y, topk_weights and weight_gradient to down; with several
/// ops, accumulate and fp32_dw go to dw, sum_slots and weight_gradient to dx. Of a suite, the products of its parts one
/// after another; --seed is for those that name none. Exit::request errors name the option.
std::vector<Cell> make_cells(const CellOptions& options);

/// The options that make this cell alone, except for the name of its model: "--experts", "8", "--top-k", ...
std::vector<std::string> cell_arguments(const Cell& cell);

/// Realises every routing once, so that a cell that cannot be made ends the command before hours of work.
void require_problems(const std::vector<Cell>& cells);

/// --seed as a number, 0 where not given.
uint64_t seed_of(const CellOptions& options);

}  // namespace moetune
