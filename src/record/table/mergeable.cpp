// Devices and environments compared; sweeps joined.
#include "record/table/mergeable.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "base/error.h"
#include "base/pretty.h"

namespace moetune {
bool same_model(const DeviceInfo& a, const DeviceInfo& b) {
  return a.kind == b.kind && a.name == b.name && a.compute_capability == b.compute_capability &&
         a.processors == b.processors;
}

std::string model_text(const DeviceInfo& device) {
  return fmt::format("{} with {} {}", device.name, device.processors,
                     device.kind == DeviceKind::cuda ? "SMs" : "threads");
}

std::vector<ValueDifference> value_differences(const Json& first, const Json& second, const std::string& path) {
  const auto shown = [](const Json& side, const std::string& key) {
    return side.contains(key) ? compact_json(side[key]) : "nothing";
  };
  std::set<std::string> keys;
  for (const Json* side : {&first, &second})
    for (const auto& item : side->items()) keys.insert(item.key());
  std::vector<ValueDifference> differences;
  for (const std::string& key : keys) {
    const std::string one = shown(first, key), other = shown(second, key);
    if (first.contains(key) && second.contains(key) && first[key].is_object() && second[key].is_object())
      std::ranges::move(value_differences(first[key], second[key], path + key + "."), std::back_inserter(differences));
    else if (one != other)
      differences.push_back({path + key, one, other});
  }
  return differences;
}

std::vector<ValueDifference> identity_differences(const Json& first, const Json& second) {
  const auto identity = [](const Json& environment) {
    const Json told = environment.is_object() ? environment.value("identity", Json()) : Json();
    if (told.is_object()) return told;
    return told.is_null() ? Json::object() : Json{{"identity", told}};
  };
  return value_differences(identity(first), identity(second));
}

void require_mergeable(std::string_view what, const Origin& a, const Origin& b) {
  if (!same_model(a.device, b.device))
    throw machine_error(fmt::format("{} of different devices don't merge: {}, and {}", what, model_text(a.device),
                                    model_text(b.device)),
                        fmt::format("keep {} of each device apart", what));
  if (a.regime != b.regime)
    throw machine_error(fmt::format("the regimes {} and {} don't compare", name(a.regime), name(b.regime)),
                        fmt::format("keep {} of each regime apart", what));
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
