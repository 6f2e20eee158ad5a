// Recordings in JSON: rows per expert or chosen experts by layer, or a list of loads or counts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "workload/routing/loads.h"
#include "workload/routing/recording.h"
#include "workload/routing/routing.h"
#include "workload/shape.h"

namespace moetune {
namespace {

int64_t known(const JsonAt& json, std::string_view key) { return json.has(key) ? json[key].integer() : 0; }

int64_t agreed_at(const JsonAt& json, std::string_view key, int64_t wanted) {
  return with_place(json, [&](const JsonAt&) { return agreed(key, known(json, key), wanted); });
}

// Averages are rounded so that their sum is.
std::vector<int32_t> rows_of(const JsonAt& array, int64_t experts, int64_t tokens) {
  const int64_t size = static_cast<int64_t>(array.size());
  if (experts != 0 && size != experts)
    array.fail(fmt::format("has rows of {} experts, expected {}", size, experts),
               "chosen experts are read as {\"topk_ids\": {\"LAYER\": [[...]]}}");
  if (std::ranges::all_of(array.value(), [](const Json& value) { return value.is_number_integer(); }))
    return integers(array, 0, kMaxRows);
  if (tokens == 0) array.fail("has averages, which are not whole", "write the number of \"tokens\" beside them");
  const std::vector<double> averages = list_at(array, &JsonAt::number);
  const double sum = std::accumulate(averages.begin(), averages.end(), 0.0);
  if (sum > static_cast<double>(kMaxRows)) array.fail(fmt::format("rows sum to {}, over {}", sum, kMaxRows));
  return apportion(averages, std::llround(sum), kMaxRows);
}

void read_rows(const JsonAt& layers, int64_t tokens, Trace& trace) {
  for (const auto& item : layers.value().items()) {
    const JsonAt array = layers[item.key()];
    std::vector<int32_t> rows = rows_of(array, trace.experts, tokens);
    trace.experts = static_cast<int64_t>(rows.size());
    with_place(array, [&](const JsonAt&) {
      add_layer(trace, layer_from_rows(item.key(), std::move(rows), tokens, trace.top_k));
    });
  }
}

void read_ids(const JsonAt& layers, int64_t tokens, Trace& trace) {
  if (trace.experts == 0) layers.fail("'experts' is missing", "chosen experts do not tell how many there are");
  for (const auto& item : layers.value().items()) {
    const JsonAt array = layers[item.key()];
    const size_t count = array.size();
    if (tokens != 0 && static_cast<int64_t>(count) != tokens)
      array.fail(fmt::format("has {} tokens, expected {}", count, tokens));
    std::vector<int32_t> ids;
    for (size_t token = 0; token < count; ++token) {
      const JsonAt choices = array[token];
      const int64_t size = static_cast<int64_t>(choices.size());
      if (trace.top_k == 0) trace.top_k = size;
      if (size != trace.top_k) choices.fail(fmt::format("has {} choices, expected {}", size, trace.top_k));
      const std::vector<int32_t> chosen = integers(choices, 0, trace.experts - 1);
      ids.insert(ids.end(), chosen.begin(), chosen.end());
    }
    with_place(array, [&](const JsonAt&) {
      add_layer(trace, layer_from_ids(item.key(), std::move(ids), trace.top_k, trace.experts));
    });
  }
}

// A list of loads may mix numbers of experts: those that don't fit the sweep's layer are skipped.
void read_loads(const JsonAt& loads, int64_t tokens, Trace& trace) {
  std::set<size_t> sizes;
  for (size_t i = 0; i < loads.size(); ++i) sizes.insert(loads[i]["counts"].size());
  if (trace.experts == 0 && sizes.size() > 1)
    loads.fail(fmt::format("loads of {} experts are mixed", fmt::join(sizes, ", ")), "say how many experts are wanted");
  if (trace.experts != 0 && !sizes.contains(static_cast<size_t>(trace.experts)))
    loads.fail(fmt::format("these are loads of {} experts, the layer has {}", fmt::join(sizes, ", "), trace.experts));
  if (trace.experts == 0) trace.experts = static_cast<int64_t>(*sizes.begin());
  for (size_t i = 0; i < loads.size(); ++i) {
    const JsonAt load = loads[i];
    const JsonAt counts = load["counts"];
    if (static_cast<int64_t>(counts.size()) != trace.experts) continue;
    const int64_t own_tokens = load.has("tokens") ? load["tokens"].integer() : tokens;
    trace.top_k = agreed_at(load, "top_k", trace.top_k);
    std::vector<int32_t> rows = rows_of(counts, trace.experts, own_tokens);
    TraceLayer layer = with_place(counts, [&](const JsonAt&) {
      return layer_from_rows(load["name"].string(), std::move(rows), own_tokens, trace.top_k);
    });
    with_place(load, [&](const JsonAt&) { add_layer(trace, std::move(layer)); });
  }
}

}  // namespace

Trace trace_from_json(const JsonAt& json, int64_t experts, int64_t top_k) {
  if (json.value().is_array()) {  // of layers, or of one
    const bool one = json.size() > 0 && json.value()[0].is_number();
    const Json counts = {{"logical_count", one ? Json::array({json.value()}) : json.value()}};
    return trace_from_json(JsonAt(counts, json.place()), experts, top_k);
  }
  json.has("schema") ? require_schema(json, "routing") : require_valid(json, "routing");
  Trace trace;
  trace.experts = agreed_at(json, "experts", experts);
  trace.top_k = agreed_at(json, "top_k", top_k);
  const int64_t tokens = known(json, "tokens");
  if (json.has("layers")) read_rows(json["layers"], tokens, trace);
  if (json.has("topk_ids")) read_ids(json["topk_ids"], tokens, trace);
  if (json.has("logical_count")) {
    Json layers = Json::object();
    for (const Json& rows : json["logical_count"].value()) layers[std::to_string(layers.size())] = rows;
    read_rows(JsonAt(layers, json["logical_count"].place()), tokens, trace);
  }
  if (json.has("loads")) read_loads(json["loads"], tokens, trace);
  return trace;
}

}  // namespace moetune
