// What is legal for the GPU variants, why not, and that defaults always are.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ostream>

#include "built_in.h"
#include "error_of.h"
#include "find_model.h"
#include "h200.h"
#include "kernels/mma/mma_plan.h"
#include "kernels/wgmma/wgmma_plan.h"
#include "variant/space/space.h"
#include "variant/unit.h"
#include "variant/variant.h"

namespace moetune {
namespace {

Shape shape_of(Dtype dtype = Dtype::bf16, Op op = Op::fwd) {
  Shape shape;
  shape.layer = {.model = "custom", .experts = 8, .top_k = 2, .n = 1536, .k = 2048, .format = find_format(name(dtype))};
  shape.op = op;
  return shape;
}

std::string reason(const std::string& candidate, const Shape& shape = shape_of(), const char* arch = "sm_90a") {
  const Candidate parsed = parse_candidate(candidate);
  return parsed.variant->illegal(parsed, shape, device_of_arch(arch)).value_or("");
}

std::string mma(const std::string& knobs) {
  return with_base("mma " + knobs, "block_m=64 block_n=64 block_k=64 warps=4 stages=3 raster=m group=1");
}
std::string wgmma(const std::string& knobs) {
  return with_base("wgmma " + knobs,
                   "block_m=64 block_n=64 block_k=64 stages=3 raster=m group=4 consumers=1 schedule=cooperative "
                   "swap=yes cluster=none in_flight=1 tma_x=yes tma_store=no tiles=static");
}

struct Case {
  const char* candidate;
  const char* reason;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.candidate; }

class MmaLegality : public testing::TestWithParam<Case> {};
TEST_P(MmaLegality, SaysWhy) { EXPECT_EQ(reason(mma(GetParam().candidate)), GetParam().reason); }
INSTANTIATE_TEST_SUITE_P(
    Cases, MmaLegality,
    testing::Values(Case{"block_m=128 block_n=256 warps=8 group=8", ""},
                    Case{"block_m=16 block_k=128 stages=6 raster=n", ""},
                    Case{"block_m=24", "block_m must be a multiple of 16 in 16 to 256"},
                    Case{"block_m=512", "block_m must be a multiple of 16 in 16 to 256"},
                    Case{"block_n=16", "block_n must be a multiple of 16 in 32 to 256"},
                    Case{"block_k=96", "block_k must be 32, 64 or 128"}, Case{"warps=2", "warps must be 4 or 8"},
                    Case{"stages=1", "stages must lie in 2 to 6"}, Case{"stages=7", "stages must lie in 2 to 6"},
                    Case{"group=0", "group must lie in 1 to 64"},
                    Case{"block_m=16 block_n=32",
                         "block_m x block_n cannot be divided among 4 warps in multiples of 16 x 16"},
                    Case{"block_m=256 block_n=256 block_k=32 warps=8 stages=2",
                         "block_m or block_n must be smaller: sums and fragments need over 255 registers a thread"},
                    Case{"block_m=128 block_n=256 block_k=128 warps=8",
                         "stages, block_m, block_n or block_k must be smaller: shared memory over 232448 bytes"},
                    Case{"block_m=128 block_n=256 warps=8 split=4", ""}, Case{"block_m=16 stages=2 split=8", ""},
                    Case{"block_m=128 block_n=256 warps=8 split=8",
                         "split must be smaller: the sums of pieces need more device memory than a launch may use"},
                    Case{"split=0", "split must lie in 1 to 8"}));

TEST(WgmmaLegality, TensorCopiesCountRowsOfWIn32Bits) {
  const std::string text = wgmma("");
  Shape shape = shape_of();
  shape.layer.experts = 256;
  shape.layer.n = int64_t{1} << 23;
  shape.layer.k = 8;
  EXPECT_EQ(reason(text, shape),
            "tma_w must be no or addressing pointers: W of all experts has more rows than tensor copies can count");
  EXPECT_EQ(reason(text + " addressing=pointers", shape), "");  // each expert's are counted from its own
  EXPECT_EQ(reason(text + " tma_w=no", shape), "");
  shape.layer.n -= 256;
  EXPECT_EQ(reason(text, shape), "");
}

TEST(WgmmaLegality, ExpertsAreMixedWhereBlocksTakeTheirTiles) {
  Shape shape = shape_of();
  EXPECT_EQ(reason(wgmma("tiles=dynamic mix=4"), shape), "");
  EXPECT_EQ(reason(wgmma("tiles=dynamic mix=1"), shape), "mix must be 0 or lie in 2 to 16");
  EXPECT_EQ(reason(wgmma("tiles=dynamic mix=17"), shape), "mix must be 0 or lie in 2 to 16");
  EXPECT_EQ(reason(wgmma("tiles=static mix=4"), shape),
            "mix needs tiles=dynamic and split=1: blocks take whole tiles from a counter");
  EXPECT_EQ(reason(wgmma("tiles=dynamic split=4 mix=4"), shape),
            "mix needs tiles=dynamic and split=1: blocks take whole tiles from a counter");
  EXPECT_EQ(reason(wgmma("tiles=dynamic addressing=pointers mix=4"), shape),
            "mix needs addressing=base and gather=tiles: pointers and rows gathered first follow the order of experts");
  shape.layer.experts = 2048;
  EXPECT_EQ(reason(wgmma("tiles=dynamic mix=4"), shape),
            "mix must be 0 with more than 1024 experts: each block sorts them");
}

TEST(WgmmaLegality, RowsThatAreGatheredFirstComeByTensorCopies) {
  Shape shape = shape_of();
  shape.fusion.permute_x = true;
  EXPECT_EQ(reason(wgmma("tma_x=no"), shape), "");
  EXPECT_EQ(reason(wgmma("tma_x=yes"), shape),
            "tma_x must be no with permute_x and gather=tiles: tensor copies don't gather rows");
  EXPECT_EQ(reason(wgmma("tma_x=yes gather=first"), shape), "");
  EXPECT_EQ(reason(wgmma("tma_x=no gather=first"), shape),
            "gather=first needs tma_x=yes, tma_w=yes and addressing=base: tensor copies read the gathered rows");
  EXPECT_EQ(reason(wgmma("tma_x=yes gather=first addressing=pointers"), shape),
            "gather=first needs tma_x=yes, tma_w=yes and addressing=base: tensor copies read the gathered rows");

  Shape fp8 = shape_of(Dtype::fp8);
  fp8.fusion.permute_x = true;
  EXPECT_EQ(reason(wgmma("block_k=128 tma_x=yes gather=first"), fp8), "");
  fp8.fusion.by_slot = true;
  EXPECT_EQ(reason(wgmma("block_k=128 tma_x=yes gather=first"), fp8),
            "gather must be tiles where rows of fp8 are scattered too: no warp of the producer is left to gather them "
            "before");
}

TEST(WgmmaLegality, RefusalsNameTheFusionOfTheOp) {
  const auto gathered = [](const std::string& fusion) {
    return "tma_x must be no with " + fusion + " and gather=tiles: tensor copies don't gather rows";
  };
  const auto scattered = [](const std::string& fusion) {
    return "tma_store must be no or rows with " + fusion + ": tensor copies don't scatter rows";
  };
  Shape fwd = shape_of(), dx = shape_of(Dtype::bf16, Op::dx), dw = shape_of(Dtype::bf16, Op::dw);
  const std::string first = wgmma("tma_x=yes tma_store=no gather=first");
  EXPECT_EQ(reason(first, fwd), "gather must be tiles without permute_x: there are no rows to gather");
  EXPECT_EQ(reason(first, dx), "gather must be tiles without permute_y: there are no rows to gather");
  EXPECT_EQ(reason(first, dw), "gather must be tiles without permute_x and permute_y: there are no rows to gather");
  fwd.fusion.permute_x = dx.fusion.permute_x = true;
  EXPECT_EQ(reason(wgmma("tma_x=yes tma_store=no"), fwd), gathered("permute_x"));
  EXPECT_EQ(reason(wgmma("tma_x=yes tma_store=yes"), dx), scattered("permute_x"));
  fwd.fusion = dx.fusion = {.permute_y = true};
  EXPECT_EQ(reason(wgmma("tma_x=yes tma_store=yes"), fwd), scattered("permute_y"));
  EXPECT_EQ(reason(wgmma("tma_x=yes tma_store=no"), dx), gathered("permute_y"));
  EXPECT_EQ(reason(wgmma("tma_x=no tma_store=yes"), dx), "");
  dx.fusion.topk_weights = true;
  EXPECT_EQ(reason(wgmma("tma_x=no tma_store=yes"), dx),
            "tma_store must be no or rows with topk_weights: tensor copies don't weight rows");
}

TEST(Split, TheWorkspaceIsThatOfAllBlocks) {
  EXPECT_EQ(split_workspace_bytes(8, 128, 128), 1 << 20);
  DeviceInfo device = device_of_arch("sm_80");
  EXPECT_EQ(illegal_split(8, 128, 128, 1, 1, device), std::nullopt);
  EXPECT_EQ(illegal_split(8, 128, 128, 1, 2, device).value_or(""),
            "split must be smaller: the sums of pieces need more device memory than a launch may use");
  device.processors = 128;
  EXPECT_EQ(illegal_split(8, 128, 128, 1, 2, device), std::nullopt);
}

TEST(Split, AsManyBlocksHaveWorkOfATileAsItHasPieces) {
  const auto pieces = [](const std::string& candidate) {
    const Candidate c = parse_candidate(candidate);
    return c.variant->plan(c, shape_of()).pieces;
  };
  EXPECT_EQ(pieces(wgmma("swap=no split=1")), 1);
  EXPECT_EQ(pieces(wgmma("swap=no split=4")), 4);
  EXPECT_EQ(pieces(wgmma("swap=no split=0")), 3);  // a beginning and two parts
  EXPECT_EQ(pieces(mma("split=8")), 8);
  EXPECT_EQ(find_variant("simt").plan(candidate_of("simt", {16, 16, 16}), shape_of()).pieces, 1);
}

TEST(MmaLegality, SharedMemoryFollowsTheDevice) {
  const std::string candidate = "mma block_m=128 block_n=256 block_k=64 warps=8 stages=4 raster=m group=1";
  EXPECT_EQ(reason(candidate), "");
  EXPECT_EQ(reason(candidate, shape_of(), "sm_80"),
            "stages, block_m, block_n or block_k must be smaller: shared memory over 166912 bytes");
  EXPECT_EQ(reason(candidate, shape_of(), "sm_89"),
            "stages, block_m, block_n or block_k must be smaller: shared memory over 101376 bytes");
}

// Threads make the gradients of gates of their own sums.
TEST(WgmmaLegality, GradientsOfGatesLeaveFromRegisters) {
  Shape shape = shape_of(Dtype::bf16, Op::dx);
  shape.fusion.activation = Activation::silu, shape.layer.projection = Projection::down;
  EXPECT_EQ(reason(wgmma("tma_store=no"), shape), "");
  EXPECT_EQ(reason(wgmma("tma_store=yes"), shape),
            "tma_store must be no and hold 0 for gradients of gates: threads make them of their sums");
}

class WgmmaLegality : public testing::TestWithParam<Case> {};
TEST_P(WgmmaLegality, SaysWhy) { EXPECT_EQ(reason(wgmma(GetParam().candidate)), GetParam().reason); }
INSTANTIATE_TEST_SUITE_P(
    Cases, WgmmaLegality,
    testing::Values(
        Case{"block_m=256 block_n=128 stages=4 consumers=2 cluster=n", ""},
        Case{"block_m=128 block_n=256 stages=4 raster=n group=1 consumers=2 swap=no cluster=m in_flight=0 tma_x=no",
             ""},
        Case{"block_m=16 block_k=128 stages=8 tiles=dynamic", ""},
        Case{"block_m=256 block_n=128 stages=5 consumers=2 cluster=n",
             "stages, block_m, block_n, block_k or hold must be smaller: shared memory over 232448 bytes"},
        Case{"block_m=192 block_n=256 consumers=2 cluster=n", ""},
        Case{"block_m=208 block_n=256 consumers=2 cluster=n",
             "block_m or block_n must be smaller: a tile's sums must fit the registers of its consumers"},
        Case{"block_m=256 block_n=192 consumers=3 cluster=n",
             "block_m or block_n must be smaller: a tile's sums must fit the registers of its consumers"},
        Case{"block_m=128 consumers=2",
             "block_n, with swap=yes, must be a multiple of 64 for each consumer that shares a tile"},
        Case{"consumers=2 swap=no",
             "block_m, with swap=no, must be a multiple of 64 for each consumer that shares a tile"},
        Case{"schedule=pingpong swap=no", "schedule=pingpong needs consumers=2"},
        Case{"swap=no cluster=n tma_x=no",
             "tma_x must be yes with cluster=n: only tensor copies load X for two blocks"},
        Case{"swap=no cluster=n tiles=dynamic",
             "tiles must be static in a cluster: its blocks walk through tiles together"},
        Case{"swap=no tiles=dynamic pace=common",
             "tiles must be static with pace=common: blocks can only begin the same number of tiles together"},
        Case{"swap=no tiles=dynamic split=4", ""}, Case{"swap=no tiles=dynamic split=9", "split must lie in 0 to 8"},
        Case{"swap=no pace=common split=0", ""},
        Case{"swap=no tiles=dynamic split=0",
             "split=0 needs cluster=none and tiles=static: blocks share the last round by their numbers"},
        Case{"swap=no cluster=m split=0",
             "split=0 needs cluster=none and tiles=static: blocks share the last round by their numbers"},
        Case{"block_m=128 block_n=192 consumers=2 schedule=pingpong", ""},
        Case{"block_m=192 block_n=256 consumers=2 split=0", ""},
        Case{"swap=no pace=common split=2",
             "split above 1 needs cluster=none and pace=own: each block takes pieces of tiles by itself"},
        Case{"block_m=256 block_n=128 consumers=2 tiles=dynamic split=8",
             "split must be smaller: the sums of pieces need more device memory than a launch may use"},
        Case{"swap=no tma_x=no tma_w=no", ""}, Case{"swap=no cluster=n tma_w=no tma_store=yes", ""},
        Case{"swap=no cluster=m tma_w=no",
             "tma_w must be yes with cluster=m: only tensor copies load W for two blocks"},
        Case{"gather=first", "gather must be tiles without permute_x: there are no rows to gather"},
        Case{"hold=64", ""}, Case{"hold=48", "hold must be 0 or at least block_m, the rows of a tile"},
        Case{"hold=72", "hold must be a multiple of 16 up to 1024"},
        Case{"hold=1040", "hold must be a multiple of 16 up to 1024"},
        Case{"stages=12 hold=512",
             "stages, block_m, block_n, block_k or hold must be smaller: shared memory over 232448 bytes"},
        Case{"swap=no hold=64", "hold needs swap=yes and tma_store=no: threads store the held rows of swapped tiles"},
        Case{"tma_store=rows hold=64",
             "hold needs swap=yes and tma_store=no: threads store the held rows of swapped tiles"},
        Case{"tiles=dynamic split=4 hold=64", ""}, Case{"tiles=dynamic split=4 addressing=pointers hold=64", ""},
        Case{"block_m=256 block_n=128 block_k=128 stages=2 consumers=2 tma_x=no tma_w=no", ""},
        Case{"block_n=80 swap=no tma_store=yes",
             "block_n must be a multiple of 64 with tma_store=yes: a box of Y has 64 columns"},
        Case{"block_n=80 swap=no", ""}, Case{"block_n=80 swap=no tma_store=rows addressing=base", ""},
        Case{"block_n=80 swap=no tma_store=rows addressing=pointers", ""},
        Case{"swap=no tma_store=yes addressing=pointers",
             "tma_store must be no or rows with addressing=pointers: boxes need one tensor map of Y for all experts"},
        Case{"block_m=264", "block_m must be a multiple of 16 in 16 to 256"},
        Case{"block_k=32", "block_k must be 64 or 128"}, Case{"stages=17", "stages must lie in 2 to 16"}));

TEST(WgmmaLegality, NeedsHopperWholeChunksAndNoGatherByTensorCopies) {
  const std::string candidate = wgmma("");
  EXPECT_EQ(reason(candidate), "");
  EXPECT_EQ(reason(candidate, shape_of(), "sm_80"), "wgmma needs sm_90a");
  EXPECT_EQ(reason(candidate, shape_of(), "sm_100a"), "wgmma needs sm_90a");
  EXPECT_EQ(reason(candidate, shape_of(Dtype::fp32)), "wgmma does not support fp32");
  Shape shape = shape_of();
  shape.layer.k = 2044;
  EXPECT_EQ(reason(candidate, shape), "wgmma needs n and k in multiples of 8");
  shape = shape_of();
  shape.fusion.permute_x = true;
  EXPECT_EQ(reason(candidate, shape),
            "tma_x must be no with permute_x and gather=tiles: tensor copies don't gather rows");
  shape = shape_of();
  shape.fusion.permute_y = true;
  EXPECT_EQ(reason(candidate, shape), "");
  EXPECT_EQ(reason(wgmma("tma_store=yes"), shape),
            "tma_store must be no or rows with permute_y: tensor copies don't scatter rows");
  EXPECT_EQ(reason(wgmma("tma_store=rows"), shape), "");
}

TEST(WgmmaPlan, MapsAreOfWhatIsCopiedByThem) {
  const auto plan_of = [](const std::string& ways) {
    return find_variant("wgmma").plan(parse_candidate(wgmma(ways)), shape_of());
  };
  const LaunchPlan boxes = plan_of("tma_x=yes tma_w=yes tma_store=yes");
  EXPECT_EQ(boxes.x_box, 64);
  EXPECT_EQ(boxes.w_box, 64);
  EXPECT_EQ(boxes.y_box, 64);  // all rows of a swapped tile
  EXPECT_EQ(boxes.maps, 0);
  const LaunchPlan none = plan_of("tma_x=no tma_w=no tma_store=rows");
  EXPECT_EQ(none.x_box, 0);
  EXPECT_EQ(none.w_box, 0);
  EXPECT_EQ(none.y_box, 0);
  EXPECT_EQ(none.shared_bytes - boxes.shared_bytes, 1024);  // rows of two buffers, padded by 16 bytes each
  const LaunchPlan pointers = plan_of("tma_x=yes tma_w=yes tma_store=no addressing=pointers");
  EXPECT_EQ(pointers.maps, 8);  // X and W, one more than stages
  EXPECT_EQ(pointers.w_box, 64);
}

TEST(WgmmaPlan, CountsThreadsClustersAndBoxes) {
  const Candidate candidate = parse_candidate(wgmma("block_m=256 block_n=128 stages=4 consumers=2 cluster=n"));
  const LaunchPlan plan = find_variant("wgmma").plan(candidate, shape_of());
  EXPECT_EQ(plan.threads, 384);
  EXPECT_EQ(plan.cluster, 2);
  EXPECT_EQ(plan.x_box, 128);
  EXPECT_EQ(plan.w_box, 128);
  EXPECT_NE(find_variant("wgmma").unit(candidate, shape_of()).find("__cluster_dims__(2, 1, 1)"), std::string::npos);
}

// High, narrow tiles of few rows have small boxes too; others, and those of which blocks share a part, one size.
TEST(WgmmaPlan, RowsOfXComeInBoxesOfTwoSizesWhereTheyAreFew) {
  const auto boxes_of = [](const std::string& ways) {
    const LaunchPlan plan = find_variant("wgmma").plan(parse_candidate(wgmma("consumers=2 " + ways)), shape_of());
    return std::pair(plan.x_box, plan.x_rest);
  };
  EXPECT_EQ(boxes_of("block_m=176 block_n=128"), std::pair(64, 16));
  EXPECT_EQ(boxes_of("block_m=176 block_n=128 tma_x=no"), std::pair(0, 0));
  EXPECT_EQ(boxes_of("block_m=96 block_n=128"), std::pair(96, 0));
  EXPECT_EQ(boxes_of("block_m=176 block_n=256"), std::pair(88, 0));
  EXPECT_EQ(boxes_of("block_m=144 block_n=128 schedule=pingpong"), std::pair(72, 0));
  EXPECT_EQ(boxes_of("block_m=176 block_n=128 cluster=n"), std::pair(88, 0));
  EXPECT_EQ(boxes_of("block_m=176 block_n=128 addressing=pointers"), std::pair(88, 0));
}

TEST(MmaLegality, NeedsItsArchitectureAndDtype) {
  const std::string candidate = "mma block_m=64 block_n=64 block_k=64 warps=4 stages=3 raster=m group=1";
  DeviceInfo old = device_of_arch("sm_80");
  old.compute_capability = 75;
  EXPECT_EQ(find_variant("mma").illegal(parse_candidate(candidate), shape_of(), old), "mma needs sm_80 or newer");
  EXPECT_EQ(reason(candidate, shape_of(Dtype::fp32)), "mma does not support fp32");
}

TEST(MmaLegality, Fp8NeedsItsArchitectureAndRegistersForPromotedSums) {
  const auto reason_of = [](const std::string& tile, bool fast_sums, const char* arch) {
    Shape shape = shape_of(Dtype::fp8);
    shape.layer.format = find_format("fp8", ScaleKind::channel, Dtype::bf16, fast_sums);
    return reason("mma stages=3 raster=m group=1 split=1 " + tile, shape, arch);
  };
  const std::string small = "block_m=64 block_n=128 block_k=128 warps=4",
                    large = "block_m=128 block_n=256 block_k=32 warps=8";
  EXPECT_EQ(reason_of(small, false, "sm_80"), "mma needs sm_89 or newer for fp8");
  EXPECT_EQ(reason_of(small, false, "sm_89"), "");
  EXPECT_EQ(reason_of(large, true, "sm_89"), "");
  EXPECT_EQ(reason_of(large, false, "sm_89"),
            "block_m or block_n must be smaller: sums and fragments need over 255 registers a thread");
}

// Any n of gates in both orders, as the cpu takes; wgmma alone needs whole scales.
TEST(Legality, AQuantisedResultNeedsTheColumnsOfAScaleInATile) {
  for (const int64_t n : {1536, 784})
    for (const bool interleaved : {false, true}) {
      Shape shape = shape_of(Dtype::fp8);
      shape.layer.n = n, shape.layer.format = format_named("fp8-block-fp8");
      shape.fusion = {.activation = Activation::silu, .interleaved = interleaved};
      for (const std::string tile :
           {"mma block_m=32 block_k=64 warps=8 stages=3 raster=m group=1 split=4", "simt block_m=16 block_k=32"}) {
        EXPECT_EQ(reason(tile + " block_n=256", shape, "sm_89"), "");
        EXPECT_EQ(reason(tile + " block_n=128", shape, "sm_89"),
                  "block_n must be 256 for Y in fp8: a tile has the gates and ups of each scale");
      }
      EXPECT_EQ(reason(wgmma("block_m=16 block_n=256 block_k=128"), shape),
                n == 1536 && !interleaved
                    ? ""
                    : "wgmma gives Y in fp8 only of all gates before all ups, with n in multiples of 256");
      Cell cell;
      cell.shape = shape, cell.tokens = 64;
      for (const auto& [variant, arch] : {std::pair<const char*, const char*>{"mma", "sm_89"},
                                          {"mma", "sm_90a"},
                                          {"mma", "sm_120"},
                                          {"simt", "sm_75"},
                                          {"simt", "sm_80"}}) {
        const Candidate usual = find_variant(variant).fallback(make_problem(cell), device_of_arch(arch));
        EXPECT_EQ(find_variant(variant).illegal(usual, shape, device_of_arch(arch)), std::nullopt) << text(usual);
      }
    }
}

TEST(MmaLegality, GradientsNeedMoreRegisters) {
  const std::string large = "mma block_m=128 block_n=256 block_k=64 warps=8 stages=3 raster=m group=1 split=1";
  EXPECT_EQ(reason(large, shape_of(Dtype::bf16)), "");
  for (const Op op : {Op::dx, Op::dw}) {
    EXPECT_EQ(reason(large, shape_of(Dtype::bf16, op)),
              "block_m or block_n must be smaller: sums and fragments need over 255 registers a thread");
    EXPECT_EQ(reason("mma block_m=128 block_n=128 block_k=64 warps=8 stages=3 raster=m group=1 split=1",
                     shape_of(Dtype::bf16, op)),
              "");
  }
}

TEST(WgmmaLegality, SumsInFp32LeaveFromRegisters) {
  Shape shape = shape_of(Dtype::bf16, Op::dw);
  EXPECT_EQ(reason(wgmma("tma_store=rows"), shape), "");
  const int64_t staged = find_variant("wgmma").plan(parse_candidate(wgmma("tma_store=no")), shape).shared_bytes;
  shape.fusion.fp32_dw = true;
  EXPECT_EQ(reason(wgmma("tma_store=rows"), shape),
            "tma_store must be no and hold 0 for sums in fp32, which dW or another pass takes: threads store them from "
            "registers");
  EXPECT_EQ(reason(wgmma("tma_store=no"), shape), "");
  EXPECT_LT(find_variant("wgmma").plan(parse_candidate(wgmma("tma_store=no")), shape).shared_bytes, staged);
}

TEST(SimtLegality, SaysWhy) {
  EXPECT_EQ(reason("simt block_m=64 block_n=64 block_k=16"), "");
  EXPECT_EQ(reason("simt block_m=6 block_n=64 block_k=16"),
            "block_m and block_n must be multiples of 4: a thread computes 4 x 4 elements");
  EXPECT_EQ(reason("simt block_m=64 block_n=64 block_k=65"), "block_k must lie in 1 to 64");
  EXPECT_EQ(reason("simt block_m=4 block_n=64 block_k=16"), "block_m * block_n / 16 threads must lie in 32 to 512");
  EXPECT_EQ(reason("simt block_m=256 block_n=128 block_k=8"), "block_m * block_n / 16 threads must lie in 32 to 512");
  EXPECT_EQ(reason("simt block_m=64 block_n=128 block_k=64"),
            "block_k, block_m or block_n must be smaller: shared memory over 48 KB");
}

TEST(WarpGrid, ReadsTheLeastSharedMemory) {
  EXPECT_EQ(warp_grid(128, 256, 8), (WarpGrid{2, 4}));  // 64 x 64 a warp
  EXPECT_EQ(warp_grid(256, 128, 8), (WarpGrid{4, 2}));
  EXPECT_EQ(warp_grid(128, 128, 4), (WarpGrid{2, 2}));
  EXPECT_EQ(warp_grid(16, 64, 4), (WarpGrid{1, 4}));  // one row of mma tiles
  EXPECT_EQ(warp_grid(16, 64, 8), (WarpGrid{0, 0}));
}

TEST(Plan, FitsTheRegistersThatItPromises) {
  const Candidate large = parse_candidate("mma block_m=128 block_n=256 block_k=64 warps=8 stages=3 raster=m group=8");
  EXPECT_EQ(find_variant("mma").plan(large, shape_of()).min_blocks_per_sm, 1);
  EXPECT_EQ(find_variant("mma").plan(large, shape_of()).threads, 256);
  const Candidate small = parse_candidate("mma block_m=16 block_n=64 block_k=32 warps=4 stages=2 raster=m group=1");
  EXPECT_GT(find_variant("mma").plan(small, shape_of()).min_blocks_per_sm, 2);
}

TEST(Unit, IsReadableAndComplete) {
  Shape shape = shape_of();
  shape.fusion.permute_x = true;
  const std::string unit = find_variant("mma").unit(
      parse_candidate("mma block_m=64 block_n=128 block_k=32 warps=4 stages=3 raster=n group=4"), shape);
  EXPECT_EQ(unit, R"(#include "mma/mma.cuh"

struct Config : moetune::PlainConfig {
  using X = moetune::OperandType<moetune::bf16, moetune::NoScales, moetune::SameElement>;
  using W = moetune::OperandType<moetune::bf16, moetune::NoScales, moetune::SameElement>;
  using Function = moetune::Identity<moetune::bf16>;
  static constexpr moetune::MmaKnobs knobs = {.block_m = 64, .block_n = 128, .block_k = 32, .warps = 4, .stages = 3,
      .raster = moetune::Raster::n, .group = 4, .split = 1};
  static constexpr moetune::KernelProblem problem = {.x_rows = moetune::RowOrder::by_token};
};

extern "C" __global__ void __launch_bounds__(128, 2)
moetune_kernel(const __grid_constant__ moetune::Args args) { moetune::Mma<Config>::run(args); }
)");
}

TEST(Unit, DependsOnTheProblemThroughAlignmentAlone) {
  const Candidate candidate =
      parse_candidate("mma block_m=64 block_n=128 block_k=32 warps=4 stages=3 raster=n group=4");
  Shape a = shape_of(), b = shape_of();
  b.layer.n = 4096;
  b.layer.k = 7168;
  b.layer.experts = 256;
  EXPECT_EQ(find_variant("mma").unit(candidate, a), find_variant("mma").unit(candidate, b));
  b.layer.k = 7170;
  const auto problem = [&] {
    const std::string unit = find_variant("mma").unit(candidate, b);
    const size_t begin = unit.find("problem = ");
    return unit.substr(begin, unit.find('\n', begin) - begin);
  };
  EXPECT_EQ(problem(), "problem = {.x_load_bytes = 4, .w_load_bytes = 4};");
  b.layer.n = 4097;
  EXPECT_EQ(problem(), "problem = {.x_load_bytes = 4, .w_load_bytes = 4, .store_bytes = 2};");
}

// Stages hold what the multiplier reads, tensor copies count what lies in memory.
TEST(KernelProblem, HasBitsInMemoryAndInAStage) {
  constexpr KernelProblem plain = {.experts = 8}, widened = {.w_memory_bits = 4, .experts = 8};
  constexpr WgmmaKnobs knobs = {.block_m = 64, .block_n = 64, .block_k = 64, .stages = 3, .swap = true};
  EXPECT_EQ(wgmma_layout(knobs, widened).bytes, wgmma_layout(knobs, plain).bytes);
  EXPECT_EQ(swizzle_columns(widened), 64);
  EXPECT_EQ(mma_layout({.block_m = 64, .block_n = 64, .block_k = 32, .warps = 4, .stages = 3}, widened).w, 3 * 64 * 64);
  EXPECT_EQ(bytes_of(64, widened.w_memory_bits), 32);
  EXPECT_EQ(bytes_of(64, widened.w_stage_bits), 128);
}

TEST(Layout, GivesEachMemberItsOwnAlignedBytes) {
  const WgmmaKnobs knobs = {.block_m = 64,
                            .block_n = 128,
                            .block_k = 64,
                            .stages = 3,
                            .consumers = 2,
                            .swap = true,
                            .tma_x = false,
                            .tma_w = true,
                            .addressing = Addressing::pointers,
                            .split = 0,
                            .hold = 64};
  const WgmmaLayout l =
      wgmma_layout(knobs, {.x_rows = RowOrder::by_token, .y_rows = RowOrder::by_slot, .experts = 8, .weight_bytes = 2});
  EXPECT_EQ(l.maps, 0);
  EXPECT_EQ(l.w, 1024);  // behind two tensor maps
  EXPECT_EQ(l.x, l.w + 3 * 128 * 64 * 2);
  EXPECT_EQ(l.staging, l.x + 3 * 64 * 64 * 2);
  EXPECT_EQ(l.scheduler, l.staging + 2 * 64 * 64 * 2);  // 64 held rows of 64 columns, for each of two consumers
  EXPECT_EQ(l.m_sizes, l.scheduler + static_cast<int>(sizeof(Walk<ExpertsInOrder>)));
  EXPECT_EQ(l.tiles, l.m_sizes + 8 * 4);
  EXPECT_EQ(l.full, l.tiles + 2 * static_cast<int>(sizeof(TileWithPointers<PartialTile>)));
  EXPECT_EQ(l.targets, l.tile_empty + 2 * 8);
  EXPECT_EQ(l.target_bytes, 2 * 8 + 64 * (4 + 2));
  EXPECT_EQ(l.held, l.targets + 2 * l.target_bytes);
  EXPECT_EQ(l.last, l.held + 2 * l.held_bytes);
  EXPECT_EQ(l.gathered, l.last + 2 * 4);
  EXPECT_EQ(l.bytes % 1024, 0);
  EXPECT_GE(l.bytes, l.last_round + static_cast<int>(sizeof(LastRound)));
}

TEST(LastRound, IsSharedWhereItsPartsHaveEnoughSteps) {
  const LastRound last = share_last_round(132 + 33, 64, 132, 64);  // three idle blocks a tile
  EXPECT_EQ(last.tiles, 33);
  EXPECT_EQ(last.parts, 2);
  EXPECT_EQ(last.own, 64 - 2 * 21);
  EXPECT_EQ(share_last_round(2 * 132, 64, 132, 64).tiles, 0);      // no round is incomplete
  EXPECT_EQ(share_last_round(132 + 33, 16, 132, 64).tiles, 0);     // parts of five steps
  const LastRound most = share_last_round(132 + 99, 64, 132, 64);  // blocks make the parts of three tiles each
  EXPECT_EQ(most.parts, 1);
  EXPECT_EQ(most.steps - most.own, (64 - 2 * 3) / 4);
}

TEST(Alignment, IsTheLargestPowerOfTwo) {
  EXPECT_EQ(alignment(4096, 16), 16);
  EXPECT_EQ(alignment(24, 16), 8);
  EXPECT_EQ(alignment(100, 16), 4);
  EXPECT_EQ(alignment(102, 16), 2);
}

Cell cell_of(const Model& model, Projection projection, int64_t tokens, const std::string& routing,
             bool fused = false) {
  Cell cell;
  cell.shape.layer = make_layer(model, projection, find_format("bf16"), 1, 1);
  if (fused && projection == Projection::up) cell.shape.fusion.permute_x = true;
  if (fused && projection == Projection::down) cell.shape.fusion.permute_y = cell.shape.fusion.topk_weights = true;
  cell.tokens = tokens;
  cell.routing = parse_routing(routing);
  return cell;
}

void expect_legal_defaults(const Cell& cell, const DeviceInfo& device) {
  const Problem problem = make_problem(cell);
  for (const char* name : {"mma", "simt", "wgmma"}) {
    const Variant& variant = find_variant(name);
    if (variant.name == "wgmma" && device.compute_capability != 90) continue;
    const Candidate candidate = variant.fallback(problem, device);
    EXPECT_EQ(variant.illegal(candidate, problem.shape, device).value_or(""), "")
        << id(cell) << ": " << text(candidate);
  }
}

// Ops, kinds of formats and fusions, one at a time and beside permute_y or silu.
std::vector<Shape> all_shapes() {
  std::vector<Shape> shapes;
  for (const Op op : {Op::fwd, Op::dx, Op::dw})
    for (const FusionPart& one : kFusionParts)
      for (const Fusion& beside : {Fusion{}, {.permute_y = true}, {.activation = Activation::silu}})
        for (const char* format : {"bf16", "fp8-tensor", "fp8-block-fp8", "int8", "int4-group128-reordered"}) {
          Shape shape = shape_of(Dtype::bf16, op);
          shape.layer.format = format_named(format), shape.fusion = beside;
          one.turn_on(shape.fusion);
          if (op == Op::dx && is_gated(shape.fusion)) shape.layer.projection = Projection::down;
          if (error_of([&] { require_valid(shape); }).exit == Exit::yes) shapes.push_back(shape);
        }
  return shapes;
}

// In the space of commands that list candidates. tune's usual search begins with the default.
TEST(Space, QuickHasLegalCandidatesUnlessTheDefaultIsIllegal) {
  const std::vector<Shape> shapes = all_shapes();
  EXPECT_GT(shapes.size(), 100u);
  for (const std::string name : {"wgmma", "mma", "simt", "cpu"}) {
    const DeviceInfo device = name == "cpu" ? DeviceInfo() : h200();
    const Variant& variant = find_variant(name);
    SearchSpace quick = load_space("quick", built_in());
    keep_variants(quick, {name}, built_in());
    for (const Shape& shape : shapes) {
      if (!draw(quick, shape, device, 1, 0).legal.empty()) continue;
      const Cell cell{.shape = shape, .tokens = 64, .routing = parse_routing("uniform"), .seed = 0};
      const auto reason = variant.illegal(variant.fallback(make_problem(cell), device), shape, device);
      EXPECT_NE(reason.value_or("").find(' '), std::string::npos) << name << " " << title(shape);
    }
  }
}

// Few rows and many, balanced and skewed, with fusions and without: one of the four for each model and projection.
TEST(Fallback, IsLegalForEveryModelEverywhere) {
  const std::tuple<int64_t, const char*, bool> kinds[] = {
      {1, "balanced", true}, {256, "balanced", false}, {4096, "balanced", true}, {2048, "zipf:1.0", false}};
  for (const std::string arch : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"}) {
    size_t number = 0;
    for (const Model& model : model_presets())
      for (const Projection projection : {Projection::up, Projection::down}) {
        const auto& [tokens, routing, fused] = kinds[number++ % 4];
        expect_legal_defaults(cell_of(model, projection, tokens, routing, fused != (number % 8 > 4)),
                              device_of_arch(arch));
      }
  }
}

Candidate wgmma_default(const char* model, Projection projection, int64_t tokens, const char* routing) {
  const Problem problem = make_problem(cell_of(find_model(model), projection, tokens, routing));
  return find_variant("wgmma").fallback(problem, device_of_arch("sm_90a"));
}

TEST(WgmmaFallback, IsTheModelsFirstChoiceOfTiles) {
  const Variant& variant = find_variant("wgmma");
  const DeviceInfo device = h200();
  for (const char* model : {"mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b"})
    for (const int64_t tokens : {1, 16, 256, 4096})
      for (const Op op : {Op::fwd, Op::dx, Op::dw}) {
        Cell cell = cell_of(find_model(model), Projection::down, tokens, "uniform");
        cell.shape.op = op;
        const Problem problem = make_problem(cell);
        const Candidate chosen = variant.fallback(problem, device);
        for (const int block_m : {16, 32, 64, 128, 192, 256})
          for (const int block_n : {64, 128, 192, 256}) {
            Candidate other = chosen;
            const auto set = [&](std::string_view name, int value) {
              for (size_t i = 0; i < variant.knobs.size(); ++i)
                if (variant.knobs[i].name == name) other.values[i] = value;
            };
            set("block_m", block_m), set("block_n", block_n), set("stages", kLargestLegal);
            if (!set_legal_values(other, problem.shape, device)) continue;
            EXPECT_LE(variant.seconds(chosen, problem, device), variant.seconds(other, problem, device))
                << id(cell) << ": " << text(other);
          }
      }
}

TEST(WgmmaPlan, FollowsInLayersWhereNoBlockWaitsForAnother) {
  const auto follows = [](const std::string& ways, Fusion fusion, Op op = Op::fwd) -> std::string_view {
    Shape shape = shape_of(Dtype::bf16, op);
    shape.fusion = fusion;
    return name(find_variant("wgmma").plan(parse_candidate(wgmma(ways)), shape).follows);
  };
  const Fusion down = {.permute_y = true, .topk_weights = true},
               up = {.permute_x = true, .activation = Activation::silu};
  for (const char* ways : {"tma_w=yes", "tma_w=yes tiles=dynamic", "tma_w=no", "tma_w=yes split=4"}) {
    EXPECT_EQ(follows(ways, down), "up") << ways;
    EXPECT_EQ(follows(ways, up), "any") << ways;
  }
  for (const char* ways : {"tma_w=yes pace=common", "tma_w=yes split=0"})
    for (const Fusion& fusion : {down, up}) EXPECT_EQ(follows(ways, fusion), "none") << ways;
  EXPECT_EQ(follows("tma_w=yes addressing=pointers", down), "none");
  EXPECT_EQ(follows("tma_w=yes", {}), "none");
  EXPECT_EQ(follows("tma_w=yes", {.permute_x = true, .topk_weights = true, .by_slot = true}), "none");
  EXPECT_EQ(follows("tma_w=yes", down, Op::dx), "none");
}

TEST(WgmmaFallback, IsLegalWhereDwIsAccumulatedOrStoredInFp32) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16})
    for (const bool accumulate : {false, true})
      for (const bool fp32 : {false, true}) {
        Shape shape = shape_of(dtype, Op::dw);
        shape.fusion.accumulate = accumulate, shape.fusion.fp32_dw = fp32;
        const Problem problem = make_problem({.shape = shape, .tokens = 256, .routing = parse_routing("zipf:1")});
        const Candidate candidate = find_variant("wgmma").fallback(problem, h200());
        EXPECT_EQ(cannot_run(candidate, shape, h200()).value_or(""), "") << text(candidate);
      }
}

TEST(WgmmaFallback, IsLegalWhereBlocksOfScalesCutGatesAndUps) {
  Shape shape = shape_of(Dtype::fp8);
  shape.layer.n = 544, shape.layer.k = 272, shape.fusion.activation = Activation::silu;
  const Problem problem = make_problem({.shape = shape, .tokens = 256, .routing = parse_routing("zipf:1")});
  const Candidate candidate = find_variant("wgmma").fallback(problem, h200());
  EXPECT_EQ(cannot_run(candidate, shape, h200()).value_or(""), "") << text(candidate);
}

TEST(WgmmaFallback, AssumesTheL2OfAnH100WhereItIsUnknown) {
  DeviceInfo unknown = h200(), h100 = h200(), none = h200();
  unknown.cache_bytes = 0, h100.cache_bytes = int64_t{50} << 20, none.cache_bytes = 1;
  Cell cell = cell_of(find_model("mixtral-8x7b"), Projection::down, 512, "zipf:1.0");
  cell.shape.op = Op::dw;
  const auto fallback = [problem = make_problem(cell)](const DeviceInfo& device) {
    return find_variant("wgmma").fallback(problem, device);
  };
  EXPECT_EQ(fallback(unknown), fallback(h100));
  EXPECT_NE(fallback(none), fallback(h100)) << "choose a cell to which L2 matters";
}

TEST(WgmmaFallback, SharesTheLastTilesWhereThatSavesTime) {
  const auto split = [](const char* model, Projection projection, const char* routing) {
    return find_value(wgmma_default(model, projection, 4096, routing), "split");
  };
  EXPECT_EQ(split("mixtral-8x7b", Projection::down, "zipf:1.0"), 0);  // 5.7 rounds of 224 steps
  EXPECT_EQ(split("mixtral-8x7b", Projection::down, "uniform"), 1);   // 5.94: idle blocks are too few
  EXPECT_EQ(split("mixtral-8x7b", Projection::up, "uniform"), 1);     // a part of the last of 41 rounds
  EXPECT_EQ(split("qwen3-30b-a3b", Projection::up, "uniform"), 1);    // an idle block would have parts of 4 steps
}

}  // namespace
}  // namespace moetune
