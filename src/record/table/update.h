// Who replaced times of a table after it was tuned, and why.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"

namespace moetune {

/// One `check --update`.
struct Update {
  std::string date;                // UTC: "2026-11-23T01:26:06"
  std::string reason;              // the user's words
  Json tool;                       // that measured, as in a table
  std::vector<std::string> cells;  // ids of those whose times it replaced
};

Json to_json(const Update& update);
Update update_from_json(const JsonAt& json);

}  // namespace moetune
