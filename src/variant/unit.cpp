// The text of a kernel unit.
#include "variant/unit.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/args.h"
#include "kernels/tiles.h"
#include "workload/product/passes.h"
#include "workload/product/product_rows.h"
#include "workload/product/scale_places.h"

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

// The members of a problem that differ from their defaults.
std::string initialiser(const KernelProblem& problem) {
  const KernelProblem usual;
  KernelProblem printed;
  std::string result;
  const auto add = [&](std::string_view what, auto KernelProblem::*member) {
    const auto value = problem.*member;
    if (value == usual.*member) return;
    printed.*member = value;
    std::string text;
    if constexpr (std::is_same_v<decltype(value), const RowOrder>)
      text = fmt::format("moetune::RowOrder::{}", name(value));
    else
      text = fmt::format("{}", value);
    result += fmt::format("{}.{} = {}", result.empty() ? "" : ", ", what, text);
  };
  using P = KernelProblem;
  add("x_rows", &P::x_rows), add("w_rows", &P::w_rows), add("y_rows", &P::y_rows);
  add("x_mn_major", &P::x_mn_major), add("w_mn_major", &P::w_mn_major);
  add("x_memory_bits", &P::x_memory_bits), add("x_stage_bits", &P::x_stage_bits);
  add("w_memory_bits", &P::w_memory_bits), add("w_stage_bits", &P::w_stage_bits), add("y_bits", &P::y_bits);
  add("w_block_bytes", &P::w_block_bytes);
  add("x_scale_bytes", &P::x_scale_bytes), add("w_scale_bytes", &P::w_scale_bytes);
  add("scales_at_end", &P::scales_at_end), add("promotes", &P::promotes), add("experts", &P::experts);
  add("columns_per_output", &P::columns_per_output), add("weight_bytes", &P::weight_bytes);
  add("weighs_x", &P::weighs_x), add("weighs_y", &P::weighs_y), add("accumulates", &P::accumulates);
  add("interleaved", &P::interleaved), add("adds_bias", &P::adds_bias), add("stores_h", &P::stores_h);
  add("makes_gates", &P::makes_gates), add("x_load_bytes", &P::x_load_bytes), add("w_load_bytes", &P::w_load_bytes);
  add("store_bytes", &P::store_bytes), add("scale_parts", &P::scale_parts);
  if (printed != problem) throw Error(Exit::bug, "a member of KernelProblem is not printed into the unit");
  return "{" + result + "}";
}

}  // namespace

std::string_view element_name(Dtype dtype) {
  return dtype == Dtype::int4 || dtype == Dtype::uint4 ? "nibbles" : name(dtype);
}

// A new policy gets its name here.
std::string operand_type(const OperandType& type, char which) {
  const std::string_view kind = type.scales.kind == ScaleKind::block ? "Block" : "Row";  // a tensor's repeat
  const bool groups = scales_stage(type), widens = type.stage != type.dtype;
  const std::string_view memory = element_name(type.dtype);
  const std::string scales = groups ? fmt::format("GroupScalesOf{}<{}, moetune::{}, {}>", which, type.scales.columns,
                                                  name(type.scales.dtype), type.zero_points)
                             : has_scales(type) ? fmt::format("{}ScalesOf{}", kind, which)
                                                : "NoScales";
  return fmt::format(
      "moetune::OperandType<{}, moetune::{}, moetune::{}>",
      type.reordered ? fmt::format("moetune::Reordered<moetune::{}>", memory) : fmt::format("moetune::{}", memory),
      scales, widens ? fmt::format("Widen{}<moetune::{}>", groups ? "Scaled" : "", name(type.stage)) : "SameElement");
}

KernelProblem kernel_problem(const Shape& shape, bool makes_gates) {
  const Product p = before_last_pass(product_of(shape), makes_gates);
  const auto bits_of = [](Dtype dtype) { return static_cast<int>(bits(dtype)); };
  return {.x_rows = p.a.order,
          .w_rows = p.b.order,
          .y_rows = p.d.order,
          .x_mn_major = !is_k_major(p.a),
          .w_mn_major = !is_k_major(p.b),
          .x_memory_bits = bits_of(p.a.type.dtype),
          .x_stage_bits = bits_of(p.a.type.stage),
          .w_memory_bits = bits_of(p.b.type.dtype),
          .w_stage_bits = bits_of(p.b.type.stage),
          .w_block_bytes = static_cast<int>(reordered_block_bytes(p.b.type)),
          .y_bits = bits_of(p.d.type.dtype),
          .scales_at_end = has_scales(p.a.type) && p.a.type.scales.kind != ScaleKind::block,
          .promotes = p.sums == Sums::promoted,
          .columns_per_output = static_cast<int>(columns_per_output(p)),
          .weight_bytes = p.weighting == Weighting::result || p.gate_gradient ? 4 : 2,
          .weighs_x = p.weighting == Weighting::a,
          .weighs_y = weights_result(p),
          .accumulates = p.accumulates,
          .interleaved = p.interleaved,
          .adds_bias = p.bias.has_value(),
          .stores_h = p.h.has_value(),
          .makes_gates = p.gate_gradient.has_value()};
}

std::string print_unit(const UnitText& text, const Shape& shape, const LaunchPlan& plan) {
  std::string unit = fmt::format("#include \"{0}/{0}.cuh\"\n\nstruct Config : moetune::PlainConfig {{\n", text.variant);
  const Product product = before_last_pass(product_of(shape), plan.gate_parts > 0);
  unit += fmt::format("  using X = {};\n", operand_type(product.a.type, 'X'));
  unit += fmt::format("  using W = {};\n", operand_type(product.b.type, 'W'));
  unit += fmt::format("  using Function = moetune::{};\n", result_function(product));
  if (const std::string_view hook = after_stage(product); !hook.empty())
    unit += fmt::format("  using AfterStage = moetune::{};\n", hook);
  const auto line = [&](std::string_view type, std::string_view what, const std::string& initialiser) {
    unit += fmt::format("  static constexpr moetune::{} {} = {};\n", type, what,
                        in_lines(initialiser, 100 - what.size() - type.size(), "      "));
  };
  line(text.knobs_type, "knobs", text.knobs);
  line("KernelProblem", "problem", initialiser(text.problem));
  const std::string cluster = plan.cluster > 1 ? fmt::format(" __cluster_dims__({}, 1, 1)", plan.cluster) : "";
  unit += fmt::format(
      "}};\n\nextern \"C\" __global__ void{} __launch_bounds__({}, {})\n"
      "moetune_kernel(const __grid_constant__ moetune::Args args) {{ {}; }}\n",
      cluster, plan.threads, plan.min_blocks_per_sm, text.call);
  return unit;
}

std::string reorder_unit(const OperandType& type) {
  return fmt::format("#include \"reordered.cuh\"\n\nusing WeightType = {};\n\n#include \"service/reorder.cuh\"\n",
                     operand_type(type, 'W'));
}

int64_t alignment(int64_t bytes, int64_t most) { return std::min(bytes & -bytes, most); }

std::optional<std::string> unsupported(std::string_view variant, const Shape& shape, const std::vector<Dtype>& dtypes,
                                       const std::vector<Op>& ops) {
  if (!contains(ops, shape.op)) return fmt::format("{} does not support {}", variant, name(shape.op));
  if (!contains(dtypes, shape.layer.format.w.dtype))
    return fmt::format("{} does not support {}{}", variant, shape.layer.format.dtype,
                       is_quantised(shape.layer.format) ? ": packs of other programs' kernels may" : "");
  if (combines_gates(shape) && variant != "cpu" && shape.layer.n % 16 != 0)
    return fmt::format("{} needs n in multiples of 16 for gates: gate and up rows of W alternate in groups of 8",
                       variant);
  return std::nullopt;
}

std::optional<std::string> illegal_gates(int block_n, const Shape& shape) {
  if (!combines_gates(shape) || shape.layer.format.scales != ScaleKind::block) return std::nullopt;
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
