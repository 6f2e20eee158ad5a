// What `moetune list` can list.
#pragma once
#include <string>
#include <vector>

namespace moetune {

/// "variants", "knobs", "models", ...
std::vector<std::string> list_topics();

}  // namespace moetune
