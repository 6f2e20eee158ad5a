// Bytes and assumptions that models of kernels begin with.
#include "variant/cost.h"

#include "variant/unit.h"

namespace moetune {
namespace {

constexpr int64_t kAssumedCache = int64_t{50} << 20;  // an H100's L2

}  // namespace

DeviceInfo with_assumed(DeviceInfo device, const Peaks& assumed) {
  const Peaks peaks = modelled_peaks(device);
  device.processors = processors_of(device);
  if (peaks.flops <= 0) device.peak_flops = assumed.flops;
  if (peaks.bandwidth <= 0) device.peak_bandwidth = assumed.bandwidth;
  if (device.cache_bytes <= 0) device.cache_bytes = kAssumedCache;
  return device;
}

MovedBytes moved_bytes(const Product& product, const std::vector<int>& m_sizes) {
  double rows = 0, active = 0;
  for (const int of_expert : m_sizes) rows += of_expert, active += of_expert > 0;
  const auto m = static_cast<double>(product.m), n = static_cast<double>(product.n), k = static_cast<double>(product.k);
  const auto in = static_cast<double>(size_bytes(product.a.dtype)),
             out = static_cast<double>(size_bytes(product.d.dtype));
  if (product.ragged == Axis::k)
    return {.read = rows * (m + n) * in, .written = static_cast<double>(m_sizes.size()) * m * n * out};
  return {.read = (rows + active * n) * k * in, .written = rows * n * out};
}

}  // namespace moetune
