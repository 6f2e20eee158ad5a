// Files of src/runtime and where they go.
#include "export/kernels/runtime_files.h"

#include "base/embedded.h"
#include "runtime/manifest.h"

namespace moetune {

namespace {

constexpr std::string_view kPackageVersion = "moetuneConfigVersion.cmake";

// As configure_file makes the installed one.
std::string_view package_version(std::string_view text) {
  static const std::string configured = [&] {
    constexpr std::string_view kMark = "@PROJECT_VERSION@";
    return std::string(text).replace(text.find(kMark), kMark.size(), build_info().version);
  }();
  return configured;
}

}  // namespace

std::vector<std::pair<std::string, std::string_view>> runtime_files() {
  constexpr std::string_view kRuntime = "src/runtime/";
  std::vector<std::pair<std::string, std::string_view>> files = {{"lib/libmoetune.so", runtime_library()}};
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.starts_with(kRuntime)) continue;
    const std::string name(file.path.substr(kRuntime.size()));
    files.emplace_back(name.ends_with(".h")       ? "include/" + name
                       : name.ends_with(".cmake") ? "lib/cmake/moetune/" + name
                                                  : name,
                       name == kPackageVersion ? package_version(file.text) : file.text);
  }
  return files;
}

std::string digests(std::string_view manifest) {
  std::string lines = digest_line("manifest.json", manifest);
  for (const auto& [name, text] : runtime_files())
    if (name != "README.md") lines += digest_line(name, text);
  return lines;
}

}  // namespace moetune
