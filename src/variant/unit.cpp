// The text of a kernel unit.
#include "variant/unit.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetune {

std::string print_unit(const Variant& variant, const Candidate& candidate, const Shape& shape, const LaunchPlan& plan,
                       const std::vector<std::pair<std::string_view, int64_t>>& extra, std::string_view call) {
  std::string unit = fmt::format("#include \"{}.cuh\"\n\nstruct Config {{\n", variant.name);
  unit += fmt::format("  using Element = moetune::{};\n", name(shape.layer.dtype));
  const auto constant = [&](std::string_view what, int64_t value) {
    unit += fmt::format("  static constexpr int {} = {};\n", what, value);
  };
  for (size_t i = 0; i < variant.knobs.size(); ++i)
    if (variant.knobs[i].in_unit) constant(variant.knobs[i].name, candidate.values[i]);
  const auto flag = [&](std::string_view what, bool value) {
    unit += fmt::format("  static constexpr bool {} = {};\n", what, value);
  };
  flag("permute_x", shape.fusion.permute_x);
  flag("permute_y", shape.fusion.permute_y);
  flag("topk_weights", shape.fusion.topk_weights);
  for (const auto& [what, value] : extra) constant(what, value);
  const std::string cluster = plan.cluster > 1 ? fmt::format(" __cluster_dims__({}, 1, 1)", plan.cluster) : "";
  unit += fmt::format(
      "}};\n\nextern \"C\" __global__ void{} __launch_bounds__({}, {})\n"
      "moetune_kernel(const __grid_constant__ moetune::Args args) {{ {}; }}\n",
      cluster, plan.threads, plan.min_blocks_per_sm, call);
  return unit;
}

int64_t alignment(int64_t bytes, int64_t most) { return std::min(bytes & -bytes, most); }

std::optional<std::string> unsupported(std::string_view variant, const Shape& shape, const std::vector<Dtype>& dtypes) {
  if (shape.op != Op::fwd) return fmt::format("{} has no {}", variant, name(shape.op));
  if (std::find(dtypes.begin(), dtypes.end(), shape.layer.dtype) == dtypes.end())
    return fmt::format("{} has no {}", variant, name(shape.layer.dtype));
  return std::nullopt;
}

bool one_of(int value, std::initializer_list<int> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

int64_t split_workspace(int split, int block_m, int block_n) {
  constexpr int64_t kSumBytes = 4;
  const int64_t pieces = split == 1 ? 0 : split == 0 ? 1 : int64_t{2} * split;
  return pieces * block_m * block_n * kSumBytes;
}

int64_t tiles_of(int64_t block_m, int64_t block_n, const Problem& problem) {
  int64_t high = 0;
  for (const int64_t rows : problem.routing.m_sizes) high += (rows + block_m - 1) / block_m;
  return high * ((problem.shape.layer.n + block_n - 1) / block_n);
}

int processors_of(const DeviceInfo& device) {
  const int largest = device.compute_capability == 90 ? 132 : 192;
  return device.processors > 0 ? device.processors : largest;
}

std::optional<std::string> illegal_split(int split, int block_m, int block_n, int fewest, int blocks_per_sm,
                                         const DeviceInfo& device) {
  constexpr int kMaxSplit = 8;
  if (split < fewest || split > kMaxSplit) return fmt::format("split must lie in {} to {}", fewest, kMaxSplit);
  if (split_workspace(split, block_m, block_n) * blocks_per_sm * processors_of(device) > kMaxWorkspace)
    return "sums of pieces over the workspace";
  return std::nullopt;
}

}  // namespace moetune
