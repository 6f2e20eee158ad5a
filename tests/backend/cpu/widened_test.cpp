// W of int8 and of 4 bits against sums of the values that a product says enter it.
#include <gtest/gtest.h>

#include "three_loops.h"
#include "workload/product/product_rows.h"
#include "workload/product/values.h"

namespace moetune {
namespace {

using namespace three_loops;

Problem problem_in(const Format& format, const Fusion& fusion = {}) {
  Problem problem = problem_of_rows({7, 0, 20, 21}, {.fusion = fusion, .n = 48, .k = 256}, 2);
  problem.shape.layer.format = format;
  require_valid(problem.shape);
  return problem;
}

// Integers and their scales, which are powers of two, sum exactly; random values to a rounding of the sum.
TEST(Widened, EqualsTheSumOfWhatEntersTheProduct) {
  for (const Format& format : formats()) {
    if (!is_weights_only(format) && format.dtype != "int8-w8a8") continue;
    for (const Values values : {Values::integer, Values::random}) {
      SCOPED_TRACE(std::string(format.word));
      const Product p = product_of(problem_in(format, {.permute_x = true}));
      ThreadPool pool{3};
      const OperandSet set = make_set(p, values, pool);
      Workspace workspace;
      const std::vector<float> weights;
      grouped_gemm(p, matrices_of(set, weights), cpu_knobs(candidate(24, 64, 64, 2)), pool, workspace);
      for (int64_t expert = 0; expert < experts(p); ++expert)
        for (int64_t row = 0; row < extent(p, expert, Axis::m); ++row)
          for (int64_t column = 0; column < p.n; ++column) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < p.k; ++k) {
              const double term =
                  entering_value(p, p.a, values, expert, row, k) * entering_value(p, p.b, values, expert, column, k);
              sum += term, size += std::abs(term);
            }
            float got = 0;
            const int64_t at = (first_row(p, p.d, expert) + row) * p.n + column;
            to_floats(p.d.type.dtype, set.d.data() + at * 2, 1, &got);
            if (values == Values::integer)
              ASSERT_EQ(got, round_to(p.d.type.dtype, static_cast<float>(sum)))
                  << expert << " " << row << " " << column;
            else
              ASSERT_NEAR(static_cast<double>(got), sum, std::abs(sum) / 128 + size * 1e-5);
          }
    }
  }
}

// A neighbour's nibble, another group's scale and another row's zero point are each seen.
TEST(Widened, VerifySeesFaultsOfScalesAndNibbles) {
  const Product p = product_of(problem_in(format_named("uint4-group32")));
  ThreadPool pool{3};
  const std::vector<float> weights;
  const auto caught = [&](const std::function<void(OperandSet&)>& plant) {
    OperandSet set = make_set(p, Values::integer, pool);
    const Reference right = rounded_reference(p, matrices_of(make_set(p, Values::integer, pool), weights), pool);
    plant(set);
    Workspace workspace;
    grouped_gemm(p, matrices_of(set, weights), cpu_knobs(candidate(24, 64, 64, 2)), pool, workspace);
    return !compare_exact(p, set, right, pool).ok;
  };
  EXPECT_FALSE(caught([](OperandSet&) {}));
  EXPECT_TRUE(caught([](OperandSet& set) {
    for (int i = 0; i < 128; ++i) {
      auto* byte = reinterpret_cast<uint8_t*>(set.b.data()) + i;
      *byte = static_cast<uint8_t>(*byte << 4 | *byte >> 4);
    }
  }));
  EXPECT_TRUE(caught([](OperandSet& set) { set.b_scales.as<float>()[0] *= 2; }));
  EXPECT_TRUE(caught([](OperandSet& set) { *set.b_zeros.data() ^= std::byte{0x20}; }));
}

}  // namespace
}  // namespace moetune
