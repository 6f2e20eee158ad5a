// dlopen with a search path and errors that help.
#include "backend/cuda/libraries/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"

namespace moetune {

Library::Library(const std::string& what, const std::vector<std::string>& names) : what_(what) {
  for (const std::string folder : {"", MOETUNE_CUDA_LIBRARY_DIR "/"})
    for (const std::string& name : names)
      if (!handle_) handle_ = ::dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_)
    throw machine_error(fmt::format("cannot load {}: none of {} can be opened", what, fmt::join(names, ", ")),
                        "install the CUDA toolkit's libraries, or name their folder in LD_LIBRARY_PATH");
}

void* Library::address(const char* name) const {
  void* found = ::dlsym(handle_, name);
  if (!found) throw machine_error(fmt::format("{} has no {}", what_, name), "install a newer CUDA toolkit");
  return found;
}

}  // namespace moetune
