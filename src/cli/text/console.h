// Where words go: results to standard output, everything else to standard error.
#pragma once
#include <string>
#include <string_view>

namespace moetune {

/// What standard error is, and how wide standard output.
struct Terminal {
  bool is_terminal = false;  // one that moves its cursor: not TERM=dumb
  int columns = 80;
  bool color = false;
  int output_columns = 0;  // of standard output where that is a terminal; 0 = as wide as it takes
  int error_columns = 0;   // of sentences on standard error where that is a terminal or COLUMNS is set; 0 likewise
};

/// `color` is auto, always or never (an Exit::request error otherwise). auto: on a terminal without NO_COLOR.
/// The width is $COLUMNS, else what the terminal says, else 80.
Terminal look_at_terminal(const std::string& color);

// What these write is made printable first: names and messages come from files and devices. Colours and the moving
// line alone reach a terminal as they are.

/// Writes results to standard output, all or an Exit::machine error (a full disk). A reader that went away (`| head`)
/// is not an error: the rest is dropped.
void print(std::string_view text);

/// Writes to standard error; never fails.
void print_to_stderr(std::string_view text);

/// Puts `line` in place of the line that the cursor of standard error stands on; an empty one takes it away.
void print_moving(std::string_view line);

enum class Tone { error, warning, hint, note, good };
/// `text` in the colour of a tone, where the terminal has colours.
std::string colored(const Terminal& terminal, Tone tone, std::string_view text);

/// "moetune: error: ..." on standard error, and below it "hint: ..." where there is one.
void print_error(const Terminal& terminal, std::string_view sentence, std::string_view hint);

/// "moetune: warning: ..." on standard error.
void warn(const Terminal& terminal, std::string_view sentence);
void note(const Terminal& terminal, std::string_view sentence);

}  // namespace moetune
