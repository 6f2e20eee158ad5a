// Places of errors, and the nearest known word to a mistyped one.
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

std::string whole_text(const Where& place, const std::string& sentence) {
  const std::string where = place.text();
  return without_zeros(where.empty() ? sentence : fmt::format("{}: {}", where, sentence));
}

// "block_m" of "candidate.block_m" and of "values.block_m[2]".
std::string_view last_key(std::string_view pointer) {
  if (pointer.ends_with(']')) pointer = pointer.substr(0, pointer.rfind('['));
  return pointer.substr(pointer.rfind('.') + 1);
}

}  // namespace

Where Where::of_option(std::string_view name) {
  Where place;
  place.option = name;
  return place;
}

std::string Where::text() const {
  std::string text = file;
  for (const size_t number : {line, column})
    if (number > 0) text += fmt::format(":{}", number);
  for (const std::string& part : {pointer, option})
    if (!part.empty()) text += (text.empty() || part[0] == '[' ? "" : ": ") + part;
  return text;
}

std::string pointer_to(std::string_view pointer, std::string_view step) {
  return fmt::format("{}{}{}", pointer, pointer.empty() || step.empty() || step[0] == '[' ? "" : ".", step);
}

Error::Error(Exit exit, std::string sentence, std::string hint, ErrorKind kind, Where place)
    : std::runtime_error(whole_text(place, sentence)),
      exit_(exit),
      sentence_(std::move(sentence)),
      hint_(std::move(hint)),
      kind_(kind),
      place_(std::move(place)) {}

Error Error::at(const Where& outer) const {
  if (!place_.file.empty() && place_.file == outer.file) return *this;
  if (!place_.file.empty()) return {exit_, what(), hint_, kind_, outer};
  Where place = outer;
  place.pointer = pointer_to(outer.pointer, place_.pointer);
  if (!place_.option.empty() && place_.option != last_key(outer.pointer)) place.option = place_.option;
  return {exit_, sentence_, hint_, kind_, place};
}

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
  return {Exit::request, fmt::format("unknown {} '{}'", kind, word), hint, ErrorKind::unknown_word};
}

}  // namespace moetune
