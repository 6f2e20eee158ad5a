// Launches kernels that `moetune export --format kernels` wrote, over the CUDA driver API: no moetune, no NVRTC, no
// other library. C++17; include cuda.h's folder and link libcuda. configs/schema/kernels.json of moetune describes the
// manifest.
//
//   using namespace moetune_kernels;
//   Library library("kernels-h200");  // in the current CUDA context
//   Request request;
//   request.experts = 128, request.top_k = 8, request.n = 1536, request.k = 2048, request.tokens = 256;
//   const Kernel& kernel = library.pick(request);
//   Workspace workspace({&kernel}, {256});
//   kernel.call({256}, workspace).launch({{"x", x}, {"w", w}, {"y", y}, {"m_sizes", m_sizes}}, stream);
#pragma once
#include <cuda.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "formula.h"
#include "json.h"
#include "sha256.h"

namespace moetune_kernels {

/// What cannot be done, and why: a damaged manifest or cubin, another GPU, operands that do not fit, a driver's error.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void require(CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  cuGetErrorString(result, &text);
  throw Error(what + ": " + (text ? text : "error " + std::to_string(static_cast<int>(result))));
}

/// A computation and how many tokens it gets. `fusion` is spelled as moetune does: "plain", "permute_x",
/// "permute_y+topk_weights", ... `skew` is the caller's hint: rows of the largest expert over the mean.
struct Request {
  std::string op = "fwd", dtype = "bf16", fusion = "plain";
  std::int64_t experts = 0, top_k = 0;  // experts of this rank
  std::int64_t n = 0, k = 0;            // of the layer: W is [experts, n, k]
  std::int64_t tokens = 0;
  std::optional<double> skew = {};
};

/// An operand by its name in the manifest. `bytes` is checked where it is given: a buffer that is too small is refused.
struct Operand {
  std::string_view name;
  CUdeviceptr data = 0;
  std::int64_t bytes = -1;
};

/// How large a call is. `rows` is the capacity of what lies in expert order, tokens * top_k unless this rank holds
/// fewer: m_sizes, on the device, must not sum to more.
struct Extent {
  std::int64_t tokens = 0;
  std::int64_t rows = -1;
};

class Workspace;

/// One kernel with all that follows from the size of a call. Cheap to launch again; refers to its kernel and workspace.
class Call {
 public:
  /// Puts the launches into the stream: nothing is synchronised, m_sizes stay on the device. Tensor maps contain the
  /// operands' addresses: a graph that captures the launch uses the same addresses in every replay. Throws Error for
  /// operands that are missing, too small or not aligned, and where the driver refuses.
  void launch(const std::vector<Operand>& operands, CUstream stream) const;

 private:
  friend class Kernel;
  friend class Library;
  struct Pointer {
    std::size_t offset = 0;
    std::string name;
  };
  struct Map {
    Pointer of;
    CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE;
    std::vector<cuuint64_t> size, stride;
    std::vector<cuuint32_t> box;
  };
  struct alignas(64) Chunk {
    char bytes[64] = {};
  };
  struct Argument {
    std::vector<Chunk> bytes;  // without the operands' addresses
    std::vector<Pointer> pointers;
    std::vector<Map> maps;
  };
  struct Step {
    CUfunction function = nullptr;  // null: a fill
    unsigned grid = 0, threads = 0, shared_bytes = 0;
    bool cooperative = false;
    std::vector<Argument> arguments;
    std::string filled;
    unsigned char byte = 0;
    std::size_t fill_bytes = 0;
  };
  struct Need {
    std::string name;
    std::int64_t bytes = 0, alignment = 1;
  };

  CUdeviceptr address(const std::string& name, const std::vector<Operand>& operands) const;
  void require_pointers() const;
  void put_pointers(Argument& argument, const std::vector<Operand>& operands) const;

  std::string kernel_;
  const Workspace* workspace_ = nullptr;
  std::vector<Need> operands_;
  std::vector<Step> steps_;
};

/// A kernel for one computation, loaded into the context that was current.
class Kernel {
 public:
  const std::string& name() const { return name_; }
  /// The manifest's kernel, and the cell or range that it was picked by.
  const Value& description() const { return kernel_; }
  const Value& cell() const { return cell_; }
  /// All that a launch of this size needs. Throws Error where the workspace lacks room for it, or where there are more
  /// rows than tokens * top_k.
  Call call(const Extent& extent, const Workspace& workspace) const;

 private:
  friend class Library;
  friend class Workspace;
  struct Loaded {
    CUfunction function = nullptr;
    std::int64_t held = 0;
  };
  struct Need {
    std::int64_t bytes = 0;
    bool zeroed = false;
  };
  Kernel() = default;
  Sizes sizes_of(const Extent& extent) const;
  std::map<std::string, Need> buffers_of(const Sizes& sizes) const;
  static Call::Step step_of(const Value& launch, const Loaded& loaded, Sizes sizes);
  static Call::Argument argument_of(const Value& argument, const Sizes& sizes);
  static void put(const Value& field, std::size_t offset, const Sizes& sizes, Call::Argument& argument);
  static Call::Map map_of(const Value& map, const Sizes& sizes, std::size_t offset);

  std::string name_;
  Value kernel_, cell_;
  int processors_ = 0;
  std::vector<Loaded> loaded_;  // one per launch; fills have no function
};

/// The device memory of one launch in flight: counters, sums, gathered rows and maps that blocks rewrite. Counters are
/// zeroed once, here, and every launch leaves them zero. Make it before a graph is captured, and keep it as long as the
/// graph. Launches that may run at the same time need one each.
class Workspace {
 public:
  /// Room for a launch of any of these kernels of at most this size. Allocates in the current context.
  Workspace(const std::vector<const Kernel*>& kernels, const Extent& most);
  ~Workspace() { free_all(); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Zeroes the counters again, after a launch that failed or was cut off. Waits for the device.
  void reset() const;
  std::int64_t bytes() const;

 private:
  friend class Call;
  friend class Kernel;
  struct Buffer {
    CUdeviceptr data = 0;
    std::int64_t bytes = 0;
    bool zeroed = false;
  };
  void free_all() noexcept {
    for (auto& [name, buffer] : buffers_) cuMemFree(buffer.data);
    buffers_.clear();
  }
  std::map<std::string, Buffer, std::less<>> buffers_;
};

/// A folder of exported kernels. Kernels that it picks belong to it.
class Library {
 public:
  /// Checks the manifest against the device of the current context. `other_gpu`: launch kernels also on a GPU of
  /// another name than the one that they were tuned on, where the architecture allows it.
  explicit Library(const std::filesystem::path& folder, bool other_gpu = false);
  ~Library() {
    for (const auto& [name, module] : modules_) cuModuleUnload(module);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// The kernel for a computation. With a hint of skew it is that of the nearest cell, by doublings of tokens and of
  /// skew together. Without one it is that of the robust choice for the tokens; where the table has none, of the cells
  /// nearest in tokens the most skewed. Of two equally near cells it is the one with fewer tokens. Where the export is
  /// for several architectures that run here, those of the closest count. Throws Error where the export has no kernel
  /// for the computation. Loads cubins.
  const Kernel& pick(const Request& request);

  /// Sorts a routing by expert, in one kernel. It has `slots` ids (tokens * top_k of them, int32 or, `wide`, int64), of
  /// which those of the `experts` from `first_expert` on are sorted. Operands: m_sizes [experts] and gather_indices
  /// [rows], both int32, which are written, and topk_ids [slots]. gather_indices behind the last row are -1. A slot's
  /// token is slot / top_k.
  void route(std::int64_t experts, std::int64_t slots, std::int64_t first_expert, std::int64_t rows, bool wide,
             const std::vector<Operand>& operands, CUstream stream);

  const Value& manifest() const { return manifest_; }

 private:
  Kernel::Loaded loaded(const Value& launch);
  const Kernel& load(const Value& cell);
  CUfunction function(const std::string& file, const std::string& entry);
  std::vector<const Value*> answers(const Request& request, const char* list) const;

  std::filesystem::path folder_;
  Value manifest_;
  int capability_ = 0, processors_ = 0;
  std::map<std::string, CUmodule> modules_;                  // by file
  std::map<const Value*, std::unique_ptr<Kernel>> kernels_;  // by cell or range
};

// ---- Implementation -------------------------------------------------------------------------------------------------

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(path.string() + ": cannot be opened");
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) throw Error(path.string() + ": cannot be read");
  return bytes;
}

/// How close an architecture comes to a compute capability; 0 where it doesn't run there. "sm_90a" runs on 9.0 alone,
/// "sm_80" on 8.0 and what is newer of 8; the newest that runs is the closest.
inline int closeness(const std::string& arch, int capability) {
  const bool exact = !arch.empty() && arch.back() == 'a';
  const std::string digits = arch.substr(0, arch.size() - exact);
  if (digits.size() < 4 || digits.compare(0, 3, "sm_") != 0 ||
      digits.find_first_not_of("0123456789", 3) != std::string::npos)
    return 0;
  const int number = std::atoi(digits.c_str() + 3);
  const bool runs = exact ? number == capability : number / 10 == capability / 10 && number <= capability;
  return runs ? 2 * number + exact : 0;
}

/// How many blocks of a launch fit on the device at once.
inline std::int64_t held_blocks(CUfunction function, const Value& launch, int processors) {
  const auto threads = static_cast<int>(launch["threads"].integer());
  const auto shared = static_cast<std::size_t>(launch["shared_bytes"].integer());
  const auto cluster = static_cast<unsigned>(launch["cluster"].integer());
  require(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(shared)),
          "cannot set the kernel's shared memory");
  if (cluster > 1) {
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = cluster;
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    CUlaunchConfig config = {};
    config.gridDimX = cluster, config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = static_cast<unsigned>(threads), config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = static_cast<unsigned>(shared);
    config.attrs = &attribute, config.numAttrs = 1;
    int clusters = 0;
    require(cuOccupancyMaxActiveClusters(&clusters, function, &config),
            "cannot tell how many clusters fit on the device");
    if (clusters == 0) throw Error("no cluster of the kernel fits on the device");
    return std::int64_t{clusters} * cluster;
  }
  int blocks = 0;
  require(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, shared),
          "cannot tell the kernel's occupancy");
  if (blocks == 0) throw Error("no block of the kernel fits on a processor");
  const Value& most = launch["most_per_processor"];
  if (most.kind() == Value::Kind::number) blocks = std::min(blocks, static_cast<int>(most.integer()));
  return std::int64_t{blocks} * processors;
}

inline Sizes Kernel::sizes_of(const Extent& extent) const {
  const Value &asked = cell_["asked"], &extents = cell_["extents"];
  const std::int64_t top_k = asked["top_k"].integer(), slots = extent.tokens * top_k;
  Sizes sizes = {{"m", extents["m"].integer()},
                 {"n", extents["n"].integer()},
                 {"k", extents["k"].integer()},
                 {"experts", asked["experts"].integer()},
                 {"top_k", top_k},
                 {"tokens", extent.tokens},
                 {"slots", slots},
                 {"rows", extent.rows >= 0 ? extent.rows : slots},
                 {"processors", processors_}};
  if (extent.tokens < 0 || sizes["rows"] > slots)
    throw Error(name_ + ": more rows than tokens * top_k = " + std::to_string(slots));
  for (const auto& [name, formula] : kernel_["sizes"].members())
    sizes[name] = Formula::evaluate(formula.string(), sizes);
  return sizes;
}

inline std::map<std::string, Kernel::Need> Kernel::buffers_of(const Sizes& call) const {
  Sizes sizes = call;
  sizes["held"] = loaded_.front().held;
  sizes["blocks"] = Formula::evaluate(kernel_["launches"].items().front()["grid"].string(), sizes);
  std::map<std::string, Need> needs;
  for (const Value& buffer : kernel_["buffers"].items())
    needs[buffer["name"].string()] = {Formula::evaluate(buffer["bytes"].string(), sizes), buffer["zeroed"].boolean()};
  return needs;
}

inline Call::Map Kernel::map_of(const Value& map, const Sizes& sizes, std::size_t offset) {
  const auto evaluated = [&](const char* key) {
    std::vector<cuuint64_t> values;
    for (const Value& formula : map[key].items())
      values.push_back(static_cast<cuuint64_t>(Formula::evaluate(formula.string(), sizes)));
    return values;
  };
  Call::Map made;
  made.of = {offset, map["pointer"].string()};
  made.type = map["dtype"].string() == "bf16" ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  made.promotion =
      map["l2_promotion"].integer() == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_NONE;
  made.size = evaluated("sizes"), made.stride = evaluated("strides");
  made.box.assign(made.size.size(), 1);
  const std::vector<Value>& sides = map["box"].items();
  if (made.size.size() < 2 || made.size.size() > 5 || made.stride.size() + 1 != made.size.size() || sides.size() != 2)
    map.fail("a map has 2 to 5 sizes, one stride fewer, and two sides of a box");
  for (std::size_t i = 0; i < 2; ++i) made.box[i] = static_cast<cuuint32_t>(sides[i].integer());
  if (map["swizzle"].integer() != 128) map.fail("the swizzle is not of 128 bytes");
  return made;
}

inline void Kernel::put(const Value& field, std::size_t offset, const Sizes& sizes, Call::Argument& argument) {
  const auto copy = [&](const auto& scalar) {
    std::memcpy(argument.bytes.front().bytes + offset, &scalar, sizeof scalar);
  };
  if (field.has("pointer"))
    argument.pointers.push_back({offset, field["pointer"].string()});
  else if (field.has("int32"))
    copy(static_cast<std::int32_t>(Formula::evaluate(field["int32"].string(), sizes)));
  else if (field.has("int64"))
    copy(Formula::evaluate(field["int64"].string(), sizes));
  else
    argument.maps.push_back(map_of(field["tensor_map"], sizes, offset));
}

inline Call::Argument Kernel::argument_of(const Value& value, const Sizes& sizes) {
  constexpr std::int64_t kMost = 4096, kMap = sizeof(CUtensorMap);
  Call::Argument argument;
  if (!value.has("struct")) {
    argument.bytes.resize(2);
    put(value, 0, sizes, argument);
    return argument;
  }
  const Value& whole = value["struct"];
  const std::int64_t size = whole["size"].integer();
  if (size < 1 || size > kMost || whole["alignment"].integer() > 64) whole.fail("no kernel takes such a struct");
  argument.bytes.resize((static_cast<std::size_t>(size) + 63) / 64);
  for (const Value& field : whole["fields"].items()) {
    const std::int64_t offset = field["offset"].integer();
    const std::int64_t width = field.has("tensor_map") ? kMap : field.has("int32") ? 4 : 8;
    if (offset < 0 || offset > size - width) field.fail("lies outside its struct");
    put(field, static_cast<std::size_t>(offset), sizes, argument);
  }
  return argument;
}

inline Call::Step Kernel::step_of(const Value& launch, const Loaded& loaded, Sizes sizes) {
  Call::Step step;
  if (launch.has("fill")) {
    const Value& fill = launch["fill"];
    step.filled = fill["pointer"].string();
    step.byte = static_cast<unsigned char>(fill["byte"].integer());
    step.fill_bytes = static_cast<std::size_t>(Formula::evaluate(fill["bytes"].string(), sizes));
    return step;
  }
  sizes["held"] = loaded.held;
  step.function = loaded.function;
  step.grid = static_cast<unsigned>(Formula::evaluate(launch["grid"].string(), sizes));
  step.threads = static_cast<unsigned>(launch["threads"].integer());
  step.shared_bytes = static_cast<unsigned>(launch["shared_bytes"].integer());
  step.cooperative = launch["cooperative"].boolean();
  for (const Value& argument : launch["arguments"].items()) step.arguments.push_back(argument_of(argument, sizes));
  if (step.arguments.empty()) launch["arguments"].fail("a kernel takes arguments");
  return step;
}

inline std::int64_t element_bytes(const Value& dtype) {
  for (const auto& [name, bytes] : {std::pair("bf16", 2), {"fp16", 2}, {"fp32", 4}, {"int32", 4}})
    if (dtype.string() == name) return bytes;
  dtype.fail("'" + dtype.string() + "' is a type that this loader does not know");
}

inline Call Kernel::call(const Extent& extent, const Workspace& workspace) const {
  const Sizes sizes = sizes_of(extent);
  for (const auto& [name, need] : buffers_of(sizes)) {
    const auto found = workspace.buffers_.find(name);
    if (found == workspace.buffers_.end() || found->second.bytes < need.bytes)
      throw Error(name_ + ": the workspace was made for other kernels or fewer tokens: it needs " +
                  std::to_string(need.bytes) + " bytes of " + name);
  }
  Call call;
  call.kernel_ = name_;
  call.workspace_ = &workspace;
  for (const Value& operand : kernel_["operands"].items()) {
    const std::vector<Value>& sides = operand["shape"].items();
    if (sides.empty()) operand["shape"].fail("a shape has one side or two");
    std::int64_t row_bytes = element_bytes(operand["dtype"]);
    for (std::size_t i = 1; i < sides.size(); ++i) row_bytes *= Formula::evaluate(sides[i].string(), sizes);
    const std::int64_t rows = Formula::evaluate(sides.front().string(), sizes);
    // Kernels read and write at most 16 bytes at a time, and no more than what divides a row's bytes.
    call.operands_.push_back({operand["name"].string(), rows * row_bytes, std::gcd(std::int64_t{16}, row_bytes)});
  }
  const std::vector<Value>& launches = kernel_["launches"].items();
  for (std::size_t i = 0; i < launches.size(); ++i) call.steps_.push_back(step_of(launches[i], loaded_[i], sizes));
  call.require_pointers();
  return call;
}

inline CUdeviceptr Call::address(const std::string& name, const std::vector<Operand>& operands) const {
  for (const Operand& operand : operands)
    if (operand.name == name) return operand.data;
  if (workspace_)
    if (const auto buffer = workspace_->buffers_.find(name); buffer != workspace_->buffers_.end())
      return buffer->second.data;
  throw Error(kernel_ + ": no operand or buffer is called '" + name + "'");
}

// Before anything is launched, every pointer of the manifest must have a name that `address` will find.
inline void Call::require_pointers() const {
  std::vector<Operand> all;
  for (const Need& need : operands_) all.push_back({need.name});
  for (const Step& step : steps_) {
    if (!step.function) address(step.filled, all);
    for (const Argument& argument : step.arguments) {
      for (const Pointer& pointer : argument.pointers) address(pointer.name, all);
      for (const Map& map : argument.maps) address(map.of.name, all);
    }
  }
}

inline void Call::put_pointers(Argument& argument, const std::vector<Operand>& operands) const {
  char* const at = argument.bytes.front().bytes;
  for (const Pointer& pointer : argument.pointers) {
    const CUdeviceptr data = address(pointer.name, operands);
    std::memcpy(at + pointer.offset, &data, sizeof data);
  }
  for (const Map& map : argument.maps) {
    const std::vector<cuuint32_t> every(map.size.size(), 1);
    CUtensorMap encoded;
    require(cuTensorMapEncodeTiled(&encoded, map.type, static_cast<cuuint32_t>(map.size.size()),
                                   reinterpret_cast<void*>(address(map.of.name, operands)), map.size.data(),
                                   map.stride.data(), map.box.data(), every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                                   CU_TENSOR_MAP_SWIZZLE_128B, map.promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            kernel_ + ": no tensor map of '" + map.of.name + "', which must begin at a multiple of 16 bytes");
    std::memcpy(at + map.of.offset, &encoded, sizeof encoded);
  }
}

inline void Call::launch(const std::vector<Operand>& operands, CUstream stream) const {
  for (const Need& need : operands_) {
    const auto given =
        std::find_if(operands.begin(), operands.end(), [&](const Operand& o) { return o.name == need.name; });
    if (given == operands.end() || (given->data == 0 && need.bytes > 0))
      throw Error(kernel_ + ": the operand '" + need.name + "' is missing");
    if (given->bytes >= 0 && given->bytes < need.bytes)
      throw Error(kernel_ + ": '" + need.name + "' has " + std::to_string(given->bytes) + " bytes, but needs " +
                  std::to_string(need.bytes));
    if (given->data % static_cast<CUdeviceptr>(need.alignment) != 0)
      throw Error(kernel_ + ": '" + need.name + "' must begin at a multiple of " + std::to_string(need.alignment) +
                  " bytes");
  }
  for (const Step& step : steps_) {
    if (!step.function) {
      if (step.fill_bytes > 0)
        require(cuMemsetD8Async(address(step.filled, operands), step.byte, step.fill_bytes, stream),
                kernel_ + ": cannot fill memory");
      continue;
    }
    std::vector<Argument> arguments = step.arguments;
    std::vector<void*> addresses;
    for (Argument& argument : arguments) {
      put_pointers(argument, operands);
      addresses.push_back(argument.bytes.front().bytes);
    }
    CUlaunchAttribute cooperative = {};
    cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    cooperative.value.cooperative = 1;
    CUlaunchConfig config = {};
    config.gridDimX = step.grid, config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = step.threads, config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = step.shared_bytes;
    config.hStream = stream;
    config.attrs = &cooperative;
    config.numAttrs = step.cooperative ? 1 : 0;
    require(cuLaunchKernelEx(&config, step.function, addresses.data(), nullptr), kernel_ + ": cannot be launched");
  }
}

inline Workspace::Workspace(const std::vector<const Kernel*>& kernels, const Extent& most) {
  std::map<std::string, Kernel::Need> needs;
  for (const Kernel* kernel : kernels)
    for (const auto& [name, need] : kernel->buffers_of(kernel->sizes_of(most))) {
      needs[name].bytes = std::max(needs[name].bytes, need.bytes);
      needs[name].zeroed |= need.zeroed;
    }
  try {
    for (const auto& [name, need] : needs) {
      Buffer buffer;
      buffer.bytes = std::max<std::int64_t>(need.bytes, 1), buffer.zeroed = need.zeroed;
      require(cuMemAlloc(&buffer.data, static_cast<std::size_t>(buffer.bytes)), "no memory for a workspace");
      buffers_[name] = buffer;
    }
    reset();
  } catch (...) {
    free_all();
    throw;
  }
}

inline void Workspace::reset() const {
  for (const auto& [name, buffer] : buffers_)
    if (buffer.zeroed)
      require(cuMemsetD8(buffer.data, 0, static_cast<std::size_t>(buffer.bytes)), "cannot clear the workspace");
  require(cuCtxSynchronize(), "cannot clear the workspace");
}

inline std::int64_t Workspace::bytes() const {
  std::int64_t all = 0;
  for (const auto& [name, buffer] : buffers_) all += buffer.bytes;
  return all;
}

inline Library::Library(const std::filesystem::path& folder, bool other_gpu) : folder_(folder) {
  const std::filesystem::path path = folder / "manifest.json";
  const std::string text = read_file(path);
  if (read_file(folder / "manifest.sha256").substr(0, 64) != Sha256::hex(text))
    throw Error(path.string() + ": was changed or cut short: manifest.sha256 has another digest");
  manifest_ = Value::parse(text, path.string());
  if (manifest_["schema"].string() != "moetune.kernels/1" || manifest_["abi"].integer() != 1)
    throw Error(path.string() + ": is of another version than this loader (moetune.kernels/1, abi 1)");
  CUdevice device = 0;
  require(cuCtxGetDevice(&device), "no CUDA context is current");
  char name[256] = {};
  require(cuDeviceGetName(name, sizeof name, device), "cannot read the device's name");
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    require(cuDeviceGetAttribute(&value, which, device), "cannot read the device's attributes");
    return value;
  };
  capability_ = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  processors_ = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  const std::string& tuned_on = manifest_["device"]["name"].string();
  const std::vector<Value>& cells = manifest_["cells"].items();
  const bool runs = std::any_of(cells.begin(), cells.end(),
                                [&](const Value& cell) { return closeness(cell["arch"].string(), capability_) > 0; });
  if (!runs)
    throw Error(path.string() + ": has no kernels for " + name + ", compute capability " + std::to_string(capability_));
  const bool tuned_here = closeness(manifest_["device"]["arch"].string(), capability_) > 0;
  if (tuned_here && tuned_on != name && !other_gpu)
    throw Error(path.string() + ": was tuned on " + tuned_on + ", and this is " + name +
                "; pass other_gpu to launch its kernels all the same");
}

/// Those of a list ("ranges" or "cells") that are for the request, and for the closest architecture that either list
/// has for it.
inline std::vector<const Value*> Library::answers(const Request& request, const char* list) const {
  int closest = 1;
  std::vector<const Value*> found;
  for (const char* each : {"ranges", "cells"})
    for (const Value& served : manifest_[each].items()) {
      const Value& asked = served["asked"];
      const bool is_asked = asked["op"].string() == request.op && asked["dtype"].string() == request.dtype &&
                            asked["fusion"].string() == request.fusion &&
                            asked["experts"].integer() == request.experts &&
                            asked["top_k"].integer() == request.top_k && asked["n"].integer() == request.n &&
                            asked["k"].integer() == request.k;
      const int close = is_asked ? closeness(served["arch"].string(), capability_) : 0;
      if (close > closest) found.clear();
      closest = std::max(closest, close);
      if (close == closest && each == std::string_view(list)) found.push_back(&served);
    }
  return found;
}

inline const Kernel& Library::pick(const Request& request) {
  if (!request.skew)
    for (const Value* range : answers(request, "ranges")) {
      const Value &from = (*range)["tokens"]["from"], &to = (*range)["tokens"]["to"];
      const bool open = to.kind() == Value::Kind::null;
      if (request.tokens >= from.integer() && (open || request.tokens <= to.integer())) return load(*range);
    }
  const Value* best = nullptr;
  std::tuple<long long, double, double> least;
  for (const Value* each : answers(request, "cells")) {
    const Value& cell = *each;
    const auto doublings = [](double a, double b) {
      return std::abs(std::log2(std::max(a, 1e-9) / std::max(b, 1e-9)));
    };
    const double tokens = doublings(static_cast<double>(request.tokens), cell["tokens"].number());
    const double skew = cell["skew"].number();
    const double distance = request.skew ? std::hypot(tokens, doublings(*request.skew, skew)) : tokens;
    // In millionths, so that rounding errors don't decide between two cells that are equally near.
    const std::tuple rank(std::llround(1e6 * distance), cell["tokens"].number(), request.skew ? 0.0 : -skew);
    if (best && rank >= least) continue;
    best = &cell, least = rank;
  }
  if (!best)
    throw Error((folder_ / "manifest.json").string() + ": has no kernel for " + request.op + " " + request.dtype + " " +
                request.fusion + ", " + std::to_string(request.experts) + " experts, top " +
                std::to_string(request.top_k) + ", n " + std::to_string(request.n) + ", k " +
                std::to_string(request.k) + " on this GPU");
  return load(*best);
}

inline const Kernel& Library::load(const Value& cell) {
  std::unique_ptr<Kernel>& kept = kernels_[&cell];
  if (kept) return *kept;
  const std::string& name = cell["kernel"].string();
  const Value* kernel = nullptr;
  for (const Value& each : manifest_["kernels"].items())
    if (each["name"].string() == name) kernel = &each;
  if (!kernel) cell.fail("names the kernel '" + name + "', which the manifest does not have");
  std::unique_ptr<Kernel> made(new Kernel);
  made->name_ = name, made->kernel_ = *kernel, made->cell_ = cell, made->processors_ = processors_;
  for (const Value& launch : made->kernel_["launches"].items()) {
    made->loaded_.emplace_back();
    if (!launch.has("fill")) made->loaded_.back() = loaded(launch);
  }
  if (made->loaded_.empty() || !made->loaded_.front().function) kernel->fail("must begin with the launch of a kernel");
  kept = std::move(made);
  return *kept;
}

inline Kernel::Loaded Library::loaded(const Value& launch) {
  const std::string* file = nullptr;
  int closest = 0;
  for (const auto& [arch, cubin] : launch["cubin"].members())
    if (const int close = closeness(arch, capability_); close > closest) file = &cubin.string(), closest = close;
  if (!file) launch.fail("has no cubin for compute capability " + std::to_string(capability_));
  Kernel::Loaded made;
  made.function = function(*file, launch["entry"].string());
  made.held = held_blocks(made.function, launch, processors_);
  return made;
}

inline void Library::route(std::int64_t experts, std::int64_t slots, std::int64_t first_expert, std::int64_t rows,
                           bool wide, const std::vector<Operand>& operands, CUstream stream) {
  const Value& launch = manifest_["route"][wide ? "int64" : "int32"];
  Call call;
  call.kernel_ = "route";
  const std::int64_t id_bytes = wide ? 8 : 4;
  call.operands_ = {
      {"m_sizes", experts * 4, 4}, {"gather_indices", rows * 4, 4}, {"topk_ids", slots * id_bytes, id_bytes}};
  const Sizes sizes = {{"experts", experts}, {"slots", slots}, {"first_expert", first_expert}, {"rows", rows}};
  call.steps_.push_back(Kernel::step_of(launch, loaded(launch), sizes));
  call.require_pointers();
  call.launch(operands, stream);
}

inline CUfunction Library::function(const std::string& file, const std::string& entry) {
  const std::filesystem::path path = folder_ / file;
  if (modules_.find(file) == modules_.end()) {
    const Value& expected = manifest_["files"][file];
    if (file.find_first_of("/\\") != std::string::npos) expected.fail("a cubin lies beside the manifest");
    const std::string bytes = read_file(path);
    if (static_cast<std::int64_t>(bytes.size()) != expected["bytes"].integer() ||
        Sha256::hex(bytes) != expected["sha256"].string())
      throw Error(path.string() + ": is not the file that the manifest names: it was changed or cut short");
    CUmodule module = nullptr;
    require(cuModuleLoadData(&module, bytes.data()), path.string() + ": cannot be loaded");
    modules_[file] = module;
  }
  CUfunction function = nullptr;
  require(cuModuleGetFunction(&function, modules_[file], entry.c_str()), path.string() + ": has no kernel " + entry);
  return function;
}

}  // namespace moetune_kernels
