// References, comparisons and tolerances.
#include "backend/cuda/verify/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "workload/product/product_rows.h"
#include "workload/product/scale_places.h"

namespace moetune {
namespace {

constexpr unsigned char kFill = 0xff;  // all bits set is a NaN in bf16, fp16 and fp32

// One rounding to the dtype is at most half an ulp; fp32 sums of k terms in another order add a little; two roundings
// (top-k weights) are at most one ulp more. An ulp here is never smaller than that of the rms of all results. cuBLAS
// rounds a product to 16 bits before it is added to D, mostly, and before it gets a bias or an activation: where they
// cancel out, the product has larger ulps, and a gate and an up are each off by half of one. So has a slot's row that
// is rounded another way, where slots are added.
constexpr double kMaxUlps = 0.75;
constexpr double kMaxUlpsTwice = 1.75;
constexpr double kMaxUlpsAdded = 2.75;
constexpr double kMaxUlpsOfSlots = 4.75;

// Tensor cores add 16 products to a sum at a time and cut off what doesn't fit (Fasi et al., "Numerical behavior of
// NVIDIA tensor cores", 2021): half an ulp of fp32 too near to zero on average, each time in the same direction.
double max_error_of_sums(int64_t terms) { return std::ldexp(static_cast<double>(terms) / 16, -24); }

// Tensor cores align the products of 32 fp8 elements with the sum, and keep 13 bits of the fraction (DeepSeek-V3
// report, 3.3.2): half of the last on average. Promoted sums begin anew every kScaleBlock terms, so that these errors
// are small beside a rounding to 16 bits; fast ones go on.
double max_error_of_fp8_sums(const Product& p) {
  return std::ldexp(p.sums == Sums::fast ? static_cast<double>(p.k) / 32 : 4.0, -14);
}
// The largest error of an element over the mean one: errors grow with partial sums, and the largest of `elements` sums
// that are normally distributed is about sqrt(2 ln(elements)) of them.
double max_over_mean(int64_t elements) {
  return std::max(4.0, std::sqrt(2 * std::log(static_cast<double>(std::max<int64_t>(elements, 1)))));
}

// An exponential that isn't exact rounds another way beside a tie. An error of a gate or an up is multiplied by the
// other, which is up to six times its rms.
constexpr double kMaxUlpsBesideTie = 0.51;
constexpr double kMaxUlpsOfFp32 = 1024;  // sums in another order
constexpr double kGatedNoise = 10;

// Of a quantised result, how far off what is quantised may be, over the largest of its scale: by an exponential where
// sums are exact, and where a gate and an up are rounded to 16 bits before.
constexpr double kNoiseOfIntegers = 0x1p-18, kNoiseOfRoundedSums = 0x1p-7;

// Of results on random inputs, because of fp8 sums: the mean error and the largest.
double mean_noise(const Product& p) {
  return p.a.type.dtype == Dtype::fp8 ? (has_activation(p) ? kGatedNoise : 1) * max_error_of_fp8_sums(p) : 0;
}
double max_noise(const Product& p, int64_t elements) { return max_over_mean(elements) * mean_noise(p); }

// Rounding errors are spread evenly over half an ulp: their rms is at most 2^-bits / sqrt(3) of the value. fp32 results
// have none of their own; 2^-18 is for sums in another order.
double max_normalised_error(Dtype dtype, bool twice, int64_t terms) {
  const double rounding =
      dtype == Dtype::fp32 ? std::ldexp(1, -18) : (twice ? 2.0 : 1.0) * std::ldexp(1, -significand_bits(dtype)) * 0.75;
  return rounding + max_error_of_sums(terms);
}

double max_ulps(const ComparisonCounts& counts) { return std::bit_cast<float>(counts.max_ulps_bits); }

// " of dweights" or " of y_scales"; nothing for D.
std::string of_which(const Operand& result) {
  const LayerMatrix matrix = result.matrix;
  const bool other = matrix == LayerMatrix::dweights || matrix == LayerMatrix::y_scales || matrix == LayerMatrix::h;
  return other ? fmt::format(" of {}", name(result.matrix)) : "";
}

// Where row `row` of a result's reference and `column` lie.
std::string place(const Product& p, const Operand& result, int64_t row, int64_t column) {
  if (result.matrix == LayerMatrix::dweights) return fmt::format("slot {}{}", row, of_which(result));
  if (is_filled(p, result)) return fmt::format("token {}, column {}", row, column);
  const Place at = place_of(p, result, row);
  return fmt::format("expert {}, row {}, column {}", at.expert, at.row, column);
}

// Between counters of the host and those of the device.
void send(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "cannot clear counters");
}
void receive(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "cannot read counters");
}

}  // namespace

void Verifier::wait() const { require(cudaStreamSynchronize(stream_), "the reference failed"); }

Verifier::Result Verifier::result_of(const Operand& operand, const SetBuffer& buffer) const {
  const Product& p = operands_.product;
  const std::vector<int64_t> terms = result_terms(p, operand);
  Result result{.operand = operand,
                .service = services_.of(operand.type.dtype),
                .buffer = buffer,
                .rows = result_rows(p, operand),
                .terms = terms.empty() ? 0 : std::ranges::max(terms)};
  const int64_t bytes = result.rows * operand.columns * 4;
  result.integer = DeviceBuffer(bytes), result.random = DeviceBuffer(bytes);
  return result;
}

Verifier::Verifier(const Operands& operands, Services& services, Cublas& cublas, const Stream& stream)
    : operands_(operands), services_(services), stream_(stream.stream), scratch_(256) {
  const Product& p = operands.product;
  results_.push_back(result_of(p.d, operands.d));
  if (!is_filled(p, p.d))
    results_[0].row_map = operands.d_rows.as<int>(), results_[0].weights = operands.result_weights();
  if (quantises(p)) {
    results_[0].scales = operands.d_scales.floats(0);
    results_.push_back(result_of(scales_of_result(p), operands.d_scales));
    results_[1].row_map = results_[0].row_map;
  }
  if (const Operand* second = second_result(p)) results_.push_back(result_of(*second, p.h ? operands.h : operands.x));
  if (p.weight_gradient) results_.push_back(result_of(p.weight_gradient->dweights, operands.dweights));
  make_references(Values::integer, cublas);
  make_references(Values::random, cublas);
  for (Result& result : results_) measure_reference(result);
}

void Verifier::measure_reference(Result& result) const {
  const Product& p = operands_.product;
  const int64_t n = result.operand.columns;
  const int64_t groups = p.ragged == Axis::k ? experts(p) : 1;
  // Where slots are added, a row of a slot is rounded by its own size, and most tokens of a rank may have none.
  const bool sums = result.operand.matrix == p.d.matrix && sums_slots(p);
  result.rms_rows = std::max<int64_t>(1, result.rows / groups);
  std::vector<double> squares(static_cast<size_t>(groups));
  const DeviceBuffer device_sums(groups * int64_t{sizeof(double)});
  const auto bytes = static_cast<size_t>(device_sums.size());
  send(device_sums.data(), squares.data(), bytes, stream_);
  result.service.sum_squares(result.random.as<float>(), result.weights, result.rows, n, result.rms_rows,
                             device_sums.as<double>(), stream_);
  receive(squares.data(), device_sums.data(), bytes, stream_);
  wait();
  std::vector<float> rms;
  for (const double sum : squares) {
    result.squares += sum;
    const int64_t rows = sums ? std::clamp<int64_t>(routed_rows(p), 1, result.rms_rows) : result.rms_rows;
    rms.push_back(static_cast<float>(std::sqrt(sum / static_cast<double>(rows * n))));
  }
  result.rms = DeviceBuffer(static_cast<int64_t>(rms.size() * sizeof(float)));
  copy_to_device(result.rms.data(), rms.data(), rms.size() * sizeof(float));
}

void Verifier::multiply_dequantised(float* sums, Cublas& cublas) const {
  const Operands& o = operands_;
  const Product& p = o.product;
  const auto rows_of = [](const Product& product, const Operand& operand) {
    const Scales& scales = operand.type.scales;
    const ScaleStrides strides = scale_strides(product, operand);
    return DequantisedRows{.width = operand.columns,
                           .row_block = std::max<int64_t>(1, scales.rows),
                           .column_block = std::max<int64_t>(1, scales.columns),
                           .row_stride = strides.row,
                           .column_stride = strides.column};
  };
  const int64_t most = p.m_sizes.empty() ? 0 : std::ranges::max(p.m_sizes);
  const DeviceBuffer a(std::max<int64_t>(1, most) * p.k * 4), b(p.n * p.k * 4);
  const OperandType& type = p.b.type;
  const int64_t scales = std::max<int64_t>(1, scale_strides(p, p.b).expert);  // of an expert's W
  const DeviceBuffer b_scales(scales * 4), rounded(scales_stage(type) ? p.n * p.k * size_bytes(type.stage) : 1);
  Product one = o.plain;
  one.a.type = one.b.type = one.d.type = plain_type(Dtype::fp32);
  one.b.rows = p.n;
  for (int64_t expert = 0; expert < experts(p); ++expert) {
    const int64_t m = extent(p, expert, Axis::m), first = first_row(p, p.d, expert);
    if (m == 0) continue;
    DequantisedRows of_a = rows_of(p, p.a), of_b = rows_of(p, p.b);
    of_a.out = a.as<float>(), of_a.in = o.a.of(0), of_a.scales = o.a_scales.floats(0), of_a.rows = m;
    if (o.a_rows.size() > 0)
      of_a.from = o.a_rows.as<int>() + first;
    else
      of_a.first = first;
    of_b.out = b.as<float>(), of_b.in = o.b.of(0) + expert * p.n * row_bytes(p.b), of_b.rows = p.n;
    of_b.scales = b_scales.as<float>();
    if (p.b.type.zero_points) of_b.zeros = o.b_zeros.of(0) + expert * scales / 2;
    services_.of(type.scales.dtype)
        .widen(b_scales.as<float>(), o.b_scales.of(0) + expert * scales * size_bytes(type.scales.dtype), scales,
               stream_);
    services_.of(p.a.type.dtype).dequantise(of_a, stream_);
    services_.of(type.dtype).dequantise(of_b, stream_);
    if (scales_stage(type)) {
      const Service& stage = services_.of(type.stage);
      stage.move_rows({.out = rounded.data(), .in = b.data(), .from_fp32 = true, .rows = p.n, .width = p.k}, stream_);
      stage.widen(b.as<float>(), rounded.data(), p.n * p.k, stream_);
    }
    one.m_sizes = {static_cast<int32_t>(m)}, one.first_rows = {0, m}, one.a.rows = one.d.rows = m;
    cublas.loop({.product = one, .a = a.data(), .b = b.data(), .d = reinterpret_cast<char*>(sums + first * p.n)}, true);
  }
  wait();
}

void Verifier::make_references(Values values, Cublas& cublas) const {
  const Product& p = operands_.product;
  operands_.fill(services_, values, 0, stream_);
  operands_.sort_inputs(services_, 0, stream_);
  Product plain = operands_.plain;  // its D is fp32 and packed
  plain.d.type = plain_type(Dtype::fp32);
  DeviceBuffer other_sums;  // where references are made from them
  const bool apart = sums_slots(p) || is_finished(p) || p.gate_gradient;
  if (apart) other_sums = DeviceBuffer(std::max<int64_t>(1, owned_rows(plain, plain.d)) * p.n * 4);
  const DeviceBuffer& sums = apart ? other_sums : results_[0].reference(values);
  const GroupedGemm gemm = operands_.gemm(0);
  if (p.accumulates) {
    operands_.fill_before(services_, values, 0, stream_);
    results_[0].service.widen(sums.as<float>(), operands_.d.of(0), owned_rows(p, p.d) * p.d.columns, stream_);
  }
  if (has_scales(p.b.type))
    multiply_dequantised(sums.as<float>(), cublas);
  else
    cublas.loop({.product = plain, .a = gemm.a, .b = gemm.b, .d = sums.data()}, true);
  wait();
  check_sums(p, values, sums.as<float>());
  if (is_finished(p)) {
    FinishedRows rows = operands_.finished_rows(0);
    rows.out = results_[0].reference(values).data(), rows.sums = sums.data(), rows.to_fp32 = true;
    if (p.h) rows.h = results_[1].reference(values).data();
    services_.of(p.d.type.dtype).finish_rows(rows, stream_);
    wait();
    check_finished(p, values, sums.as<float>(), results_[0].reference(values).as<float>(), static_cast<float*>(rows.h));
    if (quantises(p)) {
      const DeviceBuffer elements(std::max<int64_t>(1, results_[0].rows * p.d.columns));
      rows.out = elements.data(), rows.scales = results_[1].reference(values).as<float>();
      services_.of(Dtype::fp32).finish_rows(rows, stream_);
      wait();
      check_scales(p, results_[0].reference(values).as<float>(), rows.scales);
    }
  }
  if (sums_slots(p)) {
    const DeviceBuffer& result = results_[0].reference(values);
    const DeviceBuffer rows(std::max<int64_t>(4, p.slots * 4));
    copy_to_device(rows.data(), rows_of_slots(p).data(), static_cast<size_t>(p.slots * 4));
    services_.of(p.d.type.dtype)
        .sum_slots({.out = result.data(),
                    .rows = sums.data(),
                    .to_fp32 = true,
                    .row_of = rows.as<int>(),
                    .weights = weights_result(p) ? operands_.weights.as<float>() : nullptr,
                    .tokens = p.d.rows,
                    .top_k = p.top_k,
                    .width = p.n},
                   stream_);
    wait();
    check_slot_sums(p, values, sums.as<float>(), result.as<float>());
  }
  if (p.gate_gradient) {
    GateRows rows = operands_.gate_rows(sums.as<float>(), 0);
    rows.dh = results_[0].reference(values).data(), rows.x = results_[1].reference(values).data(), rows.to_fp32 = true;
    if (p.weight_gradient) {
      const DeviceBuffer& dweights = results_[2].reference(values);
      set_in_order(dweights.data(), 0, dweights.size(), stream_);
      rows.gradient = dweights.as<float>();
    }
    services_.of(p.d.type.dtype).gate_gradient(rows, stream_);
    wait();
    check_gate_gradient(p, values, sums.as<float>(), results_[0].reference(values).as<float>(),
                        results_[1].reference(values).as<float>());
    if (p.weight_gradient) check_dweights(p, values, sums.as<float>(), results_[2].reference(values).as<float>());
  } else if (p.weight_gradient) {
    const DeviceBuffer& dweights = results_[1].reference(values);
    set_in_order(dweights.data(), 0, dweights.size(), stream_);
    services_.of(p.d.type.dtype)
        .weigh_rows({.out = operands_.d.of(0),
                     .gradient = dweights.as<float>(),
                     .sums = sums.as<float>(),
                     .x = operands_.x.of(0),
                     .slots = operands_.gather_indices.as<int>(),
                     .weights = operands_.weights.as<float>(),
                     .rows = routed_rows(p),
                     .width = p.n},
                    stream_);
    wait();
    check_dweights(p, values, sums.as<float>(), dweights.as<float>());
  }
}

// Results of set 0, with the guards before and after them, and buffers of intermediate results. Where the
// product accumulates, D gets what is added to.
void Verifier::clear_output(Values values) const {
  for (const Result& result : results_)
    set_in_order(result.buffer.memory.data(), kFill, kGuardBytes + result.buffer.stride, stream_);
  operands_.fill_before(services_, values, 0, stream_);
  for (const DeviceBuffer* buffer : {&operands_.gathered, &operands_.d_sorted, &operands_.row_of})
    if (buffer->size() > 0) set_in_order(buffer->data(), kFill, buffer->size(), stream_);
}

std::string Verifier::run_and_compare(const RunOnce& run, Values values, Weighting weighting, bool rounds_sums,
                                      std::vector<ComparisonCounts>& counts) const {
  clear_output(values);
  run();
  require_candidate(cudaGetLastError(), "the launch failed");
  require_candidate(cudaStreamSynchronize(stream_), "the kernel failed");
  counts.assign(results_.size(), {});
  for (size_t i = 0; i < results_.size(); ++i)
    if (const std::string reason = compare(results_[i], values, weighting, rounds_sums, counts[i]); !reason.empty())
      return reason;
  return {};
}

std::string Verifier::compare(const Result& result, Values values, Weighting weighting, bool rounds_sums,
                              ComparisonCounts& counts) const {
  RowWeights weights = result.weights;
  weights.rounded = weighting == Weighting::rounded_result;
  const Operand& operand = result.operand;
  const int64_t n = operand.columns;
  auto* device_counts = scratch_.as<ComparisonCounts>();
  auto* device_changed = scratch_.as<unsigned long long>(sizeof(ComparisonCounts));  // guards, then unwritten
  unsigned long long changed[2] = {0, 0};
  send(device_counts, &counts, sizeof counts, stream_);
  send(device_changed, changed, sizeof changed, stream_);
  const double noise = (values == Values::integer ? kNoiseOfIntegers : max_noise(operands_.product, result.rows * n)) +
                       (rounds_sums ? kNoiseOfRoundedSums : 0);
  if (result.scales)
    result.service.compare_quantised(result.buffer.of(0), result.scales, result.reference(values).as<float>(),
                                     result.row_map, result.rows, n, static_cast<float>(noise), device_counts, stream_);
  else
    result.service.compare(result.buffer.of(0), result.reference(values).as<float>(), result.row_map, weights,
                           result.rows, n, result.rms.as<float>(), result.rms_rows, device_counts, stream_);
  const int64_t bytes = operand.rows * n * size_bytes(operand.type.dtype);
  const Service& service = result.service;
  service.count_changed(result.buffer.memory.data(), kGuardBytes, kFill, device_changed, stream_);
  service.count_changed(result.buffer.of(0) + bytes, result.buffer.stride - bytes, kFill, device_changed, stream_);
  service.count_unwritten(result.buffer.of(0), operand.rows * n, device_changed + 1, stream_);
  receive(&counts, device_counts, sizeof counts, stream_);
  receive(changed, device_changed, sizeof changed, stream_);
  require(cudaStreamSynchronize(stream_), "the comparison failed");
  if (changed[0] > 0) return fmt::format("{} bytes outside the output{} were written", changed[0], of_which(operand));
  const int64_t foreign = (operand.rows - result.rows) * n, unwritten = static_cast<int64_t>(changed[1]);
  if (unwritten < foreign)
    return fmt::format("{} elements of rows that {} were written", foreign - unwritten,
                       operand.order == RowOrder::in_place ? "are padding" : "belong to other ranks");
  if (unwritten > foreign) return fmt::format("{} elements{} were not written", unwritten - foreign, of_which(operand));
  return {};
}

Verdict Verifier::verify(const RunOnce& run, bool rounds_sums, std::optional<Weighting> weighting) const {
  const Weighting rounds = weighting.value_or(operands_.product.weighting);
  const bool gated = has_activation(operands_.product);
  const double of_fp32 = kMaxUlpsOfFp32 + (rounds_sums && gated ? std::ldexp(kNoiseOfRoundedSums, 24) : 0);
  const auto beside_tie = [&](const Result& result) {
    if (gated && result.operand.type.dtype == Dtype::fp32) return of_fp32;
    return rounds_sums ? kMaxUlpsAdded : gated ? kMaxUlpsBesideTie : 0;
  };
  const bool sums = sums_slots(operands_.product), rounds_first = rounds_sums || sums;  // what is added then
  const bool twice = rounds_first || rounds == Weighting::rounded_result;
  Verdict verdict{.ok = false};
  for (const Result& result : results_) verdict.elements += 2 * result.rows * result.operand.columns;
  std::vector<ComparisonCounts> counts;
  operands_.fill(services_, Values::integer, 0, stream_);
  verdict.reason = run_and_compare(run, Values::integer, rounds, rounds_sums, counts);
  for (size_t i = 0; i < results_.size(); ++i) {
    const Result& result = results_[i];
    if (counts[i].mismatches == 0 || max_ulps(counts[i]) <= beside_tie(result)) continue;
    const auto first = static_cast<int64_t>(counts[i].first);
    const int64_t n = result.operand.columns;
    verdict.mismatches += static_cast<int64_t>(counts[i].mismatches);
    verdict.reason = fmt::format("{}{} of {} elements differ from cuBLAS on integer inputs, the first at {}",
                                 verdict.reason.empty() ? "" : verdict.reason + "; ", counts[i].mismatches,
                                 result.rows * n, place(operands_.product, result.operand, first / n, first % n));
  }
  operands_.fill(services_, Values::random, 0, stream_);
  if (!verdict.reason.empty()) return verdict;
  verdict.reason = run_and_compare(run, Values::random, rounds, rounds_sums, counts);
  for (size_t i = 0; i < results_.size() && verdict.reason.empty(); ++i) {
    const Result& result = results_[i];
    const Dtype dtype = result.operand.type.dtype;
    const double error = result.squares > 0 ? std::sqrt(counts[i].error / result.squares) : 0;
    const double ulps = max_ulps(counts[i]);
    double most = dtype == Dtype::fp32 ? of_fp32
                  : sums               ? kMaxUlpsOfSlots
                  : rounds_sums        ? kMaxUlpsAdded
                  : twice              ? kMaxUlpsTwice
                                       : kMaxUlps;
    double norm = max_normalised_error(dtype, twice, result.terms);
    if (operands_.product.a.type.dtype == Dtype::fp8) {
      // An activation's limits make many results exact. Errors are compared with at least the smallest rounding that
      // the others have.
      const double least = std::ldexp(1 / std::sqrt(12.0), -significand_bits(dtype));
      const double own = result.squares > 0 ? std::max(least, std::sqrt(counts[i].rounding / result.squares)) : 0;
      const bool fine = operands_.product.sums == Sums::fast || dtype == Dtype::fp16 ||
                        dtype == Dtype::fp32;  // roundings don't hide errors of sums
      // Noise of sums rounds some results another way. What this adds to the mean of N results varies by 1 / sqrt(N).
      const int64_t elements = std::max<int64_t>(1, result.rows * result.operand.columns);
      const double spread = 2 / std::sqrt(static_cast<double>(elements));
      norm = (rounds_first ? 2.2 : 1.05 + spread) * own;
      if (fine) norm += mean_noise(operands_.product) + (rounds_sums && dtype == Dtype::fp32 ? kNoiseOfRoundedSums : 0);
      most += std::ldexp(max_noise(operands_.product, elements), significand_bits(dtype)) *
              (sums ? std::sqrt(static_cast<double>(operands_.product.top_k)) : 1);
      if (result.scales) most = kMaxUlpsBesideTie;  // noise beside it doesn't count
    }
    if (i == 0) verdict.normalised_error = error, verdict.max_ulps = ulps;  // those of D
    if (!(ulps <= most))
      verdict.reason = fmt::format("an element{} is {:.3g} ulps off on random inputs, more than {:.3g}",
                                   of_which(result.operand), ulps, most);
    else if (!(error <= norm))
      verdict.reason = fmt::format("the normalised error{} on random inputs is {:.3g}, more than {:.3g}",
                                   of_which(result.operand), error, norm);
  }
  verdict.ok = verdict.reason.empty();
  return verdict;
}

Repetition Verifier::repeat(const RunOnce& run, double seconds) const {
  constexpr int64_t kRowWords = 256;                 // a block's threads take one each
  constexpr int kBatch = 32;                         // launches between two looks at the counters
  const Service& words = services_.of(Dtype::fp32);  // compares words of 32 bits
  // Whole rows of words: what is left over belongs to the last guard.
  const auto rows_of = [](const Result& result) { return (kGuardBytes + result.buffer.stride) / (kRowWords * 4); };
  std::vector<DeviceBuffer> first;
  for (const Result& result : results_) first.emplace_back(rows_of(result) * kRowWords * 4);
  const size_t each = results_.size();  // counts of a launch
  const DeviceBuffer device_counts(kBatch * static_cast<int64_t>(each * sizeof(ComparisonCounts)));
  const auto launch_once = [&] {
    clear_output(Values::random);
    run();
    require_candidate(cudaGetLastError(), "the launch failed");
  };
  operands_.fill(services_, Values::random, 0, stream_);
  launch_once();
  for (size_t j = 0; j < each; ++j)
    require(cudaMemcpyAsync(first[j].data(), results_[j].buffer.memory.data(), static_cast<size_t>(first[j].size()),
                            cudaMemcpyDeviceToDevice, stream_),
            "cannot copy the first result");
  require_candidate(cudaStreamSynchronize(stream_), "the kernel failed");

  Repetition repetition;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  const auto repeat_batch = [&] {
    std::vector<ComparisonCounts> counts(kBatch * each);
    const size_t bytes = counts.size() * sizeof counts[0];
    send(device_counts.data(), counts.data(), bytes, stream_);
    for (size_t i = 0; i < kBatch; ++i) {
      launch_once();
      for (size_t j = 0; j < each; ++j)
        words.compare(results_[j].buffer.memory.data(), first[j].as<float>(), nullptr, {}, rows_of(results_[j]),
                      kRowWords, nullptr, 1, device_counts.as<ComparisonCounts>() + i * each + j, stream_);
    }
    receive(counts.data(), device_counts.data(), bytes, stream_);
    require_candidate(cudaStreamSynchronize(stream_), "the kernel failed");
    for (size_t i = 0; i < kBatch; ++i) {
      ++repetition.launches;
      for (size_t j = 0; j < each; ++j) {
        const ComparisonCounts& count = counts[i * each + j];
        if (count.mismatches == 0) continue;
        if (repetition.different++ == 0)
          repetition.reason = fmt::format(
              "launch {} differs from the first, in {} words of 4 bytes from byte {} of {} on", repetition.launches,
              count.mismatches, static_cast<int64_t>(count.first) * 4 - kGuardBytes, name(results_[j].operand.matrix));
        break;
      }
    }
  };
  try {
    do repeat_batch();
    while (std::chrono::steady_clock::now() < end);
  } catch (const Error&) {
    require_candidate(cudaStreamSynchronize(stream_), "the kernel failed");  // the error of whichever call failed
    throw;
  }
  return repetition;
}

}  // namespace moetune
