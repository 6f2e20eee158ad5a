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
std::optional<std::string_view> embedded_file(std::string_view path);

/// The names of a folder's embedded files without their extension, sorted: "quick" of "configs/spaces/quick.json".
std::vector<std::string> embedded_names(std::string_view folder);

struct BuildInfo {
  std::string version;
  std::string commit;  // short hash, or "unknown" outside a checkout
  bool dirty = false;  // tracked files differed from the commit
};
BuildInfo build_info();

}  // namespace moetune
