// Columns of text as Markdown and for a terminal. Knows nothing of what they show.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

struct Column {
  std::string title;
  bool right = false;  // numbers
  int most = 0;        // characters of a text in `fitted`, which shortens longer ones; 0 = any number
};

struct Grid {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // each as long as columns
  size_t naming = 1;                           // columns that name a row: the first ones
  size_t bold = 0;                             // rows whose last text is bold in Markdown: the first ones
};

/// A table and its heading: lines from the general to the special, such as the layer, then the cell.
struct HeadedTable {
  std::vector<std::string> heading;
  Grid grid;
};

/// A grid without rows, of titles between '|'; '>' after a title: the column holds numbers. "cell|time>|winner".
Grid titled(std::string_view titles);

/// Markdown with aligned columns, so that it reads as plain text too; the texts are markdown_text. Ends with a newline.
std::string markdown(const Grid& grid);

/// The same for a terminal, where the texts are one_line, in at most `columns` columns (0 = as wide as it takes). Where
/// the table is wider, texts that aren't numbers are broken between words into rows below; where words are too long for
/// that and there are three columns and more, rows are written one after another: what names it ("16 tokens, uniform"),
/// then a line for each further text that is not empty.
std::string fitted(const Grid& grid, int columns);

/// The words of a text in lines of at most `width` columns (0 = one line); a longer word gets a line to itself. "12 %"
/// is one word.
std::vector<std::string> lines_of(std::string_view text, int width);

/// A printable text that can't break a Markdown table: there a '|' ends the cell and a line break the row.
std::string one_line(std::string_view text);

/// For every text in Markdown: the same, without tabs, with what could begin a heading, an element, a link, code,
/// mathematics or an emphasis escaped. Brackets that are no link and the '_' inside block_m stay readable.
std::string markdown_text(std::string_view text);

/// The last paragraph of a report of a run that ended early: it says `fault` as `shown` makes it: markdown_text, or
/// one_line for a terminal. "" without a fault.
std::string cut_short(std::string_view fault, std::string (*shown)(std::string_view) = markdown_text);

/// Columns that a text takes on a terminal: one per code point.
int display_width(std::string_view text);

/// `text` cut in the middle to `width` columns ("abc…xyz").
std::string shortened(std::string_view text, int width);

}  // namespace moetune
