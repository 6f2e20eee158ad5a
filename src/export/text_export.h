// Exports for people, spreadsheets and programs of one's own.
#pragma once
#include "export/exporter.h"

namespace moetune {

/// One row an entry, the same columns in every table; quoting after RFC 4180, lines end in a line feed.
Export export_csv(const TunedTable& table);

/// Cells and robust choices with knobs, cubin and time, without rows and rivals: configs/schema/runtime.json.
Export export_runtime(const TunedTable& table);
/// Throws Exit::request, with the place, for a file that is not one.
void require_runtime(const JsonAt& json);

/// Tables by layer, with uncertainty.
Export export_markdown(const TunedTable& table);

}  // namespace moetune
