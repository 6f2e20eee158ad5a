// vLLM: get_config_file_name, get_moe_configs and get_default_config of its fused_moe.py.
#include <algorithm>
#include <cctype>

#include "base/text/units.h"
#include "export/serving/server.h"

namespace moetune {
namespace {

// A run of white space and '/' is one '_'. The H200 family is one device.
std::string vllm_device(std::string device) {
  const auto separates = [](unsigned char c) { return std::isspace(c) || c == '/'; };
  const auto run = std::ranges::unique(device, [&](char a, char b) { return separates(a) && separates(b); });
  device.erase(run.begin(), run.end());
  std::ranges::replace_if(device, separates, '_');
  return contains(split(device, '_'), "H200") ? "NVIDIA_H200" : device;
}

ServingRow vllm_default(int64_t tokens, int64_t experts, const ServingFormat& format) {
  if (format.groups()) return {.block_m = tokens <= 20 ? 16 : tokens <= 40 ? 32 : 64, .block_n = 64, .block_k = 32};
  if (format.blocks())
    return {.block_m = tokens <= 64 ? 16 : 64,
            .block_n = tokens <= 8 ? 64 : 128,
            .block_k = 128,
            .group_m = tokens <= 16 ? 1 : 32,
            .stages = tokens <= 4 ? 4 : 3};
  return {.block_m = tokens <= 32    ? 16
                     : tokens <= 96  ? 32
                     : tokens <= 512 ? 64
                                     : 128,
          .block_n = tokens <= 64 ? 64 : 128,
          .block_k = tokens <= 64 || format.element == "fp8" ? 128 : 64,
          .group_m = tokens / std::max<int64_t>(experts, 1) > 128 ? 16 : 1,
          .warps = tokens <= 128 ? 4 : 8,
          .stages = tokens <= 32 ? 4 : 3};
}

constexpr std::string_view kVllmBundled[] = {"model_executor/layers/fused_moe/configs"};
constexpr FormatName kVllmFormats[] = {{"bf16", ""},           {"fp16", ""},      {"fp8", "fp8_w8a8"},
                                       {"int8", "int8_w8a16"}, {"int8-w8a8", ""}, {"int4", "int4_w4a16"},
                                       {"uint4", "int4_w4a16"}};
constexpr Padding kVllmPaddings[] = {{"kimi-k3", 192, 256}};
constexpr int64_t kVllmDepths[] = {128};

}  // namespace

constinit const Server kVllm = {
    .word = "vllm",
    .title = "vLLM",
    .description =
        "vLLM's fused MoE configurations (E=...,N=...,device_name=....json), one file a layer; untuned "
        "counts keep its default",
    .release = "0.33.0",
    .triton = "3.8.0",
    .variable = "VLLM_TUNED_CONFIG_FOLDER",
    .bundled = kVllmBundled,
    .command = "vllm serve",
    .groups_arguments = "--quantization moe_wna16",
    .formats = kVllmFormats,
    .block_shape = ",block_shape=[128,128]",
    .device_part = vllm_device,
    .paddings = kVllmPaddings,
    .default_row = vllm_default,
    .rows_of_other_kernel = 6,
    .slot_blocks = true,
    .splits_blocks = true,
    .fp8_depths = kVllmDepths,
};

}  // namespace moetune
