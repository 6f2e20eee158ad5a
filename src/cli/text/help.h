// The layout of --help for a given width, and of the manual page. Their words come from options.cpp.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

/// A left column and its words: an option, or a command.
struct HelpLine {
  std::string name, text;
};

struct HelpSection {
  std::string title;
  std::vector<HelpLine> lines;
};

/// The help of the program or of a command.
struct HelpPage {
  std::string summary, usage;
  std::vector<HelpSection> sections;
  std::string closing = {};   // a paragraph behind the sections, or nothing
  std::string_view examples;  // command lines
};

/// Columns of --help: those of the terminal, but 40 to 100; 80 where `terminal_columns` is 0 (no terminal).
int help_width(int terminal_columns);

/// "Title:" and its lines, with one left column for all sections: names that don't fit it stand on a line of their own.
std::string section_text(const std::vector<HelpSection>& sections, int width);

/// Command lines, one a line; a long one continues after a backslash, so that it can be pasted.
std::string examples_text(std::string_view examples, int width);

std::string page_text(const HelpPage& page, int width);

/// A part of a manual page, for man.
std::string page_roff(const std::string& title, const HelpPage& page);

}  // namespace moetune
