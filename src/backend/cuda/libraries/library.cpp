// dlopen with a search path and errors that help.
#include "backend/cuda/libraries/library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/text/units.h"

namespace moetune {
namespace {

// Where libraries are, the first choice first: what pip installed beside this program, the loader's own search (""),
// toolkits, and what lies beside the programs of PATH: toolkits, virtual environments, conda, Pythons that have torch.
std::vector<std::string> find_folders() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto of = [](const char* variable) {
    const char* value = std::getenv(variable);
    return std::string(value ? value : "");  // then it is a folder of the system's
  };
  constexpr const char* kPip = "/../lib/python3*/*-packages/nvidia/*/lib/";
  std::vector<std::string> patterns = {program.parent_path().string() + kPip, "", of("CUDA_HOME") + "/lib*/",
                                       of("CUDA_PATH") + "/lib*/"};
  for (const std::string& folder : split(of("PATH"), ':')) {
    patterns.push_back(folder + "/../lib*/");
    patterns.push_back(folder + kPip);
  }
  patterns.insert(patterns.end(), {"/usr/local/cuda/lib*/", "/usr/local/cuda-*/lib*/", MOETUNE_CUDA_LIBRARY_DIR "/"});
  std::vector<std::string> found;
  for (const std::string& pattern : patterns) {
    glob_t paths{};
    if (pattern.empty())
      found.emplace_back();
    else if (::glob(pattern.c_str(), 0, nullptr, &paths) == 0)
      found.insert(found.end(), paths.gl_pathv, paths.gl_pathv + paths.gl_pathc);
    ::globfree(&paths);
  }
  return found;
}

// Libraries of CUDA 13 don't run with a driver of CUDA 12.
std::vector<const char*> endings() {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver > 0 && driver < 13000) return {".so.12"};
  return {".so.13", ".so.12", ".so"};
}

}  // namespace

Library::Library(const std::string& what, const std::string& name) : what_(what) {
  static const std::vector<std::string> folders = find_folders();  // for all libraries
  const std::vector<const char*> versions = endings();
  for (const std::string& folder : folders)
    for (const char* ending : versions)
      if (!handle_) handle_ = ::dlopen((folder + name + ending).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_)
    throw machine_error(
        fmt::format("cannot load {}: no {}{} was found", what, name, fmt::join(versions, fmt::format(" or {}", name))),
        "'pip install nvidia-cuda-nvrtc-cu12 nvidia-cublas-cu12' where pip installed moetune, or install the CUDA "
        "toolkit, or name the folder of its libraries in LD_LIBRARY_PATH");
}

void* Library::address(const char* name) const {
  void* found = ::dlsym(handle_, name);
  if (!found) throw machine_error(fmt::format("{} has no {}", what_, name), "install a newer CUDA toolkit");
  return found;
}

}  // namespace moetune
