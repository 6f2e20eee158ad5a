// Greedy copies of the last place that began with the same bytes (LZ77: Ziv and Lempel 1977).
#include "report/packed.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace moetune {
namespace {

constexpr size_t kLeast = 8, kBase = 60;
constexpr size_t kMost = kLeast + kBase * kBase - 1, kFarthest = kBase * kBase * kBase - 1;
constexpr size_t kSlots = size_t{1} << 16;

void add_number(std::string& out, size_t number, int digits) {
  for (size_t unit = digits == 2 ? kBase : kBase * kBase; unit > 0; unit /= kBase)
    out += static_cast<char>('A' + number / unit % kBase);
}

bool begins_character(std::string_view text, size_t at) { return at == text.size() || (text[at] & 0xc0) != 0x80; }

// How many bytes at `from` are those at `at`: whole characters, because the packed text is UTF-8 too.
size_t common(std::string_view text, size_t from, size_t at) {
  size_t length = 0;
  while (length < kMost && at + length < text.size() && text[from + length] == text[at + length]) ++length;
  while (!begins_character(text, at + length)) --length;
  return length;
}

}  // namespace

std::string packed(std::string_view text) {
  std::string out;
  std::vector<size_t> last(kSlots, std::string_view::npos);  // where a text with this hash began
  for (size_t at = 0, next = 0; at < text.size(); at = next) {
    const auto slot = [&](size_t place) -> size_t& {
      return last[std::hash<std::string_view>()(text.substr(place, kLeast)) % kSlots];
    };
    const size_t from = slot(at);
    const bool near = begins_character(text, at) && from != std::string_view::npos && at - from <= kFarthest;
    const size_t length = near ? common(text, from, at) : 0;
    next = at + std::max<size_t>(length >= kLeast ? length : 1, 1);
    if (length >= kLeast) {
      out += '~', add_number(out, length - kLeast, 2), add_number(out, at - from, 3);
    } else {
      out += text[at] == '~' ? "~~" : std::string(1, text[at]);
    }
    for (size_t place = at; place < next; ++place) slot(place) = place;
  }
  return out;
}

}  // namespace moetune
