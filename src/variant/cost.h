// What the cost models of kernels share: their constants, and the bytes that a product moves.
#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "variant/candidate.h"
#include "variant/device.h"
#include "workload/product/product.h"

namespace moetune {

/// The constants of a variant's cost model: configs/cost/VARIANT.json. scripts/fit_cost fits them to journals.
using Constants = std::map<std::string, double>;

Constants built_in_constants(const std::string& variant);
Constants constants_from_json(const JsonAt& json);

inline double ceil_div(double a, double b) { return std::ceil(a / b); }

/// Of two things done at the same time: the longer where `exponent` is large, their sum where it is 1.
inline double norm(double a, double b, double exponent) {
  const double most = std::max(a, b);
  return most > 0 ? most * std::pow(std::pow(a / most, exponent) + std::pow(b / most, exponent), 1 / exponent) : 0;
}

/// The device with these peaks, an H100's L2 and the most processors of its kind, where its own are unknown.
DeviceInfo with_assumed(DeviceInfo device, const Peaks& assumed);

struct MovedBytes {
  double read = 0, written = 0;
};
/// What a kernel must read from memory and write to it for an expert of so many rows, each byte once.
MovedBytes moved_bytes(const Product& product, int rows);
/// The same for all experts.
MovedBytes moved_bytes(const Product& product, const std::vector<int>& m_sizes);

}  // namespace moetune
