// References, comparisons and tolerances.
#include "backend/cuda/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace moetune {
namespace {

constexpr int kSamples = 64;
constexpr unsigned char kFill = 0xff;  // all bits set is a NaN in bf16, fp16 and fp32

// One rounding to the dtype is at most half an ulp; fp32 sums of k terms in another order add a little; two roundings
// (topk_weights) are at most one ulp more. An ulp here is never smaller than that of the rms of all results.
constexpr double kMaxUlps = 0.75;
constexpr double kMaxUlpsWeighted = 1.75;

double max_normalised_error(Dtype dtype, bool weighted) {
  // Rounding errors are spread evenly over half an ulp: their rms is at most 2^-bits / sqrt(3) of the value. fp32
  // results have no rounding of their own but sums whose error grows with k; 2^-20 covers k up to 2^20 with room.
  if (dtype == Dtype::fp32) return std::ldexp(1, -18);
  return (weighted ? 2.0 : 1.0) * std::ldexp(1, -significand_bits(dtype)) * 0.75;
}

// An input's element as it enters the product: `index` of M or N and `k` of an expert.
double entering_value(const Product& p, const Operand& operand, Values values, int64_t expert, int64_t index,
                      int64_t k) {
  const bool k_major = is_k_major(operand);
  const int64_t row = k_major ? index : k, column = k_major ? k : index;
  const int64_t at = memory_row(p, operand, expert, row) * operand.columns + column;
  const float value =
      round_to(operand.dtype, operand_value(values, p.seed, stream_of(operand.matrix), static_cast<uint64_t>(at)));
  if (operand.matrix != p.a.matrix || p.weighting != Weighting::a) return value;
  const auto in_order = static_cast<size_t>(first_row(p, operand, expert) + row);
  return round_to(operand.dtype, value * topk_weight(p, values, p.gather_indices[in_order]));
}

// Of D, where the product accumulates.
double value_before(const Product& p, Values values, int64_t row, int64_t column) {
  const auto at = static_cast<uint64_t>(row * p.d.columns + column);
  return round_to(p.d.dtype, operand_value(values, p.seed, stream_of(p.d.matrix), at));
}

}  // namespace

Verifier::Verifier(const Operands& operands, Services& services, Cublas& cublas, const Stream& stream)
    : operands_(operands),
      services_(services),
      service_(services.of(operands.product.d.dtype)),
      stream_(stream.stream),
      scratch_(256) {
  const Product& p = operands.product;
  const int64_t bytes = owned_rows(p, p.d) * p.d.columns * 4;
  integer_reference_ = DeviceBuffer(bytes);
  random_reference_ = DeviceBuffer(bytes);
  make_reference(Values::integer, integer_reference_, cublas);
  make_reference(Values::random, random_reference_, cublas);
  measure_reference();
}

void Verifier::measure_reference() {
  const Product& p = operands_.product;
  const int64_t rows = owned_rows(p, p.d), n = p.d.columns;
  const int64_t groups = p.ragged == Axis::k ? experts(p) : 1;
  rms_rows_ = std::max<int64_t>(1, rows / groups);
  std::vector<double> sums(static_cast<size_t>(groups));
  const DeviceBuffer device_sums(groups * int64_t{sizeof(double)});
  const auto bytes = static_cast<size_t>(device_sums.size());
  require(cudaMemcpyAsync(device_sums.data(), sums.data(), bytes, cudaMemcpyHostToDevice, stream_),
          "cannot clear counters");
  service_.sum_squares(random_reference_.as<float>(), operands_.result_weights(), rows, n, rms_rows_,
                       device_sums.as<double>(), stream_);
  require(cudaMemcpyAsync(sums.data(), device_sums.data(), bytes, cudaMemcpyDeviceToHost, stream_),
          "cannot read counters");
  require(cudaStreamSynchronize(stream_), "the reference failed");
  std::vector<float> rms;
  for (const double sum : sums) {
    squares_ += sum;
    rms.push_back(static_cast<float>(std::sqrt(sum / static_cast<double>(rms_rows_ * n))));
  }
  rms_ = DeviceBuffer(static_cast<int64_t>(rms.size() * sizeof(float)));
  require(cudaMemcpy(rms_.data(), rms.data(), rms.size() * sizeof(float), cudaMemcpyHostToDevice),
          "cannot copy to the device");
}

void Verifier::make_reference(Values values, DeviceBuffer& reference, Cublas& cublas) const {
  const Product& p = operands_.product;
  operands_.fill(services_, values, 0, stream_);
  operands_.sort_inputs(services_, 0, stream_);
  Product plain = operands_.plain;  // its D is the reference: fp32 and packed
  plain.d.dtype = Dtype::fp32;
  plain.d.capacity = 0;
  const GroupedGemm gemm = operands_.gemm(0);
  if (p.accumulates) {
    operands_.fill_before(services_, values, 0, stream_);
    service_.widen(reference.as<float>(), operands_.d_of(0), owned_rows(p, p.d) * p.d.columns, stream_);
  }
  cublas.loop({.product = plain, .a = gemm.a, .b = gemm.b, .d = reference.data()}, true);
  require(cudaStreamSynchronize(stream_), "the reference failed");
  check_samples(values, reference);
}

void Verifier::check_samples(Values values, const DeviceBuffer& reference) const {
  const Product& p = operands_.product;
  const int64_t rows = owned_rows(p, p.d);
  if (rows == 0) return;
  Random random(p.seed, 77);
  for (int i = 0; i < kSamples; ++i) {
    const auto row = static_cast<int64_t>(random.below(static_cast<uint64_t>(rows)));
    const auto column = static_cast<int64_t>(random.below(static_cast<uint64_t>(p.d.columns)));
    const Place place = place_of(p, p.d, row);
    double sum = p.accumulates ? value_before(p, values, row, column) : 0;
    double squares = sum * sum;
    for (int64_t k = 0; k < extent(p, place.expert, Axis::k); ++k) {
      const double term = entering_value(p, p.a, values, place.expert, place.row, k) *
                          entering_value(p, p.b, values, place.expert, column, k);
      sum += term;
      squares += term * term;
    }
    float got = 0;
    require(cudaMemcpy(&got, reference.as<float>() + row * p.d.columns + column, 4, cudaMemcpyDeviceToHost),
            "cannot read the reference");
    const double tolerance = values == Values::integer ? 0 : 1e-4 * std::sqrt(squares);
    if (!(std::abs(got - sum) <= tolerance))
      throw machine_error(fmt::format("the cuBLAS reference is wrong at expert {}, row {}, column {}: {} instead of {}",
                                      place.expert, place.row, column, got, sum),
                          "nothing on this machine can be verified; see moetune doctor");
  }
}

// D of set 0, with the guards before and after it; and what kernels put in order on the way there. What accumulates
// finds what was there before.
void Verifier::clear_output(Values values) const {
  require(cudaMemsetAsync(operands_.d.data(), kFill, static_cast<size_t>(kGuardBytes + operands_.d_stride), stream_),
          "cannot fill the output");
  operands_.fill_before(services_, values, 0, stream_);
  const DeviceBuffer& gathered = operands_.gathered;
  if (gathered.size() > 0)
    require(cudaMemsetAsync(gathered.data(), kFill, static_cast<size_t>(gathered.size()), stream_),
            "cannot fill the room for gathered rows");
}

std::string Verifier::run_and_compare(const RunOnce& run, Values values, ComparisonCounts& counts) const {
  const bool integer = values == Values::integer;
  const DeviceBuffer& reference = integer ? integer_reference_ : random_reference_;
  const float* rms = integer ? nullptr : rms_.as<float>();
  const Product& p = operands_.product;
  const int64_t rows = owned_rows(p, p.d), n = p.d.columns;
  auto* device_counts = scratch_.as<ComparisonCounts>();
  auto* device_changed = scratch_.as<unsigned long long>(sizeof(ComparisonCounts));  // guards, then unwritten
  clear_output(values);
  run();
  require_candidate(cudaGetLastError(), "the launch failed");
  require_candidate(cudaStreamSynchronize(stream_), "the kernel failed");
  counts = {};
  unsigned long long changed[2] = {0, 0};
  require(cudaMemcpyAsync(device_counts, &counts, sizeof counts, cudaMemcpyHostToDevice, stream_),
          "cannot clear counters");
  require(cudaMemcpyAsync(device_changed, changed, sizeof changed, cudaMemcpyHostToDevice, stream_),
          "cannot clear counters");
  service_.compare(operands_.d_of(0), reference.as<float>(), operands_.d_rows.as<int>(), operands_.result_weights(),
                   rows, n, rms, rms_rows_, device_counts, stream_);
  const int64_t d_bytes = p.d.rows * n * size_bytes(p.d.dtype);
  service_.count_changed(operands_.d.data(), kGuardBytes, kFill, device_changed, stream_);
  service_.count_changed(operands_.d_of(0) + d_bytes, operands_.d_stride - d_bytes, kFill, device_changed, stream_);
  service_.count_unwritten(operands_.d_of(0), p.d.rows * n, device_changed + 1, stream_);
  require(cudaMemcpyAsync(&counts, device_counts, sizeof counts, cudaMemcpyDeviceToHost, stream_),
          "cannot read counters");
  require(cudaMemcpyAsync(changed, device_changed, sizeof changed, cudaMemcpyDeviceToHost, stream_),
          "cannot read counters");
  require(cudaStreamSynchronize(stream_), "the comparison failed");
  if (changed[0] > 0) return fmt::format("{} bytes outside the output were written", changed[0]);
  const int64_t foreign = (p.d.rows - rows) * n, unwritten = static_cast<int64_t>(changed[1]);
  if (unwritten < foreign)
    return fmt::format("{} elements of rows that {} were written", foreign - unwritten,
                       p.d.order == RowOrder::in_place ? "are padding" : "belong to other ranks");
  if (unwritten > foreign) return fmt::format("{} elements were not written", unwritten - foreign);
  return {};
}

Verdict Verifier::verify(const RunOnce& run) const {
  const Product& p = operands_.product;
  const int64_t n = p.d.columns, elements = owned_rows(p, p.d) * n;
  const bool twice = p.weighting == Weighting::rounded_result;
  Verdict verdict{.ok = false, .reason = {}, .elements = 2 * elements};
  ComparisonCounts counts;
  operands_.fill(services_, Values::integer, 0, stream_);
  verdict.reason = run_and_compare(run, Values::integer, counts);
  verdict.mismatches = static_cast<int64_t>(counts.mismatches);
  if (verdict.mismatches > 0) {
    const Place at = place_of(p, p.d, static_cast<int64_t>(counts.first) / n);
    verdict.reason = fmt::format(
        "{}{} of {} elements differ from cuBLAS on integer inputs, the first at expert {}, row {}, column {}",
        verdict.reason.empty() ? "" : verdict.reason + "; ", verdict.mismatches, elements, at.expert, at.row,
        static_cast<int64_t>(counts.first) % n);
  }
  operands_.fill(services_, Values::random, 0, stream_);
  if (!verdict.reason.empty()) return verdict;
  verdict.reason = run_and_compare(run, Values::random, counts);
  if (squares_ > 0) verdict.normalised_error = std::sqrt(counts.error / squares_);
  verdict.max_ulps = std::bit_cast<float>(counts.max_ulps_bits);
  const double ulps = p.d.dtype == Dtype::fp32 ? std::ldexp(1, 10) : twice ? kMaxUlpsWeighted : kMaxUlps;
  const double norm = max_normalised_error(p.d.dtype, twice);
  if (verdict.reason.empty() && !(verdict.max_ulps <= ulps))
    verdict.reason =
        fmt::format("an element is {:.3g} ulps off on random inputs, more than {:.3g}", verdict.max_ulps, ulps);
  if (verdict.reason.empty() && !(verdict.normalised_error <= norm))
    verdict.reason = fmt::format("the normalised error on random inputs is {:.3g}, more than {:.3g}",
                                 verdict.normalised_error, norm);
  verdict.ok = verdict.reason.empty();
  return verdict;
}

Repetition Verifier::repeat(const RunOnce& run, double seconds) const {
  constexpr int64_t kRowWords = 256;  // a block's threads take one each
  constexpr int kBatch = 32;          // launches between two looks at the counters
  // Whole rows of words: what is left over belongs to the last guard.
  const int64_t rows = (kGuardBytes + operands_.d_stride) / (kRowWords * 4);
  const Service& words = services_.of(Dtype::fp32);  // compares words of 32 bits
  const DeviceBuffer first(rows * kRowWords * 4), device_counts(kBatch * int64_t{sizeof(ComparisonCounts)});
  const auto launch_once = [&] {
    clear_output(Values::random);
    run();
    require_candidate(cudaGetLastError(), "the launch failed");
  };
  operands_.fill(services_, Values::random, 0, stream_);
  launch_once();
  require(cudaMemcpyAsync(first.data(), operands_.d.data(), static_cast<size_t>(first.size()), cudaMemcpyDeviceToDevice,
                          stream_),
          "cannot keep the first result");
  require_candidate(cudaStreamSynchronize(stream_), "the kernel failed");

  Repetition repetition;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  const auto repeat_batch = [&] {
    std::vector<ComparisonCounts> counts(kBatch);
    const size_t bytes = counts.size() * sizeof counts[0];
    require(cudaMemcpyAsync(device_counts.data(), counts.data(), bytes, cudaMemcpyHostToDevice, stream_),
            "cannot clear counters");
    for (int i = 0; i < kBatch; ++i) {
      launch_once();
      words.compare(operands_.d.data(), first.as<float>(), nullptr, {}, rows, kRowWords, nullptr, 1,
                    device_counts.as<ComparisonCounts>() + i, stream_);
    }
    require(cudaMemcpyAsync(counts.data(), device_counts.data(), bytes, cudaMemcpyDeviceToHost, stream_),
            "cannot read counters");
    require_candidate(cudaStreamSynchronize(stream_), "the kernel failed");
    for (const ComparisonCounts& count : counts) {
      ++repetition.launches;
      if (count.mismatches > 0 && repetition.different++ == 0)
        repetition.reason = fmt::format(
            "launch {} differs from the first, in {} words of 4 bytes from byte {} of {} on", repetition.launches,
            count.mismatches, static_cast<int64_t>(count.first) * 4 - kGuardBytes, name(operands_.product.d.matrix));
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
