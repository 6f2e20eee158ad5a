// Strict UTF-8 (RFC 3629) and the characters that a terminal obeys instead of showing.
#include "base/text/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/group.h"

namespace moetune {
namespace {

struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 0;  // 0: the first byte begins no character
};

CodePoint code_point(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >> 5 == 0x6 ? 2 : first >> 4 == 0xe ? 3 : first >> 3 == 0x1e ? 4 : 0;
  if (bytes == 0 || text.size() < bytes) return {};
  uint32_t value = first & (0x7f >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if (byte(i) >> 6 != 0x2) return {};
    value = value << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  return value < kLowest[bytes] || surrogate || value > 0x10ffff ? CodePoint{} : CodePoint{value, bytes};
}

// Unicode's Bidi_Control, line separators and characters without a width.
bool is_hidden(uint32_t c) {
  return (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const CodePoint c = code_point(text);
    const size_t bytes = c.bytes == 0 ? 1 : c.bytes;
    if (c.bytes == 0 || (c.value < ' ' && c.value != '\n' && c.value != '\t'))
      safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    else if (is_hidden(c.value))
      safe += fmt::format("\\u{:04x}", c.value);
    else
      safe += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return safe;
}

std::string replaced(std::string_view text, std::string_view special, std::initializer_list<std::string_view> words) {
  std::string out;
  for (const char c : text) {
    const size_t place = special.find(c);
    out += place == std::string_view::npos ? std::string_view(&c, 1) : words.begin()[place];
  }
  return out;
}

bool is_printable(std::string_view text) {
  return text.find_first_of("\n\t") == std::string_view::npos && printable(text) == text;
}

std::string html_text(std::string_view text) {
  return replaced(printable(text), "&<>\"'\n\t", {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;", " ", " "});
}

std::string some_of(const std::vector<std::string>& words, size_t most) {
  std::vector<std::string> named;
  for (const std::string& word : words) add_once(named, word);
  const size_t more = named.size() - std::min(most, named.size());
  named.resize(named.size() - more);
  return fmt::format("{}{}", fmt::join(named, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace moetune
