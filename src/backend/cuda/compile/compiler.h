// Units to cubins: in parallel, with a cache on disk, with the figures in the log. Needs no GPU.
#pragma once
#include <deque>
#include <map>
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

/// What a pack says about a candidate's kernel, which is compiled already.
CompileResult stated_result(const Pack& pack, const Candidate& candidate, const Shape& shape, const DeviceInfo& device);

/// A hash of a cubin's instructions, 12 digits: equal instructions take equal times. The rest of a cubin changes with
/// every word of the source. Throws std::runtime_error where it is no whole ELF file.
std::string code_of(const std::string& cubin);

/// Registers, spills and static shared memory from the log of `ptxas -v`.
CompileResult read_ptxas_log(const std::string& log);

class KeptUnits {
 public:
  /// Keeps `most` units in memory, or those of the last compile() where these are more. `options` must outlive it.
  KeptUnits(const CompilerOptions& options, size_t most) : options_(options), most_(most) {}

  /// Compiles those that are not kept, in parallel. One result each, in order.
  std::vector<CompileResult> compile(const std::vector<std::string>& units);

  /// Compiles it where it is not kept. The reference is valid until the next call.
  const CompiledUnit& get(const std::string& unit);

  size_t size() const { return units_.size(); }

 private:
  const CompilerOptions& options_;
  size_t most_;
  std::map<std::string, CompiledUnit> units_;  // without logs
  std::deque<std::string> oldest_first_;
};

}  // namespace moetune
