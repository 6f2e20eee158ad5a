// `moetune export`: the table in another program's format.
#include <fmt/ranges.h>

#include "cli/commands/command.h"
#include "cli/tables/choosing.h"
#include "cli/tables/winners.h"
#include "export/exporter.h"
#ifdef MOETUNE_HAS_CUDA
#include "base/system/lock.h"
#include "export/kernels/collected_kernels.h"
#include "export/kernels/kernel_folder.h"
#endif
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

// Another program's configuration may come from that program's tuner, so an older file is kept.
void write_files(const Export& result, const Content& content, const ExportOptions& options, const Terminal& terminal) {
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
    add_output(files, "--output", paths.back().string(), content);
  }
  require_outputs(files);
  for (size_t i = 0; i < paths.size(); ++i) {
    if (content == content::serving)
      write_kept(paths[i], result.files[i].text, terminal);
    else
      write_atomic(paths[i], result.files[i].text);
    print_to_stderr(fmt::format("wrote {}\n", paths[i].string()));
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

// Servers run up and down with one sorting of the rows, some with one configuration: a pack's winners are chosen as
// pairs.
TunedTable with_pairs(const TunedTable& table, const std::optional<JournalContents>& journal, const Server& server,
                      const Terminal& terminal) {
  if (!has_pairs(table)) return table;
  const auto stay_apart = [&](const std::string& why) {
    note(terminal, fmt::format("up and down are not chosen together: {}", why));
    return table;
  };
  if (!table.choices.empty()) return stay_apart("the table's robust choices are exported");
  if (!journal) return stay_apart("name the journal of the run with --journal");
  std::vector<std::string> notes;
  TunedTable result = with_paired_winners(table, *journal, shared_knobs(server), notes);
  for (const std::string& sentence : notes) note(terminal, sentence);
  return result;
}

// What an exporter works on.
struct Job {
  const TunedTable& table;
  const ExportOptions& options;
  const Catalog& catalog;
  const Terminal& terminal;
};

Export serve(const Server& server, const Job& job) {
  const ExportOptions& options = job.options;
  if (options.triton.find_first_not_of("0123456789.") != std::string::npos)
    throw request_error(fmt::format("--triton: '{}' is not a version such as 3.6.0", options.triton));
  const std::vector<fs::path> bases = base_files(options.bases);
  ServingRequest request{.measured = &job.table,
                         .places = look_up_below(server, bases, options.triton),
                         .unproven = options.unproven,
                         .prefix = options.triton.empty() ? "" : file_prefix(server, options.triton)};
  const std::optional<JournalContents> journal =
      find_journal(options.journal, options.table, job.table, job.catalog, job.terminal);
  request.journal = journal ? &*journal : nullptr;
  Export result = export_serving(server, with_pairs(job.table, journal, server, job.terminal), request);
  result.notes.push_back(install_advice(server, !bases.empty()));
  for (const fs::path& base : bases)
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
  return {.files = {{"", fmt::format("# Tuned on {} ({})\n\n{}{}{}\n{}\n", markdown_text(table.device.name),
                                     name(table.regime), results, choices.empty() ? "" : "\n", choices,
                                     markdown_text(answer(table, table.entries.size())))}}};
}

// Prints or writes what was made of the table.
Exit deliver(const Job& job, const Content& content, const Export& result) {
  const ExportOptions& options = job.options;
  for (const std::string& sentence : result.notes) note(job.terminal, sentence);
  if (result.files.empty())
    throw Error(Exit::no, fmt::format("{}: no entry of the table can be written as {}", options.table, options.format));
  if (options.output.empty() && result.files.size() > 1)
    throw request_error(files_text(result), "give a folder with -o DIR");
  if (options.output.empty())
    print(result.files.front().text);
  else
    write_files(result, content, options, job.terminal);
  const ExportedFile& only = result.files.front();
  const bool other_name = options.output.empty() || !names_a_folder(result, options.output);
  if (!only.name.empty() && other_name)
    note(job.terminal, fmt::format("{} looks for the file name {}", options.format, shell_quoted(only.name)));
  return Exit::yes;
}

#ifdef MOETUNE_HAS_CUDA
Exit write_kernels(const Job& job) {
  const ExportOptions& options = job.options;
  const TunedTable table = with_layers(job.table);
  if (options.output.empty()) throw request_error("an export of kernels is a folder", "give one with -o DIR");
  if (table.device.kind != DeviceKind::cuda)
    throw Error(Exit::no, fmt::format("{}: a table of {} has no kernels to export", options.table, table.device.name));
  CollectedKernels collection = collect_kernels(table, arch_names(options.archs), job.catalog);
  for (const std::string& sentence : collection.notes) note(job.terminal, sentence);
  const KernelExport& exported = collection.exported;
  for (const std::string& target : collection.targets)
    if (!contains(exported.cells, target, &ServedCell::arch))
      throw Error(Exit::no, fmt::format("{}: no entry of the table can be exported for {}", options.table, target));
  if (table.choices.empty())
    note(job.terminal,
         "without a hint of skew, programs get the kernel for the most skewed rows: the table has no robust choices, "
         "which tune --choose makes");
  const fs::path folder = require_kernel_folder(options.output);
  if (!is_folder(folder)) require_writable(folder);
  const OutputLock ours(folder);
  compile_kernels(collection, table, !options.no_cache);
  if (exported.of_other_kernels)
    note(job.terminal, "the times of the table are those of other kernels than this moetune has");
  write_kernel_folder(folder, kernel_files(collection.exported, table));
  std::set<std::string> cells;
  for (const ServedCell& served : exported.cells) cells.insert(id(served.cell));
  print_to_stderr(fmt::format("wrote {} of {} to {}\n", counted(exported.kernels.size(), "kernel"),
                              counted(cells.size(), "cell"), options.output));
  return Exit::yes;
}
#else
Exit write_kernels(const Job&) {
  throw machine_error("this build of moetune has no CUDA toolkit, so it cannot compile kernels",
                      "build moetune on a machine with the toolkit");
}
#endif

struct Exporter {
  std::string format;  // "vllm"
  std::string description;
  std::function<Exit(const Job&)> write;
};

const std::vector<Exporter>& exporters() {
  static const std::vector<Exporter> all = [] {
    std::vector<Exporter> list;
    for (const Server* server : servers())
      list.push_back({std::string(server->word), std::string(server->description),
                      [server](const Job& job) { return deliver(job, content::serving, serve(*server, job)); }});
    const auto add = [&](const char* format, const char* description, const Content& content, const auto& made) {
      list.push_back({format, description, [=](const Job& job) { return deliver(job, content, made(job.table)); }});
    };
    add("csv", "one row an entry, for spreadsheets and data frames", content::csv, export_csv);
    add("markdown", "tables by layer, for people, as tune prints them", content::report, markdown_of);
    add("runtime", "a compact JSON for programs that pick kernels: knobs, cubin and time of each cell",
        content::runtime, export_runtime);
    list.push_back({"kernels", "a folder of cubins and a library that launches them from C, C++, Python and PyTorch",
                    write_kernels});
    return list;
  }();
  return all;
}

std::vector<std::string> format_words() { return mapped(exporters(), &Exporter::format); }

Exit run_export(ExportOptions options, const Invocation& invocation) {
  if (options.output == "-") options.output.clear();
  const Exporter& exporter = exporters()[place_of_word("format", options.format, format_words())];
  const Catalog catalog;
  const TunedTable table = picked(read_table(options.table, catalog), options, invocation.terminal);
  return exporter.write({table, options, catalog, invocation.terminal});
}

void declare_export(OptionSet& set, ExportOptions& options) {
  options.format = "markdown";
  set.argument("TABLE", options.table, "A tuned table");
  set.value("--format", options.format, "NAME",
            fmt::format("{} (token counts that were not tuned keep the server's default), csv, runtime, ... (moetune "
                        "list formats)",
                        fmt::join(server_words(), ", ")),
            format_words);
  set.value("-o,--output", options.output, "PATH",
            "A file; for servers a folder, which gets the names they look for, or one FILE.json; for kernels a "
            "folder");
  set.value("--journal", options.journal, "FILE",
            "For servers: times for choosing the one configuration of up and down of a pack [the one beside TABLE]");
  set.list("--base", options.bases, "FILE",
           "For servers: files that the program bundles for the same layer, or a folder above them; their rows "
           "stay where no winner is faster");
  set.flag("--unproven", options.unproven,
           "For servers: winners too whose gain over the program's own rows was not measured");
  set.value("--triton", options.triton, "VERSION", "For sglang: put the files into configs/triton_X_Y_Z");
  declare(set, options.cells, "tp", "Only winners of layers that so many ranks share");
  declare(set, options.cells, "routing", "Only winners of these routings, such as zipf:1.0");
  set.list("--arch", options.archs, "LIST", "Kernels for these architectures too, such as sm_80");
  set.flag("--no-cache", options.no_cache, "Do not read or write the cache of compiled kernels");
}

}  // namespace

std::vector<std::pair<std::string, std::string>> export_formats() {
  return mapped(exporters(), [](const Exporter& one) { return std::pair(one.format, one.description); });
}

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
