// Each kind with its reader: the one of the command that reads such files, else the one of results.h.
#include "cli/files/kinds.h"

#include <algorithm>
#include <set>

#include "base/placed.h"
#include "cli/options/cells.h"
#include "cli/files/parts.h"
#include "cli/files/results.h"
#include "cli/options/suite.h"
#include "record/journal/journal.h"
#include "export/kernels/kernel_manifest.h"
#include "record/peers.h"
#include "record/table/table.h"
#include "export/text_export.h"
#include "variant/pack/pack.h"
#include "variant/space/space.h"
#include "workload/model.h"
#include "workload/routing/recording.h"

namespace moetune {
namespace {

// Readers accept files that their schema does not: each of these functions checks the rest.

void read_table_document(const JsonAt& json) {
  table_from_json(json);
  require_tool(json["tool"]);
  require_environment(json);
  each(json["entries"], require_entry);
  if (json.has("updates")) each(json["updates"], [](const JsonAt& update) { require_tool(update["tool"]); });
  require_steps(json);
}

void read_header(const JsonAt& json) {
  journal_header_from_json(json);
  require_environment(json);
  require_text(json["space"]);
  require_text(json["strategy"]);
  each(json["cells"], require_cell);
}

void read_model(const JsonAt& json) {
  model_from_json(json);
  require_text(json["name"]);
  if (json.has("aliases")) each(json["aliases"], require_text);
}

void read_peer_times(const JsonAt& json) {
  peers_from_json(json);
  if (json["tool"]["name"].string() != "peers.py") json["tool"]["name"].fail("expected 'peers.py'");
  require_texts(json["tool"]["argv"]);
  require_text(json["environment"]["device"]);
  require_text(json["environment"]["torch"]);
  each(json["entries"], [](const JsonAt& entry) {
    require_text(entry["id"]);
    require_text(entry["peer"]);
    require_cell(entry["cell"]);
    entry["note"].string();
  });
}

void read_kernels(const JsonAt& json) {
  require_tool(json["tool"]);
  require_kernel_manifest(json);
}

void read_pack(const JsonAt& json) { pack_from_json(json); }

void read_runtime(const JsonAt& json) {
  require_tool(json["tool"]);
  require_runtime(json);
}

void read_space(const JsonAt& json) { space_from_json(json); }

// The options of each part must make cells.
void read_suite_document(const JsonAt& json) {
  const std::vector<SuitePart> parts = suite_from_json(json);
  for (size_t i = 0; i < parts.size(); ++i)
    placed(json["cells"][i], [&](const JsonAt&) { return make_cells(parts[i].options); });
}

// Loads may be of layers with unlike numbers of experts: a sweep takes those that fit its own.
void read_recording(const JsonAt& json) {
  std::set<int64_t> experts;
  if (json.has("loads") && !json.has("experts"))
    each(json["loads"], [&](const JsonAt& load) { experts.insert(static_cast<int64_t>(load["counts"].size())); });
  if (experts.empty()) experts.insert(0);
  for (const int64_t count : experts) with_open_top_k([&](int64_t top_k) { trace_from_json(json, count, top_k); });
}

constexpr FileKind kKinds[] = {
    {"bench", 1, "bench", "times of candidates, winners and baselines", read_bench},
    {"check", 1, "check", "findings against a table", read_check},
    {"compile", 1, "compile", "compiled kernels", read_compile},
    {"diff", 1, "diff", "differences of two tables", read_diff},
    {"doctor", 1, "doctor", "devices and their ceilings", read_doctor},
    {"journal", 1, "tune, merge", "every trial of a run, as JSON lines", read_header},
    {"kernels", 1, "export --format kernels", "how exported kernels are launched", read_kernels},
    {"list", 1, "list", "names that moetune knows", read_list},
    {"lookup", 1, "lookup", "answers of a table", read_lookup},
    {"model", 1, "you", "the expert layers of a model", read_model},
    {"pack", 1, "you, scripts/pack_triton.py", "how kernels made elsewhere are launched", read_pack},
    {"peers", 1, "scripts/peers.py", "times of other libraries", read_peer_times},
    {"plan", 1, "tune --dry-run", "what a run would do", read_plan},
    {"replay", 1, "replay", "what a strategy would have found", read_replay},
    {"routing", 1, "you", "recorded router loads", read_recording},
    {"runtime", 1, "export --format runtime", "winners for programs that pick kernels", read_runtime},
    {"space", 1, "you", "values to try for each knob", read_space},
    {"suite", 1, "you", "lists of cells under a name", read_suite_document},
    {"table", 1, "tune, merge", "the winner of each cell", read_table_document},
    {"validate", 1, "validate", "what files are, and whether they are valid", read_validate},
    {"verify", 1, "verify", "results compared with the reference", read_verify},
};

}  // namespace

std::span<const FileKind> file_kinds() { return kKinds; }

const FileKind* find_kind(std::string_view schema) {
  constexpr std::string_view kBegin = "moetune.";
  if (!schema.starts_with(kBegin)) return nullptr;
  const std::string_view name = schema.substr(kBegin.size(), schema.rfind('/') - kBegin.size());
  const auto found = std::ranges::find(kKinds, name, &FileKind::name);
  return found == std::end(kKinds) || !schema.substr(kBegin.size() + name.size()).starts_with('/') ? nullptr : &*found;
}

}  // namespace moetune
