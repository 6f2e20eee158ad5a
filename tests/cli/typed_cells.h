// Options of cells as a command line has them.
#pragma once
#include <string>
#include <vector>

#include "cli/commands/command.h"
#include "cli/options/cells.h"
#include "error_of.h"

namespace moetune {

/// What "moetune cells WORDS" asks for. Errors as of the program.
inline CellOptions typed(std::vector<std::string> words) {
  CellOptions options;
  const std::vector<Command> commands = {{.name = "cells", .summary = "", .examples = "", .declare = nullptr}};
  CommandLine line(commands);
  OptionSet set = line.options(0);
  declare(set, options);
  words.insert(words.begin(), {"moetune", "cells"});
  line.parse(words);
  return options;
}

/// The error of such a request, or an empty one.
inline std::string cell_error(const std::vector<std::string>& words) {
  return error_of([&] { make_cells(typed(words)); }).what;
}

}  // namespace moetune
