// `moetune diff`: what differs between two tables?
#include "check/differences.h"
#include "cli/commands/command.h"
#include "cli/tables/winners.h"
#include "record/fields.h"

namespace moetune {
namespace {

struct DiffOptions {
  std::string old_file, new_file, format;
  CellOptions cells;
};

struct Diff {
  TunedTable old_table, new_table;
  TableDifferences found;
};

// Empties the table where none of its cells is picked; the error tells why.
std::optional<Error> pick(TunedTable& table, const std::string& file, const CellOptions& options) {
  try {
    if (options != CellOptions{}) pick_entries(table, file, options);
  } catch (const Error& error) {
    if (error.exit() != Exit::no) throw;
    table.entries.clear();
    return error;
  }
  return std::nullopt;
}

bool won(const Entry* entry) { return entry && entry->skipped.empty(); }

// Of a winner what differs from the default.
std::string alone_text(const Entry& entry, const TunedTable& table) {
  return won(&entry) ? winner_text(entry, table.device) : "no winner: " + entry.skipped;
}

// Of two winners of a variant the knobs that differ; "(tie)" where the other table has it as a tie of its own winner.
std::string beside_text(const Entry& entry, const TunedTable& table, const Entry& other) {
  if (!won(&entry)) return alone_text(entry, table);
  const bool one_variant = won(&other) && same_variant(entry.candidate, other.candidate);
  const bool tie = std::ranges::find(other.ties, entry.candidate) != other.ties.end();
  return (one_variant ? difference(entry.candidate, other.candidate) : alone_text(entry, table)) +
         (tie ? " (tie)" : "");
}

std::string mark(TimeChange change) {
  return change == TimeChange::within_noise ? ""
         : change == TimeChange::untrusted  ? "noisy"
         : change == TimeChange::other_rows ? "other rows"
                                            : std::string(name(change));
}

// A change under 1 % is no "1.00x".
std::string change_text(const CellDifference& one) {
  const double percent = 100 * half_width(one.ratio) / one.ratio.value;
  return percent < 0.95 ? fmt::format("{:.3f}x ± {:.1f} %", one.ratio.value, percent) : ratio_text(one.ratio);
}

// Layer by layer the cells of one table alone, other winners, and times.
std::vector<HeadedTable> tables_of(const Diff& diff) {
  std::vector<HeadedTable> tables;
  for (const auto& layer : by_layer(diff.found.cells)) {
    Grid alone = cell_grid({{"only in"}, {"winner"}});
    Grid winners = cell_grid({{"old winner (knobs that differ)"}, {"new winner"}});
    Grid times = cell_grid({{"old", true}, {"new", true}, {"new / old", true}, {"change"}});
    for (const CellDifference* one : layer) {
      const Entry *before = one->old_entry, *after = one->new_entry;
      if (one->is_alone())
        add_row(alone, one->cell,
                {before ? "old" : "new",
                 before ? alone_text(*before, diff.old_table) : alone_text(*after, diff.new_table)});
      if (one->winner_changed)
        add_row(winners, one->cell,
                {beside_text(*before, diff.old_table, *after), beside_text(*after, diff.new_table, *before)});
      if (one->time)
        add_row(times, one->cell,
                {format_time(before->measurement.time.value), format_time(after->measurement.time.value),
                 change_text(*one), mark(*one->time)});
    }
    for (Grid* grid : {&alone, &winners, &times})
      if (!grid->rows.empty()) tables.push_back({{title(layer[0]->cell.shape)}, std::move(*grid)});
  }
  return tables;
}

// "2 of 36 cells differ: 1 in one table only, 1 with another winner."
std::string answer(const TableDifferences& found) {
  int64_t differ = 0, lone = 0, winners = 0, slower = 0, faster = 0, rows = 0;
  for (const CellDifference& one : found.cells) {
    differ += one.differs();
    lone += one.is_alone();
    winners += one.winner_changed;
    slower += one.time == TimeChange::slower;
    faster += one.time == TimeChange::faster;
    rows += one.time == TimeChange::other_rows;
  }
  std::vector<std::string> parts;
  const std::pair<int64_t, const char*> counts[] = {{lone, "in one table only"},
                                                    {winners, "with another winner"},
                                                    {slower, "slower"},
                                                    {faster, "faster"},
                                                    {rows, "with other rows"}};
  for (const auto& [count, what] : counts)
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  const std::string all = counted(found.cells.size(), "cell");
  const std::string cells =
      differ == 0 ? "No difference in " + all : fmt::format("{} of {} differ: {}", differ, all, fmt::join(parts, ", "));
  return fmt::format("{}.{}", cells, found.times_compared ? "" : " Times are not compared: the origins differ.");
}

std::string text_of(const DiffOptions& options, const Diff& diff, const Style& style) {
  const auto side = [](const std::string& which, const std::string& file, const TunedTable& table) {
    return fmt::format("{}: {}, {} on {}", which, file, counted(table.entries.size(), "cell"), table.device.name);
  };
  std::string out =
      bullets({side("old", options.old_file, diff.old_table), side("new", options.new_file, diff.new_table)}, style)
          .substr(1);
  out += bullets(diff.found.origin, style);
  if (const std::string tables = headed_tables_text(tables_of(diff), style); !tables.empty()) out += "\n" + tables;
  return out + "\n" + paragraph(answer(diff.found), style);
}

Json side_json(const std::string& file, const TunedTable& table) {
  return {{"file", file}, {"device", to_json(table.device)}, {"cells", table.entries.size()}};
}

Json winner_json(const Entry& entry) {
  if (!won(&entry)) return {{"skipped", entry.skipped}};
  return {{"candidate", to_json(entry.candidate)}, {"measurement", to_json(entry.measurement)}};
}

Json cell_json(const CellDifference& one) {
  Json json = {{"id", id(one.cell)}, {"cell", to_json(one.cell)}, {"differs", one.differs()}};
  if (one.is_alone()) json["only_in"] = one.old_entry ? "old" : "new";
  if (one.old_entry) json["old"] = winner_json(*one.old_entry);
  if (one.new_entry) json["new"] = winner_json(*one.new_entry);
  json["winner_changed"] = one.winner_changed;
  if (!one.time) return json;
  json["time"] = name(*one.time);
  json.update(estimate_json("ratio", one.ratio));
  return json;
}

Json to_json(const DiffOptions& options, const Diff& diff, const Invocation& invocation) {
  return {{"schema", "moetune.diff/1"},
          {"tool", tool_json(invocation.argv)},
          {"old", side_json(options.old_file, diff.old_table)},
          {"new", side_json(options.new_file, diff.new_table)},
          {"origin", diff.found.origin},
          {"times_compared", diff.found.times_compared},
          {"cells", json_list(diff.found.cells, cell_json)}};
}

Fields fields_of(const CellDifference& one) {
  const auto winner = [](const Entry* entry) { return won(entry) ? text(entry->candidate) : ""; };
  const auto time = [](const Entry* entry) {
    return won(entry) ? number_field(entry->measurement.time.value * 1e6) : "";
  };
  const auto ratio = [&](double value) { return one.time ? number_field(value) : ""; };
  Fields row;
  add_cell(row, one.cell);
  row.emplace_back("differs", boolean_field(one.differs()));
  row.emplace_back("only_in", !one.is_alone() ? "" : one.old_entry ? "old" : "new");
  row.emplace_back("winner_changed", boolean_field(one.winner_changed));
  row.emplace_back("old_winner", winner(one.old_entry));
  row.emplace_back("new_winner", winner(one.new_entry));
  row.emplace_back("old_us", time(one.old_entry));
  row.emplace_back("new_us", time(one.new_entry));
  row.emplace_back("time", one.time ? name(*one.time) : "");
  row.emplace_back("ratio", ratio(one.ratio.value));
  row.emplace_back("ratio_low", ratio(one.ratio.low));
  row.emplace_back("ratio_high", ratio(one.ratio.high));
  return row;
}

Exit run_diff(const DiffOptions& options, const Invocation& invocation) {
  const Format format = parse_format(options.format, kFormats);
  const Catalog catalog;
  Diff diff{read_table(options.old_file, catalog), read_table(options.new_file, catalog), {}};
  const std::optional<Error> none_old = pick(diff.old_table, options.old_file, options.cells);
  const std::optional<Error> none_new = pick(diff.new_table, options.new_file, options.cells);
  if (none_old && none_new) throw *none_old;
  diff.found = differences(diff.old_table, diff.new_table);
  if (format == Format::json)
    print(pretty_json(to_json(options, diff, invocation)));
  else
    print(format == Format::csv ? csv_of(diff.found.cells, [](const CellDifference& one) { return fields_of(one); })
                                : text_of(options, diff, style_of(format, invocation.terminal)));
  return diff.found.any() ? Exit::no : Exit::yes;
}

void declare_diff(OptionSet& set, DiffOptions& options) {
  set.argument("OLD", options.old_file, "A tuned table");
  set.argument("NEW", options.new_file, "Another one");
  declare(set, options.cells, "Cells to compare: those that match all options");
  declare_format(set, options.format, kFormats);
}

}  // namespace

Command diff_command() {
  return {.name = "diff",
          .summary = "Compare two tuned tables without measuring anything",
          .examples =
              "  moetune diff before.json after.json\n"
              "  moetune diff before.json after.json --op fwd --format markdown",
          .declare = with_options<DiffOptions, declare_diff, run_diff>};
}

}  // namespace moetune
