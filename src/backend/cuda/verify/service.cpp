// The unit of the service kernels and their launches.
#include "backend/cuda/verify/service.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/random.h"

namespace moetune {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kManyBlocks = 132 * 8;  // a few waves of any GPU

unsigned long long base_of(uint64_t seed, int stream_of_values) {
  return splitmix64(seed * 4 + static_cast<uint64_t>(stream_of_values));
}

unsigned blocks_for(int64_t rows) { return static_cast<unsigned>(std::clamp<int64_t>(rows, 1, 1 << 16)); }

}  // namespace

std::string finish_unit(Dtype dtype) {
  return fmt::format("#include \"service/finish.cuh\"\n\nusing Element = moetune::{};\n", name(dtype)) + R"(
extern "C" __global__ void invert(int* row_of, const int* slots, int rows) { moetune::invert(row_of, slots, rows); }
extern "C" __global__ void sum_slots(Element* out, const Element* rows, const int* row_of, const float* weights, int tokens,
                                     int top_k, long long width) {
  if (width % 8 == 0)
    moetune::sum_slots<Element, 16 / sizeof(Element)>(out, rows, row_of, weights, tokens, top_k, width);
  else
    moetune::sum_slots<Element, 1>(out, rows, row_of, weights, tokens, top_k, width);
}
extern "C" __global__ void gate_gradient(Element* dh, Element* x, float* gradient, const float* sums, const Element* h, const int* slots,
                                         const float* weights, int activation, int interleaved, int rows, long long width) {
  if (width % 8 == 0)
    moetune::gate_gradient<16 / sizeof(Element)>(dh, x, gradient, sums, h, slots, weights, activation, interleaved, rows, width);
  else
    moetune::gate_gradient<1>(dh, x, gradient, sums, h, slots, weights, activation, interleaved, rows, width);
}
extern "C" __global__ void add_parts(float* gradient, const float* parts, const int* slots, int rows, int count) {
  moetune::add_parts(gradient, parts, slots, rows, count);
}
extern "C" __global__ void weigh_rows(Element* out, float* gradient, const float* sums, const Element* x, const int* slots,
                                      const float* weights, int rows, long long width) {
  moetune::weigh_rows(out, gradient, sums, x, slots, weights, rows, width);
}
)";
}

std::string route_unit() {
  return R"(#include "service/route.cuh"

extern "C" __global__ void __launch_bounds__(1024)
route_int32(int* m_sizes, int* gather_indices, const int* ids, int slots, int first_expert, int rows) {
  moetune::route(m_sizes, gather_indices, ids, slots, first_expert, rows);
}
extern "C" __global__ void __launch_bounds__(1024)
route_int64(int* m_sizes, int* gather_indices, const long long* ids, int slots, int first_expert, int rows) {
  moetune::route(m_sizes, gather_indices, ids, slots, first_expert, rows);
}
)";
}

std::string service_unit(Dtype dtype) {
  const std::string fill = R"(
extern "C" __global__ void fill(Element* out, unsigned long long count, unsigned long long base, int values) {
  moetune::fill(out, count, base, values);
}
extern "C" __global__ void dequantise(float* out, const Element* in, const int* from, const float* scales, const Element* zeros,
                                      long long first, long long rows, long long width, long long row_block, long long column_block,
                                      long long row_stride, long long column_stride) {
  moetune::dequantise(out, in, from, scales, zeros, first, rows, width, row_block, column_block, row_stride, column_stride);
}
)";
  if (bits(dtype) == 4) return "#include \"service/operands.cuh\"\n\nusing Element = moetune::nibbles;\n" + fill;
  return "#include \"service/operands.cuh\"\n#include \"service/compare.cuh\"\n" + finish_unit(dtype) + fill + R"(
extern "C" __global__ void fill_weights(moetune::fp32* out, unsigned long long count, unsigned long long base, int values) {
  moetune::fill(out, count, base, values);
}
extern "C" __global__ void move_rows(Element* out, const Element* in, const int* from, const int* to, const int* slots,
                                     const float* weights, bool round_weights, int rows, long long width) {
  moetune::move_rows(out, in, from, to, slots, weights, round_weights, rows, width);
}
extern "C" __global__ void narrow_rows(Element* out, const moetune::fp32* in, const int* from, const int* to, const int* slots,
                                       const float* weights, bool round_weights, int rows, long long width) {
  moetune::move_rows(out, in, from, to, slots, weights, round_weights, rows, width);
}
extern "C" __global__ void slots_reference(moetune::fp32* out, const moetune::fp32* rows, const int* row_of, const float* weights,
                                           int tokens, int top_k, long long width) {
  moetune::sum_slots<Element, 1>(out, rows, row_of, weights, tokens, top_k, width);
}
extern "C" __global__ void gate_reference(moetune::fp32* dh, moetune::fp32* x, float* gradient, const float* sums, const Element* h,
                                          const int* slots, const float* weights, int activation, int interleaved, int rows,
                                          long long width) {
  moetune::gate_gradient<1>(dh, x, gradient, sums, h, slots, weights, activation, interleaved, rows, width);
}
template <class Out, class In>
__device__ __forceinline__ void finish_any(Out* out, Out* h, const In* sums, const Element* bias, const int* first_rows, int experts,
                                           int activation, bool interleaved, const int* to, moetune::RowWeights weights, int rows,
                                           long long n) {
  constexpr int most = sizeof(In) == 2 ? 8 : 4;
  if (n % (2 * most) == 0)
    moetune::finish_rows<most>(out, h, sums, bias, first_rows, experts, activation, interleaved, to, weights, rows, n);
  else
    moetune::finish_rows<1>(out, h, sums, bias, first_rows, experts, activation, interleaved, to, weights, rows, n);
}
extern "C" __global__ void finish_rows(Element* out, Element* h, const Element* sums, const Element* bias, const int* first_rows, int experts, int activation,
                                       bool interleaved, const int* to, moetune::RowWeights weights, int rows, long long n) {
  finish_any(out, h, sums, bias, first_rows, experts, activation, interleaved, to, weights, rows, n);
}
extern "C" __global__ void finish_sums(Element* out, Element* h, const moetune::fp32* sums, const Element* bias, const int* first_rows, int experts, int activation,
                                       bool interleaved, const int* to, moetune::RowWeights weights, int rows, long long n) {
  finish_any(out, h, sums, bias, first_rows, experts, activation, interleaved, to, weights, rows, n);
}
extern "C" __global__ void finish_reference(moetune::fp32* out, moetune::fp32* h, const moetune::fp32* sums, const Element* bias, const int* first_rows, int experts, int activation,
                                       bool interleaved, const int* to, moetune::RowWeights weights, int rows, long long n) {
  finish_any(out, h, sums, bias, first_rows, experts, activation, interleaved, to, weights, rows, n);
}
extern "C" __global__ void quantise_rows(moetune::fp8* out, float* scales, const Element* sums, int activation, bool interleaved,
                                         const int* to, int rows, long long n) {
  moetune::quantise_rows(out, scales, sums, activation, interleaved, to, rows, n);
}
extern "C" __global__ void compare_quantised(const moetune::fp8* d, const float* scales, const float* reference, const int* to,
                                             long long rows, long long n, float noise, moetune::Comparison* out) {
  moetune::compare_quantised(d, scales, reference, to, rows, n, noise, out);
}
extern "C" __global__ void place_scales(float* out, const float* scales, const long long* places, const int* from,
                                        long long rows, long long columns, long long row_stride, long long column_stride) {
  moetune::place_scales(out, scales, places, from, rows, columns, row_stride, column_stride);
}
extern "C" __global__ void widen(float* out, const Element* in, unsigned long long count) { moetune::widen(out, in, count); }
extern "C" __global__ void compare(const Element* d, const float* reference, const int* to, moetune::RowWeights weights,
                                   long long rows, long long n, const float* rms, long long rms_rows, int precision,
                                   moetune::Comparison* out) {
  moetune::compare(d, reference, to, weights, rows, n, rms, rms_rows, precision, out);
}
extern "C" __global__ void sum_squares(const float* reference, moetune::RowWeights weights, long long rows, long long n,
                                       long long sum_rows, double* sums) {
  moetune::sum_squares<Element>(reference, weights, rows, n, sum_rows, sums);
}
extern "C" __global__ void count_changed(const unsigned char* region, unsigned long long bytes, unsigned char byte, unsigned long long* changed) {
  moetune::count_changed(region, bytes, byte, changed);
}
extern "C" __global__ void count_unwritten(const Element* d, unsigned long long count, unsigned long long* unwritten) {
  moetune::count_unwritten(d, count, unwritten);
}
extern "C" __global__ void read_clocks(unsigned long long* out) { moetune::read_clocks(out); }
extern "C" __global__ void read_all(const uint4* in, unsigned long long count, unsigned* out) { moetune::read_all(in, count, out); }
)";
}

Service::Service(Dtype dtype, const CompilerOptions& options) : dtype_(dtype) {
  const std::string text = service_unit(dtype);
  const CompiledUnit compiled = std::move(compile_units({&text, 1}, options).front());
  if (compiled.cubin.empty())
    throw Error(Exit::bug, fmt::format("the service kernels don't compile: {}", compiled.result.reason), compiled.log);
  module_ = std::make_shared<Module>(compiled.cubin);
}

void Service::fill(void* out, int64_t count, Values values, uint64_t seed, int stream_of_values, cudaStream_t stream,
                   int most) const {
  launch(module_->kernel("fill"), kManyBlocks, kThreads, stream, out, count, base_of(seed, stream_of_values),
         values == Values::integer ? -most : 1);
}

void Service::fill_weights(float* out, int64_t count, bool quarters, uint64_t seed, cudaStream_t stream) const {
  launch(module_->kernel("fill_weights"), kManyBlocks, kThreads, stream, out, count, base_of(seed, kStreamWeights),
         quarters ? 3 : 2);
}

void Service::fill_scales(void* out, int64_t count, Values values, bool of_int8, uint64_t seed,
                          cudaStream_t stream) const {
  launch(module_->kernel("fill"), kManyBlocks, kThreads, stream, out, count, base_of(seed, kStreamWeights),
         values == Values::integer ? 4
         : of_int8                 ? 6
                                   : 5);
}

void Service::place_scales(const PlacedScales& s, cudaStream_t stream) const {
  launch(module_->kernel("place_scales"), blocks_for(s.rows), kThreads, stream, s.out, s.scales, s.places, s.from,
         s.rows, s.columns, s.row_stride, s.column_stride);
}

void Service::dequantise(const DequantisedRows& rows, cudaStream_t stream) const {
  launch(module_->kernel("dequantise"), blocks_for(rows.rows), kThreads, stream, rows.out, rows.in, rows.from,
         rows.scales, rows.zeros, rows.first, rows.rows, rows.width, rows.row_block, rows.column_block, rows.row_stride,
         rows.column_stride);
}

void Service::move_rows(const RowMove& move, cudaStream_t stream) const {
  launch(module_->kernel(move.from_fp32 ? "narrow_rows" : "move_rows"), blocks_for(move.rows), kThreads, stream,
         move.out, move.in, move.from, move.to, move.weights.slots, move.weights.weights, move.weights.rounded,
         static_cast<int>(move.rows), move.width);
}

void Service::widen(float* out, const void* in, int64_t count, cudaStream_t stream) const {
  launch(module_->kernel("widen"), kManyBlocks, kThreads, stream, out, in, count);
}

void Service::invert(int* row_of, const int* slots, int64_t rows, cudaStream_t stream) const {
  launch(module_->kernel("invert"), blocks_for((rows + kThreads - 1) / kThreads), kThreads, stream, row_of, slots,
         static_cast<int>(rows));
}

void Service::sum_slots(const SlotRows& rows, cudaStream_t stream) const {
  launch(module_->kernel(rows.to_fp32 ? "slots_reference" : "sum_slots"), blocks_for(rows.tokens), kThreads, stream,
         rows.out, rows.rows, rows.row_of, rows.weights, static_cast<int>(rows.tokens), static_cast<int>(rows.top_k),
         rows.width);
}

void Service::weigh_rows(const WeighedRows& rows, cudaStream_t stream) const {
  launch(module_->kernel("weigh_rows"), blocks_for(rows.rows), kThreads, stream, rows.out, rows.gradient, rows.sums,
         rows.x, rows.slots, rows.weights, static_cast<int>(rows.rows), rows.width);
}

void Service::finish_rows(const FinishedRows& r, cudaStream_t stream) const {
  if (r.scales)
    return launch(module_->kernel("quantise_rows"), blocks_for(r.rows), kThreads / 2, stream, r.out, r.scales, r.sums,
                  static_cast<int>(r.activation), r.interleaved, r.to, static_cast<int>(r.rows), r.n);
  const char* const kernel = r.to_fp32 ? "finish_reference" : r.from_fp32 ? "finish_sums" : "finish_rows";
  launch(module_->kernel(kernel), blocks_for(r.rows), kThreads / 2, stream, r.out, r.h, r.sums, r.bias, r.first_rows,
         static_cast<int>(r.experts), static_cast<int>(r.activation), r.interleaved, r.to, r.weights,
         static_cast<int>(r.rows), r.n);
}

void Service::gate_gradient(const GateRows& r, cudaStream_t stream) const {
  launch(module_->kernel(r.to_fp32 ? "gate_reference" : "gate_gradient"), blocks_for(r.rows), kThreads / 2, stream,
         r.dh, r.x, r.gradient, r.sums, r.h, r.slots, r.weights, static_cast<int>(r.activation),
         static_cast<int>(r.interleaved), static_cast<int>(r.rows), r.width);
}

void Service::add_parts(float* gradient, const float* parts, const int* slots, int64_t rows, int count,
                        cudaStream_t stream) const {
  launch(module_->kernel("add_parts"), blocks_for(rows), kThreads, stream, gradient, parts, slots,
         static_cast<int>(rows), count);
}

void Service::compare(const void* d, const float* reference, const int* to, const RowWeights& weights, int64_t rows,
                      int64_t n, const float* rms, int64_t rms_rows, ComparisonCounts* counts,
                      cudaStream_t stream) const {
  launch(module_->kernel("compare"), blocks_for(rows), kThreads, stream, d, reference, to, weights, rows, n, rms,
         rms_rows, significand_bits(dtype_), counts);
}

void Service::compare_quantised(const void* d, const float* scales, const float* reference, const int* to, int64_t rows,
                                int64_t n, float noise, ComparisonCounts* counts, cudaStream_t stream) const {
  launch(module_->kernel("compare_quantised"), blocks_for(rows), kThreads, stream, d, scales, reference, to, rows, n,
         noise, counts);
}

void Service::sum_squares(const float* reference, const RowWeights& weights, int64_t rows, int64_t n, int64_t sum_rows,
                          double* sums, cudaStream_t stream) const {
  launch(module_->kernel("sum_squares"), blocks_for(rows), kThreads, stream, reference, weights, rows, n, sum_rows,
         sums);
}

void Service::count_changed(const void* region, int64_t bytes, unsigned char byte, unsigned long long* changed,
                            cudaStream_t stream) const {
  launch(module_->kernel("count_changed"), 64, kThreads, stream, region, bytes, byte, changed);
}

void Service::count_unwritten(const void* d, int64_t elements, unsigned long long* unwritten,
                              cudaStream_t stream) const {
  launch(module_->kernel("count_unwritten"), kManyBlocks, kThreads, stream, d, elements, unwritten);
}

void Service::read_clocks(unsigned long long* out, int sms, cudaStream_t stream) const {
  launch(module_->kernel("read_clocks"), static_cast<unsigned>(4 * sms), 32, stream, out);
}

void Service::read_all(const void* in, int64_t bytes, unsigned* out, cudaStream_t stream) const {
  launch(module_->kernel("read_all"), kManyBlocks, kThreads, stream, in, bytes / 16, out);
}

const Service& Services::of(Dtype dtype) {
  if (!services_.contains(dtype)) services_.emplace(dtype, std::make_unique<Service>(dtype, options_));
  return *services_.at(dtype);
}

}  // namespace moetune
