// Hugging Face configs: every field name, every place, every trap.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <map>

#include "error_of.h"
#include "workload/model.h"

namespace moetune {
namespace {

std::vector<Model> kinds(const char* text, const Model& given = {}) {
  const Json json = parse_json(text, "config.json");
  return models_from_hf_config(JsonAt(json, "config.json"), "m", given);
}
Model read(const char* text) { return kinds(text).front(); }
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

std::string format_of(const Model& model) {
  return !model.other_format.empty() ? model.other_format : model.format ? std::string(model.format->word) : "bf16";
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
  EXPECT_EQ(make_layer(model, Projection::up, format_named("bf16"), 1, 1).n, 1856);
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
  EXPECT_EQ(make_layer(model, Projection::up, format_named("bf16"), 1, 1).n, 5760);
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
        std::pair{R"({"language_config": {)", "}}"}, std::pair{R"({"hidden_size": 9, "llm_config": {)", "}}"},
        std::pair{R"({"text": {)", "}}"}, std::pair{R"({"hidden_size": 512, "moe_config": {)", "}}"},
        std::pair{"{", "}"}})
    expect_sizes(read((std::string(before) + inner + after).c_str()), 16, 4, 512, 256);
}
TEST(HfConfig, StaysWhereTheTextPartHasNoMoeFields) {
  expect_sizes(read(R"({"text_config": {"hidden_size": 99}, "num_experts": 16, "num_experts_per_tok": 4,
    "hidden_size": 512, "moe_intermediate_size": 256})"),
               16, 4, 512, 256);
}

TEST(HfConfig, ReadsTheFieldsOfExpertsBesideThoseOfTheModel) {
  const Model model = read(R"({"dim": 512, "hidden_dim": 4096, "moe": {"num_experts": 16, "num_experts_per_tok": 4,
    "expert_hidden_dim": 256, "num_shared_experts": 1}})");
  expect_sizes(model, 16, 4, 512, 256);
  ASSERT_EQ(model.notes.size(), 1u);
  EXPECT_EQ(model.notes[0],
            "no field of m names the activation (mlp_hidden_act, hidden_act, hidden_activation, activation, "
            "activation_function, ffn_config.ffn_act_fn.name): the experts are taken as gated, with silu");
}
TEST(HfConfig, ReadsWhetherExpertsAreGated) {
  const std::string sizes = R"({"num_experts": 8, "moe_top_k": 2, "n_embd": 64, "n_inner": 256, )";
  for (const auto& [field, gated] :
       {std::pair{R"("activation_function": "gelu"})", false}, std::pair{R"("activation_function": "swiglu"})", true},
        std::pair{R"("activation_function": "silu"})", true}, std::pair{R"("hidden_act": "gelu"})", true},
        std::pair{R"("swiglu": false})", false}})
    EXPECT_EQ(read((sizes + field).c_str()).gated, gated) << field;
}
TEST(HfConfig, MakesAModelOfEachKindOfLayers) {
  const auto of_lists = kinds(R"({"hidden_size": 512, "num_experts": [8, 0, 4, 8], "num_experts_per_tok": [2, 2, 1, 2],
    "moe_intermediate_size": [256, 256, 128, 256], "hidden_act": "silu"})");
  ASSERT_EQ(of_lists.size(), 2u);
  expect_sizes(of_lists[0], 8, 2, 512, 256);
  expect_sizes(of_lists[1], 4, 1, 512, 128);
  EXPECT_EQ(of_lists[0].name, "m");
  EXPECT_EQ(of_lists[1].name, "m.kind2");
  ASSERT_EQ(of_lists[0].notes.size(), 1u);
  EXPECT_EQ(of_lists[0].notes[0],
            "m has 2 kinds of expert layers, each with cells: m (num_experts, num_experts_per_tok, "
            "moe_intermediate_size[0]: 8 experts, top 2, 256 wide), m.kind2 (num_experts, num_experts_per_tok, "
            "moe_intermediate_size[2]: 4 experts, top 1, 128 wide)");
  const auto of_blocks = kinds(R"({"hidden_size": 4096, "moe_latent_size": 1024, "n_routed_experts": 512,
    "num_experts_per_tok": null, "moe_intermediate_size": null, "intermediate_size": 21504, "mlp_hidden_act": "relu2",
    "block_configs": [{"block_type": "mamba"}, {"block_type": "moe", "num_experts_per_tok": 4,
    "moe_intermediate_size": 1280}, {"num_experts_per_tok": 18, "moe_intermediate_size": 2816}]})");
  ASSERT_EQ(of_blocks.size(), 2u);
  expect_sizes(of_blocks[0], 512, 4, 1024, 1280);
  expect_sizes(of_blocks[1], 512, 18, 1024, 2816);
  EXPECT_FALSE(of_blocks[1].gated);
  EXPECT_NE(of_blocks[0].notes[0].find("m.kind2 (block_configs[2]: 512"), std::string::npos) << of_blocks[0].notes[0];
}
TEST(HfConfig, RefusesListsOfDifferentLengths) {
  EXPECT_EQ(refusal(R"({"hidden_size": 64, "num_experts": [0, 0], "num_experts_per_tok": 2,
    "moe_intermediate_size": 64})")
                .what,
            "config.json: no layer of m has experts");
  const Caught error = refusal(R"({"hidden_size": 64, "num_experts": [8, 4], "num_experts_per_tok": 2,
    "moe_intermediate_size": [64, 32, 64]})");
  EXPECT_EQ(error.what, "config.json: moe_intermediate_size: has 3 elements, 'num_experts' has 2");
}
TEST(HfConfig, DoesNotTakeADenseWidthForAnExpertsInSilence) {
  const char* strange = R"({"hidden_act": "silu", "num_experts": 16, "num_experts_per_tok": 4, "hidden_size": 512,
    "intermediate_size": 2048, "expert_mlp_width": 256, "shared_expert_intermediate_size": 64})";
  const Caught error = refusal(strange);
  EXPECT_EQ(error.what, "config.json: intermediate_size: the width of an expert may be this or 'expert_mlp_width'");
  EXPECT_EQ(error.hint, "give it with --intermediate");
  Model given;
  given.intermediate = 256;
  expect_sizes(kinds(strange, given).front(), 16, 4, 512, 256);
  const auto notes = [](const std::string& type) {
    return read((R"({"hidden_act": "silu", "num_experts": 16, "num_experts_per_tok": 4, "hidden_size": 512,
      "intermediate_size": 2048, "model_type": ")" +
                 type + "\"}")
                    .c_str())
        .notes;
  };
  EXPECT_TRUE(notes("mixtral").empty());
  ASSERT_EQ(notes("unheard_of").size(), 1u);
  EXPECT_EQ(notes("unheard_of")[0],
            "the experts of m are taken to be 2048 wide, as intermediate_size says, which is the width of dense layers "
            "in some models: else give --intermediate");
}
TEST(HfConfig, NamesAFieldThatMayBeTheMissingOne) {
  EXPECT_TRUE(refusal(R"({"num_experts": 16, "moe_picks": 4, "hidden_size": 512, "moe_intermediate_size": 256})")
                  .hint.ends_with("; is it moe_picks? Then give --top-k"));
}
TEST(HfConfig, KnowsZeroExperts) {
  const auto model = read(R"({"hidden_act": "silu", "hidden_size": 64, "expert_ffn_hidden_size": 32,
    "n_routed_experts": 512, "zero_expert_num": 256, "zero_expert_type": "identity", "moe_topk": 12})");
  expect_sizes(model, 512, 12, 64, 32);
  EXPECT_EQ(make_layer(model, Projection::up, format_named("bf16"), 1, 1).zero_experts, 256);
  EXPECT_EQ(model.notes,
            std::vector<std::string>{"256 zero experts of m (zero_expert_num) take rows that no kernel computes"});
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
        std::pair{"num_experts_per_tok", "top_k_experts"}, std::pair{"num_experts\"", "num_moe_experts\""},
        std::pair{"num_experts\"", "moe_num_primary_experts\""}, std::pair{"num_experts_per_tok", "moe_router_topk"},
        std::pair{"num_experts_per_tok", "moe_num_active_primary_experts"},
        std::pair{"num_experts_per_tok", "n_activated_experts"},
        std::pair{"moe_intermediate_size", "expert_ffn_hidden_size"},
        std::pair{"moe_intermediate_size", "expert_intermediate_size"},
        std::pair{"moe_intermediate_size", "expert_hidden_dim"},
        std::pair{"moe_intermediate_size", "moe_ffn_hidden_size"}, std::pair{"moe_intermediate_size", "moe_inter_dim"},
        std::pair{"moe_intermediate_size", "expert_inner_dim"}, std::pair{"hidden_size", "moe_hidden_size"},
        std::pair{"hidden_size", "dim"}, std::pair{"moe_intermediate_size", "intermediate_size"},
        std::pair{"hidden_size", "d_model"}, std::pair{"hidden_size", "moe_latent_size"},
        std::pair{"hidden_size", "routed_expert_hidden_size"}));

TEST(HfConfig, SaysThatADenseModelHasNoExpertsAndWhatItLookedFor) {
  const Caught error = refusal(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096})");
  EXPECT_EQ(error.exit, Exit::request);
  EXPECT_EQ(error.what,
            "config.json: the model m has no experts: it has none of the fields n_routed_experts, num_moe_experts, "
            "moe_num_primary_experts, num_experts, num_local_experts, moe_num_experts, ffn_config.moe_num_experts");
  EXPECT_EQ(error.hint, "name a mixture-of-experts model, or give the layer with --experts --top-k --n --k");
  EXPECT_EQ(refusal(R"({"text_config": {"num_experts": 0}, "hidden_size": 4096})").what,
            "config.json: text_config.num_experts: the model m has no experts: this is 0");
}
TEST(HfConfig, NamesTheMissingFieldAndWhatWasTried) {
  const Caught error = refusal(R"({"num_experts": 4, "hidden_size": 4096})");
  EXPECT_EQ(error.what, "config.json: no field for the experts a token picks");
  EXPECT_TRUE(error.hint.starts_with("tried num_experts_per_tok, moe_router_topk,")) << error.hint;
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

// A config of experts in `layers` layers with this beside their sizes.
std::vector<Model> with_format(const std::string& format, int layers = 4) {
  const std::string text = fmt::format(R"({{"hidden_act": "silu", "num_experts": 16, "num_experts_per_tok": 4,
    "hidden_size": 512, "moe_intermediate_size": 256, "num_hidden_layers": {}, {}}})",
                                       layers, format);
  return kinds(text.c_str());
}
// The formats of the kinds, or what is refused.
std::string formats_in(const std::string& quantisation, int layers = 4) {
  std::string words;
  const Caught error = error_of([&] {
    for (const Model& model : with_format(R"("quantization_config": {)" + quantisation + "}", layers))
      words += (words.empty() ? "" : ", ") + format_of(model);
  });
  return error.what.empty() ? words : error.what;
}

constexpr const char *kFp8Group = R"("weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
    "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true})",
                     *kInt4Group = R"("weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
    "input_activations": null)",
                     *kNvfp4Group = R"("format": "nvfp4-pack-quantized", "weights": {"num_bits": 4, "type": "float",
    "strategy": "tensor_group", "group_size": 16})";

// compressed-tensors: groups of targets, written with the formats above.
std::string groups(const std::vector<std::pair<std::string, const char*>>& list, const std::string& more = "") {
  std::string text = R"("quant_method": "compressed-tensors", )" + more + R"("config_groups": {)";
  for (size_t i = 0; i < list.size(); ++i)
    text += fmt::format(R"({}"group_{}": {{"targets": [{}], {}}})", i ? ", " : "", i, list[i].first, list[i].second);
  return text + "}";
}

struct FormatCase {
  std::string quantisation;
  const char* formats;
};
class FormatsOfExperts : public testing::TestWithParam<FormatCase> {};
TEST_P(FormatsOfExperts, AreRead) { EXPECT_EQ(formats_in(GetParam().quantisation), GetParam().formats); }

INSTANTIATE_TEST_SUITE_P(
    Methods, FormatsOfExperts,
    testing::Values(
        FormatCase{R"("quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128])", "fp8-block"},
        FormatCase{R"("quant_method": "fp8", "weight_block_size": [32, 32])", "fp8 with scales of blocks of [32,32]"},
        FormatCase{R"("quant_method": "fp8", "activation_scheme": "static")", "fp8-tensor"},
        FormatCase{R"("quant_method": "fp8", "weight_block_size": [0, null])", "fp8-tensor"},
        FormatCase{R"("quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"])",
                   "mxfp4"},
        FormatCase{R"("quant_method": "w8a8_int8")", "int8-w8a8"},
        FormatCase{R"("quant_method": "bitsandbytes", "load_in_4bit": true)", "bitsandbytes"},
        FormatCase{R"("group_size": 64, "bits": 4)", "an unknown format"},
        FormatCase{R"("qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR")", "fp8-tensor"},
        FormatCase{R"("quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true)", "int4-group128"},
        FormatCase{R"("quant_method": "gptq", "bits": 4, "group_size": 64, "sym": false)", "uint4-group64"},
        FormatCase{R"("quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true)",
                   "gptq in order of activations"},
        FormatCase{R"("quant_method": "gptq", "bits": 4)", "gptq without a group_size"},
        FormatCase{R"("quant_method": "gptq", "bits": 8, "group_size": 128)", "int8 in groups of 128"},
        FormatCase{R"("quant_method": "gptq", "bits": 4, "group_size": -1)", "int4 in groups of -1"},
        FormatCase{R"("quant_method": "awq", "w_bit": 4, "q_group_size": 128, "zero_point": true)", "uint4-group128"},
        FormatCase{R"("quant_method": "modelopt", "quant_algo": "FP8", "config_groups": {"group_0": {}})",
                   "fp8-tensor"},
        FormatCase{R"("quant_algo": "fp8_pb_wo")", "fp8-block"},
        FormatCase{R"("quant_algo": "FP8_PER_CHANNEL_PER_TOKEN")", "fp8-channel"},
        FormatCase{R"("quant_algo": "NVFP4", "group_size": 16)", "nvfp4"},
        FormatCase{R"("quantization": {"quant_algo": "FP8_PB_WO"})", "fp8-block"},
        FormatCase{R"("quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3",
                   "qscheme": "per_channel"}, "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_channel"}})",
                   "fp8-channel"},
        FormatCase{R"("quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4",
                   "qscheme": "per_group", "group_size": 32}})",
                   "mxfp4"}));

INSTANTIATE_TEST_SUITE_P(
    CompressedTensors, FormatsOfExperts,
    testing::Values(
        FormatCase{groups({{R"("Linear")", kFp8Group}}), "fp8-channel"},
        FormatCase{groups({{R"("Linear")", R"("weights": {"num_bits": 8, "type": "float", "strategy": "block",
                   "block_structure": [128, 128]})"}}),
                   "fp8-block"},
        FormatCase{groups({{R"("Linear")", R"("weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
                   "input_activations": null)"}}),
                   "fp8 weights beside 16-bit activations"},
        FormatCase{groups({{R"("Linear")", R"("weights": {"num_bits": 8, "type": "int", "strategy": "channel",
                   "symmetric": true}, "input_activations": {"num_bits": 8, "type": "int", "strategy": "token"})"}}),
                   "int8-w8a8"},
        FormatCase{groups({{R"("Linear")", R"("weights": {"num_bits": 8, "type": "int", "strategy": "channel",
                   "symmetric": true}, "input_activations": null)"}}),
                   "int8"},
        FormatCase{groups({{R"("Linear")", R"("weights": {"num_bits": 4, "type": "int", "strategy": "group",
                   "group_size": 128}, "input_activations": {"num_bits": 8, "type": "float", "strategy": "token"})"}}),
                   "int4 with scales of group beside quantised activations"},
        FormatCase{groups({{R"("Linear")", R"("weights": {"num_bits": 4, "type": "int", "strategy": "group",
                   "group_size": 128, "actorder": "group"})"}}),
                   "int4 in order of activations"},
        FormatCase{groups({{R"("re:.*self_attn.*")", kFp8Group}, {R"("re:.*mlp.experts.*")", kInt4Group}}),
                   "int4-group32"},
        FormatCase{groups({{R"("re:.*self_attn.*")", kFp8Group}, {R"("re:.*ffn.experts.*")", kNvfp4Group}}), "nvfp4"},
        // names of modules count before names of classes
        FormatCase{groups({{R"("Linear")", kFp8Group}, {R"("re:.*block_sparse_moe.experts.*w[123]$")", kInt4Group}}),
                   "int4-group32"},
        FormatCase{groups({{R"("LlamaAttention")", kFp8Group}}), "bf16"},
        FormatCase{groups({{R"("Linear")", R"("weights": null)"}}), "an unknown format"},
        FormatCase{groups({{R"("Linear")", R"("weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
                   "input_activations": {"num_bits": "8", "strategy": ["token"]})"}}),
                   "int8 with scales of channel beside quantised activations"},
        FormatCase{groups({{R"("Linear")", kFp8Group}}, R"("ignore": ["lm_head", "re:.*mlp.gate$"], )"), "fp8-channel"},
        FormatCase{groups({{R"("Linear")", kFp8Group}}, R"("ignore": ["re:.*mlp.experts.*", "re:.*shared.*"], )"),
                   "bf16"},
        FormatCase{groups({{R"("Linear")", kFp8Group}}, R"("ignore": ["re:mtp.*", "re:talker.*", "model.layers.0"], )"),
                   "fp8-channel"},
        FormatCase{groups({{R"("Linear")", kFp8Group}}, R"("ignore": ["re:.*down_proj"], )"),
                   "config.json: quantization_config.ignore[0]: the projections of an expert of "
                   "layer 0 are fp8-channel and bf16"},
        FormatCase{groups({{R"("Linear")", kFp8Group}}, R"("ignore": ["re:(?P<x>.*)experts"], )"),
                   "config.json: quantization_config.ignore[0]: '(?P<x>.*)experts' is not an expression that moetune "
                   "can read"},
        FormatCase{groups({{R"("re:model.layers.[01].mlp.experts.*")", kInt4Group}, {R"("Linear")", kFp8Group}}),
                   "int4-group32, fp8-channel"}));

const std::string kFp8 = R"("quant_method": "fp8", "weight_block_size": [128, 128], )",
                  kGptq = R"("quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true, "dynamic": )";
INSTANTIATE_TEST_SUITE_P(
    Exceptions, FormatsOfExperts,
    testing::Values(
        FormatCase{kFp8 + R"("modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate", "mtp.layers.1.mlp"])",
                   "fp8-block"},
        FormatCase{kFp8 + R"("ignored_layers": ["model.layers.1.mlp.experts", "model.layers.3.mlp"])",
                   "fp8-block, bf16"},
        FormatCase{kFp8 + R"("modules_to_not_convert": ["experts"])", "bf16"},
        FormatCase{kFp8 + R"("modules_to_not_convert": ["model.layers.*.mlp.experts", "model.layers.*.self_attn"])",
                   "bf16"},
        FormatCase{R"("quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["gate"])",
                   "uint4-group128"},
        FormatCase{kGptq + R"({"-:.*mlp\\.experts.*": {}})", "bf16"},
        FormatCase{kGptq + R"({"-:experts": {}})", "int4-group128"},  // from the start of a name
        FormatCase{kGptq + R"({"+:.*layers\\.0\\..*": {"bits": 8, "group_size": 32}, "-:.*layers\\.[01]\\..*": {}})",
                   "int8 in groups of 32, bf16, int4-group128"},  // the first rule counts
        FormatCase{kGptq + R"({".*down_proj.*": {"group_size": 32}})",
                   "config.json: quantization_config.dynamic..*down_proj.*: the projections of an "
                   "expert of layer 0 are int4-group128 and int4-group32"},
        FormatCase{R"("quant_algo": "FP8", "exclude_modules": ["lm_head", "model.layers.2*"])", "fp8-tensor, bf16"},
        FormatCase{R"("quant_algo": "NVFP4", "ignore": ["*.mlp.experts*"])", "bf16"},
        FormatCase{R"("quant_algo": "MIXED_PRECISION", "quantized_layers": {"model.layers.0.mlp.experts":
                   {"quant_algo": "NVFP4"}, "model.layers.1.mlp.experts.*": {"quant_algo": "FP8"},
                   "model.layers.2.self_attn": {"quant_algo": "FP8"}})",
                   "nvfp4, fp8-tensor, bf16"},
        FormatCase{R"("quant_method": "quark", "exclude": ["lm_head"], "layer_quant_config": {"*experts*": {"weight":
                   {"dtype": "int8", "qscheme": "per_channel"}, "input_tensors": {"dtype": "int8"}}}, 
                   "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}, "input_tensors":
                   {"dtype": "fp8_e4m3"}})",
                   "int8-w8a8"}));

TEST(HfConfig, MakesAModelOfEachFormatOfLayers) {
  const std::vector<Model> of_layers =
      with_format(R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128],
      "modules_to_not_convert": ["model.layers.1.mlp.experts", "model.layers.2.mlp.experts"]})");
  ASSERT_EQ(of_layers.size(), 2u);
  EXPECT_EQ(of_layers[0].notes.back(),
            "m has 2 kinds of expert layers, each with cells: m (layers 0, 3: 16 experts, top 4, 256 wide, fp8-block), "
            "m.kind2 (layers 1-2: 16 experts, top 4, 256 wide, bf16)");
  // a dense layer has no experts that could differ
  for (const char* dense :
       {R"("first_k_dense_replace": 1)", R"("mlp_only_layers": [0])", R"("moe_layer_freq": [0, 1, 1, 1])",
        R"("hybrid_override_pattern": "MEEE")", R"("mlp_layer_types": ["dense", "sparse", "sparse", "sparse"])",
        R"("decoder_sparse_step": 2)", R"("moe_layers_enum": "1,2,3")"}) {
    const auto models = with_format(dense + std::string(R"(, "quantization_config": {"quant_algo": "FP8",
        "ignore": ["model.layers.0*"]})"));
    EXPECT_EQ(models.size(), 1u) << dense;
    EXPECT_EQ(format_of(models[0]), "fp8-tensor") << dense;
  }
  EXPECT_EQ(refusal(R"({"num_experts": 16, "num_experts_per_tok": 4, "hidden_size": 512, "moe_intermediate_size": 256,
      "quantization_config": {"quant_method": "fp8", "ignored_layers": ["model.layers.0.mlp"]}})")
                .what,
            "config.json: quantization_config: layers differ, and no field counts them");
}
TEST(HfConfig, ReadsTheFormatWhereverItIs) {
  const auto sole = [](const std::string& fields) { return format_of(with_format(fields).front()); };
  EXPECT_EQ(sole(R"("torch_dtype": "bfloat16")"), "bf16");
  EXPECT_EQ(sole(R"("dtype": "float16")"), "fp16");
  EXPECT_EQ(sole(R"("compression_config": {)" + groups({{R"("Linear")", kFp8Group}}) + "}"), "fp8-channel");
  EXPECT_EQ(sole(R"("quantization": {"quant_method": "fp8"})"), "fp8-tensor");
  EXPECT_EQ(sole(R"("quantization": "wint4")"), "wint4");
  const std::string fp4 = R"(, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]})";
  EXPECT_EQ(sole(R"("expert_dtype": "fp4")" + fp4), "mxfp4");
  EXPECT_EQ(sole(R"("expert_dtype": "fp8")" + fp4), "fp8-block");
  EXPECT_EQ(sole(R"("expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8", "moe_quant_algo": "NVFP4"})"),
            "nvfp4");
  EXPECT_EQ(sole(R"("enable_moe_block": true, "quantization_config": {"quant_algo": "FP8",
                    "exclude_modules": ["model.layers.*.mlp*"]})"),
            "fp8-tensor");  // experts beside a dense mlp
  EXPECT_EQ(format_of(read(R"({"text_config": {"num_experts": 16, "num_experts_per_tok": 4, "hidden_size": 512,
    "moe_intermediate_size": 256, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}})")),
            "fp8-block");
}
TEST(HfConfig, ReadsTheSecondTower) {
  const auto towers = kinds(R"({"thinker_config": {"text_config": {"hidden_act": "silu", "hidden_size": 2048,
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}, "num_hidden_layers": 2},
    "talker_config": {"text_config": {"hidden_act": "silu", "hidden_size": 1024, "num_experts": 128,
    "num_experts_per_tok": 6, "moe_intermediate_size": 384}}, "vision_config": {"hidden_size": 64},
    "quantization_config": {"quant_method": "fp8", "ignored_layers": ["talker.model.layers.0.mlp", "talker"]}})");
  ASSERT_EQ(towers.size(), 2u);
  expect_sizes(towers[0], 128, 8, 2048, 768);
  expect_sizes(towers[1], 128, 6, 1024, 384);
  EXPECT_EQ(format_of(towers[0]), "fp8-tensor");
  EXPECT_EQ(format_of(towers[1]), "bf16");
  EXPECT_NE(towers[0].notes.back().find("m.kind2 (talker_config.text_config: 128 experts"), std::string::npos)
      << towers[0].notes.back();
}
TEST(HfConfig, RefusesAModelWhoseExpertsAreSwitchedOff) {
  EXPECT_EQ(refusal(R"({"num_experts": 16, "num_experts_per_tok": 4, "is_moe": false})").what,
            "config.json: is_moe: the model m has no experts: this is false");
}
TEST(HfConfig, NamesTheActivation) {
  for (const auto& [fields, gated, activation] :
       {std::tuple{R"("hidden_act": "silu")", true, "silu"},
        {R"("hidden_act": "silu", "swiglu_limit": 10.0)", true, "silu with swiglu_limit 10.0"},
        {R"("hidden_act": "silu", "swiglu_limits": [0, null, 7])", true, "silu with swiglu_limit of layers"},
        {R"("hidden_act": "silu", "swiglu_limits": [0, 0])", true, "silu"},
        {R"("model_type": "gpt_oss", "hidden_act": "silu", "swiglu_limit": 7.0)", true, "gpt-oss"},
        {R"("hidden_act": "swigluoai")", true, "gpt-oss"},
        {R"("hidden_act": "swigluoai", "swiglu_alpha": 1.702, "swiglu_limit": 7.0)", true, "gpt-oss"},
        {R"("hidden_act": "swigluoai", "swiglu_alpha": 1.0, "swiglu_limit": 10.0)", true,
         "swigluoai with swiglu_limit 10.0, swiglu_alpha 1.0"},
        {R"("hidden_activation": "gelu_pytorch_tanh")", true, "gelu_pytorch_tanh"},
        {R"("hidden_act": "situ")", true, "situ"},
        {R"("hidden_act": "gelu")", true, "gelu"},
        {R"("activation": "swiglu")", true, "silu"},
        {R"("ffn_config": {"ffn_act_fn": {"name": "silu"}})", true, "silu"},
        {R"("mlp_hidden_act": "relu2")", false, "relu2"},
        {R"("swiglu": true)", true, "silu"},
        {R"("swiglu_limit": 10)", true, "silu with swiglu_limit 10"}}) {
    const Model model = read((R"({"num_experts": 8, "moe_top_k": 2, "n_embd": 64, "moe_intermediate_size": 256, )" +
                              std::string(fields) + "}")
                                 .c_str());
    EXPECT_EQ(model.gated, gated) << fields;
    EXPECT_EQ(model.activation, activation) << fields;
  }
}

}  // namespace
}  // namespace moetune
