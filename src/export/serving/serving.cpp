// vLLM's and SGLang's configuration files, by the rules of the programs that read them.
#include "export/serving/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/error.h"
#include "base/json.h"
#include "base/text/units.h"

namespace moetune {
namespace {

// Python's int(text): white space around it, a sign, single underscores between digits; nothing else.
std::optional<int64_t> python_int(std::string_view text) {
  const auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  int64_t value = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && text[i - 1] != '_';
    if (text[i] == '_' && between) continue;
    if (text[i] < '0' || text[i] > '9' || value > INT64_MAX / 10 - 1) return std::nullopt;
    value = 10 * value + (text[i] - '0');
  }
  if (text.empty()) return std::nullopt;
  return negative ? -value : value;
}

ServingRow row_from_json(const JsonAt& json) {
  ServingRow row{.block_m = json["BLOCK_SIZE_M"].integer(1),
                 .block_n = json["BLOCK_SIZE_N"].integer(1),
                 .block_k = json["BLOCK_SIZE_K"].integer(1),
                 .group_m = json["GROUP_SIZE_M"].integer(1),
                 .use_tma = {}};
  if (json.has("num_warps")) row.warps = json["num_warps"].integer(1);
  if (json.has("num_stages")) row.stages = json["num_stages"].integer(1);
  if (json.has("USE_TMA")) row.use_tma = json["USE_TMA"].boolean();
  return row;
}

// SGLang lacks vLLM's rule for the H200 family.
std::string device_part(Server server, const std::string& device) {
  std::string part = device;
  std::replace(part.begin(), part.end(), ' ', '_');
  if (part.empty() || part.find('/') != std::string::npos || part.find('\0') != std::string::npos)
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

ServingRows load_serving(Server server, std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  const JsonAt root(json, where);
  if (!json.is_object()) root.fail("expected an object: token count -> configuration");
  ServingRows rows;
  for (const auto& item : json.items()) {
    if (server == Server::vllm && item.key() == "triton_version") continue;
    const auto tokens = python_int(item.key());
    if (!tokens) root.fail(fmt::format("{} takes the key '{}' for a token count", name(server), item.key()));
    const ServingRow row = row_from_json(root[item.key()]);
    const auto known = std::find_if(rows.begin(), rows.end(), [&](const auto& old) { return old.first == *tokens; });
    if (known != rows.end())
      known->second = row;
    else
      rows.emplace_back(*tokens, row);
  }
  if (rows.empty()) root.fail("it has no configuration");
  return rows;
}

const ServingRow& row_for(const ServingRows& rows, int64_t tokens) {
  const auto distance = [&](const auto& row) { return std::abs(row.first - tokens); };
  return std::min_element(rows.begin(), rows.end(),
                          [&](const auto& a, const auto& b) { return distance(a) < distance(b); })
      ->second;
}

}  // namespace moetune
