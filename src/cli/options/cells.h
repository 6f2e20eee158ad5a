// The options that make cells, the same on every command: a sweep is the product of its lists.
#pragma once
#include <filesystem>
#include <optional>
#include <regex>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/options/options.h"
#include "workload/problem.h"

namespace moetune {

/// --filter: a regular expression (ECMAScript) that a text must hold. One that was not given takes everything.
class Filter {
 public:
  explicit Filter(const std::string& pattern);  // Exit::request for one that cannot be read
  bool takes(const std::string& text) const { return !pattern_ || std::regex_search(text, *pattern_); }

 private:
  std::optional<std::regex> pattern_;
};

/// As typed; an empty text or list was not given.
struct CellOptions {
  std::vector<std::string> models = {}, projections = {}, ops = {}, tokens = {}, routings = {}, dtypes = {},
                           scales = {}, out_dtypes = {};
  std::string experts = {}, top_k = {}, hidden = {}, intermediate = {}, n = {}, k = {}, zero_experts = {}, tp = {},
              ep = {}, seed = {}, gated = {};
  std::string suite = {};   // a name or a file, instead of all others but the seed
  std::string filter = {};  // see Filter
  Fusion fusion = {};
  bool fast_sums = false;

  bool operator==(const CellOptions&) const = default;
};

/// One of them but --suite: of `list`, `value`, `flag` and `on` the member that it sets.
struct CellOption {
  const char *name, *help;  // "top_k", as suites spell it: --top-k
  const char* placeholder = nullptr;
  std::vector<std::string> CellOptions::*list = nullptr;
  std::string CellOptions::*value = nullptr;
  bool Fusion::*flag = nullptr;
  bool CellOptions::*on = nullptr;
  std::vector<std::string> (*words)() = nullptr;

  constexpr CellOption(const char* n, const char* h, const char* p, std::vector<std::string> CellOptions::*member,
                       std::vector<std::string> (*w)() = nullptr)
      : name(n), help(h), placeholder(p), list(member), words(w) {}
  constexpr CellOption(const char* n, const char* h, const char* p, std::string CellOptions::*member,
                       std::vector<std::string> (*w)() = nullptr)
      : name(n), help(h), placeholder(p), value(member), words(w) {}
  constexpr CellOption(const char* n, const char* h, bool Fusion::*member) : name(n), help(h), flag(member) {}
  constexpr CellOption(const char* n, const char* h, bool CellOptions::*member) : name(n), help(h), on(member) {}
};
std::span<const CellOption> cell_options();
std::vector<std::string> routing_words();  // that --routing takes
/// "--top-k".
std::string typed_name(const CellOption& option);

/// One product of lists of a suite, and where in its file it stands.
struct SuitePart {
  std::string where;
  CellOptions options = {};
};

/// The parts of a suite: a built-in name, or a file. Errors name the place, and for an unknown word the nearest name.
std::vector<SuitePart> read_suite(const std::string& name_or_file);

/// The file that read_suite reads, whether it is there or not; empty for a built-in name.
std::filesystem::path suite_file(const std::string& name_or_file);

/// What a built-in suite is for; empty where it doesn't tell.
std::string suite_description(const std::string& name);

/// The same from JSON. Keys are the options of cells without dashes, with '_' inside; an unknown key is an error.
std::vector<SuitePart> suite_from_json(const JsonAt& json);

/// `title` is the heading of these options in --help.
void declare(OptionSet& set, CellOptions& options, const std::string& title = "Cells: the product of these lists");

/// The product, in the order model, tp, ep, projection, op, dtype, scales, dtype of Y, routing, tokens; duplicates
/// dropped. A trace that names no layer becomes one cell per recorded layer, and without --tokens has its recorded
/// count; --filter leaves those whose id it takes. Without --dtype, cells have the format of the model's checkpoint,
/// and bf16 for gradients. With both projections, permute_x goes to up, permute_y, topk_weights and
/// weight_gradient to down; with several ops, bias and by_slot go to fwd, accumulate and fp32_dw to dw, weight_gradient
/// to dx; sum_slots goes to cells that may_sum_slots; gates go to fwd of up or, where dx is listed, to dx of down.
/// --projection ffn is fwd of up with permute_x and an activation, and of down with permute_y (with by_slot neither
/// stores in expert order) and topk_weights. Of a suite, the products of its parts one after another; --seed is for
/// those that name none. Exit::request errors name the option.
std::vector<Cell> make_cells(const CellOptions& options);

/// Whether the cells are those of layers that are tuned as one: of --projection ffn, in a suite too.
bool asks_layers(const CellOptions& options);

/// Sentences on what models' files leave open, and on checkpoints of another format than the one that --dtype names.
std::vector<std::string> model_notes(const CellOptions& options);

/// The options that make this cell alone, except for the name of its model: "--experts", "8", "--top-k", ...
std::vector<std::string> cell_arguments(const Cell& cell);

/// Realises every routing once, so that a cell that cannot be made ends the command before hours of work.
void require_problems(const std::vector<Cell>& cells);

/// --seed as a number, 0 where not given.
uint64_t seed_of(const CellOptions& options);

}  // namespace moetune
