// Hostile text in HTML.
#include "base/text/text.h"

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

}  // namespace
}  // namespace moetune
