// The kernels compiled last. Not the cache on disk, which keeps them all: compiler.h.
#pragma once
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "backend/cuda/compile/compiler.h"

namespace moetune {

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
