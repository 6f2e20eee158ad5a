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

struct Criterion {
  std::string given;  // "--tokens 12"
  std::function<bool(const Cell&)> holds;
  std::function<std::string(const Cell&)> value;  // what the cell has there
};
using Criteria = std::vector<Criterion>;

std::string given_text(std::string_view option, const std::vector<std::string>& words) {
  return fmt::format("{} {}", option, fmt::join(words, ","));
}

// The option's words, parsed, each against what the cell has.
template <typename Parse, typename Of, typename Text>
void add_list(Criteria& criteria, std::string_view option, const std::vector<std::string>& given, Parse parse, Of of,
              Text text_of) {
  if (given.empty()) return;
  const std::vector<std::string> words = list_words(given, option);
  std::vector<decltype(parse(words[0]))> values;
  for (const std::string& word : words) values.push_back(parse(word));
  criteria.push_back({given_text(option, words),
                      [values, of](const Cell& cell) { return std::ranges::find(values, of(cell)) != values.end(); },
                      [of, text_of](const Cell& cell) { return std::string(text_of(of(cell))); }});
}

using Number = int64_t (*)(const Cell&);

void add_numbers(Criteria& criteria, std::string_view option, const std::string& given, Number of) {
  if (given.empty()) return;
  const std::vector<int64_t> values = parse_integers(given, option, 0, std::numeric_limits<int64_t>::max());
  criteria.push_back({fmt::format("{} {}", option, given),
                      [values, of](const Cell& cell) { return std::ranges::find(values, of(cell)) != values.end(); },
                      [of](const Cell& cell) { return std::to_string(of(cell)); }});
}

// Sizes as the options give them: before tp divides the side that comes from the intermediate width.
bool is_up(const Cell& cell) { return cell.shape.layer.projection == Projection::up; }
int64_t whole_n(const Cell& cell) { return cell.shape.layer.n * (is_up(cell) ? cell.shape.layer.tp : 1); }
int64_t whole_k(const Cell& cell) { return cell.shape.layer.k * (is_up(cell) ? 1 : cell.shape.layer.tp); }
int64_t hidden(const Cell& cell) { return is_up(cell) ? whole_k(cell) : whole_n(cell); }
int64_t width(const Cell& cell) { return is_up(cell) ? whole_n(cell) : whole_k(cell); }

// A gated model's up projection has two columns for each of its intermediate width.
void add_intermediate(Criteria& criteria, const std::string& given) {
  if (given.empty()) return;
  const std::vector<int64_t> values = parse_integers(given, "--intermediate", 0, kMaxSide);
  const auto has = [values](int64_t width) { return std::ranges::find(values, width) != values.end(); };
  criteria.push_back(
      {"--intermediate " + given,
       [has](const Cell& cell) {
         return has(width(cell)) || (is_up(cell) && width(cell) % 2 == 0 && has(width(cell) / 2));
       },
       [](const Cell& cell) { return fmt::format("{}{}", width(cell), is_up(cell) ? " or half of it" : ""); }});
}

// A name that the table has, or one that stands for a model.
void add_models(Criteria& criteria, const TunedTable& table, const std::vector<std::string>& given) {
  const auto parse = [&](const std::string& word) {
    const auto named = [&](const Entry& entry) { return entry.cell.shape.layer.model == word; };
    return std::ranges::any_of(table.entries, named) ? word : find_model(word).name;
  };
  add_list(
      criteria, "--model", given, parse, [](const Cell& cell) { return cell.shape.layer.model; }, std::identity());
}

// A recording without a layer stands for all of them.
void add_routings(Criteria& criteria, const std::vector<std::string>& given) {
  if (given.empty()) return;
  const std::vector<std::string> words = list_words(given, "--routing");
  std::vector<RoutingSpec> specs;
  for (const std::string& word : words) specs.push_back(parse_routing(word));
  criteria.push_back({given_text("--routing", words),
                      [specs](const Cell& cell) {
                        return std::ranges::any_of(specs, [&](const RoutingSpec& spec) {
                          RoutingSpec one = spec;
                          if (one.name == "trace" && one.layer.empty()) one.layer = cell.routing.layer;
                          return one == cell.routing;
                        });
                      },
                      [](const Cell& cell) { return text(cell.routing); }});
}

void add_suite(Criteria& criteria, const CellOptions& options) {
  if (options.suite.empty()) return;
  CellOptions suite;
  suite.suite = options.suite, suite.seed = options.seed;
  std::set<std::string> ids;
  for (const Cell& cell : make_cells(suite)) ids.insert(id(cell));
  criteria.push_back({"--suite " + options.suite, [ids](const Cell& cell) { return ids.contains(id(cell)); },
                      [](const Cell& cell) { return id(cell); }});
}

Criteria criteria_of(const TunedTable& table, const CellOptions& options) {
  Criteria criteria;
  add_suite(criteria, options);
  add_models(criteria, table, options.models);
  const auto layer = [](auto member) { return [member](const Cell& cell) { return cell.shape.layer.*member; }; };
  const auto name_of = [](auto value) { return name(value); };
  add_list(criteria, "--projection", options.projections, parse_projection, layer(&Layer::projection), name_of);
  add_list(
      criteria, "--op", options.ops, parse_op, [](const Cell& cell) { return cell.shape.op; }, name_of);
  add_list(criteria, "--dtype", options.dtypes, parse_dtype, layer(&Layer::dtype), name_of);
  add_numbers(criteria, "--tokens", fmt::format("{}", fmt::join(options.tokens, ",")),
              [](const Cell& cell) { return cell.tokens; });
  add_routings(criteria, options.routings);
  add_numbers(criteria, "--experts", options.experts, [](const Cell& cell) { return cell.shape.layer.experts; });
  add_numbers(criteria, "--top-k", options.top_k, [](const Cell& cell) { return cell.shape.layer.top_k; });
  add_numbers(criteria, "--n", options.n, whole_n);
  add_numbers(criteria, "--k", options.k, whole_k);
  add_numbers(criteria, "--hidden", options.hidden, hidden);
  add_intermediate(criteria, options.intermediate);
  add_numbers(criteria, "--tp", options.tp, [](const Cell& cell) { return cell.shape.layer.tp; });
  add_numbers(criteria, "--ep", options.ep, [](const Cell& cell) { return cell.shape.layer.ep; });
  add_numbers(criteria, "--seed", options.seed, [](const Cell& cell) { return static_cast<int64_t>(cell.seed); });
  for (const CellOption& one : cell_options())
    if (one.flag && options.fusion.*one.flag)
      criteria.push_back({typed_name(one), [flag = one.flag](const Cell& cell) { return cell.shape.fusion.*flag; },
                          [](const Cell& cell) { return text(cell.shape.fusion); }});
  return criteria;
}

// "8, 16 and 4 more": the different values that the table has.
std::string values_text(const TunedTable& table, const Criterion& criterion) {
  constexpr size_t kMost = 8;
  std::vector<std::string> values;
  for (const Entry& entry : table.entries)
    if (std::string value = criterion.value(entry.cell); std::ranges::find(values, value) == values.end())
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
