// Candidates on the device, ready to launch; and the small kernels around them.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/libraries/runtime.h"
#include "kernels/args.h"
#include "variant/outcome.h"
#include "variant/pack/launch_rule.h"
#include "variant/variant.h"

namespace moetune {

struct Operands;
class Services;

/// A loaded cubin; unloaded with the object.
class Module {
 public:
  explicit Module(const std::string& cubin);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  /// The handle that launches take. Throws CandidateFault{launch_error} where there is no such kernel.
  const void* kernel(const char* name) const;

 private:
  cudaLibrary_t library_ = nullptr;
};

/// A candidate, ready to launch on the operands of a loaded problem, which must outlive it.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// `after_up`: the launch before it writes its X; a kernel that waits for that itself may begin before it has ended.
  /// Throws CandidateFault{launch_error}.
  virtual void enqueue(int set, cudaStream_t stream, bool after_up = false) const = 0;
  /// Zeroes what launches leave zero: one that failed may have left something.
  virtual void clear(cudaStream_t stream) const = 0;
  /// The name of the first of that memory that is not zero, or "".
  virtual std::string left_nonzero() const = 0;
};

/// Allows a kernel the plan's shared memory, and returns how many of its blocks the device can run at once. Throws
/// CandidateFault{launch_error} where not even one fits.
int held_blocks(const void* function, const LaunchPlan& plan, const DeviceInfo& device);

/// A candidate with one cubin, whose blocks have room in `workspace` where the plan asks for it.
std::shared_ptr<const Kernel> make_kernel(const std::string& cubin, const LaunchPlan& plan, const Operands& operands,
                                          Services& services, float* workspace, const DeviceInfo& device);

/// A candidate of a kernel pack, whose files are loaded and whose buffers are allocated. Throws CandidateFault{illegal}
/// for formulas that make no launch.
std::shared_ptr<const Kernel> make_pack_kernel(const Pack& pack, const Candidate& candidate, const Shape& shape,
                                               const Operands& operands, const DeviceInfo& device);

/// Compiles the units of all candidates but those of packs, which are compiled already. One result each, in order.
std::vector<CompileResult> compile_candidates(
    const Shape& shape, std::span<const Candidate> candidates, const DeviceInfo& device,
    const std::function<std::vector<CompileResult>(const std::vector<std::string>& units)>& compile);

/// A tensor map over the matrix at `base`. Boxes are in the 128-byte swizzle, what lies outside the matrix reads as
/// zeros. Throws CandidateFault{launch_error} where the driver refuses it: base and row strides must be multiples of 16
/// bytes. encode_maps fills those of `args`, over the pointers that it has already.
TensorMap encode_map(const MapShape& shape, const void* base);
void encode_maps(Args& args, const std::vector<LaunchMap>& maps);

/// Zeroes device memory; whether it holds zeros alone.
void clear(const DeviceBuffer& memory, cudaStream_t stream);
bool is_zero(const DeviceBuffer& memory);

/// Launches any kernel with arguments by address.
template <class... Arguments>
void launch(const void* function, unsigned blocks, unsigned threads, cudaStream_t stream, Arguments... arguments);

/// Throws as require() does; used by the template.
void launch_checked(const void* function, unsigned blocks, unsigned threads, void** arguments, cudaStream_t stream);

template <class... Arguments>
void launch(const void* function, unsigned blocks, unsigned threads, cudaStream_t stream, Arguments... arguments) {
  std::array<void*, sizeof...(Arguments)> addresses = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  launch_checked(function, blocks, threads, addresses.data(), stream);
}

}  // namespace moetune
