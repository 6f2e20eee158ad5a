// The other side of `check --against`: another moetune binary, a folder of kernels, or packs and exports.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "check/lineup.h"
#include "cli/options/device_options.h"
#include "variant/catalog.h"

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

/// Gives each entry the kernel of `here` that stands for its winner, and `against` that of `there`: the exported kernel
/// that serves the cell, or a pack's candidate with the same name and knobs, whatever the pack's hash; a knob that its
/// build lacks does not count, and one that only it has takes its default. Entries of
/// kernels that a side lacks are not measured: a kernel that is only in `there` is a failure.
void match_packs(TunedTable& table, const Catalog& here, const std::string& our_name, const Catalog& there,
                 Against& against);

/// An entry for each cell and each variant of the packs that computes it, with the pack's default candidate. Exit::no,
/// with a reason, for a cell that none computes.
TunedTable table_of_packs(const std::vector<Cell>& cells, const Catalog& here, const Catalog& there,
                          const DeviceInfo& device, Regime regime);

/// "only in new: toy block_m=16": variants of packs, or candidates of them, that `other` lacks; empty for none.
std::string only_in(const Catalog& catalog, const std::string& name, const Catalog& other);

}  // namespace moetune
