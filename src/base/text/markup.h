// Text from files inside HTML: it is shown, and it never becomes markup. For Markdown: markdown_text in grid.h.
#pragma once
#include <string>
#include <string_view>

namespace moetune {

/// For the text of an element and for the value of an attribute in double quotes: printable(), on one line, with & < >
/// and both quotes as references.
std::string html_text(std::string_view text);

}  // namespace moetune
