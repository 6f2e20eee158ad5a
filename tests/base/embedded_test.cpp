// What the build put into the binary is what lies in the checkout.
#include "base/embedded.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/system/file.h"

namespace moetune {
namespace {

const std::filesystem::path kRoot = MOETUNE_SOURCE_DIR;

TEST(Embedded, HoldsEveryByteOfItsFiles) {
  ASSERT_FALSE(embedded_files().empty());
  for (const EmbeddedFile& file : embedded_files()) EXPECT_EQ(file.text, read_text(kRoot / file.path)) << file.path;
}
TEST(Embedded, HoldsEveryModelRoutingSuiteCostAndSchema) {
  for (const char* folder : {"configs/models", "configs/routings", "configs/suites", "configs/cost", "configs/schema"})
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / folder))
      EXPECT_TRUE(entry.is_directory() || embedded_file(std::filesystem::relative(entry.path(), kRoot).string()))
          << entry.path();
}
TEST(Embedded, IsSortedByPath) {
  const auto files = embedded_files();
  EXPECT_TRUE(std::is_sorted(files.begin(), files.end(),
                             [](const EmbeddedFile& a, const EmbeddedFile& b) { return a.path < b.path; }));
}
TEST(Embedded, KnowsNoOtherPath) {
  EXPECT_FALSE(embedded_file("kernels/nothing.h"));
  EXPECT_FALSE(embedded_file(""));
}
TEST(Embedded, HasTheVersion) {
  EXPECT_FALSE(build_info().version.empty());
  EXPECT_FALSE(build_info().commit.empty());
}

}  // namespace
}  // namespace moetune
