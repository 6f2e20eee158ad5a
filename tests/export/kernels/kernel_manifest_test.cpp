// The manifest of exported kernels as it is written.
#include "export/kernels/kernel_manifest.h"

#include <utility>

#include "built_in.h"
#include "kernels/args.h"
#include "record/sample.h"
#include "variant/pack/launch_rule.h"
#include "variant/pack/pack.h"
#include "variant/pack/pack_launch.h"

namespace moetune {
namespace {

// Of a fixed kernel: scattered rows, cut tiles, tensor maps.
KernelExport small_export() {
  Shape shape;
  shape.layer = {.model = "custom", .experts = 4, .top_k = 2, .n = 256, .k = 512, .format = find_format("bf16")};
  shape.fusion = {.permute_y = true};
  const Cell cell = {.shape = shape, .tokens = 64, .routing = parse_routing("balanced"), .seed = 0};
  const Candidate candidate = complete(
      parse_partial_candidate("wgmma block_m=64 block_n=128 block_k=64 stages=4 raster=m consumers=1 "
                              "schedule=cooperative swap=no cluster=none tma_x=yes tma_w=yes tma_store=no tiles=static "
                              "split=4"),
      make_problem(cell), device_of_arch("sm_90a"));
  const Variant& variant = find_variant("wgmma");
  EXPECT_EQ(cannot_run(candidate, shape, device_of_arch("sm_90a")).value_or(""), "");
  KernelExport exported;
  exported.services.route.push_back({"sm_90a", "route.sm_90a.cubin", "route", 32});
  exported.services.finish.emplace_back(Dtype::bf16, CubinFile{"sm_90a", "finish-bf16.sm_90a.cubin", "finish", 32});
  exported.kernels.push_back({.name = "wgmma-0",
                              .shape = shape,
                              .candidate = candidate,
                              .plan = variant.plan(candidate, shape),
                              .unit = "text",
                              .cubins = {{"sm_90a", "wgmma-0.sm_90a.cubin", "kernel", 168}}});
  exported.cells.push_back({.cell = cell, .skew = 1, .arch = "sm_90a", .kernel = "wgmma-0", .seconds = 1e-4});
  exported.ranges.push_back({.shape = shape,
                             .tokens = {.from = 64, .to = 1000},
                             .arch = "sm_90a",
                             .kernel = "wgmma-0",
                             .worst_regret = 0.01});
  return exported;
}

// Without the kernel's knobs.
TEST(KernelManifest, IsTheGoldenText) {
  const Json manifest = kernel_manifest(small_export(), sample::small_table());
  Json json = parse_json(pretty_json(manifest), "manifest");
  require_kernel_manifest(JsonAt(json, "manifest"), built_in());
  EXPECT_EQ(json["kernels"][0]["candidate"], to_json(small_export().kernels[0].candidate));
  json["kernels"][0].erase("candidate");
  Json wide = json["route"]["int64"];
  EXPECT_EQ(std::exchange(wide["entry"], "route_int32"), "route_int64");
  EXPECT_EQ(wide, json["route"]["int32"]);
  json["route"].erase("int64");
  Json fp16 = json["sum"]["fp16"];
  EXPECT_EQ(std::exchange(fp16["entry"], "sum_bf16"), "sum_fp16");
  EXPECT_EQ(fp16, json["sum"]["bf16"]);
  json["sum"].erase("fp16");
  sample::expect_golden("kernels.json", pretty_json(json));
}

// What --pack makes of an export: launched as the kernel's own plan says.
TEST(KernelManifest, ItsKernelsArePacks) {
  const ExportedKernel kernel = small_export().kernels[0];
  const Json manifest = kernel_manifest(small_export(), sample::small_table());
  const JsonAt root(manifest, "manifest");
  const Json json = pack_of_exported(root["kernels"][size_t{0}], root["files"]);
  const Pack pack = pack_from_json(JsonAt(json, "pack"));
  EXPECT_EQ(pack.variant, "exported_wgmma_0");
  ASSERT_EQ(pack.files.size(), 1u);  // neither the routing's nor the last pass's
  const Variant variant = pack_variant(std::make_shared<const Pack>(pack));
  const Candidate candidate = {.variant = std::make_shared<const Variant>(variant), .values = pack.fallback};
  const DeviceInfo device = device_of_arch("sm_90a");
  EXPECT_EQ(cannot_run(candidate, kernel.shape, device).value_or(""), "");
  Shape other = kernel.shape;
  other.layer.experts = 8;
  EXPECT_EQ(cannot_run(candidate, other, device).value_or(""), "it was compiled for 4 experts");
  EXPECT_EQ(find_value(candidate, "block_n"), 128);

  const Product product = product_of(make_problem(small_export().cells[0].cell));
  Sizes sizes = sizes_of(product);
  sizes["processors"] = 132;
  const PackLaunch launch =
      pack_launch(pack, candidate, kernel.shape, sizes, 90, [](const PackStep&) -> int64_t { return 264; });
  const LaunchRule rule = launch_rule(kernel.plan, product);
  sizes["held"] = 264;
  ASSERT_EQ(launch.steps.size(), 1u);
  EXPECT_EQ(launch.steps[0].grid[0], rule.grid.value(sizes));
  EXPECT_EQ(launch.steps[0].shared_bytes, kernel.plan.shared_bytes);
  EXPECT_EQ(launch.steps[0].threads, kernel.plan.threads);
  ASSERT_EQ(launch.steps[0].arguments.size(), 1u);
  EXPECT_EQ(launch.steps[0].arguments[0].bytes.size(), sizeof(Args));
  EXPECT_EQ(launch.steps[0].arguments[0].maps.size(), rule.maps.size());
  EXPECT_EQ(launch.buffers.size(), rule.buffers.size());
}

}  // namespace
}  // namespace moetune
