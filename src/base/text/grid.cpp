// Escaping, padding, joining.
#include "base/text/grid.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/group.h"
#include "base/text/text.h"
#include "base/text/units.h"

namespace moetune {
namespace {

std::string padded(const std::string& text, size_t width, bool right) {
  const std::string space(width - static_cast<size_t>(display_width(text)), ' ');
  return right ? space + text : text + space;
}

int width_of(std::string_view text) { return display_width(one_line(text)); }

int longest_word(std::string_view text) {
  int longest = 0;
  for (const std::string& line : lines_of(text, 1)) longest = std::max(longest, width_of(line));
  return longest;
}

// Widths of the columns in a table of at most `columns` characters: the widest one shrinks first. Empty where words are
// too long.
std::vector<int> widths_within(const Grid& grid, int columns) {
  std::vector<int> widths, least;
  for (size_t i = 0; i < grid.columns.size(); ++i) {
    widths.push_back(std::max(3, width_of(grid.columns[i].title)));
    least.push_back(widths[i]);
    for (const std::vector<std::string>& row : grid.rows) {
      widths[i] = std::max(widths[i], width_of(row[i]));
      least[i] = std::max(least[i], grid.columns[i].right ? width_of(row[i]) : longest_word(row[i]));
    }
  }
  int total = 1;
  for (const int width : widths) total += 3 + width;
  for (; total > columns; --total) {
    int* widest = nullptr;
    for (size_t i = 0; i < widths.size(); ++i)
      if (widths[i] > least[i] && (widest == nullptr || widths[i] > *widest)) widest = &widths[i];
    if (widest == nullptr) return {};
    --*widest;
  }
  return widths;
}

Grid broken(const Grid& grid, const std::vector<int>& widths) {
  Grid result{grid.columns, {}};
  for (const std::vector<std::string>& row : grid.rows) {
    const size_t first = result.rows.size();
    for (size_t i = 0; i < row.size(); ++i) {
      const std::vector<std::string> lines = lines_of(row[i], grid.columns[i].right ? 0 : widths[i]);
      result.rows.resize(std::max(result.rows.size(), first + lines.size()), std::vector<std::string>(row.size()));
      for (size_t l = 0; l < lines.size(); ++l) result.rows[first + l][i] = lines[l];
    }
  }
  return result;
}

// "16 tokens, uniform": the columns that name a row.
std::string name_of(const Grid& grid, const std::vector<std::string>& row) {
  std::string name;
  for (size_t i = 0; i < grid.naming; ++i) {
    if (row[i].empty()) continue;
    name += (name.empty() ? "" : ", ") + row[i];
    if (!grid.columns[i].right) continue;
    name += " " + grid.columns[i].title;
    if (row[i] == "1" && name.ends_with('s')) name.pop_back();
  }
  return name;
}

// Rows written one below another: see `fitted`.
std::string stacked(const Grid& grid, int columns) {
  size_t width = 0;
  for (size_t i = grid.naming; i < grid.columns.size(); ++i)
    width = std::max(width, static_cast<size_t>(display_width(grid.columns[i].title)));
  const int room = std::max(1, columns - static_cast<int>(width) - 4);
  std::string out;
  for (const std::vector<std::string>& row : grid.rows) {
    if (const std::string name = name_of(grid, row); !name.empty()) out += name + "\n";
    for (size_t i = grid.naming; i < row.size(); ++i) {
      if (row[i].empty()) continue;
      std::string title = grid.columns[i].title;
      for (const std::string& line : lines_of(row[i], room))
        out += "  " + padded(std::exchange(title, ""), width, false) + "  " + line + "\n";
    }
  }
  return out;
}

std::string table_of(const Grid& grid, std::string (*shown)(std::string_view)) {
  std::vector<std::vector<std::string>> lines = {mapped(grid.columns, &Column::title)};
  std::ranges::copy(grid.rows, std::back_inserter(lines));
  for (std::vector<std::string>& line : lines) line = mapped(line, shown);
  if (shown == markdown_text)
    for (size_t i = 1; i <= grid.bold; ++i) lines[i].back() = "**" + lines[i].back() + "**";
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

bool begins_code_point(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

size_t byte_of(std::string_view text, int index) {
  size_t at = 0;
  for (; at < text.size(); ++at)
    if (begins_code_point(text[at]) && index-- == 0) break;
  return at;
}

}  // namespace

Grid titled(std::string_view titles) {
  Grid grid;
  for (std::string& title : split(titles, '|')) {
    const bool right = title.ends_with('>');
    if (right) title.pop_back();
    grid.columns.push_back({std::move(title), right});
  }
  return grid;
}

std::vector<std::string> lines_of(std::string_view text, int width) {
  if (width <= 0) return {std::string(text)};
  std::vector<std::string> lines = {""};
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(' ', begin), text.size());
    if (text.substr(end).starts_with(" %")) end = std::min(text.find(' ', end + 1), text.size());  // of the number
    const std::string_view word = text.substr(begin, end - begin);
    if (!lines.back().empty() && width_of(lines.back()) + 1 + width_of(word) > width) lines.emplace_back();
    lines.back().append(lines.back().empty() ? "" : " ").append(word);
    begin = end + 1;
  }
  return lines;
}

std::string markdown(const Grid& grid) { return table_of(grid, markdown_text); }

std::string fitted(const Grid& whole, int columns) {
  if (columns <= 0) return table_of(whole, one_line);
  Grid grid = whole;
  for (std::vector<std::string>& row : grid.rows)
    for (size_t i = 0; i < row.size(); ++i)
      if (const int most = grid.columns[i].most; most > 0) row[i] = shortened(row[i], most);
  const std::vector<int> widths = widths_within(grid, columns);
  if (!widths.empty()) return table_of(broken(grid, widths), one_line);
  return grid.columns.size() < 3 ? table_of(grid, one_line) : stacked(grid, columns);
}

std::string one_line(std::string_view text) { return replaced(printable(text), "|\n\r", {"\\|", " ", " "}); }

std::string markdown_text(std::string_view text) {
  const std::string safe = ' ' + printable(text) + "  ";  // each character has one before it and two behind it
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  const auto is_one_of = [](std::string_view set, char c) { return set.find(c) != std::string_view::npos; };
  std::string out;
  for (size_t i = 1; i + 2 < safe.size(); ++i) {
    const char c = safe[i], next = safe[i + 1];
    const bool emphasis = c == '_' && !(is_word(safe[i - 1]) && is_word(next));
    const bool link = c == ']' && is_one_of("([:", next), heading = c == '#' && i == 1;
    if (is_one_of("\\`*~$|", c) || emphasis || link || heading) out += '\\';
    const bool address = c == ':' && next == '/' && safe[i + 2] == '/';  // alone it is a link too
    const bool mention = c == '@' && is_word(next);  // GitHub notifies whom it names: a space without width ends it
    out += address ? "&#58;" : mention ? "@&#8203;" : replaced({&c, 1}, "&<>\n\t", {"&amp;", "&lt;", "&gt;", " ", " "});
  }
  return out;
}

std::string cut_short(std::string_view fault, std::string (*shown)(std::string_view)) {
  return fault.empty() ? "" : "\nCut short: " + shown(fault) + "\n";
}

int display_width(std::string_view text) { return static_cast<int>(std::ranges::count_if(text, begins_code_point)); }

std::string shortened(std::string_view text, int width) {
  const int whole = display_width(text);
  if (whole <= width) return std::string(text);
  if (width < 1) return "";
  const int head = (width - 1) / 2;
  const int tail = width - 1 - head;
  return fmt::format("{}…{}", text.substr(0, byte_of(text, head)), text.substr(byte_of(text, whole - tail)));
}

}  // namespace moetune
