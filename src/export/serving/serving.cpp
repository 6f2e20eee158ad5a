// vLLM's and SGLang's configuration files, by the rules of the programs that read them.
#include "export/serving/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/json.h"
#include "base/text/units.h"

namespace moetune {
namespace {

// SGLang lacks vLLM's rule for the H200 family.
std::string device_part(Server server, const std::string& device) {
  const auto is_safe = [](unsigned char c) {
    return std::isalnum(c) || std::string_view("-_.+()").find(static_cast<char>(c)) != std::string_view::npos;
  };
  std::string part = device;
  std::replace(part.begin(), part.end(), ' ', '_');
  if (part.empty() || !std::ranges::all_of(part, is_safe))
    throw request_error(fmt::format("the device name '{}' cannot be part of a file name", device));
  const std::vector<std::string> words = split(part, '_');
  const bool h200 = std::find(words.begin(), words.end(), "H200") != words.end();
  return server == Server::vllm && h200 ? "NVIDIA_H200" : part;
}

}  // namespace

std::string_view name(Server server) { return server == Server::vllm ? "vLLM" : "SGLang"; }

const std::vector<int64_t>& serving_token_counts() {
  static const std::vector<int64_t> counts = {1,  2,   4,   8,   16,   24,   32,   48,   64,
                                              96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096};
  return counts;
}

// get_default_config of either program, for operands that aren't quantised.
ServingRow default_row(Server server, int64_t tokens, int64_t experts) {
  if (server == Server::sglang)
    return tokens <= experts ? ServingRow{.block_m = 16, .block_n = 32, .block_k = 64, .group_m = 1, .use_tma = {}}
                             : ServingRow{.block_m = 64, .block_n = 64, .block_k = 32, .group_m = 8, .use_tma = {}};
  return {.block_m = tokens <= 32    ? 16
                     : tokens <= 96  ? 32
                     : tokens <= 512 ? 64
                                     : 128,
          .block_n = tokens <= 64 ? 64 : 128,
          .block_k = tokens <= 64 ? 128 : 64,
          .group_m = tokens / std::max<int64_t>(experts, 1) > 128 ? 16 : 1,
          .warps = tokens <= 128 ? 4 : 8,
          .stages = tokens <= 32 ? 4 : 3,
          .use_tma = {}};
}

std::string serving_file_name(Server server, int64_t experts, int64_t intermediate, const std::string& device,
                              Dtype dtype, bool down) {
  return fmt::format("E={},N={},device_name={}{}{}.json", experts, intermediate, device_part(server, device),
                     dtype == Dtype::fp32 ? ",dtype=float32" : "", down ? "_down" : "");
}

std::string serving_text(const ServingRows& rows) {
  Json json = Json::object();
  for (const auto& [tokens, row] : rows) {
    Json& item = json[std::to_string(tokens)];
    item = {{"BLOCK_SIZE_M", row.block_m}, {"BLOCK_SIZE_N", row.block_n}, {"BLOCK_SIZE_K", row.block_k},
            {"GROUP_SIZE_M", row.group_m}, {"num_warps", row.warps},      {"num_stages", row.stages}};
    if (row.use_tma) item["USE_TMA"] = *row.use_tma;
  }
  return json.dump(4) + "\n";
}

}  // namespace moetune
