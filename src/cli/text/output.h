// How results read: formats on standard output, and numbers and findings as every table words them. The files that
// commands write: see files.h.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/text/grid.h"
#include "cli/options/options.h"
#include "cli/text/console.h"
#include "record/table/table.h"

namespace moetune {

enum class Format { text, markdown, json, csv };

/// Declares --format with the words that this command knows; the first is the default.
void declare_format(OptionSet& set, std::string& word, const std::vector<Format>& known);
Format parse_format(const std::string& word, const std::vector<Format>& known);

/// A table for standard output in any format but JSON. Text fits the terminal, or 80 columns; Markdown and CSV stay
/// what they are.
std::string table_text(const Grid& grid, Format format, const Terminal& terminal);

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

}  // namespace moetune
