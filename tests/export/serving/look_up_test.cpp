// Where installed servers look for files, on trees as their packages install them: two layouts of each.
#include <map>

#include "base/system/file.h"
#include "export/serving/served_plan.h"
#include "export/serving/serving_rows.h"
#include "record/sample.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

const std::string kUp = "E=8,N=64,device_name=NVIDIA_H200.json", kDown = "E=8,N=64,device_name=NVIDIA_H200_down.json";

/// A package with its files: path -> BLOCK_SIZE_N of the only row.
void install(const fs::path& root, const std::map<std::string, int64_t>& files) {
  for (const auto& [path, block_n] : files) {
    fs::create_directories((root / path).parent_path());
    const ServingRow row{.block_m = 64, .block_n = block_n, .block_k = 64, .use_tma = {}};
    write_atomic(root / path, path.ends_with(".py") ? "the kernel" : serving_text({{16, row}}));
  }
}

/// BLOCK_SIZE_N of the rows of up and down that the server runs for 16 tokens; 0: its default.
std::pair<int64_t, int64_t> found(const Server& server, const LookUp& places) {
  Layer layer = sample::layer("mine", Projection::down, 8, 2, 256, 64);
  ServedFile file = served_file(server, layer, 64, "NVIDIA H200");
  find_rows(file, places);
  const RowPair rows = file.own(16);
  return {file.rows.empty() ? 0 : rows.first.block_n, file.down_rows.empty() ? 0 : rows.second.block_n};
}

using Pair = std::pair<int64_t, int64_t>;

/// SGLang 0.5.23 has its kernel elsewhere than its files; before 0.5 both were in one folder.
struct Layout {
  std::string kernel, configs;
};
const Layout kLayouts[] = {
    {"sglang/kernels/ops/moe/fused_moe_triton_kernels.py", "sglang/srt/layers/moe/moe_runner/triton_utils/configs/"},
    {"sglang/srt/layers/moe/fused_moe_triton/fused_moe_triton_kernels.py",
     "sglang/srt/layers/moe/fused_moe_triton/configs/"}};

class SglangLayouts : public testing::TestWithParam<Layout> {};
TEST_P(SglangLayouts, TheExactTritonFirstThenTheNewestUpAndDownApart) {
  const auto& [kernel, configs] = GetParam();
  const sample::Folder folder;
  install(folder / "", {{kernel, 0},
                        {configs + "triton_3_1_0/" + kUp, 31},
                        {configs + "triton_3_6_0/" + kUp, 36},
                        {configs + "triton_3_10_0/" + kUp, 310},
                        {configs + "triton_3_1_0/" + kDown, 1031},
                        {configs + "triton_3_6_0/" + kDown, 1036}});
  const auto of = [&](const char* triton) { return found(kSglang, look_up(kSglang, folder / kernel, triton, "")); };
  EXPECT_EQ(of("3.6.0"), (Pair{36, 1036}));
  EXPECT_EQ(of("3.10.0"), (Pair{310, 1036}));  // down's own fallback
  EXPECT_EQ(of("3.9.9"), (Pair{310, 1036}));   // newer is no string's order
  const LookUp places = look_up(kSglang, folder / kernel, "3.6.0", "");
  EXPECT_TRUE(places.known);
  EXPECT_EQ(places.bundled, folder / configs.substr(0, configs.size() - 1));
}
INSTANTIATE_TEST_SUITE_P(All, SglangLayouts, testing::ValuesIn(kLayouts));

TEST(SglangLooksUp, WithoutADownFileRunsUpsRowWithoutTma) {
  const sample::Folder folder;
  const auto& [kernel, configs] = kLayouts[0];
  install(folder / "", {{kernel, 0}, {configs + "triton_3_6_0/" + kUp, 36}});
  ServedFile file = served_file(kSglang, sample::layer("mine", Projection::down, 8, 2, 256, 64), 64, "NVIDIA H200");
  find_rows(file, look_up(kSglang, folder / kernel, "3.8.0", ""));
  EXPECT_EQ(file.own(4000).second.block_n, 36);
  EXPECT_EQ(file.own(4000).second.use_tma, false);
}

TEST(SglangLooksUp, ItsVariableReplacesWhatItBundles) {
  const sample::Folder folder;
  const auto& [kernel, configs] = kLayouts[0];
  install(folder / "", {{kernel, 0},
                        {configs + "triton_3_6_0/" + kUp, 36},
                        {configs + "triton_3_6_0/" + kDown, 1036},
                        {"mine/configs/triton_3_4_0/" + kUp, 34}});
  EXPECT_EQ(found(kSglang, look_up(kSglang, folder / kernel, "3.6.0", folder / "mine")), (Pair{34, 0}));
}

TEST(SglangLooksUp, AFolderForItsVariableGetsWhatItBundles) {
  const sample::Folder folder;
  const auto& [kernel, configs] = kLayouts[0];
  install(folder / "", {{kernel, 0},
                        {configs + "triton_3_6_0/" + kUp, 36},
                        {configs + "triton_3_8_0/other.json", 38},
                        {"out/configs/triton_3_6_0/" + kUp, 99}});
  ServedPlan plan{.server = &kSglang, .prefix = "", .places = look_up(kSglang, folder / kernel, "3.6.0", "")};
  using Files = std::vector<std::pair<fs::path, fs::path>>;
  EXPECT_EQ(files_to_copy(plan, folder / "out"),
            (Files{{folder / (configs + "triton_3_8_0/other.json"), folder / "out/configs/triton_3_8_0/other.json"}}));
  plan.places.bundled = folder / "out/configs";
  EXPECT_EQ(files_to_copy(plan, folder / "out"), Files());
}

// 0.33 and before its variable was there: the files are beside the kernel.
TEST(VllmLooksUp, InItsVariableThenBesideItsKernel) {
  const sample::Folder folder;
  const std::string package = "vllm/model_executor/layers/fused_moe/";
  install(
      folder / "",
      {{package + "fused_moe.py", 0}, {package + "configs/" + kUp, 64}, {"mine/" + kUp, 32}, {"empty/other.json", 1}});
  const fs::path kernel = folder / (package + "fused_moe.py");
  EXPECT_EQ(found(kVllm, look_up(kVllm, kernel, "3.8.0", "")), (Pair{64, 0}));
  EXPECT_EQ(found(kVllm, look_up(kVllm, kernel, "3.8.0", folder / "mine")), (Pair{32, 0}));
  EXPECT_EQ(found(kVllm, look_up(kVllm, kernel, "3.8.0", folder / "empty")), (Pair{64, 0}));
  // A newer kernel that moved below the folder's siblings still finds the package's files.
  EXPECT_EQ(found(kVllm, look_up(kVllm, folder / (package + "experts/kernel.py"), "3.8.0", "")), (Pair{64, 0}));
}

TEST(LookUp, IsUnknownWhereTheServerIsNotInstalled) {
  const sample::Folder folder;
  install(folder / "", {{"fused_moe.py", 0}});
  for (const Server* server : servers()) {
    EXPECT_FALSE(look_up(*server, folder / "fused_moe.py", "3.8.0", "").known) << server->title;
    EXPECT_FALSE(look_up(*server, {}, "", "").known) << server->title;
  }
}

TEST(LookUp, SearchesBelowAFolderOfBase) {
  const sample::Folder folder;
  install(folder / "", {{"site/vllm/model_executor/layers/fused_moe/configs/" + kUp, 64},
                        {"site/sglang/srt/layers/moe/moe_runner/triton_utils/configs/triton_3_6_0/" + kUp, 36},
                        {"site/sglang/srt/layers/moe/moe_runner/triton_utils/configs/triton_3_8_0/" + kUp, 38}});
  EXPECT_EQ(found(kVllm, look_up_below(kVllm, {folder / "site"}, "3.6.0")), (Pair{64, 0}));
  EXPECT_EQ(found(kSglang, look_up_below(kSglang, {folder / "site"}, "3.6.0")), (Pair{36, 0}));
  EXPECT_EQ(found(kSglang, look_up_below(kSglang, {folder / "site"}, "3.7.0")), (Pair{38, 0}));
}

TEST(ReadyFiles, AreThoseOfTunedServed) {
  const std::vector<ReadyFile> files = ready_files();
  EXPECT_EQ(files.size(), 10u);
  for (const ReadyFile& file : files) {
    EXPECT_FALSE(parse_serving(file.text, file.name()).empty());
    EXPECT_EQ(file.server == &kSglang, file.path.find("/sglang/") != std::string_view::npos);
  }
}

}  // namespace
}  // namespace moetune
