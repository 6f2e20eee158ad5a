// Look-up among the embedded files; the list itself is generated.
#include "base/embedded.h"

namespace moetune {

std::optional<std::string_view> embedded_file(std::string_view path) {
  for (const EmbeddedFile& file : embedded_files())
    if (file.path == path) return file.text;
  return std::nullopt;
}

std::vector<std::string> embedded_names(std::string_view folder) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_files())
    if (file.path.starts_with(folder))
      names.emplace_back(file.path.substr(folder.size(), file.path.rfind('.') - folder.size()));
  return names;
}

}  // namespace moetune
