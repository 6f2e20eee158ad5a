// The nearest known word to a mistyped one.
#include "base/error.h"

#include <fmt/format.h>

namespace moetune {
namespace {

// Optimal string alignment distance (Damerau-Levenshtein without repeated edits of one substring).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

// what() would end at a zero byte, which text from files may contain.
std::string without_zeros(std::string text) {
  for (size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) text.replace(at, 1, "\\x00");
  return text;
}

}  // namespace

Error::Error(Exit exit, const std::string& what, std::string hint)
    : std::runtime_error(without_zeros(what)), exit_(exit), hint_(std::move(hint)) {}

std::string nearest(std::string_view word, std::span<const std::string> known) {
  std::string best;
  size_t best_distance = 0;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (3 * distance > std::max(word.size(), candidate.size())) continue;
    if (best.empty() || distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

Error unknown_word(std::string_view kind, std::string_view word, const std::vector<std::string>& known) {
  const std::string near = nearest(word, known);
  const std::string hint =
      near.empty() ? fmt::format("one of: {}", fmt::join(known, ", ")) : fmt::format("did you mean '{}'?", near);
  return request_error(fmt::format("unknown {} '{}'", kind, word), hint);
}

}  // namespace moetune
