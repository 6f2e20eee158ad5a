// xoshiro256** and portable elementary functions.
#include "base/random.h"

#include <cmath>
#include <limits>

namespace moetune {
namespace {

constexpr double kLn2High = 6.93147180369123816490e-01;  // ln 2 split so that n * high is exact (Cody and Waite)
constexpr double kLn2Low = 1.90821492927058770002e-10;

}  // namespace

double portable_log(double x) {
  if (!(x >= 0)) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (std::isinf(x)) return x;
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact
  if (m < 0.70710678118654752440) m *= 2, --exponent;
  // log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.1716: the series to s^23 is good to 1e-18.
  const double s = (m - 1) / (m + 1);
  const double z = s * s;
  double tail = 0;
  for (int i = 23; i >= 3; i -= 2) tail = z * (1.0 / i + tail);
  return exponent * kLn2High + (2 * s + (2 * s * tail + exponent * kLn2Low));
}

double portable_exp(double x) {
  if (std::isnan(x)) return x;
  if (x > 709.79) return std::numeric_limits<double>::infinity();
  if (x < -745.2) return 0;
  const double n = std::floor(x * 1.4426950408889634074 + 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= 0.3466
  double sum = 1;
  for (int i = 17; i >= 1; --i) sum = 1 + r / i * sum;
  return std::ldexp(sum, static_cast<int>(n));
}

double portable_pow(double base, double exponent) { return portable_exp(exponent * portable_log(base)); }

Random::Random(uint64_t seed, uint64_t stream) {
  uint64_t x = seed ^ splitmix64(stream ^ 0x6d6f6574756e65);
  for (uint64_t& word : state_) word = splitmix64(x), x += 0x9e3779b97f4a7c15;
}

uint64_t Random::next() {
  const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double Random::uniform() { return (static_cast<double>(next() >> 12) + 0.5) * 0x1p-52; }

uint64_t Random::below(uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  const uint64_t threshold = (0 - bound) % bound;
  for (;;) {
    const Wide product = static_cast<Wide>(next()) * bound;
    if (static_cast<uint64_t>(product) >= threshold) return static_cast<uint64_t>(product >> 64);
  }
}

double Random::normal() {
  for (;;) {
    const double u = 2 * uniform() - 1;
    const double v = 2 * uniform() - 1;
    const double s = u * u + v * v;
    if (s > 0 && s < 1) return u * std::sqrt(-2 * portable_log(s) / s);  // sqrt is exact by IEEE 754
  }
}

}  // namespace moetune
