// Constants, bytes and assumptions that models of kernels begin with.
#include "variant/cost.h"

#include "base/embedded.h"
#include "variant/unit.h"

namespace moetune {
namespace {

constexpr int64_t kAssumedCache = int64_t{50} << 20;  // an H100's L2

}  // namespace

Constants built_in_constants(const std::string& variant) {
  const std::string path = "configs/cost/" + variant + ".json";
  const Json json = parse_json(embedded_file(path).value(), path);
  Constants constants;
  for (const auto& [name, constant] : json["constants"].items()) constants[name] = constant["value"];
  return constants;
}

Constants constants_from_json(const JsonAt& json) {
  require_schema(json, "cost");
  Constants constants = built_in_constants(json["variant"].string());
  for (auto& [name, value] : constants) value = json["constants"][name]["value"].number();
  return constants;
}

DeviceInfo with_assumed(DeviceInfo device, const Peaks& assumed) {
  device.processors = processors_of(device);
  if (device.peak_flops <= 0) device.peak_flops = assumed.flops;
  if (device.peak_bandwidth <= 0) device.peak_bandwidth = assumed.bandwidth;
  if (device.cache_bytes <= 0) device.cache_bytes = kAssumedCache;
  return device;
}

MovedBytes moved_bytes(const Product& product, int rows) {
  const auto m = static_cast<double>(product.m), n = static_cast<double>(product.n), k = static_cast<double>(product.k);
  const auto in = static_cast<double>(size_bytes(product.a.type.dtype)),
             out = static_cast<double>(size_bytes(product.d.type.dtype));
  if (product.ragged == Axis::k) return {.read = rows * (m + n) * in, .written = m * n * out};
  return {.read = rows > 0 ? (rows + n) * k * in : 0, .written = rows * n * out};
}

MovedBytes moved_bytes(const Product& product, const std::vector<int>& m_sizes) {
  MovedBytes sum;
  for (const int rows : m_sizes) {
    const MovedBytes of_expert = moved_bytes(product, rows);
    sum.read += of_expert.read, sum.written += of_expert.written;
  }
  return sum;
}

}  // namespace moetune
