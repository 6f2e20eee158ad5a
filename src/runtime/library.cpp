// Opening an export, picking and loading its kernels.
#include "runtime/library.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "runtime/driver.h"
#include "runtime/manifest.h"

namespace moetune {
namespace {

constexpr size_t kKeptPlans = 4096;    // of a kernel, or of services: then all are made again
constexpr int64_t kMaxRouted = 65536;  // experts: a block each, and grids of manifests end there
constexpr int64_t kMaxSlots = std::numeric_limits<int32_t>::max();  // kernels count slots in 32 bits

const char* text_of(const JsonAt& at) { return at.value().get_ref<const std::string&>().c_str(); }

// How many blocks of a launch fit on the device at once.
int64_t held_blocks(CUfunction function, const JsonAt& launch, int processors) {
  const auto threads = static_cast<int>(launch["threads"].integer());
  const auto shared = static_cast<int>(launch["shared_bytes"].integer());
  const auto cluster = static_cast<unsigned>(launch["cluster"].integer());
  require(driver().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared),
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
    require(driver().cuOccupancyMaxActiveClusters(&clusters, function, &config),
            "cannot read how many clusters fit on the device");
    if (clusters == 0) throw machine_error("no cluster of the kernel fits on the device");
    return int64_t{clusters} * cluster;
  }
  int blocks = 0;
  require(driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, static_cast<size_t>(shared)),
          "cannot read the kernel's occupancy");
  if (blocks == 0) throw machine_error("no block of the kernel fits on a processor");
  if (launch.has("most_per_processor"))
    blocks = static_cast<int>(std::min<int64_t>(blocks, launch["most_per_processor"].integer()));
  return int64_t{blocks} * processors;
}

// Names of elements as manifests have them.
int64_t element_bits(std::string_view dtype) {
  constexpr std::pair<std::string_view, int64_t> kBits[] = {{"bf16", 16}, {"fp16", 16}, {"fp32", 32}, {"int32", 32},
                                                            {"fp8", 8},   {"int8", 8},  {"uint8", 8}, {"int4", 4},
                                                            {"uint4", 4}, {"e2m1", 4},  {"e8m0", 8}};
  for (const auto& [name, bits] : kBits)
    if (name == dtype) return bits;
  throw request_error("the manifest has an operand of " + std::string(dtype) + ", which this library does not know",
                      "use the library that was exported with it");
}

bool is_asked(const moetune_request& asked, const moetune_request& request) {
  return asked.experts == request.experts && asked.top_k == request.top_k && asked.n == request.n &&
         asked.k == request.k && std::strcmp(asked.op, request.op) == 0 &&
         std::strcmp(asked.dtype, request.dtype) == 0 && std::strcmp(asked.fusion, request.fusion) == 0;
}

}  // namespace

// ---- Kernels --------------------------------------------------------------------------------------------------------

LoadedKernel::LoadedKernel(KernelLibrary& library, const JsonAt& kernel, const JsonAt& at, const moetune_served& served)
    : library_(library), kernel_(kernel), extents_(at["extents"]), served_(served), name_(served.kernel) {
  each(kernel["launches"], [&](const JsonAt& launch) {
    launches_.push_back(launch);
    functions_.push_back(launch.has("fill") ? LoadedFunction{} : library.load(launch));
  });
  each(kernel["operands"], [&](const JsonAt& operand) { has_scales_ = has_scales_ || operand.has("strides"); });
}

Sizes LoadedKernel::sizes_of(int64_t tokens, int64_t rows) const {
  const int64_t top_k = served_.request.top_k;
  if (tokens < 0 || tokens > std::numeric_limits<int32_t>::max() / top_k)
    throw request_error(name_ + ": " + std::to_string(tokens) + " tokens: expected 0 to 2^31 - 1 slots");
  const int64_t slots = tokens * top_k;
  if (rows == -1) rows = slots;
  if (rows < 0 || rows > slots)
    throw request_error(name_ + ": " + std::to_string(rows) +
                        " are more rows than tokens * top_k = " + std::to_string(slots));
  Sizes sizes = {{"experts", served_.request.experts},
                 {"top_k", top_k},
                 {"tokens", tokens},
                 {"slots", slots},
                 {"rows", rows},
                 {"processors", library_.processors()},
                 {"held", functions_.front().held}};
  for (const char* extent : {"m", "n", "k"}) sizes[extent] = extents_[extent].integer();
  for (const auto& [name, formula] : kernel_["sizes"].value().items())
    sizes[name] = evaluate(kernel_["sizes"][name], sizes);
  return sizes;
}

std::vector<LaunchBuffer> LoadedKernel::buffers_of(const Sizes& sizes) const {
  Sizes own = sizes;
  own["blocks"] = grid_of(launches_.front(), sizes);
  return moetune::buffers_of(kernel_["buffers"], own);
}

std::vector<LaunchBuffer> LoadedKernel::buffers(int64_t tokens) const { return buffers_of(sizes_of(tokens, -1)); }

// Puts the distances between scales that the caller did not give into `sizes`. Kernels count scales in 32 bits.
int64_t LoadedKernel::scale_bytes(const JsonAt& operand, const std::vector<int64_t>& shape, Sizes& sizes) const {
  constexpr int64_t kMaxFloats = int64_t{1} << 32;
  int64_t last = 0, without_gaps = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    const auto [place, absent] = sizes.emplace(operand["strides"][i].string(), without_gaps);
    const int64_t stride = place->second, steps = std::max<int64_t>(shape[i] - 1, 0);
    if (stride < 0 || (stride > 0 && steps > kMaxFloats / stride) || (last += steps * stride) >= kMaxFloats)
      throw request_error(name_ + ": '" + operand["name"].string() +
                          "' needs strides of 0 or more, and its last scale within 2^32 scales of its first");
    if (absent) without_gaps *= steps + 1;
  }
  return !contains(shape, 0) ? last + 1 : 0;
}

// Matrices of experts lie one behind another: their rows are "experts * n".
std::vector<OperandNeed> LoadedKernel::operands_of(Sizes& sizes) const {
  constexpr std::string_view kByExpert = "experts * ";
  std::vector<OperandNeed> needs;
  each(kernel_["operands"], [&](const JsonAt& operand) {
    OperandNeed need{.name = text_of(operand["name"]), .dtype = text_of(operand["dtype"])};
    each(operand["shape"], [&](const JsonAt& side) { need.shape.push_back(evaluate(side, sizes)); });
    const std::string rows = operand["shape"][size_t{0}].string();
    const int64_t bits = element_bits(need.dtype);
    int64_t row_bytes = 1;
    for (size_t i = 1; i < need.shape.size(); ++i) row_bytes *= need.shape[i];
    row_bytes = row_bytes * bits / 8;
    need.bytes = need.shape.front() * row_bytes;
    // Kernels read and write at most 16 bytes at a time, and no more than what divides a row's bytes.
    need.alignment = std::gcd(int64_t{16}, row_bytes);
    need.exact = rows.starts_with("experts") || rows == "1";
    if (operand.has("strides"))
      need.bytes = scale_bytes(operand, need.shape, sizes) * bits / 8, need.alignment = bits / 8;
    if (rows.starts_with(kByExpert) && need.shape.size() < std::size(moetune_need{}.shape)) {
      need.shape.front() = Formula::evaluate(std::string_view(rows).substr(kByExpert.size()), sizes);
      need.shape.insert(need.shape.begin(), sizes.at("experts"));
    }
    if (rows == "slots" && need.shape.size() == 1) need.top_k = sizes.at("top_k");
    needs.push_back(std::move(need));
  });
  return needs;
}

std::shared_ptr<Plan> LoadedKernel::plan(int64_t tokens, int64_t rows, const moetune_strides* strides) {
  std::array<int64_t, 7> key = {tokens, rows};
  if (!has_scales_) strides = nullptr;
  if (strides)
    key = {tokens, rows, strides->x_row, strides->x_step, strides->w_expert, strides->w_row, strides->w_step};
  else if (has_scales_)
    key.back() = std::numeric_limits<int64_t>::min();
  const std::lock_guard lock(mutex_);
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  Sizes sizes = sizes_of(tokens, rows);
  for (size_t i = 0; strides && i < std::size(kScaleStrides); ++i) sizes[kScaleStrides[i]] = key[i + 2];
  std::vector<OperandNeed> operands = operands_of(sizes);
  auto made = std::make_shared<Plan>(name_, launches_, functions_, sizes, std::move(operands), buffers_of(sizes));
  if (plans_.size() >= kKeptPlans) plans_.clear();
  return plans_[key] = std::move(made);
}

// ---- The library ----------------------------------------------------------------------------------------------------

KernelLibrary::KernelLibrary(const std::filesystem::path& folder, bool other_gpu)
    : folder_(folder), manifest_(read_manifest(folder)), at_(manifest_, (folder / "manifest.json").string()) {
  if (at_["schema"].string() != "moetune.kernels/1" || at_["abi"].integer() != kKernelAbi)
    throw request_error(at_.where() + ": is of another version than this library (moetune.kernels/1, abi 1)");
  require_manifest(at_);
  find_device(other_gpu);
}

KernelLibrary::~KernelLibrary() try {
  const CurrentContext current(context_);
  for (const auto& [file, module] : modules_) driver().cuModuleUnload(module);
} catch (...) {
  // The context is gone, and its modules with it.
}

void KernelLibrary::find_device(bool other_gpu) {
  require(driver().cuInit(0), "no CUDA device");
  require(driver().cuCtxGetCurrent(&context_), "no CUDA context");
  if (!context_) require(driver().cuDevicePrimaryCtxRetain(&context_, 0), "no CUDA device");
  const CurrentContext current(context_);
  require(driver().cuCtxGetDevice(&device_), "no CUDA context");
  char name[256] = {};
  require(driver().cuDeviceGetName(name, sizeof name, device_), "cannot read the device's name");
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    require(driver().cuDeviceGetAttribute(&value, which, device_), "cannot read the device's attributes");
    return value;
  };
  capability_ = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  processors_ = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  int version = 0;
  require(driver().cuDriverGetVersion(&version), "cannot read the driver's version");
  may_follow_ = capability_ >= 90 && version >= kCapturesEarlyLaunches;
  read_served();
  if (served_.empty())
    throw machine_error(at_.where() + ": has no kernels for " + name + ", compute capability " +
                        std::to_string(capability_));
  const JsonAt tuned_on = at_["device"];
  if (closeness(tuned_on["arch"].string(), capability_) > 0 && tuned_on["name"].string() != name && !other_gpu)
    throw machine_error(at_.where() + ": was tuned on " + tuned_on["name"].string() + ", and this is " + name +
                        "; pass other_gpu to launch its kernels all the same");
}

void KernelLibrary::read_served() {
  const auto add = [&](const JsonAt& at, bool range) {
    const int close = closeness(at["arch"].string(), capability_);
    if (close == 0) return;
    const JsonAt asked = at["asked"], tokens = at["tokens"];
    moetune_served served{
        .id = range ? "range" : text_of(at["id"]),
        .kernel = text_of(at["kernel"]),
        .request = {text_of(asked["op"]), text_of(asked["dtype"]), text_of(asked["fusion"]), asked["experts"].integer(),
                    asked["top_k"].integer(), asked["n"].integer(), asked["k"].integer()},
        .tokens_from = range ? tokens["from"].integer() : tokens.integer(),
        .tokens_to = 0,
        .skew = range ? 0 : at["skew"].number(),
        .time_us = at.has("time_us") ? at["time_us"].number() : 0};
    served.tokens_to = !range ? served.tokens_from : tokens.has("to") ? tokens["to"].integer() : -1;
    served_.push_back(served);
    places_.emplace_back(at, close);
  };
  each(at_["ranges"], [&](const JsonAt& at) { add(at, true); });
  each(at_["cells"], [&](const JsonAt& at) { add(at, false); });
}

// Of the closest architecture that serves the request.
std::vector<size_t> KernelLibrary::answers(const moetune_request& request) const {
  std::vector<size_t> found;
  for (size_t i = 0; i < served_.size(); ++i) {
    if (!is_asked(served_[i].request, request)) continue;
    if (!found.empty() && places_[i].second > places_[found.front()].second) found.clear();
    if (found.empty() || places_[i].second == places_[found.front()].second) found.push_back(i);
  }
  return found;
}

size_t KernelLibrary::place_of(const moetune_request& request, int64_t tokens, double skew) const {
  const auto doublings = [](double a, double b) { return std::abs(std::log2(std::max(a, 1e-9) / std::max(b, 1e-9))); };
  std::optional<size_t> best;
  std::tuple<long long, int64_t, double> least;
  for (const size_t place : answers(request)) {
    const moetune_served& served = served_[place];
    if (std::strcmp(served.id, "range") == 0) {
      if (skew <= 0 && tokens >= served.tokens_from && (served.tokens_to == -1 || tokens <= served.tokens_to))
        return place;
      continue;
    }
    const double apart = doublings(static_cast<double>(tokens), static_cast<double>(served.tokens_from));
    const double distance = skew > 0 ? std::sqrt(apart * apart + std::pow(doublings(skew, served.skew), 2)) : apart;
    // In millionths, so that rounding errors don't decide between two cells that are equally near.
    const std::tuple rank(std::llround(1e6 * distance), served.tokens_from, skew > 0 ? 0.0 : -served.skew);
    if (!best || rank < least) best = place, least = rank;
  }
  if (!best) throw lacks(request);
  return *best;
}

Error KernelLibrary::lacks(const moetune_request& request) const {
  return request_error(at_.where() + ": has no kernel for " + request.op + " " + request.dtype + " " + request.fusion +
                       ", " + std::to_string(request.experts) + " experts, top " + std::to_string(request.top_k) +
                       ", n " + std::to_string(request.n) + ", k " + std::to_string(request.k) + " on this GPU");
}

LoadedKernel& KernelLibrary::pick(const moetune_request& request, int64_t tokens, double skew) {
  const std::lock_guard lock(mutex_);
  return load(place_of(request, tokens, skew));
}

std::pair<LoadedKernel*, LoadedKernel*> KernelLibrary::pick_layer(const moetune_request& up,
                                                                  const moetune_request& down, int64_t tokens,
                                                                  double skew) {
  const std::lock_guard lock(mutex_);
  const size_t first = place_of(up, tokens, skew);
  const JsonAt& at = places_[first].first;
  std::optional<size_t> second;
  if (at.has("down"))
    for (const size_t place : answers(down))
      if (at["down"].string() == served_[place].id) second = place;
  return {&load(first), &load(second ? *second : place_of(down, tokens, skew))};
}

std::vector<LoadedKernel*> KernelLibrary::kernels(std::span<const moetune_request> requests) {
  const std::lock_guard lock(mutex_);
  std::vector<size_t> places(served_.size());
  std::iota(places.begin(), places.end(), size_t{0});
  if (!requests.empty()) places.clear();
  for (const moetune_request& request : requests) {
    const std::vector<size_t> found = answers(request);
    if (found.empty()) throw lacks(request);
    places.insert(places.end(), found.begin(), found.end());
  }
  std::vector<LoadedKernel*> list;
  for (const size_t place : places) {
    const bool seen = std::ranges::any_of(list, [&](const LoadedKernel* kernel) {
      return kernel->name() == served_[place].kernel && is_asked(kernel->served().request, served_[place].request);
    });
    if (!seen) list.push_back(&load(place));
  }
  return list;
}

LoadedKernel& KernelLibrary::load(size_t place) {
  std::unique_ptr<LoadedKernel>& kept = kernels_[place];
  if (kept) return *kept;
  const CurrentContext current(context_);
  each(at_["kernels"], [&](const JsonAt& kernel) {
    if (!kept && kernel["name"].string() == served_[place].kernel)
      kept = std::make_unique<LoadedKernel>(*this, kernel, places_[place].first, served_[place]);
  });
  return *kept;  // require_manifest found it
}

LoadedFunction KernelLibrary::load(const JsonAt& launch) {
  const JsonAt cubins = launch["cubin"];
  std::string file;
  int closest = 0;
  for (const auto& [arch, name] : cubins.value().items())
    if (const int close = closeness(arch, capability_); close > closest) file = cubins[arch].string(), closest = close;
  if (file.empty()) launch.fail("has no cubin for compute capability " + std::to_string(capability_));
  const std::string path = (folder_ / file).string(), entry = launch["entry"].string();
  CUmodule& module = modules_[file];
  if (!module)
    require(driver().cuModuleLoadData(&module, read_cubin(folder_, at_["files"], file).data()),
            path + ": cannot be loaded");
  LoadedFunction made;
  require(driver().cuModuleGetFunction(&made.function, module, entry.c_str()), path + ": has no kernel " + entry);
  made.held = held_blocks(made.function, launch, processors_);
  made.may_follow = may_follow_;
  return made;
}

namespace {

OperandNeed vector_of(const char* name, const char* dtype, int64_t length, int64_t bytes) {
  return {.name = name, .dtype = dtype, .shape = {length}, .bytes = length * bytes, .alignment = bytes};
}

}  // namespace

std::shared_ptr<Plan> KernelLibrary::route(int64_t experts, int64_t slots, int64_t first_expert, int64_t rows,
                                           int id_bytes) {
  if (id_bytes != 4 && id_bytes != 8) throw request_error("route: ids have 4 or 8 bytes");
  if (experts < 1 || slots < 0 || first_expert < 0 || rows < 0)
    throw request_error("route: experts, slots, first_expert and rows must not be negative");
  if (experts > kMaxRouted) throw request_error("route: takes at most " + std::to_string(kMaxRouted) + " experts");
  if (slots > kMaxSlots || rows > kMaxSlots || first_expert > kMaxSlots)
    throw request_error("route: takes at most 2^31 - 1 slots, rows and first_expert");
  const char* const ids = id_bytes == 8 ? "int64" : "int32";
  return service("route", ids, {"experts", "slots", "first_expert", "rows"}, {experts, slots, first_expert, rows},
                 {vector_of("m_sizes", "int32", experts, 4), vector_of("gather_indices", "int32", rows, 4),
                  vector_of("topk_ids", ids, slots, id_bytes)});
}

std::shared_ptr<Plan> KernelLibrary::choose(const moetune_choice& how, int64_t tokens, const std::string& dtype,
                                            bool biased) {
  const auto [experts, top_k, groups, top_groups, sigmoid, renormalize, scale] = how;
  static constexpr const char* kTypes[] = {"bf16", "fp16", "fp32"};
  const auto* const type = std::ranges::find(kTypes, dtype);
  if (type == std::end(kTypes)) throw request_error("choose: logits are bf16, fp16 or fp32, not " + dtype);
  if (tokens < 0 || tokens > kMaxSlots) throw request_error("choose: takes 0 to 2^31 - 1 tokens");
  if (experts < 1 || experts > 1024) throw request_error("choose: takes 1 to 1024 experts");
  if (groups < 1 || groups > 32 || experts % groups != 0 || top_groups < 1 || top_groups > groups)
    throw request_error("choose: takes 1 to 32 groups that divide the experts, and of these 1 or more");
  if (top_k < 1 || top_k > 32 || top_k > experts / groups * top_groups)
    throw request_error("choose: top_k is 1 to 32, and at most the experts of the top groups");
  return service(
      "choose", "",
      {"type", "tokens", "experts", "top_k", "groups", "top_groups", "sigmoid", "renormalize", "scale", "biased"},
      {type - kTypes, tokens, experts, top_k, groups, top_groups, sigmoid != 0, renormalize != 0,
       std::bit_cast<int32_t>(scale), biased},
      {vector_of("topk_weights", "fp32", tokens * top_k, 4), vector_of("topk_ids", "int32", tokens * top_k, 4),
       vector_of("logits", *type, tokens * experts, dtype == "fp32" ? 4 : 2),
       vector_of("bias", "fp32", biased ? experts : 0, 4)});
}

std::shared_ptr<Plan> KernelLibrary::reorder(const std::string& format, int64_t experts, int64_t n, int64_t k,
                                             int gates) {
  if (!at_.has("reorder") || !at_["reorder"].has(format))
    throw request_error("reorder: " + at_.where() + " has no kernel that reads " + format);
  if (experts < 1 || n < 1 || k < 1 || experts > kMaxRouted || n > kMaxSlots || k > kMaxSlots)
    throw request_error("reorder: experts, n and k must be 1 or more, at most 65536 and 2^31 - 1");
  if (k % 32 != 0) throw request_error("reorder: k must be a multiple of 32");
  if (gates < 0 || gates > 2) throw request_error("reorder: gates are 0 (none), 1 (before ups) or 2 (by turns)");
  if (gates > 0 && n % 16 != 0) throw request_error("reorder: with gates n must be a multiple of 16");
  return service(
      "reorder", format, {"experts", "n", "k", "per_output", "interleaved"},
      {experts, n, k, gates > 0 ? 2 : 1, gates == 2},
      {vector_of("reordered", "uint8", 0, 16), vector_of("w", "uint8", 0, 1), vector_of("w_scales", "uint8", 0, 2),
       vector_of("w_zeros", "uint8", 0, 1), vector_of("refused", "uint8", 0, 8)});
}

std::shared_ptr<Plan> KernelLibrary::sum(const moetune_request& down, int64_t tokens) {
  const std::string_view fusion = down.fusion;
  if (!fusion.starts_with("permute_y") || fusion.find("sum_slots") != fusion.npos)
    throw request_error("sum: rows of down are not by slot: its fusion is " + std::string(fusion));
  const auto matrix = [&](const char* name, int64_t rows) {
    OperandNeed need = vector_of(name, down.dtype, rows * down.n, 2);
    if (down.n % 8 == 0) need.alignment = 16;
    return need;
  };
  return service("sum", down.dtype, {"tokens", "top_k", "n"}, {tokens, down.top_k, down.n},
                 {matrix("sum", tokens), matrix("y", tokens * down.top_k)});
}

std::shared_ptr<Plan> KernelLibrary::service(const char* name, const std::string& type,
                                             std::initializer_list<const char*> words,
                                             std::initializer_list<int64_t> values, std::vector<OperandNeed> operands) {
  const std::lock_guard lock(mutex_);
  std::pair<std::string, std::vector<int64_t>> key = {name + type, values};
  if (const auto found = services_.find(key); found != services_.end()) return found->second;
  if (!at_.has(name)) throw request_error(at_.where() + ": has no kernel '" + name + "'", "export the table again");
  const CurrentContext current(context_);
  const JsonAt launch = type.empty() ? at_[name] : at_[name][type];
  Sizes sizes;
  for (size_t i = 0; i < words.size(); ++i) sizes[words.begin()[i]] = values.begin()[i];
  if (services_.size() >= kKeptPlans) services_.clear();
  return services_[std::move(key)] = std::make_shared<Plan>(name, std::vector{launch}, std::vector{load(launch)}, sizes,
                                                            std::move(operands), std::vector<LaunchBuffer>{});
}

}  // namespace moetune
