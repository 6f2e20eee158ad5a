// Chooses the reader of a recording; looks up and scales its layers; makes routings from recordings and samplers.
#include "workload/routing/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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

Trace read_json_text(std::string_view text, const Where& where, int64_t experts, int64_t top_k) {
  const Json json = parse_json(text, where);
  return trace_from_json(JsonAt(json, where), experts, top_k);
}

Trace trace_of(const RoutingSpec& spec, int64_t experts, int64_t top_k) {
  return read_trace(trace_file(spec), experts, top_k);
}

// The layer that the spec names, or the only one.
const TraceLayer& layer_of(const Trace& trace, const RoutingSpec& spec) {
  if (!spec.layer.empty()) return find_layer(trace, spec.layer, spec.file);
  if (trace.layers.size() != 1)
    throw request_error(fmt::format("has {} layers, but the routing names none", trace.layers.size()),
                        fmt::format("write {}#{}", text(spec), trace.layers.front().name))
        .at(spec.file);
  return trace.layers.front();
}

Routing from_trace(const RoutingSpec& spec, int64_t tokens, int64_t experts, int64_t top_k) {
  const Trace trace = trace_of(spec, experts, top_k);
  const TraceLayer& layer = layer_of(trace, spec);
  if (layer.tokens == tokens && !layer.topk_ids.empty())
    return routing_from_ids(layer.topk_ids, tokens, top_k, experts);
  // As many of the rows as were recorded have an expert that computes them.
  const auto recorded = std::accumulate(layer.m_sizes.begin(), layer.m_sizes.end(), int64_t{0});
  const double share = static_cast<double>(recorded) / static_cast<double>(layer.tokens * top_k);
  const auto rows = std::max<int64_t>(1, std::llround(share * static_cast<double>(tokens * top_k)));
  return routing_from_rows(scale_rows(layer.m_sizes, tokens, rows), tokens, top_k);
}

Routing whole_model(const RoutingSpec& spec, int64_t tokens, int64_t experts, int64_t top_k, uint64_t seed) {
  if (spec.name == "trace") return from_trace(spec, tokens, experts, top_k);
  // A spec that code built may lack numbers or have wrong ones: its text is parsed and checked as a user's.
  const RoutingSpec checked = parse_routing(text(spec));
  const std::vector<int32_t> loads = draw_loads(checked, tokens, experts, top_k, seed);
  if (!loads.empty()) return routing_from_rows(loads, tokens, top_k);
  return routing_from_ids(draw_expert_choices(checked, tokens, experts, top_k, seed), tokens, top_k, experts);
}

// The same with experts behind the others that every token picks in its last slots.
Routing with_shared(const Routing& routed, int64_t shared) {
  const int64_t top_k = routed.top_k + shared;
  Routing routing{routed.tokens, top_k, routed.m_sizes, {}};
  for (const int64_t slot : routed.gather_indices)
    routing.gather_indices.push_back(static_cast<int32_t>(slot / routed.top_k * top_k + slot % routed.top_k));
  for (int64_t slot = routed.top_k; slot < top_k; ++slot) {
    routing.m_sizes.push_back(static_cast<int32_t>(routed.tokens));
    for (int64_t token = 0; token < routed.tokens; ++token)
      routing.gather_indices.push_back(static_cast<int32_t>(token * top_k + slot));
  }
  return routing;
}

}  // namespace

Trace read_trace(const fs::path& path, int64_t experts, int64_t top_k) {
  const std::string where = path.string();
  const fs::path extension = path.extension();
  // A folder of that name, for instance a model's, is not a recording.
  if (!is_there(path) || is_folder(path)) {
    const std::string built_in = fmt::format("{}{}{}", kRecordings, where, kJson);
    if (const auto text = embedded_file(built_in)) return read_json_text(*text, built_in, experts, top_k);
    // A word without folder and extension is taken for the name of a built-in recording.
    if (!path.has_parent_path() && extension != ".json" && extension != ".csv" && extension != ".npy")
      throw unknown_word("recording", where, embedded_names(kRecordings));
  }
  if (extension == ".json") return read_json_text(read_text(path), where, experts, top_k);
  if (extension == ".csv") return trace_from_csv(read_text(path), where, experts, top_k);
  if (extension == ".npy") return trace_from_npy(read_text(path), where, experts, top_k);
  throw request_error("the file name doesn't tell the kind of recording",
                      extension == ".pt" ? "make JSON of SGLang's dump with scripts/convert_recording.py FILE.pt"
                                         : "it must end in .json, .csv or .npy")
      .at(where);
}

fs::path trace_file(const RoutingSpec& spec) {
  const fs::path named = spec.file, beside = spec.folder / named;
  return !is_there(named) && is_there(beside) ? beside : named;
}

const TraceLayer& find_layer(const Trace& trace, const std::string& name, const fs::path& path) {
  const auto found = std::ranges::find(trace.layers, name, &TraceLayer::name);
  if (found != trace.layers.end()) return *found;
  throw unknown_word("layer", name, mapped(trace.layers, &TraceLayer::name)).at(path);
}

std::vector<int32_t> scale_rows(const std::vector<int32_t>& m_sizes, int64_t tokens, int64_t rows) {
  const auto sum = std::accumulate(m_sizes.begin(), m_sizes.end(), int64_t{0});
  const bool fits = std::ranges::all_of(m_sizes, [&](int32_t m) { return m <= tokens; });
  if (sum == rows && fits) return m_sizes;
  return apportion(std::vector<double>(m_sizes.begin(), m_sizes.end()), rows, tokens);
}

Routing generate_routing(const RoutingSpec& spec, int64_t tokens, int64_t experts, int64_t top_k, uint64_t seed) {
  require_sizes(tokens, experts, top_k);
  require_sizes(tokens, experts - spec.shared, top_k - spec.shared);
  const Routing routing = whole_model(spec, tokens, experts - spec.shared, top_k - spec.shared, seed);
  return spec.shared > 0 ? with_shared(routing, spec.shared) : routing;
}

std::vector<RoutingSpec> expand(const RoutingSpec& spec, int64_t experts, int64_t top_k) {
  if (spec.name != "trace" || !spec.layer.empty()) return {spec};
  const Trace trace = trace_of(spec, experts - spec.shared, top_k - spec.shared);
  return mapped(trace.layers, [&](const TraceLayer& layer) -> RoutingSpec {
    return {spec.name, {}, spec.file, layer.name, spec.folder, spec.shared};
  });
}

int64_t recorded_tokens(const RoutingSpec& spec, int64_t experts, int64_t top_k) {
  if (spec.name != "trace") return 0;
  const Trace trace = trace_of(spec, experts - spec.shared, top_k - spec.shared);
  if (!spec.layer.empty()) return find_layer(trace, spec.layer, spec.file).tokens;
  for (const TraceLayer& layer : trace.layers)
    if (layer.tokens != trace.layers.front().tokens)
      throw request_error("its layers were recorded with different numbers of tokens",
                          fmt::format("name a layer: {}#{}", text(spec), layer.name))
          .at(spec.file);
  return trace.layers.front().tokens;
}

}  // namespace moetune
