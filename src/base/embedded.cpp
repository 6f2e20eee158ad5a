// Look-up among the embedded files; the list itself is generated.
#include "base/embedded.h"

namespace moetune {

std::optional<std::string_view> embedded_file(std::string_view path) {
  for (const EmbeddedFile& file : embedded_files())
    if (file.path == path) return file.text;
  return std::nullopt;
}

}  // namespace moetune
