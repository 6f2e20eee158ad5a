// What the cpu variant may be asked for, rule by rule, and what it does untuned.
#include <gtest/gtest.h>

#include "naive.h"

namespace moetune {
namespace {

using naive::candidate;

Shape shape_of(Op op = Op::fwd, int64_t k = 64) {
  Shape shape;
  shape.layer = {.model = "custom", .experts = 4, .top_k = 2, .n = 64, .k = k, .dtype = Dtype::bf16};
  shape.op = op;
  return shape;
}

std::string reason(const Candidate& c, const Shape& shape = shape_of(), int processors = 8) {
  return cpu_variant().illegal(c, shape, naive::device(processors)).value_or("");
}

TEST(CpuLegality, AcceptsWholeTiles) {
  EXPECT_EQ(reason(candidate(8, 32, 16, 1)), "");
  EXPECT_EQ(reason(candidate(24, 96, 48, 8)), "");
  EXPECT_EQ(reason(candidate(128, 256, 512, 2)), "");
}
TEST(CpuLegality, AcceptsEveryDtype) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::fp32}) {
    Shape shape = shape_of();
    shape.layer.dtype = dtype;
    EXPECT_EQ(reason(candidate(8, 32, 16, 1), shape), "");
  }
}
TEST(CpuLegality, AcceptsEveryFusion) {
  for (const Fusion& fusion :
       {Fusion{.permute_x = true}, Fusion{.permute_y = true}, Fusion{.permute_y = true, .topk_weights = true}}) {
    Shape shape = shape_of();
    shape.fusion = fusion;
    EXPECT_EQ(reason(candidate(8, 32, 16, 1), shape), "");
  }
}
TEST(CpuLegality, BlockMIsAMultipleOfTheTile) {
  for (const int block_m : {-8, 0, 1, 4, 7, 9, 12, 4104})
    EXPECT_EQ(reason(candidate(block_m, 32, 16, 1)), "block_m must be a multiple of 8 in 8 to 4096") << block_m;
}
TEST(CpuLegality, BlockNIsAMultipleOfTheTile) {
  for (const int block_n : {-32, 0, 1, 16, 48, 4128})
    EXPECT_EQ(reason(candidate(8, block_n, 16, 1)), "block_n must be a multiple of 32 in 32 to 4096") << block_n;
}
TEST(CpuLegality, BlockKIsAMultipleOfAVector) {
  for (const int block_k : {-16, 0, 1, 8, 24, 4112})
    EXPECT_EQ(reason(candidate(8, 32, block_k, 1)), "block_k must be a multiple of 16 in 16 to 4096") << block_k;
}
TEST(CpuLegality, ThreadsAreNoMoreThanTheMachineHas) {
  EXPECT_EQ(reason(candidate(8, 32, 16, 3), shape_of(), 3), "");
  EXPECT_EQ(reason(candidate(8, 32, 16, 4), shape_of(), 3), "threads must lie in 1 to 3, the threads of this machine");
  EXPECT_EQ(reason(candidate(8, 32, 16, 0), shape_of(), 3), "threads must lie in 1 to 3, the threads of this machine");
  EXPECT_EQ(reason(candidate(8, 32, 16, -1), shape_of(), 3), "threads must lie in 1 to 3, the threads of this machine");
}
TEST(CpuLegality, PackingBuffersAreBounded) {
  const Shape deep = shape_of(Op::fwd, 1 << 20);
  EXPECT_EQ(reason(candidate(4096, 4096, 512, 1), deep),
            "block_m, block_n or block_k must be smaller: packed blocks need over 64 MiB a thread");
  EXPECT_EQ(reason(candidate(128, 256, 512, 1), deep), "");
  const Candidate large = candidate(1024, 2048, 4096, 1);
  EXPECT_LE(cpu_scratch(cpu_knobs(large), 64).bytes(), kCpuScratchLimit) << "no deeper than k";
  EXPECT_EQ(reason(large), "");
}
TEST(CpuLegality, OnlyForward) {
  EXPECT_EQ(reason(candidate(8, 32, 16, 1), shape_of(Op::dx)), "cpu does not support dx");
  EXPECT_EQ(reason(candidate(8, 32, 16, 1), shape_of(Op::dw)), "cpu does not support dw");
}
TEST(CpuLegality, OnlyOnACpu) {
  DeviceInfo gpu = naive::device(132);
  gpu.kind = DeviceKind::cuda;
  EXPECT_EQ(cpu_variant().illegal(candidate(8, 32, 16, 1), shape_of(), gpu), "the cpu variant runs on a cpu only");
}
TEST(CpuLegality, ListsItsKnobs) {
  EXPECT_EQ(text(candidate(8, 32, 16, 1)), "cpu block_m=8 block_n=32 block_k=16 threads=1");
  for (const Knob& knob : cpu_variant().knobs) EXPECT_FALSE(knob.in_unit) << knob.name;
  EXPECT_EQ(cpu_variant().device, DeviceKind::cpu);
  EXPECT_EQ(find_variant("cpu").name, "cpu");
}

TEST(CpuScratch, HoldsWhatALaunchNeeds) {
  const CpuScratch shallow = cpu_scratch(cpu_knobs(candidate(16, 64, 32, 1)), 100);
  EXPECT_TRUE(shallow.keeps_w);
  EXPECT_EQ(shallow.w, 64 * 112);  // all of k, in whole vectors
  EXPECT_EQ(shallow.sums, 16 * 64);
  EXPECT_GE(shallow.x, kCpuDirectRows * (100 + kCpuRowPadding));
  const CpuScratch deep = cpu_scratch(cpu_knobs(candidate(16, 64, 32, 1)), 1 << 24);
  EXPECT_FALSE(deep.keeps_w);
  EXPECT_EQ(deep.w, 64 * 32);
}
TEST(CpuScratch, HasRoomForTheDirectPathInSmallBlocks) {
  const CpuScratch scratch = cpu_scratch(cpu_knobs(candidate(8, 32, 16, 1)), 5000);
  EXPECT_GE(scratch.sums, kCpuDirectRows * 32);
  EXPECT_GE(scratch.x, kCpuDirectRows * (kCpuDirectDepth + kCpuRowPadding));
}

TEST(CpuFallback, IsLegalEverywhere) {
  for (const char* routing : {"uniform", "zipf:1.5", "single"})
    for (const int64_t tokens : {1, 7, 100, 4096})
      for (const int64_t n : {1, 48, 5760})
        for (const int processors : {1, 2, 13, 128}) {
          const Problem p = naive::problem_of(routing, tokens, 32, 1, {.n = n, .k = 33});
          const Candidate c = cpu_variant().fallback(p, naive::device(processors));
          EXPECT_EQ(reason(c, p.shape, processors), "") << text(c);
          EXPECT_EQ(cpu_knobs(c).threads, processors);
        }
}
TEST(CpuFallback, TakesLargeBlocksWhereThereAreEnough) {
  for (const char* routing : {"balanced", "zipf:1.5"}) {
    const Problem p = naive::problem_of(routing, 1024, 8, 2, {.n = 2048, .k = 512});
    EXPECT_EQ(text(cpu_variant().fallback(p, naive::device(2))), "cpu block_m=128 block_n=256 block_k=256 threads=2");
  }
}
TEST(CpuFallback, CutsRowsWhereColumnsAreTooFew) {
  const Problem p = naive::problem_of_rows({1024}, {.n = 64, .k = 512}, 1);
  EXPECT_EQ(cpu_knobs(cpu_variant().fallback(p, naive::device(1))).block_m, 128);
  EXPECT_EQ(cpu_knobs(cpu_variant().fallback(p, naive::device(8))).block_m, 32);
}
TEST(CpuFallback, CutsNarrowProblemsForAllThreads) {
  const Problem p = naive::problem_of_rows({100}, {.n = 512, .k = 512}, 1);
  const auto block_n = [&](int processors) {
    return cpu_knobs(cpu_variant().fallback(p, naive::device(processors))).block_n;
  };
  EXPECT_GT(block_n(1), block_n(16));
}

}  // namespace
}  // namespace moetune
