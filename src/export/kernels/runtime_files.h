// What an export of kernels holds beside cubins and manifest: all that programs need to launch them.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moetune {

/// libmoetune.so, which src/runtime is built to. Not in builds without the CUDA toolkit.
std::string_view runtime_library();

/// Files by their paths in the folder: the library, its header and CMake package, the Python modules, examples, and
/// README.md about their use.
std::vector<std::pair<std::string, std::string_view>> runtime_files();

/// The text of manifest.sha256: the digests of the manifest and of these files but README.md, which people may edit.
std::string digests(std::string_view manifest);

}  // namespace moetune
