// `moetune merge`: one table from several.
#include <fmt/format.h>

#include <memory>

#include "base/file.h"
#include "cli/command.h"
#include "cli/files.h"
#include "cli/output.h"
#include "cli/wording.h"
#include "table/pretty.h"
#include "table/table.h"

namespace moetune {
namespace {

struct MergeOptions {
  std::vector<std::string> tables;
  std::string prefer, output;
};

Exit run_merge(const MergeOptions& options, const Invocation& invocation) {
  if (options.tables.size() < 2) throw request_error("a merge needs two tables or more", "name another table");
  if (!options.prefer.empty() && options.prefer != "fastest" && options.prefer != "first" && options.prefer != "last")
    throw unknown_word("--prefer", options.prefer, {"fastest", "first", "last"});
  Files files;  // the inputs may be replaced: they are read first, and what they held is kept
  add_output(files, "--output", options.output, Content::table);
  require_outputs(files);
  std::vector<TunedTable> tables;
  for (const std::string& path : options.tables) tables.push_back(read_table(path));
  Merged merged = merge(tables, options.prefer);
  const auto conflicts = static_cast<int64_t>(merged.conflicts.size());
  if (conflicts > 0 && options.prefer.empty()) {
    for (const std::string& cell : merged.conflicts) tell(fmt::format("conflict: {}\n", cell));
    throw Error(Exit::no, fmt::format("the tables differ in {}", counted(conflicts, "cell", "cells")),
                "choose one with --prefer fastest, first or last");
  }
  merged.table.tool = tool_json(invocation.argv);
  if (options.output.empty()) {
    print(pretty_json(to_json(merged.table)));
    return Exit::yes;
  }
  KeptFile file(options.output);
  const std::filesystem::path old = write_table(file, merged.table);
  if (!old.empty()) note(invocation.terminal, fmt::format("the older {} is kept as {}", options.output, old.string()));
  print(fmt::format(
      "{} in {}{}.\n", counted(static_cast<int64_t>(merged.table.entries.size()), "cell", "cells"), options.output,
      conflicts > 0 ? fmt::format(", {} of them in conflict: the {} won", conflicts, options.prefer) : ""));
  return Exit::yes;
}

Action declare_merge(OptionSet& set) {
  const auto options = std::make_shared<MergeOptions>();
  set.arguments("TABLES", options->tables, "Tuned tables of one device");
  set.value("--prefer", options->prefer, "WORD", "Where they differ: fastest, first or last");
  set.value("-o,--output", options->output, "FILE", "The merged table [standard output]");
  return [options](const Invocation& invocation) {
    if (options->output == "-") options->output.clear();
    return run_merge(*options, invocation);
  };
}

}  // namespace

Command merge_command() {
  return {.name = "merge",
          .summary = "Make one table from several",
          .examples =
              "  moetune merge up.json down.json -o layer.json\n"
              "  moetune merge old.json new.json --prefer fastest -o best.json",
          .declare = declare_merge};
}

}  // namespace moetune
