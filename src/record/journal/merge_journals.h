// One journal from several, such as those of a run's shards.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "record/journal/journal.h"

namespace moetune {

struct MergedJournal {
  JournalHeader header;
  std::string text;                    // header and records
  std::vector<std::string> conflicts;  // cells with different records in several journals
};

/// Joins the cells as `merge` joins those of tables, and the records one journal after another. Of a cell with records
/// in several journals, those of one are taken: the first's, or the last's where `prefer` is "last". Exit::machine
/// where devices or environments don't compare; Exit::request where the journals cannot be read, or their spaces,
/// strategies or seeds differ.
MergedJournal merge_journals(const std::vector<std::filesystem::path>& paths, const std::string& prefer,
                             const Catalog& catalog);

}  // namespace moetune
