// --format, text of numbers, headings, lists, and cells as rows.
#include "cli/text/output.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text/units.h"

namespace moetune {
namespace {

constexpr int kColumns = 80;

}  // namespace

void declare_format(OptionSet& set, OutputFormat& format, bool has_csv) {
  std::vector<std::string> words = {"text", "markdown", "json"};  // as the enum has them
  if (has_csv) words.emplace_back("csv");
  set.value(
      "--format",
      [&format, words](const std::string& word, const std::string& option) {
        format = static_cast<OutputFormat>(place_of_word(option, word, words));
      },
      "WORD", fmt::format("On standard output: {} [text]", fmt::join(words, ", ")), one_of(words));
}

Json document(std::string_view kind, const std::vector<std::string>& argv, const Json& rest) {
  Json json = {{"schema", fmt::format("moetune.{}/1", kind)}, {"tool", tool_json(argv)}};
  json.update(rest);
  return json;
}

void print_document(OutputFormat format, const Json& document, const std::string& text, const std::string& answer) {
  print(format == OutputFormat::json ? pretty_json(document) : text);
  if (format == OutputFormat::text && !answer.empty()) print("\n" + answer + "\n");
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
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return a.second > b.second; });
  Grid grid{{{"pruned because"}, {"candidates", true}}, {}};
  for (const auto& [reason, count] : sorted) grid.rows.push_back({reason, fmt::format("{}", count)});
  return grid;
}

std::string shell_quoted(const std::string& word) {
  const bool plain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-./:=,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string shell_line(const std::vector<std::string>& argv) {
  return fmt::format("{}", fmt::join(mapped(argv, shell_quoted), " "));
}

std::string headed_tables_text(const std::vector<HeadedTable>& tables, const Style& style) {
  std::string out;
  std::vector<std::string> before;
  for (const auto& [heading, grid] : tables) {
    if (!out.empty()) out += "\n";
    const auto known = static_cast<size_t>(std::ranges::mismatch(heading, before).in1 - heading.begin());
    for (size_t i = known; i < heading.size(); ++i)
      if (style.format == OutputFormat::markdown)
        out += fmt::format("{} {}\n", std::string(i + 2, '#'), markdown_text(heading[i]));
      else
        out += paragraph(heading[i], style);
    out += (known < heading.size() ? "\n" : "") + grid_text(grid, style);
    before = heading;
  }
  return out;
}

std::string grid_text(const Grid& grid, const Style& style) {
  return style.format == OutputFormat::markdown ? markdown(grid) : fitted(grid, style.columns);
}

Style style_of(OutputFormat format, const Terminal& terminal, bool verbose) {
  const int columns = terminal.output_columns > 0 || verbose ? terminal.output_columns : kColumns;
  return {format, format == OutputFormat::text ? columns : 0, verbose};
}

std::string bullets(const std::vector<std::string>& items, const Style& style) {
  const auto shown = style.format == OutputFormat::markdown ? markdown_text : one_line;
  std::string out;
  for (const std::string& item : items) {
    const char* begin = "- ";
    for (const std::string& line : lines_of(shown(item), std::max(style.columns - 2, 0))) {
      out += begin + line + "\n";
      begin = "  ";
    }
  }
  return out.empty() ? "" : "\n" + out;
}

std::string paragraph(const std::string& sentence, const Style& style) {
  return fmt::format("{}\n", fmt::join(lines_of(sentence, style.columns), "\n"));
}

std::vector<std::string> cell_heading(const Cell& cell) { return {title(cell.shape), cell_title(cell)}; }

}  // namespace moetune
