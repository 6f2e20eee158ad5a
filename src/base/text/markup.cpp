// Escaping of characters with a meaning.
#include "base/text/markup.h"

#include <cctype>

#include "base/text/text.h"

namespace moetune {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// An underscore within a word emphasises nothing: block_m stays readable.
bool is_inside_word(std::string_view text, size_t i) {
  return i > 0 && i + 1 < text.size() && is_word(text[i - 1]) && is_word(text[i + 1]);
}

}  // namespace

std::string html_text(std::string_view text) {
  return replaced(printable(text), "&<>\"'\n\t", {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;", " ", " "});
}

std::string plain_markdown(std::string_view text) {
  const std::string safe = printable(text);
  std::string out;
  for (size_t i = 0; i < safe.size(); ++i) {
    const char c = safe[i];
    const bool special = std::string_view("\\`*[]~$").find(c) != std::string_view::npos;
    if (special || (c == '_' && !is_inside_word(safe, i))) out += '\\';
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == ':' && safe.substr(i).starts_with("://")) {
      out += "&#58;";  // an address alone is a link too
    } else {
      out += c == '\t' ? ' ' : c;
    }
  }
  return out;
}

}  // namespace moetune
