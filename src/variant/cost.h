// What the models of kernels share.
#pragma once
#include <algorithm>
#include <cmath>

namespace moetune {

inline double ceil_div(double a, double b) { return std::ceil(a / b); }

/// Of two things done at the same time: the longer where `exponent` is large, their sum where it is 1.
inline double norm(double a, double b, double exponent) {
  const double most = std::max(a, b);
  return most > 0 ? most * std::pow(std::pow(a / most, exponent) + std::pow(b / most, exponent), 1 / exponent) : 0;
}

}  // namespace moetune
