// Chooses the reader of a recording; looks up and scales its layers.
#include "workload/routing/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/embedded.h"
#include "base/error.h"
#include "base/system/file.h"
#include "workload/routing/loads.h"
#include "workload/routing/recording.h"

namespace moetune {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kRecordings = "configs/routings/";
constexpr std::string_view kJson = ".json";

Trace read_json_text(std::string_view text, const std::string& where, int64_t experts, int64_t top_k) {
  const Json json = parse_json(text, where);
  return trace_from_json(JsonAt(json, where), experts, top_k);
}

}  // namespace

Trace read_trace(const fs::path& path, int64_t experts, int64_t top_k) {
  const std::string where = path.string();
  const fs::path extension = path.extension();
  std::error_code ignored;
  // A folder of that name, for instance a model's, is not a recording.
  if (!fs::exists(path, ignored) || fs::is_directory(path, ignored)) {
    const std::string built_in = fmt::format("{}{}{}", kRecordings, where, kJson);
    if (const auto text = embedded_file(built_in)) return read_json_text(*text, built_in, experts, top_k);
    // A word without folder and extension is taken for the name of a built-in recording.
    if (!path.has_parent_path() && extension != ".json" && extension != ".csv" && extension != ".npy")
      throw unknown_word("recording", where, embedded_names(kRecordings));
  }
  if (extension == ".json") return read_json_text(read_text(path), where, experts, top_k);
  if (extension == ".csv") return trace_from_csv(read_text(path), where, experts, top_k);
  if (extension == ".npy") return trace_from_npy(read_text(path), where, experts, top_k);
  throw request_error(fmt::format("{}: the file name doesn't tell the kind of recording", where),
                      "it must end in .json, .csv or .npy");
}

fs::path trace_file(const RoutingSpec& spec) {
  const fs::path named = spec.file, beside = spec.folder / named;
  std::error_code ignored;
  return !fs::exists(named, ignored) && fs::exists(beside, ignored) ? beside : named;
}

const TraceLayer& find_layer(const Trace& trace, const std::string& name, const fs::path& path) {
  std::vector<std::string> names;
  for (const TraceLayer& layer : trace.layers) {
    if (layer.name == name) return layer;
    names.push_back(layer.name);
  }
  const Error unknown = unknown_word("layer", name, names);
  throw request_error(fmt::format("{}: {}", path.string(), unknown.what()), unknown.hint());
}

std::vector<int32_t> scale_rows(const std::vector<int32_t>& m_sizes, int64_t tokens, int64_t top_k) {
  const auto sum = std::accumulate(m_sizes.begin(), m_sizes.end(), int64_t{0});
  const bool fits = std::all_of(m_sizes.begin(), m_sizes.end(), [&](int32_t m) { return m <= tokens; });
  if (sum == tokens * top_k && fits) return m_sizes;
  return apportion(std::vector<double>(m_sizes.begin(), m_sizes.end()), tokens * top_k, tokens);
}

}  // namespace moetune
