// The other side of `check --against`: another moetune binary, a folder of kernels, or packs and exports.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "cli/options/device_options.h"

namespace moetune {

/// Exit::request unless `path` is a folder, of kernels or packs, or a file that can be run. open_other opens the same
/// device again: with what a folder holds, or in a worker of another moetune binary. `here` is this program's.
/// Exit::request for a folder where the device is a cpu, whose code is in the binary; Exit::machine where the file is
/// not a moetune that this program can talk to, or opens another device.
void require_other(const std::string& path);
std::unique_ptr<Backend> open_other(const std::string& path, const DeviceOptions& options, const Backend& here);

/// What a user should know before both run: how much memory the operands of the largest cell take twice, and whether
/// both have the same kernels.
std::string about_both(const std::string& path, Backend& here, Backend& there, const std::vector<Cell>& cells);

}  // namespace moetune
