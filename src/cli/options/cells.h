// The options that ask for cells, the same on every command, and as keys of suites. What cells they make:
// workload/cells.h.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/options/options.h"
#include "workload/cells.h"

namespace moetune {

/// --filter: a regular expression (ECMAScript) that a text must hold. One that was not given takes everything.
class Filter {
 public:
  Filter() = default;
  explicit Filter(const std::string& pattern);  // Exit::request for one that cannot be read
  bool takes(const std::string& text) const { return !expression_ || std::regex_search(text, *expression_); }
  const std::string& pattern() const { return pattern_; }

 private:
  std::string pattern_;
  std::optional<std::regex> expression_;
};

/// One product of lists of a suite, and where in its file it stands.
struct SuitePart {
  Where where;
  CellRequest request = {};
};

struct CellOptions {
  CellRequest request = {};
  std::map<std::string, std::string> given = {};  // its values as typed, by the names of options
  std::string suite = {};             // a name or a file, in place of all of the request but tokens and seed
  std::vector<SuitePart> parts = {};  // of the suite
  Filter filter = {};
};

/// An option of a CellRequest.
struct CellOption {
  std::string name;  // "top_k", as suites spell it: --top-k
  std::string help;
  std::string placeholder = {};  // of a flag empty
  bool list = false;
  WordSource words = {};
  /// Reads a word into the request; of a list one of its words. Errors of numbers begin with `where`.
  std::function<void(CellRequest&, const std::string& word, const std::string& where)> read = {};
  std::function<bool&(CellRequest&)> flag = {};
  /// What the request has, as fields_of spells the values of cells; nothing where it was not given.
  std::function<std::vector<std::string>(const CellRequest&)> asked = {};
};
const std::vector<CellOption>& cell_options();
std::vector<std::string> routing_words();  // that --routing takes
/// "--top-k".
std::string typed_name(const CellOption& option);

/// The parts of a suite: a built-in name, or a file. Errors name the place, and for an unknown word the nearest name.
std::vector<SuitePart> read_suite(const std::string& name_or_file);

/// The file that read_suite reads, whether it is there or not; empty for a built-in name.
std::filesystem::path suite_file(const std::string& name_or_file);

/// What a built-in suite is for; empty where it has no description.
std::string suite_description(const std::string& name);

/// The same from JSON. Keys are the options of cells without dashes, with '_' inside; an unknown key is an error.
std::vector<SuitePart> suite_from_json(const JsonAt& json);

/// The cells of a part of a suite. Errors name its place.
std::vector<Cell> make_cells(const SuitePart& part);

/// `title` is the heading of these options in --help.
void declare(OptionSet& set, CellOptions& options, const std::string& title = "Cells: the product of these lists");

/// One of them: "tp".
void declare(OptionSet& set, CellOptions& options, const std::string& name, const std::string& help);

/// The cells of the request, or of the suite's parts one after another, each once; --filter keeps those whose id it
/// takes. Of a suite, --tokens picks cells, and --seed is for the parts that name none. Exit::request errors name the
/// option.
std::vector<Cell> make_cells(const CellOptions& options);

/// Whether the cells are those of layers that are tuned as one: of --projection ffn, in a suite too.
bool asks_layers(const CellOptions& options);

/// The options that make this cell alone, except for the name of its model: "--experts", "8", "--top-k", ...
std::vector<std::string> cell_arguments(const Cell& cell);

}  // namespace moetune
