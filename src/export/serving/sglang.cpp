// SGLang: get_config_file_name, get_moe_configs and get_default_config of its fused_moe_triton_config.py.
#include <algorithm>

#include "export/serving/server.h"

namespace moetune {
namespace {

std::string sglang_device(std::string device) {
  std::ranges::replace(device, ' ', '_');
  return device;
}

ServingRow sglang_default(int64_t tokens, int64_t experts, const ServingFormat& format) {
  const bool few = tokens <= experts;
  if (format.blocks()) return {.block_m = 64, .block_n = 128, .block_k = 128, .group_m = 32};
  if (format.element == "fp8")
    return few ? ServingRow{.block_m = 64, .block_n = 128, .block_k = 128, .stages = 4}
               : ServingRow{.block_m = 128, .block_n = 256, .block_k = 128, .group_m = 32, .warps = 8, .stages = 4};
  return few ? ServingRow{.block_m = 16, .block_n = 32, .block_k = 64}
             : ServingRow{.block_m = 64, .block_n = 64, .block_k = 32, .group_m = 8};
}

// The newest layout first. In the first the kernel lies elsewhere: sglang/kernels/ops/moe.
constexpr std::string_view kSglangBundled[] = {"srt/layers/moe/moe_runner/triton_utils/configs",
                                               "srt/layers/moe/fused_moe_triton/configs"};
constexpr FormatName kSglangFormats[] = {{"bf16", ""},
                                         {"fp16", ""},
                                         {"fp8", "fp8_w8a8"},
                                         {"int8", "int8_w8a16"},
                                         {"int8-w8a8", "int8_w8a8"},
                                         {"int4", "int4_w4a16"},
                                         {"uint4", "int4_w4a16"}};
constexpr int64_t kSglangDepths[] = {64, 128};

}  // namespace

constinit const Server kSglang = {
    .word = "sglang",
    .title = "SGLang",
    .description =
        "SGLang's fused MoE configurations, with a second file for the down projection; untuned counts keep "
        "its default",
    .release = "0.5.23",
    .triton = "3.8.0",
    .variable = "SGLANG_MOE_CONFIG_DIR",
    .variable_hides_bundled = true,
    .triton_folders = true,
    .bundled = kSglangBundled,
    .command = "python3 -m sglang.launch_server",
    .groups_arguments = "--quantization moe_wna16",
    .formats = kSglangFormats,
    .block_shape = ",block_shape=[128, 128]",
    .names_channels = true,
    .counts_bytes = true,
    .down_files = true,
    .device_part = sglang_device,
    .default_row = sglang_default,
    .fuses_shared_experts = true,
    .fp8_depths = kSglangDepths,
};

}  // namespace moetune
