// NVRTC, opened at run time: text in, cubin and resource figures out. No cache, no threads: see compiler.h.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace moetune {

/// Device sources by path in kernels/ ("args.h", "mma/mma.cuh"), as #include names them.
using KernelSources = std::map<std::string, std::string>;

struct NvrtcResult {
  bool ok = false;
  std::string log;
  std::string cubin;
};

/// Compiles one unit for "sm_90a" and the like. Safe from several threads. Throws Exit::machine without NVRTC.
NvrtcResult nvrtc_compile(std::string_view unit, const KernelSources& sources, const std::string& arch);

/// "13.0". Throws Exit::machine without NVRTC.
std::string nvrtc_version();

/// The options that are the same for every unit, for cache keys.
std::string nvrtc_options();

}  // namespace moetune
