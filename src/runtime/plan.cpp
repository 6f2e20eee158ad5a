// Making plans, and launching them.
#include "runtime/plan.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "runtime/driver.h"
#include "runtime/tensor_map.h"

namespace moetune {
// ---- Workspaces -----------------------------------------------------------------------------------------------------

LaunchWorkspace::~LaunchWorkspace() try {
  const CurrentContext current(context_);
  for (const auto& [name, list] : memory_)
    for (const Memory& memory : list) driver().cuMemFree(memory.data);
} catch (...) {
  // The context is gone, and its memory with it.
}

void LaunchWorkspace::clear(const Memory& memory) const {
  if (memory.zeroed)
    require(driver().cuMemsetD8(memory.data, 0, static_cast<size_t>(memory.bytes)), "cannot clear the workspace");
}

void LaunchWorkspace::reserve(const std::vector<LaunchBuffer>& buffers) {
  const CurrentContext current(context_);
  const std::lock_guard lock(mutex_);
  bool made = false;
  for (const LaunchBuffer& buffer : buffers) {
    const auto found = memory_.find(buffer.name);
    if (found != memory_.end() && found->second.back().bytes >= buffer.bytes) continue;
    Memory memory{.bytes = std::max<int64_t>(buffer.bytes, 1), .zeroed = buffer.zeroed};
    require(driver().cuMemAlloc(&memory.data, static_cast<size_t>(memory.bytes)), "no memory for a workspace");
    memory_[buffer.name].push_back(memory);
    clear(memory);
    made = true;
  }
  if (made) require(driver().cuCtxSynchronize(), "cannot clear the workspace");
}

void LaunchWorkspace::reset() {
  const CurrentContext current(context_);
  const std::lock_guard lock(mutex_);
  for (const auto& [name, list] : memory_)
    for (const Memory& memory : list) clear(memory);
  require(driver().cuCtxSynchronize(), "cannot clear the workspace");
}

CUdeviceptr LaunchWorkspace::address(const LaunchBuffer& buffer, const std::string& kernel) const {
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(buffer.name);
  if (found == memory_.end() || found->second.back().bytes < buffer.bytes)
    throw request_error(kernel + ": the workspace was made for other kernels or fewer tokens: it needs " +
                        std::to_string(buffer.bytes) + " bytes of " + buffer.name);
  return found->second.back().data;
}

int64_t LaunchWorkspace::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t all = 0;
  for (const auto& [name, list] : memory_)
    for (const Memory& memory : list) all += memory.bytes;
  return all;
}

// ---- Plans ----------------------------------------------------------------------------------------------------------

Plan::Plan(std::string kernel, const std::vector<JsonAt>& launches, const std::vector<LoadedFunction>& functions,
           const Sizes& sizes, std::vector<OperandNeed> operands, std::vector<LaunchBuffer> buffers)
    : kernel_(std::move(kernel)),
      operands_(std::move(operands)),
      buffers_(std::move(buffers)),
      addresses_(operands_.size() + buffers_.size()) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const JsonAt& launch = launches[i];
    Step& step = steps_.emplace_back();
    step.function = functions[i].function;
    if (!step.function) {
      const size_t place = step.filled = place_of(launch["fill"]["pointer"].string());
      const int64_t room = place < operands_.size() ? operands_[place].bytes : buffers_[place - operands_.size()].bytes;
      step.fill = fill_of(launch["fill"], sizes, room);
      continue;
    }
    Sizes own = sizes;
    own["held"] = functions[i].held;
    step.grid = static_cast<unsigned>(grid_of(launch, own));
    step.threads = static_cast<unsigned>(launch["threads"].integer());
    step.shared_bytes = static_cast<unsigned>(launch["shared_bytes"].integer());
    step.cooperative = launch["cooperative"].boolean();
    if (functions[i].may_follow && launch.has("follows"))
      step.pdl_after_any = launch["follows"].string() == "any", step.pdl_after_up = launch["follows"].string() == "up";
    each(launch["arguments"], [&](const JsonAt& argument) {
      step.arguments.push_back(prepared(argument_of(argument, own)));
      step.addresses.push_back(step.arguments.back().bytes.data());  // stays where it is when the argument moves
    });
  }
}

size_t Plan::place_of(const std::string& name) const {
  for (size_t i = 0; i < operands_.size(); ++i)
    if (operands_[i].name == name) return i;
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (buffers_[i].name == name) return operands_.size() + i;
  throw request_error(kernel_ + ": no operand or buffer is called '" + name + "'");
}

Plan::Argument Plan::prepared(const LaunchArgument& argument) const {
  Argument made;
  made.bytes.resize((argument.bytes.size() + sizeof(Chunk) - 1) / sizeof(Chunk));
  std::memcpy(made.bytes.data(), argument.bytes.data(), argument.bytes.size());
  for (const LaunchPointer& pointer : argument.pointers)
    made.pointers.push_back({pointer.offset, place_of(pointer.name)});
  for (const LaunchMap& map : argument.maps)
    made.maps.push_back({.offset = map.offset, .place = place_of(map.shape.pointer), .shape = map.shape});
  return made;
}

void Plan::take_addresses(std::span<const moetune_operand> operands, const LaunchWorkspace* workspace) {
  for (size_t i = 0; i < operands_.size(); ++i) {
    const OperandNeed& need = operands_[i];
    const auto is_it = [&](const moetune_operand& given) {
      return given.name && std::strcmp(need.name, given.name) == 0;
    };
    const auto given = i < operands.size() && is_it(operands[i]) ? operands.begin() + static_cast<std::ptrdiff_t>(i)
                                                                 : std::ranges::find_if(operands, is_it);
    if (given == operands.end() || (!given->data && need.bytes > 0))
      throw request_error(kernel_ + ": the operand '" + need.name + "' is missing");
    if (given->bytes >= 0 && given->bytes < need.bytes)
      throw request_error(kernel_ + ": '" + need.name + "' has " + std::to_string(given->bytes) + " bytes, but needs " +
                          std::to_string(need.bytes));
    addresses_[i] = reinterpret_cast<CUdeviceptr>(given->data);
    if (addresses_[i] % static_cast<CUdeviceptr>(need.alignment) != 0)
      throw request_error(kernel_ + ": '" + need.name + "' must begin at a multiple of " +
                          std::to_string(need.alignment) + " bytes");
  }
  if (!buffers_.empty() && !workspace) throw request_error(kernel_ + ": needs a workspace");
  for (size_t i = 0; i < buffers_.size(); ++i)
    addresses_[operands_.size() + i] = workspace->address(buffers_[i], kernel_);
}

void Plan::put_addresses(Argument& argument) const {
  char* const at = argument.bytes.front().bytes;
  for (const Pointer& pointer : argument.pointers)
    std::memcpy(at + pointer.offset, &addresses_[pointer.place], sizeof(CUdeviceptr));
  for (Map& map : argument.maps) {
    const CUdeviceptr base = addresses_[map.place];
    if (map.encoded == base && base != 0) continue;
    CUtensorMap made;
    const CUresult result =
        encode_tensor_map(driver().cuTensorMapEncodeTiled, map.shape, reinterpret_cast<void*>(base), made);
    if (result != CUDA_SUCCESS)
      require(result,
              kernel_ + ": no tensor map of '" + map.shape.pointer + "', which must begin at a multiple of 16 bytes");
    std::memcpy(at + map.offset, &made, sizeof made);
    map.encoded = base;
  }
}

void Plan::launch(Step& step, CUstream stream, bool after_up) const {
  if (!step.function) {
    if (step.fill.bytes > 0)
      require(driver().cuMemsetD8Async(addresses_[step.filled], static_cast<unsigned char>(step.fill.byte),
                                       static_cast<size_t>(step.fill.bytes), stream),
              kernel_ + ": cannot fill memory");
    return;
  }
  for (Argument& argument : step.arguments) put_addresses(argument);
  const bool early = step.pdl_after_any || (after_up && step.pdl_after_up);
  CUlaunchAttribute attribute = {};
  if (step.cooperative) {
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
  } else if (early) {
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
  }
  CUlaunchConfig config = {};
  config.gridDimX = step.grid, config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = step.threads, config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = step.shared_bytes;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = step.cooperative || early ? 1 : 0;
  const CUresult result = driver().cuLaunchKernelEx(&config, step.function, step.addresses.data(), nullptr);
  if (result != CUDA_SUCCESS) require(result, kernel_ + ": cannot be launched");
}

void Plan::check(std::span<const moetune_operand> operands, const LaunchWorkspace* workspace) {
  const std::lock_guard lock(mutex_);
  take_addresses(operands, workspace);
}

void Plan::launch(std::span<const moetune_operand> operands, const LaunchWorkspace* workspace, CUstream stream,
                  bool after_up) {
  const std::lock_guard lock(mutex_);
  take_addresses(operands, workspace);
  for (Step& step : steps_) launch(step, stream, after_up && &step == &steps_.front());
}

}  // namespace moetune
