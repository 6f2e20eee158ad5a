// Exports for people and spreadsheets.
#pragma once
#include "table/exporter.h"

namespace moetune {

/// One row an entry, the same columns in every table; quoting after RFC 4180, lines end in a line feed.
Export export_csv(const TunedTable& table);

/// Tables by layer, with uncertainty.
Export export_markdown(const TunedTable& table);

}  // namespace moetune
