// The servers' own files: names, defaults, and real ones.
#include "export/serving/serving.h"

#include <algorithm>

#include "export/serving/serving_rows.h"
#include "record/sample.h"

namespace moetune {
namespace {

TEST(ServingName, HasExpertsWidthDeviceAndFormatAsTheServerSpellsThem) {
  struct Case {
    const Server* server;
    std::string_view device, dtype;
    std::optional<ScaleKind> scales;
    bool down;
    std::string name;
  };
  const std::string fp8 = "A,dtype=fp8_w8a8", int4 = "A,dtype=int4_w4a16";
  for (const Case& one : std::vector<Case>{
           {&kVllm, "NVIDIA H100 80GB HBM3", "bf16", {}, false, "E=8,N=64,device_name=NVIDIA_H100_80GB_HBM3.json"},
           {&kVllm, "A", "fp16", {}, false, "E=8,N=64,device_name=A.json"},
           {&kSglang, "A", "bf16", {}, true, "E=8,N=64,device_name=A_down.json"},
           // The H200 family is one device for vLLM alone.
           {&kVllm, "NVIDIA H200 NVL", "bf16", {}, false, "E=8,N=64,device_name=NVIDIA_H200.json"},
           {&kSglang, "NVIDIA H200 NVL", "bf16", {}, false, "E=8,N=64,device_name=NVIDIA_H200_NVL.json"},
           {&kVllm, "NVIDIA GH200 480GB", "bf16", {}, false, "E=8,N=64,device_name=NVIDIA_GH200_480GB.json"},
           {&kVllm, "A  B/C", "bf16", {}, false, "E=8,N=64,device_name=A_B_C.json"},
           {&kSglang, "A  B", "bf16", {}, false, "E=8,N=64,device_name=A__B.json"},
           {&kVllm, "A", "fp8", ScaleKind::block, false, fp8 + ",block_shape=[128,128].json"},
           {&kVllm, "A", "fp8", ScaleKind::channel, false, fp8 + ".json"},
           {&kSglang, "A", "fp8", ScaleKind::block, true, fp8 + ",block_shape=[128, 128]_down.json"},
           {&kSglang, "A", "fp8", ScaleKind::channel, true, fp8 + ",per_channel_quant=True_down.json"},
           {&kSglang, "A", "fp8", ScaleKind::tensor, false, fp8 + ".json"},
           {&kVllm, "A", "int8", ScaleKind::channel, false, "A,dtype=int8_w8a16.json"},
           {&kSglang, "A", "int8", ScaleKind::channel, false, "A,dtype=int8_w8a16.json"},
           {&kVllm, "A", "int8-w8a8", ScaleKind::channel, false, "name=A.json"},
           {&kSglang, "A", "int8-w8a8", ScaleKind::channel, false, "A,dtype=int8_w8a8,per_channel_quant=True.json"},
           {&kVllm, "A", "uint4", ScaleKind::group32, false, "N=64,device_name=" + int4 + ".json"},
           {&kSglang, "A", "int4", ScaleKind::group128, false, "N=32,device_name=" + int4 + ".json"}})
    EXPECT_TRUE(
        serving_file_name(*one.server, 8, 64, std::string(one.device), format_of(one.dtype, one.scales), one.down)
            .ends_with(one.name))
        << one.server->title << ": " << one.name;
}

TEST(ServingName, AFormatWithoutFilesIsRefused) {
  const auto fault = error_of([] { serving_file_name(kVllm, 8, 64, "A", format_of("fp32"), false); });
  EXPECT_EQ(fault.what, "vLLM's kernel has no fp32: it looks up no file for it");
  EXPECT_EQ(fault.hint, "it has bf16, fp16, fp8, int8, int8-w8a8, int4, uint4");
}

// vLLM multiplies up to six rows an expert with another kernel, which takes the blocks of a row.
TEST(ServingDefault, OfGroupsLeavesBlocksToVllmsOtherKernel) {
  const ServingFormat format = format_of("int4", ScaleKind::group128);
  const auto row = [&](int64_t tokens, int64_t experts) { return default_row(kVllm, tokens, experts, format); };
  EXPECT_TRUE(runs_other_kernel(kVllm, 96, 128, format) && !runs_other_kernel(kVllm, 97, 128, format));
  EXPECT_FALSE(runs_other_kernel(kSglang, 1, 128, format));
  for (const auto& [tokens, block_m] : {std::pair{1, 1}, {3, 4}, {16, 16}, {96, 16}}) {
    EXPECT_EQ(row(tokens, 128).block_m, block_m);
    EXPECT_EQ(row(tokens, 128).block_n, 0);
  }
  for (const auto& [tokens, block_m] : {std::pair{20, 16}, {21, 32}, {40, 32}, {41, 64}})
    EXPECT_EQ(row(tokens, 8).block_m, block_m);
  EXPECT_EQ(row(41, 8).block_n * 1000 + row(41, 8).block_k, 64032);
  const std::string text = serving_text({{1, row(1, 128)}, {128, row(128, 128)}}, true);
  const sample::Folder folder;
  write_atomic(folder / "file.json", text);
  EXPECT_EQ(read_serving(folder / "file.json"), (ServingRows{{1, row(1, 128)}, {128, row(128, 128)}}));
  EXPECT_TRUE(holds(text, R"("1": {
        "BLOCK_SIZE_M": 1,
        "GROUP_SIZE_M": 1,
        "SPLIT_K": 1
    },)"))
      << text;
}

TEST(ServingName, ADeviceNameThatLeavesTheFolderIsRefused) {
  EXPECT_EQ(error_of([] { serving_file_name(kSglang, 8, 64, "../../etc/passwd", {}, false); }).what,
            "the device name '../../etc/passwd' cannot be part of a file name");
  for (const char* device : {"", "a\x01", "a\u202eb", "a`b"})
    EXPECT_EQ(error_of([&] { serving_file_name(kVllm, 8, 64, device, {}, false); }).exit, Exit::request);
}

// Other defaults: lookup_test.cpp compares all of them with the servers' rules, written anew.
TEST(ServingDefault, OfFp8FollowsItsOwnSteps) {
  const auto row = [](const Server& server, ScaleKind scales, int64_t tokens) {
    const ServingRow one = default_row(server, tokens, 8, format_of("fp8", scales));
    return std::vector<int64_t>{one.block_m, one.block_n, one.block_k, one.group_m, one.warps, one.stages};
  };
  using Numbers = std::vector<int64_t>;
  EXPECT_EQ(row(kVllm, ScaleKind::block, 4), (Numbers{16, 64, 128, 1, 4, 4}));
  EXPECT_EQ(row(kVllm, ScaleKind::block, 8), (Numbers{16, 64, 128, 1, 4, 3}));
  EXPECT_EQ(row(kVllm, ScaleKind::block, 16), (Numbers{16, 128, 128, 1, 4, 3}));
  EXPECT_EQ(row(kVllm, ScaleKind::block, 64), (Numbers{16, 128, 128, 32, 4, 3}));
  EXPECT_EQ(row(kVllm, ScaleKind::block, 65), (Numbers{64, 128, 128, 32, 4, 3}));
  EXPECT_EQ(row(kVllm, ScaleKind::tensor, 96), (Numbers{32, 128, 128, 1, 4, 3}));
  EXPECT_EQ(row(kSglang, ScaleKind::block, 1), (Numbers{64, 128, 128, 32, 4, 3}));
  EXPECT_EQ(row(kSglang, ScaleKind::channel, 8), (Numbers{64, 128, 128, 1, 4, 4}));
  EXPECT_EQ(row(kSglang, ScaleKind::tensor, 9), (Numbers{128, 256, 128, 32, 8, 4}));
}

ServingRow good_row() {
  return {.block_m = 64, .block_n = 128, .block_k = 64, .group_m = 1, .warps = 4, .stages = 3, .use_tma = {}};
}

TEST(ServingText, IsIndentedByFourWithANewlineAtTheEnd) {
  EXPECT_EQ(serving_text({{16, good_row()}}), R"({
    "16": {
        "BLOCK_SIZE_M": 64,
        "BLOCK_SIZE_N": 128,
        "BLOCK_SIZE_K": 64,
        "GROUP_SIZE_M": 1,
        "num_warps": 4,
        "num_stages": 3
    }
}
)");
}

TEST(ServingText, UseTmaIsKept) {
  ServingRow row = good_row();
  row.use_tma = false;
  const std::string text = serving_text({{16, row}});
  EXPECT_TRUE(holds(text, "\"USE_TMA\": false\n"));
  EXPECT_EQ(rows_of(text)[0].second, row);
}

}  // namespace
}  // namespace moetune
