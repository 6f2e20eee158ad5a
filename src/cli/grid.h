// A table for people and for spreadsheets: columns of text. Knows nothing of what it shows.
#pragma once
#include <string>
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

/// Markdown with aligned columns; a '|' inside a text is escaped. Ends with a newline.
std::string markdown(const Grid& grid);

/// RFC 4180 with \n line ends.
std::string csv(const Grid& grid);

}  // namespace moetune
