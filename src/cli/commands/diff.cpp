// `moetune diff`: what differs between two tables?
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/pretty.h"
#include "base/text/units.h"
#include "check/differences.h"
#include "cli/commands/command.h"
#include "cli/options/cells.h"
#include "cli/options/pick.h"
#include "cli/tables/winners.h"
#include "cli/text/headed_tables.h"
#include "cli/text/output.h"
#include "cli/text/wording.h"
#include "record/fields.h"
#include "record/winner_text.h"

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

std::string no_winner(const Entry& entry) { return "no winner: " + entry.skipped; }

bool is_tie(const Entry& entry, const Candidate& candidate) {
  return std::ranges::find(entry.ties, candidate) != entry.ties.end();
}

// An entry and the device of its table.
struct Side {
  const Entry& entry;
  const DeviceInfo& device;
};

std::string alone_text(const Side& side) {
  return side.entry.skipped.empty() ? winner_text(side.entry, side.device) : no_winner(side.entry);
}

// Of two winners of a variant the knobs that differ, of other winners what differs from the default; "(tie)" where the
// other table has it as a tie of its own winner.
std::string beside_text(const Side& side, const Side& other) {
  const Entry& entry = side.entry;
  if (!entry.skipped.empty()) return no_winner(entry);
  const bool one_variant = other.entry.skipped.empty() && entry.candidate.variant == other.entry.candidate.variant;
  return (one_variant ? difference(entry.candidate, other.entry.candidate) : alone_text(side)) +
         (is_tie(other.entry, entry.candidate) ? " (tie)" : "");
}

std::string mark(TimeChange change) {
  switch (change) {
    case TimeChange::within_noise:
      return "";
    case TimeChange::faster:
      return "faster";
    case TimeChange::slower:
      return "slower";
    case TimeChange::untrusted:
      return "noisy";
    case TimeChange::other_rows:
      return "other rows";
  }
  return "";
}

using Cells = std::vector<const CellDifference*>;

Grid lone_grid(const Cells& cells, const Diff& diff) {
  Grid grid{cell_columns(), {}};
  grid.columns.insert(grid.columns.end(), {{"only in"}, {"winner"}});
  for (const CellDifference* one : cells) {
    if (one->old_entry && one->new_entry) continue;
    const Side side =
        one->old_entry ? Side{*one->old_entry, diff.old_table.device} : Side{*one->new_entry, diff.new_table.device};
    grid.rows.push_back(cell_row(one->cell()));
    grid.rows.back().emplace_back(one->old_entry ? "old" : "new");
    grid.rows.back().push_back(alone_text(side));
  }
  return grid;
}

Grid winner_grid(const Cells& cells, const Diff& diff) {
  Grid grid{cell_columns(), {}};
  grid.columns.insert(grid.columns.end(), {{"old winner, by what differs"}, {"new winner"}});
  for (const CellDifference* one : cells) {
    if (!one->winner_changed) continue;
    grid.rows.push_back(cell_row(one->cell()));
    const Side before{*one->old_entry, diff.old_table.device}, after{*one->new_entry, diff.new_table.device};
    grid.rows.back().push_back(beside_text(before, after));
    grid.rows.back().push_back(beside_text(after, before));
  }
  return grid;
}

// A change under 1 % is no "1.00x".
std::string change_text(const CellDifference& one) {
  const double percent = 100 * half_width(one.ratio) / one.ratio.value;
  return percent < 0.95 ? fmt::format("{:.3f}x ± {:.1f} %", one.ratio.value, percent) : ratio_text(one.ratio);
}

Grid time_grid(const Cells& cells) {
  Grid grid{cell_columns(), {}};
  grid.columns.insert(grid.columns.end(), {{"old", true}, {"new", true}, {"new / old", true}, {"change"}});
  for (const CellDifference* one : cells) {
    if (!one->time) continue;
    grid.rows.push_back(cell_row(one->cell()));
    grid.rows.back().push_back(format_time(one->old_entry->measurement.time.value));
    grid.rows.back().push_back(format_time(one->new_entry->measurement.time.value));
    grid.rows.back().push_back(change_text(*one));
    grid.rows.back().push_back(mark(*one->time));
  }
  return grid;
}

// Layer by layer.
std::vector<HeadedTable> tables_of(const Diff& diff) {
  const TableDifferences& found = diff.found;
  std::vector<Cell> cells;
  for (const CellDifference& one : found.cells) cells.push_back(one.cell());
  std::vector<HeadedTable> tables;
  for (const std::vector<size_t>& layer : by_layer(cells)) {
    Cells here;
    for (const size_t i : layer) here.push_back(&found.cells[i]);
    for (Grid grid : {lone_grid(here, diff), winner_grid(here, diff), time_grid(here)})
      if (!grid.rows.empty()) tables.push_back({{title(cells[layer[0]].shape)}, std::move(grid)});
  }
  return tables;
}

// "2 of 36 cells differ: 1 in one table only, 1 with another winner."
std::string answer(const TableDifferences& found) {
  int64_t differ = 0, lone = 0, winners = 0, slower = 0, faster = 0, rows = 0;
  for (const CellDifference& one : found.cells) {
    differ += one.differs();
    lone += !one.old_entry || !one.new_entry;
    winners += one.winner_changed;
    slower += one.time == TimeChange::slower;
    faster += one.time == TimeChange::faster;
    rows += one.time == TimeChange::other_rows;
  }
  std::vector<std::string> parts;
  const auto add = [&](int64_t count, std::string_view what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
  };
  add(lone, "in one table only");
  add(winners, "with another winner");
  add(slower, "slower");
  add(faster, "faster");
  add(rows, "with other rows");
  const auto all = static_cast<int64_t>(found.cells.size());
  const std::string cells =
      differ == 0 ? fmt::format("No difference in {}", counted(all, "cell", "cells"))
                  : fmt::format("{} of {} differ: {}", differ, counted(all, "cell", "cells"), fmt::join(parts, ", "));
  return fmt::format("{}.{}", cells, found.times_compared ? "" : " Times are not compared: the origins differ.");
}

std::string text_of(const DiffOptions& options, const Diff& diff, Format format, const Terminal& terminal) {
  const int columns = table_columns(format, terminal);
  const auto side = [](const std::string& which, const std::string& file, const TunedTable& table) {
    return fmt::format("{}: {}, {} on {}", which, file,
                       counted(static_cast<int64_t>(table.entries.size()), "cell", "cells"), table.device.name);
  };
  std::string out =
      bullets({side("old", options.old_file, diff.old_table), side("new", options.new_file, diff.new_table)}, format,
              columns)
          .substr(1);
  out += bullets(diff.found.origin, format, columns);
  if (const std::string tables = headed_tables_text(tables_of(diff), format, columns); !tables.empty())
    out += "\n" + tables;
  return out + "\n" + paragraph(answer(diff.found), columns);
}

Json side_json(const std::string& file, const TunedTable& table) {
  return {{"file", file}, {"device", to_json(table.device)}, {"cells", table.entries.size()}};
}

Json winner_json(const Entry& entry) {
  if (!entry.skipped.empty()) return {{"skipped", entry.skipped}};
  return {{"candidate", to_json(entry.candidate)}, {"measurement", to_json(entry.measurement)}};
}

Json to_json(const CellDifference& one) {
  Json json = {{"id", id(one.cell())}, {"cell", to_json(one.cell())}, {"differs", one.differs()}};
  if (!one.old_entry || !one.new_entry) json["only_in"] = one.old_entry ? "old" : "new";
  if (one.old_entry) json["old"] = winner_json(*one.old_entry);
  if (one.new_entry) json["new"] = winner_json(*one.new_entry);
  json["winner_changed"] = one.winner_changed;
  if (!one.time) return json;
  json["time"] = name(*one.time);
  json["ratio"] = rounded(one.ratio.value);
  json["ratio_low"] = rounded(one.ratio.low);
  json["ratio_high"] = rounded(one.ratio.high);
  return json;
}

Json to_json(const DiffOptions& options, const Diff& diff, const Invocation& invocation) {
  Json cells = Json::array();
  for (const CellDifference& one : diff.found.cells) cells.push_back(to_json(one));
  return {{"schema", "moetune.diff/1"},
          {"tool", tool_json(invocation.argv)},
          {"old", side_json(options.old_file, diff.old_table)},
          {"new", side_json(options.new_file, diff.new_table)},
          {"origin", diff.found.origin},
          {"times_compared", diff.found.times_compared},
          {"cells", std::move(cells)}};
}

std::string winner_field(const Entry* entry) { return entry && entry->skipped.empty() ? text(entry->candidate) : ""; }

Fields fields_of(const CellDifference* one) {
  Fields row;
  add_cell(row, one ? one->cell() : Cell{});
  const Entry* old_entry = one ? one->old_entry : nullptr;
  const Entry* new_entry = one ? one->new_entry : nullptr;
  const bool timed = one && one->time;
  const auto time = [](const Entry* entry) {
    return entry && entry->skipped.empty() ? number_field(entry->measurement.time.value * 1e6) : "";
  };
  row.emplace_back("differs", one ? boolean_field(one->differs()) : "");
  row.emplace_back("only_in", old_entry && new_entry ? "" : old_entry ? "old" : "new");
  row.emplace_back("winner_changed", one ? boolean_field(one->winner_changed) : "");
  row.emplace_back("old_winner", winner_field(old_entry));
  row.emplace_back("new_winner", winner_field(new_entry));
  row.emplace_back("old_us", time(old_entry));
  row.emplace_back("new_us", time(new_entry));
  row.emplace_back("time", timed ? std::string(name(*one->time)) : "");
  row.emplace_back("ratio", timed ? number_field(one->ratio.value) : "");
  row.emplace_back("ratio_low", timed ? number_field(one->ratio.low) : "");
  row.emplace_back("ratio_high", timed ? number_field(one->ratio.high) : "");
  return row;
}

std::string csv(const TableDifferences& found) {
  std::vector<Fields> rows;
  for (const CellDifference& one : found.cells) rows.push_back(fields_of(&one));
  return csv_text(fields_of(nullptr), rows);
}

Exit run_diff(const DiffOptions& options, const Invocation& invocation) {
  const Format format = parse_format(options.format, kFormats);
  Diff diff{read_table(options.old_file), read_table(options.new_file), {}};
  const std::optional<Error> none_old = pick(diff.old_table, options.old_file, options.cells);
  const std::optional<Error> none_new = pick(diff.new_table, options.new_file, options.cells);
  if (none_old && none_new) throw *none_old;
  diff.found = differences(diff.old_table, diff.new_table);
  if (format == Format::json)
    print(pretty_json(to_json(options, diff, invocation)));
  else
    print(format == Format::csv ? csv(diff.found) : text_of(options, diff, format, invocation.terminal));
  return diff.found.any() ? Exit::no : Exit::yes;
}

Action declare_diff(OptionSet& set) {
  const auto options = std::make_shared<DiffOptions>();
  set.argument("OLD", options->old_file, "A tuned table");
  set.argument("NEW", options->new_file, "Another one");
  declare(set, options->cells, "Cells to compare: those that match all options");
  declare_format(set, options->format, kFormats);
  return [options](const Invocation& invocation) { return run_diff(*options, invocation); };
}

}  // namespace

Command diff_command() {
  return {.name = "diff",
          .summary = "Tell what differs between two tuned tables; nothing is measured",
          .examples =
              "  moetune diff before.json after.json\n"
              "  moetune diff before.json after.json --op fwd --format markdown",
          .declare = declare_diff};
}

}  // namespace moetune
