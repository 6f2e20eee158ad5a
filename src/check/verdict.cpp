// Changes of a lineup's rounds, doubts, and words.
#include "check/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace moetune {
namespace {

std::string percent(double log_change) { return fmt::format("{:+.1f} %", 100 * std::expm1(log_change)); }

std::string percent(const Estimate& change) {
  return fmt::format("{} ({} to {})", percent(change.value), percent(change.low), percent(change.high));
}

// Why the machine may have changed, and not the code. An empty reason: there is no sign of that.
struct Doubt {
  std::string reason;
  Remedy remedy = Remedy::rounds;
};

// Where even the control differs much, equal times or ratios say nothing: the machine favours one program, or it isn't
// that of the table any more.
bool is_elsewhere(const Evidence& evidence, const ControlLimits& limits) {
  const Lineup& lineup = evidence.lineup;
  if (!lineup.paired) return std::abs(std::log(evidence.control_moved())) > std::log(limits.elsewhere);
  return lineup.has_witness() && std::abs(evidence.witness().value) > std::log(limits.moved);
}

// The doubt where code that can't have changed seems slower or faster.
Doubt doubt_of_control(const Evidence& evidence, const Rules& rules) {
  const Lineup& lineup = evidence.lineup;
  if (lineup.paired) {
    if (!lineup.has_witness()) return {};
    const Estimate change = evidence.witness();
    const Estimate other = around(-change.value, half_width(change));
    const bool differs =
        is_elsewhere(evidence, rules.control) || rules.effect.is_increase(change) || rules.effect.is_increase(other);
    if (!differs) return {};
    return {
        fmt::format("{}, which is the same on both sides, changed by {} too", lineup.rivals[0].name, percent(change)),
        Remedy::again};
  }
  const double moved = evidence.control_moved();
  const double limit = rules.leaves_out ? rules.control.stayed : rules.control.moved;
  if (moved <= limit && moved >= 1 / limit) return {};
  return {fmt::format("{} itself takes {:.2f} times as long as in the table: this machine is in another state",
                      lineup.control().name, moved),
          Remedy::again};
}

Doubt doubt(const Evidence& evidence, const Rules& rules) {
  const Lineup& lineup = evidence.lineup;
  if (lineup.has_witness()) return doubt_of_control(evidence, rules);  // the witness shows busy processors too
  const double then =
      lineup.paired ? 0 : std::max(lineup.entry->measurement.waited, lineup.control().measurement.waited);
  const double now =
      std::ranges::max(mapped(evidence.rounds.blocks, [](const auto& one) { return summarise(one).waited; }));
  const auto busy = [](double waited, const std::string& when) {
    return fmt::format("other programs took {:.0f} % of the processors' time while {}", 100 * waited, when);
  };
  if (then > kBusy) return {busy(then, "the table was made"), Remedy::tune};
  if (now > kBusy) return {busy(now, "this was measured"), Remedy::again};
  return doubt_of_control(evidence, rules);
}

// "the default", "loop".
std::string called(const std::string& rival) { return rival == "default" ? "the default" : rival; }

std::string changes_text(const CellFinding& finding, const Evidence& evidence) {
  const std::string ratio = percent(evidence.ratio());
  const Lineup& lineup = evidence.lineup;
  if (lineup.paired) return fmt::format("its time differs from that with {} by {}", lineup.control().name, ratio);
  const std::string control = called(finding.control), time = percent(evidence.value());
  const std::string control_time = percent(std::log(evidence.control_moved()));
  std::string text = fmt::format("its ratio to {} changed by {}, its time by {}", control, ratio, time);
  if (judged_by_time(finding))
    text = fmt::format("its time changed by {} and that of {} by {}; their ratio, {}, is too noisy to tell", time,
                       control, control_time, ratio);
  if (is_slower_machine(finding))
    text += fmt::format("; the time of {} changed by {}: the machine is slower", control, control_time);
  return text;
}

std::string explain(const CellFinding& finding, const Evidence& evidence, const std::string& doubts) {
  const Lineup& lineup = evidence.lineup;
  std::string reason = changes_text(finding, evidence);
  if (finding.finding == Finding::untrusted) reason += ", but " + doubts;
  if (finding.finding == Finding::inconclusive)
    reason += fmt::format("; {} rounds cannot tell that {} from noise: {}", finding.rounds,
                          lineup.paired ? "difference" : "ratio",
                          doubts.empty() ? "use more --rounds or a quieter machine" : doubts);
  if (lineup.has_witness() && doubts.empty())
    return reason + fmt::format("; that of {} by {}", finding.control, percent(evidence.witness().value));
  if (lineup.paired) return reason;
  for (size_t i = 0; i + 1 < lineup.rivals.size(); ++i)
    reason +=
        fmt::format("; its ratio to {} by {}", called(lineup.rivals[i].name), percent(evidence.ratio_to(i).value));
  return reason;
}

void fill_times(CellFinding& finding, const Evidence& evidence) {
  const auto& [rounds, lineup, quantity] = evidence;
  finding.now = summarise(rounds.blocks[0]);
  finding.metric_changes =
      metric_changes(finding.now, lineup.paired ? summarise(rounds.blocks.back()) : lineup.entry->measurement);
  finding.rounds = static_cast<int>(rounds.count());
  finding.rivals_now.clear();
  for (size_t i = 0; i < lineup.rivals.size(); ++i) {
    finding.rivals_now.push_back({.name = lineup.rivals[i].name,
                                  .candidate = lineup.rivals[i].candidate,
                                  .measurement = summarise(rounds.blocks[1 + i]),
                                  .ratio = paired_ratio(rounds, 0, 1 + i, quantity)});
  }
  const auto typical = [&](size_t runner) { return median(evidence.rounds.values(runner, evidence.quantity)); };
  (lineup.paired ? finding.before_seconds : finding.control_now_seconds) = typical(lineup.rivals.size());
  if (!lineup.has_witness()) return;
  finding.control = lineup.rivals[0].name;
  finding.control_now_seconds = typical(1);
  finding.control_before_seconds = typical(2);
}

}  // namespace

Estimate Evidence::ratio_to(size_t rival) const {
  return change_of(paired_ratio(rounds, 0, 1 + rival, quantity), lineup.rivals[rival].ratio);
}

Estimate Evidence::value() const {
  return change_of(estimate_of(rounds, 0, quantity), quantity.of(lineup.entry->measurement));
}

Estimate Evidence::excess() const {
  const Estimate change = value();
  return around(change.value - std::max(0.0, std::log(control_moved())), half_width(change));
}

double Evidence::control_moved() const {
  return median(rounds.values(lineup.rivals.size(), quantity)) / quantity.of(lineup.control().measurement).value;
}

Estimate Evidence::witness() const { return change_of(paired_ratio(rounds, 1, 2, quantity), {1, 1, 1}); }

bool Evidence::is_increase(const SmallestEffect& effect) const {
  const Estimate change = ratio();
  if (effect.is_increase(change) || lineup.paired || half_width(change) <= effect.size)
    return effect.is_increase(change);
  return effect.is_increase(excess());
}

double Evidence::chance_of_increase(const SmallestEffect& effect) const {
  const double by_ratio = effect.chance_of_increase(ratio());
  return lineup.paired ? by_ratio : std::min(by_ratio, effect.chance_of_increase(excess()));
}

bool is_clearly_equivalent(const Evidence& evidence, const Rules& rules) {
  if (evidence.rounds.looks.size() < kFewest) return false;
  if (!evidence.lineup.paired && evidence.control_moved() > rules.control.stayed) return false;
  return rules.effect.is_clearly_smaller(evidence.ratio());
}

CellFinding judge_rounds(CellFinding finding, const Evidence& evidence, bool confirmed, const Rules& rules) {
  const SmallestEffect& effect = rules.effect;
  const Lineup& lineup = evidence.lineup;
  if (const size_t count = evidence.rounds.count(); count < kFewest)
    return settled(finding, Finding::inconclusive,
                   fmt::format("it was stopped after {} rounds, which are too few to judge by", count));
  fill_times(finding, evidence);
  const Estimate ratio = evidence.ratio();
  finding.change = as_ratio(ratio);
  finding.detectable = effect.detectable(ratio);
  finding.by_ratio = effect.judge(ratio, confirmed && effect.is_increase(ratio));
  finding.by_time = finding.by_ratio;
  if (!lineup.paired) {
    const Estimate time = evidence.value();
    finding.time_change = as_ratio(time);
    finding.by_time = effect.judge(time, effect.is_increase(time));
  }
  finding.finding = confirmed ? Finding::regressed : finding.by_ratio;
  auto [doubts, remedy] = doubt(evidence, rules);
  const bool changed = finding.finding == Finding::regressed || finding.finding == Finding::improved;
  finding.elsewhere = is_elsewhere(evidence, rules.control);
  const bool equal_by_luck = finding.finding == Finding::equivalent && finding.elsewhere;
  if ((changed || equal_by_luck) && !doubts.empty()) finding.finding = Finding::untrusted;
  if (finding.finding == Finding::inconclusive && doubts.empty() &&
      log_half_width(lineup.control().ratio) > effect.size)
    doubts = "the table's own interval is wider than the threshold, tune again", remedy = Remedy::tune;
  if (is_open(finding.finding)) finding.remedy = remedy;
  finding.reason = explain(finding, evidence, doubts);
  return finding;
}

bool has_part_in_mean(const CellFinding& finding) {
  return finding.rounds > 0 && finding.finding != Finding::untrusted && !finding.elsewhere;
}

std::optional<MeanFinding> mean_of(std::span<const CellFinding> findings, const SmallestEffect& effect) {
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
  mean.detectable = effect.detectable(change);
  mean.finding = effect.judge(change, effect.is_increase(change));
  return mean;
}

}  // namespace moetune
