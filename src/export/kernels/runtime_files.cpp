// Files of src/runtime and where they go.
#include "export/kernels/runtime_files.h"

#include "base/embedded.h"

namespace moetune {

std::vector<std::pair<std::string, std::string_view>> runtime_files() {
  constexpr std::string_view kRuntime = "src/runtime/";
  std::vector<std::pair<std::string, std::string_view>> files = {{"lib/libmoetune.so", runtime_library()}};
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.starts_with(kRuntime)) continue;
    const std::string name(file.path.substr(kRuntime.size()));
    files.emplace_back(name.ends_with(".h")       ? "include/" + name
                       : name.ends_with(".cmake") ? "lib/cmake/moetune/" + name
                                                  : name,
                       file.text);
  }
  return files;
}

}  // namespace moetune
