// What the build put into the binary: kernel sources, configs, version. Not where files on disk are read.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moetune {

struct EmbeddedFile {
  std::string_view path;  // as in the repository: "kernels/args.h"
  std::string_view text;
};

/// All embedded files, sorted by path.
std::span<const EmbeddedFile> embedded_files();

/// The text of one embedded file, or nothing.
inline std::optional<std::string_view> embedded_file(std::string_view path) {
  for (const EmbeddedFile& file : embedded_files())
    if (file.path == path) return file.text;
  return std::nullopt;
}

/// The names of the embedded files in a folder and below it, without folder and extension, in the order of their paths:
/// "quick" of "configs/spaces/quick.json".
inline std::vector<std::string> embedded_names(std::string_view folder) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_files())
    if (file.path.starts_with(folder)) {
      const size_t begin = file.path.rfind('/') + 1;
      names.emplace_back(file.path.substr(begin, file.path.rfind('.') - begin));
    }
  return names;
}

struct BuildInfo {
  std::string version;
  std::string commit;  // short hash, or "unknown" outside a checkout
  bool dirty = false;  // tracked files differed from the commit
};
BuildInfo build_info();

}  // namespace moetune
