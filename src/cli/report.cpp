// `moetune report`: what a table, its journal and other libraries' times tell, as a page.
#include "table/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <system_error>

#include "base/file.h"
#include "cli/command.h"
#include "cli/files.h"
#include "cli/output.h"
#include "cli/wording.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kWords = {"html", "markdown"};

struct ReportOptions {
  std::string table, journal, peers, output, format;
};

// --format, else what the name of the output says, else HTML.
bool wants_markdown(const ReportOptions& options) {
  if (options.format.empty()) return options.output.ends_with(".md");
  if (std::ranges::find(kWords, options.format) == kWords.end()) throw unknown_word("format", options.format, kWords);
  return options.format == "markdown";
}

// Beside the table: table.html of table.json.
std::string default_output(const std::string& table, bool markdown) {
  const fs::path path(table);
  const fs::path stem = path.extension() == ".json" ? path.parent_path() / path.stem() : path;
  return stem.string() + (markdown ? ".md" : ".html");
}

// Why the journal is of another run than the table; empty where it is of the same.
std::string difference(const Replay& journal, const TunedTable& table) {
  if (journal.header.device.name != table.device.name)
    return fmt::format("it is of '{}', the table is of '{}'", journal.header.device.name, table.device.name);
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
const Entry* first_short_of(const Replay& journal, const TunedTable& table) {
  for (const Entry& entry : table.entries) {
    const auto trials = journal.trials.find(id(entry.cell));
    if (trials == journal.trials.end()) continue;
    std::set<Candidate> candidates;
    for (const Trial& trial : trials->second) candidates.insert(trial.candidate);
    if (std::ssize(candidates) < entry.measured) return &entry;
  }
  return nullptr;
}

// The one given, or the one beside the table where that is of the same run.
std::optional<Replay> find_journal(const ReportOptions& options, const std::string& file, const TunedTable& table,
                                   const Terminal& terminal) {
  if (file.empty()) return {};
  Replay journal = read_journal(file);
  const std::string other = difference(journal, table);
  if (other.empty()) {
    if (const Entry* cell = first_short_of(journal, table))
      note(terminal, fmt::format("{} may be of another run: it has fewer candidates of {} than the table counts", file,
                                 id(cell->cell)));
    return journal;
  }
  if (!options.journal.empty())
    throw machine_error(fmt::format("--journal: {} is of another run than the table: {}", file, other),
                        "give the journal of the run that made the table");
  note(terminal, fmt::format("{} is left out: {}", file, other));
  return {};
}

std::string journal_file(const ReportOptions& options) {
  if (!options.journal.empty()) return options.journal;
  const std::string beside = options.table + ".journal.jsonl";
  return is_journal(beside) ? beside : "";
}

Exit run_report(ReportOptions options, const Invocation& invocation) {
  const bool markdown = wants_markdown(options);
  const bool to_standard_output = options.output == "-";
  if (options.output.empty()) options.output = default_output(options.table, markdown);
  const std::string journal_name = journal_file(options);
  Files files;
  add_input(files, "TABLE", options.table);
  add_input(files, "--journal", journal_name);
  add_input(files, "--peers", options.peers);
  if (!to_standard_output)
    add_output(files, "--output", options.output, markdown ? Content::markdown_report : Content::html_report);
  const TunedTable table = read_table(options.table);
  require_outputs(files);
  const std::optional<Replay> journal = find_journal(options, journal_name, table, invocation.terminal);
  std::optional<Peers> peers;
  if (!options.peers.empty()) {
    peers = read_peers(options.peers);
    require_comparable(*peers, table.device, table.regime);
  }
  const ReportInput input{&table, journal ? &*journal : nullptr, peers ? &*peers : nullptr};
  const std::string text = markdown ? report_markdown(input) : report_html(input);
  if (to_standard_output) {
    print(text);
  } else {
    write_atomic(options.output, text);
    tell(fmt::format("wrote {}\n", options.output));
  }
  return Exit::yes;
}

Action declare_report(OptionSet& set) {
  const auto options = std::make_shared<ReportOptions>();
  set.argument("TABLE", options->table, "A tuned table");
  set.value("--journal", options->journal, "FILE", "Journal of the run; without this the one beside the table");
  set.value("--peers", options->peers, "FILE", "Other libraries' times (scripts/peers.py)");
  set.value("-o,--output", options->output, "FILE",
            "The page; without this TABLE with .html or .md; - is standard output");
  set.value("--format", options->format, "NAME",
            "html, or markdown; without this what the name of FILE says, else html", one_of(kWords));
  return [options](const Invocation& invocation) { return run_report(*options, invocation); };
}

}  // namespace

Command report_command() {
  return {.name = "report",
          .summary = "Make a page of a tuned table: times, charts, knobs, faults",
          .examples =
              "  moetune report moetune-table.json\n"
              "  moetune report moetune-table.json --peers peers.json -o report.html\n"
              "  moetune report moetune-table.json --format markdown -o -",
          .declare = declare_report};
}

}  // namespace moetune
