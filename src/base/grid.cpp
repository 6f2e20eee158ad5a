// Escaping, padding, joining.
#include "base/grid.h"

#include <algorithm>

#include "base/text.h"

namespace moetune {
namespace {

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string padded(const std::string& text, size_t width, bool right) {
  const std::string space(width - static_cast<size_t>(display_width(text)), ' ');
  return right ? space + text : text + space;
}

}  // namespace

std::string markdown(const Grid& grid) {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : grid.columns) lines[0].push_back(markdown_text(column.title));
  for (const std::vector<std::string>& row : grid.rows) {
    lines.emplace_back();
    for (const std::string& text : row) lines.back().push_back(markdown_text(text));
  }
  std::vector<size_t> widths(grid.columns.size(), 3);
  for (const std::vector<std::string>& line : lines)
    for (size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], static_cast<size_t>(display_width(line[i])));
  std::string out;
  for (size_t l = 0; l < lines.size(); ++l) {
    for (size_t i = 0; i < widths.size(); ++i)
      out += (i == 0 ? "| " : " | ") + padded(lines[l][i], widths[i], grid.columns[i].right);
    out += " |\n";
    if (l > 0) continue;
    for (size_t i = 0; i < widths.size(); ++i)
      out += (i == 0 ? "| " : " | ") + std::string(widths[i] - 1, '-') + (grid.columns[i].right ? ":" : "-");
    out += " |\n";
  }
  return out;
}

std::string fitted(const Grid& grid, int columns) {
  std::string wide = markdown(grid);
  if (columns <= 0 || grid.columns.size() < 3 || display_width(wide.substr(0, wide.find('\n'))) <= columns) return wide;
  size_t width = 0;
  for (size_t i = 1; i < grid.columns.size(); ++i)
    width = std::max(width, static_cast<size_t>(display_width(grid.columns[i].title)));
  std::string out;
  for (const std::vector<std::string>& row : grid.rows) {
    out += row[0] + "\n";
    for (size_t i = 1; i < row.size(); ++i)
      if (!row[i].empty()) out += "  " + padded(grid.columns[i].title, width, false) + "  " + row[i] + "\n";
  }
  return out;
}

std::string csv(const Grid& grid) {
  std::string out;
  for (size_t i = 0; i < grid.columns.size(); ++i) out += (i ? "," : "") + quoted(grid.columns[i].title);
  out += "\n";
  for (const std::vector<std::string>& row : grid.rows) {
    for (size_t i = 0; i < row.size(); ++i) out += (i ? "," : "") + quoted(row[i]);
    out += "\n";
  }
  return out;
}

std::string markdown_text(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '|') out += '\\';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out;
}

std::string cut_short(std::string_view fault) {
  return fault.empty() ? "" : "\nCut short: " + markdown_text(fault) + "\n";
}

int display_width(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace moetune
