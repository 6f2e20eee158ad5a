// A kernel's launches for operands of known sizes, made once and kept: a launch fills in addresses.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/launch.h"
#include "runtime/moetune.h"

namespace moetune {

/// Device memory of one launch in flight: counters, sums, gathered rows and maps that blocks rewrite. Counters are
/// zeroed when they are made, and every launch leaves them zero.
class LaunchWorkspace {
 public:
  explicit LaunchWorkspace(CUcontext context) : context_(context) {}
  ~LaunchWorkspace();
  LaunchWorkspace(const LaunchWorkspace&) = delete;
  LaunchWorkspace& operator=(const LaunchWorkspace&) = delete;

  /// Makes room. Memory that became too small is kept: a captured graph may hold its address.
  void reserve(const std::vector<LaunchBuffer>& buffers);
  /// Zeroes all counters. Waits for the device.
  void reset();
  /// The address of a buffer. Throws Exit::request, with `kernel`, if the workspace lacks room for it.
  CUdeviceptr address(const LaunchBuffer& buffer, const std::string& kernel) const;
  int64_t bytes() const;

 private:
  struct Memory {
    CUdeviceptr data = 0;
    int64_t bytes = 0;
    bool zeroed = false;
  };
  void clear(const Memory& memory) const;

  CUcontext context_;
  mutable std::mutex mutex_;
  std::map<std::string, std::vector<Memory>> memory_;  // by the buffer's name; the last one is used
};

/// An operand of a plan. Its texts outlive the plan.
struct OperandNeed {
  const char *name = "", *dtype = "";
  std::vector<int64_t> shape = {};
  bool exact = false;
  int64_t top_k = 0, bytes = 0, alignment = 1;
};

/// A function of a cubin, and how many of its blocks fit on the device at once.
struct LoadedFunction {
  CUfunction function = nullptr;  // null: a fill
  int64_t held = 0;
  bool may_follow = false;  // kernels wait for the launch before them, and the driver can capture that
};

class Plan {
 public:
  /// `functions`: one for each launch. Throws Exit::request, with the place, for values that no launch can have.
  Plan(std::string kernel, const std::vector<JsonAt>& launches, const std::vector<LoadedFunction>& functions,
       const Sizes& sizes, std::vector<OperandNeed> operands, std::vector<LaunchBuffer> buffers);

  const std::vector<OperandNeed>& operands() const { return operands_; }

  /// Throws what launch() does for operands that don't fit.
  void check(std::span<const moetune_operand> operands, const LaunchWorkspace* workspace);

  /// See moetune_launch. `workspace` may be null for a plan without buffers. `after_up`: the launch before it in the
  /// stream writes its x, and a kernel that waits for that itself may begin before it has ended.
  void launch(std::span<const moetune_operand> operands, const LaunchWorkspace* workspace, CUstream stream,
              bool after_up = false);

 private:
  struct Pointer {
    size_t offset = 0, place = 0;  // of an address among addresses_
  };
  struct Map {
    size_t offset = 0, place = 0;
    MapShape shape;
    CUdeviceptr encoded = 0;  // the address in the tensor map
  };
  struct alignas(64) Chunk {
    char bytes[64] = {};
  };
  struct Argument {
    std::vector<Chunk> bytes;
    std::vector<Pointer> pointers;
    std::vector<Map> maps;
  };
  struct Step {
    CUfunction function = nullptr;
    LaunchFill fill;
    size_t filled = 0;  // place
    unsigned grid = 0, threads = 0, shared_bytes = 0;
    bool cooperative = false, pdl_after_up = false, pdl_after_any = false;
    std::vector<Argument> arguments;
    std::vector<void*> addresses;  // of arguments
  };

  size_t place_of(const std::string& name) const;
  Argument prepared(const LaunchArgument& argument) const;
  void take_addresses(std::span<const moetune_operand> operands, const LaunchWorkspace* workspace);
  void put_addresses(Argument& argument) const;
  void launch(Step& step, CUstream stream, bool after_up) const;

  std::string kernel_;
  std::vector<OperandNeed> operands_;
  std::vector<LaunchBuffer> buffers_;
  std::mutex mutex_;                    // launches write into the arguments
  std::vector<CUdeviceptr> addresses_;  // of operands, then of buffers
  std::vector<Step> steps_;
};

}  // namespace moetune
