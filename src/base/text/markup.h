// Text from files inside HTML and Markdown: it is shown, and it never becomes markup.
#pragma once
#include <string>
#include <string_view>

namespace moetune {

/// For the text of an element and for the value of an attribute in double quotes: printable(), on one line, with & < >
/// and both quotes as references.
std::string html_text(std::string_view text);

/// For a paragraph or a table cell of Markdown: printable(), without tabs, with everything that begins an element, a
/// link or an emphasis escaped. Line breaks and '|' are left to one_line().
std::string plain_markdown(std::string_view text);

}  // namespace moetune
