// Modules, buffers and launches of packs.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "backend/backend.h"
#include "backend/cuda/compile/compiler.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/operands.h"
#include "base/error.h"
#include "variant/pack/pack_launch.h"

namespace moetune {
namespace {

constexpr int kFill = 0xff;  // what buffers hold before the first launch: NaNs, and indices of no row

const char* address_of(const std::string& name, const Operands& o, int set) {
  const Product& p = o.product;
  if (name == operand_name(p.a.matrix)) return o.a.of(set);
  if (name == operand_name(p.b.matrix)) return (p.b.type.reordered ? o.b_reordered : o.b).of(set);
  if (name == operand_name(p.d.matrix)) return o.d.of(set);
  if (name == "x_scales") return o.a_scales.of(set);
  if (name == "x_scales_mn_major") return o.a_mn_scales.of(set);
  if (name == "w_scales") return o.b_scales.of(set);
  if (name == "w_zeros") return o.b_zeros.of(set);
  if (name == "y_scales") return o.d_scales.of(set);
  if (name == "bias") return o.bias.of(set);
  if (name == "m_sizes") return o.m_sizes.data();
  if (name == "first_rows") return o.first_rows.data();
  if (name == "gather_indices") return o.gather_indices.data();
  if (name == "topk_weights") return o.weights.data();
  throw Error(Exit::bug, fmt::format("a pack names the operand '{}', which is not there", name));
}

void launch_step(const PackStep& step, const void* function, std::vector<void*>& arguments, cudaStream_t stream) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(step.grid[0]), static_cast<unsigned>(step.grid[1]),
                        static_cast<unsigned>(step.grid[2]));
  config.blockDim = dim3(static_cast<unsigned>(step.threads));
  config.dynamicSmemBytes = static_cast<size_t>(step.shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  if (step.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(step.cluster), 1, 1};
  }
  if (step.cooperative) {
    cudaLaunchAttribute& cooperative = attributes[config.numAttrs++];
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
  }
  require_candidate(cudaLaunchKernelExC(&config, function, arguments.data()), "cannot launch a kernel of the pack");
}

LaunchPlan plan_of(const PackStep& step) {
  LaunchPlan plan{.threads = step.threads, .shared_bytes = step.shared_bytes, .cluster = step.cluster};
  if (step.most_per_processor > 0) plan.min_blocks_per_sm = step.most_per_processor, plan.workspace = 1;
  return plan;
}

class PackKernel : public Kernel {
 public:
  PackKernel(const Pack& pack, const Candidate& candidate, const Shape& shape, const Operands& operands,
             const DeviceInfo& device)
      : operands_(operands) {
    std::map<std::pair<std::string, std::string>, const void*> functions;
    const auto held = [&](const PackStep& step) -> int64_t {
      std::unique_ptr<Module>& module = modules_[step.file];
      if (!module) module = std::make_unique<Module>(read_pack_file(pack, step.file));
      const void* const function = module->kernel(step.entry.c_str());
      functions[{step.file, step.entry}] = function;
      return held_blocks(function, plan_of(step), device);
    };
    Sizes sizes = sizes_of(operands.product);
    sizes["processors"] = device.processors;
    try {
      launch_ = pack_launch(pack, candidate, shape, sizes, device.compute_capability, held);
    } catch (const Error& error) {
      throw CandidateFault(Status::illegal, fmt::format("{}: {}", pack.variant, error.what()));
    }
    for (const PackStep& step : launch_.steps)
      functions_.push_back(step.is_fill() ? nullptr : functions.at({step.file, step.entry}));
    for (const LaunchBuffer& buffer : launch_.buffers) {
      DeviceBuffer memory(std::max<int64_t>(1, buffer.bytes));
      set_on_device(memory.data(), buffer.zeroed ? 0 : kFill, static_cast<size_t>(memory.size()));
      buffers_.emplace(buffer.name, std::move(memory));
    }
    for (size_t i = 0; i < launch_.steps.size(); ++i)
      if (!launch_.steps[i].timed) launch(launch_.steps[i], functions_[i], 0, nullptr);
    require_candidate(cudaStreamSynchronize(nullptr), "a launch of the pack that is not timed failed");
  }

  void enqueue(int set, cudaStream_t stream, bool) const override {
    for (size_t i = 0; i < launch_.steps.size(); ++i) {
      const PackStep& step = launch_.steps[i];
      if (!step.timed) continue;
      if (functions_[i])
        launch(step, functions_[i], set, stream);
      else if (step.fill.bytes > 0)
        require_candidate(cudaMemsetAsync(const_cast<char*>(address(step.fill.pointer, set)), step.fill.byte,
                                          static_cast<size_t>(step.fill.bytes), stream),
                          "cannot fill memory");
    }
  }

  void clear(cudaStream_t stream) const override {
    for (const LaunchBuffer& buffer : launch_.buffers)
      if (buffer.zeroed) moetune::clear(buffers_.at(buffer.name), stream);
  }

  std::string left_nonzero() const override {
    for (const LaunchBuffer& buffer : launch_.buffers)
      if (buffer.zeroed && !is_zero(buffers_.at(buffer.name))) return buffer.name;
    return {};
  }

 private:
  const char* address(const std::string& name, int set) const {
    if (name == "null") return nullptr;
    const auto buffer = buffers_.find(name);
    return buffer != buffers_.end() ? buffer->second.data() : address_of(name, operands_, set);
  }

  void launch(const PackStep& step, const void* function, int set, cudaStream_t stream) const {
    std::vector<std::vector<TensorMap>> arguments;  // aligned as a tensor map must be
    std::vector<void*> addresses;
    for (const LaunchArgument& argument : step.arguments) {
      std::vector<TensorMap>& copy = arguments.emplace_back(argument.bytes.size() / sizeof(TensorMap) + 1);
      auto* const bytes = reinterpret_cast<char*>(copy.data());
      std::memcpy(bytes, argument.bytes.data(), argument.bytes.size());
      for (const LaunchPointer& pointer : argument.pointers) {
        const char* const to = address(pointer.name, set);
        std::memcpy(bytes + pointer.offset, &to, sizeof to);
      }
      for (const LaunchMap& map : argument.maps) {
        const TensorMap encoded = encode_map(map.shape, address(map.shape.pointer, set));
        std::memcpy(bytes + map.offset, &encoded, sizeof encoded);
      }
      addresses.push_back(bytes);
    }
    launch_step(step, function, addresses, stream);
  }

  const Operands& operands_;
  PackLaunch launch_;
  std::map<std::string, std::unique_ptr<Module>> modules_;  // by file
  std::vector<const void*> functions_;                      // one a step; null for a fill
  std::map<std::string, DeviceBuffer> buffers_;
};

}  // namespace

CompileResult stated_result(const Pack& pack, const Candidate& candidate, const Shape& shape,
                            const DeviceInfo& device) {
  const PackBinary* binary = binary_of(pack, candidate.values, shape);
  const std::string* file = binary ? file_for(pack, binary->files, device.compute_capability) : nullptr;
  if (!file) return {.status = Status::compile_error, .reason = "the pack has no kernel for this device and knobs"};
  const PackFile& found = pack.files.at(*file);
  return {.status = Status::ok, .registers = found.registers, .spill_bytes = found.spill_bytes, .from_cache = true};
}

std::shared_ptr<const Kernel> make_pack_kernel(const Pack& pack, const Candidate& candidate, const Shape& shape,
                                               const Operands& operands, const DeviceInfo& device) {
  return std::make_shared<PackKernel>(pack, candidate, shape, operands, device);
}

std::vector<CompileResult> compile_candidates(
    const Shape& shape, std::span<const Candidate> candidates, const DeviceInfo& device,
    const std::function<std::vector<CompileResult>(const std::vector<std::string>& units)>& compile) {
  std::vector<CompileResult> results(candidates.size());
  std::vector<std::string> units;
  std::vector<size_t> places;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (const auto reason = no_kernel_of(candidates[i])) {
      results[i] = {.status = Status::compile_error, .reason = *reason};
      continue;
    }
    const Variant& variant = *candidates[i].variant;
    if (variant.pack) {
      results[i] = stated_result(*variant.pack, candidates[i], shape, device);
    } else {
      units.push_back(variant.unit(candidates[i], shape));
      places.push_back(i);
    }
  }
  std::vector<CompileResult> compiled = compile(units);
  for (size_t i = 0; i < places.size(); ++i) results[places[i]] = std::move(compiled[i]);
  return results;
}

}  // namespace moetune
