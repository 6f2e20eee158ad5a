// vLLM's and SGLang's configuration files, by the rules of the programs that read them.
#include "export/serving/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdlib>
#include <limits>
#include <span>

#include "base/error.h"
#include "base/json.h"
#include "base/text/units.h"

namespace moetune {
namespace {

// vLLM: runs of white space and '/' are '_', and the H200 family is one device. SGLang: each space is '_'.
std::string device_part(Server server, const std::string& device) {
  const auto is_safe = [](unsigned char c) {
    return std::isalnum(c) || std::string_view("-_.+()").find(static_cast<char>(c)) != std::string_view::npos;
  };
  std::string part;
  for (const char c : device) {
    const bool space = std::isspace(static_cast<unsigned char>(c));
    if (server == Server::sglang ? c == ' ' : space || c == '/')
      part += server == Server::vllm && space && part.ends_with(' ') ? "" : std::string(1, c == '/' ? '_' : ' ');
    else
      part += c;
  }
  std::ranges::replace(part, ' ', '_');
  if (part.empty() || !std::ranges::all_of(part, is_safe))
    throw request_error(fmt::format("the device name '{}' cannot be part of a file name", device));
  const std::vector<std::string> words = split(part, '_');
  const bool h200 = contains(words, "H200");
  return server == Server::vllm && h200 ? "NVIDIA_H200" : part;
}

// Widths that a server pads: of the names of models that begin so.
struct Padding {
  Server server;
  std::string_view model;
  int64_t width, padded;
};
constexpr Padding kPaddings[] = {{Server::vllm, "kimi-k3", 192, 256}};

bool is_in_every_row(std::string_view knob) { return knob == kBlockM || knob == kGroupM; }

// The row of up to so many tokens; `per_expert`: so many for each expert.
struct DefaultRow {
  int64_t last;
  bool per_expert;
  ServingRow row;
};
constexpr int64_t kRowsOfOtherKernel = 6;  // an expert, at most
constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();
constexpr DefaultRow kSglang16[] = {{1, true, {16, 32, 64, 1, 4, 3, {}}}, {kNoEnd, false, {64, 64, 32, 8, 4, 3, {}}}};
constexpr DefaultRow kSglangBlock[] = {{kNoEnd, false, {64, 128, 128, 32, 4, 3, {}}}};
constexpr DefaultRow kSglangFp8[] = {{1, true, {64, 128, 128, 1, 4, 4, {}}},
                                     {kNoEnd, false, {128, 256, 128, 32, 8, 4, {}}}};
constexpr DefaultRow kVllmGroups[] = {{20, false, {16, 64, 32, 1, 4, 3, {}}},
                                      {40, false, {32, 64, 32, 1, 4, 3, {}}},
                                      {kNoEnd, false, {64, 64, 32, 1, 4, 3, {}}}};
constexpr DefaultRow kVllmBlock[] = {{4, false, {16, 64, 128, 1, 4, 4, {}}},
                                     {8, false, {16, 64, 128, 1, 4, 3, {}}},
                                     {16, false, {16, 128, 128, 1, 4, 3, {}}},
                                     {64, false, {16, 128, 128, 32, 4, 3, {}}},
                                     {kNoEnd, false, {64, 128, 128, 32, 4, 3, {}}}};

// What both servers write into a file's name for a format. vLLM has no name for int8 in X.
struct DtypePart {
  std::string_view dtype, vllm, sglang;
};
constexpr DtypePart kDtypeParts[] = {{"bf16", "", ""},
                                     {"fp16", "", ""},
                                     {"fp32", ",dtype=float32", ",dtype=float32"},
                                     {"fp8", ",dtype=fp8_w8a8", ",dtype=fp8_w8a8"},
                                     {"int8", ",dtype=int8_w8a16", ",dtype=int8_w8a16"},
                                     {"int8-w8a8", "", ",dtype=int8_w8a8"},
                                     {"int4", ",dtype=int4_w4a16", ",dtype=int4_w4a16"},
                                     {"uint4", ",dtype=int4_w4a16", ",dtype=int4_w4a16"}};

std::string_view dtype_part(Server server, const Format& format) {
  const auto found = std::ranges::find(kDtypeParts, format.dtype, &DtypePart::dtype);
  if (found == std::end(kDtypeParts))
    throw request_error(fmt::format("{} has no name for files of {}", name(server), format.dtype));
  return server == Server::vllm ? found->vllm : found->sglang;
}

}  // namespace

ServingFormat serving_format(const Layer& layer) {
  return {layer.format, group_columns(layer.format.scales) > 0 ? layer.top_k : 0};
}

bool runs_other_kernel(Server server, int64_t tokens, int64_t experts, const ServingFormat& format) {
  return server == Server::vllm && has_groups(format) && tokens * format.top_k <= kRowsOfOtherKernel * experts;
}

std::string_view name(Server server) { return server == Server::vllm ? "vLLM" : "SGLang"; }

const std::vector<int64_t>& serving_token_counts() {
  static const std::vector<int64_t> counts = {1,  2,   4,   8,   16,   24,   32,   48,   64,
                                              96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096};
  return counts;
}

const ServingRow& nearest_row(const ServingRows& rows, int64_t tokens) {
  return std::ranges::min_element(rows, {}, [&](const auto& row) { return std::abs(row.first - tokens); })->second;
}

// get_default_config of either program.
ServingRow default_row(Server server, int64_t tokens, int64_t experts, const ServingFormat& format) {
  const bool fp8 = multiplies_fp8(format.type), block = format.type.scales == ScaleKind::block;
  if (runs_other_kernel(server, tokens, experts, format))
    return {.block_m = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(tokens, 16))))};
  if (server == Server::sglang || block || has_groups(format)) {
    std::span<const DefaultRow> rows = kSglang16;
    if (fp8) rows = kSglangFp8;
    if (block) rows = kSglangBlock;
    if (server == Server::vllm) rows = block ? std::span<const DefaultRow>(kVllmBlock) : kVllmGroups;
    return std::ranges::find_if(
               rows, [&](const DefaultRow& one) { return tokens <= one.last * (one.per_expert ? experts : 1); })
        ->row;
  }
  return {.block_m = tokens <= 32    ? 16
                     : tokens <= 96  ? 32
                     : tokens <= 512 ? 64
                                     : 128,
          .block_n = tokens <= 64 ? 64 : 128,
          .block_k = tokens <= 64 || fp8 ? 128 : 64,
          .group_m = tokens / std::max<int64_t>(experts, 1) > 128 ? 16 : 1,
          .warps = tokens <= 128 ? 4 : 8,
          .stages = tokens <= 32 ? 4 : 3};
}

std::string serving_file_name(Server server, int64_t experts, int64_t intermediate, const std::string& device,
                              const ServingFormat& format, bool down) {
  std::string part(dtype_part(server, format.type));
  if (has_groups(format) && server == Server::sglang) intermediate /= 2;  // bytes of a row of W
  if (format.type.scales == ScaleKind::block)
    part += server == Server::vllm ? ",block_shape=[128,128]" : ",block_shape=[128, 128]";
  if (format.type.scales == ScaleKind::channel && !is_weights_only(format.type) && server == Server::sglang)
    part += ",per_channel_quant=True";
  return fmt::format("E={},N={},device_name={}{}{}.json", experts, intermediate, device_part(server, device), part,
                     down ? "_down" : "");
}

int64_t padded_width(Server server, const std::string& model, int64_t intermediate) {
  for (const Padding& one : kPaddings)
    if (one.server == server && model.starts_with(one.model) && one.width == intermediate) return one.padded;
  return intermediate;
}

ServingRows read_serving(const std::filesystem::path& path) {
  const Json json = read_json(path, Dialect::python);
  const JsonAt file(json, path);
  if (!json.is_object()) file.fail("expected an object");
  ServingRows rows;
  for (const auto& [key, value] : json.items()) {
    if (key == "triton_version") continue;
    const JsonAt at = file[key];
    ServingRow row;
    const bool whole = !at.has("SPLIT_K") || at.has(kBlockN);  // else a row that leaves the rest to the server
    for (const auto& [knob, member] : kRowKnobs)
      if (whole || is_in_every_row(knob)) row.*member = at[knob].integer(1, kMaxSide);
    if (at.has("USE_TMA")) row.use_tma = at["USE_TMA"].boolean();
    rows.emplace_back(parse_integer(key, at.where(), 1, kMaxRows), row);
  }
  if (rows.empty()) throw request_error(fmt::format("{}: has no rows", path.string()));
  return rows;
}

ServingRows base_rows(const std::vector<std::filesystem::path>& bases, const std::string& name) {
  for (const std::filesystem::path& base : bases) {
    const auto file = is_folder(base) ? base / name : base;
    if (file.filename() == name && is_there(file)) return read_serving(file);
  }
  return {};
}

ServingRow launched(ServingRow row, const ServingFormat& format) {
  if (format.type.scales == ScaleKind::block) row.block_k = std::min<int64_t>(row.block_k, 128);
  return row;
}

RowPair own_rows(Server server, const ServingRows& base, const ServingRows& down_base, int64_t tokens, int64_t experts,
                 const ServingFormat& format) {
  RowPair pair;
  pair.first = base.empty() ? default_row(server, tokens, experts, format) : nearest_row(base, tokens);
  if (pair.first.block_n == 0 && !runs_other_kernel(server, tokens, experts, format))
    pair.first.block_n = 64, pair.first.block_k = 32;  // what it chooses at a launch
  pair.second = down_base.empty() ? pair.first : nearest_row(down_base, tokens);
  if (down_base.empty()) pair.second.use_tma = false;
  pair.second.block_m = pair.first.block_m;
  if (server == Server::sglang) pair = {launched(pair.first, format), launched(pair.second, format)};
  return pair;
}

std::string serving_text(const ServingRows& rows, bool split_k) {
  Json json = Json::object();
  for (const auto& [tokens, row] : rows) {
    Json& item = json[std::to_string(tokens)];
    for (const auto& [knob, value] : kRowKnobs)
      if (row.block_n != 0 || is_in_every_row(knob)) item[knob] = row.*value;
    if (split_k) item["SPLIT_K"] = 1;
    if (row.use_tma) item["USE_TMA"] = *row.use_tma;
  }
  return json.dump(4) + "\n";
}

}  // namespace moetune
