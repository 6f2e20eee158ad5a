// A CUDA driver without a device: it answers what the loaders ask, checks nothing but that there is a context, and
// writes every call that has an effect as a line to the file $FAKE_CUDA_LOG. Memory is addresses alone. The main thread
// begins with a context, other threads without. Built as libcuda.so.1, for tests.
#include <cuda.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "kernels/args.h"

namespace {

using moetune::Args;

FILE* log_file() {
  static FILE* const file = [] {
    const char* path = std::getenv("FAKE_CUDA_LOG");
    return path ? std::fopen(path, "a") : stderr;
  }();
  return file;
}

template <class... Values>
void log(const char* format, Values... values) {
  std::fprintf(log_file(), format, values...);
  std::fflush(log_file());
}

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

// A handle of a function is the place of its entry here.
std::list<std::string>& entries() {
  static std::list<std::string> all;
  return all;
}
std::map<std::string, int>& shared_bytes() {
  static std::map<std::string, int> bytes;
  return bytes;
}
std::string& entry_of(CUfunction function) { return *reinterpret_cast<std::string*>(function); }

unsigned long long next_address = 0x700000000000;
std::map<CUdeviceptr, size_t>& allocated() {
  static std::map<CUdeviceptr, size_t> all;
  return all;
}

CUcontext primary_context() { return reinterpret_cast<CUcontext>(1); }
thread_local std::vector<CUcontext> contexts = {gettid() == getpid() ? primary_context() : nullptr};

int fault() { return number("FAKE_CUDA_FAULT", 0); }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) {
  const char* given = std::getenv("FAKE_CUDA_VERSION");
  *version = given ? std::atoi(given) : 13000;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = contexts.back();
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  contexts.push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  *context = contexts.back();
  contexts.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = primary_context();
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  const char* given = std::getenv("FAKE_CUDA_NAME");
  std::snprintf(name, static_cast<size_t>(length), "%s", given ? given : "NVIDIA H200");
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  const int capability = number("FAKE_CUDA_CAPABILITY", 90);
  *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? capability / 10
           : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? capability % 10
           : which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT     ? 132
                                                                   : 0;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "a planted fault";
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule* module, const void*) {
  if (!contexts.back()) return CUDA_ERROR_INVALID_CONTEXT;
  *module = reinterpret_cast<CUmodule>(2);
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* entry) {
  *function = reinterpret_cast<CUfunction>(&entries().emplace_back(entry));
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute, int value) {
  shared_bytes()[entry_of(function)] = value;
  return CUDA_SUCCESS;
}
// As shared memory allows.
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int threads, size_t shared) {
  const int by_threads = 2048 / threads, by_shared = static_cast<int>(233472 / (shared + 1024));
  *blocks = by_threads < by_shared ? by_threads : by_shared;
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig* config) {
  *clusters = config->attrs->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && config->attrs->value.clusterDim.x == 2 &&
                      config->gridDimX == 2 && config->numAttrs == 1
                  ? 64
                  : 0;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* data, size_t bytes) {
  if (!contexts.back()) return CUDA_ERROR_INVALID_CONTEXT;
  if (fault() == CUDA_ERROR_OUT_OF_MEMORY) return CUDA_ERROR_OUT_OF_MEMORY;
  *data = next_address;
  allocated()[*data] = bytes;
  next_address += (bytes + 255) / 256 * 256;
  log("alloc %llx %zu\n", *data, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr data) {
  allocated().erase(data);
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8_v2(CUdeviceptr data, unsigned char byte, size_t bytes) {
  log("set %llx %d %zu\n", data, byte, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr data, unsigned char byte, size_t bytes, CUstream stream) {
  log("fill %llx %d %zu stream %p\n", data, byte, bytes, static_cast<void*>(stream));
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* size, const cuuint64_t* stride, const cuuint32_t* box,
                                const cuuint32_t* every, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  for (cuuint32_t i = 0; i < rank; ++i)
    text += " " + std::to_string(size[i]) + "/" + std::to_string(box[i]) + "/" + std::to_string(every[i]) +
            (i > 0 ? "+" + std::to_string(stride[i - 1]) : "");
  log("map %p type %d swizzle %d %d promotion %d fill %d:%s\n", address, static_cast<int>(type),
      static_cast<int>(interleave), static_cast<int>(swizzle), static_cast<int>(promotion), static_cast<int>(fill),
      text.c_str());
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &address, sizeof address);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
  if (fault() == CUDA_ERROR_LAUNCH_FAILED) return CUDA_ERROR_LAUNCH_FAILED;
  const bool cooperative = config->numAttrs == 1 && config->attrs->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
                           config->attrs->value.cooperative == 1;
  const bool early = config->numAttrs == 1 &&
                     config->attrs->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                     config->attrs->value.programmaticStreamSerializationAllowed == 1;
  log("launch %s grid %u,%u,%u block %u,%u,%u shared %u cooperative %d stream %p%s\n", entry_of(function).c_str(),
      config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY, config->blockDimZ,
      config->sharedMemBytes, cooperative, static_cast<void*>(config->hStream), early ? " early" : "");
  if (entry_of(function) != "moetune_kernel") return CUDA_SUCCESS;
  if (reinterpret_cast<uintptr_t>(parameters[0]) % alignof(Args) != 0) return CUDA_ERROR_INVALID_VALUE;
  Args args;
  std::memcpy(static_cast<void*>(&args), parameters[0], sizeof args);
  log("  x %p w %p y %p m_sizes %p gather_indices %p topk_weights %p\n", args.x, args.w, args.y,
      static_cast<const void*>(args.m_sizes), static_cast<const void*>(args.gather_indices),
      static_cast<const void*>(args.topk_weights));
  log("  m %lld n %lld k %lld experts %d top_k %d\n", args.m, args.n, args.k, args.experts, args.top_k);
  log("  counters %p workspace %p gathered_rows %p gathered %p maps %p\n", static_cast<void*>(args.counters),
      static_cast<void*>(args.workspace), args.gathered_rows, static_cast<void*>(args.gathered),
      static_cast<void*>(args.maps));
  const auto base = [](const moetune::TensorMap& map) {
    const void* address = nullptr;
    std::memcpy(&address, map.bytes, sizeof address);
    return address;
  };
  if (args.x_scales)
    log("  x_scales %p %lld %lld w_scales %p %lld %lld %lld\n", static_cast<const void*>(args.x_scales),
        args.x_scale_row, args.x_scale_step, args.w_scales, args.w_scale_expert, args.w_scale_row, args.w_scale_step);
  if (args.y_scales)
    log("  y_scales %p %lld %lld\n", static_cast<void*>(args.y_scales), args.y_scale_row, args.y_scale_step);
  log("  x_map %p x_rest_map %p w_map %p y_map %p\n", base(args.x_map), base(args.x_rest_map), base(args.w_map),
      base(args.y_map));
  return CUDA_SUCCESS;
}

}  // extern "C"
#pragma GCC visibility pop
