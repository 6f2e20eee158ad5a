// Cells and problems: ids, sizes, JSON and operand values.
#include "workload/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/random.h"
#include "workload/model.h"

namespace moetune {
namespace {

// The layer of the preset that the cell's model names. Nothing for "custom", for a model from a file, and where the
// model can't be divided by tp or ep.
std::optional<Layer> layer_of_preset(const Layer& layer) {
  for (const Model& model : model_presets())
    if (model.name == layer.model && model.intermediate % layer.tp == 0 && model.experts % layer.ep == 0)
      return make_layer(model, layer.projection, layer.format, layer.tp, layer.ep);
  return std::nullopt;
}

// Parts of an id are joined by '/'. A text that has a '/' itself stands in parentheses; no part after it has one, so
// that different cells have different ids.
std::string closed(const std::string& part) {
  return part.find('/') == std::string::npos ? part : fmt::format("({})", part);
}

}  // namespace

int64_t Problem::active_experts() const {
  return std::ranges::count_if(routing.m_sizes, [](int32_t m) { return m > 0; });
}

std::string routing_title(const Cell& cell) {
  return text(cell.routing) + (cell.seed == 0 ? "" : fmt::format(", seed {}", cell.seed));
}

std::string cell_title(const Cell& cell) {
  return fmt::format("{} {}, {}", cell.tokens, cell.tokens == 1 ? "token" : "tokens", routing_title(cell));
}

std::vector<size_t> by_work(const std::vector<Cell>& cells) {
  const auto work = [&](size_t i) {
    const Layer& layer = cells[i].shape.layer;
    return static_cast<double>(cells[i].tokens) * static_cast<double>(layer.top_k) * static_cast<double>(layer.n) *
           static_cast<double>(layer.k);
  };
  std::vector<size_t> order(cells.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, work);
  return order;
}

Problem make_problem(const Cell& cell) {
  require_valid(cell.shape);
  const Layer& layer = cell.shape.layer;
  Routing whole =
      generate_routing(cell.routing, cell.tokens, layer.experts + layer.zero_experts, layer.top_k, cell.seed);
  if (layer.local_experts() < std::ssize(whole.m_sizes)) whole = first_experts(whole, layer.local_experts());
  return {cell.shape, std::move(whole), cell.seed};
}

Json to_json(const Problem& problem) {
  return {{"shape", to_json(problem.shape)}, {"seed", problem.seed}, {"routing", to_json(problem.routing)}};
}

Problem problem_from_json(const JsonAt& json) {
  Problem problem{shape_from_json(json["shape"]), routing_from_json(json["routing"]), seed_from_json(json["seed"])};
  const Layer& layer = problem.shape.layer;
  const Routing& routing = problem.routing;
  if (routing.top_k != layer.top_k)
    json.fail(fmt::format("the routing has top_k {}, the layer {}", routing.top_k, layer.top_k));
  if (static_cast<int64_t>(routing.m_sizes.size()) != layer.local_experts())
    json.fail(fmt::format("m_sizes has {} experts, the layer {}", routing.m_sizes.size(), layer.local_experts()));
  return problem;
}

float operand_value(Values values, uint64_t seed, int stream, uint64_t index, int most) {
  const Filling filling = stream == kStreamWeights    ? Filling::weights
                          : values == Values::integer ? Filling::integers
                                                      : Filling::random;
  return value_of(filling, seed, stream, index, most);
}

float value_of(Filling filling, uint64_t seed, int stream, uint64_t index, int most) {
  const uint64_t hash = splitmix64(splitmix64(seed * 4 + static_cast<uint64_t>(stream)) + index / 2);
  return filled_value(filling, static_cast<uint32_t>(index % 2 == 0 ? hash : hash >> 32), most);
}

std::string id(const Cell& cell) {
  const Layer& layer = cell.shape.layer;
  const Layer usual = layer_of_preset(layer).value_or(Layer{});
  std::string id = fmt::format("{}/{}/{}/{}/t{}/{}", layer.model, name(layer.projection), name(cell.shape.op),
                               layer.format.word, cell.tokens, closed(text(cell.routing)));
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
  add("zero", layer.zero_experts, usual.zero_experts);
  if (cell.seed != 0) id += fmt::format("/seed{}", cell.seed);
  return id;
}

Fields fields_of(const Cell& cell) {
  Fields fields;
  const Layer& layer = cell.shape.layer;
  const auto add = [&](std::string_view column, auto value) { fields.emplace_back(column, fmt::format("{}", value)); };
  add("id", id(cell));
  add("model", layer.model);
  add("projection", name(layer.projection));
  add("op", name(cell.shape.op));
  add("dtype", layer.format.dtype);
  add("scales", name(layer.format.scales));
  add("out_dtype", name(layer.format.y.dtype));
  add("fast_sums", has_fast_sums(layer.format));
  add("weights", name(layer.format.w.reordered ? WeightOrder::reordered : WeightOrder::as_is));
  add("experts", layer.experts);
  add("top_k", layer.top_k);
  add("n", layer.n);
  add("k", layer.k);
  add("tp", layer.tp);
  add("ep", layer.ep);
  add("zero_experts", layer.zero_experts);
  for (const FusionPart& part : kFusionParts) add(part.name, part.is_on(cell.shape.fusion));
  add("tokens", cell.tokens);
  add("routing", text(cell.routing));
  add("seed", cell.seed);
  return fields;
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
  cell.routing = word_at(json["routing"], parse_routing);
  cell.seed = seed_from_json(json["seed"]);
  return cell;
}

uint64_t seed_from_json(const JsonAt& json) {
  if (json.value().is_number_unsigned()) return json.value().get<uint64_t>();
  return static_cast<uint64_t>(json.integer(0));
}

}  // namespace moetune
