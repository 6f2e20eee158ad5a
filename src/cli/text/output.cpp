// --format, and text of numbers.
#include "cli/text/output.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/units.h"
#include "cli/text/headed_tables.h"

namespace moetune {
namespace {

std::string word_of(Format format) {
  constexpr const char* kWords[] = {"text", "markdown", "json", "csv"};
  return kWords[static_cast<size_t>(format)];
}

}  // namespace

void declare_format(OptionSet& set, std::string& word, const std::vector<Format>& known) {
  word = word_of(known.front());
  const std::vector<std::string> words = mapped(known, word_of);
  set.value("--format", word, "WORD", fmt::format("On standard output: {}", fmt::join(words, ", ")), one_of(words));
}

Format parse_format(const std::string& word, const std::vector<Format>& known) {
  return known[place_of_word("--format", word, mapped(known, word_of))];
}

std::string table_text(const Grid& grid, Format format, const Terminal& terminal) {
  return format == Format::csv ? csv(grid) : grid_text(grid, style_of(format, terminal));
}

void keep_in_spite(const Terminal& terminal, const std::function<void()>& report) {
  try {
    report();
  } catch (const Error& error) {
    warn(terminal, error.what());
  }
}

std::string rate_text(double per_second, const std::string& unit) {
  const bool tera = per_second >= 1e12;
  return fmt::format("{:.4g} {}{}/s", per_second / (tera ? 1e12 : 1e9), tera ? "T" : "G", unit);
}

std::string cells_done(size_t done, size_t asked) {
  const std::string all = counted(asked, "cell");
  return done < asked ? fmt::format("{} of {}", done, all) : all;
}

std::vector<Column> figures_columns() {
  return {{"rows", true}, {"active", true}, {"max/mean", true}, {"CV", true}, {"effective", true}};
}

std::vector<std::string> figures_row(const RoutingFigures& figures, int64_t experts) {
  return {fmt::format("{}", figures.rows), fmt::format("{}/{}", figures.active_experts, experts),
          fmt::format("{:.2f}", figures.max_over_mean), fmt::format("{:.2f}", figures.cv),
          fmt::format("{:.1f}", figures.effective_experts)};
}

Grid pruned_grid(const std::map<std::string, int64_t>& reasons) {
  std::vector<std::pair<std::string, int64_t>> sorted(reasons.begin(), reasons.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  Grid grid{{{"pruned because"}, {"candidates", true}}, {}};
  for (const auto& [reason, count] : sorted) grid.rows.push_back({reason, fmt::format("{}", count)});
  return grid;
}

std::string shell_quoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-./:=,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string shell_line(const std::vector<std::string>& argv) {
  std::string line;
  for (const std::string& word : argv) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return line;
}

}  // namespace moetune
