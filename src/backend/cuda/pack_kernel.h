// A candidate of a kernel pack on the device: its modules, buffers and launches. What they are is in
// variant/pack_launch.h.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/kernel.h"
#include "variant/outcome.h"
#include "variant/pack/pack_launch.h"

namespace moetune {

/// Loads the candidate's files and allocates its buffers. Throws CandidateFault{illegal} for formulas that make no
/// launch.
std::shared_ptr<const Kernel> make_pack_kernel(const Pack& pack, const Candidate& candidate, const Operands& operands,
                                               const DeviceInfo& device);

/// Compiles the units of all candidates but those of packs, which are compiled already. One result each, in order.
std::vector<CompileResult> compile_candidates(
    const Shape& shape, std::span<const Candidate> candidates, const DeviceInfo& device,
    const std::function<std::vector<CompileResult>(const std::vector<std::string>& units)>& compile);

}  // namespace moetune
