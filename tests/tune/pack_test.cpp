// Whole runs over the variant of a pack: searched, journaled, tabled and resumed as any other is.
#include "variant/pack/pack.h"

#include <gtest/gtest.h>

#include "base/system/file.h"
#include "error_of.h"
#include "export/exporter.h"
#include "pack_folder.h"
#include "tune/tuning.h"

namespace moetune::fake {
namespace {

// block_m=16 fast=no is the best of the five candidates.
double seconds(const Candidate& candidate) {
  return 100e-6 * (1 + 0.1 * find_value(candidate, "block_m").value() / 16 + 0.05 * candidate.values[1]);
}

Script script() {
  Script script{.seconds = seconds, .baselines = {{"cublas-loop", 300e-6}}};
  script.device = device_of_arch("sm_90a");
  script.device.processors = 132;
  return script;
}

// Tunes the variant of a pack in `folder`.
struct PackTuning : Tuning {
  PackTuning(const TemporaryFolder& folder, const std::string& strategy) : Tuning(script()) {
    write_toy_pack(folder);
    catalog = Catalog({folder.path().string()});
    request.space = load_space("all", catalog);
    keep_variants(request.space, {"toy"}, catalog);
    request.strategy = strategy;
  }
  Candidate toy(int block_m, int fast) const { return {.variant = catalog.find("toy"), .values = {block_m, fast}}; }

  Catalog catalog;
};

class PackRun : public testing::TestWithParam<const char*> {};

TEST_P(PackRun, FindsTheBestCandidateAndTablesIt) {
  const TemporaryFolder folder;
  PackTuning tuning(folder, GetParam());
  if (std::string(GetParam()) == "random") tuning.request.max_candidates = 5;
  const TunedTable table = tuning.run();
  ASSERT_EQ(table.entries.size(), 1u);
  const Entry& entry = table.entries[0];
  EXPECT_EQ(entry.candidate, tuning.toy(16, 0));
  EXPECT_EQ(entry.measured, 5);
  ASSERT_NE(find_rival(entry, "default"), nullptr);  // block_m=32 fast=yes
  EXPECT_NEAR(find_rival(entry, "default")->measurement.time.value, seconds(tuning.toy(32, 1)), 1e-9);
  const Json json = to_json(table);
  const std::string hash = load_pack(folder.path()).hash;
  EXPECT_EQ(json["entries"][0]["candidate"],
            Json({{"variant", "toy"}, {"pack", hash}, {"block_m", 16}, {"fast", "no"}}));
  const std::string csv = export_csv(table).files.at(0).text;
  EXPECT_TRUE(holds(csv, ",fast,")) << csv;
}
INSTANTIATE_TEST_SUITE_P(Strategies, PackRun, testing::Values("auto", "exhaustive", "random"));

TEST(PackTable, IsReadWhereThePackIsNot) {
  const TemporaryFolder folder;
  KeptFile file(folder.path() / "table.json");
  write_table(file, PackTuning(folder, "exhaustive").run());
  const TunedTable table = read_table(folder.path() / "table.json", Catalog());
  ASSERT_EQ(table.entries.size(), 1u);
  EXPECT_EQ(text(table.entries[0].candidate), "toy block_m=16 fast=no");
  EXPECT_EQ(to_json(table), read_json(folder.path() / "table.json"));
  const std::string csv = export_csv(table).files.at(0).text;
  EXPECT_TRUE(holds(csv, ",fast,")) << csv;
  EXPECT_TRUE(holds(csv, ",toy,16,")) << csv;
}

}  // namespace
}  // namespace moetune::fake
