// Which shapes are refused and why, words and JSON.
#include "workload/shape.h"

#include <gtest/gtest.h>

#include <limits>

#include "error_of.h"

namespace moetune {
namespace {

constexpr int64_t kTop = std::numeric_limits<int64_t>::max();

Shape small_shape() {
  return {.layer = {.model = "custom", .experts = 8, .top_k = 2, .n = 64, .k = 32}, .op = Op::fwd, .fusion = {}};
}

// What is said of the small shape after a change.
template <typename Change>
Caught refusal(Change change) {
  Shape shape = small_shape();
  change(shape);
  return error_of([&] { require_valid(shape); });
}

TEST(RequireValid, TakesASmallShape) { EXPECT_NO_THROW(require_valid(small_shape())); }
TEST(RequireValid, RefusesSizesBelowOne) {
  EXPECT_EQ(refusal([](Shape& s) { s.layer.n = 0; }).what, "n is 0, it must be at least 1");
  EXPECT_EQ(refusal([](Shape& s) { s.layer.k = -64; }).what, "k is -64, it must be at least 1");
  EXPECT_EQ(refusal([](Shape& s) { s.layer.experts = 0; }).what, "experts is 0, it must be at least 1");
  EXPECT_EQ(refusal([](Shape& s) { s.layer.top_k = 0; }).what, "top_k is 0, it must be at least 1");
  EXPECT_EQ(refusal([](Shape& s) { s.layer.tp = 0; }).what, "tp is 0, it must be at least 1");
  EXPECT_EQ(refusal([](Shape& s) { s.layer.ep = -1; }).what, "ep is -1, it must be at least 1");
}
TEST(RequireValid, RefusesTopKOverExperts) {
  const Caught error = refusal([](Shape& s) { s.layer.top_k = 9; });
  EXPECT_EQ(error.exit, Exit::request);
  EXPECT_EQ(error.what, "top_k 9 is more than the 8 experts");
  EXPECT_EQ(error.hint, "a token picks no expert twice");
  EXPECT_EQ(refusal([](Shape& s) { s.layer.top_k = 8; }).exit, Exit::yes);
}
TEST(RequireValid, RefusesAnEpThatDoesNotDivide) {
  EXPECT_EQ(refusal([](Shape& s) { s.layer.ep = 3; }).what, "ep 3 does not divide 8 experts");
  EXPECT_EQ(refusal([](Shape& s) { s.layer.ep = 16; }).what, "ep 16 does not divide 8 experts");
  EXPECT_EQ(refusal([](Shape& s) { s.layer.ep = 8; }).exit, Exit::yes);
}
TEST(RequireValid, RefusesHugeSizesWithoutOverflow) {
  EXPECT_EQ(refusal([](Shape& s) { s.layer.n = s.layer.k = 1 << 24; }).what,
            "8 experts of 16777216 x 16777216 are more than 2^46 weights");
  EXPECT_EQ(refusal([](Shape& s) { s.layer.n = kTop; }).what,
            "n is 9223372036854775807, moetune takes at most 16777216");
  EXPECT_NE(refusal([](Shape& s) { s.layer.experts = s.layer.n = s.layer.k = kTop; }).what, "");
  EXPECT_NE(refusal([](Shape& s) { s.layer.top_k = kTop; }).what, "");
}
TEST(RequireValid, HasItsLimitAtExactlyTwoToThe46) {
  const auto sized = [](int64_t n) { return [n](Shape& s) { s.layer.k = 1 << 20, s.layer.n = n; }; };
  EXPECT_EQ(refusal(sized(1 << 23)).exit, Exit::yes);
  EXPECT_NE(refusal(sized((1 << 23) + 1)).what, "");
}
TEST(RequireValid, TakesTheLargestModelsBeyond32Bits) {
  EXPECT_EQ(refusal([](Shape& s) { s.layer.experts = 896, s.layer.n = 6144, s.layer.k = 7168; }).exit, Exit::yes);
}
TEST(RequireValid, LimitsWhatQuantisedFormatsCompute) {
  const auto refused = [](
                           std::string_view format, const std::function<void(Shape&)>& change = [](Shape&) {}) {
    return refusal([&](Shape& s) {
             s.layer.format = format_named(format), s.layer.n = 64, s.layer.k = 192;
             change(s);
           })
        .what;
  };
  for (const char* word : {"fp8-block", "fp8-block-fp16", "fp8-channel-fast", "int4-group64-fp16", "int8-w8a8"})
    EXPECT_EQ(refused(word), "") << word;
  EXPECT_EQ(refused("fp8-block", [](Shape& s) { s.op = Op::dx; }), "fp8 has no dx");
  EXPECT_EQ(refused("int8", [](Shape& s) { s.op = Op::dw; }), "int8 has no dw");
  EXPECT_EQ(refused("uint4-group128"), "k 192 is not a multiple of 128, the group of a scale");
  EXPECT_EQ(refused("uint4-group64", [](Shape& s) { s.layer.n = 63; }),
            "n 63 is odd, and the zero points of two rows of W share a byte");
}
TEST(ShapeJson, HasTheFormatOfFp8) {
  Shape shape;
  shape.layer = {
      .model = "custom", .experts = 4, .top_k = 2, .n = 64, .k = 64, .format = format_named("fp8-channel-fp16-fast")};
  const Json json = to_json(shape);
  EXPECT_EQ(shape_from_json(JsonAt(json, "test")), shape);
  EXPECT_EQ(json["scales"], "channel");
  Shape groups = shape;
  groups.layer.format = format_named("int4-group32-fp16");
  EXPECT_EQ(shape_from_json(JsonAt(to_json(groups), "test")), groups);
  Shape quantised = shape;
  quantised.layer.format = format_named("fp8-block-fp8"), quantised.fusion.activation = Activation::silu;
  EXPECT_EQ(shape_from_json(JsonAt(to_json(quantised), "test")), quantised);
  Shape plain = shape;
  plain.layer.format = find_format("bf16", ScaleKind::none);
  EXPECT_FALSE(to_json(plain).contains("scales"));
}
TEST(RequireValid, RefusesFusionsThatContradict) {
  EXPECT_EQ(refusal([](Shape& s) {
              s.fusion = {true, true, false};
            }).what,
            "permute_x and permute_y exclude each other");
  EXPECT_EQ(refusal([](Shape& s) { s.fusion = {false, false, true}; }).what, "topk_weights needs permute_y");
  EXPECT_EQ(refusal([](Shape& s) { s.fusion = {true, false, true}; }).what, "topk_weights needs permute_y");
  EXPECT_EQ(refusal([](Shape& s) { s.fusion = {false, true, true}; }).exit, Exit::yes);
  const auto by_slot = [](Op op, const Fusion& fusion) {
    return refusal([&](Shape& s) { s.op = op, s.fusion = fusion; });
  };
  EXPECT_EQ(by_slot(Op::fwd, {.permute_x = true, .topk_weights = true, .by_slot = true}).exit, Exit::yes);
  EXPECT_EQ(by_slot(Op::fwd, {.permute_y = true, .by_slot = true}).what, "by_slot and permute_y exclude each other");
  EXPECT_EQ(by_slot(Op::dw, {.by_slot = true}).what, "dw has no by_slot");
}
TEST(RequireValid, LeavesGatesToForwardOfUpAndDxOfDown) {
  const auto with = [](const Fusion& fusion, Op op = Op::fwd, Projection projection = Projection::up, int64_t n = 64) {
    return refusal([&](Shape& s) { s.op = op, s.fusion = fusion, s.layer.projection = projection, s.layer.n = n; });
  };
  EXPECT_EQ(with({.activation = Activation::silu, .bias = true}).what, "");
  EXPECT_EQ(with({.permute_x = true, .activation = Activation::gpt_oss, .interleaved = true}).what, "");
  EXPECT_EQ(with({.bias = true}, Op::fwd, Projection::down).what, "");
  EXPECT_EQ(with({.activation = Activation::silu, .store_h = true}).what, "");
  for (const Fusion& fusion :
       {Fusion{.store_h = true}, Fusion{.by_slot = true, .activation = Activation::silu, .store_h = true}})
    EXPECT_EQ(with(fusion).what,
              "store_h belongs to fwd of up with --gated, in bf16, fp16 or fp32 and without --by-slot");
  EXPECT_EQ(with({.activation = Activation::silu}, Op::dx).what, "dx of up has no gate");
  EXPECT_EQ(with({.activation = Activation::silu}, Op::fwd, Projection::down).what, "fwd of down has no gate");
  EXPECT_EQ(
      with({.permute_y = true, .topk_weights = true, .activation = Activation::silu}, Op::dx, Projection::down).what,
      "");
  EXPECT_EQ(with({.permute_x = true, .activation = Activation::silu}, Op::dx, Projection::down).what,
            "permute_x and an activation exclude each other for dx");
  EXPECT_EQ(with({.activation = Activation::silu}, Op::dw, Projection::down).what, "dw of down has no gate");
  EXPECT_EQ(with({.bias = true}, Op::dw).what, "dw has no bias");
  EXPECT_EQ(with({.interleaved = true}).what, "interleaved needs an activation");
  EXPECT_EQ(with({.activation = Activation::silu}, Op::fwd, Projection::up, 63).what,
            "n 63 is odd: half of the columns are gates");
  EXPECT_EQ(with({.permute_y = true, .topk_weights = true, .activation = Activation::silu}).what,
            "topk_weights and an activation exclude each other");
  EXPECT_EQ(refusal([](Shape& s) {
              s.fusion.activation = Activation::silu, s.layer.gate = {false}, s.layer.model = "nemotron";
            }).what,
            "the experts of nemotron have no gate");
}

TEST(RequireValid, LeavesFp8ResultsToGatesOfBlocks) {
  const auto with = [](const Fusion& fusion) {
    return refusal([&](Shape& s) { s.fusion = fusion, s.layer.format = format_named("fp8-block-fp8"); });
  };
  EXPECT_EQ(with({.permute_x = true, .activation = Activation::silu}).what, "");
  EXPECT_EQ(with({.by_slot = true, .activation = Activation::gpt_oss, .interleaved = true}).what, "");
  EXPECT_EQ(with({}).what, "Y cannot be fp8 without an activation");
  EXPECT_EQ(with({.activation = Activation::silu, .bias = true}).what, "Y cannot be fp8 with a bias");
}
TEST(RequireValid, LeavesAccumulationAndFp32ResultsToDw) {
  for (const Op op : {Op::fwd, Op::dx}) {
    const Caught error = refusal([&](Shape& s) { s.op = op, s.fusion.accumulate = true; });
    EXPECT_EQ(error.what, std::string(name(op)) + " cannot accumulate");
    EXPECT_EQ(error.hint, "accumulate belongs to dw");
    EXPECT_EQ(refusal([&](Shape& s) { s.op = op, s.fusion.fp32_dw = true; }).what,
              "fp32_dw has no meaning for " + std::string(name(op)) + " in bf16");
  }
  const auto of_dw = [](Dtype dtype, bool fp32) {
    return refusal([&](Shape& s) {
             s.op = Op::dw, s.layer.format = find_format(name(dtype));
             s.fusion.accumulate = true, s.fusion.fp32_dw = fp32;
           })
        .what;
  };
  EXPECT_EQ(of_dw(Dtype::bf16, true), "");
  EXPECT_EQ(of_dw(Dtype::fp16, true), "");
  EXPECT_EQ(of_dw(Dtype::fp32, false), "");
  EXPECT_EQ(of_dw(Dtype::fp32, true), "fp32_dw has no meaning for dw in fp32");
}
TEST(RequireValid, LeavesSumsOfSlotsToMatricesByToken) {
  const auto error_with = [](Op op, const Fusion& fusion) {
    return refusal([&](Shape& s) { s.op = op, s.fusion = fusion; });
  };
  const Fusion summed{.permute_x = true, .sum_slots = true};
  EXPECT_EQ(error_with(Op::dx, summed).exit, Exit::yes);
  for (const Op op : {Op::fwd, Op::dw})
    EXPECT_EQ(error_with(op, summed).what, "sum_slots of " + std::string(name(op)) + " needs permute_y");
  EXPECT_EQ(error_with(Op::dx, {.sum_slots = true}).what, "sum_slots of dx needs permute_y or permute_x");
  for (const Op op : {Op::fwd, Op::dx, Op::dw})
    EXPECT_EQ(error_with(op, {.permute_y = true, .topk_weights = true, .sum_slots = true}).exit, Exit::yes);
  EXPECT_EQ(error_with(Op::fwd, {.permute_y = true, .sum_slots = true, .bias = true}).what,
            "sum_slots and bias exclude each other");
  EXPECT_EQ(error_with(Op::fwd, {.permute_y = true, .sum_slots = true, .activation = Activation::silu}).what,
            "sum_slots and an activation of fwd exclude each other");
}
TEST(RequireValid, LeavesTheWeightsGradientToDxWithWeights) {
  const auto error_with = [](Op op, const Fusion& fusion) {
    return refusal([&](Shape& s) { s.op = op, s.fusion = fusion; });
  };
  const Fusion gradient{.permute_y = true, .topk_weights = true, .weight_gradient = true};
  EXPECT_EQ(error_with(Op::dx, gradient).exit, Exit::yes);
  for (const Op op : {Op::fwd, Op::dw}) {
    EXPECT_EQ(error_with(op, gradient).what, std::string(name(op)) + " has no weight gradient");
    EXPECT_EQ(error_with(op, gradient).hint, "weight_gradient belongs to dx with topk_weights");
  }
  for (const Fusion& fusion : {Fusion{.weight_gradient = true}, Fusion{.permute_y = true, .weight_gradient = true}})
    EXPECT_EQ(error_with(Op::dx, fusion).what, "weight_gradient needs topk_weights");
}
TEST(RequireValid, RefusesNamesThatIdsCannotHold) {
  EXPECT_EQ(refusal([](Shape& s) { s.layer.model = ""; }).what, "the layer has no model name");
  EXPECT_EQ(refusal([](Shape& s) { s.layer.model = "org/model"; }).what,
            "the model name 'org/model' has a character that names of cells cannot contain");
  for (const char* name : {"a\x1b[2J", "a\nb", "\xff", "a\x7f"})
    EXPECT_NE(refusal([&](Shape& s) { s.layer.model = name; }).what, "") << name;
  for (const char* name : {"my model", "mod\u00e8le", "a:b"})
    EXPECT_EQ(refusal([&](Shape& s) { s.layer.model = name; }).what, "") << name;
}

TEST(ShapeWords, ParseBack) {
  for (const Projection projection : {Projection::up, Projection::down})
    EXPECT_EQ(parse_projection(name(projection)), projection);
  for (const Op op : {Op::fwd, Op::dx, Op::dw}) EXPECT_EQ(parse_op(name(op)), op);
}
TEST(ShapeWords, SuggestTheNearest) {
  EXPECT_EQ(error_of([] { parse_projection("dowm"); }).hint, "did you mean 'down'?");
  EXPECT_EQ(error_of([] { parse_op("backward"); }).hint, "one of: fwd, dx, dw");
  EXPECT_EQ(error_of([] { parse_op("backward"); }).what, "unknown op 'backward'");
}
TEST(ShapeWords, NameFusions) {
  EXPECT_EQ(text(Fusion{}), "plain");
  EXPECT_EQ(text(Fusion{.permute_x = true}), "permute_x");
  EXPECT_EQ(text(Fusion{.permute_y = true, .topk_weights = true}), "permute_y+topk_weights");
  EXPECT_EQ(text(Fusion{.permute_x = true, .accumulate = true, .fp32_dw = true}), "permute_x+accumulate+fp32_dw");
  EXPECT_EQ(text(Fusion{.permute_x = true, .sum_slots = true}), "permute_x+sum_slots");
  EXPECT_EQ(text(Fusion{.permute_y = true, .topk_weights = true, .weight_gradient = true}),
            "permute_y+topk_weights+weight_gradient");
}

TEST(ShapeJson, RoundTripsEveryField) {
  const Shape shape{
      .layer = {.model = "m",
                .projection = Projection::down,
                .experts = 16,
                .top_k = 3,
                .n = 48,
                .k = 80,
                .format = find_format("fp16"),
                .tp = 2,
                .ep = 4},
      .op = Op::dw,
      .fusion = {.permute_x = false, .permute_y = true, .topk_weights = true, .accumulate = true, .fp32_dw = true}};
  const Json json = to_json(shape);
  EXPECT_EQ(shape_from_json(JsonAt(json, "x")), shape);
}
TEST(ShapeJson, HoldsGatesOnlyWhereThereAreAny) {
  Shape shape = small_shape();
  EXPECT_FALSE(to_json(shape).contains("silu"));
  shape.fusion = {.permute_x = true, .activation = Activation::gpt_oss, .interleaved = true, .bias = true};
  Json json = to_json(shape);
  EXPECT_EQ(json["gpt_oss"], true);
  json["silu"] = true;
  EXPECT_EQ(error_of([&] { shape_from_json(JsonAt(json, "x")); }).what, "x: silu+gpt_oss has two activations");
  EXPECT_EQ(shape_from_json(JsonAt(to_json(shape), "x")), shape);
}
TEST(ShapeJson, OfFilesFromBeforeDoesNotAccumulate) {
  Shape shape = small_shape();
  shape.op = Op::dw;
  Json json = to_json(shape);
  json.erase("accumulate"), json.erase("fp32_dw");
  EXPECT_EQ(shape_from_json(JsonAt(json, "x")), shape);
  json["accumulate"] = 1;
  EXPECT_EQ(error_of([&] { shape_from_json(JsonAt(json, "x")); }).what,
            "x: accumulate: expected true or false, found an integer");
}
TEST(ShapeJson, HoldsTheFusionsOfDx) {
  Shape shape = small_shape();
  shape.op = Op::dx;
  for (const Fusion& fusion : {Fusion{}, Fusion{.permute_x = true, .sum_slots = true},
                               Fusion{.permute_y = true, .topk_weights = true, .weight_gradient = true}}) {
    shape.fusion = fusion;
    EXPECT_EQ(shape_from_json(JsonAt(to_json(shape), "x")), shape) << text(fusion);
  }
  Json json = to_json(small_shape());
  EXPECT_FALSE(json.contains("by_slot") || json.contains("sum_slots") || json.contains("weight_gradient"));  // of fwd
  shape.fusion = {.permute_x = true};
  json = to_json(shape);
  json.erase("sum_slots"), json.erase("weight_gradient");  // as files from before
  EXPECT_EQ(shape_from_json(JsonAt(json, "x")), shape);
  json["weight_gradient"] = true;
  EXPECT_EQ(error_of([&] { shape_from_json(JsonAt(json, "x")); }).what, "x: weight_gradient needs topk_weights");
}
TEST(ShapeJson, NamesThePlaceOfAWrongWordOrSize) {
  Json json = to_json(small_shape());
  json["dtype"] = "fp61";
  Caught error = error_of([&] { shape_from_json(JsonAt(json, "t.json")); });
  EXPECT_EQ(error.what, "t.json: dtype: unknown dtype 'fp61'");
  EXPECT_EQ(error.hint, "did you mean 'fp16'?");
  json["dtype"] = "fp16";
  json["top_k"] = 99;
  EXPECT_EQ(error_of([&] { shape_from_json(JsonAt(json, "t.json")); }).what,
            "t.json: top_k 99 is more than the 8 experts");
  json.erase("n");
  EXPECT_EQ(error_of([&] { shape_from_json(JsonAt(json, "t.json")); }).what, "t.json: 'n' is missing");
}
TEST(ShapeJson, IgnoresWhatItDoesNotKnow) {
  Json json = to_json(small_shape());
  json["colour"] = "blue";
  EXPECT_EQ(shape_from_json(JsonAt(json, "x")), small_shape());
}

TEST(Layer, KeepsItsShareOfExperts) { EXPECT_EQ((Layer{.model = "m", .experts = 128, .ep = 8}.local_experts()), 16); }

}  // namespace
}  // namespace moetune
