// Measures winners again beside their controls and judges the changes. Their text: judge_report.cpp.
#include "tune/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "tune/change.h"

namespace moetune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kControlMoved = 1.25;
constexpr double kControlStayed = 1.15;  // the limit where rounds were also chosen by the control's time
constexpr double kSure = 1.7;            // half widths of a 95 % interval: 3.3 standard deviations, 1 in 2000 by chance
constexpr double kSurerWhenNoisy = 6;    // the same, where the interval is wider than the threshold

struct Limits {
  double threshold = 0;  // in the logarithm
  double patience = 0;   // seconds
  Quiet quiet;
  Clock::time_point end = Clock::time_point::max();
  const std::atomic<bool>& stop;
  bool over() const { return stop || Clock::now() >= end; }
};

// An interval that is wider than the threshold underestimates the noise: more half widths are asked for.
bool shows_regression(const Change& change, const Limits& limits) {
  const double sure = change.half <= limits.threshold ? kSure : kSurerWhenNoisy;
  return change.middle > limits.threshold && change.middle > sure * change.half;
}

bool shows_regression(const Rounds& rounds, const Bout& bout, const Limits& limits) {
  const Change ratio = change_of_ratio(rounds, bout);
  if (ratio.half <= limits.threshold)
    return shows_regression(ratio, limits);  // precise enough to decide without the time
  return shows_regression(ratio, limits) || shows_regression(excess_of_time(rounds, bout), limits);
}

// A set of rounds, divided among looks. Where `loaded`, the first look is over the operands that are there.
Rounds measure_set(Backend& backend, const Problem& problem, const Bout& bout, const CheckRequest& request,
                   Limits& limits, bool loaded) {
  Rounds set;
  const int looks = std::max(request.looks, 1), rounds = std::max(request.rounds, looks);
  for (int look = 0; look < looks; ++look) {
    if (look > 0 || !loaded) backend.load(problem);
    const int share = rounds * (look + 1) / looks - rounds * look / looks;
    append(set, measure_rounds(backend, bout.contenders, share, request.sample, limits.quiet));
  }
  return undisturbed(set, limits.quiet);
}

// Measures a possible regression again over operands made anew, until patience ends: a disturbance of the machine
// passes, a regression of the code stays. True where it stayed. A set that is clearly below the threshold ends it; then
// that set alone counts.
bool stays(Backend& backend, const Problem& problem, const Bout& bout, const CheckRequest& request, Limits& limits,
           Rounds& all) {
  const int set = std::max(request.rounds, 1);
  const auto patience = std::chrono::duration<double>(limits.patience);
  const Clock::time_point begin = Clock::now();
  Rounds again;
  for (int done = 2 * set;; done += set) {
    const Rounds more = measure_set(backend, problem, bout, request, limits, false);
    if (change_of_ratio(more, bout).high() < limits.threshold) {
      all = more;
      return false;
    }
    append(again, more);
    const bool shown = shows_regression(again, bout, limits);
    const bool enough = Clock::now() - begin >= patience && (shown || done + set > request.max_rounds);
    if (!enough && !limits.over()) continue;
    append(all, again);
    return (enough || !limits.stop) && shown && shows_regression(all, bout, limits);
  }
}

// Measures sets of rounds until they decide or max_rounds are used. True where a regression was seen and stayed.
bool measure(Backend& backend, const Problem& problem, const Bout& bout, const CheckRequest& request, Limits& limits,
             Rounds& all) {
  const int set = std::max(request.rounds, 1);
  all = measure_set(backend, problem, bout, request, limits, true);
  for (int done = set;; done += set) {
    const Change change = change_of_ratio(all, bout);
    if (change.high() < limits.threshold || limits.stop) return false;
    if (shows_regression(all, bout, limits)) return stays(backend, problem, bout, request, limits, all);
    if (done + set > std::max(request.max_rounds, set) || limits.over()) return false;
    append(all, measure_set(backend, problem, bout, request, limits, false));
  }
}

// Why the machine, and not the code, may have changed. An empty reason: nothing points to that.
struct Doubt {
  std::string reason;
  Remedy remedy = Remedy::rounds;
};

Doubt doubt(const Rounds& rounds, const Bout& bout, const Measurement& winner_then, const Quiet& quiet) {
  const double then = std::max(winner_then.waited, bout.control().measurement.waited);
  double now = 0;
  for (const std::vector<Block>& blocks : rounds.blocks) now = std::max(now, summarise(blocks).waited);
  const auto busy = [](double waited, const std::string& when) {
    return fmt::format("other programs took {:.0f} % of the processors' time while {}", 100 * waited, when);
  };
  if (then > kBusy) return {busy(then, "the table was made"), Remedy::tune};
  if (now > kBusy) return {busy(now, "this was measured"), Remedy::again};
  const double moved = control_moved(rounds, bout);
  const double most = quiet.control ? kControlStayed : kControlMoved;
  if (moved <= most && moved >= 1 / most) return {};
  return {fmt::format("{} itself takes {:.2f} times as long as in the table: this machine is in another state",
                      bout.control().name, moved),
          Remedy::again};
}

Finding judge(const Change& change, bool confirmed, const Limits& limits) {
  if (confirmed) return Finding::regressed;
  if (!(change.high() < limits.threshold) && !(change.half <= limits.threshold)) return Finding::inconclusive;
  if (change.middle > limits.threshold) return Finding::inconclusive;  // the run stopped before it was confirmed
  if (change.middle < -limits.threshold && change.high() < 0) return Finding::improved;
  return Finding::equivalent;
}

// "the default", "loop".
std::string called(const std::string& rival) { return rival == "default" ? "the default" : rival; }

std::string explain(const CellFinding& finding, const Rounds& rounds, const Bout& bout, const std::string& doubts) {
  const std::string control = called(finding.control);
  const std::string ratio = text(change_of_ratio(rounds, bout)), time = text(change_of_time(rounds, bout));
  const std::string control_time = percent(std::log(control_moved(rounds, bout)));
  std::string reason = fmt::format("its ratio to {} changed by {}, its time by {}", control, ratio, time);
  if (is_told_by_time(finding))
    reason = fmt::format("its time changed by {} and that of {} by {}; their ratio, {}, is too noisy to tell", time,
                         control, control_time, ratio);
  if (is_slower_machine(finding))
    reason += fmt::format("; the time of {} changed by {}: the machine is slower", control, control_time);
  if (finding.finding == Finding::untrusted) reason += ", but " + doubts;
  if (finding.finding == Finding::inconclusive)
    reason += fmt::format("; {} rounds cannot tell that ratio from noise: {}", finding.rounds,
                          doubts.empty() ? "use more --rounds or a quieter machine" : doubts);
  for (size_t i = 0; i + 1 < bout.rivals.size(); ++i)
    reason += fmt::format("; its ratio to {} by {}", called(bout.rivals[i]->name),
                          percent(change_against(rounds, bout, i).middle));
  return reason;
}

CellFinding settled(CellFinding finding, Finding what, std::string reason, Remedy remedy = Remedy::none) {
  finding.finding = what;
  finding.remedy = remedy;
  finding.reason = std::move(reason);
  return finding;
}

// Compiles and verifies the winner and runs each contender once. A finding where the winner fails or no control runs.
std::optional<CellFinding> try_out(const CellFinding& finding, Backend& backend, const Problem& problem, Bout& bout,
                                   const SampleRequest& sample) {
  std::vector<Candidate> candidates;
  for (const Contender& contender : bout.contenders)
    if (contender.baseline.empty()) candidates.push_back(contender.candidate);
  const std::vector<CompileResult> compiled = backend.compile(problem.shape, candidates);
  if (compiled.at(0).status != Status::ok) return settled(finding, Finding::failed, compiled[0].reason);
  SampleRequest one = sample;
  one.blocks = 1;
  for (size_t i = 0; i < bout.contenders.size(); ++i) try {
      if (i == 0) {
        const Verdict verdict = backend.verify(bout.contenders[0]);
        if (!verdict.ok) return settled(finding, Finding::wrong_result, verdict.reason);
      }
      backend.sample(bout.contenders[i], one);
    } catch (const CandidateFault& fault) {
      if (i == 0) return settled(finding, Finding::failed, fault.what());
      if (i + 1 == bout.contenders.size())
        return settled(finding, Finding::inconclusive,
                       fmt::format("its control {} fails: {}", finding.control, fault.what()), Remedy::tune);
      bout.contenders.erase(bout.contenders.begin() + static_cast<std::ptrdiff_t>(i));
      bout.rivals.erase(bout.rivals.begin() + static_cast<std::ptrdiff_t>(i - 1));
      --i;
    }
  return std::nullopt;
}

void fill_changes(CellFinding& finding, const Rounds& rounds, const Bout& bout) {
  const Change ratio = change_of_ratio(rounds, bout), time = change_of_time(rounds, bout);
  finding.change = std::expm1(ratio.middle);
  finding.change_interval = {std::expm1(ratio.low()), std::expm1(ratio.high())};
  finding.time_change = std::expm1(time.middle);
  finding.time_change_interval = {std::expm1(time.low()), std::expm1(time.high())};
}

CellFinding judge_rounds(CellFinding finding, const Rounds& rounds, const Bout& bout, bool confirmed,
                         const Limits& limits, const Entry& entry) {
  fill_changes(finding, rounds, bout);
  const Change ratio = change_of_ratio(rounds, bout), time = change_of_time(rounds, bout);
  finding.now = summarise(rounds.blocks[0]);
  finding.control_now_seconds = median(rounds.seconds.back());
  finding.rounds = static_cast<int>(rounds.seconds[0].size());
  finding.by_ratio = judge(ratio, confirmed && shows_regression(ratio, limits), limits);
  finding.by_time = judge(time, shows_regression(time, limits), limits);
  finding.finding = confirmed ? Finding::regressed : finding.by_ratio;
  auto [doubts, remedy] = doubt(rounds, bout, entry.measurement, limits.quiet);
  const bool changed = finding.finding == Finding::regressed || finding.finding == Finding::improved;
  if (changed && !doubts.empty()) finding.finding = Finding::untrusted;
  if (finding.finding == Finding::inconclusive && doubts.empty() &&
      log_half_width(bout.control().ratio_interval) > limits.threshold)
    doubts = "the table's own interval is wider than the threshold, tune again", remedy = Remedy::tune;
  if (finding.finding == Finding::inconclusive || finding.finding == Finding::untrusted) finding.remedy = remedy;
  finding.reason = explain(finding, rounds, bout, doubts);
  return finding;
}

CellFinding check_cell(const Entry& entry, Backend& backend, const CheckRequest& request, Limits limits) {
  CellFinding finding;
  finding.cell = entry.cell;
  finding.before_seconds = entry.measurement.seconds;
  std::optional<Bout> bout = set_up(entry, backend.baselines());
  if (!bout)
    return settled(finding, Finding::inconclusive, "the table has no rival that runs here: tune again with a baseline",
                   Remedy::tune);
  finding.control = bout->control().name;
  finding.control_before_seconds = bout->control().measurement.seconds;
  const Problem problem = make_problem(entry.cell);
  if (problem.routing.m_sizes != entry.m_sizes)
    return settled(finding, Finding::inconclusive,
                   "the routing gives other rows than the table has: its trace has changed", Remedy::tune);
  // A finding that will be untrusted in any case needs no waiting.
  if (std::max(entry.measurement.waited, bout->control().measurement.waited) > kBusy)
    limits.patience = limits.quiet.wait = 0;
  try {
    backend.load(problem);
    if (const auto early = try_out(finding, backend, problem, *bout, request.sample)) return *early;
    if (bout->control().measurement.samples < kFewest)
      return settled(finding, Finding::inconclusive, "the table's final was cut short, it has no interval: tune again",
                     Remedy::tune);
    if (request.wait > 0) {
      limits.quiet.control = bout->rivals.size();
      limits.quiet.control_seconds = finding.control_before_seconds;
    }
    Rounds rounds;
    const bool confirmed = measure(backend, problem, *bout, request, limits, rounds);
    return judge_rounds(finding, rounds, *bout, confirmed, limits, entry);
  } catch (const OutOfMemory& memory) {
    return settled(finding, Finding::inconclusive, fmt::format("out of memory: {}", memory.what()));
  } catch (const ContenderFault& fault) {
    if (fault.contender == 0) return settled(finding, Finding::failed, fault.what());
    return settled(finding, Finding::inconclusive,
                   fmt::format("{} fails beside it: {}", text(bout->contenders[fault.contender]), fault.what()),
                   Remedy::tune);
  }
}

std::string described(const DeviceInfo& device) {
  return fmt::format("'{}' with {} {}", device.name, device.processors,
                     device.kind == DeviceKind::cuda ? "SMs" : "threads");
}

}  // namespace

void require_comparable(const TunedTable& baseline, const DeviceInfo& device) {
  const DeviceInfo& then = baseline.device;
  if (then.kind == device.kind && then.name == device.name && then.processors == device.processors) return;
  throw machine_error(fmt::format("the table is of {}, this device is {}", described(then), described(device)),
                      "times of two devices don't compare: tune here first, then check against that table");
}

std::vector<CellFinding> check(const TunedTable& baseline, Backend& backend, const CheckRequest& request,
                               const std::function<void(const CellFinding&)>& listen, const std::atomic<bool>& stop) {
  std::vector<const Entry*> entries;
  for (const Entry& entry : baseline.entries)
    if (entry.skipped.empty()) entries.push_back(&entry);
  const auto budget = std::chrono::duration<double>(request.time_budget);
  const Clock::time_point end = request.time_budget > 0
                                    ? Clock::now() + std::chrono::duration_cast<Clock::duration>(budget)
                                    : Clock::time_point::max();
  std::vector<CellFinding> findings;
  for (size_t i = 0; i < entries.size() && !stop; ++i) {
    Limits limits{.threshold = std::log1p(request.threshold),
                  .patience = request.patience,
                  .quiet = {.wait = request.wait, .stop = &stop},
                  .end = end,
                  .stop = stop};
    if (request.time_budget > 0) {
      const auto share = (end - Clock::now()) / static_cast<int64_t>(entries.size() - i);
      limits.end = Clock::now() + share;
      limits.quiet.wait = std::clamp(std::chrono::duration<double>(share).count(), 0.0, request.wait);
    }
    const Clock::time_point begin = Clock::now();
    findings.push_back(check_cell(*entries[i], backend, request, limits));
    findings.back().seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (listen) listen(findings.back());
  }
  return findings;
}

}  // namespace moetune
