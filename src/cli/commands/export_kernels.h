// `moetune export --format kernels`: a folder of cubins that other programs launch.
#pragma once

#include "cli/commands/command.h"

namespace moetune {

struct KernelExportOptions {
  std::string table, output;
  std::vector<std::string> archs;  // beside the table's own
  bool cache = true;               // of compiled kernels
};

/// Compiles the winners and robust choices of the table, and writes them with their sources, the manifest and the
/// library. Architectures that a winner cannot run on get their own default in its place. Throws Exit::request for a
/// folder that holds anything but such an export, Exit::no where nothing can be exported, Exit::machine without the
/// CUDA toolkit.
Exit export_kernels(const TunedTable& table, const KernelExportOptions& options, const Catalog& catalog,
                    const Terminal& terminal);

}  // namespace moetune
