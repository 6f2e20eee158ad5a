// Each kind with what its schema cannot say: the reader of the command that reads such files.
#include "cli/files/file_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <type_traits>

#include "base/error.h"
#include "cli/options/cells.h"
#include "export/exporter.h"
#include "export/kernels/kernel_manifest.h"
#include "record/comparison.h"
#include "record/journal/journal.h"
#include "record/table/table.h"
#include "variant/cost.h"
#include "variant/pack/pack.h"
#include "variant/space/space.h"
#include "workload/model.h"
#include "workload/routing/recording.h"

namespace moetune {
namespace {

// The options of each part must make cells.
void read_suite_document(const JsonAt& json, const Catalog&) {
  for (const SuitePart& part : suite_from_json(json)) make_cells(part);
}

// Loads may be of layers with unlike numbers of experts: a sweep takes those that fit its own.
void read_recording(const JsonAt& json, const Catalog&) {
  std::set<int64_t> experts;
  if (json.has("loads") && !json.has("experts"))
    for (size_t i = 0; i < json["loads"].size(); ++i)
      experts.insert(static_cast<int64_t>(json["loads"][i]["counts"].size()));
  if (experts.empty()) experts.insert(0);
  for (const int64_t count : experts) with_open_top_k([&](int64_t top_k) { trace_from_json(json, count, top_k); });
}

// A pack's variant is added to those that are built in.
void read_pack(const JsonAt& json, const Catalog& catalog) {
  const std::string name = pack_from_json(json).variant;
  if (contains(catalog.variants(), name, [](const auto& one) { return one->name; }))
    json["variant"].fail(fmt::format("the name '{}' is taken by a variant that is built in", name));
}

// What a reader makes of a file is dropped: only its errors count.
template <auto Reader>
void read_by(const JsonAt& json, const Catalog& catalog) {
  if constexpr (std::is_invocable_v<decltype(Reader), const JsonAt&>)
    Reader(json);
  else
    Reader(json, catalog);
}

constexpr FileKind kKinds[] = {
    {"bench", 1, "bench", "times of candidates, winners and baselines"},
    {"check", 1, "check", "findings against a table"},
    {"compile", 1, "compile", "compiled kernels"},
    {"cost", 1, "scripts/fit_cost", "constants of the model that ranks candidates", read_by<constants_from_json>},
    {"doctor", 1, "doctor", "devices and their ceilings"},
    {"history", 1, "check --history", "checks over time, as JSON lines"},
    {"journal", 1, "tune, merge", "every trial of a run, as JSON lines", read_by<journal_header_from_json>},
    {"kernels", 1, "export --format kernels", "how exported kernels are launched", read_by<require_kernel_manifest>},
    {"list", 1, "list", "names that moetune knows"},
    {"lookup", 1, "lookup", "answers of a table"},
    {"model", 1, "you", "the expert layers of a model", read_by<model_from_json>},
    {"pack", 1, "you, scripts/pack_triton.py", "how kernels made elsewhere are launched", read_pack},
    {"peers", 1, "scripts/peers.py", "times of other libraries", read_by<peers_from_json>},
    {"plan", 1, "tune --dry-run", "what a run would do"},
    {"routing", 1, "you", "recorded router loads", read_recording},
    {"runtime", 1, "export --format runtime", "winners for programs that pick kernels", read_by<require_runtime>},
    {"space", 1, "you", "values to try for each knob", read_by<space_from_json>},
    {"suite", 1, "you", "lists of cells under a name", read_suite_document},
    {"table", 1, "tune, merge", "the winner of each cell", read_by<table_from_json>},
    {"validate", 1, "validate", "what files are, and whether they are valid"},
    {"verify", 1, "verify", "results compared with the reference"},
};

}  // namespace

void with_open_top_k(const std::function<void(int64_t top_k)>& read) {
  try {
    read(0);
  } catch (const Error& error) {
    try {
      read(1);
    } catch (const Error&) {
      throw error;
    }
  }
}

std::span<const FileKind> file_kinds() { return kKinds; }

const FileKind* find_kind(std::string_view schema) {
  constexpr std::string_view kBegin = "moetune.";
  if (!schema.starts_with(kBegin)) return nullptr;
  const std::string_view name = schema.substr(kBegin.size(), schema.rfind('/') - kBegin.size());
  const auto found = std::ranges::find(kKinds, name, &FileKind::name);
  return found == std::end(kKinds) || !schema.substr(kBegin.size() + name.size()).starts_with('/') ? nullptr : &*found;
}

}  // namespace moetune
