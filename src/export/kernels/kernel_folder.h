// The folder of an export of kernels: which folders may become one, and replacing it so that no reader sees half of it.
#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace moetune {

/// The folder behind `output`, without links and a slash at its end. Throws Exit::request unless an export may be
/// written there: it is new, empty, an export, or half of one, which an earlier version left when it was killed; and
/// it is neither the working folder nor above it, because it will be replaced.
std::filesystem::path require_kernel_folder(const std::string& output);

/// Writes files, by their names in the folder, beside `folder`, and then swaps both: a reader sees the old export or
/// the new one. Files that no export writes stay in the folder. Throws Exit::machine; then the old folder is unchanged.
/// The caller holds the folder's OutputLock, which removes what a killed process leaves.
void write_kernel_folder(const std::filesystem::path& folder,
                         const std::vector<std::pair<std::string, std::string>>& files);

}  // namespace moetune
