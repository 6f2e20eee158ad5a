// `moetune report`: a page about a table, its journal and other libraries' times.
#include "report/report.h"

#include "cli/commands/command.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kWords = {"html", "markdown"};

struct ReportOptions {
  std::string table, journal, peers, history, output, format;
};

// --format, else what the name of the output says, else HTML.
bool wants_markdown(const ReportOptions& options) {
  if (options.format.empty()) return options.output.ends_with(".md");
  return place_of_word("format", options.format, kWords) == 1;
}

// HTML in a file that is named x.png opens nowhere.
void require_known_ending(const ReportOptions& options) {
  const std::string ending = fs::path(options.output).extension().string();
  if (options.format.empty() && !contains(std::vector<std::string>{"", ".html", ".htm", ".md"}, ending))
    throw request_error(
        fmt::format("--output {}: report writes HTML (.html) and Markdown (.md), not {}", options.output, ending),
        "name a file that ends with .html or .md, or add --format html");
}

// Beside the table: table.html of table.json.
std::string default_output(const std::string& table, bool markdown) {
  const fs::path path(table);
  const fs::path stem = path.extension() == ".json" ? path.parent_path() / path.stem() : path;
  return stem.string() + (markdown ? ".md" : ".html");
}

Exit run_report(ReportOptions options, const Invocation& invocation) {
  const bool markdown = wants_markdown(options);
  const bool to_standard_output = options.output == "-";
  const bool tabled = !options.table.empty();
  if (!tabled && options.history.empty())
    throw request_error("TABLE is required", "or --history FILE, for a page of past checks alone");
  if (!tabled && !(options.journal + options.peers).empty())
    throw request_error("--journal and --peers have no effect without TABLE");
  if (options.output.empty()) options.output = default_output(tabled ? options.table : options.history, markdown);
  const std::string journal_name = tabled ? journal_file(options.journal, options.table) : "";
  Files files;
  if (tabled) add_input(files, "TABLE", options.table), add_input(files, "--journal", journal_name);
  add_input(files, "--history", options.history);
  add_input(files, "--peers", options.peers);
  if (!to_standard_output)
    add_output(files, "--output", options.output, markdown ? content::markdown_report : content::html_report);
  const Catalog catalog;
  const TunedTable table = tabled ? read_table(options.table, catalog) : TunedTable();
  const auto [history, damaged] = options.history.empty() ? History() : read_history(options.history);
  for (const Error& line : damaged)
    warn(invocation.terminal, fmt::format("this line of the history is left out: {}", line.what()));
  if (!options.history.empty() && history.empty())
    throw request_error(fmt::format("--history: {} has no runs", options.history));
  require_outputs(files);
  require_known_ending(options);
  std::optional<JournalContents> journal;
  if (tabled) journal = find_journal(options.journal, options.table, table, catalog, invocation.terminal);
  std::optional<Peers> peers;
  if (!options.peers.empty()) {
    peers = read_peers(options.peers);
    require_comparable(*peers, table.device.name, table.regime, "--peers", "the table's");
  }
  const ReportInput input{tabled ? &table : nullptr, journal ? &*journal : nullptr, peers ? &*peers : nullptr,
                          history.empty() ? nullptr : &history};
  const std::string text = markdown ? report_markdown(input) : report_html(input);
  if (to_standard_output) return print(text), Exit::yes;
  write_atomic(options.output, text);
  return print_to_stderr(fmt::format("wrote {}\n", options.output)), Exit::yes;
}

void declare_report(OptionSet& set, ReportOptions& options) {
  set.argument("TABLE", options.table, "A tuned table; not needed with --history", {}, /*required=*/false);
  set.value("--journal", options.journal, "FILE", "Journal of the run [the one beside the table]");
  set.value("--peers", options.peers, "FILE", "Other libraries' times (scripts/peers.py)");
  set.value("--history", options.history, "FILE", "Past checks (moetune check --history)");
  set.value("-o,--output", options.output, "FILE", "The page [TABLE with .html or .md]; - is standard output");
  set.value("--format", options.format, "NAME", "html or markdown [by the name of FILE, else html]", one_of(kWords));
}

}  // namespace

Command report_command() {
  return {.name = "report",
          .summary = "Make a page of a tuned table: times, charts, knobs, faults",
          .examples =
              "  moetune report moetune-table.json\n"
              "  moetune report moetune-table.json --peers peers.json -o report.html\n"
              "  moetune report --history history.jsonl -o history.html\n"
              "  moetune report moetune-table.json --format markdown -o -",
          .declare = with_options<ReportOptions, declare_report, run_report>};
}

}  // namespace moetune
