// `moetune export`: the table in another program's format.
#include <fmt/ranges.h>

#include "cli/commands/command.h"
#include "cli/commands/export_kernels.h"
#include "cli/tables/choosing.h"
#include "cli/tables/winners.h"
#include "export/exporter.h"
#include "export/serving/serving.h"
#include "record/layer.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  std::string table, format, output, journal, triton;
  CellOptions cells;  // their tp and routings
  std::vector<std::string> archs, bases;
  bool no_cache = false, unproven = false;
};

// "the table makes 2 files: a.json, b.json".
std::string files_text(const Export& result) {
  return fmt::format("the table makes {} files: {}", result.files.size(),
                     fmt::join(mapped(result.files, &ExportedFile::name), ", "));
}

// Files whose name another program looks for go to a folder, whether it is there or not: only ".json" means one file.
bool names_a_folder(const Export& result, const std::string& output) {
  if (output.ends_with('/') || is_folder(output)) return true;
  return !result.files.front().name.empty() && !output.ends_with(".json");
}

const Content& content_of(const std::string& format) {
  if (format == "runtime") return content::runtime;
  return format == "csv" ? content::csv : format == "markdown" ? content::report : content::serving;
}

// Another program's configuration may be the work of its own tuner: what was there is kept.
void write_files(const Export& result, const ExportOptions& options, const Terminal& terminal) {
  const std::string& output = options.output;
  const bool folder = names_a_folder(result, output);
  if (!folder && result.files.size() > 1)
    throw request_error(fmt::format("{} is one file, but {}", output, files_text(result)), "give a folder with -o DIR");
  Files files;
  add_input(files, "TABLE", options.table);
  add_input(files, "--journal", options.journal);
  for (const std::string& base : options.bases) add_input(files, "--base", base);
  std::vector<fs::path> paths;
  for (const ExportedFile& file : result.files) {
    if (folder && file.name.empty())
      throw request_error(fmt::format("{} is a folder: give the name of a file", output));
    paths.push_back(folder ? fs::path(output) / file.name : fs::path(output));
    add_output(files, "--output", paths.back().string(), content_of(options.format));
  }
  require_outputs(files);
  for (size_t i = 0; i < paths.size(); ++i) {
    if (content_of(options.format) == content::serving)
      write_kept(paths[i], result.files[i].text, terminal);
    else
      write_atomic(paths[i], result.files[i].text);
    tell(fmt::format("wrote {}\n", paths[i].string()));
  }
}

// The winners of those routings, in layers that so many ranks share; choices are made from all routings.
TunedTable picked(TunedTable table, const ExportOptions& options, const Terminal& terminal) {
  const CellRequest& wanted = options.cells.request;
  if (wanted == CellRequest{}) return table;
  pick_entries(table, options.table, options.cells);
  if (!wanted.routings.empty() && !table.choices.empty()) {
    note(terminal, "the robust choices are left out: they are made from all routings");
    table.choices.clear();
  }
  std::erase_if(table.choices, [&](const RobustChoice& choice) {
    return std::ranges::none_of(table.entries, [&](const Entry& one) { return one.cell.shape == choice.shape(); });
  });
  return table;
}

// Servers run up and down with one sorting of the rows, vLLM with one configuration: those of a pack are joined.
TunedTable joined(const TunedTable& table, const std::optional<JournalContents>& journal, Server server,
                  const Terminal& terminal) {
  if (!has_pairs(table)) return table;
  const auto stay_apart = [&](const std::string& why) {
    note(terminal, fmt::format("up and down are not joined by their times: {}", why));
    return table;
  };
  if (!table.choices.empty()) return stay_apart("the table's robust choices are exported");
  if (!journal) return stay_apart("name the journal of the run with --journal");
  std::vector<std::string> notes;
  TunedTable result = with_joint_winners(table, *journal, shared_knobs(server), notes);
  for (const std::string& sentence : notes) note(terminal, sentence);
  return result;
}

Export serve(Server server, const TunedTable& table, const ExportOptions& options, const Catalog& catalog,
             const Terminal& terminal) {
  ServingRequest request{.measured = &table, .bases = base_files(options.bases), .unproven = options.unproven};
  if (!options.triton.empty()) {
    std::string version = options.triton;
    std::ranges::replace(version, '.', '_');
    if (version.find_first_not_of("0123456789_") != std::string::npos)
      throw request_error(fmt::format("--triton: '{}' is not a version such as 3.6.0", options.triton));
    request.folder = fmt::format("configs/triton_{}/", version);
  }
  const std::optional<JournalContents> journal = find_journal(options.journal, options.table, table, catalog, terminal);
  request.journal = journal ? &*journal : nullptr;
  Export result = export_serving(server, joined(table, journal, server, terminal), request);
  for (const fs::path& base : request.bases)
    if (!fs::is_directory(base) && std::ranges::none_of(result.files, [&](const ExportedFile& file) {
          return fs::path(file.name).filename() == base.filename();
        }))
      throw request_error(fmt::format("--base {}: no file of the export has this name", base.string()),
                          files_text(result));
  return result;
}

// What `tune -v` prints.
Export markdown_of(const TunedTable& table) {
  const Style style{.format = OutputFormat::markdown, .columns = 0, .verbose = true};
  const std::string results = results_text(table, style),
                    choices = headed_tables_text(choice_tables(table, false), style);
  Export result;
  result.files.push_back({"", fmt::format("# Tuned on {} ({})\n\n{}{}{}\n{}\n", markdown_text(table.device.name),
                                          name(table.regime), results, choices.empty() ? "" : "\n", choices,
                                          markdown_text(answer(table, table.entries.size())))});
  return result;
}

Exit run_export(ExportOptions options, const Invocation& invocation) {
  if (options.output == "-") options.output.clear();
  const Exporter& exporter = find_exporter(options.format);
  const Catalog catalog;
  const TunedTable table = picked(read_table(options.table, catalog), options, invocation.terminal);
  if (exporter.format == "kernels")
    return export_kernels(with_layers(table),
                          {.table = options.table,
                           .output = options.output,
                           .archs = arch_names(options.archs),
                           .cache = !options.no_cache},
                          catalog, invocation.terminal);
  const Export result = exporter.server  ? serve(*exporter.server, table, options, catalog, invocation.terminal)
                        : exporter.write ? exporter.write(table)
                                         : markdown_of(table);
  for (const std::string& sentence : result.notes) note(invocation.terminal, sentence);
  if (result.files.empty())
    throw Error(Exit::no, fmt::format("{}: no entry of the table can be written as {}", options.table, options.format));
  if (options.output.empty() && result.files.size() > 1)
    throw request_error(files_text(result), "give a folder with -o DIR");
  if (options.output.empty())
    print(result.files.front().text);
  else
    write_files(result, options, invocation.terminal);
  const ExportedFile& only = result.files.front();
  const bool other_name = options.output.empty() || !names_a_folder(result, options.output);
  if (!only.name.empty() && other_name)
    note(invocation.terminal, fmt::format("{} looks for the file name {}", options.format, shell_quoted(only.name)));
  return Exit::yes;
}

void declare_export(OptionSet& set, ExportOptions& options) {
  options.format = "markdown";
  set.argument("TABLE", options.table, "A tuned table");
  set.value("--format", options.format, "NAME",
            "vllm, sglang (token counts that were not tuned keep the server's default), csv, runtime, ... (moetune "
            "list formats)",
            [] { return mapped<std::string>(exporters(), &Exporter::format); });
  set.value("-o,--output", options.output, "PATH",
            "A file; for vllm and sglang a folder, which gets the names they look for, or one FILE.json; for kernels a "
            "folder");
  set.value(
      "--journal", options.journal, "FILE",
      "For vllm and sglang: times for choosing the one configuration of up and down of a pack [the one beside TABLE]");
  set.list("--base", options.bases, "FILE",
           "For vllm and sglang: files that the program bundles for the same layer, or their folder; their rows stay "
           "where no winner is faster");
  set.flag("--unproven", options.unproven,
           "For vllm and sglang: winners too whose gain over the program's own rows was not measured");
  set.value("--triton", options.triton, "VERSION", "For sglang: put the files into configs/triton_X_Y_Z");
  declare(set, options.cells, "tp", "Only winners of layers that so many ranks share");
  declare(set, options.cells, "routing", "Only winners of these routings, such as zipf:1.0");
  set.list("--arch", options.archs, "LIST", "Kernels for these architectures too, such as sm_80");
  set.flag("--no-cache", options.no_cache, "Do not read or write the cache of compiled kernels");
}

}  // namespace

Command export_command() {
  return {.name = "export",
          .summary = "Write a tuned table in another program's format",
          .examples =
              "  moetune export moetune-table.json\n"
              "  moetune export moetune-table.json --format csv -o winners.csv\n"
              "  moetune export moetune-table.json --format vllm --routing zipf:1.0 -o configs/\n"
              "  moetune export moetune-table.json --format kernels -o kernels-h200",
          .declare = with_options<ExportOptions, declare_export, run_export>};
}

}  // namespace moetune
