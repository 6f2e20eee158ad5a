// One function a kind of contradiction.
#include "record/table/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "variant/variant.h"

namespace moetune {
namespace {

constexpr double kFigureRounding = 1e-3;  // relative, of the figures that are written with the fewest digits

void require_figure(const JsonAt& json, std::string_view key, double counted, std::string_view source) {
  if (!json.has(key)) return;
  const double told = json[key].number();
  if (std::abs(told - counted) > kFigureRounding * std::max(std::abs(told), std::abs(counted)))
    json[key].fail(fmt::format("{:g} contradicts {}: expected {:.5g}", told, source, counted));
}

void require_count(const JsonAt& json, std::string_view key, int64_t counted) {
  const int64_t told = json[key].integer();
  if (told != counted) json[key].fail(fmt::format("{} contradicts m_sizes: expected {}", told, counted));
}

void require_own_id(const Entry& entry, const JsonAt& json) {
  if (!json.has("id")) return;
  const std::string told = json["id"].string(), own = id(entry.cell);
  if (told != own) json["id"].fail(fmt::format("'{}' contradicts the cell, which is {}", told, own));
}

void require_figures_of_rows(const Entry& entry, const JsonAt& json) {
  const RoutingFigures counted = figures({.m_sizes = entry.m_sizes, .gather_indices = {}});
  const JsonAt told = json["figures"];
  require_count(told, "rows", counted.rows);
  require_count(told, "active_experts", counted.active_experts);
  require_count(told, "max_rows", counted.max_rows);
  require_figure(told, "max_over_mean", counted.max_over_mean, "m_sizes");
  require_figure(told, "cv", counted.cv, "m_sizes");
  require_figure(told, "effective_experts", counted.effective_experts, "m_sizes");
}

void require_derived(const Entry& entry, const JsonAt& json) {
  if (!json.has("derived")) return;
  const JsonAt derived = json["derived"];
  require_figure(derived, "tflops", tflops(entry), "flops and the median");
  require_figure(derived, "tbps", terabytes_per_second(entry), "bytes and the median");
  if (!derived.has("speedup")) return;
  for (const Rival& rival : entry.rivals)
    require_figure(derived["speedup"], rival.name, 1 / rival.ratio.value, fmt::format("the ratio to {}", rival.name));
}

void require_ratios_of_times(const Entry& entry, const JsonAt& json) {
  if (json.has("untrusted") || !uncertainty(entry).empty()) return;
  const JsonAt rivals = json["rivals"];
  for (size_t i = 0; i < entry.rivals.size(); ++i) {
    const Rival& rival = entry.rivals[i];
    if (contradicts_times(entry, rival))
      rivals[i]["ratio"].fail(fmt::format("{:g} contradicts the times {:g} and {:g} us: expected {:.4g}",
                                          rival.ratio.value, 1e6 * entry.measurement.time.value,
                                          1e6 * rival.measurement.time.value,
                                          entry.measurement.time.value / rival.measurement.time.value));
  }
}

}  // namespace

void require_runnable(const Candidate& candidate, const Shape& shape, const DeviceInfo& device, const JsonAt& json) {
  if (!candidate.variant || !candidate.retired.empty() || !candidate.foreign.empty()) return;
  if (const auto reason = cannot_run(candidate, shape, device))
    json.fail(fmt::format("the table's own device cannot run it: {}", *reason));
}

void require_consistent(const Entry& entry, const DeviceInfo& device, const JsonAt& json) {
  require_own_id(entry, json);
  require_figures_of_rows(entry, json);
  if (!entry.skipped.empty()) return;
  require_derived(entry, json);
  require_ratios_of_times(entry, json);
  require_runnable(entry.candidate, entry.cell.shape, device, json["candidate"]);
  const JsonAt rivals = json["rivals"];
  for (size_t i = 0; i < entry.rivals.size(); ++i)
    require_runnable(entry.rivals[i].candidate, entry.cell.shape, device, rivals[i]);
}

}  // namespace moetune
