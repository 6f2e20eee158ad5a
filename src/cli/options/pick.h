// Cells of a table, picked by the options that make cells elsewhere.
#pragma once
#include <string>

#include "cli/options/cells.h"
#include "record/table/table.h"

namespace moetune {

/// Leaves the entries whose cells match all options; a list is matched by any of its words, and options that are not
/// given match every cell. Throws Exit::request for words that cannot be read, Exit::no where nothing is left: the
/// sentence tells what the table has. `file` names it there.
void pick_entries(TunedTable& table, const std::string& file, const CellOptions& options);

}  // namespace moetune
