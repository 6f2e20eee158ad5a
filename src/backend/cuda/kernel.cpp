// Loading and launching. Encoding tensor maps by the driver, whose entry point the runtime finds.
#include "backend/cuda/kernel.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/libraries/runtime.h"
#include "backend/cuda/operands.h"
#include "runtime/tensor_map.h"
#include "variant/pack/launch_rule.h"
#include "workload/product/passes.h"

namespace moetune {
namespace {

// Blocks in clusters that run at once. A GPC with an odd number of SMs leaves one unused.
int clustered_blocks(const void* function, const LaunchPlan& plan) {
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(plan.cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(plan.cluster));
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
  config.dynamicSmemBytes = static_cast<size_t>(plan.shared_bytes);
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  require_candidate(cudaOccupancyMaxActiveClusters(&clusters, function, &config),
                    "cannot read how many clusters the device can run");
  if (clusters == 0) throw CandidateFault(Status::launch_error, "no cluster of the kernel fits on the device");
  return clusters * plan.cluster;
}

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap));

decltype(&cuTensorMapEncodeTiled) find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned kSinceCuda = 12000;
  require(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSinceCuda, cudaEnableDefault, &found),
          "cannot find cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess)
    throw CandidateFault(Status::launch_error, "this driver has no tensor maps: install one of CUDA 12 or newer");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

const void* pointer_of(const Args& args, std::string_view name) {
  for (const ArgsField& field : args_fields()) {
    if (field.name != name) continue;
    const void* pointer = nullptr;
    std::memcpy(&pointer, reinterpret_cast<const char*>(&args) + field.offset, sizeof pointer);
    return pointer;
  }
  throw Error(Exit::bug, fmt::format("Args has no pointer '{}'", name));
}

}  // namespace

Module::Module(const std::string& cubin) {
  require_candidate(cudaLibraryLoadData(&library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                    "cannot load the kernel");
}

Module::~Module() {
  if (library_) cudaLibraryUnload(library_);
}

const void* Module::kernel(const char* name) const {
  cudaKernel_t kernel = nullptr;
  require_candidate(cudaLibraryGetKernel(&kernel, library_, name), "cannot find the kernel");
  return reinterpret_cast<const void*>(kernel);
}

int held_blocks(const void* function, const LaunchPlan& plan, const DeviceInfo& device) {
  require_candidate(
      cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.shared_bytes)),
      "cannot set the kernel's shared memory");
  int per_sm = 0;
  require_candidate(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, function, plan.threads,
                                                                  static_cast<size_t>(plan.shared_bytes)),
                    "cannot read the kernel's occupancy");
  if (per_sm == 0) throw CandidateFault(Status::launch_error, "no block of the kernel fits on an SM");
  if (plan.workspace > 0) per_sm = std::min(per_sm, plan.min_blocks_per_sm);  // more have no workspace
  return plan.cluster == 1 ? per_sm * device.processors : clustered_blocks(function, plan);
}

namespace {

bool captures_early_launches() {
  static const bool captures = [] {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess && version >= kCapturesEarlyLaunches;
  }();
  return captures;
}

// A kernel that moetune compiled from a unit. Its launch includes the last pass, if the product has one.
class UnitKernel : public Kernel {
 public:
  UnitKernel(const std::string& cubin, const LaunchPlan& plan, const Operands& operands, Services& services,
             float* workspace, const DeviceInfo& device)
      : operands_(operands),
        services_(services),
        workspace_(workspace),
        module_(cubin),
        function_(module_.kernel("moetune_kernel")),
        plan_(plan) {
    const int blocks = held_blocks(function_, plan, device);
    const bool makes_gates = plan.gate_parts > 0;
    const Product first = before_last_pass(operands.product, makes_gates);
    const LaunchRule rule = launch_rule(plan, first);
    Sizes sizes = sizes_of(first);
    sizes["held"] = blocks;
    if (makes_gates) parts_ = static_cast<int>(count_of_parts(plan).value(sizes));
    grid_ = rule.grid.value(sizes);
    for (const MapRule& map : rule.maps) tensor_maps_.push_back({map_offset(map.field), evaluate(map, sizes)});
    if (plan.maps > 0) maps_ = DeviceBuffer(int64_t{blocks} * plan.maps * int64_t{sizeof(TensorMap)});
  }

  void enqueue(int set, cudaStream_t stream, bool after_up) const override {
    Args args = operands_.args(set);
    args.workspace = workspace_;
    if (parts_ > 0) args.y = operands_.d.of(set);
    if (plan_.maps > 0) args.maps = maps_.as<TensorMap>();
    encode_maps(args, tensor_maps_);
    void* arguments[] = {&args};
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(grid_));
    config.blockDim = dim3(static_cast<unsigned>(plan_.threads));
    config.dynamicSmemBytes = static_cast<size_t>(plan_.shared_bytes);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = after_up && plan_.follows == Follows::up && captures_early_launches() ? 1 : 0;
    require_candidate(cudaLaunchKernelExC(&config, function_, arguments), "cannot launch the kernel");
    if (takes_another_pass(operands_.product)) operands_.finish(services_, set, stream, parts_);
  }

  void clear(cudaStream_t stream) const override { moetune::clear(operands_.counters, stream); }

  std::string left_nonzero() const override { return is_zero(operands_.counters) ? "" : "counters"; }

 private:
  const Operands& operands_;
  Services& services_;
  float* workspace_;
  Module module_;
  const void* function_;
  LaunchPlan plan_;
  std::vector<LaunchMap> tensor_maps_;
  int64_t grid_ = 0;
  int parts_ = 0;      // of a row, where the kernel makes gradients of gates
  DeviceBuffer maps_;  // of all blocks
};

}  // namespace

std::shared_ptr<const Kernel> make_kernel(const std::string& cubin, const LaunchPlan& plan, const Operands& operands,
                                          Services& services, float* workspace, const DeviceInfo& device) {
  return std::make_shared<UnitKernel>(cubin, plan, operands, services, workspace, device);
}

void clear(const DeviceBuffer& memory, cudaStream_t stream) { set_in_order(memory.data(), 0, memory.size(), stream); }

bool is_zero(const DeviceBuffer& memory) {
  std::vector<char> read(static_cast<size_t>(memory.size()));
  require(cudaMemcpy(read.data(), memory.data(), read.size(), cudaMemcpyDeviceToHost), "cannot read a buffer");
  return std::ranges::all_of(read, [](char byte) { return byte == 0; });
}

void launch_checked(const void* function, unsigned blocks, unsigned threads, void** arguments, cudaStream_t stream) {
  require(cudaLaunchKernel(function, dim3(blocks), dim3(threads), arguments, 0, stream),
          "cannot launch a service kernel");
}

TensorMap encode_map(const MapShape& shape, const void* base) {
  static const auto encoder = find_encoder();
  CUtensorMap map;
  const CUresult result = encode_tensor_map(encoder, shape, const_cast<void*>(base), map);
  if (result != CUDA_SUCCESS)
    throw CandidateFault(Status::launch_error,
                         fmt::format("cannot make a tensor map of {} [{}] in boxes of {} rows: error {}", shape.pointer,
                                     fmt::join(shape.sizes, ", "), shape.box_rows, static_cast<int>(result)));
  TensorMap opaque;
  std::memcpy(&opaque, &map, sizeof map);
  return opaque;
}

void encode_maps(Args& args, const std::vector<LaunchMap>& maps) {
  for (const LaunchMap& map : maps) {
    const TensorMap encoded = encode_map(map.shape, pointer_of(args, map.shape.pointer));
    std::memcpy(reinterpret_cast<char*>(&args) + map.offset, &encoded, sizeof encoded);
  }
}

}  // namespace moetune
