// The NVRTC calls.
#include "backend/cuda/libraries/nvrtc.h"

#include <fmt/format.h>
#include <nvrtc.h>

#include <vector>

#include "backend/cuda/libraries/library.h"
#include "base/error.h"

namespace moetune {
namespace {

struct Nvrtc {
  Library library{"NVRTC", "libnvrtc"};
#define MOETUNE_SYMBOL(name) decltype(&::nvrtc##name) name = library.symbol("nvrtc" #name, &::nvrtc##name)
  MOETUNE_SYMBOL(Version);
  MOETUNE_SYMBOL(GetErrorString);
  MOETUNE_SYMBOL(CreateProgram);
  MOETUNE_SYMBOL(DestroyProgram);
  MOETUNE_SYMBOL(CompileProgram);
  MOETUNE_SYMBOL(GetProgramLogSize);
  MOETUNE_SYMBOL(GetProgramLog);
  MOETUNE_SYMBOL(GetCUBINSize);
  MOETUNE_SYMBOL(GetCUBIN);
#undef MOETUNE_SYMBOL
};

const Nvrtc& nvrtc() {
  static const Nvrtc loaded;
  return loaded;
}

// Verbose ptxas writes registers and spills to the log. The disk cache of our own replaces NVRTC's.
const std::vector<const char*>& fixed_options() {
  static const std::vector<const char*> options = {"-std=c++20", "-default-device", "--ptxas-options=-v", "--no-cache"};
  return options;
}

void require_nvrtc(nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS) throw machine_error(fmt::format("NVRTC: {}: {}", what, nvrtc().GetErrorString(result)));
}

}  // namespace

NvrtcResult nvrtc_compile(std::string_view unit, const KernelSources& sources, const std::string& arch) {
  const Nvrtc& api = nvrtc();
  std::vector<const char*> names, texts;
  for (const auto& [name, text] : sources) names.push_back(name.c_str()), texts.push_back(text.c_str());
  const std::string text(unit);
  nvrtcProgram program = nullptr;
  require_nvrtc(
      api.CreateProgram(&program, text.c_str(), "unit.cu", static_cast<int>(names.size()), texts.data(), names.data()),
      "cannot create a program");
  const std::string target = "-arch=" + arch;
  std::vector<const char*> options = fixed_options();
  options.push_back(target.c_str());
  NvrtcResult result;
  const nvrtcResult compiled = api.CompileProgram(program, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  if (api.GetProgramLogSize(program, &size) == NVRTC_SUCCESS && size > 1) {
    result.log.resize(size);
    api.GetProgramLog(program, result.log.data());
    result.log.resize(size - 1);  // its closing zero
  }
  if (compiled == NVRTC_SUCCESS && api.GetCUBINSize(program, &size) == NVRTC_SUCCESS && size > 0) {
    result.cubin.resize(size);
    result.ok = api.GetCUBIN(program, result.cubin.data()) == NVRTC_SUCCESS;
  } else if (result.log.empty()) {
    result.log = api.GetErrorString(compiled);
  }
  api.DestroyProgram(&program);
  return result;
}

std::string nvrtc_version() {
  int major = 0, minor = 0;
  require_nvrtc(nvrtc().Version(&major, &minor), "version");
  return fmt::format("{}.{}", major, minor);
}

std::string nvrtc_options() { return fmt::format("{}", fmt::join(fixed_options(), " ")); }

}  // namespace moetune
