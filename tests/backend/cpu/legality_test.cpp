// What the cpu variant may be asked for, rule by rule, and what it does untuned.
#include <gtest/gtest.h>

#include "built_in.h"
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
  return find_variant("cpu").illegal(c, shape, naive::device(processors)).value_or("");
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
TEST(CpuLegality, AcceptsEveryOp) {
  for (const Op op : {Op::fwd, Op::dx, Op::dw}) EXPECT_EQ(reason(candidate(8, 32, 16, 1), shape_of(op)), "");
}
TEST(CpuLegality, PackingBuffersAreThoseOfTheOp) {
  // Packed B of forward is block_n times the layer's k; of dX block_n times its n.
  const Candidate wide = candidate(512, 4096, 4096, 1);
  Shape shape = shape_of(Op::fwd, 4096);
  EXPECT_EQ(reason(wide, shape),
            "block_m, block_n or block_k must be smaller: packed blocks need over 64 MiB a thread");
  shape.op = Op::dx;
  EXPECT_EQ(reason(wide, shape), "");
  std::swap(shape.layer.n, shape.layer.k);
  EXPECT_EQ(reason(wide, shape),
            "block_m, block_n or block_k must be smaller: packed blocks need over 64 MiB a thread");
  shape.op = Op::fwd;
  EXPECT_EQ(reason(wide, shape), "");
  // An expert of dW may have any number of rows.
  shape.op = Op::dw;
  EXPECT_EQ(reason(wide, shape),
            "block_m, block_n or block_k must be smaller: packed blocks need over 64 MiB a thread");
  EXPECT_EQ(reason(candidate(128, 256, 512, 1), shape), "");
}
TEST(CpuLegality, OnlyOnACpu) {
  DeviceInfo gpu = naive::device(132);
  gpu.kind = DeviceKind::cuda;
  EXPECT_EQ(find_variant("cpu").illegal(candidate(8, 32, 16, 1), shape_of(), gpu),
            "the cpu variant runs on a cpu only");
}
TEST(CpuLegality, ListsItsKnobs) {
  EXPECT_EQ(text(candidate(8, 32, 16, 1)), "cpu block_m=8 block_n=32 block_k=16 threads=1");
  for (const Knob& knob : find_variant("cpu").knobs) EXPECT_FALSE(knob.in_unit) << knob.name;
  EXPECT_EQ(find_variant("cpu").device, DeviceKind::cpu);
  EXPECT_EQ(find_variant("cpu").name, "cpu");
}

TEST(CpuScratch, HoldsWhatALaunchNeeds) {
  const CpuScratch shallow = cpu_scratch(cpu_knobs(candidate(16, 64, 32, 1)), 100);
  EXPECT_TRUE(cpu_keeps_b(cpu_knobs(candidate(16, 64, 32, 1)), 100));
  EXPECT_EQ(shallow.b, 64 * 112);  // all of k, in whole vectors
  EXPECT_EQ(shallow.sums, 16 * 64);
  EXPECT_GE(shallow.a, kCpuDirectRows * (100 + kCpuRowPadding));
  const CpuScratch deep = cpu_scratch(cpu_knobs(candidate(16, 64, 32, 1)), 1 << 24);
  EXPECT_FALSE(cpu_keeps_b(cpu_knobs(candidate(16, 64, 32, 1)), 1 << 24));
  EXPECT_EQ(deep.b, 64 * 32);
}
TEST(CpuScratch, HasRoomForTheDirectPathInSmallBlocks) {
  const CpuScratch scratch = cpu_scratch(cpu_knobs(candidate(8, 32, 16, 1)), 5000);
  EXPECT_GE(scratch.sums, kCpuDirectRows * 32);
  EXPECT_GE(scratch.a, kCpuDirectRows * (kCpuDirectDepth + kCpuRowPadding));
}

TEST(CpuScratch, HasRoomForWholePanelsOfA) {
  EXPECT_GE(cpu_scratch(cpu_knobs(candidate(24, 32, 4096, 1)), 4096).a, 32 * 4096);
}
TEST(CpuScratch, HoldsWhatTheDeepestExpertOfDwNeeds) {
  const CpuKnobs knobs = cpu_knobs(candidate(16, 64, 32, 1));
  const Problem p = naive::problem_of_rows({3, 0, 500, 40}, {.op = Op::dw}, 1);
  EXPECT_EQ(cpu_scratch(knobs, product_of(p)).bytes(), cpu_scratch(knobs, 500).bytes());
  // One expert's B is kept whole, another's is too deep for that: the first needs more.
  const int32_t kept = kCpuKeepBytes / 4 / 64;
  const Problem two = naive::problem_of_rows({kept, kept + 1}, {.op = Op::dw}, 1);
  EXPECT_EQ(cpu_scratch(knobs, product_of(two)).b, 64 * int64_t{kept});
}
TEST(CpuScratch, OfAShapeHasRoomForAnyRows) {
  Shape dw;
  dw.op = Op::dw;
  for (const Candidate& c :
       {candidate(8, 32, 16, 1), candidate(24, 4096, 4096, 1), candidate(4096, 96, 512, 1), candidate(64, 64, 4096, 1)})
    for (const int64_t rows : {0, 1, 100, 1023, 1024, 4096, 43690, 43691, 65536, 131072, 131073, 10000000})
      EXPECT_LE(cpu_scratch(cpu_knobs(c), rows).bytes(), cpu_scratch(cpu_knobs(c), product_of(dw)).bytes())
          << text(c) << " " << rows;
}

TEST(CpuFallback, IsLegalEverywhere) {
  for (const char* routing : {"uniform", "zipf:1.5", "single"})
    for (const int64_t tokens : {1, 7, 100, 4096})
      for (const int64_t n : {1, 48, 5760})
        for (const int processors : {1, 2, 13, 128})
          for (const Op op : {Op::fwd, Op::dx, Op::dw}) {
            const Problem p = naive::problem_of(routing, tokens, 32, 1, {.n = n, .k = 33, .op = op});
            const Candidate c = find_variant("cpu").fallback(p, naive::device(processors));
            EXPECT_EQ(reason(c, p.shape, processors), "") << text(c);
            EXPECT_EQ(cpu_knobs(c).threads, processors);
          }
}
TEST(CpuFallback, CutsTheResultOfTheOp) {
  // A wide layer of few columns: dX has many columns, dW many of both, whatever the rows.
  const auto of = [](Op op) {
    const Problem p = naive::problem_of_rows({40}, {.n = 64, .k = 8192, .op = op}, 1);
    return text(find_variant("cpu").fallback(p, naive::device(2)));
  };
  EXPECT_EQ(of(Op::fwd), "cpu block_m=32 block_n=64 block_k=256 threads=2");
  EXPECT_EQ(of(Op::dx), "cpu block_m=128 block_n=256 block_k=256 threads=2");
  EXPECT_EQ(of(Op::dw), "cpu block_m=128 block_n=256 block_k=256 threads=2");
}
TEST(CpuFallback, TakesLargeBlocksWhereThereAreEnough) {
  for (const char* routing : {"balanced", "zipf:1.5"}) {
    const Problem p = naive::problem_of(routing, 1024, 8, 2, {.n = 2048, .k = 512});
    EXPECT_EQ(text(find_variant("cpu").fallback(p, naive::device(2))),
              "cpu block_m=128 block_n=256 block_k=256 threads=2");
  }
}
TEST(CpuFallback, CutsRowsWhereColumnsAreTooFew) {
  const Problem p = naive::problem_of_rows({1024}, {.n = 64, .k = 512}, 1);
  EXPECT_EQ(cpu_knobs(find_variant("cpu").fallback(p, naive::device(1))).block_m, 128);
  EXPECT_EQ(cpu_knobs(find_variant("cpu").fallback(p, naive::device(8))).block_m, 32);
}
TEST(CpuFallback, CutsNarrowProblemsForAllThreads) {
  const Problem p = naive::problem_of_rows({100}, {.n = 512, .k = 512}, 1);
  const auto block_n = [&](int processors) {
    return cpu_knobs(find_variant("cpu").fallback(p, naive::device(processors))).block_n;
  };
  EXPECT_GT(block_n(1), block_n(16));
}

}  // namespace
}  // namespace moetune
