// Expands a request, model by model.
#include "workload/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <tuple>

#include "base/group.h"
#include "workload/model.h"
#include "workload/product/product.h"

namespace moetune {
namespace {

constexpr int64_t kDefaultTokens = 256;
constexpr size_t kMaxCells = 10000;

template <typename Value>
std::vector<Value> or_else(const std::vector<Value>& given, Value usual) {
  return given.empty() ? std::vector<Value>{usual} : given;
}

// A layer from n and k, as that of a model: tp divides the side that is its intermediate width.
Model model_of_sizes(const CellRequest& request, Model model) {
  if (request.projections.size() > 1)
    throw CellRequestError("projection", "n and k are the sizes of one projection",
                           "for both give hidden and intermediate");
  const bool up = request.projections.empty() || request.projections[0] == Projection::up;
  model.intermediate = up ? request.n : request.k, model.hidden = up ? request.k : request.n, model.gated = false;
  for (const int64_t tp : request.tp)
    if (model.intermediate % tp != 0)
      throw CellRequestError("tp", fmt::format("{} does not divide {} {}", tp, up ? "n" : "k", model.intermediate));
  return model;
}

std::vector<Model> models_of(const CellRequest& request) {
  const Model given{.name = "custom",
                    .experts = request.experts,
                    .top_k = request.top_k,
                    .hidden = request.hidden,
                    .intermediate = request.intermediate};
  const bool by_sides = request.n || request.k, by_width = given.hidden || given.intermediate;
  if (!request.models.empty()) {
    if (by_sides)
      throw CellRequestError("model", "excludes n and k", "scale a model's layer with hidden and intermediate");
    std::vector<Model> models;
    for (const std::string& name : request.models)
      for (Model& model : find_models(name, given)) models.push_back(std::move(model));
    return models;
  }
  const std::string example =
      "give a model, such as --model qwen3-30b-a3b ('moetune list models' names all), or its sizes, such as --experts "
      "64 --top-k 8 --n 1536 --k 2048";
  if (!given.experts && !given.top_k && !by_sides && !by_width) throw request_error("no layer is given", example);
  if (by_sides && by_width)
    throw CellRequestError(request.n ? "n" : "k", "n and k exclude hidden and intermediate",
                           "give one of the two pairs");
  for (const auto& [value, field] : {std::pair{given.experts, "experts"},
                                     {given.top_k, "top_k"},
                                     {by_width ? given.hidden : request.n, by_width ? "hidden" : "n"},
                                     {by_width ? given.intermediate : request.k, by_width ? "intermediate" : "k"}})
    if (!value) throw CellRequestError(field, "the size is missing", example);
  return {by_width ? given : model_of_sizes(request, given)};
}

// Of several cells of a layer: a step of training has gates in dx of down, which reads the product of up.
bool takes_gates(Projection projection, Op op, std::span<const Op> ops) {
  const bool trains = contains(ops, Op::dx);
  return trains ? op == Op::dx && projection == Projection::down : op == Op::fwd && projection == Projection::up;
}

// The activation of the experts in an ffn: silu if nothing names it, which a note on the model says.
Activation gate_of(const Model& model) {
  if (!model.gated)
    throw CellRequestError(
        "projection",
        fmt::format("the experts of {} have no gate, and no kernel of an ffn has their activation", model.name),
        "tune their projections apart: up,down");
  if (model.activation.empty()) return Activation::silu;
  if (!contains(kActivationWords, model.activation))
    throw CellRequestError(
        "projection",
        fmt::format("no kernel of an ffn has the activation of the experts of {}: {}", model.name, model.activation),
        fmt::format("tune their projections apart, up,down, or put one of {} in its place with gated",
                    fmt::join(kActivationWords, ", ")));
  return parse_activation("activation", model.activation);
}

// What the cells of a projection and an op have of the fusions, where several are listed.
Fusion fusion_of(Fusion fusion, const Layer& layer, Op op, bool both, std::span<const Op> ops) {
  const bool up = layer.projection == Projection::up;
  if (both && up) fusion.permute_y = fusion.topk_weights = fusion.weight_gradient = false;
  if (both && !up) fusion.permute_x = false;
  for (const FusionPart& part : kFusionParts)
    if (ops.size() > 1 && part.only && part.only != op) part.turn_off(fusion);
  const bool several = both || ops.size() > 1;
  if (several && !may_sum_slots({layer, op, fusion})) fusion.sum_slots = false;
  if (several && !takes_gates(layer.projection, op, ops)) {
    fusion.activation = Activation::none;
    fusion.interleaved = fusion.store_h = false;
  }
  if (op == Op::dw && layer.format.x.dtype == Dtype::fp32) fusion.fp32_dw = false;  // as it is
  return fusion;
}

// Of several ops and dtypes each takes the fusions that it knows; one that none of them knows is a mistake.
void require_use_of(const CellRequest& request, std::span<const Op> ops) {
  if (ops.size() > 1)  // the error of require_valid says more of one op
    for (const FusionPart& part : kFusionParts)
      if (part.is_on(request.fusion) && part.only && !contains(ops, *part.only))
        throw CellRequestError(part.name, fmt::format("belongs to op {}, which is not listed", name(*part.only)));
  if (request.fusion.fp32_dw && !request.dtypes.empty() &&
      std::ranges::count(request.dtypes, "fp32") == std::ssize(request.dtypes))
    throw CellRequestError("fp32_dw", "has no meaning for dtype fp32", "dW of fp32 inputs is fp32");
}

// What no cell takes.
void require_use_by(const std::vector<Cell>& cells, const CellRequest& request) {
  const auto none = [&](const auto& holds) { return std::ranges::none_of(cells, holds, &Cell::shape); };
  const char* const given = !request.scales.empty()       ? "scales"
                            : !request.out_dtypes.empty() ? "out_dtype"
                            : request.fast_sums           ? "fast_sums"
                                                          : nullptr;
  if (given && none([](const Shape& shape) { return is_quantised(shape.layer.format); }))
    throw CellRequestError(given, "belongs to dtype fp8, which is not listed",
                           request.fast_sums ? "" : "or to int8, int8-w8a8, int4 and uint4");
  if (!request.weights.empty() && none([](const Shape& shape) { return may_be_reordered(shape.layer.format.dtype); }))
    throw CellRequestError("weights", "belongs to dtypes of 4 bits, of which none is listed", "int4, uint4 or mxfp4");
  if (request.fusion.sum_slots && none([](const Shape& shape) { return shape.fusion.sum_slots; }))
    throw CellRequestError("sum_slots", "needs permute_y or, for dx, permute_x");
  if (is_gated(request.fusion) && none([](const Shape& shape) { return is_gated(shape.fusion); }))
    throw CellRequestError("gated", "belongs to fwd of up or, where dx is listed, to dx of down, which no cell here is",
                           "add projection down, or leave op out");
  if (request.fast_sums && none([](const Shape& shape) { return has_fast_sums(shape.layer.format); }))
    throw CellRequestError("fast_sums", "has no meaning for scales of blocks, which end every 128 of k",
                           "use scales channel or tensor");
}

// Without dtypes the format of the model's experts; gradients are computed in bf16.
std::vector<std::string> dtypes_of(const Model& model, Op op, const std::vector<std::string>& given) {
  if (!given.empty()) return given;
  if (op != Op::fwd) return {"bf16"};
  if (!model.other_format.empty())
    throw CellRequestError(
        "dtype",
        fmt::format("the experts of {} are {}, which moetune does not cover yet", model.name, model.other_format),
        "dtype bf16 takes them as bf16, which a server looks up only for a checkpoint in bf16");
  return {model.format ? std::string(model.format->dtype) : "bf16"};
}

// A layer for each dtype; of quantised ones one for each kind of scales that they have and each dtype of Y.
std::vector<Layer> layers_of(const Model& model, Projection projection, Op op, int64_t tp, int64_t ep, bool both,
                             const CellRequest& request) {
  std::vector<Layer> layers;
  for (const std::string& dtype : dtypes_of(model, op, request.dtypes)) {
    Layer layer = make_layer(model, projection, find_format(dtype), tp, ep);
    layer.zero_experts = request.zero_experts.value_or(layer.zero_experts);
    if (request.n) layer.gate = {};
    if (!is_quantised(layer.format)) {
      layers.push_back(layer);
      continue;
    }
    const std::vector<ScaleKind> known = scales_of(dtype);
    std::vector<ScaleKind> kinds = request.scales;
    if (std::ranges::any_of(kinds, [&](ScaleKind kind) { return contains(known, kind); }))
      std::erase_if(kinds, [&](ScaleKind kind) { return !contains(known, kind); });  // of other dtypes in the list
    if (kinds.empty()) kinds = {model.format && model.format->dtype == dtype ? model.format->scales : known.front()};
    for (const ScaleKind scales : kinds)
      for (const Dtype result : or_else(request.out_dtypes, Dtype::bf16)) {
        const bool fast = request.fast_sums && multiplies_fp8(layer.format) && scales != ScaleKind::block;
        for (const WeightOrder order : or_else(request.weights, WeightOrder::as_is)) {
          const bool reordered = order == WeightOrder::reordered && may_be_reordered(dtype);
          layer.format = find_format(dtype, scales, result, fast, reordered);
          if (both && projection == Projection::down && has_scales(layer.format.y))
            layer.format = find_format(dtype, scales);  // up alone is stored in fp8
          if (layers.empty() || layers.back() != layer) layers.push_back(layer);
        }
      }
  }
  return layers;
}

// The cells so far, each once.
class Cells {
 public:
  // A shape's cells: its routings, each with its token counts.
  void add(const Shape& shape, const CellRequest& request) {
    const Layer& layer = shape.layer;
    const int64_t experts = layer.experts + layer.zero_experts;
    for (const RoutingSpec& listed : or_else(request.routings, RoutingSpec{}))
      for (const RoutingSpec& routing : expand(listed, experts, layer.top_k)) {
        std::vector<int64_t> counts = request.tokens;
        if (counts.empty()) {
          const int64_t recorded = recorded_tokens(routing, experts, layer.top_k);
          counts = {recorded > 0 ? recorded : kDefaultTokens};
        }
        for (const int64_t count : counts) {
          const Cell cell{shape, count, routing, request.seed.value_or(0)};
          if (known_.insert(id(cell)).second) cells.push_back(cell);
          if (cells.size() > kMaxCells) throw request_error(fmt::format("the lists make over {} cells", kMaxCells));
        }
      }
  }

  std::vector<Cell> cells;

 private:
  std::set<std::string> known_;
};

// An ffn as a request for its two projections.
CellRequest parts_of_ffn(CellRequest request) {
  if (!request.projections.empty())
    throw CellRequestError("projection", "ffn is up and down already", "leave the others out");
  if (or_else(request.ops, Op::fwd) != std::vector<Op>{Op::fwd})
    throw CellRequestError("projection", "ffn is fwd alone",
                           "projection up,down with op fwd,dx,dw makes a training step");
  request.ffn = false;
  request.projections = {Projection::up, Projection::down};
  request.fusion.permute_x = request.fusion.topk_weights = true;
  request.fusion.permute_y = !request.fusion.by_slot;
  return request;
}

// The product of the lists. `gates_of_models`: up has the activation of its model.
std::vector<Cell> expand_lists(const CellRequest& request, bool gates_of_models) {
  const std::vector<Projection> projections = or_else(request.projections, Projection::up);
  const bool both = contains(projections, Projection::up) && contains(projections, Projection::down);
  const std::vector<Op> ops = or_else(request.ops, Op::fwd);
  require_use_of(request, ops);
  Cells made;
  for (const Model& model : models_of(request)) {
    Fusion fusion = request.fusion;
    if (gates_of_models) fusion.activation = gate_of(model);
    for (const int64_t tp : or_else(request.tp, int64_t{1}))
      for (const int64_t ep : or_else(request.ep, int64_t{1}))
        for (const Projection projection : projections)
          for (const Op op : ops)
            for (const Layer& layer : layers_of(model, projection, op, tp, ep, both, request)) {
              const Shape shape{layer, op, fusion_of(fusion, layer, op, both, ops)};
              require_valid(shape);
              made.add(shape, request);
            }
  }
  require_use_by(made.cells, request);
  return std::move(made.cells);
}

std::vector<Cell> ffn_cells(const CellRequest& request) {
  const std::vector<Cell> cells = expand_lists(parts_of_ffn(request), !is_gated(request.fusion));
  const Shape* known = nullptr;
  for (const Cell& cell : cells) {
    if (known && *known == cell.shape) continue;
    known = &cell.shape;
    const auto fits = [&](const Cell& other) { return feeds(*known, other.shape) || feeds(other.shape, *known); };
    if (std::ranges::none_of(cells, fits))
      throw CellRequestError(
          "projection",
          fmt::format("ffn: down of {} does not read what up writes: a pass quantises it", known->layer.format.word),
          "tune the projections apart, up,down, or add out_dtype fp8 to fp8 in blocks");
  }
  return cells;
}

}  // namespace

std::vector<Cell> make_cells(const CellRequest& request) {
  return request.ffn ? ffn_cells(request) : expand_lists(request, false);
}

std::vector<std::string> model_notes(const CellRequest& request) {
  std::vector<std::string> notes;
  if (request.models.empty()) return notes;
  const std::vector<std::string>& dtypes = request.dtypes;
  for (const Model& model : models_of(request)) {
    notes.insert(notes.end(), model.notes.begin(), model.notes.end());
    if (const std::string_view word = name(request.fusion.activation);
        !word.empty() && !model.activation.empty() && model.activation != word)
      notes.push_back(fmt::format("the activation of the experts of {} is {}; {} is put in its place, as --gated says",
                                  model.name, model.activation, word));
    if (dtypes.empty()) continue;
    const bool covered = model.format && contains(dtypes, model.format->dtype);
    const std::string stored =
        model.format && is_quantised(*model.format)
            ? fmt::format("{} with scales of {}s", model.format->dtype, name(model.format->scales))
            : model.other_format;
    if (!stored.empty() && !covered)
      notes.push_back(
          fmt::format("the experts of {} are {}; they are taken as {}, as --dtype says: a server looks that up "
                      "only for a checkpoint of that dtype",
                      model.name, stored, fmt::join(dtypes, ", ")));
  }
  return notes;
}

void require_problems(const std::vector<Cell>& cells) {
  std::set<std::tuple<std::string, int64_t, int64_t, int64_t, int64_t, int64_t, uint64_t>> seen;
  for (const Cell& cell : cells) {
    const Layer& layer = cell.shape.layer;
    if (seen.emplace(text(cell.routing), cell.tokens, layer.experts, layer.zero_experts, layer.top_k, layer.ep,
                     cell.seed)
            .second)
      make_problem(cell);
  }
}

}  // namespace moetune
