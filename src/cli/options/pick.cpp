// Cells by the options that make them: one criterion an option.
#include "cli/options/contenders.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text/text.h"
#include "base/text/units.h"
#include "cli/text/output.h"
#include "record/layer.h"
#include "workload/model.h"

namespace moetune {
namespace {

using Words = std::vector<std::string>;

// An option that is given, and the words that it stands for, of which a cell may have any.
struct Criterion {
  std::string option;  // as cell_options spells it, or "suite"
  std::string given;   // "--tokens 12"
  std::set<std::string> wanted;
};

// What a cell has there; the first is shown to people. Sizes are as the options give them: before tp divides the side
// that comes from the intermediate width.
Words words_of(const Cell& cell, std::string_view option) {
  const Layer& layer = cell.shape.layer;
  const bool up = layer.projection == Projection::up;
  const std::string n = std::to_string(layer.n * (up ? layer.tp : 1)),
                    k = std::to_string(layer.k * (up ? 1 : layer.tp));
  if (option == "suite") return {id(cell)};
  if (option == "n") return {n};
  if (option == "k") return {k};
  if (option == "hidden") return {up ? k : n};
  if (option == "intermediate") {  // of a gated model, up has two columns for each of its width
    if (!up || layer.n * layer.tp % 2 != 0) return {up ? n : k};
    return {n + " or half of it", n, std::to_string(layer.n * layer.tp / 2)};
  }
  if (option == "routing") {  // a recording without a layer stands for all of them
    RoutingSpec all = cell.routing;
    if (all.name == "trace") all.layer.clear();
    return {text(cell.routing), text(all)};
  }
  if (option == "gated") return {std::string(name(cell.shape.fusion.activation))};
  const Fields fields = fields_of(cell);
  const std::string& word = std::ranges::find(fields, option, &Fields::value_type::first)->second;
  return word == "true" || word == "false" ? Words{text(cell.shape.fusion), word} : Words{word};
}

bool holds(const Criterion& criterion, const Cell& cell) {
  return std::ranges::any_of(words_of(cell, criterion.option),
                             [&](const std::string& word) { return criterion.wanted.contains(word); });
}

// What an option asks for, as cells have it. A model's word may be a name that the table has, or one that stands for a
// model: for its kinds of layers, if these differ.
std::set<std::string> wanted_of(const CellOption& option, const Words& asked, const TunedTable& table) {
  if (option.name != "model") return {asked.begin(), asked.end()};
  std::set<std::string> names;
  for (const std::string& word : asked)
    if (contains(table.entries, word, [](const Entry& entry) { return entry.cell.shape.layer.model; }))
      names.insert(word);
    else
      for (const Model& model : find_models(word)) names.insert(model.name);
  return names;
}

std::vector<Criterion> criteria_of(const TunedTable& table, const CellOptions& options) {
  std::vector<Criterion> criteria;
  if (!options.suite.empty()) {
    const CellOptions all{.request = {.seed = options.request.seed}, .suite = options.suite, .parts = options.parts};
    const Words ids = mapped(make_cells(all), id);
    criteria.push_back({"suite", "--suite " + options.suite, {ids.begin(), ids.end()}});
  }
  for (const CellOption& one : cell_options()) {
    const Words asked = one.asked(options.request);
    if (asked.empty()) continue;
    const std::string& given = value_in(options.given, one.name);  // nothing for a flag
    criteria.push_back({one.name, typed_name(one) + (given.empty() ? "" : " " + given), wanted_of(one, asked, table)});
  }
  return criteria;
}

// "8, 16 and 4 more": the different values that the table has.
std::string values_text(const TunedTable& table, const Criterion& criterion) {
  constexpr size_t kMost = 8;
  const auto value = [&](const Entry& entry) { return words_of(entry.cell, criterion.option).front(); };
  return some_of(mapped(table.entries, value), kMost);
}

// The options that no cell has by themselves, with what the cells have; else all of them, which no cell has together.
Error nothing_left(const TunedTable& table, const std::string& file, const std::vector<Criterion>& criteria) {
  std::vector<std::string> alone, all;
  for (const Criterion& criterion : criteria) {
    all.push_back(criterion.given);
    if (std::ranges::none_of(table.entries, [&](const Entry& entry) { return holds(criterion, entry.cell); }))
      alone.push_back(fmt::format("{} (the table has {})", criterion.given, values_text(table, criterion)));
  }
  return Error(Exit::no,
               alone.empty() ? fmt::format("{}: no cell has all of {}", file, fmt::join(all, ", "))
                             : fmt::format("{}: no cell has {}", file, fmt::join(alone, " or ")),
               fmt::format("see its cells with: moetune export {}", shell_quoted(file)));
}

// Leaves the cells that make layers.
void pick_layers(std::vector<Entry>& entries, const std::string& file) {
  std::set<size_t> parts;
  for (const auto& [up, down] : layers_among(mapped(entries, &Entry::cell))) parts.insert({up, down});
  if (parts.empty())
    throw Error(Exit::no, fmt::format("{}: no two of these cells are up and down of a layer", file),
                "add them: moetune tune --projection ffn --append");
  entries = mapped(parts, [&](size_t part) { return entries[part]; });
}

}  // namespace

std::vector<std::string> cell_arguments(const Cell& cell) {
  static const std::map<std::string_view, std::string> usual = {
      {"projection", "up"}, {"op", "fwd"}, {"out_dtype", "bf16"}, {"zero_experts", "0"}, {"weights", "as-is"},
      {"gated", ""},        {"tp", "1"},   {"ep", "1"},           {"seed", "0"}};
  std::set<std::string_view> implied = {"model", "hidden", "intermediate"};  // by the other sizes
  if (!is_quantised(cell.shape.layer.format)) implied.insert({"scales", "out_dtype"});
  Words arguments;
  for (const CellOption& one : cell_options()) {
    if (implied.contains(one.name)) continue;
    const Words words = words_of(cell, one.name);
    if (one.flag) {
      if (words.back() == "true") arguments.push_back(typed_name(one));
    } else if (const auto known = usual.find(one.name); known == usual.end() || known->second != words.front()) {
      arguments.insert(arguments.end(), {typed_name(one), words.front()});
    }
  }
  return arguments;
}

void pick_entries(TunedTable& table, const std::string& file, const CellOptions& options) {
  if (table.entries.empty()) throw request_error(fmt::format("{}: the table has no entries", file));
  const std::vector<Criterion> criteria = criteria_of(table, options);
  std::vector<Entry> picked;
  for (const Entry& entry : table.entries)
    if (std::ranges::all_of(criteria, [&](const Criterion& criterion) { return holds(criterion, entry.cell); }))
      picked.push_back(entry);
  if (picked.empty()) throw nothing_left(table, file, criteria);
  std::erase_if(picked, [&](const Entry& entry) {
    return !options.filter.takes(
        fmt::format("{} {}", id(entry.cell), entry.candidate.variant ? text(entry.candidate) : ""));
  });
  if (picked.empty())
    throw Error(Exit::no, fmt::format("{}: no cell and its winner hold '{}'", file, options.filter.pattern()),
                fmt::format("see its cells with: moetune export {}", shell_quoted(file)));
  if (options.suite.empty() && asks_layers(options)) pick_layers(picked, file);
  table.entries = std::move(picked);
}

}  // namespace moetune
