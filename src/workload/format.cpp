// The rows of the table of formats, and their look-up by words.
#include "workload/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "base/group.h"

namespace moetune {
namespace {

// What the rows of a dtype share. A row is one of each: a kind of scales, a dtype of Y, and where sums may be fast,
// whether they are.
struct Family {
  std::string_view dtype;
  Dtype w;                 // in memory
  bool quantises_x;        // X as W; else X has the dtype of Y
  std::vector<ScaleKind> scales = {};  // the default first; none: not quantised, and Y has the dtype of X
  bool zero_points = false;
};

const std::vector<Family>& families() {
  using enum ScaleKind;
  static const std::vector<Family> all = {
      {"bf16", Dtype::bf16, false},
      {"fp16", Dtype::fp16, false},
      {"fp32", Dtype::fp32, false},
      {"fp8", Dtype::fp8, true, {block, channel, tensor}},
      {"int8", Dtype::int8, false, {channel}},
      {"int8-w8a8", Dtype::int8, true, {channel}},
      {"int4", Dtype::int4, false, {group128, group32, group64}},
      {"uint4", Dtype::uint4, false, {group128, group32, group64}, true},
  };
  return all;
}

const Family& family_of(std::string_view dtype) {
  return families()[place_of_word("dtype", dtype, format_dtypes())];
}

// Blocks are 1x128 of X and 128x128 of W; scales of groups along k have the dtype of Y, others are fp32.
Scales scales_of_operand(ScaleKind kind, bool weights, Dtype result) {
  if (const int64_t columns = group_columns(kind); columns > 0)
    return {.kind = ScaleKind::block, .rows = 1, .columns = columns, .dtype = result};
  return kind == ScaleKind::block ? block_scales(weights ? 128 : 1, 128) : Scales{.kind = kind};
}

std::string word_of(const Family& family, ScaleKind scales, Dtype result, bool fast) {
  return fmt::format("{}{}{}{}", family.dtype, family.scales.size() > 1 ? fmt::format("-{}", name(scales)) : "",
                     result == Dtype::bf16 ? "" : fmt::format("-{}", name(result)), fast ? "-fast" : "");
}

std::vector<Format> make_formats() {
  static std::deque<std::string> words;
  std::vector<Format> rows;
  for (const Family& family : families()) {
    if (family.scales.empty()) {
      const OperandType plain = plain_type(family.w);
      rows.push_back({.word = family.dtype, .dtype = family.dtype, .x = plain, .w = plain, .y = plain});
      continue;
    }
    const bool fp8 = family.w == Dtype::fp8;
    for (const ScaleKind kind : family.scales)
      for (const Dtype result : {Dtype::bf16, Dtype::fp16, Dtype::fp8})
        for (const bool fast : {false, true}) {
          const bool blocks = kind == ScaleKind::block;
          if ((fast && (!fp8 || blocks)) || (result == Dtype::fp8 && !(fp8 && blocks))) continue;
          const Dtype stage = family.quantises_x ? family.w : result;
          Format row{.word = words.emplace_back(word_of(family, kind, result, fast)),
                     .dtype = family.dtype,
                     .scales = kind,
                     .x = plain_type(stage),
                     .w = {.dtype = family.w,
                           .stage = stage,
                           .scales = scales_of_operand(kind, true, result),
                           .zero_points = family.zero_points},
                     .y = plain_type(result),
                     .sums = !fp8 ? Sums::fp32 : fast ? Sums::fast : Sums::promoted};
          if (family.quantises_x) row.x.scales = scales_of_operand(kind, false, result);
          if (result == Dtype::fp8) row.y.scales = block_scales(1, 128);
          rows.push_back(row);
        }
  }
  return rows;
}

// Those that have a word, the default first.
constexpr ScaleKind kScaleKinds[] = {ScaleKind::block,   ScaleKind::channel, ScaleKind::tensor,
                                     ScaleKind::group32, ScaleKind::group64, ScaleKind::group128};

}  // namespace

std::string_view name(ScaleKind kind) {
  constexpr std::string_view kNames[] = {"none", "tensor", "channel", "block", "group32", "group64", "group128"};
  return kNames[static_cast<size_t>(kind)];
}

ScaleKind parse_scales(std::string_view text) {
  return kScaleKinds[place_of_word("kind of scales", text, scale_names())];
}

std::vector<std::string> scale_names() {
  return mapped<std::string>(kScaleKinds, [](ScaleKind kind) { return name(kind); });
}

int64_t group_columns(ScaleKind kind) {
  return kind == ScaleKind::group32 ? 32 : kind == ScaleKind::group64 ? 64 : kind == ScaleKind::group128 ? 128 : 0;
}

std::span<const Format> formats() {
  static const std::vector<Format> rows = make_formats();
  return rows;
}

const Format& format_named(std::string_view word) {
  return formats()[place_of_word("format", word, mapped<std::string>(formats(), &Format::word))];
}

std::vector<std::string> format_dtypes() { return mapped<std::string>(families(), &Family::dtype); }

std::vector<ScaleKind> scales_of(std::string_view dtype) { return family_of(dtype).scales; }

const Format& find_format(std::string_view dtype, std::optional<ScaleKind> scales, Dtype result, bool fast_sums) {
  const Family& family = family_of(dtype);
  const bool fp8 = family.w == Dtype::fp8;
  if (family.scales.empty()) {
    if (scales.value_or(ScaleKind::none) != ScaleKind::none || (result != Dtype::bf16 && result != family.w) || fast_sums)
      throw request_error(fmt::format("{} has no scales, no other Y and no fast sums", dtype),
                          "these belong to fp8, and to int8 and 4 bits without fast sums");
    return format_named(dtype);
  }
  const ScaleKind kind = scales.value_or(family.scales.front());
  if (!contains(family.scales, kind))
    throw request_error(
        kind == ScaleKind::none ? fmt::format("{} needs scales", dtype)
                                : fmt::format("{} has no scales of {}", dtype, name(kind)),
        fmt::format("use {}", fp8                           ? "block, channel or tensor"
                              : family.scales.size() > 1 ? "group32, group64 or group128"
                                                         : "channel"));
  if (fast_sums && !fp8) throw request_error(fmt::format("{} has no fast sums", dtype), "these belong to fp8");
  if (fast_sums && kind == ScaleKind::block)
    throw request_error("fp8 with scales of blocks has no fast sums",
                        "a block ends every 128 of k; use scales of channels or tensors");
  for (const Format& row : formats())
    if (row.dtype == dtype && row.scales == kind && row.y.dtype == result && has_fast_sums(row) == fast_sums) return row;
  throw request_error(fmt::format("Y of {} cannot be {}", dtype, name(result)),
                      result == Dtype::fp8 ? "use bf16 or fp16; fp8 belongs to fp8 with scales of blocks"
                                           : "use bf16 or fp16");
}

}  // namespace moetune
