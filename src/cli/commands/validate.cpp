// `moetune validate`: what are these files, and can this program read them?
#include "cli/commands/command.h"
#include "cli/files/file_kinds.h"
#include "export/kernels/kernel_manifest.h"
#include "record/history.h"
#include "variant/pack/pack.h"
#include "workload/model.h"
#include "workload/routing/trace.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

struct ValidateOptions {
  std::vector<std::string> files;
  OutputFormat format = OutputFormat::text;
};

constexpr const char *kValid = "valid", *kInvalid = "invalid", *kUnreadable = "unreadable";

struct Judged {
  std::string file;
  std::string kind = {};  // empty where unknown
  int version = 0;        // 0: the file has none
  std::string result;
  std::string fault = {}, hint = {};
};

// A Hugging Face config.json may hold what Python alone writes, such as NaN.
std::optional<Json> config_of(const std::string& text, const std::string& file) {
  try {
    Json json = parse_json(text, file, Dialect::python);
    const JsonAt at(json, file);
    if (!at.has("schema") && is_hf_config(at)) return json;
  } catch (const Error&) {  // the strict parser says what is wrong
  }
  return std::nullopt;
}

// Files without a schema are recordings where they look like one.
void read_without_schema(const JsonAt& json, const Catalog& catalog, Judged& judged) {
  const char* const recorded[] = {"layers", "topk_ids", "loads", "logical_count"};
  if (!json.value().is_array() && std::ranges::none_of(recorded, [&](const char* key) { return json.has(key); }))
    json.fail("\"schema\" is missing", "files of moetune name their kind there: see 'moetune list schemas'");
  judged.kind = "routing";
  find_kind("moetune.routing/1")->read(json, catalog);
}

void read_document(const Json& json, const Catalog& catalog, Judged& judged) {
  const JsonAt at(json, judged.file);
  if (!json.is_object() && !json.is_array()) at.fail("expected an object");
  if (!at.has("schema")) return read_without_schema(at, catalog, judged);
  const std::string schema = at["schema"].string();
  const FileKind* kind = find_kind(schema);
  const auto word_of = [](const FileKind& one) { return fmt::format("moetune.{}/{}", one.name, one.version); };
  if (kind == nullptr)
    with_place(at["schema"],
               [&](const JsonAt&) { throw unknown_word("schema", schema, mapped(file_kinds(), word_of)); });
  judged.kind = kind->name;
  judged.version = kind->version;
  kind->read ? kind->read(at, catalog) : require_schema(at, kind->name);
  // Only pack.json and manifest.json have the files that they name beside them: under another name it is a copy.
  const fs::path file = judged.file;
  if (kind->name == "kernels" && file.filename() == "manifest.json") require_files_of_manifest(at, file);
  if (kind->name == "pack" && file.filename() == "pack.json") require_files_of_pack(at, file);
}

void read_text_of(const std::string& text, const Catalog& catalog, Judged& judged) {
  const std::string extension = fs::path(judged.file).extension().string();
  if (extension == ".csv" || extension == ".npy") {
    judged.kind = "routing";
    with_open_top_k([&](int64_t top_k) { read_trace(judged.file, 0, top_k); });
  } else if (is_journal(judged.file)) {
    judged.kind = "journal", judged.version = 1;
    read_journal(judged.file, catalog);
    each_line(judged.file, [](const JsonAt& json, const std::string&) { require_valid(json, "journal"); });
  } else if (begins_as(judged.file, content::history)) {
    judged.kind = "history", judged.version = 1;
    if (const History history = read_history(judged.file); !history.damaged.empty()) throw history.damaged[0];
  } else if (const std::optional<Json> config = config_of(text, judged.file)) {
    judged.kind = "model";
    models_from_hf_config(JsonAt(*config, judged.file), "config");
  } else {
    read_document(parse_json(text, judged.file), catalog, judged);
  }
}

// "entries[3]: ..." and "line 2: ...": the file has its own column.
std::string without_file(const Error& error, const std::string& file) {
  Where place = error.place();
  if (place.file != file) return error.what();
  place.file = place.line > 0 ? "line " + std::to_string(place.line) : "";
  place.line = 0;
  const std::string where = place.text();
  return where.empty() ? error.sentence() : fmt::format("{}: {}", where, error.sentence());
}

Judged judge(const std::string& file, const Catalog& catalog) {
  Judged judged{.file = file, .result = kUnreadable};
  try {
    const std::string text = read_text(file);
    judged.result = kInvalid;
    read_text_of(text, catalog, judged);
    judged.result = kValid;
  } catch (const Error& error) {
    judged.fault = without_file(error, file), judged.hint = error.hint();
  }
  return judged;
}

// Of a folder: the manifest of a pack or of exported kernels, whose reader checks the files beside it, else all JSON.
std::vector<std::string> files_of(const std::string& path) {
  std::error_code ignored;
  if (!is_folder(path)) return {path};
  std::vector<std::string> files;
  for (const char* manifest : {"pack.json", "manifest.json"})
    if (is_there(fs::path(path) / manifest)) files.push_back(fs::path(path) / manifest);
  if (!files.empty()) return files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored))
    if (entry.path().extension() == ".json" || entry.path().extension() == ".jsonl") files.push_back(entry.path());
  std::ranges::sort(files);
  return files.empty() ? std::vector{path} : files;  // without such files the folder itself is unreadable
}

Json to_json(const Judged& judged) {
  Json json = {{"file", judged.file}, {"result", judged.result}};
  if (!judged.kind.empty()) json["kind"] = judged.kind;
  if (judged.version > 0) json["version"] = judged.version;
  if (!judged.fault.empty()) json["fault"] = judged.fault;
  if (!judged.hint.empty()) json["hint"] = judged.hint;
  return json;
}

Grid grid_of(const std::vector<Judged>& all) {
  Grid grid{{{"file"}, {"kind"}, {"version", true}, {"result"}}, {}};
  for (const Judged& one : all) {
    const std::string version = one.version > 0 ? std::to_string(one.version) : "";
    grid.rows.push_back({one.file, one.kind, version, one.result});
  }
  return grid;
}

// For people: the faults with their remedies below the table.
std::string faults_text(const std::vector<Judged>& all, const Style& style) {
  std::vector<std::string> items;
  for (const Judged& one : all)
    if (!one.fault.empty())
      items.push_back(
          fmt::format("{}: {}{}", one.file, one.fault, one.hint.empty() ? "" : " (hint: " + one.hint + ")"));
  return bullets(items, style);
}

Exit run_validate(const ValidateOptions& options, const Invocation& invocation) {
  const Catalog catalog;
  std::vector<Judged> all;
  for (const std::string& path : options.files)
    for (const std::string& file : files_of(path)) all.push_back(judge(file, catalog));
  const Style style = style_of(options.format, invocation.terminal);
  print_document(
      options.format, document("validate", invocation.argv, {{"files", json_list(all)}}),
      grid_text(grid_of(all), style) + faults_text(all, style),
      fmt::format("{} of {} valid.", std::ranges::count(all, kValid, &Judged::result), counted(all.size(), "file")));
  if (contains(all, kUnreadable, &Judged::result)) return Exit::request;
  return contains(all, kInvalid, &Judged::result) ? Exit::no : Exit::yes;
}

void declare_validate(OptionSet& set, ValidateOptions& options) {
  set.arguments(
      "FILES", options.files,
      "Tables, journals, recordings, spaces, suites, results, ...; or folders: of a pack, of an export, of JSON files");
  declare_format(set, options.format);
}

}  // namespace

Command validate_command() {
  return {.name = "validate",
          .summary = "Check what files are, and whether moetune can read them",
          .examples =
              "  moetune validate moetune-table.json\n"
              "  moetune validate my-pack exported tables/*.jsonl --format json",
          .declare = with_options<ValidateOptions, declare_validate, run_validate>};
}

}  // namespace moetune
