// --format.
#include "cli/text/output.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cli/text/headed_tables.h"

namespace moetune {
namespace {

std::string word_of(Format format) {
  constexpr const char* kWords[] = {"text", "markdown", "json", "csv"};
  return kWords[static_cast<size_t>(format)];
}

std::vector<std::string> words_of(const std::vector<Format>& formats) {
  std::vector<std::string> words;
  std::ranges::transform(formats, std::back_inserter(words), word_of);
  return words;
}

}  // namespace

void declare_format(OptionSet& set, std::string& word, const std::vector<Format>& known) {
  word = word_of(known.front());
  set.value("--format", word, "WORD", fmt::format("On standard output: {}", fmt::join(words_of(known), ", ")),
            one_of(words_of(known)));
}

Format parse_format(const std::string& word, const std::vector<Format>& known) {
  for (const Format format : known)
    if (word_of(format) == word) return format;
  throw unknown_word("--format", word, words_of(known));
}

std::string table_text(const Grid& grid, Format format, const Terminal& terminal) {
  return format == Format::csv ? csv(grid) : grid_text(grid, format, table_columns(format, terminal));
}

void keep_in_spite(const Terminal& terminal, const std::function<void()>& report) {
  try {
    report();
  } catch (const Error& error) {
    warn(terminal, error.what());
  }
}

}  // namespace moetune
