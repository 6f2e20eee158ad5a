// Hostile text in HTML and Markdown.
#include "base/text/markup.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

TEST(HtmlText, EscapesWhatHasAMeaning) {
  EXPECT_EQ(html_text("<b a=\"1\" c='2'>&amp;"), "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;");
  EXPECT_EQ(html_text("12.3 µs ± 1 %"), "12.3 µs ± 1 %");
}

TEST(HtmlText, ShowsControlsAndStaysOnOneLine) {
  EXPECT_EQ(html_text("a\nb\tc"), "a b c");
  EXPECT_EQ(html_text(std::string("a\0b\x1b", 4)), "a\\x00b\\x1b");
  EXPECT_EQ(html_text("\xff"), "\\xff");
}

TEST(PlainMarkdown, EscapesElementsLinksAndEmphasis) {
  EXPECT_EQ(plain_markdown("<script>"), "&lt;script>");
  EXPECT_EQ(plain_markdown("[a](b)"), "\\[a\\](b)");
  EXPECT_EQ(plain_markdown("*a* `b` ~c~ $d$ \\"), "\\*a\\* \\`b\\` \\~c\\~ \\$d\\$ \\\\");
  EXPECT_EQ(plain_markdown("http://a.b"), "http&#58;//a.b");
  EXPECT_EQ(plain_markdown("a &\tb"), "a &amp; b");
}

TEST(PlainMarkdown, LeavesKnobsReadable) {
  EXPECT_EQ(plain_markdown("mma block_m=16, zipf:1"), "mma block_m=16, zipf:1");
  EXPECT_EQ(plain_markdown("_a_"), "\\_a\\_");
}

}  // namespace
}  // namespace moetune
