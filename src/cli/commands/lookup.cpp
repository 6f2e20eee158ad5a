// `moetune lookup`: what does this table say for this problem, and how good is the match?
#include <limits>

#include "cli/commands/command.h"
#include "cli/tables/winners.h"
#include "record/layer.h"

namespace moetune {
namespace {

struct LookupOptions {
  std::string table;
  CellOptions cells;
  std::string device;
  double max_distance = std::numeric_limits<double>::infinity();
  OutputFormat format = OutputFormat::text;
  bool verbose = false;
};

struct Found {
  Cell cell;
  Answer answer;
  const TunedLayer* layer = nullptr;  // with --projection ffn
};

Json answer_json(const TunedTable& table, const Found& found) {
  Json json = {
      {"cell", to_json(found.cell)}, {"match", name(found.answer.match)}, {"explanation", found.answer.explanation}};
  if (const auto& distance = found.answer.distance) {
    json["distance"] = rounded(distance->total());
    json["log_tokens_distance"] = rounded(distance->tokens);
    json["log_skew_distance"] = rounded(distance->skew);
  }
  if (found.answer.entry == nullptr) return json;
  if (const RobustChoice* choice = found.answer.choice)
    json["choice"] = to_json(*choice);
  else
    json["entry"] = to_json(*found.answer.entry, table.device);
  if (found.layer) json["layer"] = to_json(*found.layer);
  return json;
}

// The answer as an entry: of a choice its nearest cell, with the choice as the winner. Nothing without an answer.
std::optional<Entry> answered(const Answer& answer) {
  if (answer.entry == nullptr || !answer.entry->skipped.empty()) return std::nullopt;
  Entry entry = *answer.entry;
  if (const RobustChoice* choice = answer.choice) {
    entry.candidate = choice->candidate();
    const auto place = std::ranges::find(choice->cells, entry.cell) - choice->cells.begin();
    entry.measurement = {.time = choice->contenders[choice->chosen].times[static_cast<size_t>(place)]};
  }
  return entry;
}

// Layer by layer what matched, then the winners, then why.
std::string answers_text(const TunedTable& table, const std::vector<Found>& all, const Style& style) {
  std::vector<HeadedTable> tables;
  std::vector<std::string> reasons;
  for (const auto& layer : by_layer(all)) {
    Grid matches = cell_grid({{"match"}, {"time", true}, {"measured at"}});
    Grid winners = cell_grid({{style.verbose ? "winner" : "winner (knobs that differ from the default)"}});
    for (const Found* found : layer) {
      const Cell& cell = found->cell;
      const Answer& answer = found->answer;
      const std::optional<Entry> entry = answered(answer);
      add_row(matches, cell,
              {std::string(name(answer.match)), entry ? time_text(entry->measurement.time) : "",
               entry ? fmt::format("{} tokens, {}", entry->cell.tokens, text(entry->cell.routing)) : ""});
      add_row(winners, cell,
              {!entry          ? "none"
               : style.verbose ? text(entry->candidate)
                               : winner_text(*entry, table.device)});
      reasons.push_back(fmt::format("{}: {}", id(cell), answer.explanation));
      if (const std::string noise = entry && !answer.choice ? distrust(*entry) : ""; !noise.empty())
        reasons.back() += "; its winner is too noisy to trust: " + noise;
    }
    const std::vector<std::string> heading = {title(layer[0]->cell.shape)};
    tables.push_back({heading, std::move(matches)});
    tables.push_back({heading, std::move(winners)});
  }
  TunedTable answered_layers = table;
  std::erase_if(answered_layers.layers, [&](const TunedLayer& layer) {
    return std::ranges::none_of(all, [&](const Found& found) { return found.layer && found.layer->up == layer.up; });
  });
  std::ranges::move(layer_tables(answered_layers, style.verbose), std::back_inserter(tables));
  return headed_tables_text(tables, style) + bullets(reasons, style);
}

Exit run_lookup(const LookupOptions& options, const Invocation& invocation) {
  const std::vector<Cell> cells = make_cells(options.cells);
  TunedTable table = read_table(options.table, Catalog());
  const bool layers = asks_layers(options.cells);
  if (layers && table.layers.empty())
    note(invocation.terminal, "the table has no layers: these are the winners of up and of down by themselves");
  if (layers) table = layers_alone(std::move(table));
  std::unique_ptr<Backend> backend;
  DeviceOptions device;
  device.device = options.device;
  if (!options.device.empty()) backend = open_worker(device);

  const std::vector<Found> all = mapped(cells, [&](const Cell& cell) -> Found {
    const Answer answer = lookup(table, cell, backend ? &backend->device() : nullptr, options.max_distance);
    return {cell, answer, layers && answer.entry ? find_layer(table, answer.entry->cell) : nullptr};
  });
  const auto none = std::ranges::count(all, Match::none, [](const Found& found) { return found.answer.match; });
  const auto answer = [&](const Found& found) { return answer_json(table, found); };
  const Json json =
      document("lookup", invocation.argv,
               {{"table", options.table}, {"regime", name(table.regime)}, {"answers", json_list(all, answer)}});
  print_document(options.format, json,
                 answers_text(table, all, style_of(options.format, invocation.terminal, options.verbose)),
                 fmt::format("{} of {} answered, measured on {} ({}).", static_cast<int64_t>(all.size()) - none,
                             counted(all.size(), "cell"), table.device.name, name(table.regime)));
  return none > 0 ? Exit::no : Exit::yes;
}

void declare_lookup(OptionSet& set, LookupOptions& options) {
  set.argument("TABLE", options.table, "A tuned table");
  declare(set, options.cells);
  set.value(
      "--max-distance",
      [&](const std::string& word, const std::string& option) {
        options.max_distance = parse_number(word, option);
        if (options.max_distance < 0)
          throw request_error("--max-distance: a distance cannot be negative", "write it as 1.5");
      },
      "D", "The largest distance of an answer, in doublings of tokens or skew (max/mean rows) [any]");
  set.value("--device", options.device, "WORD", "Answer for this device: auto, cpu, cuda:0 [the table's own]",
            device_words);
  declare_format(set, options.format);
  set.flag("-v,--verbose", options.verbose, "Print all knobs of the winners");
}

}  // namespace

Command lookup_command() {
  return {.name = "lookup",
          .summary = "Look up a problem's candidate in a tuned table",
          .examples =
              "  moetune lookup moetune-table.json --model qwen3-30b-a3b --tokens 300\n"
              "  moetune lookup moetune-table.json --model qwen3-30b-a3b --tokens 1-4096*2 --device auto --format json",
          .declare = with_options<LookupOptions, declare_lookup, run_lookup>};
}

}  // namespace moetune
