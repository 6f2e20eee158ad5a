// Exports for people and spreadsheets, and the pieces that they are made of.
#pragma once
#include <string>
#include <vector>

#include "table/exporter.h"

namespace moetune {

/// One row an entry, the same columns in every table; quoting after RFC 4180, lines end in a line feed.
Export export_csv(const TunedTable& table);

/// Tables by layer, with uncertainty.
Export export_markdown(const TunedTable& table);

/// A Markdown table, padded so that it reads as plain text too. `align` has a character a column: 'l' or 'r'.
std::string markdown_table(const std::string& align, const std::vector<std::vector<std::string>>& rows);

}  // namespace moetune
