// Random numbers that are the same on every machine, and the logarithm and exponential they need.
#pragma once
#include <cstdint>

namespace moetune {

/// Natural logarithm and exponential from + - * / alone, so that every machine and libm gives the same bits;
/// within 2 ulp of the true value. log of 0 is -inf, of a negative number NaN.
double portable_log(double x);
double portable_exp(double x);
double portable_pow(double base, double exponent);  // base > 0

/// xoshiro256** (Blackman and Vigna, 2018), seeded with splitmix64. Streams of one seed are independent.
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0);
  uint64_t next();
  double uniform();                // in (0, 1), never 0 or 1
  uint64_t below(uint64_t bound);  // in [0, bound), without bias (Lemire 2019); bound > 0
  double normal();                 // polar method (Marsaglia)
  double exponential() { return -portable_log(uniform()); }

 private:
  uint64_t state_[4];
};

/// One step of splitmix64 (Steele, Lea, Flood 2014): a good hash of a counter.
constexpr uint64_t splitmix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace moetune
