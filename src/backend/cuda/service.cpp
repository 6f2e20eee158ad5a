// The unit of the service kernels and their launches.
#include "backend/cuda/service.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/random.h"

namespace moetune {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kManyBlocks = 132 * 8;  // a few waves of any GPU

std::string unit(Dtype dtype) {
  return fmt::format("#include \"operands.cuh\"\n#include \"compare.cuh\"\n\nusing Element = moetune::{};\n",
                     name(dtype)) +
         R"(
extern "C" __global__ void fill(Element* out, unsigned long long count, unsigned long long base, int values) {
  moetune::fill(out, count, base, values);
}
extern "C" __global__ void fill_weights(moetune::fp32* out, unsigned long long count, unsigned long long base, int values) {
  moetune::fill(out, count, base, values);
}
extern "C" __global__ void move_rows(Element* out, const Element* in, const int* indices, const float* weights, int rows,
                                     long long width, int top_k, bool scatter) {
  moetune::move_rows(out, in, indices, weights, rows, width, top_k, scatter);
}
extern "C" __global__ void compare(const Element* y, const float* reference, const int* indices, const float* weights, int rows,
                                   long long n, bool scattered, float rms, int precision, moetune::Comparison* out) {
  moetune::compare(y, reference, indices, weights, rows, n, scattered, rms, precision, out);
}
extern "C" __global__ void sum_squares(const float* reference, const int* indices, const float* weights, int rows, long long n,
                                       moetune::Comparison* out) {
  moetune::sum_squares<Element>(reference, indices, weights, rows, n, out);
}
extern "C" __global__ void count_changed(const unsigned char* region, unsigned long long bytes, unsigned char byte, unsigned long long* changed) {
  moetune::count_changed(region, bytes, byte, changed);
}
extern "C" __global__ void count_unwritten(const Element* y, unsigned long long count, unsigned long long* unwritten) {
  moetune::count_unwritten(y, count, unwritten);
}
extern "C" __global__ void read_clocks(unsigned long long* out) { moetune::read_clocks(out); }
extern "C" __global__ void read_all(const uint4* in, unsigned long long count, unsigned* out) { moetune::read_all(in, count, out); }
extern "C" __global__ void copy_all(const uint4* in, unsigned long long count, uint4* out) { moetune::copy_all(in, count, out); }
extern "C" __global__ void nothing() {}
)";
}

unsigned blocks_for(int64_t rows) { return static_cast<unsigned>(std::clamp<int64_t>(rows, 1, 1 << 16)); }

}  // namespace

Service::Service(Dtype dtype, const CompilerOptions& options) : dtype_(dtype) {
  const std::string text = unit(dtype);
  const CompiledUnit compiled = std::move(compile_units({&text, 1}, options).front());
  if (compiled.cubin.empty())
    throw Error(Exit::bug, fmt::format("the service kernels don't compile: {}", compiled.result.reason), compiled.log);
  module_ = std::make_shared<Module>(compiled.cubin);
}

void Service::fill(void* out, int64_t count, Values values, uint64_t seed, int operand, cudaStream_t stream) const {
  const bool weights = operand == kStreamWeights;
  const auto base = static_cast<unsigned long long>(splitmix64(seed * 4 + static_cast<uint64_t>(operand)));
  launch(module_->kernel(weights ? "fill_weights" : "fill"), kManyBlocks, kThreads, stream, out,
         static_cast<unsigned long long>(count), base,
         weights                     ? 2
         : values == Values::integer ? 0
                                     : 1);
}

void Service::gather(void* out, const void* in, const int* indices, int64_t rows, int64_t width, int64_t top_k,
                     cudaStream_t stream) const {
  launch(module_->kernel("move_rows"), blocks_for(rows), kThreads, stream, out, in, indices,
         static_cast<const float*>(nullptr), static_cast<int>(rows), static_cast<long long>(width),
         static_cast<int>(top_k), false);
}

void Service::scatter(void* out, const void* in, const int* indices, const float* weights, int64_t rows, int64_t width,
                      cudaStream_t stream) const {
  launch(module_->kernel("move_rows"), blocks_for(rows), kThreads, stream, out, in, indices, weights,
         static_cast<int>(rows), static_cast<long long>(width), 1, true);
}

void Service::compare(const void* y, const float* reference, const int* indices, const float* weights, int64_t rows,
                      int64_t n, bool scattered, float rms, ComparisonCounts* counts, cudaStream_t stream) const {
  launch(module_->kernel("compare"), blocks_for(rows), kThreads, stream, y, reference, indices, weights,
         static_cast<int>(rows), static_cast<long long>(n), scattered, rms, significand_bits(dtype_), counts);
}

void Service::sum_squares(const float* reference, const int* indices, const float* weights, int64_t rows, int64_t n,
                          ComparisonCounts* counts, cudaStream_t stream) const {
  launch(module_->kernel("sum_squares"), blocks_for(rows), kThreads, stream, reference, indices, weights,
         static_cast<int>(rows), static_cast<long long>(n), counts);
}

void Service::count_changed(const void* region, int64_t bytes, unsigned char byte, unsigned long long* changed,
                            cudaStream_t stream) const {
  launch(module_->kernel("count_changed"), 64, kThreads, stream, region, static_cast<unsigned long long>(bytes), byte,
         changed);
}

void Service::count_unwritten(const void* y, int64_t elements, unsigned long long* unwritten,
                              cudaStream_t stream) const {
  launch(module_->kernel("count_unwritten"), kManyBlocks, kThreads, stream, y,
         static_cast<unsigned long long>(elements), unwritten);
}

void Service::read_clocks(unsigned long long* out, int sms, cudaStream_t stream) const {
  launch(module_->kernel("read_clocks"), static_cast<unsigned>(4 * sms), 32, stream, out);
}

void Service::read_all(const void* in, int64_t bytes, unsigned* out, cudaStream_t stream) const {
  launch(module_->kernel("read_all"), kManyBlocks, kThreads, stream, in, static_cast<unsigned long long>(bytes / 16),
         out);
}

void Service::copy_all(const void* in, int64_t bytes, void* out, cudaStream_t stream) const {
  launch(module_->kernel("copy_all"), kManyBlocks, kThreads, stream, in, static_cast<unsigned long long>(bytes / 16),
         out);
}

void Service::nothing(cudaStream_t stream) const { launch(module_->kernel("nothing"), 1, 32, stream); }

}  // namespace moetune
