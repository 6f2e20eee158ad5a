// The output on the README's first page is what `moetune tune` prints for the table that it was measured into.
#include <gtest/gtest.h>

#include "base/system/file.h"
#include "built_in.h"
#include "cli/tables/winners.h"

namespace moetune {
namespace {

TEST(Readme, ShowsWhatTunePrints) {
  const std::string source = MOETUNE_SOURCE_DIR;
  const std::string page = read_text(source + "/README.md");
  const std::string begin = "\n...\n", end = "\n```";
  const size_t first = page.find(begin), last = page.find(end, first);
  ASSERT_NE(first, std::string::npos);
  ASSERT_NE(last, std::string::npos);
  const std::string shown = page.substr(first + begin.size(), last - first - begin.size());

  const TunedTable table = read_table(source + "/configs/tuned/nvidia-h200-qwen3-30b-a3b.json", built_in());
  const std::string sentence = answer(table, table.entries.size()) + " The table is moetune-table.json.";
  EXPECT_EQ(shown, paragraph(sentence, {.columns = 80}) + "Next: moetune check moetune-table.json");
}

}  // namespace
}  // namespace moetune
