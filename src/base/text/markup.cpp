// Escaping of characters with a meaning.
#include "base/text/markup.h"

#include "base/text/text.h"

namespace moetune {

std::string html_text(std::string_view text) {
  return replaced(printable(text), "&<>\"'\n\t", {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;", " ", " "});
}

}  // namespace moetune
