// Whether a journal is of the run that made a table, and what becomes of one that isn't.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "cli/files/files.h"
#include "record/table/mergeable.h"

namespace moetune {
namespace {

// Why the journal is of another run than the table; empty where it is of the same.
std::string difference(const JournalContents& journal, const TunedTable& table) {
  if (journal.header.device.name != table.device.name)
    return fmt::format("it is of '{}', the table is of '{}'", journal.header.device.name, table.device.name);
  if (!same_model(journal.header.device, table.device))
    return fmt::format("it is of {}, the table of {}", model_text(journal.header.device), model_text(table.device));
  for (const auto& [key, ours, its] : identity_differences(journal.header.environment, table.environment))
    return fmt::format("its environment has {} {}, the table's {}", key, ours, its);
  if (journal.header.regime != table.regime)
    return fmt::format("it is of the regime {}, the table of {}", name(journal.header.regime), name(table.regime));
  const auto in_journal = [&](const Entry& entry) {
    return std::ranges::find(journal.header.cells, entry.cell) != journal.header.cells.end();
  };
  const auto tried = [&](const Entry& entry) {
    const auto trials = journal.trials.find(id(entry.cell));
    return trials != journal.trials.end() &&
           std::ranges::find(trials->second, entry.candidate, &Trial::candidate) != trials->second.end();
  };
  if (std::ranges::none_of(table.entries, in_journal)) return "it has no cell of the table";
  const bool won = std::ranges::any_of(table.entries, [](const Entry& entry) { return entry.skipped.empty(); });
  return won && std::ranges::none_of(table.entries, tried) ? "it tried none of the table's winners" : "";
}

// The first cell of which the journal has fewer candidates than the table counts: it may be of another run.
const Entry* first_short_of(const JournalContents& journal, const TunedTable& table) {
  for (const Entry& entry : table.entries) {
    const auto trials = journal.trials.find(id(entry.cell));
    if (trials == journal.trials.end()) continue;
    std::set<Candidate> candidates;
    for (const Trial& trial : trials->second) candidates.insert(trial.candidate);
    if (std::ssize(candidates) < entry.measured) return &entry;
  }
  return nullptr;
}

}  // namespace

std::string journal_file(const std::string& given, const std::string& table_file) {
  if (!given.empty()) return given;
  const std::string beside = table_file + ".journal.jsonl";
  return is_journal(beside) ? beside : "";
}

std::optional<JournalContents> find_journal(const std::string& given, const std::string& table_file,
                                            const TunedTable& table, const Catalog& catalog, const Terminal& terminal) {
  const std::string file = journal_file(given, table_file);
  if (file.empty()) return {};
  JournalContents journal = read_journal(file, catalog);
  const std::string other = difference(journal, table);
  if (other.empty()) {
    if (const Entry* cell = first_short_of(journal, table))
      note(terminal, fmt::format("{} may be of another run: it has fewer candidates of {} than the table counts", file,
                                 id(cell->cell)));
    return journal;
  }
  if (!given.empty())
    throw machine_error(fmt::format("--journal: {} is of another run than the table: {}", file, other),
                        "give the journal of the run that made the table");
  note(terminal, fmt::format("{} is left out: {}", file, other));
  return {};
}

}  // namespace moetune
