// The sections of a report, as an HTML page and as Markdown.
#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/embedded.h"
#include "base/group.h"
#include "base/text/text.h"
#include "report/report_content.h"

namespace moetune {
namespace {

constexpr size_t kMaxCells = 500;               // of a page with charts and all tables
constexpr int kShortText = 24, kLongText = 64;  // a longer text makes its column wider, on narrow screens or everywhere

// The results of many cells without charts and what is shown on demand: a browser would be slow with all of it.
std::vector<ReportSection> short_sections(const ReportInput& input) {
  std::vector<ReportSection> sections = {summary_section(input), results_section(input)};
  for (ReportSection& section : sections) {
    std::erase_if(section.parts, [](const ReportPart& part) { return part.folded; });
    for (ReportPart& part : section.parts) part.figures.clear();
  }
  sections[0].parts[0].paragraphs.push_back(
      fmt::format("A page of over {} cells has one chart, and no sections on routing, knobs, the search and faults: "
                  "moetune report --format markdown has their tables.",
                  kMaxCells));
  return sections;
}

std::vector<ReportSection> sections_of(const ReportInput& input) {
  std::vector<ReportSection> sections;
  if (input.table)
    sections = {summary_section(input), results_section(input), routing_section(input), block_section(input),
                knob_section(input),    search_section(input),  failure_section(input)};
  if (input.history) sections.push_back(history_section(input));
  return sections;
}

std::string title_of(const ReportInput& input) {
  if (input.table) return fmt::format("moetune report: {} ({})", input.table->device.name, name(input.table->regime));
  const auto machine = [](const HistoryRun& run) { return fmt::format("{} ({})", run.device, run.regime); };
  const auto machines = grouped_by(*input.history, machine);
  return "moetune report: " + (machines.size() == 1 ? machine(machines[0][0]) : "past checks on several devices");
}

// Without columns that are empty in every row.
Grid shown(const Grid& grid) {
  Grid kept{{}, std::vector<std::vector<std::string>>(grid.rows.size())};
  for (size_t c = 0; c < grid.columns.size(); ++c) {
    if (std::ranges::all_of(grid.rows, [&](const auto& row) { return row[c].empty(); })) continue;
    kept.columns.push_back(grid.columns[c]);
    for (size_t r = 0; r < grid.rows.size(); ++r) kept.rows[r].push_back(grid.rows[r][c]);
  }
  return kept;
}

// --- HTML ---

// Lines may break after a slash, because ids of cells are long.
std::string html_line(const std::string& text) {
  std::string out;
  for (const char c : html_text(text)) out += c == '/' ? std::string("/<wbr>") : std::string(1, c);
  return out;
}

// How a column is laid out: numbers to the right, long texts in several lines.
std::string html_class(const Grid& grid, size_t column) {
  if (grid.columns[column].right) return " class=\"right\"";
  int width = 0;
  for (const std::vector<std::string>& row : grid.rows) width = std::max(width, display_width(row[column]));
  return width > kLongText ? " class=\"long\"" : width > kShortText ? " class=\"name\"" : "";
}

std::string html_grid(const ReportPart& part) {
  const bool map = !part.shades.empty();
  const Grid grid = map ? part.grid : shown(part.grid);
  if (grid.rows.empty()) return "";
  std::vector<std::string> classes;
  std::string out =
      fmt::format("<div class=\"scroll\" tabindex=\"0\"><table class=\"{}\"><thead><tr>", map ? "map" : "sortable");
  for (size_t c = 0; c < grid.columns.size(); ++c) {
    classes.push_back(map ? "" : html_class(grid, c));
    out += fmt::format("<th scope=\"col\"{}>{}</th>", classes[c], html_text(grid.columns[c].title));
  }
  out += "</tr></thead><tbody>\n";
  for (size_t r = 0; r < grid.rows.size(); ++r) {
    out += "<tr>";
    for (size_t c = 0; c < grid.columns.size(); ++c) {
      const int shade = map ? part.shades[r][c] : -1;
      out += fmt::format("<td{}>{}</td>", shade >= 0 ? fmt::format(" class=\"h{}\"", shade) : classes[c],
                         html_line(grid.rows[r][c]));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string html_figures(const ReportPart& part) {
  size_t shown = 0;
  std::string out;
  std::map<int, std::string> names;  // by their styles
  for (const Figure& figure : part.figures) {
    if (figure.svg.empty()) continue;
    ++shown;
    for (const auto& [style, name] : figure.legend) names.emplace(style, name);
    out += fmt::format("<figure><figcaption>{}</figcaption>{}</figure>\n", html_line(figure.caption), figure.svg);
  }
  if (shown == 0) return "";
  std::string legend;
  for (const auto& [style, name] : names) legend += fmt::format("<li>{}{}</li>", svg_sample(style), html_text(name));
  if (!legend.empty()) legend = fmt::format("<ul class=\"legend\">{}</ul>\n", legend);
  return fmt::format("{}<div class=\"figures{}\">\n{}</div>\n", legend, shown == 1 ? " one" : "", out);
}

std::string html_part(const ReportPart& part) {
  std::string body;
  for (const std::string& paragraph : part.paragraphs) body += fmt::format("<p>{}</p>\n", html_line(paragraph));
  body += html_figures(part) + html_grid(part);
  const std::string heading = html_line(part.heading);
  if (part.folded) return fmt::format("<details><summary>{}</summary>\n{}</details>\n", heading, body);
  if (!heading.empty()) body = fmt::format("<h3>{}</h3>\n{}", heading, body);
  return part.shades.empty() ? body : fmt::format("<div class=\"map\">{}</div>\n", body);
}

// Heat maps that follow one another stand side by side.
std::string html_parts(const ReportSection& section) {
  std::string out;
  bool maps = false;
  for (const ReportPart& part : section.parts) {
    if (maps != !part.shades.empty()) out += maps ? "</div>\n" : "<div class=\"maps\">\n";
    maps = !part.shades.empty();
    out += html_part(part);
  }
  return out + (maps ? "</div>\n" : "");
}

// The policy keeps the page from asking for anything outside it.
constexpr const char* kPage = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="moetune report">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
 script-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>{}</title>
<style>
{}</style>
</head>
<body>
<header>
<h1>{}</h1>
{}<nav aria-label="Sections">{}</nav>
</header>
<main>
{}</main>
<script>
{}</script>
</body>
</html>
)";

std::string file(const char* name) { return std::string(embedded_file(fmt::format("src/report/{}", name)).value()); }

// --- Markdown ---

std::string markdown_part(const ReportPart& part) {
  std::string out;
  if (!part.heading.empty()) out += fmt::format("### {}\n\n", markdown_text(part.heading));
  for (const std::string& paragraph : part.paragraphs) out += markdown_text(paragraph) + "\n\n";
  if (!part.grid.rows.empty()) out += markdown(shown(part.grid)) + "\n";
  return out;
}

}  // namespace

std::string report_html(const ReportInput& input) {
  const bool large = input.table && input.table->entries.size() > kMaxCells;
  const std::vector<ReportSection> sections = large ? short_sections(input) : sections_of(input);
  std::string links, body;
  for (size_t i = 0; i < sections.size(); ++i) {
    const std::string title = html_text(sections[i].title);
    links += fmt::format("<a href=\"#s{}\">{}</a>", i, title);
    body += fmt::format("<section id=\"s{}\">\n<h2>{}</h2>\n{}</section>\n", i, title, html_parts(sections[i]));
  }
  const std::string title = html_text(title_of(input));
  return fmt::format(kPage, title, file("report.css"), title, html_part(opening(input)), links, body,
                     file("report.js"));
}

std::string report_markdown(const ReportInput& input) {
  std::string out = fmt::format("# {}\n\n", markdown_text(title_of(input))) + markdown_part(opening(input));
  for (const ReportSection& section : sections_of(input)) {
    out += fmt::format("## {}\n\n", markdown_text(section.title));
    for (const ReportPart& part : section.parts) out += markdown_part(part);
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

}  // namespace moetune
