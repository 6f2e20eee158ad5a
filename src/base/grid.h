// Columns of text as Markdown and as CSV. Knows nothing of what they show.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

struct Column {
  std::string title;
  bool right = false;  // numbers
};

struct Grid {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // each as long as columns
};

/// Markdown with aligned columns, so that it reads as plain text too. Ends with a newline.
std::string markdown(const Grid& grid);

/// The same, or, where three and more columns are wider than `columns` (0 = as wide as it takes), a row after another:
/// its first text, then a line for each further text that is not empty.
std::string fitted(const Grid& grid, int columns);

/// RFC 4180 with \n line ends.
std::string csv(const Grid& grid);

/// A printable text that can't break a Markdown table: there a '|' ends the cell and a line break the row.
std::string markdown_text(std::string_view text);

/// What a Markdown report of a run that ended early ends with: `fault` in a paragraph; nothing for an empty one.
std::string cut_short(std::string_view fault);

/// Columns that a text takes on a terminal: one a code point.
int display_width(std::string_view text);

}  // namespace moetune
