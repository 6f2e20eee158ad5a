// Devices and environments compared; sweeps joined.
#include "table/mergeable.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "table/pretty.h"

namespace moetune {
namespace {

// GPUs of one model count as one device, so that tables tuned side by side on the cards of a host can be merged.
void require_same_device(std::string_view what, const DeviceInfo& a, const DeviceInfo& b) {
  if (a.kind == b.kind && a.name == b.name && a.compute_capability == b.compute_capability &&
      a.processors == b.processors)
    return;
  const auto told = [](const DeviceInfo& device) {
    return fmt::format("{} with {} {}", device.name, device.processors,
                       device.kind == DeviceKind::cuda ? "SMs" : "threads");
  };
  throw machine_error(fmt::format("{} of different devices don't merge: {}, and {}", what, told(a), told(b)),
                      fmt::format("keep {} of each device apart", what));
}

}  // namespace

void require_mergeable(std::string_view what, const Origin& a, const Origin& b) {
  require_same_device(what, a.device, b.device);
  const auto identity = [](const Json& environment) {
    return environment.is_object() ? environment.value("identity", Json()) : Json();
  };
  const Json first = identity(a.environment), second = identity(b.environment);
  if (first != second)
    throw machine_error(
        fmt::format("the environments don't compare: {} and {}", compact_json(first), compact_json(second)),
        "tune those cells again in one environment");
}

std::vector<std::string> joined_sweep(const std::vector<std::vector<std::string>>& sweeps) {
  std::set<std::string> known;
  std::vector<std::string> joined;
  for (const std::vector<std::string>& sweep : sweeps)
    for (const std::string& cell : sweep)
      if (known.insert(cell).second) joined.push_back(cell);
  return joined;
}

}  // namespace moetune
