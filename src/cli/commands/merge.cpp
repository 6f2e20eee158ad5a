// `moetune merge`: one table from several, or one journal.
#include "base/system/lock.h"
#include "cli/commands/command.h"

namespace moetune {
namespace {

struct MergeOptions {
  std::vector<std::string> files;
  std::string prefer, output;
};

// The result of a merge, of tables or of journals.
struct MergeResult {
  std::string text;
  int64_t cells = 0;
  std::vector<std::string> missing;  // of the sweep whose shards were merged
  std::vector<std::string> conflicts;
  std::vector<std::string> dropped_choices = {};  // titles of layers
};

MergeResult merged_tables(const MergeOptions& options, const Invocation& invocation) {
  const Catalog catalog;
  const auto read = [&](const std::string& path) { return read_table(path, catalog); };
  Merged merged = merge(mapped(options.files, read), options.prefer);
  merged.table.tool = tool_json(invocation.argv);
  MergeResult result{pretty_json(to_json(merged.table)), static_cast<int64_t>(merged.table.entries.size()),
                     merged.table.sweep, merged.conflicts, merged.dropped_choices};
  for (const Entry& entry : merged.table.entries) std::erase(result.missing, id(entry.cell));
  return result;
}

MergeResult merged_journals(const MergeOptions& options) {
  if (options.prefer == "fastest")
    throw request_error("--prefer fastest is for tables", "of journals, choose with --prefer first or last");
  const MergedJournal merged = merge_journals({options.files.begin(), options.files.end()}, options.prefer, Catalog());
  MergeResult result{merged.text, static_cast<int64_t>(merged.header.cells.size()), merged.header.sweep,
                     merged.conflicts};
  for (const Cell& cell : merged.header.cells) std::erase(result.missing, id(cell));
  return result;
}

// Whether the files are journals. Exit::request where they are of both kinds.
bool are_journals(const std::vector<std::string>& files) {
  const bool first = is_journal(files[0]);
  for (const std::string& file : files)
    if (is_journal(file) != first)
      throw request_error(
          fmt::format("{} is a {}, {} a {}", files[0], first ? "journal" : "table", file, first ? "table" : "journal"),
          "merge tables with tables, and journals with journals");
  return first;
}

void require_agreement(const MergeOptions& options, const MergeResult& result, bool journals) {
  if (result.conflicts.empty() || !options.prefer.empty()) return;
  for (const std::string& cell : result.conflicts) print_to_stderr(fmt::format("conflict: {}\n", cell));
  throw Error(
      Exit::no,
      fmt::format("the {} differ in {}", journals ? "journals" : "tables", counted(result.conflicts.size(), "cell")),
      journals ? "choose one with --prefer first or last" : "choose one with --prefer fastest, first or last");
}

void warn_of_losses(const MergeResult& result, const Terminal& terminal) {
  if (const auto missing = std::ssize(result.missing); missing > 0)
    warn(terminal, fmt::format("{} of {} cells are not here ({}{}): merge the other shards too", missing,
                               missing + result.cells, result.missing[0], missing > 1 ? ", ..." : ""));
  for (const std::string& layer : result.dropped_choices)
    warn(terminal, fmt::format("the robust choices of {} are dropped, because winners of its cells changed: make "
                               "them again with tune --append --choose",
                               layer));
}

Exit run_merge(MergeOptions options, const Invocation& invocation) {
  if (options.output == "-") options.output.clear();
  if (options.files.size() < 2) throw request_error("a merge needs two files or more", "name another table");
  if (!options.prefer.empty()) place_of_word("--prefer", options.prefer, kPreferences);
  const bool journals = are_journals(options.files);
  Files files;  // the inputs may be replaced: they are read first, and what they held is kept
  add_output(files, "--output", options.output, journals ? content::journal : content::table);
  require_outputs(files);
  std::optional<OutputLock> ours;  // before the inputs are read, of which it may be one
  if (!options.output.empty() && !journals) ours.emplace(options.output);
  const MergeResult result = journals ? merged_journals(options) : merged_tables(options, invocation);
  require_agreement(options, result, journals);
  warn_of_losses(result, invocation.terminal);
  if (options.output.empty()) return print(result.text), Exit::yes;
  write_kept(options.output, result.text, invocation.terminal);
  print(fmt::format("{} in {}{}.\n", counted(result.cells, "cell"), options.output,
                    result.conflicts.empty() ? ""
                                             : fmt::format(", {} of them in conflict: the {} won",
                                                           result.conflicts.size(), options.prefer)));
  return Exit::yes;
}

void declare_merge(OptionSet& set, MergeOptions& options) {
  set.arguments("FILES", options.files, "Tuned tables of one device, or journals of one run");
  set.value("--prefer", options.prefer, "WORD", "Which to keep if they differ: fastest, first or last",
            one_of(kPreferences));
  set.value("-o,--output", options.output, "FILE", "The merged table or journal [standard output]");
}

}  // namespace

Command merge_command() {
  return {.name = "merge",
          .summary = "Make one table, or one journal, from several",
          .examples =
              "  moetune merge up.json down.json -o layer.json\n"
              "  moetune merge table.*-of-4.json -o table.json\n"
              "  moetune merge old.json new.json --prefer fastest -o best.json",
          .declare = with_options<MergeOptions, declare_merge, run_merge>};
}

}  // namespace moetune
