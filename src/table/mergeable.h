// What two files must share to become one, and the order of the cells then.
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

/// Whether times of one tell those of the other: the same device, or GPUs of one model.
bool same_model(const DeviceInfo& a, const DeviceInfo& b);

/// "NVIDIA H200 with 132 SMs".
std::string model_text(const DeviceInfo& device);

/// Throws Exit::machine unless both are of one device, as GPUs of one model are, of one regime, and of equal
/// environments under "identity". `what` names the files: "tables".
void require_mergeable(std::string_view what, const Origin& a, const Origin& b);

/// The ids of all sweeps, each once, in the order of their first appearance.
std::vector<std::string> joined_sweep(const std::vector<std::vector<std::string>>& sweeps);

}  // namespace moetune
