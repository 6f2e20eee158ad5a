// File descriptors 1 and 2, and what they lead to.
#include "cli/text/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/system/file.h"
#include "base/text/grid.h"
#include "base/text/text.h"

namespace moetune {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int columns_of(int fd) {
  const int asked = std::atoi(std::string(environment("COLUMNS")).c_str());
  if (asked > 0) return asked;
  struct winsize size {};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// The runner of GitHub Actions obeys lines that begin with "::" or "##[", so a name with a line break could give it
// commands: a space makes them plain text.
std::string without_commands(std::string safe) {
  if (environment("GITHUB_ACTIONS") != "true") return safe;
  for (size_t line = 0; line < safe.size(); line = std::min(safe.find('\n', line), safe.size() - 1) + 1) {
    const size_t begin = safe.find_first_not_of(" \t", line);
    if (begin == std::string::npos) break;
    if (safe.compare(begin, 2, "::") == 0 || safe.compare(begin, 3, "##[") == 0) safe.insert(begin + 1, " ");
  }
  return safe;
}

void print_sentence(const Terminal& terminal, std::string_view program, Tone tone, std::string_view word,
                    std::string_view sentence) {
  const std::vector<std::string> lines =
      lines_of(fmt::format("{}{} {}", program, word, printable(sentence)), std::max(0, terminal.error_columns - 2));
  std::string text = fmt::format("{}\n", fmt::join(lines, "\n  "));
  text.replace(text.find(word), word.size(), colored(terminal, tone, word));
  write_all(STDERR_FILENO, without_commands(text));
}

}  // namespace

Terminal look_at_terminal(const std::string& color) {
  Terminal terminal;
  terminal.is_terminal = ::isatty(STDERR_FILENO) && environment("TERM") != "dumb";
  terminal.columns = columns_of(STDERR_FILENO);
  terminal.output_columns = ::isatty(STDOUT_FILENO) ? columns_of(STDOUT_FILENO) : 0;
  terminal.error_columns = ::isatty(STDERR_FILENO) || !environment("COLUMNS").empty() ? terminal.columns : 0;
  place_of_word("--color", color, std::vector<std::string>{"auto", "always", "never"});
  terminal.color = color == "always" || (color == "auto" && terminal.is_terminal && environment("NO_COLOR").empty());
  return terminal;
}

void print(std::string_view text) {
  const int error = write_all(STDOUT_FILENO, without_commands(printable(text)));
  if (error != 0 && error != EPIPE)
    throw machine_error(fmt::format("cannot write to standard output: {}", std::strerror(error)));
}

void print_to_stderr(std::string_view text) { write_all(STDERR_FILENO, without_commands(printable(text))); }

void print_moving(std::string_view line) { write_all(STDERR_FILENO, "\r\033[K" + printable(line)); }

std::string colored(const Terminal& terminal, Tone tone, std::string_view text) {
  if (!terminal.color) return std::string(text);
  constexpr const char* kCodes[] = {"1;31", "1;33", "36", "1", "32"};  // of the enumerators
  return fmt::format("\033[{}m{}\033[0m", kCodes[static_cast<size_t>(tone)], text);
}

void print_error(const Terminal& terminal, std::string_view sentence, std::string_view hint) {
  print_sentence(terminal, "moetune: ", Tone::error, "error:", sentence);
  if (!hint.empty()) print_sentence(terminal, "", Tone::hint, "hint:", hint);
}

void warn(const Terminal& terminal, std::string_view sentence) {
  print_sentence(terminal, "moetune: ", Tone::warning, "warning:", sentence);
}

void note(const Terminal& terminal, std::string_view sentence) {
  print_sentence(terminal, "moetune: ", Tone::note, "note:", sentence);
}

}  // namespace moetune
