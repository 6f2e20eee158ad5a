// How results read: formats on standard output, numbers and findings as every table words them, and tables under
// headings, of a layer and of a cell of it. In text they fit in 80 columns. The files that commands write: see files.h.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/group.h"
#include "base/text/grid.h"
#include "cli/options/options.h"
#include "cli/text/console.h"
#include "record/table/table.h"

namespace moetune {

/// Of what a command prints on standard output.
enum class OutputFormat { text, markdown, json, csv };

/// --format; csv only where the command prints rows.
void declare_format(OptionSet& set, OutputFormat& format, bool has_csv = false);

/// What a command writes for programs: the schema of this kind, the tool, and the rest.
Json document(std::string_view kind, const std::vector<std::string>& argv, const Json& rest);

/// Prints the document where the format is JSON, else `text`; behind plain text the answer in a sentence, where there
/// is one.
void print_document(OutputFormat format, const Json& document, const std::string& text, const std::string& answer = {});

/// Runs `report`, which saves results before the command ends with an error. Its own errors become warnings, so that
/// the first error stays the command's.
void keep_in_spite(const Terminal& terminal, const std::function<void()>& report);

/// "3.87 TB/s", "550 GFLOP/s".
std::string rate_text(double per_second, const std::string& unit);

/// "3 cells", "2 of 3 cells": how many of those asked for are done.
std::string cells_done(size_t done, size_t asked);

/// The realised routing: rows, active experts, max/mean, CV, effective experts (columns to append to a grid).
std::vector<Column> figures_columns();
std::vector<std::string> figures_row(const RoutingFigures& figures, int64_t experts);

/// Why candidates were pruned, the most frequent reason first.
Grid pruned_grid(const std::map<std::string, int64_t>& reasons);

/// The argument as a shell takes it, quoted where needed.
std::string shell_quoted(const std::string& word);
std::string shell_line(const std::vector<std::string>& argv);

/// How people read a result: as text in so many columns (0 = as wide as it takes), or as Markdown.
struct Style {
  OutputFormat format = OutputFormat::text;
  int columns = 0;
  bool verbose = false;
};
/// Text fits the terminal, or 80 columns where there is none and nothing is `verbose`.
Style style_of(OutputFormat format, const Terminal& terminal, bool verbose = false);

/// Tables one after another; a line of a heading that the table before had too is not repeated. Markdown has '#' in
/// front of headings.
std::string headed_tables_text(const std::vector<HeadedTable>& tables, const Style& style);

/// markdown(grid), or for text fitted(grid, columns).
std::string grid_text(const Grid& grid, const Style& style);

/// "- item" a line, escaped for the format and broken between words. An empty line comes first; nothing for no items.
std::string bullets(const std::vector<std::string>& items, const Style& style);

/// A sentence in lines, with a line's end.
std::string paragraph(const std::string& sentence, const Style& style);

/// The headings of a cell: its layer, and "64 tokens, zipf:1, seed 3".
std::vector<std::string> cell_heading(const Cell& cell);

/// Items with a `cell`, grouped by their layer, in the order of their first appearance. The items must outlive it.
template <typename Item>
std::vector<std::vector<const Item*>> by_layer(const std::vector<Item>& items) {
  return grouped_by(pointers_to(items), [](const Item* item) -> const Shape& { return item->cell.shape; });
}

}  // namespace moetune
