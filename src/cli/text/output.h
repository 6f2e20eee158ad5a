// Formats on standard output. The files that commands write: see files.h.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/text/grid.h"
#include "cli/text/console.h"
#include "cli/options/options.h"

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

}  // namespace moetune
