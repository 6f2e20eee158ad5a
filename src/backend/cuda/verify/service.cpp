// The unit of the service kernels and their launches.
#include "backend/cuda/verify/service.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "kernels/reordered.h"
#include "variant/unit.h"

namespace moetune {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kManyBlocks = 132 * 8;  // a few waves of any GPU

unsigned long long base_of(uint64_t seed, int stream_of_values) {
  return splitmix64(seed * 4 + static_cast<uint64_t>(stream_of_values));
}

unsigned blocks_for(int64_t rows) { return static_cast<unsigned>(std::clamp<int64_t>(rows, 1, 1 << 16)); }

std::string unit_of(Dtype dtype, const char* kernels) {
  return fmt::format("#include \"numbers.cuh\"\n\nusing Element = moetune::{};\n\n#include \"service/{}.cuh\"\n",
                     element_name(dtype), kernels);
}

std::unique_ptr<Module> compile_service(const std::string& text, const CompilerOptions& options) {
  const CompiledUnit compiled = std::move(compile_units({&text, 1}, options).front());
  if (compiled.cubin.empty())
    throw Error(Exit::bug, fmt::format("the service kernels don't compile: {}", compiled.result.reason), compiled.log);
  return std::make_unique<Module>(compiled.cubin);
}

}  // namespace

std::string finish_unit(Dtype dtype) { return unit_of(dtype, "finish_kernels"); }
std::string route_unit() {
  return "#include \"service/choose.cuh\"\n#include \"service/route.cuh\"\n#include \"service/sum.cuh\"\n";
}
std::string service_unit(Dtype dtype) {
  return unit_of(dtype, bits(dtype) == 4 || dtype == Dtype::e8m0 ? "operand_kernels" : "service_kernels");
}

Service::Service(Dtype dtype, const CompilerOptions& options)
    : dtype_(dtype), module_(compile_service(service_unit(dtype), options)) {}

void Service::fill(void* out, int64_t count, Values values, uint64_t seed, int stream_of_values, cudaStream_t stream,
                   int most) const {
  launch(module_->kernel("fill"), kManyBlocks, kThreads, stream, out, count, base_of(seed, stream_of_values),
         values == Values::integer ? Filling::integers : Filling::random, most);
}

void Service::fill_weights(float* out, int64_t count, Filling filling, uint64_t seed, cudaStream_t stream) const {
  launch(module_->kernel("fill_weights"), kManyBlocks, kThreads, stream, out, count, base_of(seed, kStreamWeights),
         filling, 0);
}

void Service::fill_scales(void* out, int64_t count, Filling filling, uint64_t seed, cudaStream_t stream) const {
  launch(module_->kernel("fill"), kManyBlocks, kThreads, stream, out, count, base_of(seed, kStreamWeights), filling, 0);
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
                  r.activation, r.interleaved, r.to, static_cast<int>(r.rows), r.n);
  const char* const kernel = r.to_fp32 ? "finish_reference" : r.from_fp32 ? "finish_sums" : "finish_rows";
  launch(module_->kernel(kernel), blocks_for(r.rows), kThreads / 2, stream, r.out, r.h, r.sums, r.bias, r.first_rows,
         static_cast<int>(r.experts), r.activation, r.interleaved, r.to, r.weights, static_cast<int>(r.rows), r.n);
}

void Service::gate_gradient(const GateRows& r, cudaStream_t stream) const {
  launch(module_->kernel(r.to_fp32 ? "gate_reference" : "gate_gradient"), blocks_for(r.rows), kThreads / 2, stream,
         r.dh, r.x, r.gradient, r.sums, r.h, r.slots, r.weights, r.activation, static_cast<int>(r.interleaved),
         static_cast<int>(r.rows), r.width);
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

void Services::reorder(const OperandType& type, const ReorderedRows& r, cudaStream_t stream) {
  const std::string text = reorder_unit(type);
  auto& module = reorder_[text];
  if (!module) module = compile_service(text, options_);
  const DeviceBuffer refused(8);
  set_in_order(refused.data(), 0, 8, stream);
  const int64_t blocks = r.experts * reordered_down(r.n) * reordered_across(r.k);
  launch(module->kernel("reorder"), blocks_for(blocks), 128, stream, r.out, r.elements, r.scales, r.zeros,
         refused.as<unsigned long long>(), r.experts, r.n, r.k, r.combines_gates ? 2 : 1, int{r.interleaved});
  require(cudaStreamSynchronize(stream), "cannot reorder W");
  if (!is_zero(refused)) throw Error(Exit::bug, "a scale of W is too large to be reordered");
}

const Service& Services::of(Dtype dtype) {
  if (!services_.contains(dtype)) services_.emplace(dtype, std::make_unique<Service>(dtype, options_));
  return *services_.at(dtype);
}

}  // namespace moetune
