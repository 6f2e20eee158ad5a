// A winner in a few words, the same in every command and file for people.
#pragma once
#include <string>

#include "record/table/table.h"

namespace moetune {

/// The winner in short, by what differs from the default that it was tuned with: "wgmma block_m=64 stages=4", "wgmma,
/// the default". `device` is the table's.
std::string winner_text(const Entry& entry, const DeviceInfo& device);

}  // namespace moetune
