// Hugging Face configs: every field name, every place, every trap.
#include <gtest/gtest.h>

#include "error_of.h"
#include "workload/model.h"

namespace moetune {
namespace {

Model read(const char* text) {
  const Json json = parse_json(text, "config.json");
  return model_from_hf_config(JsonAt(json, "config.json"), "m");
}
Caught refusal(const char* text) {
  return error_of([&] { read(text); });
}

// experts, top_k, hidden, intermediate
void expect_sizes(const Model& model, int64_t experts, int64_t top_k, int64_t hidden, int64_t intermediate) {
  EXPECT_EQ(model.experts, experts);
  EXPECT_EQ(model.top_k, top_k);
  EXPECT_EQ(model.hidden, hidden);
  EXPECT_EQ(model.intermediate, intermediate);
}

// A config with one field's name replaced.
std::string renamed(const std::string& field, const std::string& name) {
  std::string text =
      R"({"num_experts": 16, "num_experts_per_tok": 4, "hidden_size": 512, "moe_intermediate_size": 256})";
  return text.replace(text.find(field), field.size(), name);
}

TEST(HfConfig, ReadsMixtral) {
  const Model model = read(R"({"architectures": ["MixtralForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
    "intermediate_size": 14336, "num_experts_per_tok": 2, "num_local_experts": 8, "torch_dtype": "bfloat16"})");
  expect_sizes(model, 8, 2, 4096, 14336);
  EXPECT_EQ(model.architecture, "MixtralForCausalLM");
  EXPECT_EQ(model.name, "m");
  EXPECT_TRUE(model.gated);
}
TEST(HfConfig, TakesTheExpertsWidthAndNotTheDenseOne) {
  expect_sizes(read(R"({"num_experts": 128, "num_experts_per_tok": 8, "hidden_size": 2048, "intermediate_size": 6144,
    "moe_intermediate_size": 768, "shared_expert_intermediate_size": 512})"),
               128, 8, 2048, 768);
}
TEST(HfConfig, DoesNotReadTheSamplingTopKOfKimi) {
  expect_sizes(read(R"({"text_config": {"n_routed_experts": 384, "num_experts_per_tok": 8, "top_k": 50, "n_group": 1,
    "n_shared_experts": 1, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048}})"),
               384, 8, 7168, 2048);
  EXPECT_EQ(
      refusal(R"({"n_routed_experts": 384, "top_k": 50, "hidden_size": 7168, "moe_intermediate_size": 2048})").what,
      "config.json: no field for the experts a token picks");
}
TEST(HfConfig, ReadsLlama4sTextIntermediateSize) {
  expect_sizes(read(R"({"architectures": ["Llama4ForConditionalGeneration"], "vision_config": {"hidden_size": 1408,
    "intermediate_size": 5632}, "text_config": {"hidden_size": 5120, "intermediate_size": 8192,
    "intermediate_size_mlp": 16384, "num_experts_per_tok": 1, "num_local_experts": 16}})"),
               16, 1, 5120, 8192);
}
TEST(HfConfig, SaysThatNemotronHasNoGate) {
  const Model model = read(R"({"n_routed_experts": 128, "num_experts_per_tok": 6, "hidden_size": 2688,
    "intermediate_size": 1856, "moe_intermediate_size": 1856, "mlp_hidden_act": "relu2", "n_shared_experts": 1})");
  expect_sizes(model, 128, 6, 2688, 1856);
  EXPECT_FALSE(model.gated);
  EXPECT_EQ(make_layer(model, Projection::up, Dtype::bf16, 1, 1).n, 1856);
  EXPECT_FALSE(read(R"({"num_experts": 8, "num_experts_per_tok": 2, "hidden_size": 64, "intermediate_size": 64,
    "hidden_act": "relu2"})")
                   .gated);
}
TEST(HfConfig, ReadsLatentWidths) {
  expect_sizes(
      read(R"({"n_routed_experts": 512, "num_experts_per_tok": 22, "hidden_size": 4096, "moe_latent_size": 1024,
    "moe_intermediate_size": 2688, "mlp_hidden_act": "relu2"})"),
      512, 22, 1024, 2688);
  expect_sizes(read(R"({"n_routed_experts": 896, "num_experts_per_tok": 16, "hidden_size": 7168,
    "routed_expert_hidden_size": 3584, "moe_intermediate_size": 3072})"),
               896, 16, 3584, 3072);
}
TEST(HfConfig, PassesOverNulls) {
  expect_sizes(read(R"({"n_routed_experts": null, "num_experts": 64, "num_experts_per_tok": 6, "hidden_size": 2048,
    "moe_latent_size": null, "moe_intermediate_size": 1408})"),
               64, 6, 2048, 1408);
}
TEST(HfConfig, ReadsHunyuansLists) {
  expect_sizes(read(R"({"num_experts": 64, "moe_topk": [8, 8, 8], "hidden_size": 4096, "intermediate_size": 3072,
    "moe_intermediate_size": [3072, 3072, 3072]})"),
               64, 8, 4096, 3072);
}
TEST(HfConfig, TakesTheTextsOfListsByModality) {
  expect_sizes(read(R"({"moe_num_experts": [64, 64], "moe_k": 6, "hidden_size": 2560, "intermediate_size": 12288,
    "moe_intermediate_size": [1536, 512]})"),
               64, 6, 2560, 1536);
}
TEST(HfConfig, ReadsGptOssWhoseWidthNoBlockDivides) {
  const Model model = read(R"({"num_local_experts": 32, "num_experts_per_tok": 4, "experts_per_token": 4,
    "hidden_size": 2880, "intermediate_size": 2880, "hidden_act": "silu"})");
  expect_sizes(model, 32, 4, 2880, 2880);
  EXPECT_EQ(make_layer(model, Projection::up, Dtype::bf16, 1, 1).n, 5760);
}
TEST(HfConfig, ReadsDbrxsNestedFields) {
  expect_sizes(
      read(R"({"d_model": 6144, "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}})"), 16,
      4, 6144, 10752);
}
TEST(HfConfig, DescendsWhereTheMoeFieldsAre) {
  const char* inner =
      R"("num_experts": 16, "num_experts_per_tok": 4, "hidden_size": 512, "moe_intermediate_size": 256)";
  for (const auto& [before, after] :
       {std::pair{R"({"text_config": {)", "}}"}, std::pair{R"({"thinker_config": {"text_config": {)", "}}}"},
        std::pair{R"({"language_config": {)", "}}"}, std::pair{"{", "}"}})
    expect_sizes(read((std::string(before) + inner + after).c_str()), 16, 4, 512, 256);
}
TEST(HfConfig, StaysWhereTheTextPartHasNoMoeFields) {
  expect_sizes(read(R"({"text_config": {"hidden_size": 99}, "num_experts": 16, "num_experts_per_tok": 4,
    "hidden_size": 512, "moe_intermediate_size": 256})"),
               16, 4, 512, 256);
}

class HfFieldNames : public testing::TestWithParam<std::pair<const char*, const char*>> {};
TEST_P(HfFieldNames, AreKnown) {
  const auto& [field, name] = GetParam();
  expect_sizes(read(renamed(field, name).c_str()), 16, 4, 512, 256);
}
INSTANTIATE_TEST_SUITE_P(
    Names, HfFieldNames,
    testing::Values(
        std::pair{"num_experts\"", "n_routed_experts\""}, std::pair{"num_experts\"", "num_local_experts\""},
        std::pair{"num_experts\"", "moe_num_experts\""}, std::pair{"num_experts_per_tok", "num_experts_per_token"},
        std::pair{"num_experts_per_tok", "experts_per_token"}, std::pair{"num_experts_per_tok", "moe_k"},
        std::pair{"num_experts_per_tok", "moe_topk"}, std::pair{"num_experts_per_tok", "moe_top_k"},
        std::pair{"num_experts_per_tok", "top_k_experts"}, std::pair{"moe_intermediate_size", "expert_ffn_hidden_size"},
        std::pair{"moe_intermediate_size", "intermediate_size"}, std::pair{"hidden_size", "d_model"},
        std::pair{"hidden_size", "moe_latent_size"}, std::pair{"hidden_size", "routed_expert_hidden_size"}));

TEST(HfConfig, SaysThatADenseModelHasNoExpertsAndWhatItLookedFor) {
  const Caught error = refusal(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096})");
  EXPECT_EQ(error.exit, Exit::request);
  EXPECT_EQ(error.what,
            "config.json: the model m has no experts: it has none of the fields n_routed_experts, num_experts, "
            "num_local_experts, moe_num_experts, ffn_config.moe_num_experts");
  EXPECT_EQ(error.hint, "name a mixture-of-experts model, or give the layer with --experts --top-k --n --k");
  EXPECT_EQ(refusal(R"({"text_config": {"num_experts": 0}, "hidden_size": 4096})").what,
            "config.json: text_config.num_experts: the model m has no experts: this is 0");
}
TEST(HfConfig, NamesTheMissingFieldAndWhatWasTried) {
  const Caught error = refusal(R"({"num_experts": 4, "hidden_size": 4096})");
  EXPECT_EQ(error.what, "config.json: no field for the experts a token picks");
  EXPECT_TRUE(error.hint.starts_with("tried num_experts_per_tok, num_experts_per_token,")) << error.hint;
  EXPECT_EQ(refusal(renamed("hidden_size", "hidden_width").c_str()).what, "config.json: no field for the hidden size");
  EXPECT_EQ(refusal(renamed("moe_intermediate_size", "width").c_str()).what,
            "config.json: no field for the intermediate size of an expert");
}
TEST(HfConfig, NamesThePlaceOfAWrongValue) {
  EXPECT_EQ(refusal(R"({"text_config": {"num_experts": "many"}})").what,
            "config.json: text_config.num_experts: expected an integer, found a string");
  EXPECT_EQ(refusal(R"({"num_experts": -8})").what, "config.json: num_experts: -8 is outside 1 to 65536");
  EXPECT_EQ(refusal(R"({"num_experts": 8, "moe_topk": []})").what,
            "config.json: moe_topk: has 0 elements, asked for number 1");
}
TEST(HfConfig, RefusesContradictions) {
  EXPECT_EQ(refusal(R"({"num_experts": 4, "num_experts_per_tok": 8, "hidden_size": 64, "intermediate_size": 64})").what,
            "config.json: a token picks 8 experts, but there are 4");
  EXPECT_EQ(refusal("[]").what, "config.json: a config.json must be an object");
}
TEST(HfConfig, RefusesSynonymsThatContradict) {
  const Caught error = refusal(R"({"num_local_experts": 8, "num_experts": 16, "num_experts_per_tok": 2,
    "hidden_size": 512, "moe_intermediate_size": 256})");
  EXPECT_EQ(error.what, "config.json: 'num_experts' is 16 and 'num_local_experts' is 8, though they mean the same");
  EXPECT_EQ(error.hint, "remove the wrong one");
  EXPECT_EQ(refusal(R"({"num_experts": 16, "num_experts_per_tok": 2, "experts_per_token": 4, "hidden_size": 512,
    "moe_intermediate_size": 256})")
                .what,
            "config.json: 'num_experts_per_tok' is 2 and 'experts_per_token' is 4, though they mean the same");
}
TEST(HfConfig, TakesSynonymsThatAgree) {
  expect_sizes(read(R"({"num_local_experts": 32, "num_experts": 32, "num_experts_per_tok": 4, "moe_topk": [4, 4],
    "experts_per_token": null, "hidden_size": 2880, "intermediate_size": 2880})"),
               32, 4, 2880, 2880);
}

// A config of experts with this beside their sizes.
Model with_format(const std::string& format) {
  const std::string text =
      R"({"num_experts": 16, "num_experts_per_tok": 4, "hidden_size": 512, "moe_intermediate_size": 256, )" + format +
      "}";
  return read(text.c_str());
}

TEST(HfConfig, ReadsTheFormatOfTheExperts) {
  struct {
    const char* text;
    std::optional<ScaleKind> fp8;
    const char* other;
  } const cases[] = {
      {R"("torch_dtype": "bfloat16")", {}, ""},
      {R"("quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
          "weight_block_size": [128, 128]})",
       ScaleKind::block, ""},
      {R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 32]})",
       {},
       "fp8 with scales of blocks of [32,32]"},
      {R"("quantization_config": {"quant_method": "fp8", "activation_scheme": "static"})", ScaleKind::tensor, ""},
      {R"("quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights":
          {"num_bits": 8, "type": "float", "strategy": "channel", "dynamic": false}}}})",
       ScaleKind::channel, ""},
      {R"("quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights":
          {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}}}})",
       ScaleKind::block, ""},
      {R"("quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights":
          {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}}})",
       {},
       "int4"},
      {R"("quantization_config": {"quant_method": "mxfp4"})", {}, "mxfp4"},
      {R"("quantization_config": {"quant_method": "gptq", "bits": 4})", {}, "gptq"},
      {R"("expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]})",
       {},
       "fp4"}};
  for (const auto& [text, fp8, other] : cases) {
    const Model model = with_format(text);
    EXPECT_EQ(model.fp8_scales, fp8) << text;
    EXPECT_EQ(model.other_format, other) << text;
  }
  const Model inside = read(R"({"text_config": {"num_experts": 16, "num_experts_per_tok": 4, "hidden_size": 512,
    "moe_intermediate_size": 256, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}})");
  EXPECT_EQ(inside.fp8_scales, ScaleKind::block);
}

}  // namespace
}  // namespace moetune
