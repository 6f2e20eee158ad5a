// The other program of `check --against`.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"
#include "cli/options/device_options.h"

namespace moetune {

/// Throws Exit::request unless `path` is a folder, of kernels, or a file that can be run.
void require_other(const std::string& path);

/// Opens the same device again: with the kernels of a folder, or in a worker of another moetune binary. `here` is this
/// program's. Exit::request for a folder where the device is a cpu, whose code is in the binary; Exit::machine where
/// the file is not a moetune that this program can talk to, or opens another device.
std::unique_ptr<Backend> open_other(const std::string& path, const DeviceOptions& options, const Backend& here);

/// What a user should know before both run: how much memory the operands of the largest cell take twice, and whether
/// both have the same kernels.
std::string about_both(const std::string& path, Backend& here, Backend& there, const std::vector<Cell>& cells);

}  // namespace moetune
