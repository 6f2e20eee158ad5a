// Launches one exported kernel from C++: the first plain forward cell of an export in bf16 or fp16. Prints what a
// launch costs the host, and whether launches write every element with the same bits.
//
//   g++ -std=c++17 -I kernels/include -I /usr/local/cuda/include kernels/examples/launch.cpp -L kernels/lib -lmoetune \
//       -Wl,-rpath,"$PWD/kernels/lib" -L /usr/local/cuda/lib64/stubs -lcuda -o launch
//   ./launch kernels
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "moetune.h"

namespace {

void require(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + ": error " + std::to_string(result));
}

void require(int result) {
  if (result != 0) throw std::runtime_error(moetune_error());
}

// Small values of either 16-bit type: their exponents are those of 2^-3 to 2^-1.
std::vector<std::uint16_t> random_elements(std::size_t count, const std::string& dtype) {
  std::vector<std::uint16_t> elements(count);
  std::uint64_t state = 88172645463325252u;
  for (std::uint16_t& element : elements) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const auto sign = static_cast<std::uint16_t>((state & 1) << 15);
    element = static_cast<std::uint16_t>(
        sign | (dtype == "bf16" ? 0x3e00 | (state >> 8 & 0xff) : 0x3000 | (state >> 8 & 0x7ff)));
  }
  return elements;
}

template <class T>
CUdeviceptr upload(const std::vector<T>& values) {
  CUdeviceptr data = 0;
  const std::size_t bytes = std::max<std::size_t>(values.size() * sizeof(T), 16);
  require(cuMemAlloc(&data, bytes), "no memory");
  if (!values.empty()) require(cuMemcpyHtoD(data, values.data(), values.size() * sizeof(T)), "cannot copy");
  require(cuCtxSynchronize(), "cannot copy");  // streams that don't block may start before the copy is done
  return data;
}

std::vector<std::uint16_t> download(CUdeviceptr data, std::size_t elements) {
  std::vector<std::uint16_t> values(elements);
  require(cuMemcpyDtoH(values.data(), data, elements * sizeof values[0]), "cannot copy");
  return values;
}

}  // namespace

// Microseconds of the host for each of some launches into an idle device.
template <class Launch>
double host_time(Launch launch) {
  constexpr int kLaunches = 200;  // fewer than what a stream holds before the host must wait
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    require(cuCtxSynchronize(), "the kernel failed");
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kLaunches; ++i) launch();
    const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
    best = std::min(best, spent.count() / kLaunches);
  }
  return best;
}

int main(int count, char** words) try {
  if (count != 2) throw std::runtime_error("usage: launch FOLDER");
  require(cuInit(0), "no CUDA device");
  CUdevice device = 0;
  CUcontext context = nullptr;
  require(cuDeviceGet(&device, 0), "no CUDA device");
  require(cuDevicePrimaryCtxRetain(&context, device), "no CUDA context");
  require(cuCtxSetCurrent(context), "no CUDA context");

  moetune_library* library = nullptr;
  const moetune_served* served = nullptr;
  std::size_t all = 0;
  require(moetune_open(words[1], 0, &library));
  require(moetune_list(library, &served, &all));
  const auto* cell = std::find_if(served, served + all, [](const moetune_served& each) {
    return each.tokens_from == each.tokens_to && std::strcmp(each.request.op, "fwd") == 0 &&
           std::strcmp(each.request.fusion, "plain") == 0 && std::strncmp(each.request.dtype, "fp8", 3) != 0;
  });
  if (cell == served + all) throw std::runtime_error("the export has no plain forward kernel of 16 bits");
  const moetune_request& request = cell->request;
  const std::int64_t tokens = cell->tokens_from, rows = tokens * request.top_k;
  const moetune_kernel* kernel = nullptr;
  require(moetune_pick(library, &request, tokens, cell->skew, &kernel));
  std::printf("%s: %s\n", cell->id, moetune_kernel_name(kernel));

  // Rows are divided evenly; the first experts have one more.
  std::vector<std::int32_t> m_sizes(static_cast<std::size_t>(request.experts));
  for (std::size_t e = 0; e < m_sizes.size(); ++e)
    m_sizes[e] =
        static_cast<std::int32_t>(rows / request.experts + (static_cast<std::int64_t>(e) < rows % request.experts));
  const auto elements = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  const CUdeviceptr x = upload(random_elements(elements(rows, request.k), request.dtype));
  const CUdeviceptr w = upload(random_elements(elements(request.experts * request.n, request.k), request.dtype));
  const CUdeviceptr y = upload(std::vector<std::uint16_t>(elements(rows, request.n), 0xffff));  // NaN
  const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<const void*>(address); };
  const moetune_operand operands[] = {
      {"x", pointer(x), -1}, {"w", pointer(w), -1}, {"y", pointer(y), -1}, {"m_sizes", pointer(upload(m_sizes)), -1}};
  moetune_workspace* workspace = nullptr;
  require(moetune_make_workspace(library, &request, 1, tokens, &workspace));
  CUstream stream = nullptr;
  require(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "no stream");
  const auto launch = [&] { require(moetune_launch(kernel, tokens, -1, workspace, operands, 4, stream)); };
  launch();
  require(cuStreamSynchronize(stream), "the kernel failed");
  const std::vector<std::uint16_t> first = download(y, elements(rows, request.n));
  std::printf("%.2f us of the host a launch\n", host_time(launch));
  require(cuStreamSynchronize(stream), "the kernel failed");
  const bool same = download(y, elements(rows, request.n)) == first;
  const bool written = std::find(first.begin(), first.end(), 0xffff) == first.end();
  std::printf("%s; %s\n", same ? "repeated launches give the same bits" : "repeated launches DIFFER",
              written ? "every element is written" : "some elements are NOT written");
  return same && written ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
