// Which kernels an export holds, compiled, and the files that they make.
#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "export/kernels/kernel_manifest.h"
#include "variant/catalog.h"

namespace moetune {

/// The kernels of a table's winners and robust choices, before they are compiled.
struct CollectedKernels {
  KernelExport exported = {};
  std::vector<std::string> targets = {};                    // architectures, the table's own first
  std::map<std::string, std::set<std::string>> archs = {};  // by the kernel's name
  std::map<std::string, std::string> codes = {};            // of the kernels that were timed, as Entry has them
  std::vector<std::string> notes = {};                      // what is left out or differs, in sentences
};

/// `archs`: words of architectures beside the table's own. Those that a winner cannot run on get their own default in
/// its place.
CollectedKernels collect_kernels(const TunedTable& table, const std::vector<std::string>& archs,
                                 const Catalog& catalog);

/// Compiles them for their architectures. Throws Exit::no where one does not compile.
void compile_kernels(CollectedKernels& collection, const TunedTable& table, bool cache);

/// The files of the folder by their names there; moves the cubins out of `exported`.
std::vector<std::pair<std::string, std::string>> kernel_files(KernelExport& exported, const TunedTable& table);

}  // namespace moetune
