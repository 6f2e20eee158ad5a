// The sections of a report, as an HTML page and as Markdown.
#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "base/embedded.h"
#include "base/group.h"
#include "base/text/text.h"
#include "report/report_content.h"

namespace moetune {
namespace {

constexpr size_t kLargePage = 2'000'000, kSmallSection = 20'000;  // bytes; the small ones of a large page stay open
constexpr int kShortText = 24, kLongText = 64;  // a longer text makes its column wider, on narrow screens or everywhere

std::vector<ReportSection> sections_of(const ReportInput& input) {
  std::vector<ReportSection> sections;
  if (input.table)
    sections = {summary_section(input), results_section(input), roofline_section(input),
                routing_section(input), block_section(input),   knob_section(input),
                search_section(input),  failure_section(input), clock_section(input)};
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
  for (const Figure& figure : part.figures) {
    if (figure.svg.empty()) continue;
    ++shown;
    out += fmt::format("<figure><figcaption>{}</figcaption>{}</figure>\n", html_line(figure.caption), figure.svg);
  }
  if (shown == 0) return "";
  std::string legend;
  for (size_t style = 0; style < part.legend.size(); ++style)
    legend += fmt::format("<li>{}{}</li>", svg_sample(static_cast<int>(style)), html_text(part.legend[style]));
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

// --- packed text: greedy copies of the last place that began with the same bytes (LZ77: Ziv and Lempel 1977) ---

constexpr size_t kLeast = 8, kBase = 60;
constexpr size_t kMost = kLeast + kBase * kBase - 1, kFarthest = kBase * kBase * kBase - 1;
constexpr size_t kSlots = size_t{1} << 16;

void add_number(std::string& out, size_t number, int digits) {
  for (size_t unit = digits == 2 ? kBase : kBase * kBase; unit > 0; unit /= kBase)
    out += static_cast<char>('A' + number / unit % kBase);
}

bool begins_character(std::string_view text, size_t at) { return at == text.size() || (text[at] & 0xc0) != 0x80; }

// How many bytes at `from` are those at `at`: whole characters, because the packed text is UTF-8 too.
size_t common(std::string_view text, size_t from, size_t at) {
  size_t length = 0;
  while (length < kMost && at + length < text.size() && text[from + length] == text[at + length]) ++length;
  while (!begins_character(text, at + length)) --length;
  return length;
}

// UTF-8 `text` with repetitions replaced by copies: "~", the length less 8 in two digits, how far back in three; a
// digit of base 60 is a character from 'A' on, and "~~" is "~". Holds no "</script", if `text` holds none.
std::string packed(std::string_view text) {
  std::string out;
  std::vector<size_t> last(kSlots, std::string_view::npos);  // where a text with this hash began
  for (size_t at = 0, next = 0; at < text.size(); at = next) {
    const auto slot = [&](size_t place) -> size_t& {
      return last[std::hash<std::string_view>()(text.substr(place, kLeast)) % kSlots];
    };
    const size_t from = slot(at);
    const bool near = begins_character(text, at) && from != std::string_view::npos && at - from <= kFarthest;
    const size_t length = near ? common(text, from, at) : 0;
    next = at + std::max<size_t>(length >= kLeast ? length : 1, 1);
    if (length >= kLeast) {
      out += '~', add_number(out, length - kLeast, 2), add_number(out, at - from, 3);
    } else {
      out += text[at] == '~' ? "~~" : std::string(1, text[at]);
    }
    for (size_t place = at; place < next; ++place) slot(place) = place;
  }
  return out;
}

// The script unpacks it when it is opened.
std::string folded(const std::string& html) {
  return fmt::format("<details><summary>Charts and tables</summary><script type=\"text/plain\">{}</script></details>\n",
                     packed(html));
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
  const std::vector<ReportSection> sections = sections_of(input);
  std::vector<std::string> inner;
  size_t bytes = 0;
  for (const ReportSection& section : sections) bytes += inner.emplace_back(html_parts(section)).size();
  std::string links, body;
  if (bytes > kLargePage)
    body =
        "<noscript><p>A script unpacks the sections of this large page. Where scripts are off, use moetune report "
        "--format markdown: it has the same tables.</p></noscript>\n";
  for (size_t i = 0; i < sections.size(); ++i) {
    const std::string title = html_text(sections[i].title);
    links += fmt::format("<a href=\"#s{}\">{}</a>", i, title);
    const bool fold = bytes > kLargePage && inner[i].size() > kSmallSection;
    body +=
        fmt::format("<section id=\"s{}\">\n<h2>{}</h2>\n{}</section>\n", i, title, fold ? folded(inner[i]) : inner[i]);
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
