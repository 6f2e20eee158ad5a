// Number formats of layers: one table of rows, which everything that asks about a format reads.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workload/dtype.h"

namespace moetune {

/// What one scale of an operand covers.
enum class ScaleKind {
  none,
  tensor,   // a matrix: of one expert, or the ragged one
  channel,  // a row of memory
  block,    // rows x columns
  group32,  // so many columns of a row
  group64,
  group128,
};

std::string_view name(ScaleKind kind);          // as the enumerator
ScaleKind parse_scales(std::string_view text);  // all but none; Exit::request with the nearest
std::vector<std::string> scale_names();         // those that parse_scales takes, the default first

/// Columns that a scale of groups covers; 0 for other kinds.
int64_t group_columns(ScaleKind kind);

/// Scales of an operand: the value of an element is element * scale. Blocks of an operand with one matrix an expert
/// restart with each expert; those of a ragged one are counted over its rows in memory. Groups along k are blocks of
/// one row: they scale W before it is rounded to the stage's dtype, other scales multiply sums. D has none, or as a
/// quantised result those of 1x128, which are a result too.
struct Scales {
  ScaleKind kind = ScaleKind::none;
  int64_t rows = 0, columns = 0;  // of a block
  Dtype dtype = Dtype::fp32;
  bool operator==(const Scales&) const = default;
};
inline Scales block_scales(int64_t rows, int64_t columns) { return {ScaleKind::block, rows, columns}; }

/// One operand's elements. Kernels multiply elements of the stage's dtype: a transform makes these from elements in
/// memory, unless both dtypes are the same. Bytes in memory and bytes in a stage are therefore two numbers.
struct OperandType {
  Dtype dtype = Dtype::bf16;  // in memory
  Dtype stage = Dtype::bf16;  // as the multiplier reads them
  Scales scales = {};
  bool zero_points = false;  // an integer for each scale, which is subtracted from its elements
  // Whether elements, scales and zero points lie together in the order in which registers take them
  // (kernels/reordered.h), as a pass ahead of time leaves them. Else each lies in rows.
  bool reordered = false;
  bool operator==(const OperandType&) const = default;
};

inline bool has_scales(const OperandType& type) { return type.scales.kind != ScaleKind::none; }

/// Elements that are multiplied as they lie in memory, without scales.
inline OperandType plain_type(Dtype dtype) { return {.dtype = dtype, .stage = dtype}; }

/// How products are added along k.
enum class Sums {
  fp32,      // in fp32, as tensor cores do for bf16 and fp16
  promoted,  // of fp8: sums of 128 columns in the tensor core's registers, then in fp32
  fast,      // of fp8: in the tensor core's registers along all of k, rounded more coarsely than fp32
};

/// How a checkpoint's W lies: in rows, or as registers take it after a pass ahead of time (kernels/reordered.h).
enum class WeightOrder { as_is, reordered };
std::string_view name(WeightOrder order);               // "as-is", "reordered"
WeightOrder parse_weight_order(std::string_view text);  // Exit::request with the nearest

/// A row of the table: the operands of a layer's products. Y's type is that of every result and gradient; X of a format
/// that quantises W alone has it too.
struct Format {
  std::string_view word;   // in tables, ids and exports: "fp8-channel-fp16-fast"
  std::string_view dtype;  // what people type for --dtype: "fp8"
  ScaleKind scales = ScaleKind::none;
  OperandType x, w, y;
  Sums sums = Sums::fp32;
  bool operator==(const Format& other) const { return word == other.word; }
};

/// All rows, bf16 first.
std::span<const Format> formats();
/// The row of a word; Exit::request with the nearest.
const Format& format_named(std::string_view word);
/// The row of what people type: a dtype, its scales (its first kind, where nothing is said), the dtype of Y, whether
/// sums are fast, and whether W is reordered. Exit::request with a sentence on what the dtype has where there is no
/// such row.
const Format& find_format(std::string_view dtype, std::optional<ScaleKind> scales = {}, Dtype result = Dtype::bf16,
                          bool fast_sums = false, bool reordered = false);

/// The words of --dtype, the default first.
std::vector<std::string> format_dtypes();
/// Whether a dtype has rows with W reordered: those of 4 bits.
bool may_be_reordered(std::string_view dtype);
/// The kinds of scales that rows of a dtype have, the default first. Exit::request with the nearest dtype.
std::vector<ScaleKind> scales_of(std::string_view dtype);

/// Whether W is quantised, with scales.
inline bool is_quantised(const Format& format) { return has_scales(format.w); }
/// Whether W is quantised and X is not.
inline bool is_weights_only(const Format& format) { return has_scales(format.w) && !has_scales(format.x); }
/// Whether tensor cores multiply elements of fp8.
inline bool multiplies_fp8(const Format& format) { return format.x.stage == Dtype::fp8; }
inline bool has_fast_sums(const Format& format) { return format.sums == Sums::fast; }

}  // namespace moetune
