// The formulas of kernels/formulas.h in double precision.
#include "workload/product/activate.h"

#include <algorithm>
#include <cmath>

namespace moetune {
namespace {

double sigmoid(double value) { return 1 / (1 + std::exp(-value)); }

}  // namespace

Slopes slopes(Activation activation, double gate, double up) {
  constexpr double kRootOf2Pi = 2.5066282746310002;
  if (activation == Activation::gelu) {
    const double below = (1 + std::erf(gate / std::sqrt(2.0))) / 2;
    return {(below + gate * std::exp(-gate * gate / 2) / kRootOf2Pi) * up, gate * below};
  }
  const bool limited = activation == Activation::gpt_oss;
  const double slope = limited ? kGptOssSlope : 1, g = limited ? std::min(gate, kGptOssLimit) : gate;
  const double s = sigmoid(slope * g), of_gate = s + slope * g * s * (1 - s);
  if (!limited) return {of_gate * up, g * s};
  const bool inside = up >= -kGptOssLimit && up <= kGptOssLimit;
  return {gate <= kGptOssLimit ? of_gate * (std::clamp(up, -kGptOssLimit, kGptOssLimit) + 1) : 0, inside ? g * s : 0};
}

double activate(Activation activation, double gate, double up) {
  if (activation == Activation::gelu) return gate * (1 + std::erf(gate / std::sqrt(2.0))) / 2 * up;
  if (activation == Activation::silu) return gate / (1 + std::exp(-gate)) * up;
  const double most = std::min(gate, kGptOssLimit);
  return most * sigmoid(kGptOssSlope * most) * (std::clamp(up, -kGptOssLimit, kGptOssLimit) + 1);
}

}  // namespace moetune
