// Writes tables in other programs' formats. Files of servers: serving/serving.h. Exported kernels: kernels/.
#pragma once
#include <string>
#include <vector>

#include "record/table/table.h"

namespace moetune {

struct ExportedFile {
  std::string name;  // the file name that the other program looks for; "" = whatever the user asks for
  std::string text;
};

struct Export {
  std::vector<ExportedFile> files;
  std::vector<std::string> notes = {};  // for standard error: what was left out and why, what knobs mean there
};

/// RFC 4180 with line feeds at line ends: the columns of all rows, and the rows from `first` on. A column that some
/// rows lack stands behind that before it in the others.
std::string csv_text(const std::vector<Fields>& rows, size_t first = 0);
/// Appends the columns of a realised routing.
void add_figures(Fields& fields, const RoutingFigures& figures);

/// One row an entry, the same columns in every table; quoting after RFC 4180, lines end in a line feed.
Export export_csv(const TunedTable& table);
/// Cells and robust choices with knobs, cubin and time, without rows and rivals: configs/schema/runtime.json.
Export export_runtime(const TunedTable& table);
/// Throws Exit::request, with the place, for a file that is not one.
void require_runtime(const JsonAt& json);

}  // namespace moetune
