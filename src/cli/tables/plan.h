// What a tuning run would do, without doing it: `tune --dry-run`.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/text/output.h"
#include "variant/space/space.h"

namespace moetune {

struct Plan {
  struct Item {
    Cell cell;
    RoutingFigures figures;
    std::shared_ptr<const Enumeration> listed;  // null where the space is too large to list
  };
  DeviceInfo device;
  std::vector<Item> items = {};
  std::filesystem::path output = {}, journal = {};
};

/// `seed` is that of the run, by which the source draws. Candidates are counted where that can be done.
Plan make_plan(const std::vector<Cell>& cells, CandidateSource& source, const DeviceInfo& device, uint64_t seed);

std::string plan_csv(const Plan& plan);              // a row a cell
Json plan_json(const Plan& plan, const Json& tool);  // moetune.plan/1
/// Cells under their layers, then pruned reasons with their counts, then the files, as text or as Markdown.
std::string plan_text(const Plan& plan, const Style& style);

}  // namespace moetune
