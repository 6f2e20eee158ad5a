// Presets, models found by name or path, and their layers.
#include "workload/model.h"

#include <gtest/gtest.h>

#include <set>

#include "base/embedded.h"
#include "error_of.h"
#include "find_model.h"
#include "temporary_folder.h"

namespace moetune {
namespace fs = std::filesystem;
namespace {

constexpr const char* kConfig =
    R"({"architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2,
        "hidden_size": 64, "intermediate_size": 96})";

TEST(ModelPresets, AreSortedValidAndUnlikeEachOther) {
  const std::vector<Model>& models = model_presets();
  EXPECT_GE(models.size(), 31u);
  std::set<std::string> words;
  for (size_t i = 0; i < models.size(); ++i) {
    EXPECT_TRUE(i == 0 || models[i - 1].name < models[i].name);
    EXPECT_TRUE(words.insert(models[i].name).second) << models[i].name;
    for (const std::string& alias : models[i].aliases) EXPECT_TRUE(words.insert(alias).second) << alias;
    for (const Projection projection : {Projection::up, Projection::down})
      EXPECT_NO_THROW(require_valid({make_layer(models[i], projection, find_format("bf16"), 1, 1), Op::fwd, {}}))
          << models[i].name;
  }
}

TEST(FindModel, IgnoresCaseAndKnowsAliases) {
  EXPECT_EQ(find_model("Qwen3-30B-A3B").name, "qwen3-30b-a3b");
  EXPECT_EQ(find_model("deepseek-r1").name, "deepseek-v3");
  EXPECT_EQ(find_model("DeepSeek-V3.2").name, "deepseek-v3");
}
TEST(ModelPresets, KnowTheirCheckpoint) {
  EXPECT_EQ(find_model("gpt-oss-120b").format, format_named("mxfp4"));
  EXPECT_EQ(find_model("gpt-oss-120b").activation, "gpt-oss");
  EXPECT_EQ(find_model("deepseek-v3").format, format_named("fp8-block"));
  EXPECT_EQ(find_model("kimi-k2.5").format, format_named("int4-group32"));
  EXPECT_EQ(find_model("gemma-4-26b-a4b").activation, "gelu_pytorch_tanh");
  EXPECT_FALSE(find_model("qwen3-30b-a3b").format);
  for (const Model& model : model_presets()) EXPECT_NE(model.activation, "") << model.name;
}
TEST(FindModel, TakesNamesOfTheHub) {
  EXPECT_EQ(find_model("Qwen/Qwen3-30B-A3B").name, "qwen3-30b-a3b");
  const Caught error = error_of([] { find_model("Qwen/Qwen3-30B-A3B-FP8"); });
  EXPECT_EQ(error.what,
            "there is no file Qwen/Qwen3-30B-A3B-FP8, and moetune downloads nothing from the Hugging Face hub");
  EXPECT_EQ(error.hint,
            "--model qwen3-30b-a3b has the sizes of that model; for the checkpoint's format add --dtype, or download "
            "its config.json (hf download Qwen/Qwen3-30B-A3B-FP8 config.json) and give the file to --model");
  EXPECT_TRUE(error_of([] { find_model("some/other"); }).hint.starts_with("download its config.json"));
}
TEST(FindModel, ReadsTheQuantisationBesideAConfig) {
  const TemporaryFolder folder;
  folder.write("m/hf_quant_config.json",
               R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8_PB_WO",
      "exclude_modules": ["lm_head"]}})");
  EXPECT_EQ(find_model(folder.write("m/config.json", kConfig).string()).format, format_named("fp8-block"));
}
TEST(FindModel, SuggestsTheNearest) {
  const Caught error = error_of([] { find_model("qwen3-30b-3ab"); });
  EXPECT_EQ(error.exit, Exit::request);
  EXPECT_EQ(error.what, "unknown model 'qwen3-30b-3ab'");
  EXPECT_EQ(error.hint, "did you mean 'qwen3-30b-a3b'?");
}
TEST(FindModel, ReadsAConfigOrItsFolder) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("My-Model/config.json", kConfig);
  const Model model = find_model(path.string());
  EXPECT_EQ(model.name, "my-model");
  EXPECT_EQ(model.architecture, "MixtralForCausalLM");
  EXPECT_EQ(model.experts, 4);
  EXPECT_EQ(find_model(path.parent_path().string()), model);
  EXPECT_EQ(find_model(folder.write("Small.json", kConfig).string()).name, "small");
}
TEST(FindModel, ReadsFilesOfModelsToo) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("other.json", *embedded_file("configs/models/mixtral/mixtral-8x7b.json"));
  EXPECT_EQ(find_model(path.string()), find_model("mixtral-8x7b"));
  EXPECT_EQ(error_of([&] { find_model(folder.write("space.json", R"({"schema": "moetune.space/1"})").string()); }).what,
            (folder.path() / "space.json").string() + ": its schema is 'moetune.space/1', expected 'moetune.model/1'");
}
TEST(FindModel, NamesTheFileThatItReads) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("m/config.json", kConfig);
  EXPECT_EQ(model_file(path.string()), path);
  EXPECT_EQ(model_file(path.parent_path().string()), path);
  EXPECT_EQ(model_file("missing.json"), "missing.json");
  EXPECT_EQ(model_file("DeepSeek-V3"), "");
  EXPECT_EQ(model_file("no-such-word"), "");
}
TEST(FindModel, NamesModelsOfADownloadCache) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("models--Qwen--Qwen9-30B/snapshots/0123abcd/config.json", kConfig);
  EXPECT_EQ(find_model(path.string()).name, "qwen9-30b");
}
TEST(FindModel, NamesMissingAndWrongFiles) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of([&] { find_model((folder.path() / "config.json").string()); }).what.find("No such file"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { find_model(folder.path().string()); }).what,
            folder.path().string() + ": the folder has no config.json");
  const fs::path cut = folder.write("cut.json", R"({"num_experts": )");
  EXPECT_NE(error_of([&] { find_model(cut.string()); }).what.find("the JSON ends too early"), std::string::npos);
}

TEST(MakeLayer, DoublesTheUpProjectionOfGatedExperts) {
  const Model model = find_model("qwen3-30b-a3b");
  const Layer up = make_layer(model, Projection::up, find_format("bf16"), 1, 1);
  EXPECT_EQ(up.n, 1536);
  EXPECT_EQ(up.k, 2048);
  EXPECT_EQ(up.experts, 128);
  EXPECT_EQ(up.top_k, 8);
  const Layer down = make_layer(model, Projection::down, find_format("fp16"), 1, 1);
  EXPECT_EQ(down.n, 2048);
  EXPECT_EQ(down.k, 768);
  EXPECT_EQ(down.format, find_format("fp16"));
  EXPECT_EQ(down.projection, Projection::down);
}
TEST(MakeLayer, DoesNotDoubleNemotron) {
  EXPECT_EQ(make_layer(find_model("nemotron-3-nano-30b"), Projection::up, find_format("bf16"), 1, 1).n, 1856);
}
TEST(MakeLayer, ShardsIntermediateByTpAndExpertsByEp) {
  const Model model = find_model("qwen3-30b-a3b");
  const Layer up = make_layer(model, Projection::up, find_format("bf16"), 4, 8);
  EXPECT_EQ(up.n, 384);
  EXPECT_EQ(up.k, 2048);
  EXPECT_EQ(up.experts, 128);  // of the whole model
  EXPECT_EQ(up.local_experts(), 16);
  const Layer down = make_layer(model, Projection::down, find_format("bf16"), 4, 8);
  EXPECT_EQ(down.n, 2048);
  EXPECT_EQ(down.k, 192);
}
TEST(MakeLayer, RefusesShardingsThatDoNotDivide) {
  const Model model = find_model("qwen3-30b-a3b");
  EXPECT_EQ(error_of([&] { make_layer(model, Projection::up, find_format("bf16"), 5, 1); }).what,
            "tp 5 does not divide the intermediate size 768 of qwen3-30b-a3b");
  EXPECT_EQ(error_of([&] { make_layer(model, Projection::up, find_format("bf16"), 1, 3); }).what,
            "ep 3 does not divide the 128 experts of qwen3-30b-a3b");
  EXPECT_NE(error_of([&] { make_layer(model, Projection::up, find_format("bf16"), 0, 1); }).what, "");
  EXPECT_NE(error_of([&] { make_layer(model, Projection::up, find_format("bf16"), 1, -2); }).what, "");
}

}  // namespace
}  // namespace moetune
