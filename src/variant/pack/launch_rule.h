// How a kernel is launched on operands of any number of rows, as expressions over their sizes: manifests print them,
// the cuda backend evaluates them. Not what a candidate is (variant.h).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/formula.h"
#include "runtime/launch.h"
#include "variant/variant.h"
#include "workload/product/product.h"

namespace moetune {

/// A formula over named sizes (runtime/formula.h) that code puts together.
class Expression {
 public:
  Expression(int64_t constant);                                         // NOLINT: numbers are expressions
  Expression(const char* name) : Expression(std::string_view(name)) {}  // NOLINT: so are names of sizes
  Expression(std::string_view name);                                    // NOLINT
  /// Throws std::invalid_argument for a size that `sizes` lacks.
  int64_t value(const Sizes& sizes) const;
  const std::string& text() const { return text_; }

  friend Expression operator+(const Expression& a, const Expression& b) { return {'+', a, b}; }
  friend Expression operator-(const Expression& a, const Expression& b) { return {'-', a, b}; }
  friend Expression operator*(const Expression& a, const Expression& b) { return {'*', a, b}; }
  friend Expression operator/(const Expression& a, const Expression& b) { return {'/', a, b}; }
  friend Expression min(const Expression& a, const Expression& b) { return {"min", a, b}; }
  friend Expression max(const Expression& a, const Expression& b) { return {"max", a, b}; }
  friend Expression ceil_div(const Expression& a, const Expression& b) { return {"ceil_div", a, b}; }

 private:
  Expression(std::string_view function, const Expression& a, const Expression& b);
  Expression(char operation, const Expression& a, const Expression& b);

  std::string text_;
  char operation_ = 0;  // the last one outside of parentheses; 0: none
};

/// The names that expressions use:
///   m, n, k         extents of the product, 0 for the ragged one; Y may have fewer columns than n
///   experts, top_k  of this rank, and of a token
///   rows            rows of all experts, at most; slots = tokens * top_k
///   x_rows, w_rows, y_rows  rows in memory of the operands of kernels/args.h
///   x_scale_row, x_scale_step, w_scale_expert, w_scale_row, w_scale_step  distances of its scales, in floats
/// and, where blocks are counted, `held`, the blocks that the device can run at once, and `processors`, its SMs.
Sizes sizes_of(const Product& product);

/// A matrix that a tensor map describes: MapShape, of expressions.
struct MapRule {
  std::string field;    // of Args
  std::string pointer;  // field of Args, or buffer
  Dtype dtype = Dtype::bf16;
  std::vector<Expression> sizes = {}, strides = {};
  int box_columns = 0, box_rows = 0;
  int l2_promotion = 0;
};
MapShape evaluate(const MapRule& rule, const Sizes& sizes);

/// Device memory that belongs to one launch at a time, beside its operands.
struct BufferRule {
  std::string name;     // field of Args
  Expression bytes;     // `blocks` is the grid
  bool zeroed = false;  // zeros before the first launch; every launch leaves zeros
};

struct LaunchRule {
  Expression grid;           // blocks
  bool cooperative = false;  // blocks wait for one another: all of them must run at once
  Follows follows = Follows::none;
  std::vector<MapRule> maps;
  std::vector<BufferRule> buffers;
};

/// For the product that the kernel multiplies: before_last_pass.
LaunchRule launch_rule(const LaunchPlan& plan, const Product& product);

/// Of a row's product with X, where the kernel makes gradients of gates.
Expression count_of_parts(const LaunchPlan& plan);

/// A scalar of Args, or a pointer in it.
struct ArgsField {
  std::string_view name;
  size_t offset = 0;
  enum class Kind { pointer, int32, int64 } kind = Kind::pointer;
};
/// All but tensor maps, whose offset is map_offset.
const std::vector<ArgsField>& args_fields();
size_t map_offset(std::string_view field);

/// "dy" of dY: the name by which callers pass a matrix.
std::string operand_name(LayerMatrix matrix);

/// Rows in memory of an operand, from tokens, slots, rows and the extents; and its columns.
Expression rows_expression(const Product& product, const Operand& operand);
Expression columns_expression(const Product& product, const Operand& operand);

/// The scales of an operand as callers pass them, in fp32: "x_scales" or "w_scales", their sides, and the distances
/// along each side, which are fields of Args. One scale of all X has no distance.
struct ScalesRule {
  std::string name;
  std::string_view dtype;
  std::vector<Expression> shape = {};
  std::vector<std::string> strides = {};
};
ScalesRule scales_rule(const Product& product, const Operand& operand);

}  // namespace moetune
