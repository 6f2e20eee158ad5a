// What two files must have in common to be merged, and the order of the merged cells.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "variant/device.h"
#include "variant/outcome.h"

namespace moetune {

/// Where times were measured.
struct Origin {
  const DeviceInfo& device;
  const Json& environment;
  Regime regime = Regime::burst;
};

/// Whether times of one device apply to the other: it is the same device, or both are GPUs of one model.
bool same_model(const DeviceInfo& a, const DeviceInfo& b);

/// "NVIDIA H200 with 132 SMs".
std::string model_text(const DeviceInfo& device);

/// A value that differs between two JSON objects, such as {"identity.driver", "\"570\"", "nothing"}.
struct ValueDifference {
  std::string key, first, second;  // values as JSON; "nothing" where one side lacks the key
};
std::vector<ValueDifference> value_differences(const Json& first, const Json& second, const std::string& path = "");

/// The differences of two environments under "identity", such as the build of the kernels.
std::vector<ValueDifference> identity_differences(const Json& first, const Json& second);

/// Throws Exit::machine unless both are of one device, as GPUs of one model are, of one regime, and of equal
/// environments under "identity". `what` names the files: "tables".
void require_mergeable(std::string_view what, const Origin& a, const Origin& b);

/// The ids of all sweeps, each once, in the order of their first appearance.
std::vector<std::string> joined_sweep(const std::vector<std::vector<std::string>>& sweeps);

}  // namespace moetune
