// Named lists of cells: files of moetune.suite/1, built in or on disk. What the lists mean: cells.h.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/options/cells.h"

namespace moetune {

/// One product of lists, and where in the file it stands.
struct SuitePart {
  std::string where;
  CellOptions options;
};

/// The parts of a suite: a built-in name, or a file. Errors name the place, and for an unknown word the nearest name.
std::vector<SuitePart> read_suite(const std::string& name_or_file);

/// The file that read_suite reads, whether it is there or not; empty for a built-in name.
std::filesystem::path suite_file(const std::string& name_or_file);

/// What a built-in suite is for; empty where it doesn't tell.
std::string suite_description(const std::string& name);

/// The same from JSON. Keys are the options of cells without dashes, with '_' inside; an unknown key is an error.
std::vector<SuitePart> suite_from_json(const JsonAt& json);

}  // namespace moetune
