// The model of the mma kernels against the tables of an H200 that its constants were fitted to.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "built_in.h"
#include "record/table/table.h"
#include "variant/variant.h"

namespace moetune {
namespace {

TEST(MmaModel, PutsTheWinnersOfTablesBeforeOtherCandidates) {
  int cells = 0, right = 0;
  double error = 0;
  for (const char* model : {"qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b"}) {
    const TunedTable table =
        read_table(fmt::format("{}/configs/tuned/nvidia-h200-{}.json", MOETUNE_SOURCE_DIR, model), built_in());
    for (const Entry& entry : table.entries) {
      const Problem problem = make_problem(entry.cell);
      const Rival& other = entry.rivals.front();
      ASSERT_EQ(other.name, "default");
      const auto modelled = [&](const Candidate& candidate) {
        return candidate.variant->seconds(candidate, problem, table.device);
      };
      ++cells;
      error += std::abs(std::log(modelled(entry.candidate) / entry.measurement.time.value));
      right += entry.candidate == other.candidate || other.ratio.value > 0.99 ||
               modelled(entry.candidate) < modelled(other.candidate);
    }
  }
  EXPECT_EQ(cells, 42);
  EXPECT_GE(right, 40);
  EXPECT_LT(error / cells, 0.06);
}

}  // namespace
}  // namespace moetune
