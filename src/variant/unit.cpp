// The text of a kernel unit.
#include "variant/unit.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/args.h"
#include "kernels/tiles.h"
#include "workload/product.h"

namespace moetune {

namespace {

// An initialiser "{.a = 1, .b = 2}" in lines of at most `width` characters.
std::string in_lines(const std::string& initialiser, size_t width, std::string_view indent) {
  std::string result, line;
  for (size_t begin = 0; begin < initialiser.size();) {
    const size_t end = std::min(initialiser.find(", ", begin) + 2, initialiser.size());
    const std::string item = initialiser.substr(begin, end < begin + 2 ? std::string::npos : end - begin);
    if (!line.empty() && line.size() + item.size() > width) {
      result += line.substr(0, line.find_last_not_of(' ') + 1) + "\n" + std::string(indent);
      line.clear();
    }
    line += item;
    begin += item.size();
  }
  return result + line;
}

// An operand's type as kernels/operand_type.cuh has it. A new policy gets its name here.
std::string operand_type(const OperandType& type, char which) {
  if (type.stage != type.dtype)
    throw Error(Exit::bug, fmt::format("kernels have no policy for this operand of {}", name(type.dtype)));
  const std::string_view kind = type.scales.kind == ScaleKind::block ? "Block" : "Row";  // a tensor's repeat
  return fmt::format("moetune::OperandType<moetune::{}, moetune::{}, moetune::SameElement>", name(type.dtype),
                     has_scales(type) ? fmt::format("{}ScalesOf{}", kind, which) : "NoScales");
}

// The hook between stages (kernels/config.cuh); empty where sums stay in the multiplier.
std::string_view after_stage(const Product& product) {
  if (product.sums != Sums::promoted) return "";
  return product.a.type.scales.kind == ScaleKind::block ? "PromoteScaled" : "Promote";
}

// The function of the result, a policy in kernels/result*.cuh.
std::string result_function(const Product& product) {
  constexpr std::string_view kActivations[] = {"", "Silu", "Gelu", "GptOss"};
  const std::string_view element = name(product.d.type.dtype);
  if (product.gate_gradient)
    return fmt::format("GateGradient<moetune::{}, {}, {}, {}>", element, static_cast<int>(product.activation),
                       weights_result(product), product.weight_gradient.has_value());
  if (product.activation != Activation::none)
    return fmt::format("Gated<moetune::{}, moetune::{}>", element,
                       kActivations[static_cast<size_t>(product.activation)]);
  return fmt::format("{}<moetune::{}>",
                     product.weighting == Weighting::result           ? "Weighted"
                     : product.weighting == Weighting::rounded_result ? "RoundedWeighted"
                                                                      : "Identity",
                     element);
}

}  // namespace

std::string print_unit(const UnitText& text, const Shape& shape, const LaunchPlan& plan) {
  std::string unit = fmt::format("#include \"{0}/{0}.cuh\"\n\nstruct Config : moetune::PlainConfig {{\n", text.variant);
  const Product product = before_last_pass(product_of(shape), plan.gate_parts > 0);
  unit += fmt::format("  using X = {};\n", operand_type(product.a.type, 'X'));
  unit += fmt::format("  using W = {};\n", operand_type(product.b.type, 'W'));
  unit += fmt::format("  using Function = moetune::{};\n", result_function(product));
  if (const std::string_view hook = after_stage(product); !hook.empty())
    unit += fmt::format("  using AfterStage = moetune::{};\n", hook);
  unit +=
      fmt::format("  static constexpr moetune::{} knobs = {};\n", text.knobs_type, in_lines(text.knobs, 100, "      "));
  const auto flag = [&](std::string_view what, bool value) {
    unit += fmt::format("  static constexpr bool {} = {};\n", what, value);
  };
  const auto word = [&](std::string_view type, std::string_view what, std::string_view value) {
    unit += fmt::format("  static constexpr moetune::{0} {1} = moetune::{0}::{2};\n", type, what, value);
  };
  word("RowOrder", "x_rows", name(product.a.order));
  word("RowOrder", "w_rows", name(product.b.order));
  word("RowOrder", "y_rows", name(product.d.order));
  flag("x_across", !is_k_major(product.a));
  flag("w_across", !is_k_major(product.b));
  flag("weighs_x", product.weighting == Weighting::a);
  flag("accumulates", product.accumulates);
  if (product.interleaved) flag("interleaved", true);
  if (product.bias) flag("adds_bias", true);
  if (product.h) flag("stores_h", true);
  for (const auto& [what, value] : text.constants)
    unit += fmt::format("  static constexpr int {} = {};\n", what, value);
  const std::string cluster = plan.cluster > 1 ? fmt::format(" __cluster_dims__({}, 1, 1)", plan.cluster) : "";
  unit += fmt::format(
      "}};\n\nextern \"C\" __global__ void{} __launch_bounds__({}, {})\n"
      "moetune_kernel(const __grid_constant__ moetune::Args args) {{ {}; }}\n",
      cluster, plan.threads, plan.min_blocks_per_sm, text.call);
  return unit;
}

int64_t alignment(int64_t bytes, int64_t most) { return std::min(bytes & -bytes, most); }

std::optional<std::string> unsupported(std::string_view variant, const Shape& shape, const std::vector<Dtype>& dtypes,
                                       const std::vector<Op>& ops) {
  if (!contains(ops, shape.op)) return fmt::format("{} does not support {}", variant, name(shape.op));
  if (!contains(dtypes, shape.layer.format.w.dtype))
    return fmt::format("{} does not support {}{}", variant, shape.layer.format.dtype,
                       is_quantised(shape.layer.format) ? ": packs of other programs' kernels may" : "");
  if (joins_gates(shape) && variant != "cpu" && shape.layer.n % 16 != 0)
    return fmt::format("{} needs n in multiples of 16 for gates: it takes eight and their eight ups by turns", variant);
  return std::nullopt;
}

std::optional<std::string> illegal_gates(int block_n, const Shape& shape) {
  if (!joins_gates(shape) || shape.layer.format.scales != ScaleKind::block) return std::nullopt;
  const int rows = shape.fusion.interleaved ? block_n : block_n / 2;  // of W, in a row
  if (kScaleBlock % rows == 0 && (shape.fusion.interleaved || shape.layer.n / 2 % rows == 0)) return std::nullopt;
  return fmt::format("block_n must be smaller, or a power of two: a tile's {} must lie in one block of scales",
                     shape.fusion.interleaved ? "gates and ups" : "gates, and its ups,");
}

std::optional<std::string> illegal_quantised(int block_n, const Shape& shape) {
  if (!has_scales(shape.layer.format.y) || block_n == 2 * kScaleBlock) return std::nullopt;
  return fmt::format("block_n must be {} for Y in fp8: a tile has the gates and ups of each scale", 2 * kScaleBlock);
}

int64_t tiles_of(int64_t block_m, int64_t block_n, const Problem& problem) {
  const Product product = product_of(problem.shape);
  const auto blocks = [](int64_t size, int64_t block) { return (size + block - 1) / block; };
  int64_t high = 0;
  for (const int64_t rows : problem.routing.m_sizes)
    high += blocks(product.ragged == Axis::m ? rows : product.m, block_m);
  return high * blocks(product.n, block_n);
}

int processors_of(const DeviceInfo& device) {
  const int largest = device.compute_capability == 90 ? 132 : 192;
  return device.processors > 0 ? device.processors : largest;
}

std::optional<std::string> illegal_split(int split, int block_m, int block_n, int fewest, int blocks_per_sm,
                                         const DeviceInfo& device) {
  constexpr int kMaxSplit = 8;
  if (split < fewest || split > kMaxSplit) return fmt::format("split must lie in {} to {}", fewest, kMaxSplit);
  if (split_workspace_bytes(split, block_m, block_n) * blocks_per_sm * processors_of(device) > kMaxWorkspace)
    return "split must be smaller: the sums of pieces need more device memory than a launch may use";
  return std::nullopt;
}

}  // namespace moetune
