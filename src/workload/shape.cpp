// Words, checks and JSON of shapes.
#include "workload/shape.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text/text.h"

namespace moetune {
namespace {

constexpr int64_t kMaxWeights = int64_t{1} << 46;
constexpr std::string_view kProjections[] = {"up", "down"}, kOps[] = {"fwd", "dx", "dw"};

void require_size(std::string_view what, int64_t value, int64_t high) {
  if (value < 1) throw request_error(fmt::format("{} is {}, it must be at least 1", what, value));
  if (value > high) throw request_error(fmt::format("{} is {}, moetune takes at most {}", what, value, high));
}

void require_format(const Shape& shape) {
  const Layer& layer = shape.layer;
  const Format& format = layer.format;
  if (!is_quantised(format)) return;
  if (shape.op != Op::fwd)
    throw request_error(fmt::format("{} has no {}", format.dtype, name(shape.op)),
                        multiplies_fp8(format)
                            ? "tensor cores multiply fp8 only where k is contiguous in both operands: that is fwd"
                            : "it belongs to fwd");
  if (const int64_t group = group_columns(format.scales); group > 0 && layer.k % group != 0)
    throw request_error(fmt::format("k {} is not a multiple of {}, the group of a scale", layer.k, group));
  if (format.w.zero_points && layer.n % 2 != 0)
    throw request_error(fmt::format("n {} is odd, and the zero points of two rows of W share a byte", layer.n));
  if (has_scales(format.y) && (!combines_gates(shape) || shape.fusion.bias))
    throw request_error(fmt::format("Y cannot be fp8 {}", shape.fusion.bias ? "with a bias" : "without an activation"),
                        "it belongs to fwd of up with --gated and without --bias: its rows are what down reads");
}

// A format without scales has only its dtype in JSON.
const Format& format_from_json(const JsonAt& json) {
  const std::string dtype = json["dtype"].string();
  const bool scaled = with_place(json["dtype"], [&](const JsonAt&) { return !scales_of(dtype).empty(); });
  if (!scaled) return find_format(dtype);
  const ScaleKind scales = word_at(json["scales"], parse_scales);
  const Dtype result = word_at(json["out_dtype"], parse_dtype);
  const bool fast = json["fast_sums"].boolean();
  const bool reordered = json.has("weights") && word_at(json["weights"], parse_weight_order) == WeightOrder::reordered;
  return with_place(
      json, [&](const JsonAt&) -> const Format& { return find_format(dtype, scales, result, fast, reordered); });
}

void require_valid_gate(const Shape& shape) {
  const auto& [layer, op, fusion] = shape;
  if (fusion.bias && op != Op::fwd) throw request_error(fmt::format("{} has no bias", name(op)), "bias belongs to fwd");
  if (fusion.interleaved && !is_gated(fusion))
    throw request_error("interleaved needs an activation",
                        "with --gated, it is an order of W's rows: gate and up alternate");
  if (fusion.store_h && (!combines_gates(shape) || fusion.by_slot || is_quantised(layer.format)))
    throw request_error("store_h belongs to fwd of up with --gated, in bf16, fp16 or fp32 and without --by-slot",
                        "leave out --store-h unless you need gradients");
  if (!is_gated(fusion)) return;
  const bool up = layer.projection == Projection::up;
  if (op == Op::dw || (op == Op::fwd) != up)
    throw request_error(fmt::format("{} of {} has no gate", name(op), name(layer.projection)),
                        "activations (--gated) belong to fwd of up and dx of down");
  if (!up && fusion.permute_x)
    throw request_error("permute_x and an activation exclude each other for dx", "permute_x belongs to up");
  const bool relu = layer.gate.gated == false && layer.model != "custom";  // sizes alone don't tell
  const bool odd = up && layer.n % 2 != 0;
  if (relu || odd)
    throw request_error(odd ? fmt::format("n {} is odd: half of the columns are gates", layer.n)
                            : fmt::format("the experts of {} have no gate", layer.model));
  if (fusion.topk_weights && up)
    throw request_error("topk_weights and an activation exclude each other", "weights belong to down");
}

}  // namespace

std::string_view name(Projection projection) { return kProjections[static_cast<size_t>(projection)]; }
std::string_view name(Op op) { return kOps[static_cast<size_t>(op)]; }

Projection parse_projection(std::string_view text) {
  return static_cast<Projection>(place_of_word("projection", text, kProjections));
}
Op parse_op(std::string_view text) { return static_cast<Op>(place_of_word("op", text, kOps)); }

std::string_view name(Activation activation) {
  return activation == Activation::none ? "" : kActivationWords[static_cast<size_t>(activation) - 1];
}
Activation parse_activation(std::string_view what, std::string_view text) {
  return static_cast<Activation>(1 + place_of_word(what, text, kActivationWords));
}

bool may_sum_slots(const Shape& shape) {
  return shape.fusion.permute_y || (shape.op == Op::dx && shape.fusion.permute_x);
}

void require_valid(const Shape& shape) {
  const Layer& layer = shape.layer;
  if (layer.model.empty()) throw request_error("the layer has no model name", "use 'custom' for sizes given directly");
  // Ids of cells join their parts with '/'.
  if (layer.model.find('/') != std::string::npos || !is_printable(layer.model))
    throw request_error(
        fmt::format("the model name '{}' has a character that names of cells cannot contain", layer.model));
  require_size("experts", layer.experts, kMaxExperts);
  require_size("top_k", layer.top_k, kMaxExperts);
  require_size("n", layer.n, kMaxSide);
  require_size("k", layer.k, kMaxSide);
  require_size("tp", layer.tp, kMaxSide);
  require_size("ep", layer.ep, kMaxExperts);
  require_size("experts with zero_experts", layer.experts + layer.zero_experts, kMaxExperts);
  if (layer.top_k > layer.experts)
    throw request_error(fmt::format("top_k {} is more than the {} experts", layer.top_k, layer.experts),
                        "a token picks no expert twice");
  if (layer.experts % layer.ep != 0)
    throw request_error(fmt::format("ep {} does not divide {} experts", layer.ep, layer.experts),
                        fmt::format("ep must be a divisor of {}", layer.experts));
  if (layer.n > kMaxWeights / layer.experts / layer.k)
    throw request_error(
        fmt::format("{} experts of {} x {} are more than 2^46 weights", layer.experts, layer.n, layer.k));
  require_format(shape);
  if (shape.fusion.permute_x && shape.fusion.permute_y)
    throw request_error("permute_x and permute_y exclude each other", "permute_x belongs to up, permute_y to down");
  if (shape.fusion.by_slot && (shape.op != Op::fwd || shape.fusion.permute_y))
    throw request_error(shape.op != Op::fwd ? fmt::format("{} has no by_slot", name(shape.op))
                                            : "by_slot and permute_y exclude each other",
                        "by_slot belongs to fwd, and stores Y by slot as permute_y does");
  if (shape.fusion.topk_weights && !shape.fusion.permute_y && !shape.fusion.by_slot)
    throw request_error("topk_weights needs permute_y", "rows are multiplied while they are scattered to token order");
  if (shape.fusion.accumulate && shape.op != Op::dw)
    throw request_error(fmt::format("{} cannot accumulate", name(shape.op)), "accumulate belongs to dw");
  if (shape.fusion.fp32_dw && (shape.op != Op::dw || layer.format.x.dtype == Dtype::fp32))
    throw request_error(fmt::format("fp32_dw has no meaning for {} in {}", name(shape.op), layer.format.dtype),
                        "it belongs to dw in bf16 and fp16");
  if (shape.fusion.sum_slots && !may_sum_slots(shape))
    throw request_error(
        fmt::format("sum_slots of {} needs permute_y{}", name(shape.op), shape.op == Op::dx ? " or permute_x" : ""),
        "it belongs to a layer that sums its slots: Y and dY by token with permute_y, dX with permute_x");
  if (shape.fusion.sum_slots && (shape.fusion.bias || combines_gates(shape)))
    throw request_error(
        fmt::format("sum_slots and {} exclude each other", shape.fusion.bias ? "bias" : "an activation of fwd"),
        "leave out sum_slots and add the slots apart");
  if (shape.fusion.weight_gradient && (shape.op != Op::dx || !shape.fusion.topk_weights))
    throw request_error(shape.op != Op::dx ? fmt::format("{} has no weight gradient", name(shape.op))
                                           : "weight_gradient needs topk_weights",
                        "weight_gradient belongs to dx with topk_weights");
  require_valid_gate(shape);
}

std::string text(const Fusion& fusion) {
  std::string words;
  for (const FusionPart& part : kFusionParts)
    if (part.is_on(fusion)) words.append(words.empty() ? "" : "+").append(part.name);
  return words.empty() ? "plain" : words;
}

std::string title(const Shape& shape) {
  const Layer& layer = shape.layer;
  std::string result = fmt::format("{} {}, {} {}: {} experts, top {}, n {}, k {}", layer.model, name(layer.projection),
                                   name(shape.op), layer.format.word, layer.experts, layer.top_k, layer.n, layer.k);
  if (layer.zero_experts > 0) result += fmt::format(", {} zero experts", layer.zero_experts);
  if (layer.tp > 1) result += fmt::format(", tp {}", layer.tp);
  if (layer.ep > 1) result += fmt::format(", ep {}", layer.ep);
  if (shape.fusion != Fusion{}) result += ", " + text(shape.fusion);
  return result;
}

Json to_json(const Shape& shape) {
  const Layer& layer = shape.layer;
  Json json = {{"model", layer.model}, {"projection", name(layer.projection)},
               {"op", name(shape.op)}, {"experts", layer.experts},
               {"top_k", layer.top_k}, {"n", layer.n},
               {"k", layer.k},         {"dtype", layer.format.dtype},
               {"tp", layer.tp},       {"ep", layer.ep}};
  if (layer.zero_experts > 0) json["zero_experts"] = layer.zero_experts;
  if (layer.gate.gated) json["gated"] = *layer.gate.gated;
  if (is_quantised(layer.format)) {
    json["scales"] = name(layer.format.scales);
    json["out_dtype"] = name(layer.format.y.dtype);
    json["fast_sums"] = has_fast_sums(layer.format);
    if (layer.format.w.reordered) json["weights"] = name(WeightOrder::reordered);
  }
  for (const FusionPart& part : kFusionParts)
    if (part.seldom ? part.is_on(shape.fusion) : !part.only || part.only == shape.op)
      json[part.name] = part.is_on(shape.fusion);
  return json;
}

Shape shape_from_json(const JsonAt& json) {
  Shape shape;
  shape.layer = {.model = json["model"].string(),
                 .projection = word_at(json["projection"], parse_projection),
                 .experts = json["experts"].integer(),
                 .top_k = json["top_k"].integer(),
                 .n = json["n"].integer(),
                 .k = json["k"].integer(),
                 .format = format_from_json(json),
                 .tp = json["tp"].integer(),
                 .ep = json["ep"].integer()};
  if (json.has("zero_experts")) shape.layer.zero_experts = json["zero_experts"].integer(0, kMaxExperts);
  if (json.has("gated")) shape.layer.gate.gated = json["gated"].boolean();
  shape.op = word_at(json["op"], parse_op);
  std::string activations;
  for (const FusionPart& part : kFusionParts) {
    const bool is_optional = part.only || part.seldom;  // older files lack those of one op
    if ((is_optional && !json.has(part.name)) || !json[part.name].boolean()) continue;
    if (!part.flag) activations.append(activations.empty() ? "" : "+").append(part.name);
    part.turn_on(shape.fusion);
  }
  with_place(json, [&](const JsonAt&) {
    if (activations.find('+') != std::string::npos)
      throw request_error(activations + " has two activations", "a layer has one");
    require_valid(shape);
  });
  return shape;
}

}  // namespace moetune
