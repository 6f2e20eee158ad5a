// One criterion an option.
#include "cli/options/pick.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/text/units.h"
#include "cli/text/output.h"
#include "workload/model.h"

namespace moetune {
namespace {

using Words = std::vector<std::string>;

// An option that is given, the words that it stands for, and those that a cell has there, of which any may be wanted.
// The first of these is shown to people.
struct Criterion {
  std::string given;  // "--tokens 12"
  std::set<std::string> wanted;
  std::function<Words(const Cell&)> words;

  bool holds(const Cell& cell) const {
    return std::ranges::any_of(words(cell), [&](const std::string& word) { return wanted.contains(word); });
  }
};
using Criteria = std::vector<Criterion>;

// Sizes as the options give them: before tp divides the side that comes from the intermediate width.
bool is_up(const Cell& cell) { return cell.shape.layer.projection == Projection::up; }
int64_t whole_n(const Cell& cell) { return cell.shape.layer.n * (is_up(cell) ? cell.shape.layer.tp : 1); }
int64_t whole_k(const Cell& cell) { return cell.shape.layer.k * (is_up(cell) ? 1 : cell.shape.layer.tp); }
int64_t hidden(const Cell& cell) { return is_up(cell) ? whole_k(cell) : whole_n(cell); }
int64_t width(const Cell& cell) { return is_up(cell) ? whole_n(cell) : whole_k(cell); }

// A gated model's up projection has two columns for each of its intermediate width.
Words intermediate_words(const Cell& cell) {
  const int64_t all = width(cell);
  if (!is_up(cell) || all % 2 != 0) return {std::to_string(all)};
  return {fmt::format("{} or half of it", all), std::to_string(all), std::to_string(all / 2)};
}

// A recording without a layer stands for all of them.
Words routing_words_of(const Cell& cell) {
  RoutingSpec all = cell.routing;
  if (all.name == "trace") all.layer.clear();
  return {text(cell.routing), text(all)};
}

Criteria criteria_of(const TunedTable& table, const CellOptions& options) {
  Criteria criteria;
  // The words of a list, each as `parsed` makes text of it, against `of` the cell.
  const auto add = [&](std::string_view option, const Words& given, auto parsed, auto of) {
    if (given.empty()) return;
    const Words words = list_words(given, option);
    criteria.push_back({fmt::format("{} {}", option, fmt::join(words, ",")), {}, of});
    for (const std::string& word : words) criteria.back().wanted.emplace(parsed(word));
  };
  const auto add_numbers = [&](std::string_view option, const std::string& given, auto of) {
    if (given.empty()) return;
    criteria.push_back({fmt::format("{} {}", option, given), {}, [of](const Cell& cell) -> Words {
                          return {std::to_string(of(cell))};
                        }});
    for (const int64_t value : parse_integers(given, option, 0, std::numeric_limits<int64_t>::max()))
      criteria.back().wanted.insert(std::to_string(value));
  };
  const auto named = [](auto member) {  // of a layer, by the name of its value
    return [member](const Cell& cell) -> Words { return {std::string(name(cell.shape.layer.*member))}; };
  };
  const auto size = [](auto member) { return [member](const Cell& cell) { return cell.shape.layer.*member; }; };
  if (!options.suite.empty()) {
    CellOptions suite;
    suite.suite = options.suite, suite.seed = options.seed;
    criteria.push_back({"--suite " + options.suite, {}, [](const Cell& cell) -> Words { return {id(cell)}; }});
    for (const Cell& cell : make_cells(suite)) criteria.back().wanted.insert(id(cell));
  }
  const auto model = [&](const std::string& word) {  // a name that the table has, or one that stands for a model
    const auto has = [&](const Entry& entry) { return entry.cell.shape.layer.model == word; };
    return std::ranges::any_of(table.entries, has) ? word : find_model(word).name;
  };
  add("--model", options.models, model, [](const Cell& cell) -> Words { return {cell.shape.layer.model}; });
  const auto projection = [](const std::string& word) { return name(parse_projection(word)); };
  add("--projection", options.projections, projection, named(&Layer::projection));
  const auto op = [](const std::string& word) { return name(parse_op(word)); };
  add("--op", options.ops, op, [](const Cell& cell) -> Words { return {std::string(name(cell.shape.op))}; });
  const auto dtype = [](const std::string& word) { return name(parse_dtype(word)); };
  add("--dtype", options.dtypes, dtype, named(&Layer::dtype));
  add_numbers("--tokens", fmt::format("{}", fmt::join(options.tokens, ",")), std::mem_fn(&Cell::tokens));
  const auto routing = [](const std::string& word) { return text(parse_routing(word)); };
  add("--routing", options.routings, routing, routing_words_of);
  add_numbers("--experts", options.experts, size(&Layer::experts));
  add_numbers("--top-k", options.top_k, size(&Layer::top_k));
  add_numbers("--n", options.n, whole_n);
  add_numbers("--k", options.k, whole_k);
  add_numbers("--hidden", options.hidden, hidden);
  add_numbers("--intermediate", options.intermediate, width);
  if (!options.intermediate.empty()) criteria.back().words = intermediate_words;
  add_numbers("--tp", options.tp, size(&Layer::tp));
  add_numbers("--ep", options.ep, size(&Layer::ep));
  add_numbers("--seed", options.seed, std::mem_fn(&Cell::seed));
  for (const CellOption& one : cell_options())
    if (one.flag && options.fusion.*one.flag)
      criteria.push_back({typed_name(one), {"yes"}, [flag = one.flag](const Cell& cell) -> Words {
                            return {text(cell.shape.fusion), cell.shape.fusion.*flag ? "yes" : "no"};
                          }});
  return criteria;
}

// "8, 16 and 4 more": the different values that the table has.
std::string values_text(const TunedTable& table, const Criterion& criterion) {
  constexpr size_t kMost = 8;
  std::vector<std::string> values;
  for (const Entry& entry : table.entries)
    if (std::string value = criterion.words(entry.cell).front(); std::ranges::find(values, value) == values.end())
      values.push_back(std::move(value));
  const size_t more = values.size() > kMost ? values.size() - kMost : 0;
  values.resize(values.size() - more);
  return fmt::format("{}{}", fmt::join(values, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

// The options that no cell has by themselves, with what the cells have; else all of them, which no cell has together.
Error nothing_left(const TunedTable& table, const std::string& file, const Criteria& criteria) {
  std::vector<std::string> alone, all;
  for (const Criterion& criterion : criteria) {
    all.push_back(criterion.given);
    if (std::ranges::none_of(table.entries, [&](const Entry& entry) { return criterion.holds(entry.cell); }))
      alone.push_back(fmt::format("{} (the table has {})", criterion.given, values_text(table, criterion)));
  }
  return Error(Exit::no,
               alone.empty() ? fmt::format("{}: no cell has all of {}", file, fmt::join(all, ", "))
                             : fmt::format("{}: no cell has {}", file, fmt::join(alone, " or ")),
               fmt::format("see its cells with: moetune export {}", shell_quoted(file)));
}

}  // namespace

void pick_entries(TunedTable& table, const std::string& file, const CellOptions& options) {
  if (table.entries.empty()) throw request_error(fmt::format("{}: the table has no entries", file));
  const Criteria criteria = criteria_of(table, options);
  std::vector<Entry> picked;
  for (const Entry& entry : table.entries)
    if (std::ranges::all_of(criteria, [&](const Criterion& criterion) { return criterion.holds(entry.cell); }))
      picked.push_back(entry);
  if (picked.empty()) throw nothing_left(table, file, criteria);
  table.entries = std::move(picked);
}

}  // namespace moetune
