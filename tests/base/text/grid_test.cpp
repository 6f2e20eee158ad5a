// Tables of text: aligned, escaped, quoted.
#include "base/text/grid.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

TEST(Width, CountsCodePoints) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("12 µs ± 1 %"), 11);
  EXPECT_EQ(display_width("a…b"), 3);
}

TEST(Grid, MarkdownIsAligned) {
  const Grid grid{{{"cell"}, {"time", true}}, {{"a", "1 µs"}, {"longer", "12 µs"}}};
  EXPECT_EQ(markdown(grid),
            "| cell   |  time |\n"
            "| ------ | ----: |\n"
            "| a      |  1 µs |\n"
            "| longer | 12 µs |\n");
}

TEST(Grid, MarkdownHasTheLastTextOfTheFirstRowsBold) {
  const Grid grid{{{"cell"}, {"verdict"}}, {{"a", "bad_"}, {"b", "good"}}, 1, 1};
  EXPECT_EQ(markdown(grid),
            "| cell | verdict   |\n"
            "| ---- | --------- |\n"
            "| a    | **bad\\_** |\n"
            "| b    | good      |\n");
  EXPECT_EQ(fitted(grid, 0), fitted(grid, 80));
  EXPECT_EQ(fitted(grid, 80).find('*'), std::string::npos);
}

TEST(Grid, MarkdownEscapesWhatWouldBreakARow) {
  const Grid grid{{{"x"}}, {{"a|b\nc"}}};
  EXPECT_EQ(markdown(grid), "| x      |\n| ------ |\n| a\\|b c |\n");
}

TEST(Grid, MarkdownEscapesWhatWouldBeAnElement) {
  const Grid grid{{{"x"}}, {{"m<img src=x> & y"}}};
  EXPECT_EQ(markdown(grid),
            "| x                          |\n"
            "| -------------------------- |\n"
            "| m&lt;img src=x&gt; &amp; y |\n");
  EXPECT_EQ(fitted(grid, 80), "| x                |\n| ---------------- |\n| m<img src=x> & y |\n");
  EXPECT_EQ(cut_short("a<b"), "\nCut short: a&lt;b\n");
}

TEST(MarkdownText, EscapesLinksCodeAndEmphasis) {
  EXPECT_EQ(markdown_text("![a](b) [a][b] [a]: c"), "![a\\](b) [a\\][b] [a\\]: c");
  EXPECT_EQ(markdown_text("*a* `b` ~c~ $d$ \\ _e_"), "\\*a\\* \\`b\\` \\~c\\~ \\$d\\$ \\\\ \\_e\\_");
  EXPECT_EQ(markdown_text("# http://a.b\t|"), "\\# http&#58;//a.b \\|");
  EXPECT_EQ(markdown_text("@name, a@b, 3 @ 5"), "@&#8203;name, a@&#8203;b, 3 @ 5");
}

TEST(MarkdownText, LeavesKnobsAndIntervalsReadable) {
  for (const char* text : {"mma block_m=16, zipf:1", "12 µs [11, 13]"}) EXPECT_EQ(markdown_text(text), text);
}

TEST(Grid, AReportThatWasCutShortSaysSoInOneParagraph) {
  EXPECT_EQ(cut_short("a|b\nc"), "\nCut short: a\\|b c\n");
  EXPECT_EQ(cut_short(""), "");
}

TEST(Grid, LinesAreBrokenBetweenWords) {
  const std::vector<std::string> lines = {"ab cd", "a-long-word", "e"};
  EXPECT_EQ(lines_of("ab cd a-long-word e", 6), lines);
  EXPECT_EQ(lines_of("ab cd", 0), std::vector<std::string>{"ab cd"});
  EXPECT_EQ(lines_of("by 12 %, or", 7), (std::vector<std::string>{"by", "12 %,", "or"}));
  EXPECT_EQ(lines_of("", 4), std::vector<std::string>{""});
}

TEST(Grid, FittedBreaksLongTextsIntoRows) {
  const Grid grid{{{"name"}, {"cells", true}, {"why"}},
                  {{"a", "312", "small problems that break kernels"}, {"b", "1", "one"}}};
  EXPECT_EQ(fitted(grid, 36),
            "| name | cells | why            |\n"
            "| ---- | ----: | -------------- |\n"
            "| a    |   312 | small problems |\n"
            "|      |       | that break     |\n"
            "|      |       | kernels        |\n"
            "| b    |     1 | one            |\n");
  EXPECT_EQ(fitted(grid, 80), markdown(grid));
}

TEST(Grid, FittedStacksWhatIsTooWide) {
  const Grid grid{{{"cell"}, {"time", true}, {"why"}}, {{"a", "1 µs", ""}, {"longer", "12 µs", "so"}}};
  const std::string stacked = "a\n  time  1 µs\nlonger\n  time  12 µs\n  why   so\n";
  EXPECT_EQ(fitted(grid, 23), stacked);
  EXPECT_EQ(fitted(grid, 24), markdown(grid));  // just as wide as it is
  EXPECT_EQ(fitted(grid, 0), markdown(grid));
}

TEST(Grid, RecordsAreHeadedByAllThatNamesThem) {
  const Grid grid{{{"tokens", true}, {"routing"}, {"winner"}},
                  {{"16", "uniform", "long"}, {"1", "zipf:1", "b"}, {"", "", "so"}},
                  2};
  EXPECT_EQ(fitted(grid, 9), "16 tokens, uniform\n  winner  long\n1 token, zipf:1\n  winner  b\n  winner  so\n");
}

TEST(Grid, FittedLeavesTwoColumnsAlone) {
  const Grid grid{{{"what"}, {"value"}}, {{"compiler", "12.2.0"}}};
  EXPECT_EQ(fitted(grid, 5), markdown(grid));
}

}  // namespace
}  // namespace moetune
