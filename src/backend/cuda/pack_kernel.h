// A candidate of a kernel pack on the device: its modules, buffers and launches. What they are is in
// variant/pack_launch.h.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/kernel.h"
#include "backend/cuda/operands.h"
#include "variant/pack/pack_launch.h"

namespace moetune {

/// Ready to launch on the operands of a loaded problem, which must outlive it.
struct PackKernel {
  PackLaunch launch;
  std::vector<std::shared_ptr<Module>> modules;
  std::vector<const void*> functions;  // one a step; null for a fill
  std::map<std::string, std::shared_ptr<DeviceBuffer>> buffers;

  /// Throws CandidateFault{launch_error}.
  void enqueue(const Operands& operands, int set, cudaStream_t stream) const;
  /// Zeroes the buffers that launches leave zero: one that failed may have left something.
  void clear(cudaStream_t stream) const;
  /// The first of these buffers that is not zero, or "".
  std::string left_nonzero() const;
};

/// Loads the candidate's files and allocates its buffers. Throws CandidateFault{illegal} for formulas that make no
/// launch.
PackKernel make_pack_kernel(const Pack& pack, const Candidate& candidate, const Operands& operands,
                            const DeviceInfo& device);

/// Compiles the units of all candidates but those of packs, which are compiled already. One result each, in order.
std::vector<CompileResult> compile_candidates(
    const Shape& shape, std::span<const Candidate> candidates, const DeviceInfo& device,
    const std::function<std::vector<CompileResult>(const std::vector<std::string>& units)>& compile);

}  // namespace moetune
