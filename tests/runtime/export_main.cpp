// Writes an export of kernels for layers of every op and fusion, with texts in place of cubins: enough for
// programs that run over a driver without a device.
//   export_main FOLDER
#include <fmt/format.h>

#include <filesystem>

#include "base/system/file.h"
#include "export/kernels/kernel_manifest.h"
#include "export/kernels/runtime_files.h"
#include "runtime/manifest.h"
#include "variant/catalog.h"

using namespace moetune;

namespace {

Shape shape_of(Op op, const Fusion& fusion, int64_t experts) {
  Shape shape;
  shape.layer = {.model = "custom", .experts = experts, .top_k = 2, .n = 256, .k = 512, .format = find_format("bf16")};
  shape.op = op, shape.fusion = fusion;
  require_valid(shape);
  return shape;
}

Shape fp8_of(ScaleKind scales, Dtype out, bool fast_sums, const Fusion& fusion) {
  Shape shape = shape_of(Op::fwd, fusion, 6);
  shape.layer.format = find_format("fp8", scales, out, fast_sums);
  require_valid(shape);
  return shape;
}

// Reads what up with permute_x+silu writes.
Shape down_of(int64_t experts) {
  Shape shape = shape_of(Op::fwd, {.permute_y = true, .topk_weights = true}, experts);
  shape.layer.projection = Projection::down, shape.layer.n = 512, shape.layer.k = 128;
  return shape;
}

// Candidates beside the default: clusters, pieces along k with their sums, a shared last round, gathering first.
std::vector<std::pair<Shape, std::string>> wanted() {
  const Fusion px = {.permute_x = true}, py = {.permute_y = true}, weighted = {.permute_y = true, .topk_weights = true};
  std::vector<std::pair<Shape, std::string>> list;
  for (const Op op : {Op::fwd, Op::dx, Op::dw})
    for (const Fusion& fusion : {Fusion{}, px, py, weighted}) list.emplace_back(shape_of(op, fusion, 6), "");
  list.emplace_back(shape_of(Op::fwd, {.permute_x = true, .activation = Activation::silu}, 6), "wgmma tma_w=yes");
  list.emplace_back(shape_of(Op::fwd, {.activation = Activation::gpt_oss, .interleaved = true, .bias = true}, 6),
                    "wgmma tma_w=yes");
  Shape gradient = shape_of(Op::dx, {}, 6);
  gradient.layer.projection = Projection::down;
  gradient.fusion = {.permute_y = true, .topk_weights = true, .weight_gradient = true, .activation = Activation::silu};
  require_valid(gradient);
  list.emplace_back(gradient, "");
  gradient.layer.experts = 7;
  list.emplace_back(gradient, "mma");  // which leaves sums to a pass
  list.emplace_back(shape_of(Op::dx, {.permute_x = true, .sum_slots = true}, 6), "");
  Fusion by_token = {.permute_y = true, .topk_weights = true, .sum_slots = true};
  for (const Op op : {Op::fwd, Op::dw}) list.emplace_back(shape_of(op, by_token, 12), "");
  by_token.weight_gradient = true, by_token.activation = Activation::silu;
  gradient.layer.experts = 12, gradient.fusion = by_token;
  list.emplace_back(gradient, "");
  list.emplace_back(shape_of(Op::dx, {.permute_y = true, .topk_weights = true, .weight_gradient = true}, 6), "");
  list.emplace_back(shape_of(Op::dw, {.accumulate = true, .fp32_dw = true}, 6), "");
  list.emplace_back(shape_of(Op::fwd, {}, 7), "wgmma cluster=n tma_store=yes split=1 tiles=static mix=0 hold=0");
  list.emplace_back(shape_of(Op::fwd, {}, 8),
                    "wgmma block_m=64 block_n=128 split=4 stages=4 block_k=64 consumers=1 schedule=cooperative "
                    "cluster=none pace=own mix=0 swap=no hold=0");
  list.emplace_back(shape_of(Op::fwd, {}, 9), "wgmma split=0 tiles=static cluster=none mix=0");
  list.emplace_back(
      shape_of(Op::fwd, {}, 11),
      "wgmma block_m=144 block_n=128 stages=4 block_k=64 consumers=2 schedule=cooperative swap=yes split=1 "
      "hold=0 pace=own");  // with a map for the rest of a tile's rows
  list.emplace_back(fp8_of(ScaleKind::block, Dtype::bf16, false, {}), "");
  list.emplace_back(fp8_of(ScaleKind::block, Dtype::bf16, false, px), "");
  list.emplace_back(fp8_of(ScaleKind::block, Dtype::fp8, false, {.permute_x = true, .activation = Activation::silu}),
                    "");
  Shape down = fp8_of(ScaleKind::block, Dtype::bf16, false, weighted);  // which reads that result
  down.layer.projection = Projection::down, down.layer.n = 512, down.layer.k = 128;
  list.emplace_back(down, "");
  list.emplace_back(fp8_of(ScaleKind::channel, Dtype::fp16, true, weighted), "");
  list.emplace_back(fp8_of(ScaleKind::tensor, Dtype::bf16, false, py), "");
  Shape groups = shape_of(Op::fwd, {}, 6);  // W of 4 bits, widened to bf16
  groups.layer.format = format_named("uint4-group32");
  list.emplace_back(groups, "simt");
  groups.layer.format = format_named("mxfp4-reordered");  // scales lie in W
  list.emplace_back(groups, "");
  list.emplace_back(down_of(6), "");
  list.emplace_back(shape_of(Op::fwd, px, 10), "wgmma gather=first tma_x=yes tma_w=yes mix=0");
  return list;
}

}  // namespace

int main(int, char** argv) {
  const std::filesystem::path folder = argv[1];
  const DeviceInfo device = device_of_arch("sm_90a");
  const Catalog catalog;
  TunedTable table;
  table.device = device, table.device.name = "NVIDIA H200", table.tool = tool_json({"export_main"});
  KernelExport exported;
  exported.services.route.push_back({"sm_90a", "route.sm_90a.cubin", "route", 32});
  exported.services.finish.emplace_back(Dtype::bf16, CubinFile{"sm_90a", "finish-bf16.sm_90a.cubin", "finish", 32});
  exported.services.reorder.emplace_back(format_named("mxfp4-reordered"),
                                         CubinFile{"sm_90a", "reorder-mxfp4-reordered.sm_90a.cubin", "reorder", 32});
  for (const auto& [shape, text] : wanted())
    for (const char* routing : {"uniform", "zipf:1.0"})
      for (const int64_t tokens : {16, 256}) {
        // Callers pick among the cells of fwd in bf16 with 6 experts; of others one is enough.
        const bool picked =
            shape.op == Op::fwd && shape.layer.experts == 6 && shape.layer.format == find_format("bf16");
        if (!picked && (tokens != 16 || routing != std::string_view("zipf:1.0"))) continue;
        const Cell cell = {.shape = shape, .tokens = tokens, .routing = parse_routing(routing), .seed = 0};
        const Problem problem = make_problem(cell);
        const Candidate candidate =
            complete(parse_partial_candidate(text.empty() ? "wgmma" : text, catalog), problem, device);
        const Variant& variant = *candidate.variant;
        if (const auto reason = cannot_run(candidate, shape, device)) {
          fmt::print(stderr, "{}: {}: {}\n", id(cell), moetune::text(candidate), *reason);
          return 1;
        }
        const std::string name = fmt::format("wgmma-{}", exported.kernels.size());
        exported.kernels.push_back({.name = name,
                                    .shape = shape,
                                    .candidate = candidate,
                                    .plan = variant.plan(candidate, shape),
                                    .unit = variant.unit(candidate, shape),
                                    .cubins = {{"sm_90a", name + ".cubin", name, 168}}});
        exported.cells.push_back({.cell = cell,
                                  .skew = figures(problem.routing).max_over_mean,
                                  .arch = "sm_90a",
                                  .kernel = name,
                                  .seconds = 1e-4});
      }
  // Up of 16 tokens was tuned with down of 256: what moetune_pick alone would not find.
  const auto cell_of = [&](const Shape& shape, int64_t tokens) {
    Entry& entry = table.entries.emplace_back();
    entry.cell = {.shape = shape, .tokens = tokens, .routing = parse_routing("zipf:1.0"), .seed = 0};
    return entry.cell;
  };
  TunedLayer layer;
  layer.up = cell_of(shape_of(Op::fwd, {.permute_x = true, .activation = Activation::silu}, 6), 16);
  layer.down = cell_of(down_of(6), 256);
  table.layers.push_back(layer);
  exported.ranges.push_back({.shape = shape_of(Op::fwd, {}, 6),
                             .tokens = {.from = 64, .to = 1000},
                             .arch = "sm_90a",
                             .kernel = exported.kernels.front().name,
                             .worst_regret = 0.01});
  const auto write = [&](const CubinFile& file) { write_atomic(folder / file.name, file.bytes); };
  for (const ExportedKernel& kernel : exported.kernels) write(kernel.cubins.front());
  write(exported.services.route.front());
  write(exported.services.finish.front().second);
  write(exported.services.reorder.front().second);
  for (const auto& [name, text] : runtime_files()) {
    std::filesystem::create_directories((folder / name).parent_path());
    write_atomic(folder / name, text);
  }
  const std::string manifest = pretty_json(kernel_manifest(exported, table));
  write_atomic(folder / "manifest.sha256", digests(manifest));
  write_atomic(folder / "manifest.json", manifest);
}
