// Makes a routing from its spec, by the sampler or recording that the spec names.
#include <fmt/format.h>

#include "base/error.h"
#include "workload/routing/loads.h"
#include "workload/routing/routing.h"
#include "workload/routing/trace.h"

namespace moetune {
namespace {

Trace trace_of(const RoutingSpec& spec, int64_t experts, int64_t top_k) {
  return read_trace(trace_file(spec), experts, top_k);
}

// The layer that the spec names, or the only one.
const TraceLayer& layer_of(const Trace& trace, const RoutingSpec& spec) {
  if (!spec.layer.empty()) return find_layer(trace, spec.layer, spec.file);
  if (trace.layers.size() != 1)
    throw request_error(fmt::format("{}: has {} layers, but the routing names none", spec.file, trace.layers.size()),
                        fmt::format("write {}#{}", text(spec), trace.layers.front().name));
  return trace.layers.front();
}

Routing from_trace(const RoutingSpec& spec, int64_t tokens, int64_t experts, int64_t top_k) {
  const Trace trace = trace_of(spec, experts, top_k);
  const TraceLayer& layer = layer_of(trace, spec);
  if (layer.tokens == tokens && !layer.topk_ids.empty())
    return routing_from_ids(layer.topk_ids, tokens, top_k, experts);
  return routing_from_rows(scale_rows(layer.m_sizes, tokens, top_k), tokens, top_k);
}

Routing whole_model(const RoutingSpec& spec, int64_t tokens, int64_t experts, int64_t top_k, uint64_t seed) {
  if (spec.name == "trace") return from_trace(spec, tokens, experts, top_k);
  // A spec that code built may lack numbers or have wrong ones: its text is parsed and checked as a user's.
  const RoutingSpec checked = parse_routing(text(spec));
  if (draws_loads(checked)) return routing_from_rows(draw_loads(checked, tokens, experts, top_k, seed), tokens, top_k);
  return routing_from_ids(draw_expert_choices(checked, tokens, experts, top_k, seed), tokens, top_k, experts);
}

}  // namespace

Routing generate_routing(const RoutingSpec& spec, int64_t tokens, int64_t experts, int64_t top_k, int64_t ep,
                         uint64_t seed) {
  require_sizes(tokens, experts, top_k);
  Routing routing = whole_model(spec, tokens, experts, top_k, seed);
  return ep == 1 ? routing : shard(routing, ep);
}

std::vector<RoutingSpec> expand(const RoutingSpec& spec, int64_t experts, int64_t top_k) {
  if (spec.name != "trace" || !spec.layer.empty()) return {spec};
  std::vector<RoutingSpec> specs;
  for (const TraceLayer& layer : trace_of(spec, experts, top_k).layers)
    specs.push_back({spec.name, {}, spec.file, layer.name, spec.folder});
  return specs;
}

int64_t recorded_tokens(const RoutingSpec& spec, int64_t experts, int64_t top_k) {
  if (spec.name != "trace") return 0;
  const Trace trace = trace_of(spec, experts, top_k);
  if (!spec.layer.empty()) return find_layer(trace, spec.layer, spec.file).tokens;
  for (const TraceLayer& layer : trace.layers)
    if (layer.tokens != trace.layers.front().tokens)
      throw request_error(fmt::format("{}: its layers were recorded with different numbers of tokens", spec.file),
                          fmt::format("name a layer: {}#{}", text(spec), layer.name));
  return trace.layers.front().tokens;
}

}  // namespace moetune
