// A new export is a folder beside the old one until it is whole.
#include "export/kernels/kernel_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <regex>

#include "base/embedded.h"
#include "base/error.h"
#include "base/json.h"
#include "base/system/file.h"
#include "base/system/folder.h"
#include "export/kernels/runtime_files.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

// Names that kernel_name and cubin_name make, and of temporaries from when each file was written in place.
bool is_kernel_name(const std::string& name) {
  static const std::regex kNames(R"(\w+-[0-9a-f]{12}(\.sm_\w+)?\.(cu|cubin)(\.[0-9-]+\.tmp)?)");
  return std::regex_match(name, kNames);
}

// Whether exports have a file, or a folder, of this path.
bool is_of_export(const std::string& path) {
  static const std::regex kOthers(R"((manifest\.(json|sha256)|(route|finish-\w+|reorder-[\w-]+)\.sm_\w+\.cubin)(\.[0-9-]+\.tmp)?)");
  const auto is_at = [&](std::string_view file) {
    return file == path || (file.starts_with(path) && file[path.size()] == '/');
  };
  return is_kernel_name(path) || std::regex_match(path, kOthers) ||
         std::ranges::any_of(runtime_files(), [&](const auto& file) { return is_at(file.first); }) ||
         std::ranges::any_of(embedded_files(), [&](const EmbeddedFile& file) {
           return file.path.starts_with("kernels/") && is_at(file.path);
         });
}

bool is_export(const fs::path& folder) {
  const fs::path manifest = folder / "manifest.json";
  if (!is_there(manifest)) {
    bool kernel = false;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (!is_of_export(name)) return false;
      kernel = kernel || is_kernel_name(name);
    }
    return kernel;
  }
  try {
    require_schema(JsonAt(read_json(manifest), manifest.string()), "kernels");
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Gives the files of `from` that no export writes a second name in `to`, where that has none of their names.
void keep_others(const fs::path& from, const fs::path& to) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(from)) {
    const fs::path name = entry.path().lexically_relative(from), kept = to / name;
    if (fs::exists(fs::symlink_status(kept)) || is_of_export(name)) continue;
    std::error_code error;
    if (entry.is_directory() && !entry.is_symlink()) {
      fs::create_directories(kept);
      continue;
    }
    fs::create_directories(kept.parent_path());
    fs::create_hard_link(entry.path(), kept, error);
    if (error) fs::copy(entry.path(), kept, fs::copy_options::copy_symlinks);
  }
}

}  // namespace

fs::path require_kernel_folder(const std::string& output) {
  fs::path folder = fs::weakly_canonical(fs::absolute(output));
  if (!folder.has_filename()) folder = folder.parent_path();
  if (is_there(folder) && !is_folder(folder))
    throw request_error(fmt::format("--output: {} is a file: an export of kernels is a folder", output));
  if (const fs::path inside = fs::current_path().lexically_relative(folder);
      is_folder(folder) && *inside.begin() != "..")
    throw request_error(fmt::format("--output: {} holds the working folder, and an export replaces its folder", output),
                        "name a folder inside it");
  if (is_folder(folder) && !fs::is_empty(folder) && !is_export(folder))
    throw request_error(fmt::format("--output: {} holds other files, but no export of kernels", output),
                        "name a new or an empty folder");
  return folder;
}

void write_kernel_folder(const fs::path& folder, const std::vector<std::pair<std::string, std::string>>& files) {
  const fs::path made = temporary_name(folder);
  const RemovedAtTheEnd removed{{made}};
  try {
    for (const auto& [name, text] : files) {
      fs::create_directories((made / name).parent_path());
      write_atomic(made / name, text);
    }
    if (is_folder(folder)) {
      fs::permissions(made, fs::status(folder).permissions());
      keep_others(folder, made);
    }
    if (replace_folder(made, folder)) keep_others(made, folder);  // what came in the meantime
  } catch (const fs::filesystem_error& error) {
    throw machine_error(fmt::format("{}: cannot write: {}", folder.string(), error.what()));
  }
}

}  // namespace moetune
