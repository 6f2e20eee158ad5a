// The variant and the reference against three loops: ops, dtypes, fusions, hard routings, sizes, blocks, threads, and
// what a product may have that no option of the command line asks for yet.
#include <gtest/gtest.h>

#include "built_in.h"
#include "three_loops.h"
#include "workload/product/product_rows.h"

namespace moetune {
namespace {

using namespace three_loops;

class EveryCase : public testing::TestWithParam<Case> {
 protected:
  // f(problem) on every hard routing.
  template <class F>
  void on_routings(int64_t n, int64_t k, F&& f) const {
    const auto& [op, dtype, fusion] = GetParam();
    if (is_gated(fusion)) n += n % 2;
    for (const HardRouting& routing : hard_routings()) {
      SCOPED_TRACE(routing.name + ", n " + std::to_string(n) + ", k " + std::to_string(k));
      f(routing.problem({.dtype = dtype, .fusion = fusion, .n = n, .k = k, .op = op}));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(GroupedGemm, EveryCase, testing::ValuesIn(all_cases()),
                         [](const auto& test) { return label(test.param); });

TEST_P(EveryCase, EqualsThreeLoopsOnIntegers) {
  struct Sizes {
    int64_t n, k;
    Candidate candidate;
  };
  const Sizes sizes[] = {{1, 1, candidate(8, 32, 16, 1)},
                         {7, 33, candidate(8, 32, 16, 2)},
                         {49, 13, candidate(24, 64, 32, 3)},
                         {66, 70, candidate(40, 32, 48, 2)},
                         {35, 97, candidate(128, 256, 256, 2)}};
  for (const Sizes& size : sizes)
    on_routings(size.n, size.k, [&](const Problem& problem) {
      ASSERT_FALSE(find_variant("cpu").illegal(size.candidate, problem.shape, device(3)));
      Multiplication m(problem, Values::integer);
      m.run(size.candidate);
      EXPECT_EQ(m.difference(), "") << text(size.candidate);
      const Verdict verdict = m.exact();
      EXPECT_TRUE(verdict.ok) << verdict.reason;
      EXPECT_EQ(verdict.elements, m.elements());
    });
}

TEST_P(EveryCase, IsCloseOnRandomInputs) {
  on_routings(66, 70, [](const Problem& problem) {
    Multiplication m(problem, Values::random);
    m.run(candidate(24, 64, 32, 2));
    const Verdict verdict = m.close();
    EXPECT_TRUE(verdict.ok) << verdict.reason;
  });
}

TEST_P(EveryCase, ReferenceEqualsThreeLoops) {
  for (const Values values : {Values::integer, Values::random})
    on_routings(19, 37, [&](const Problem& problem) {
      Multiplication m(problem, values);
      const Reference rounded = m.rounded(), unrounded = m.unrounded();
      const std::vector<int64_t> rows = result_map(m.product, m.product.d);
      const auto written = std::count_if(m.wanted.elements.begin(), m.wanted.elements.end(),
                                         [](const auto& element) { return element.has_value(); });
      ASSERT_EQ(static_cast<int64_t>(rows.size()) * m.product.d.columns, written);
      for (size_t row = 0; row < rows.size(); ++row)
        for (int64_t column = 0; column < m.product.d.columns; ++column) {
          const Element want = m.wanted.at(rows[row], column);
          // Sums of slots are in double, which of random inputs is not the fp32 sum.
          if (values == Values::integer || !sums_slots(m.product)) {
            ASSERT_EQ(m.read(rounded.d.data(), static_cast<int64_t>(row), column), want.rounded);
          }
          ASSERT_FLOAT_EQ(unrounded.d.as<float>()[static_cast<int64_t>(row) * m.product.d.columns + column],
                          static_cast<float>(want.exact));
        }
      for (size_t slot = 0; slot < m.wanted.dweights.size(); ++slot)
        for (const Reference* reference : {&rounded, &unrounded})
          ASSERT_FLOAT_EQ(reference->dweights.as<float>()[slot], static_cast<float>(m.wanted.dweights[slot]));
    });
}

TEST_P(EveryCase, DoesNotDependOnTheNumberOfThreads) {
  const auto& [op, dtype, fusion] = GetParam();
  const Setting setting{.dtype = dtype, .fusion = fusion, .n = 130, .k = 101, .op = op};
  Multiplication m(problem_of("zipf:1", 150, 6, 2, setting), Values::random);
  std::vector<std::vector<std::byte>> results;
  for (const int threads : {1, 2, 3, 3}) {
    m.run(candidate(32, 64, 64, threads));
    std::vector<std::byte>& result = results.emplace_back(m.set.d.data(), m.set.d.data() + m.set.d.bytes());
    result.insert(result.end(), m.set.dweights.data(), m.set.dweights.data() + m.set.dweights.bytes());
    EXPECT_EQ(result, results[0]) << threads << " threads";
  }
}

// Rows of memory of a ragged input that no expert owns become NaN.
void spoil_padding(const Product& product, const Operand& operand, const Buffer& input) {
  if (!is_ragged(product, operand)) return;
  std::vector<bool> owned(static_cast<size_t>(operand.rows));
  for (const int64_t row : row_map(product, operand)) owned[static_cast<size_t>(row)] = true;
  const int64_t width = operand.columns * size_bytes(operand.type.dtype) / 2;
  for (int64_t row = 0; row < operand.rows; ++row)
    if (!owned[static_cast<size_t>(row)]) std::fill_n(input.as<uint16_t>() + row * width, width, kUnwritten);
}

TEST(Products, MayHaveWhatNoOptionAsksFor) {
  struct {
    Extras extras;
    Dtype dtype = Dtype::bf16;
  } const cases[] = {
      {{.result_dtype = Dtype::fp32}},
      {{.result_dtype = Dtype::fp16}, Dtype::fp32},
      {{.more_rows = 9}},
      {{.a_scale = block_scales(1, 16)}},
      {{.b_scale = block_scales(16, 16)}},
      {{.a_scale = block_scales(4, 7), .b_scale = block_scales(9, 64)}, Dtype::fp32},
      {{.result_dtype = Dtype::fp32, .a_scale = block_scales(1, 8), .b_scale = block_scales(8, 8)}},
      {{.result_dtype = Dtype::bf16, .a_scale = block_scales(1, 16), .b_scale = block_scales(16, 16)}, Dtype::fp8},
      {{.result_dtype = Dtype::fp16, .a_scale = block_scales(1, 64), .b_scale = block_scales(40, 56)}, Dtype::fp8}};
  for (const Op op : {Op::fwd, Op::dx, Op::dw})
    for (const auto& [extras, dtype] : cases)
      for (const Values values : {Values::integer, Values::random}) {
        SCOPED_TRACE(std::string(name(op)) + " " + std::to_string(&extras - &cases[0].extras));
        if (dtype == Dtype::fp8 && op != Op::fwd) continue;
        Multiplication m(plain(op, dtype), values, extras);
        const Reference rounded = m.rounded();
        spoil_padding(m.product, m.product.a, m.set.a);
        spoil_padding(m.product, m.product.b, m.set.b);
        for (const Candidate& c : {candidate(8, 32, 16, 2), candidate(24, 64, 64, 3)}) {
          m.run(c);
          const Verdict verdict = values == Values::integer ? m.exact() : m.close();
          EXPECT_TRUE(verdict.ok) << verdict.reason;
          EXPECT_EQ(values == Values::integer ? m.difference() : "", "") << text(c);
        }
        const std::vector<int64_t> rows = row_map(m.product, m.product.d);
        for (size_t row = 0; row < rows.size(); ++row)
          for (int64_t column = 0; column < m.product.d.columns; ++column)
            ASSERT_EQ(m.read(rounded.d.data(), static_cast<int64_t>(row), column),
                      m.wanted.at(rows[row], column).rounded);
      }
}

TEST(StoredH, IsTheProductWithoutTheActivation) {
  struct {
    Fusion gated, plain;
  } const cases[] = {
      {{.permute_x = true, .activation = Activation::silu, .store_h = true}, {.permute_x = true}},
      {{.activation = Activation::gelu, .interleaved = true, .store_h = true, .bias = true}, {.bias = true}}};
  for (const auto& [gated, plain] : cases) {
    const auto multiply = [](const Fusion& fusion) {
      const Setting setting{.dtype = Dtype::bf16, .fusion = fusion, .n = 42, .k = 37};
      return Multiplication(problem_of("zipf:1", 50, 6, 2, setting), Values::random);
    };
    Multiplication with_h = multiply(gated), without = multiply(plain);
    with_h.run(candidate(24, 64, 64, 2));
    without.run(candidate(24, 64, 64, 2));
    ASSERT_EQ(with_h.set.second.bytes(), without.set.d.bytes());
    EXPECT_EQ(std::memcmp(with_h.set.second.data(), without.set.d.data(), static_cast<size_t>(without.set.d.bytes())),
              0);
    EXPECT_TRUE(with_h.close().ok) << with_h.close().reason;
    with_h.set.second.data()[1] ^= std::byte{0x40};
    EXPECT_NE(with_h.close().reason.find("H"), std::string::npos) << with_h.close().reason;
  }
}

// The three loops differ: they take derivatives by differences.
TEST(GateGradient, IsTheDerivativeOfTheGate) {
  for (const Fusion& fusion : kGateGradients)
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp32})
      for (const Values values : {Values::integer, Values::random})
        for (const HardRouting& routing : hard_routings()) {
          SCOPED_TRACE(routing.name + ", " + text(fusion) + ", " + std::string(name(dtype)));
          const Problem problem = routing.problem(
              {.dtype = dtype, .fusion = fusion, .n = 33, .k = 21, .op = Op::dx, .projection = Projection::down});
          Multiplication m(problem, values);
          m.run(candidate(24, 64, 32, 2));
          const double ulp = std::ldexp(1, 1 - significand_bits(dtype)) + 1e-5;
          const auto expect_near = [&](double got, double want, double unit) {
            EXPECT_NEAR(got, want, unit * std::abs(want) + 1e-5 * (1 + std::abs(want)));
          };
          const Reference exact = m.unrounded();
          const auto x_bytes = size_bytes(dtype);
          for (int64_t row = 0; row < routed_rows(m.product); ++row) {
            for (int64_t column = 0; column < 42; ++column) {
              const double want = m.wanted.at(row, column).exact;
              expect_near(static_cast<double>(m.element(row, column)), want, ulp);
              expect_near(static_cast<double>(exact.d.as<float>()[row * 42 + column]), want, 1e-6);
            }
            for (int64_t column = 0; column < 21; ++column) {
              float got = 0;
              to_floats(dtype, m.set.second.data() + (row * 21 + column) * x_bytes, 1, &got);
              expect_near(static_cast<double>(got), m.wanted.x[static_cast<size_t>(row * 21 + column)], ulp);
            }
          }
          for (size_t slot = 0; slot < m.wanted.dweights.size(); ++slot)
            expect_near(static_cast<double>(m.dweight(static_cast<int64_t>(slot))), m.wanted.dweights[slot], 1e-3);
          const Verdict verdict = values == Values::integer ? m.exact() : m.close();
          EXPECT_TRUE(verdict.ok) << verdict.reason;
          EXPECT_EQ(verdict.elements, m.elements());
        }
}

TEST(GateGradient, OfWrongRowsIsSeen) {
  const Fusion fusion = kGateGradients[1];
  Multiplication m(
      problem_of_rows(
          {7, 0, 20, 21},
          {.dtype = Dtype::bf16, .fusion = fusion, .n = 40, .k = 56, .op = Op::dx, .projection = Projection::down}, 2),
      Values::integer);
  m.run(candidate(24, 64, 32, 2));
  ASSERT_TRUE(m.exact().ok);
  const std::byte kept = m.set.second.data()[1];
  m.set.second.data()[1] ^= std::byte{0x40};
  EXPECT_NE(m.exact().reason.find("elements of X differ"), std::string::npos) << m.exact().reason;
  m.set.second.data()[1] = kept;
  m.put(3, 5, m.element(3, 5) * 2 + 1);
  EXPECT_FALSE(m.exact().ok);
}

TEST(Dw, SumsOverMoreTermsThanTheReferenceHolds) {
  const Problem p = problem_of_rows({5000, 3}, {.dtype = Dtype::fp32, .n = 2, .k = 3, .op = Op::dw}, 1);
  Multiplication m(p, Values::integer);
  m.run(candidate(24, 64, 64, 2));
  EXPECT_EQ(m.difference(), "");
  const Verdict verdict = m.exact();
  EXPECT_TRUE(verdict.ok) << verdict.reason;
}

TEST(Dw, LeavesExpertsWithoutRowsAloneWhereItAccumulates) {
  for (const bool fp32 : {false, true}) {
    Multiplication m(plain(Op::dw, Dtype::bf16, {.accumulate = true, .fp32_dw = fp32}), Values::integer);
    const int64_t bytes = 40 * 56 * size_bytes(m.product.d.type.dtype);  // of an expert
    // Signalling NaN in bf16 and in fp32: whoever adds to it makes it quiet. Expert 1 has no rows.
    for (int64_t i = 0; i < bytes; ++i) m.set.d.data()[bytes + i] = std::byte(i % 2 == 0 ? 0x81 : 0x7f);
    const std::vector<std::byte> before(m.set.d.data() + bytes, m.set.d.data() + 2 * bytes);
    m.launch(candidate(24, 64, 64, 2));
    EXPECT_TRUE(std::equal(before.begin(), before.end(), m.set.d.data() + bytes));
  }
}

TEST(Dw, AddsOnceALaunch) {
  Multiplication m(plain(Op::dw, Dtype::fp32, {.accumulate = true}), Values::integer);
  m.run(candidate(24, 64, 64, 2));
  const float once = m.element(5, 7), before = operand_value(Values::integer, m.product.seed, kStreamW, 5 * 56 + 7);
  ASSERT_NE(once, before);
  m.launch(candidate(24, 64, 64, 2));
  EXPECT_EQ(m.element(5, 7), 2 * once - before);
}

TEST(GroupedGemm, GrowsItsWorkspaceForALargerCandidate) {
  Multiplication m(problem_of_rows({50}, {.n = 64, .k = 64}, 1), Values::integer);
  const std::vector<Buffer>& scratch = m.workspace.scratch;
  m.run(candidate(8, 32, 16, 1));
  ASSERT_EQ(scratch.size(), 1u);
  const int64_t small = scratch[0].bytes();
  EXPECT_GE(small, cpu_scratch_bytes(cpu_knobs(candidate(8, 32, 16, 1))));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch[0].data()) % (2 << 20), 0U) << "one huge page, one place";
  m.run(candidate(1024, 1024, 64, 2));
  ASSERT_EQ(scratch.size(), 2u);
  EXPECT_GT(scratch[0].bytes(), small);
  const std::byte* before = scratch[0].data();
  m.run(candidate(8, 32, 16, 2));
  EXPECT_EQ(scratch[0].data(), before) << "memory that suffices is kept";
}

// More columns, tokens and slots than the last pass takes at once; memory that launches of other sizes have used.
TEST(LastPass, TakesAnySizes) {
  Workspace workspace;
  for (const int64_t k : {int64_t{1100}, int64_t{77}})
    for (const Fusion& fusion : {kSummed, kWithGradient})
      for (const Values values : {Values::integer, Values::random}) {
        const Setting setting{.dtype = Dtype::bf16, .fusion = fusion, .n = 24, .k = k, .ep = 2, .op = Op::dx};
        Multiplication m(problem_of("zipf:1", 300, 8, 4, setting), values);
        std::swap(m.workspace, workspace);
        m.run(candidate(24, 64, 64, 2));
        std::swap(m.workspace, workspace);
        const Verdict verdict = values == Values::integer ? m.exact() : m.close();
        EXPECT_TRUE(verdict.ok) << text(fusion) << " k " << k << ": " << verdict.reason;
      }
}

}  // namespace
}  // namespace moetune
