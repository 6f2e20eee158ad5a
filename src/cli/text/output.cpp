// --format.
#include "cli/text/output.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cli/text/headed_tables.h"

namespace moetune {
namespace {

std::string word_of(Format format) {
  switch (format) {
    case Format::text:
      return "text";
    case Format::markdown:
      return "markdown";
    case Format::json:
      return "json";
    case Format::csv:
      return "csv";
  }
  return "";
}

std::vector<std::string> words_of(const std::vector<Format>& formats) {
  std::vector<std::string> words;
  words.reserve(formats.size());
  for (const Format format : formats) words.push_back(word_of(format));
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
