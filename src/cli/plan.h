// What a tuning run would do, without doing it: `tune --dry-run`.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cli/output.h"
#include "variant/space.h"

namespace moetune {

struct Plan {
  struct Item {
    Cell cell;
    RoutingFigures figures;
    int64_t total = 0, legal = 0;
    std::map<std::string, int64_t> pruned;
  };
  DeviceInfo device;
  std::vector<Item> items;
  std::filesystem::path output, journal;
};

Plan make_plan(const std::vector<Cell>& cells, const SearchSpace& space, const DeviceInfo& device);

Json plan_json(const Plan& plan, const Json& tool);  // moetune.plan/1
/// Cells, then pruned reasons with their counts, then the files. Fits `columns`, as `fitted` does.
std::string markdown(const Plan& plan, int columns = 0);

}  // namespace moetune
