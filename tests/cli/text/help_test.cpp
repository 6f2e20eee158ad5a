// The layout of --help.
#include "cli/text/help.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

TEST(Help, IsAsWideAsTheTerminalWithinReason) {
  EXPECT_EQ(help_width(0), 80);
  EXPECT_EQ(help_width(72), 72);
  EXPECT_EQ(help_width(5), 40);
  EXPECT_EQ(help_width(240), 100);
}

TEST(Help, SectionsShareOneColumn) {
  EXPECT_EQ(
      section_text({{"Files", {{"-o, --output FILE", "The table"}}}, {"Other", {{"-q", "Quiet"}, {"-v", ""}}}}, 80),
      "Files:\n"
      "  -o, --output FILE  The table\n"
      "\n"
      "Other:\n"
      "  -q                 Quiet\n"
      "  -v\n");
}

TEST(Help, TheColumnGivesWayOnANarrowTerminal) {
  EXPECT_EQ(section_text({{"Files", {{"-o, --output FILE", "The table of winners"}, {"-q", "Quiet"}}}}, 20),
            "Files:\n"
            "  -o, --output FILE\n"
            "      The table of\n"
            "      winners\n"
            "  -q  Quiet\n");
}

TEST(Help, ALongExampleGoesOnBehindABackslash) {
  EXPECT_EQ(examples_text("  moetune tune --model x --tokens 16", 80), "  moetune tune --model x --tokens 16\n");
  EXPECT_EQ(examples_text("  moetune tune --model x --tokens 16\n  moetune list", 28),
            "  moetune tune --model x \\\n"
            "    --tokens 16\n"
            "  moetune list\n");
}

TEST(Help, AnOptionOfAnExampleKeepsItsValue) {
  EXPECT_EQ(examples_text("moetune bench --candidate \"mma block_m=64 warps=4\" table.json", 30),
            "  moetune bench \\\n"
            "    --candidate \"mma block_m=64 warps=4\" \\\n"
            "    table.json\n");
}

TEST(Help, IsAPartOfAManualPage) {
  EXPECT_EQ(
      page_roff("moetune list", {.summary = ".json and more",
                                 .usage = "Usage: moetune list",
                                 .sections = {{"Output", {{"-o FILE", "A \\ in it"}}}},
                                 .examples = "moetune list --all"}),
      ".SH moetune list\n\\&.json and more\n.PP\nUsage: moetune list\n.SS Output\n.TP\n.B \\-o FILE\nA \\e in it\n"
      ".SS Examples\n.nf\n  moetune list \\-\\-all\n.fi\n");
}

}  // namespace
}  // namespace moetune
