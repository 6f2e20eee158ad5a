// Replacing whole folders, and clearing away what dead processes left of an output.
#pragma once
#include <filesystem>

namespace moetune {

/// The name of this process's temporary beside `path`: path.PID.tmp.
std::filesystem::path temporary_name(const std::filesystem::path& path);

/// Removes the temporaries of `path` whose processes have ended, and puts back a folder that one of them had moved away
/// (replace_folder). The caller holds the OutputLock of `path`.
void remove_leftovers(const std::filesystem::path& path);

/// Gives the folder `made` the name of `folder`. If a folder that is not empty had that name, it is now called `made`,
/// and the result is true. A reader finds one of both at any time, if the file system can exchange two names.
/// Throws Exit::machine; then nothing has changed.
bool replace_folder(const std::filesystem::path& made, const std::filesystem::path& folder);

}  // namespace moetune
