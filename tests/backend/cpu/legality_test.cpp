// What the cpu variant may be asked for, rule by rule, and what it does untuned.
#include <gtest/gtest.h>

#include "built_in.h"
#include "three_loops.h"

namespace moetune {
namespace {

using namespace three_loops;

Shape shape_of() {
  Shape shape;
  shape.layer = {.model = "custom", .experts = 4, .top_k = 2, .n = 64, .k = 64, .format = find_format("bf16")};
  return shape;
}

std::string reason(const Candidate& c, const Shape& shape = shape_of(), int processors = 8) {
  return find_variant("cpu").illegal(c, shape, device(processors)).value_or("");
}

TEST(CpuLegality, AcceptsWholeTilesOfEveryProblem) {
  for (const Candidate& c : {candidate(8, 32, 16, 1), candidate(24, 96, 48, 8), candidate(128, 256, 512, 2)})
    for (const Op op : {Op::fwd, Op::dx, Op::dw})
      for (const Dtype dtype : kDtypes)
        for (const Fusion& fusion : kFusions) {
          Shape shape = shape_of();
          shape.op = op, shape.layer.format = find_format(name(dtype)), shape.fusion = fusion;
          EXPECT_EQ(reason(c, shape), "");
        }
}
TEST(CpuLegality, RefusesWithTheRule) {
  for (const int block_m : {-8, 0, 1, 4, 7, 9, 12, 4104})
    EXPECT_EQ(reason(candidate(block_m, 32, 16, 1)), "block_m must be a multiple of 8 in 8 to 4096") << block_m;
  for (const int block_n : {-32, 0, 1, 16, 48, 4128})
    EXPECT_EQ(reason(candidate(8, block_n, 16, 1)), "block_n must be a multiple of 32 in 32 to 4096") << block_n;
  for (const int block_k : {-16, 0, 1, 8, 24, 4112})
    EXPECT_EQ(reason(candidate(8, 32, block_k, 1)), "block_k must be a multiple of 16 in 16 to 4096") << block_k;
  for (const int threads : {-1, 0, 4})
    EXPECT_EQ(reason(candidate(8, 32, 16, threads), shape_of(), 3),
              "threads must lie in 1 to 3, the threads of this machine");
  EXPECT_EQ(reason(candidate(8, 32, 16, 3), shape_of(), 3), "");
  EXPECT_EQ(reason(candidate(512, 4096, 4096, 1)),
            "block_m, block_n or block_k must be smaller: packed blocks need over 64 MiB a thread");
  EXPECT_EQ(reason(candidate(1024, 2048, 4096, 1)), "");
  DeviceInfo gpu = device(132);
  gpu.kind = DeviceKind::cuda;
  EXPECT_EQ(find_variant("cpu").illegal(candidate(8, 32, 16, 1), shape_of(), gpu),
            "the cpu variant runs on a cpu only");
  EXPECT_EQ(cpu_scratch_bytes(cpu_knobs(candidate(16, 64, 32, 1))), 4 * (16 * 32 + 64 * 32 + 16 * 64));
}
TEST(CpuLegality, ListsItsKnobs) {
  EXPECT_EQ(text(candidate(8, 32, 16, 1)), "cpu block_m=8 block_n=32 block_k=16 threads=1");
  EXPECT_EQ(find_variant("cpu").device, DeviceKind::cpu);
  EXPECT_EQ(find_variant("cpu").name, "cpu");
}

TEST(CpuFallback, IsLegalEverywhere) {
  for (const char* routing : {"uniform", "zipf:1.5", "single"})
    for (const int64_t tokens : {1, 7, 100, 4096})
      for (const int64_t n : {1, 48, 5760})
        for (const int processors : {1, 2, 13, 128})
          for (const Op op : {Op::fwd, Op::dx, Op::dw}) {
            const Problem p = problem_of(routing, tokens, 32, 1, {.n = n, .k = 33, .op = op});
            const Candidate c = find_variant("cpu").fallback(p, device(processors));
            EXPECT_EQ(reason(c, p.shape, processors), "") << text(c);
            EXPECT_EQ(cpu_knobs(c).threads, processors);
          }
}
TEST(CpuFallback, CutsTheResultOfTheOp) {
  // A wide layer of few columns: dX has many columns, dW many of both, whatever the rows.
  const auto of = [](Op op) {
    const Problem p = problem_of_rows({40}, {.n = 64, .k = 8192, .op = op}, 1);
    return text(find_variant("cpu").fallback(p, device(2)));
  };
  EXPECT_EQ(cpu_knobs(find_variant("cpu").fallback(problem_of_rows({1024}, {.n = 64, .k = 512}, 1), device(1))).block_m,
            128);
  EXPECT_EQ(of(Op::fwd), "cpu block_m=32 block_n=64 block_k=256 threads=2");
  EXPECT_EQ(of(Op::dx), "cpu block_m=128 block_n=256 block_k=256 threads=2");
  EXPECT_EQ(of(Op::dw), "cpu block_m=128 block_n=256 block_k=256 threads=2");
}

}  // namespace
}  // namespace moetune
