// The strategy that finds a good candidate among millions by measuring a few dozen.
#pragma once
#include <memory>

#include "tune/search/strategy.h"

namespace moetune {

/// Begins with the default, what won other cells, and what should be fast by the variants' models. From then on it fits
/// a Surrogate to the logarithm of the times, and asks for those neighbours of the best candidates, and others some
/// knobs away from them, that promise the largest expected improvement; it ends when that is below what measuring can
/// tell apart, sooner when the last candidates brought none, or after 64 candidates (32 where a cell near it has a
/// winner). Where no variant has a model, it begins with random candidates, weighs all of the domain, and tries an
/// eighth of it: 32 to 150, half as many where a cell near it has a winner. A small domain is tried whole. Candidates
/// race (Maron and Moore 1994): all have a few blocks, and those that may still be the fastest get more.
std::unique_ptr<Strategy> make_auto(const SearchSetting& setting);

/// The median of a candidate's times, as a logarithm, and its number of blocks.
struct Racer {
  double median = 0;
  int blocks = 0;
};
/// The standard deviation of a block's logarithm, from differences of blocks that follow each other in one candidate;
/// robust against disturbed blocks. `usual` where there are fewer than five.
double block_noise(const std::vector<std::vector<double>>& logs, double usual);
/// Whether a racer may be as fast as the fastest, at two standard deviations of both.
bool may_win(const Racer& racer, const Racer& fastest, double noise);

}  // namespace moetune
