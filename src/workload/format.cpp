// The rows of the table of formats, and their look-up by words.
#include "workload/format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "base/group.h"

namespace moetune {
namespace {

// A kind of scales that a dtype may have, with the dtypes of Y beside it, and whether its sums may be fast.
struct FamilyScales {
  ScaleKind kind;
  std::vector<Dtype> results = {Dtype::bf16, Dtype::fp16};
  bool may_be_fast = false;
};

// What the rows of a dtype share. A row is one of each: a kind of scales, a dtype of Y, and whether sums are fast.
struct Family {
  std::string_view dtype;
  Dtype w;                                // in memory
  bool quantises_x;                       // X as W; else X has the dtype of Y
  std::vector<FamilyScales> scales = {};  // the default first; none: not quantised, and Y has the dtype of X
  bool zero_points = false;
  Sums sums = Sums::fp32;                 // unless they are fast
  std::optional<Dtype> scale_dtype = {};  // of groups; without, Y's
};

const std::vector<Family>& families() {
  using enum ScaleKind;
  using enum Dtype;
  static const std::vector<FamilyScales> groups = {{group128}, {group32}, {group64}};
  static const std::vector<Family> all = {
      {"bf16", bf16, false},
      {"fp16", fp16, false},
      {"fp32", fp32, false},
      {.dtype = "fp8",
       .w = fp8,
       .quantises_x = true,
       .scales = {{block, {bf16, fp16, fp8}},
                  {.kind = channel, .may_be_fast = true},
                  {.kind = tensor, .may_be_fast = true}},
       .sums = Sums::promoted},
      {"int8", int8, false, {{channel}}},
      {"int8-w8a8", int8, true, {{channel}}},
      {"int4", int4, false, groups},
      {"uint4", uint4, false, groups, true},
      {.dtype = "mxfp4", .w = e2m1, .quantises_x = false, .scales = {{group32}}, .scale_dtype = e8m0},
  };
  return all;
}

const Family& family_of(std::string_view dtype) { return families()[place_of_word("dtype", dtype, format_dtypes())]; }

// Blocks are 1x128 of X and 128x128 of W; scales of groups along k have the dtype of Y or their own, others are fp32.
Scales scales_of_operand(const Family& family, ScaleKind kind, bool weights, Dtype result) {
  if (const int64_t columns = group_columns(kind); columns > 0)
    return {.kind = ScaleKind::block, .rows = 1, .columns = columns, .dtype = family.scale_dtype.value_or(result)};
  return kind == ScaleKind::block ? block_scales(weights ? 128 : 1, 128) : Scales{.kind = kind};
}

std::string word_of(const Family& family, ScaleKind scales, Dtype result, bool fast, bool reordered) {
  return fmt::format("{}{}{}{}{}", family.dtype, family.scales.size() > 1 ? fmt::format("-{}", name(scales)) : "",
                     result == Dtype::bf16 ? "" : fmt::format("-{}", name(result)), fast ? "-fast" : "",
                     reordered ? "-reordered" : "");
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
    for (const auto& [kind, results, may_be_fast] : family.scales)
      for (const Dtype result : results)
        for (const bool fast : {false, true}) {
          if (fast && !may_be_fast) continue;
          const Dtype stage = family.quantises_x ? family.w : result;
          Format row{.word = words.emplace_back(word_of(family, kind, result, fast, false)),
                     .dtype = family.dtype,
                     .scales = kind,
                     .x = plain_type(stage),
                     .w = {.dtype = family.w,
                           .stage = stage,
                           .scales = scales_of_operand(family, kind, true, result),
                           .zero_points = family.zero_points},
                     .y = plain_type(result),
                     .sums = fast ? Sums::fast : family.sums};
          if (family.quantises_x) row.x.scales = scales_of_operand(family, kind, false, result);
          if (result == Dtype::fp8) row.y.scales = block_scales(1, 128);
          rows.push_back(row);
          if (bits(family.w) != 4) continue;
          row.word = words.emplace_back(word_of(family, kind, result, fast, true)), row.w.reordered = true;
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

std::string_view name(WeightOrder order) { return order == WeightOrder::as_is ? "as-is" : "reordered"; }

WeightOrder parse_weight_order(std::string_view text) {
  return static_cast<WeightOrder>(
      place_of_word("order of weights", text, std::vector<std::string>{"as-is", "reordered"}));
}

std::span<const Format> formats() {
  static const std::vector<Format> rows = make_formats();
  return rows;
}

const Format& format_named(std::string_view word) {
  return formats()[place_of_word("format", word, mapped<std::string>(formats(), &Format::word))];
}

std::vector<std::string> format_dtypes() { return mapped<std::string>(families(), &Family::dtype); }

bool may_be_reordered(std::string_view dtype) { return bits(family_of(dtype).w) == 4; }

std::vector<ScaleKind> scales_of(std::string_view dtype) {
  return mapped<ScaleKind>(family_of(dtype).scales, &FamilyScales::kind);
}

const Format& find_format(std::string_view dtype, std::optional<ScaleKind> scales, Dtype result, bool fast_sums,
                          bool reordered) {
  const Family& family = family_of(dtype);
  if (reordered && !may_be_reordered(dtype))
    throw request_error(fmt::format("W of {} is not reordered", dtype), "its kernels read it as it is");
  if (family.scales.empty()) {
    if (scales.value_or(ScaleKind::none) != ScaleKind::none || (result != Dtype::bf16 && result != family.w) ||
        fast_sums)
      throw request_error(fmt::format("{} has no scales, no other Y and no fast sums", dtype),
                          "these belong to fp8, and to int8 and 4 bits without fast sums");
    return format_named(dtype);
  }
  const ScaleKind kind = scales.value_or(family.scales.front().kind);
  const auto of_kind = std::ranges::find(family.scales, kind, &FamilyScales::kind);
  if (of_kind == family.scales.end()) {
    std::vector<std::string_view> names;
    for (const ScaleKind other : kScaleKinds)
      if (contains(family.scales, other, &FamilyScales::kind)) names.push_back(name(other));
    throw request_error(kind == ScaleKind::none ? fmt::format("{} needs scales", dtype)
                                                : fmt::format("{} has no scales of {}", dtype, name(kind)),
                        fmt::format("use {}", fmt::join(names, " or ")));
  }
  if (fast_sums && family.sums != Sums::promoted)
    throw request_error(fmt::format("{} has no fast sums", dtype), "these belong to fp8");
  if (fast_sums && !of_kind->may_be_fast)
    throw request_error("fp8 with scales of blocks has no fast sums",
                        "a block ends every 128 of k; use scales of channels or tensors");
  for (const Format& row : formats())
    if (row.dtype == dtype && row.scales == kind && row.y.dtype == result && has_fast_sums(row) == fast_sums &&
        row.w.reordered == reordered)
      return row;
  throw request_error(
      fmt::format("Y of {} cannot be {}", dtype, name(result)),
      result == Dtype::fp8 ? "use bf16 or fp16; fp8 belongs to fp8 with scales of blocks" : "use bf16 or fp16");
}

}  // namespace moetune
