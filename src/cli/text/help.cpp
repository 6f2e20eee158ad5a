// Wrapping words, columns and command lines; the same for man.
#include "cli/text/help.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/grid.h"
#include "base/text/units.h"

namespace moetune {
namespace {

constexpr int kWidestColumn = 30;

// Words of a command line; what is quoted is one word, and so is an option with its value.
std::vector<std::string> arguments_of(std::string_view line) {
  std::vector<std::string> words;
  bool quoted = false;
  for (const std::string& word : split(line, ' ')) {
    if (word.empty()) continue;
    const bool value = !words.empty() && words.back().starts_with('-') && !word.starts_with('-') &&
                       words.back().find(' ') == std::string::npos;
    if (quoted || value)
      words.back() += " " + word;
    else
      words.push_back(word);
    if (std::ranges::count(word, '"') % 2 != 0) quoted = !quoted;
  }
  return words;
}

// A command in lines of at most `width` columns: those before the last end in a backslash, the others begin with
// spaces.
std::string command_text(const std::vector<std::string>& words, int width) {
  std::string text;
  int column = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const int word = display_width(words[i]), end = i + 1 == words.size() ? 0 : 2;
    const bool fits = column + 1 + word + end <= width;
    if (i > 0) text += fits ? " " : " \\\n    ";
    column = i == 0 ? word : (fits ? column + 1 : 4) + word;
    text += words[i];
  }
  return text;
}

std::string padding(int columns) { return std::string(static_cast<size_t>(std::max(columns, 0)), ' '); }

// Words of a paragraph in lines of at most `width` columns, those after the first behind `indent` spaces.
std::string wrapped(std::string_view text, int width, int indent = 0) {
  return fmt::format("{}", fmt::join(lines_of(text, width - indent), "\n" + padding(indent)));
}

std::string line_text(const HelpLine& line, int column, int width) {
  std::string text = "  " + line.name;
  const int name = display_width(text);
  if (line.text.empty()) return text + "\n";
  text += name + 2 <= column ? padding(column - name) : "\n" + padding(column);
  return text + wrapped(line.text, width, column) + "\n";
}

// A hyphen would become a dash, and a line that begins with a dot a command.
std::string roff(std::string_view text) {
  std::string escaped = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) escaped += c == '-' ? "\\-" : c == '\\' ? "\\e" : std::string(1, c);
  return escaped;
}

}  // namespace

int help_width(int terminal_columns) { return terminal_columns <= 0 ? 80 : std::clamp(terminal_columns, 40, 100); }

std::string section_text(const std::vector<HelpSection>& sections, int width) {
  const int widest = std::min(kWidestColumn, width * 2 / 5);
  int column = 0;
  for (const HelpSection& section : sections)
    for (const HelpLine& line : section.lines)
      if (const int needed = display_width(line.name) + 4; needed <= widest) column = std::max(column, needed);
  if (column == 0) column = std::min(widest, 8);
  std::string text;
  for (const HelpSection& section : sections) {
    text += (text.empty() ? "" : "\n") + section.title + ":\n";
    for (const HelpLine& line : section.lines) text += line_text(line, column, width);
  }
  return text;
}

std::string examples_text(std::string_view examples, int width) {
  std::string text;
  while (!examples.empty()) {
    const size_t end = std::min(examples.find('\n'), examples.size());
    const std::vector<std::string> words = arguments_of(examples.substr(0, end));
    text += "  " + command_text(words, width - 2) + "\n";
    examples.remove_prefix(std::min(end + 1, examples.size()));
  }
  return text;
}

std::string page_text(const HelpPage& page, int width) {
  return fmt::format("{}\n\n{}\n\n{}\n{}Examples:\n{}", wrapped(page.summary, width), wrapped(page.usage, width, 2),
                     section_text(page.sections, width),
                     page.closing.empty() ? "" : wrapped(page.closing, width) + "\n\n",
                     examples_text(page.examples, width));
}

std::string page_roff(const std::string& title, const HelpPage& page) {
  std::string text = fmt::format(".SH {}\n{}\n.PP\n{}\n", roff(title), roff(page.summary), roff(page.usage));
  for (const HelpSection& section : page.sections) {
    text += fmt::format(".SS {}\n", roff(section.title));
    for (const HelpLine& line : section.lines)
      text += fmt::format(".TP\n.B {}\n{}\n", roff(line.name), roff(line.text));
  }
  if (!page.closing.empty()) text += fmt::format(".PP\n{}\n", roff(page.closing));
  return text + fmt::format(".SS Examples\n.nf\n{}.fi\n", roff(examples_text(page.examples, 72)));
}

}  // namespace moetune
