// Which kernels of packs and exports stand for one another, where two builds of them are compared.
#pragma once
#include <string>
#include <vector>

#include "check/lineup.h"
#include "variant/catalog.h"

namespace moetune {

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
