// Cells: their ids and JSON.
#include <fmt/format.h>

#include <optional>

#include "base/error.h"
#include "workload/model.h"
#include "workload/problem.h"

namespace moetune {
namespace {

// The layer of the preset that the cell's model names. Nothing for "custom", for a model from a file, and where the
// model can't be divided by tp or ep.
std::optional<Layer> layer_of_preset(const Layer& layer) {
  for (const Model& model : model_presets()) {
    if (model.name != layer.model || model.intermediate % layer.tp != 0 || model.experts % layer.ep != 0) continue;
    return make_layer(model, layer.projection, layer.dtype, layer.tp, layer.ep);
  }
  return std::nullopt;
}

// Parts of an id are joined by '/'. A text that has a '/' itself stands in parentheses; no part after it has one, so
// that different cells have different ids.
std::string closed(const std::string& part) {
  return part.find('/') == std::string::npos ? part : fmt::format("({})", part);
}

}  // namespace

std::string id(const Cell& cell) {
  const Layer& layer = cell.shape.layer;
  const Layer usual = layer_of_preset(layer).value_or(Layer{});
  std::string id = fmt::format("{}/{}/{}/{}/t{}/{}", layer.model, name(layer.projection), name(cell.shape.op),
                               name(layer.dtype), cell.tokens, closed(text(cell.routing)));
  const auto add = [&](std::string_view letter, int64_t value, int64_t otherwise) {
    if (value != otherwise) id += fmt::format("/{}{}", letter, value);
  };
  add("e", layer.experts, usual.experts);
  add("top", layer.top_k, usual.top_k);
  add("n", layer.n, usual.n);
  add("k", layer.k, usual.k);
  if (cell.shape.fusion != Fusion{}) id += "/" + text(cell.shape.fusion);
  add("tp", layer.tp, 1);
  add("ep", layer.ep, 1);
  if (cell.seed != 0) id += fmt::format("/seed{}", cell.seed);
  return id;
}

Json to_json(const Cell& cell) {
  Json json = to_json(cell.shape);
  json["tokens"] = cell.tokens;
  json["routing"] = text(cell.routing);
  json["seed"] = cell.seed;
  return json;
}

Cell cell_from_json(const JsonAt& json) {
  Cell cell;
  cell.shape = shape_from_json(json);
  cell.tokens = json["tokens"].integer(1, kMaxRows / cell.shape.layer.top_k);
  const JsonAt routing = json["routing"];
  const std::string word = routing.string();
  try {
    cell.routing = parse_routing(word);
  } catch (const Error& error) {
    routing.fail(error.what(), error.hint());
  }
  cell.seed = seed_from_json(json["seed"]);
  return cell;
}

uint64_t seed_from_json(const JsonAt& json) {
  if (json.value().is_number_unsigned()) return json.value().get<uint64_t>();
  return static_cast<uint64_t>(json.integer(0));
}

}  // namespace moetune
