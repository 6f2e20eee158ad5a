// Units to cubins: in parallel, with a cache on disk, with the figures in the log. Needs no GPU.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/libraries/nvrtc.h"
#include "variant/outcome.h"
#include "variant/variant.h"

namespace moetune {

struct CompiledUnit {
  CompileResult result;
  std::string cubin;  // empty where the compilation failed
  std::string log;
};

struct CompilerOptions {
  std::string arch;  // "sm_90a"
  KernelSources sources;
  bool cache = true;  // keep cubins under cache_folder()
  int threads = 0;    // 0 = all cores
};

/// kernels/ from the binary, or from a folder (Exit::request where it has no args.h).
KernelSources kernel_sources(const std::string& folder = {});

/// A hash of all device sources.
std::string hash(const KernelSources& sources);

/// Compiles units in parallel, one result each, in order. A unit that spills registers or whose wgmma the assembler
/// serialised (warnings C75xx) has the status `spills`.
std::vector<CompiledUnit> compile_units(std::span<const std::string> units, const CompilerOptions& options);

/// A hash of a cubin, 12 digits: equal code has equal times.
std::string code_of(const std::string& cubin);

/// Registers, spills and static shared memory from the log of `ptxas -v`.
CompileResult read_ptxas_log(const std::string& log);

}  // namespace moetune
