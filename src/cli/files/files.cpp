// Inputs, outputs, and what a file that is there already holds. Whether a journal is of the run that made a table.
#include "cli/files/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <system_error>

#include "base/embedded.h"
#include "base/error.h"
#include "base/json.h"
#include "base/system/file.h"
#include "base/text/units.h"
#include "workload/model.h"
#include "workload/routing/trace.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStandardOutput = "-";

// A file that was cut off while it was written still begins as whole ones do.
bool has_schema(const std::string& text, std::string_view schema) {
  try {
    const Json json = parse_json(text, "");
    const JsonAt file(json, "");
    return file.has("schema") && file["schema"].string().starts_with(schema);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::syntax) return false;
    std::string beginning = text.substr(0, 100);
    std::erase_if(beginning, [](unsigned char c) { return std::isspace(c); });
    return beginning.starts_with(fmt::format("{{\"schema\":\"{}", schema));
  }
}

std::string first_line(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// The whole text of a file; of a journal, which may be long, and a history only the first line.
std::string text_to_judge(const OutputFile& output) {
  const bool lines = output.content == content::journal || output.content == content::history;
  return lines ? first_line(output.path) : read_text(output.path);
}

bool holds(const std::string& text, const Content& content) {
  if (!content.schema.empty()) return has_schema(text, content.schema);
  return (text.starts_with(content.begin) && text.find(content.mark) != std::string::npos) ||
         (!content.other.empty() && text.starts_with(content.other));
}

void require_replaceable(const OutputFile& output) {
  std::error_code error;
  if (output.content.name.empty() || !is_file(output.path) || fs::file_size(output.path, error) == 0 ||
      holds(text_to_judge(output), output.content))
    return;
  throw request_error(fmt::format("{}: {} exists and is not a {}: moetune does not replace it", output.option,
                                  output.path.string(), output.content.name),
                      "give another file name, or remove that file first");
}

// Whether the name leads to an open descriptor: /dev/stdout, /dev/fd/1. The file behind it is another program's.
bool is_descriptor(const fs::path& name) {
  std::error_code error;
  for (fs::path path = fs::absolute(name, error); fs::is_symlink(path, error);
       path = path.parent_path() / fs::read_symlink(path, error))
    if (fs::canonical(path.parent_path(), error).string().starts_with("/proc/")) return true;
  return false;
}

void require_place(const OutputFile& output, bool dry) {
  if (*output.path.begin() == kStandardOutput)
    throw request_error(fmt::format("{}: '-' is not the name of a file or folder", output.option),
                        "for standard output see --format; for a file of this name write ./-");
  require_writable(output.path, dry);
  const bool regular = is_file(output.path);
  if (!is_there(output.path) || (output.content == content::journal && !regular)) return;
  if (!regular || is_descriptor(output.path))
    throw request_error(
        fmt::format("{}: expected the name of a regular file, found a device or a pipe", output.path.string()),
        "for standard output leave this option out and use --format");
}

bool is_device(const fs::path& path) { return is_there(path) && !is_file(path); }

void require_distinct(const Files& files) {
  const auto require = [](const OutputFile& output, const std::string& option, const fs::path& path) {
    if (!is_device(path) && same_file(output.path, path))
      throw request_error(fmt::format("{} and {} name the same file: {}", option, output.option, output.path.string()),
                          fmt::format("give {} another file name", output.option));
  };
  for (size_t i = 0; i < files.outputs.size(); ++i) {
    for (size_t j = 0; j < files.outputs.size(); ++j) {
      if (j < i) require(files.outputs[i], files.outputs[j].option, files.outputs[j].path);
      if (same_file(files.outputs[i].path, files.outputs[j].path.string() + ".lock"))
        throw request_error(fmt::format("{} names the lock file of {}: {}", files.outputs[i].option,
                                        files.outputs[j].option, files.outputs[i].path.string()),
                            fmt::format("give {} another file name", files.outputs[i].option));
    }
    for (const InputFile& input : files.inputs) require(files.outputs[i], input.option, input.path);
  }
}

void add_models(Files& files, const CellRequest& request) {
  for (const std::string& name : request.models) add_input(files, "--model", model_file(name).string());
}

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
  const auto in_journal = [&](const Entry& entry) { return contains(journal.header.cells, entry.cell); };
  const auto tried = [&](const Entry& entry) {
    return contains(value_in(journal.trials, id(entry.cell)), entry.candidate, &Trial::candidate);
  };
  if (std::ranges::none_of(table.entries, in_journal)) return "it has no cell of the table";
  const bool won = std::ranges::any_of(table.entries, [](const Entry& entry) { return entry.skipped.empty(); });
  return won && std::ranges::none_of(table.entries, tried) ? "it tried none of the table's winners" : "";
}

// The first cell of which the journal has fewer candidates than the table counts: it may be of another run.
const Entry* first_short_of(const JournalContents& journal, const TunedTable& table) {
  for (const Entry& entry : table.entries) {
    std::set<Candidate> candidates;
    for (const Trial& trial : value_in(journal.trials, id(entry.cell))) candidates.insert(trial.candidate);
    if (!candidates.empty() && std::ssize(candidates) < entry.measured) return &entry;
  }
  return nullptr;
}

}  // namespace

void add_input(Files& files, const std::string& option, const std::string& path) {
  if (!path.empty()) files.inputs.push_back({option, path});
}

void add_output(Files& files, const std::string& option, const std::string& path, const Content& content) {
  if (!path.empty()) files.outputs.push_back({option, path, content});
}

void add_inputs(Files& files, const CellOptions& options, const std::vector<Cell>& cells) {
  add_models(files, options.request);
  if (!options.suite.empty()) add_input(files, "--suite", suite_file(options.suite).string());
  for (const SuitePart& part : options.parts) add_models(files, part.request);
  for (const Cell& cell : cells) {
    if (cell.routing.name != "trace") continue;
    const fs::path file = trace_file(cell.routing);
    if (!contains(files.inputs, file, &InputFile::path)) add_input(files, "--routing", file.string());
  }
}

void add_inputs(Files& files, const SearchOptions& options) {
  if (!embedded_file(fmt::format("configs/spaces/{}.json", options.space))) add_input(files, "--space", options.space);
}

void require_outputs(const Files& files, bool dry) {
  require_distinct(files);
  for (const OutputFile& output : files.outputs) require_place(output, dry);
  for (const OutputFile& output : files.outputs) require_replaceable(output);
}

bool begins_as(const fs::path& path, const Content& content) {
  return is_file(path) && holds(first_line(path), content);
}

bool is_journal(const fs::path& path) { return begins_as(path, content::journal); }

void output_to_standard_output(std::string& output, OutputFormat& format) {
  if (output != kStandardOutput) return;
  if (format == OutputFormat::markdown)
    throw request_error("--output - and --format markdown both ask for standard output", "leave one of them out");
  output.clear();
  format = OutputFormat::json;
}

void write_outputs(const std::vector<std::function<void()>>& writers) {
  std::optional<Error> first;
  std::vector<std::string> faults;
  for (const std::function<void()>& writer : writers) try {
      writer();
    } catch (const Error& error) {
      if (!first) first = error;
      if (!contains(faults, error.what())) faults.push_back(error.what());
    }
  if (first) throw Error(first->exit(), fmt::format("{}", fmt::join(faults, "; ")), first->hint());
}

std::vector<fs::path> base_files(const std::vector<std::string>& bases) {
  for (const std::string& base : bases)
    if (!fs::exists(base)) throw request_error(fmt::format("--base {}: no such file or folder", base));
  return {bases.begin(), bases.end()};
}

void write_kept(const fs::path& path, std::string_view text, const Terminal& terminal) {
  if (const fs::path old = KeptFile(path).write(text); !old.empty())
    note(terminal, fmt::format("the older {} is kept as {}", path.string(), old.string()));
}

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
