// Changes, rules, doubts and words; the procedure of Benjamini and Hochberg.
#include "check/significance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moetune {
namespace {

constexpr double kControlMoved = 1.25;
constexpr double kControlElsewhere = 2;  // with less than that, ratios still compare
constexpr double kControlStayed = 1.15;  // the limit where rounds with a slow control were left out
constexpr double kSure = 1.7;            // half widths of a 95 % interval: 3.3 standard deviations, 1 in 2000 by chance
constexpr double kSurerWhenNoisy = 6;    // the same, where the interval is wider than the threshold
constexpr double kClear = 2.5;           // half widths within which a cell is clearly equivalent
constexpr double kDeviations = 1.959964;  // standard deviations in half a 95 % interval

std::string percent(double log_change) { return fmt::format("{:+.1f} %", 100 * std::expm1(log_change)); }

std::string percent(const Estimate& change) {
  return fmt::format("{} ({} to {})", percent(change.value), percent(change.low), percent(change.high));
}

Estimate change_against(const Rounds& rounds, const Lineup& lineup, size_t rival) {
  return change_of(paired_ratio(rounds, 0, 1 + rival), lineup.rivals[rival].ratio);
}

Estimate change_of_time(const Rounds& rounds, const Lineup& lineup) {
  return change_of(time_of(rounds, 0), lineup.entry->measurement.time);
}

double control_moved(const Rounds& rounds, const Lineup& lineup) {
  return median(rounds.seconds.back()) / lineup.control().measurement.time.value;
}

Estimate change_of_witness(const Rounds& rounds) { return change_of(paired_ratio(rounds, 1, 2), {1, 1, 1}); }

Estimate excess_of_time(const Rounds& rounds, const Lineup& lineup) {
  const Estimate change = change_of_time(rounds, lineup);
  return around(change.value - std::max(0.0, std::log(control_moved(rounds, lineup))), half_width(change));
}

double sureness(const Estimate& change, double threshold) {
  return half_width(change) <= threshold ? kSure : kSurerWhenNoisy;
}

// Why the machine may have changed, and not the code. An empty reason: there is no sign of that.
struct Doubt {
  std::string reason;
  Remedy remedy = Remedy::rounds;
};

// Where even the control differs much, equal times or ratios say nothing: the machine favours one program, or it isn't
// that of the table any more.
bool is_elsewhere(const Rounds& rounds, const Lineup& lineup) {
  if (lineup.paired) return lineup.has_witness() && std::abs(change_of_witness(rounds).value) > std::log(kControlMoved);
  return std::abs(std::log(control_moved(rounds, lineup))) > std::log(kControlElsewhere);
}

// The doubt where code that can't have changed seems slower or faster.
Doubt doubt_of_control(const Rounds& rounds, const Lineup& lineup, const Limits& limits) {
  if (lineup.paired) {
    if (!lineup.has_witness()) return {};
    const Estimate change = change_of_witness(rounds);
    const Estimate other = around(-change.value, half_width(change));
    const bool differs = is_elsewhere(rounds, lineup) || shows_regression(change, limits.threshold) ||
                         shows_regression(other, limits.threshold);
    if (!differs) return {};
    return {
        fmt::format("{}, which is the same on both sides, changed by {} too", lineup.rivals[0].name, percent(change)),
        Remedy::again};
  }
  const double moved = control_moved(rounds, lineup);
  const double most = limits.quiet.control ? kControlStayed : kControlMoved;
  if (moved <= most && moved >= 1 / most) return {};
  return {fmt::format("{} itself takes {:.2f} times as long as in the table: this machine is in another state",
                      lineup.control().name, moved),
          Remedy::again};
}

Doubt doubt(const Rounds& rounds, const Lineup& lineup, const Limits& limits) {
  const double then =
      lineup.paired ? 0 : std::max(lineup.entry->measurement.waited, lineup.control().measurement.waited);
  if (lineup.has_witness()) return doubt_of_control(rounds, lineup, limits);  // the witness shows that too
  const double now = std::ranges::max(mapped(rounds.blocks, [](const auto& one) { return summarise(one).waited; }));
  const auto busy = [](double waited, const std::string& when) {
    return fmt::format("other programs took {:.0f} % of the processors' time while {}", 100 * waited, when);
  };
  if (then > kBusy) return {busy(then, "the table was made"), Remedy::tune};
  if (now > kBusy) return {busy(now, "this was measured"), Remedy::again};
  return doubt_of_control(rounds, lineup, limits);
}

// "the default", "loop".
std::string called(const std::string& rival) { return rival == "default" ? "the default" : rival; }

std::string told_changes(const CellFinding& finding, const Rounds& rounds, const Lineup& lineup) {
  const std::string ratio = percent(change_of_ratio(rounds, lineup));
  if (lineup.paired) return fmt::format("its time differs from that with {} by {}", lineup.control().name, ratio);
  const std::string control = called(finding.control), time = percent(change_of_time(rounds, lineup));
  const std::string control_time = percent(std::log(control_moved(rounds, lineup)));
  std::string told = fmt::format("its ratio to {} changed by {}, its time by {}", control, ratio, time);
  if (is_told_by_time(finding))
    told = fmt::format("its time changed by {} and that of {} by {}; their ratio, {}, is too noisy to tell", time,
                       control, control_time, ratio);
  if (is_slower_machine(finding))
    told += fmt::format("; the time of {} changed by {}: the machine is slower", control, control_time);
  return told;
}

std::string explain(const CellFinding& finding, const Rounds& rounds, const Lineup& lineup, const std::string& doubts) {
  std::string reason = told_changes(finding, rounds, lineup);
  if (finding.finding == Finding::untrusted) reason += ", but " + doubts;
  if (finding.finding == Finding::inconclusive)
    reason += fmt::format("; {} rounds cannot tell that {} from noise: {}", finding.rounds,
                          lineup.paired ? "difference" : "ratio",
                          doubts.empty() ? "use more --rounds or a quieter machine" : doubts);
  if (lineup.has_witness() && doubts.empty())
    return reason + fmt::format("; that of {} by {}", finding.control, percent(change_of_witness(rounds).value));
  if (lineup.paired) return reason;
  for (size_t i = 0; i + 1 < lineup.rivals.size(); ++i)
    reason += fmt::format("; its ratio to {} by {}", called(lineup.rivals[i].name),
                          percent(change_against(rounds, lineup, i).value));
  return reason;
}

Estimate as_ratio(const Estimate& change) {
  return {std::expm1(change.value), std::expm1(change.low), std::expm1(change.high)};
}

void fill_times(CellFinding& finding, const Rounds& rounds, const Lineup& lineup) {
  finding.now = summarise(rounds.blocks[0]);
  finding.metric_changes =
      metric_changes(finding.now, lineup.paired ? summarise(rounds.blocks.back()) : lineup.entry->measurement);
  finding.rounds = static_cast<int>(rounds.seconds[0].size());
  finding.rivals_now.clear();
  for (size_t i = 0; i < lineup.rivals.size(); ++i) {
    finding.rivals_now.push_back({.name = lineup.rivals[i].name,
                                  .candidate = lineup.rivals[i].candidate,
                                  .measurement = summarise(rounds.blocks[1 + i]),
                                  .ratio = paired_ratio(rounds, 0, 1 + i)});
  }
  if (!lineup.paired) {
    finding.control_now_seconds = median(rounds.seconds.back());
    return;
  }
  finding.before_seconds = median(rounds.seconds.back());
  if (!lineup.has_witness()) return;
  finding.control = lineup.rivals[0].name;
  finding.control_now_seconds = median(rounds.seconds[1]);
  finding.control_before_seconds = median(rounds.seconds[2]);
}

}  // namespace

Estimate around(double middle, double half) { return {middle, middle - half, middle + half}; }

Estimate change_of(const Estimate& now, const Estimate& then) {
  return around(std::log(now.value / then.value), std::hypot(log_half_width(now), log_half_width(then)));
}

Estimate change_of_ratio(const Rounds& rounds, const Lineup& lineup) {
  return change_against(rounds, lineup, lineup.rivals.size() - 1);
}

bool shows_regression(const Estimate& change, double threshold) {
  return change.value > threshold && change.value > sureness(change, threshold) * half_width(change);
}

bool shows_regression(const Rounds& rounds, const Lineup& lineup, double threshold) {
  const Estimate ratio = change_of_ratio(rounds, lineup);
  if (lineup.paired || half_width(ratio) <= threshold) return shows_regression(ratio, threshold);
  return shows_regression(ratio, threshold) || shows_regression(excess_of_time(rounds, lineup), threshold);
}

bool is_clearly_equivalent(const Rounds& rounds, const Lineup& lineup, double threshold) {
  if (rounds.looks.size() < kFewest || (!lineup.paired && control_moved(rounds, lineup) > kControlStayed)) return false;
  const Estimate change = change_of_ratio(rounds, lineup);
  return std::abs(change.value) + kClear * half_width(change) < threshold;
}

double chance_of_slowdown(const Estimate& change, double threshold) {
  if (change.value <= 0) return 1;
  const double half = half_width(change) * sureness(change, threshold) / kSure;
  return normal_tail(kDeviations * change.value / half);
}

double chance_of_speedup(const Estimate& change, double threshold) {
  return chance_of_slowdown(around(-change.value, half_width(change)), threshold);
}

double chance_of_slowdown(const Rounds& rounds, const Lineup& lineup, double threshold) {
  const double by_ratio = chance_of_slowdown(change_of_ratio(rounds, lineup), threshold);
  return lineup.paired ? by_ratio : std::min(by_ratio, chance_of_slowdown(excess_of_time(rounds, lineup), threshold));
}

double detectable(const Estimate& change, double threshold) {
  const double shown = std::max(threshold, sureness(change, threshold) * half_width(change));
  return std::expm1(shown + half_width(change));
}

Finding judge(const Estimate& change, bool confirmed, double threshold) {
  if (confirmed) return Finding::regressed;
  if (!(change.high < threshold) && !(half_width(change) <= threshold)) return Finding::inconclusive;
  if (change.value > threshold) return Finding::inconclusive;  // it was not confirmed
  if (change.value < -threshold && change.high < 0) return Finding::improved;
  if (change.low < -threshold && half_width(change) > threshold) return Finding::inconclusive;  // it may be faster
  return Finding::equivalent;
}

CellFinding judge_rounds(CellFinding finding, const Rounds& rounds, const Lineup& lineup, bool confirmed,
                         const Limits& limits) {
  const double threshold = limits.threshold;
  fill_times(finding, rounds, lineup);
  const Estimate ratio = change_of_ratio(rounds, lineup);
  finding.change = as_ratio(ratio);
  finding.detectable = detectable(ratio, threshold);
  finding.by_ratio = judge(ratio, confirmed && shows_regression(ratio, threshold), threshold);
  finding.by_time = finding.by_ratio;
  if (!lineup.paired) {
    const Estimate time = change_of_time(rounds, lineup);
    finding.time_change = as_ratio(time);
    finding.by_time = judge(time, shows_regression(time, threshold), threshold);
  }
  finding.finding = confirmed ? Finding::regressed : finding.by_ratio;
  auto [doubts, remedy] = doubt(rounds, lineup, limits);
  const bool changed = finding.finding == Finding::regressed || finding.finding == Finding::improved;
  finding.elsewhere = is_elsewhere(rounds, lineup);
  const bool equal_by_luck = finding.finding == Finding::equivalent && finding.elsewhere;
  if ((changed || equal_by_luck) && !doubts.empty()) finding.finding = Finding::untrusted;
  if (finding.finding == Finding::inconclusive && doubts.empty() && log_half_width(lineup.control().ratio) > threshold)
    doubts = "the table's own interval is wider than the threshold, tune again", remedy = Remedy::tune;
  if (finding.finding == Finding::inconclusive || finding.finding == Finding::untrusted) finding.remedy = remedy;
  finding.reason = explain(finding, rounds, lineup, doubts);
  return finding;
}

bool has_part_in_mean(const CellFinding& finding) {
  return finding.rounds > 0 && finding.finding != Finding::untrusted && !finding.elsewhere;
}

std::optional<MeanFinding> mean_of(std::span<const CellFinding> findings, double threshold) {
  MeanFinding mean;
  double middle = 0, half = 0;  // sums
  for (const CellFinding& finding : findings) {
    if (!has_part_in_mean(finding)) continue;
    const double its_half = (std::log1p(finding.change.high) - std::log1p(finding.change.low)) / 2;
    if (!std::isfinite(its_half)) continue;
    middle += std::log1p(finding.change.value);
    half = std::hypot(half, its_half);
    ++mean.cells;
  }
  if (mean.cells < 2) return std::nullopt;
  const auto cells = static_cast<double>(mean.cells);
  const Estimate change = around(middle / cells, half / cells);
  mean.change = as_ratio(change);
  mean.detectable = detectable(change, threshold);
  mean.finding = judge(change, shows_regression(change, threshold), threshold);
  return mean;
}

double normal_tail(double z) { return std::erfc(z / std::numbers::sqrt2) / 2; }

std::vector<bool> discoveries(std::span<const double> p_values, double rate) {
  std::vector<double> ascending = filtered(p_values, [](double p) { return !std::isnan(p); });
  std::ranges::sort(ascending);
  double limit = -1;
  for (size_t i = 0; i < ascending.size(); ++i)
    if (ascending[i] <= rate * static_cast<double>(i + 1) / static_cast<double>(p_values.size())) limit = ascending[i];
  return mapped(p_values, [&](double p) { return p <= limit; });
}

}  // namespace moetune
