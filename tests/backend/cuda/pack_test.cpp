// A pack of kernels that NVRTC compiled, without a GPU: loaded, described by the backend that compiles, evaluated.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/kernel.h"
#include "built_in.h"
#include "simt_pack.h"
#include "variant/pack/pack_launch.h"

namespace moetune {
namespace {

Shape shape_of(Fusion fusion = {}) {
  Shape shape;
  shape.layer = {.model = "custom", .experts = 6, .top_k = 2, .n = 96, .k = 72};
  shape.fusion = fusion;
  return shape;
}

TEST(PackOfCudaKernels, IsLoadedAndLaunchesTheWholeStruct) {
  TemporaryFolder folder;
  write_simt_pack(folder, shape_of(), "sm_90a", "none");
  const Pack pack = load_pack(folder.path());
  Sizes sizes = sizes_of(
      product_of(make_problem({.shape = shape_of(), .tokens = 20, .routing = parse_routing("uniform"), .seed = 3})));
  const Candidate candidate{.variant = nullptr, .values = {16, 2}};
  const PackLaunch launch = pack_launch(pack, candidate, shape_of(), sizes, 90, [](const PackStep&) { return 5; });
  ASSERT_EQ(launch.steps.size(), 3u);
  EXPECT_EQ(launch.steps[1].entry, "copy_sizes");
  EXPECT_EQ(launch.steps[2].grid[0], 10);  // of 16 tiles: what fits, twice
  const LaunchArgument& args = launch.steps[2].arguments.at(0);
  ASSERT_EQ(args.bytes.size(), sizeof(Args));
  Args read;
  std::memcpy(&read, args.bytes.data(), sizeof read);
  EXPECT_EQ(read.n, 96);
  EXPECT_EQ(read.k, 72);
  EXPECT_EQ(read.experts, 6);
  EXPECT_EQ(read.top_k, 2);
  EXPECT_EQ(args.pointers.size(), 6u);
}

TEST(PackOfCudaKernels, MayTakeScalesOfXMnMajor) {
  Shape shape = shape_of();
  shape.layer.format = find_format("fp8", ScaleKind::block), shape.layer.k = 384;
  TemporaryFolder folder;
  write_simt_pack(folder, shape, "sm_90a", "none");
  const Pack pack = load_pack(folder.path());
  const Sizes sizes = sizes_of(
      product_of(make_problem({.shape = shape, .tokens = 21, .routing = parse_routing("uniform"), .seed = 3})));
  const PackLaunch launch =
      pack_launch(pack, {.variant = nullptr, .values = {16, 1}}, shape, sizes, 90, [](const PackStep&) { return 5; });
  const LaunchArgument& args = launch.steps.at(2).arguments.at(0);
  Args read;
  std::memcpy(&read, args.bytes.data(), sizeof read);
  EXPECT_EQ(read.x_scale_row, 1);
  EXPECT_EQ(read.x_scale_step, 44);  // 42 rows
  EXPECT_EQ(std::ranges::count(args.pointers, "x_scales_mn_major", &LaunchPointer::name), 1);
}

TEST(PackOfCudaKernels, CompilesNothingAndReportsRegisters) {
  TemporaryFolder folder;
  write_simt_pack(folder, shape_of(), "sm_90a", "none");
  const Catalog catalog({folder.path().string()});
  const VariantPtr packed = catalog.find("packed_simt");
  const std::unique_ptr<Backend> backend = make_arch_backend("sm_90a", {});
  EXPECT_EQ(environment_with_packs(*backend, catalog)["identity"]["packs"], catalog.pack_names());
  EXPECT_EQ(environment_with_packs(*backend, built_in()), backend->environment());
  const std::vector<Candidate> candidates = {{.variant = packed, .values = {32, 1}},
                                             {.variant = packed, .values = {32, 2}}};
  const std::vector<CompileResult> results = backend->compile(shape_of(), candidates);
  EXPECT_EQ(results.at(0).status, Status::ok);
  EXPECT_GT(results.at(0).registers, 0);
  EXPECT_TRUE(results.at(0).from_cache);
  EXPECT_EQ(results.at(1).status, Status::compile_error);
  EXPECT_EQ(results.at(1).reason, "the pack has no kernel for this device and knobs");
}

TEST(PackOfCudaKernels, StandBesideOthersInTheirOrder) {
  TemporaryFolder folder;
  write_simt_pack(folder, shape_of(), "sm_90a", "none");
  const Catalog catalog({folder.path().string()});
  const std::vector<Candidate> candidates = {parse_candidate("simt block_m=16 block_n=64 block_k=16"),
                                             {.variant = catalog.find("packed_simt"), .values = {32, 1}},
                                             parse_candidate("simt block_m=32 block_n=64 block_k=16")};
  const auto compile = [](const std::vector<std::string>& units) {
    std::vector<CompileResult> results;
    for (const std::string& unit : units)
      results.push_back({.status = Status::ok, .reason = unit.find("block_m = 16") != std::string::npos ? "16" : "32"});
    return results;
  };
  const std::vector<CompileResult> results =
      compile_candidates(shape_of(), candidates, device_of_arch("sm_90a"), compile);
  EXPECT_EQ(results.at(0).reason, "16");
  EXPECT_TRUE(results.at(1).from_cache);
  EXPECT_EQ(results.at(2).reason, "32");
}

}  // namespace
}  // namespace moetune
