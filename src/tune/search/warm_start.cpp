// Distances between cells, of other layers too.
#include "tune/search/strategy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace moetune {
namespace {

constexpr size_t kMostStarts = 12;
constexpr double kNearRows = 0.6;   // doublings
constexpr double kOtherFusion = 1;  // doublings that another fusion or dtype counts as

double doublings(double a, double b) { return a > 0 && b > 0 ? std::abs(std::log2(a / b)) : 0; }

double mean_rows(const RoutingFigures& figures) {
  return static_cast<double>(figures.rows) / static_cast<double>(std::max<int64_t>(figures.active_experts, 1));
}

double distance_of_rows(const RoutingFigures& a, const RoutingFigures& b) {
  return std::hypot(doublings(mean_rows(a), mean_rows(b)), doublings(a.max_over_mean, b.max_over_mean));
}

double distance_of_shapes(const Shape& a, const Shape& b) {
  const auto size = [](int64_t x, int64_t y) { return doublings(static_cast<double>(x), static_cast<double>(y)); };
  return size(a.layer.n, b.layer.n) + size(a.layer.k, b.layer.k) +
         (a.fusion != b.fusion || a.layer.dtype != b.layer.dtype ? kOtherFusion : 0);
}

}  // namespace

WarmStart warm_start(const Problem& problem, const std::vector<const Entry*>& entries) {
  const RoutingFigures asked = figures(problem.routing);
  std::vector<std::pair<double, const Entry*>> ranked;
  WarmStart start;
  for (const Entry* entry : entries) {
    const Shape& shape = entry->cell.shape;
    if (!entry->skipped.empty() || shape.op != problem.shape.op) continue;
    if (size_bytes(shape.layer.dtype) != size_bytes(problem.shape.layer.dtype)) continue;
    const double rows = distance_of_rows(asked, entry->figures), shapes = distance_of_shapes(problem.shape, shape);
    ranked.emplace_back(rows + shapes, entry);
    start.near = start.near || (shapes == 0 && rows <= kNearRows);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [distance, entry] : ranked) {
    if (start.candidates.size() == kMostStarts) break;
    if (std::ranges::find(start.candidates, entry->candidate) == start.candidates.end())
      start.candidates.push_back(entry->candidate);
  }
  return start;
}

}  // namespace moetune
