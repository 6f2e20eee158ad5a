// Tables on disk, the figures that follow from an entry, and which entries are certain enough to judge by. Their JSON:
// table_json.cpp.
#include "record/table/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/embedded.h"
#include "base/error.h"
#include "base/group.h"
#include "base/text/units.h"
#include "variant/variant.h"

namespace moetune {
namespace {

constexpr std::string_view kJournalBegins = "{\"schema\":\"moetune.journal/";

// "12 %", "over 100 %": from the half width of an interval, in the logarithm.
std::string half_text(double half) {
  const double percent = 100 * std::expm1(half);
  return percent > 100 ? "over 100 %" : fmt::format("{:.0f} %", percent);
}

// "12.3 µs ± 1.2 %", or only the interval where it is too wide for one number.
std::string interval_text(const Estimate& estimate, std::string (*text)(double)) {
  if (log_half_width(estimate) > kUncertainTime)
    return fmt::format("{} to {}", text(estimate.low), text(estimate.high));
  if (estimate.samples == 1) return text(estimate.value);  // one block has no interval
  const double percent = 100 * half_width(estimate) / estimate.value;
  return fmt::format("{} ± {:.{}f} %", text(estimate.value), percent, percent < 9.95 ? 1 : 0);
}

constexpr int kRoutingColumns = 15;

}  // namespace

void drop_choices(TunedTable& table, const Shape& shape) {
  std::erase_if(table.choices, [&](const RobustChoice& choice) { return choice.shape() == shape; });
}

Entries all_entries(const TunedTable& table) { return pointers_to(table.entries); }

std::vector<Entries> by_shape(const TunedTable& table) {
  return grouped_by(all_entries(table), [](const Entry* entry) -> const Shape& { return entry->cell.shape; });
}

std::vector<std::string> rival_names(const Entries& entries) {
  std::vector<std::string> names;
  for (const Entry* entry : entries)
    for (const Rival& rival : entry->rivals) add_once(names, rival.name);
  return names;
}

TunedTable read_table(const std::filesystem::path& path, const Catalog& catalog) {
  const std::string text = read_text(path);
  if (text.starts_with(kJournalBegins))
    throw request_error(fmt::format("{}: a journal, not a table", path.string()),
                        "give the table of its run, or make it with tune --resume");
  const Json json = parse_json(text, path.string());
  TunedTable table = table_from_json(JsonAt(json, path.string()), catalog);
  for (Entry& entry : table.entries) entry.cell.routing.folder = path.parent_path().string();  // traces may lie there
  return table;
}

std::filesystem::path write_table(KeptFile& file, const TunedTable& table) {
  return file.write(pretty_json(to_json(table)));
}

Json tool_json(const std::vector<std::string>& argv) {
  const BuildInfo build = build_info();
  return {{"name", "moetune"},
          {"version", build.version},
          {"commit", build.commit},
          {"dirty", build.dirty},
          {"argv", argv}};
}

std::string winner_text(const Entry& entry, const DeviceInfo& device) {
  const Rival* fallback = find_rival(entry, "default");
  Problem problem;  // its rows come from the table: a recording may be gone
  problem.shape = entry.cell.shape;
  problem.routing.tokens = entry.cell.tokens, problem.routing.top_k = entry.cell.shape.layer.top_k;
  problem.routing.m_sizes = entry.m_sizes;
  problem.routing.gather_indices.resize(std::accumulate(entry.m_sizes.begin(), entry.m_sizes.end(), size_t{0}));
  return short_text(entry.candidate, fallback ? &fallback->candidate : nullptr, problem, device);
}

double tflops(const Entry& entry) {
  return entry.measurement.time.value > 0 ? entry.flops / entry.measurement.time.value * 1e-12 : 0;
}

double terabytes_per_second(const Entry& entry) {
  return entry.measurement.time.value > 0 ? entry.bytes / entry.measurement.time.value * 1e-12 : 0;
}

double roof_seconds(const Entry& entry, const DeviceInfo& device) {
  if (device.peak_flops <= 0 || device.peak_bandwidth <= 0) return 0;
  return std::max(entry.flops / device.peak_flops, entry.bytes / device.peak_bandwidth);
}

Grid cell_grid(const std::vector<Column>& columns) {
  Grid grid{{{"tokens", true}, {"routing", false, kRoutingColumns}}, {}, 2};
  grid.columns.insert(grid.columns.end(), columns.begin(), columns.end());
  return grid;
}

void add_row(Grid& grid, const Cell& cell, const std::vector<std::string>& texts) {
  grid.rows.push_back({std::to_string(cell.tokens), routing_title(cell)});
  grid.rows.back().insert(grid.rows.back().end(), texts.begin(), texts.end());
}

void add_rows(Grid& grid, const Cell& cell, const std::vector<std::vector<std::string>>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    add_row(grid, cell, rows[i]);
    if (i > 0) grid.rows.back()[0] = grid.rows.back()[1] = "";
  }
}

const Entry* find_entry(const TunedTable& table, const Cell& cell) {
  const auto found = std::ranges::find(table.entries, cell, &Entry::cell);
  return found == table.entries.end() ? nullptr : &*found;
}

const Rival* find_rival(const Entry& entry, const std::string& name) {
  const auto found = std::ranges::find(entry.rivals, name, &Rival::name);
  return found == entry.rivals.end() ? nullptr : &*found;
}

std::string loss_to_balanced(const TunedTable& table, const Entry& entry) {
  const auto is_balanced = [](const Entry& one) { return one.cell.routing.name == "balanced"; };
  if (!entry.skipped.empty() || is_balanced(entry)) return "";
  for (const Entry& other : table.entries)
    if (is_balanced(other) && other.skipped.empty() && other.cell.shape == entry.cell.shape &&
        other.figures.rows == entry.figures.rows && other.measurement.time.value > 0) {
      if (!distrust(entry).empty() || !distrust(other).empty()) return "noisy";
      return fmt::format("{:+.1f} %", 100 * (entry.measurement.time.value / other.measurement.time.value - 1));
    }
  return "";
}

std::string uncertainty(const Entry& entry) {
  if (!entry.skipped.empty()) return "";
  const Rival* control = find_control(entry);
  const double waited = std::max(entry.measurement.waited, control ? control->measurement.waited : 0);
  if (waited > kBusy) return fmt::format("other programs took {:.0f} % of the processors' time", 100 * waited);
  const int rounds = std::min(entry.measurement.time.samples, control ? control->measurement.time.samples : kFewest);
  if (rounds < kFewest) return fmt::format("its final has {} of the {} rounds that an interval needs", rounds, kFewest);
  if (control && log_half_width(control->ratio) > kUncertainRatio)
    return fmt::format("its ratio to {} is uncertain by {}", control->name, half_text(log_half_width(control->ratio)));
  if (const double half = log_half_width(entry.measurement.time); half > kUncertainTime)
    return fmt::format("its time is uncertain by {}", half_text(half));
  return "";
}

const Rival* find_control(const Entry& entry, const std::vector<std::string>* offered) {
  const Rival* fastest = nullptr;
  for (const Rival& rival : entry.rivals) {
    const bool here = !offered || contains(*offered, rival.name);
    if (rival.name == "default" || !here) continue;
    if (!fastest || rival.measurement.time.value < fastest->measurement.time.value) fastest = &rival;
  }
  if (fastest) return fastest;
  const Rival* fallback = find_rival(entry, "default");
  return fallback && fallback->candidate != entry.candidate ? fallback : nullptr;
}

bool contradicts_times(const Entry& entry, const Rival& rival) {
  const Estimate &winner = entry.measurement.time, &other = rival.measurement.time;
  const double slack = std::exp(kUncertainRatio);
  return rival.ratio.low > slack * winner.high / other.low || slack * rival.ratio.high < winner.low / other.high;
}

std::string distrust(const Entry& entry) {
  if (std::string reason = uncertainty(entry); !reason.empty() || !entry.skipped.empty()) return reason;
  for (const Rival& rival : entry.rivals)
    if (contradicts_times(entry, rival))
      return fmt::format("its ratio to {}, {:.4g}, contradicts their times", rival.name, rival.ratio.value);
  return "";
}

std::string time_text(const Estimate& time) { return interval_text(time, format_time); }

std::string metric_text(const Measurement& measurement, Metric metric) {
  const auto found = measurement.metrics.find(metric);
  if (found == measurement.metrics.end()) return "";
  return interval_text(found->second, [](double value) { return fmt::format("{:.3g}", value); });
}

std::string range_text(const Measurement& measurement) {
  if (measurement.max <= 0) return "";
  return fmt::format("{} to {}", format_time(measurement.min), format_time(measurement.max));
}

std::string factor_text(double factor) {
  return std::isfinite(factor) ? fmt::format("{:.{}f}x", factor, factor < 99.5 ? 2 : 0) : "?";
}

std::string factor_text(const Estimate& factor) {
  if (log_half_width(factor) > kUncertainRatio)
    return fmt::format("{} to {}", factor_text(factor.low), factor_text(factor.high));
  const int digits = factor.value < 99.5 ? 2 : 0;
  return fmt::format("{} ({:.{}f} to {:.{}f})", factor_text(factor.value), factor.low, digits, factor.high, digits);
}

std::string ratio_text(const Estimate& factor) {
  if (log_half_width(factor) > kUncertainRatio) return factor_text(factor);
  const double percent = 100 * half_width(factor) / factor.value;
  return fmt::format("{} ± {:.{}f} %", factor_text(factor.value), percent, percent < 9.95 ? 1 : 0);
}

std::string speedup_text(const Rival* rival, bool interval) {
  if (rival == nullptr || !(rival->ratio.value > 0)) return "?";
  return interval ? factor_text(1 / rival->ratio) : ratio_text(1 / rival->ratio);
}

}  // namespace moetune
