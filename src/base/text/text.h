// Makes text from files, arguments and devices safe to print, in HTML too: it never becomes markup. For Markdown:
// markdown_text in grid.h.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

/// `text` with everything escaped that could steer a terminal or is not UTF-8: bytes that are not UTF-8 and control
/// characters as \xHH, delete, C1 controls, invisible characters and changes of writing direction as \uHHHH, so that a
/// JSON document stays one. Line feeds and tabs stay.
std::string printable(std::string_view text);

/// `text` with each of the characters `special` replaced by the word in its place.
std::string replaced(std::string_view text, std::string_view special, std::initializer_list<std::string_view> words);

/// True where printable() changes nothing and there is no line feed or tab either: fit for a name.
bool is_printable(std::string_view text);

/// For the text of an element and for the value of an attribute in double quotes: printable(), on one line, with & < >
/// and both quotes as references.
std::string html_text(std::string_view text);

/// "a, b and 4 more": the first `most` of the words, each once.
std::string some_of(const std::vector<std::string>& words, size_t most);

}  // namespace moetune
