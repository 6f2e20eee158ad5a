// Errors are kept until every writer has run.
#include "cli/files/write_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"

namespace moetune {

void write_outputs(const std::vector<std::function<void()>>& writers) {
  std::optional<Error> first;
  std::vector<std::string> told;
  for (const std::function<void()>& writer : writers) try {
      writer();
    } catch (const Error& error) {
      if (!first) first = error;
      if (std::find(told.begin(), told.end(), error.what()) == told.end()) told.push_back(error.what());
    }
  if (first) throw Error(first->exit(), fmt::format("{}", fmt::join(told, "; ")), first->hint());
}

}  // namespace moetune
