// What several sections need of the input.
#include "report/report_content.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text/units.h"

namespace moetune {
namespace {

constexpr double kContradicted = 0.05;  // of the winner's time

std::string slower_text(double ratio, const std::string& than) {
  return fmt::format("{:.0f} % slower than {}", 100 * (ratio - 1), than);
}

// The fastest of an entry's baselines and peers, and its time over the winner's.
std::optional<std::pair<std::string, Estimate>> fastest_other(const ReportInput& input, const Entry& entry) {
  std::optional<std::pair<std::string, Estimate>> fastest;
  std::vector<std::string> names = rival_names({&entry});
  if (input.peers)
    for (const PeerTime& time : input.peers->of(id(entry.cell))) names.push_back(time.peer);
  for (const std::string& name : names)
    if (const auto found = is_other(name) ? speed_up(input, entry, name) : std::nullopt)
      if (!fastest || found->value < fastest->second.value) fastest.emplace(name, *found);
  return fastest;
}

std::optional<Estimate> over_winner(const ReportInput& input, const Entry& entry, const std::string& name) {
  if (name == kWinner) return entry.skipped.empty() ? std::optional(Estimate{1, 1, 1}) : std::nullopt;
  if (name == kFastest) {
    const auto fastest = fastest_other(input, entry);
    return fastest ? std::optional(fastest->second) : std::nullopt;
  }
  if (name != kComputeRoof && name != kMemoryRoof) return speed_up(input, entry, name);
  const double least = name == kComputeRoof ? entry.flops / input.table->device.peak_flops
                                            : entry.bytes / input.table->device.peak_bandwidth;
  if (!entry.skipped.empty() || !std::isfinite(least) || !(least > 0)) return {};
  return std::optional(least / entry.measurement.time);
}

// "default: 4096 tokens, zipf:1, 12.3 µs ± 0.1 %, 550 TFLOP/s, 1.02x ± 0.1 % the winner's time".
std::string point_title(const ReportInput& input, const Entry& entry, const std::string& name, const Estimate& ratio) {
  const Measurement* time = name == kWinner ? &entry.measurement : other_time(input, entry, name);
  std::string line = fmt::format("{}: {}", name, cell_title(entry.cell));
  if (time) line += fmt::format(", {}, {:.4g} TFLOP/s", time_text(time->time), entry.flops / time->time.value / kTera);
  return name == kWinner ? line : fmt::format("{}, {} the winner's time", line, ratio_text(ratio));
}

// Of the cells with one token count: the ratio of the only cell with its interval, or the geometric mean with the
// range.
std::optional<ChartPoint> point_of(const ReportInput& input, const Entries& cells, const std::string& name) {
  const std::vector<double> ratios = ratios_of(input, cells, name);
  if (ratios.empty()) return {};
  const auto tokens = static_cast<double>(cells[0]->cell.tokens);
  if (cells.size() == 1) {
    const Estimate ratio = *over_winner(input, *cells[0], name);
    return ChartPoint{tokens, ratio, point_title(input, *cells[0], name, ratio)};
  }
  const auto [least, most] = std::ranges::minmax(ratios);
  return ChartPoint{tokens,
                    {geometric_mean(ratios), least, most},
                    fmt::format("{}: {} the winner's time in {} of {} tokens", name, range_text(ratios),
                                counted(ratios.size(), "cell"), cells[0]->cell.tokens)};
}

}  // namespace

std::vector<std::string> other_names(const ReportInput& input) {
  std::vector<std::string> names = rival_names(all_entries(*input.table));
  if (!input.peers) return names;
  for (const Entry& entry : input.table->entries)
    for (const PeerTime& time : input.peers->of(id(entry.cell))) add_once(names, time.peer);
  return names;
}

const Measurement* other_time(const ReportInput& input, const Entry& entry, const std::string& name) {
  if (const Rival* rival = find_rival(entry, name)) return &rival->measurement;
  return input.peers ? input.peers->find(id(entry.cell), name) : nullptr;
}

std::optional<Estimate> speed_up(const ReportInput& input, const Entry& entry, const std::string& name) {
  if (!entry.skipped.empty() || !(entry.measurement.time.value > 0)) return {};
  if (const Rival* rival = find_rival(entry, name))
    return rival->ratio.value > 0 ? std::optional(1 / rival->ratio) : std::nullopt;
  const Measurement* peer = other_time(input, entry, name);
  return peer ? std::optional(peer->time / entry.measurement.time) : std::nullopt;
}

std::string beaten_text(const ReportInput& input, const Entry& entry) {
  if (!entry.skipped.empty()) return "";
  if (const auto other = fastest_other(input, entry); other && other->second.high < 1)
    return slower_text(1 / other->second.value, other->first);
  const Trial *own = nullptr, *best = nullptr;
  for (const Trial* trial : timed_trials(input, entry.cell)) {
    if (trial->candidate == entry.candidate) own = trial;
    if (!best || trial->measurement.time.value < best->measurement.time.value) best = trial;
  }
  if (!own || !(own->measurement.time.low > (1 + kContradicted) * best->measurement.time.high)) return "";
  return slower_text(own->measurement.time.value / best->measurement.time.value,
                     "the fastest trial of its search, " + difference(best->candidate, entry.candidate));
}

std::vector<double> ratios_of(const ReportInput& input, const Entries& entries, const std::string& name) {
  std::vector<double> ratios;
  for (const Entry* entry : entries)
    if (const auto ratio = over_winner(input, *entry, name)) ratios.push_back(ratio->value);
  return ratios;
}

std::string range_text(const std::vector<double>& ratios) {
  const auto [least, most] = std::ranges::minmax(ratios);
  const std::string mean = factor_text(geometric_mean(ratios));
  return ratios.size() == 1 ? mean : fmt::format("{} ({} to {})", mean, factor_text(least), factor_text(most));
}

Figure ratio_figure(const ReportInput& input, const Entries& entries, bool fastest_alone, const std::string& caption) {
  std::vector<std::string> names = {kWinner, kDefault, kComputeRoof, kMemoryRoof, kFastest};  // by their styles
  const size_t fastest = names.size() - 1;
  for (const std::string& name : other_names(input)) add_once(names, name);
  Chart chart{.description = caption + ": time over the winner's, over tokens",
              .x = {"tokens", true},
              .y = {.label = "time over the winner's",
                    .logarithmic = true,
                    .ticks = {1, 2, 0.5, 3, 1.5, 0.7, 1.2, 0.8, 1.1, 0.9, 2.5, 0.6, 1.05, 0.95},
                    .min = 0.5,
                    .max = 3}};
  Figure figure{.caption = caption, .svg = ""};
  std::map<int64_t, Entries> by_tokens;
  for (const Entry* entry : entries) by_tokens[entry->cell.tokens].push_back(entry);
  for (const auto& [tokens, cells] : by_tokens) chart.x.ticks.push_back(static_cast<double>(tokens));
  for (size_t style = 0; style < names.size(); ++style) {
    if (style >= fastest && (style == fastest) != fastest_alone) continue;
    const std::string& name = names[style];
    const bool roof = name == kComputeRoof || name == kMemoryRoof;
    Series one{.style = static_cast<int>(style), .dashed = roof || name == kDefault};
    for (const auto& [tokens, cells] : by_tokens)
      if (const auto point = point_of(input, cells, name); point && !(roof && point->y.value < chart.y.min))
        one.points.push_back(*point);
    if (one.points.empty()) continue;
    figure.legend.push_back({one.style, name});
    chart.series.push_back(std::move(one));
  }
  figure.svg = svg(chart);
  return figure;
}

std::span<const Trial> recorded_trials(const ReportInput& input, const Cell& cell) {
  return input.journal ? std::span(value_in(input.journal->trials, id(cell))) : std::span<const Trial>();
}

std::vector<const Trial*> timed_trials(const ReportInput& input, const Cell& cell) {
  std::map<Candidate, const Trial*> last;
  for (const Trial& trial : recorded_trials(input, cell))
    if (trial.status == Status::ok && trial.measurement.time.value > 0) last[trial.candidate] = &trial;
  return mapped(last, [](const auto& one) { return one.second; });
}

std::string loss_text(double loss) {
  if (loss == 0) return "best";
  return fmt::format("+{:.{}f} %", 100 * loss, loss < 0.0995 ? 1 : 0);
}

std::string no_journal() {
  return "There is no journal: give the one of the run that made the table with --journal FILE.";
}

}  // namespace moetune
