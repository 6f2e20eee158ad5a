// How a result is judged.
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

struct Position {
  size_t expert;
  int64_t row_in_expert;
};

Position position(const Problem& problem, int64_t row) {
  size_t expert = 0;
  while (row >= problem.routing.m_sizes[expert]) row -= problem.routing.m_sizes[expert++];
  return {expert, row};
}

}  // namespace

Verifier::Verifier(const Operands& operands, const Service& service, Cublas& cublas, const Stream& stream)
    : operands_(operands), service_(service), stream_(stream.stream), scratch_(256) {
  const Problem& p = operands.problem;
  const int64_t bytes = p.rows() * p.shape.layer.n * 4;
  integer_reference_ = DeviceBuffer(bytes);
  random_reference_ = DeviceBuffer(bytes);
  make_reference(Values::integer, integer_reference_, cublas);
  make_reference(Values::random, random_reference_, cublas);
  ComparisonCounts counts;
  auto* device_counts = scratch_.as<ComparisonCounts>();
  require(cudaMemcpyAsync(device_counts, &counts, sizeof counts, cudaMemcpyHostToDevice, stream_),
          "cannot clear counters");
  service.sum_squares(random_reference_.as<float>(), operands.gather_indices.as<int>(), operands.weights_or_null(),
                      p.rows(), p.shape.layer.n, device_counts, stream_);
  require(cudaMemcpyAsync(&counts, device_counts, sizeof counts, cudaMemcpyDeviceToHost, stream_),
          "cannot read counters");
  require(cudaStreamSynchronize(stream_), "the reference failed");
  rms_ = std::sqrt(counts.reference / static_cast<double>(std::max<int64_t>(1, p.rows() * p.shape.layer.n)));
}

void Verifier::make_reference(Values values, DeviceBuffer& reference, Cublas& cublas) const {
  const Problem& p = operands_.problem;
  operands_.fill(service_, values, 0, stream_);
  GroupedGemm gemm = operands_.gemm(0);
  gemm.y = reference.data();
  gemm.result_dtype = Dtype::fp32;
  if (p.shape.fusion.permute_x)
    service_.gather(operands_.x_sorted.data(), operands_.args(0).x, operands_.gather_indices.as<int>(), p.rows(),
                    p.shape.layer.k, p.shape.layer.top_k, stream_);
  cublas.loop(gemm, true);
  require(cudaStreamSynchronize(stream_), "the reference failed");
  check_samples(values, reference);
}

void Verifier::check_samples(Values values, const DeviceBuffer& reference) const {
  const Problem& p = operands_.problem;
  const Layer& layer = p.shape.layer;
  if (p.rows() == 0) return;
  Random random(p.seed, 77);
  for (int i = 0; i < kSamples; ++i) {
    const auto row = static_cast<int64_t>(random.below(static_cast<uint64_t>(p.rows())));
    const auto column = static_cast<int64_t>(random.below(static_cast<uint64_t>(layer.n)));
    const auto expert = static_cast<int64_t>(position(p, row).expert);
    const int64_t x_row =
        p.shape.fusion.permute_x ? p.routing.gather_indices[static_cast<size_t>(row)] / layer.top_k : row;
    double sum = 0, squares = 0;
    for (int64_t k = 0; k < layer.k; ++k) {
      const auto value = [&](int operand, int64_t index) {
        return static_cast<double>(
            round_to(layer.dtype, operand_value(values, p.seed, operand, static_cast<uint64_t>(index))));
      };
      const double term =
          value(kStreamX, x_row * layer.k + k) * value(kStreamW, (expert * layer.n + column) * layer.k + k);
      sum += term;
      squares += term * term;
    }
    float got = 0;
    require(cudaMemcpy(&got, reference.as<float>() + row * layer.n + column, 4, cudaMemcpyDeviceToHost),
            "cannot read the reference");
    const double tolerance = values == Values::integer ? 0 : 1e-4 * std::sqrt(squares);
    if (!(std::abs(got - sum) <= tolerance))
      throw machine_error(fmt::format("the cuBLAS reference is wrong at expert {}, row {}, column {}: {} instead of {}",
                                      expert, row, column, got, sum),
                          "nothing on this machine can be verified; see moetune doctor");
  }
}

// Y of set 0, with the guards before and after it; and what kernels put in order on the way there.
void Verifier::clear_output() const {
  require(cudaMemsetAsync(operands_.y.data(), kFill, static_cast<size_t>(kGuardBytes + operands_.y_stride), stream_),
          "cannot fill the output");
  const DeviceBuffer& gathered = operands_.x_gathered;
  if (gathered.size() > 0)
    require(cudaMemsetAsync(gathered.data(), kFill, static_cast<size_t>(gathered.size()), stream_),
            "cannot fill the room for gathered rows");
}

std::string Verifier::run_and_compare(const RunOnce& run, float rms, const DeviceBuffer& reference,
                                      ComparisonCounts& counts) const {
  const Problem& p = operands_.problem;
  const Layer& layer = p.shape.layer;
  auto* device_counts = scratch_.as<ComparisonCounts>();
  auto* device_changed = scratch_.as<unsigned long long>(sizeof(ComparisonCounts));  // guards, then unwritten
  clear_output();
  run();
  require_candidate(cudaGetLastError(), "the launch failed");
  require_candidate(cudaStreamSynchronize(stream_), "the kernel failed");
  counts = {};
  unsigned long long changed[2] = {0, 0};
  require(cudaMemcpyAsync(device_counts, &counts, sizeof counts, cudaMemcpyHostToDevice, stream_),
          "cannot clear counters");
  require(cudaMemcpyAsync(device_changed, changed, sizeof changed, cudaMemcpyHostToDevice, stream_),
          "cannot clear counters");
  service_.compare(operands_.y_of(0), reference.as<float>(), operands_.gather_indices.as<int>(),
                   operands_.weights_or_null(), p.rows(), layer.n, p.shape.fusion.permute_y, rms, device_counts,
                   stream_);
  const int64_t y_bytes = p.y_rows() * layer.n * size_bytes(layer.dtype);
  service_.count_changed(operands_.y.data(), kGuardBytes, kFill, device_changed, stream_);
  service_.count_changed(operands_.y_of(0) + y_bytes, operands_.y_stride - y_bytes, kFill, device_changed, stream_);
  service_.count_unwritten(operands_.y_of(0), p.y_rows() * layer.n, device_changed + 1, stream_);
  require(cudaMemcpyAsync(&counts, device_counts, sizeof counts, cudaMemcpyDeviceToHost, stream_),
          "cannot read counters");
  require(cudaMemcpyAsync(changed, device_changed, sizeof changed, cudaMemcpyDeviceToHost, stream_),
          "cannot read counters");
  require(cudaStreamSynchronize(stream_), "the comparison failed");
  if (changed[0] > 0) return fmt::format("{} bytes outside the output were written", changed[0]);
  const auto foreign =
      static_cast<unsigned long long>(p.y_rows() - p.rows()) * static_cast<unsigned long long>(layer.n);
  if (changed[1] < foreign)
    return fmt::format("{} elements of rows that belong to other ranks were written", foreign - changed[1]);
  if (changed[1] > foreign) return fmt::format("{} elements were not written", changed[1] - foreign);
  return {};
}

Verdict Verifier::verify(const RunOnce& run) const {
  const Problem& p = operands_.problem;
  const int64_t n = p.shape.layer.n;
  const bool weighted = p.shape.fusion.topk_weights;
  Verdict verdict{.ok = false, .reason = {}, .elements = 2 * p.rows() * n};
  ComparisonCounts counts;
  operands_.fill(service_, Values::integer, 0, stream_);
  verdict.reason = run_and_compare(run, 0, integer_reference_, counts);
  verdict.mismatches = static_cast<int64_t>(counts.mismatches);
  if (verdict.mismatches > 0) {
    const auto row = static_cast<int64_t>(counts.first) / n;
    const Position at = position(p, row);
    verdict.reason = fmt::format(
        "{}{} of {} elements differ from cuBLAS on integer inputs, the first at expert {}, row {}, column {}",
        verdict.reason.empty() ? "" : verdict.reason + "; ", verdict.mismatches, p.rows() * n, at.expert,
        at.row_in_expert, static_cast<int64_t>(counts.first) % n);
  }
  operands_.fill(service_, Values::random, 0, stream_);
  if (!verdict.reason.empty()) return verdict;
  verdict.reason = run_and_compare(run, static_cast<float>(rms_), random_reference_, counts);
  if (p.rows() > 0)
    verdict.normalised_error = std::sqrt(counts.error / (rms_ * rms_ * static_cast<double>(p.rows() * n)));
  verdict.max_ulps = std::bit_cast<float>(counts.max_ulps_bits);
  const double ulps = p.shape.layer.dtype == Dtype::fp32 ? std::ldexp(1, 10) : weighted ? kMaxUlpsWeighted : kMaxUlps;
  const double norm = max_normalised_error(p.shape.layer.dtype, weighted);
  if (verdict.reason.empty() && !(verdict.max_ulps <= ulps))
    verdict.reason =
        fmt::format("an element is {:.3g} ulps off on random inputs, more than {:.3g}", verdict.max_ulps, ulps);
  if (verdict.reason.empty() && !(verdict.normalised_error <= norm))
    verdict.reason = fmt::format("the normalised error on random inputs is {:.3g}, more than {:.3g}",
                                 verdict.normalised_error, norm);
  verdict.ok = verdict.reason.empty();
  return verdict;
}

Repetition Verifier::repeat(const RunOnce& run, double seconds, const Service& words) const {
  constexpr int64_t kRowWords = 256;  // a block's threads take one each
  constexpr int kBatch = 32;          // launches between two looks at the counters
  // Whole rows of words: what is left over belongs to the last guard.
  const int64_t rows = (kGuardBytes + operands_.y_stride) / (kRowWords * 4);
  const DeviceBuffer first(rows * kRowWords * 4), device_counts(kBatch * int64_t{sizeof(ComparisonCounts)});
  const auto launch_once = [&] {
    clear_output();
    run();
    require_candidate(cudaGetLastError(), "the launch failed");
  };
  operands_.fill(service_, Values::random, 0, stream_);
  launch_once();
  require(cudaMemcpyAsync(first.data(), operands_.y.data(), static_cast<size_t>(first.size()), cudaMemcpyDeviceToDevice,
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
      words.compare(operands_.y.data(), first.as<float>(), nullptr, nullptr, rows, kRowWords, false, 0,
                    device_counts.as<ComparisonCounts>() + i, stream_);
    }
    require(cudaMemcpyAsync(counts.data(), device_counts.data(), bytes, cudaMemcpyDeviceToHost, stream_),
            "cannot read counters");
    require_candidate(cudaStreamSynchronize(stream_), "the kernel failed");
    for (const ComparisonCounts& count : counts) {
      ++repetition.launches;
      if (count.mismatches > 0 && repetition.different++ == 0)
        repetition.reason =
            fmt::format("launch {} differs from the first, in {} words of 4 bytes from byte {} of Y on",
                        repetition.launches, count.mismatches, static_cast<int64_t>(count.first) * 4 - kGuardBytes);
    }
  };
  try {
    do repeat_batch();
    while (std::chrono::steady_clock::now() < end);
  } catch (const Error&) {
    require_candidate(cudaStreamSynchronize(stream_), "the kernel failed");  // whichever call told of it
    throw;
  }
  return repetition;
}

}  // namespace moetune
