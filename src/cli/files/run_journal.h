// The journal of the run that made a table: the one that is named, or the one beside the table.
#pragma once
#include <optional>
#include <string>

#include "cli/text/output.h"
#include "record/journal/journal.h"
#include "record/table/table.h"

namespace moetune {

/// `given`, else the file beside the table; empty where there is none.
std::string journal_file(const std::string& given, const std::string& table_file);

/// The journal of journal_file, where it is of the run that made `table`: of its device, environment and regime, with
/// cells and winners of the table. One of another run is Exit::machine where it was given; beside the table it is left
/// out with a note.
std::optional<JournalContents> find_journal(const std::string& given, const std::string& table_file,
                                            const TunedTable& table, const Catalog& catalog, const Terminal& terminal);

}  // namespace moetune
