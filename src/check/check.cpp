// Rounds of every cell, then more of those that seem slower. The rules: verdict.h and smallest_effect.h.
#include "check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "check/false_discovery.h"
#include "check/verdict.h"

namespace moetune {
namespace {

constexpr int kFewestOfASet = 15;  // rounds that a set has after a stop or the end of the time, if they are quick

struct CellCheck {
  const Entry* entry = nullptr;
  Rules rules = {};
  Quiet quiet = {};
  double patience = 0;  // seconds
  CellFinding finding = {};
  std::optional<Lineup> lineup = {};
  Rounds rounds = {};
  bool suspect = false;  // shows a regression that is not confirmed yet
  bool done = false;     // listeners have the finding

  Evidence evidence() const { return {rounds, *lineup}; }
  bool stopped() const { return *quiet.early.stop; }
};

// A set of rounds, divided among looks; it ends early when the cell is clearly equivalent. Where `loaded`, the first
// look is over the operands that are there.
Rounds measure_set(const CellCheck& one, const Problem& problem, const CheckRequest& request, Quiet& quiet,
                   bool loaded) {
  Rounds set;
  const int looks = std::max(request.looks, 1), rounds = std::max(request.rounds, looks);
  for (int look = 0; look < looks && (look == 0 || !quiet.early.holds(static_cast<int>(set.count()))); ++look) {
    if (look > 0 || !loaded) load(*one.lineup, problem);
    const int share = rounds * (look + 1) / looks - rounds * look / looks;
    append(set, measure_rounds(one.lineup->runners, share, request.sample, quiet));
    if (is_clearly_equivalent({undisturbed(set, quiet), *one.lineup}, one.rules)) break;
  }
  return undisturbed(set, quiet);
}

// Measures a possible regression again over operands made anew, until patience ends: a disturbance of the machine
// passes, a regression of the code stays. True where it stayed. A set that is clearly below the threshold ends it; then
// that set alone counts.
bool stays(CellCheck& one, const Problem& problem, const CheckRequest& request) {
  const SmallestEffect& effect = one.rules.effect;
  const int set = std::max(request.rounds, 1);
  const Clock::time_point begin = Clock::now();
  Rounds again;
  for (int done = 2 * set;; done += set) {
    const Rounds more = measure_set(one, problem, request, one.quiet, false);
    if (Evidence{more, *one.lineup}.ratio().high < effect.size) {
      one.rounds = more;
      return false;
    }
    append(again, more);
    const bool shown = Evidence{again, *one.lineup}.is_increase(effect);
    const bool enough = seconds_since(begin) >= one.patience && (shown || done + set > request.max_rounds);
    if (!enough && !one.quiet.early.due()) continue;
    append(one.rounds, again);
    return (enough || !one.stopped()) && shown && one.evidence().is_increase(effect);
  }
}

// Measures sets of rounds until they decide or max_rounds are used. True where they show a regression.
bool screen(CellCheck& one, const Problem& problem, const CheckRequest& request) {
  const int set = std::max(request.rounds, 1);
  const bool waits = one.quiet.waits() && request.looks >= kFewest;
  if (waits) {  // waiting could not change a clear result
    Quiet at_once{.control = one.quiet.control, .early = one.quiet.early};
    one.rounds = measure_set(one, problem, request, at_once, true);
    if (is_clearly_equivalent(one.evidence(), one.rules)) return false;
  }
  one.rounds = measure_set(one, problem, request, one.quiet, !waits);
  for (int done = set;; done += set) {
    if (one.evidence().ratio().high < one.rules.effect.size || one.stopped()) return false;
    if (one.evidence().is_increase(one.rules.effect)) return true;
    if (done + set > std::max(request.max_rounds, set) || one.quiet.early.due()) return false;
    append(one.rounds, measure_set(one, problem, request, one.quiet, false));
  }
}

// Turns faults that end only this cell into its finding.
template <typename Work>
CellFinding guarded(const CellCheck& one, Work work) {
  try {
    return work();
  } catch (const OutOfMemory& memory) {
    return settled(one.finding, Finding::inconclusive, fmt::format("out of memory: {}", memory.what()));
  } catch (const ContenderFault& fault) {
    return ended(one.finding, *one.lineup, fault);
  }
}

void wait_for_quiet(CellCheck& one, const CheckRequest& request) {
  if (request.wait <= 0) return;
  Quiet& quiet = one.quiet;
  if (!one.lineup->paired) {
    quiet.control = one.lineup->rivals.size();
    quiet.control_seconds = one.finding.control_before_seconds;
  } else if (one.lineup->has_witness()) {
    quiet.control = 1;
  }
  one.rules.leaves_out = quiet.control.has_value();
}

CellFinding screen_cell(CellCheck& one, Backend& backend, const CheckRequest& request) {
  const Entry& entry = *one.entry;
  CellFinding& finding = one.finding;
  if (request.against) {
    if (const auto lacking = request.against->lacking.find(&entry); lacking != request.against->lacking.end())
      return settled(finding, lacking->second.first, lacking->second.second);
    one.lineup = line_up_pair(entry, backend, *request.against);
  } else {
    finding.before_seconds = entry.measurement.time.value;
    one.lineup = line_up(entry, backend, request.all_rivals);
    if (!one.lineup)
      return settled(finding, Finding::inconclusive,
                     "the table has no rival that runs here: tune again with a baseline", Remedy::tune);
    const Rival& control = one.lineup->control();
    finding.control = control.name;
    finding.control_before_seconds = control.measurement.time.value;
    // A finding that will be untrusted in any case needs no waiting.
    if (std::max(entry.measurement.waited, control.measurement.waited) > kBusy) one.patience = one.quiet.wait = 0;
  }
  const Problem problem = make_problem(entry.cell);
  if (problem.routing.m_sizes != entry.m_sizes)
    return settled(finding, Finding::inconclusive,
                   "the routing gives other rows than the table has: its trace has changed", Remedy::tune);
  return guarded(one, [&] {
    if (const auto early = try_out(finding, problem, *one.lineup, request.sample)) return *early;
    if (!one.lineup->paired && one.lineup->control().measurement.time.samples < kFewest)
      return settled(finding, Finding::inconclusive, "the table's final was cut short and has no interval: tune again",
                     Remedy::tune);
    wait_for_quiet(one, request);
    one.suspect = screen(one, problem, request);
    return judge_rounds(finding, one.evidence(), false, one.rules);
  });
}

CellFinding confirm_cell(CellCheck& one, const CheckRequest& request) {
  return guarded(one, [&] {
    const bool stayed = stays(one, make_problem(one.entry->cell), request);
    return judge_rounds(one.finding, one.evidence(), stayed, one.rules);
  });
}

// A check under way: every cell once, then the suspects, then the mean.
struct Checking {
  const CheckRequest& request;
  Backend& backend;
  const std::function<void(const CellFinding&)>& listen;
  const std::atomic<bool>& stop;
  const SmallestEffect effect = {.size = std::log1p(request.threshold)};
  const Clock::time_point end = end_of_budget(request.time_budget);
  std::vector<CellCheck> cases = {};
  std::map<std::string, int> counts = {};  // of a cell's entries, by its id
  size_t screened = 0;                     // cells

  CheckResult run(const TunedTable& table) {
    for (const Entry& entry : table.entries) {
      if (!entry.skipped.empty()) continue;
      cases.push_back({.entry = &entry});
      ++counts[id(entry.cell)];
    }
    try {
      screen_all();
      confirm_all();
    } catch (...) {
      for (CellCheck& one : cases)
        if (was_measured(one.finding)) report(one);  // unconfirmed: another cell's error came first
      throw;
    }
    CheckResult result = result_of();
    if (result.mean && result.mean->finding == Finding::regressed) confirm_mean(result);
    return result;
  }

  template <typename Work>
  void timed(CellCheck& one, size_t left, Work work) {
    one.quiet.early.noticed.reset();
    if (request.time_budget > 0) {
      const auto share = (end - Clock::now()) / static_cast<int64_t>(left);
      one.quiet.early.end = Clock::now() + share;
      const double seconds = std::chrono::duration<double>(share).count();
      one.quiet.wait = std::clamp(seconds, 0.0, one.quiet.wait);
    }
    const Clock::time_point begin = Clock::now();
    const double before = one.finding.seconds;
    one.finding = work();
    one.finding.seconds = before + seconds_since(begin);
  }

  void screen_all() {
    for (size_t i = 0; i < cases.size() && !stop; ++i) {
      CellCheck& one = cases[i];
      one.finding.cell = one.entry->cell;
      one.finding.candidate = text(one.entry->candidate);
      if (counts[id(one.entry->cell)] > 1) one.finding.kernel = one.entry->candidate.variant->name;
      one.rules.effect = effect;
      one.patience = request.patience;
      one.quiet = {.wait = request.wait, .early = {.stop = &stop, .fewest = std::min(request.rounds, kFewestOfASet)}};
      timed(one, cases.size() - i, [&] { return screen_cell(one, backend, request); });
      screened = i + 1;
      if (!one.suspect && one.finding.finding != Finding::improved) report(one);
    }
    discover();
  }

  // Changes that chance explains among so many cells don't count.
  void discover() {
    std::vector<double> slower, faster;
    std::vector<CellCheck*> measured;
    for (CellCheck& one : cases) {
      if (!was_measured(one.finding)) continue;
      slower.push_back(one.evidence().chance_of_increase(effect));
      faster.push_back(effect.chance_of_decrease(one.evidence().ratio()));
      measured.push_back(&one);
    }
    const std::vector<bool> slowed = discoveries(slower, kFalseDiscoveries),
                            sped = discoveries(faster, kFalseDiscoveries);
    for (size_t i = 0; i < measured.size(); ++i) {
      CellCheck& one = *measured[i];
      if (one.suspect && !slowed[i]) {
        one.suspect = false;
        one.finding.reason += fmt::format("; among {} cells, chance explains such a slowdown", measured.size());
      }
      if (one.finding.finding == Finding::improved && !sped[i]) {
        const bool wide = half_width(one.evidence().ratio()) > effect.size;
        one.finding.finding = wide ? Finding::inconclusive : Finding::equivalent;
        if (wide) one.finding.remedy = Remedy::rounds;
        one.finding.reason += fmt::format("; among {} cells, chance explains such a speedup", measured.size());
      }
      if (!one.suspect) report(one);
    }
  }

  void confirm_all() {
    auto left = static_cast<size_t>(std::ranges::count_if(cases, &CellCheck::suspect));
    for (CellCheck& one : cases) {
      if (!one.suspect) continue;
      if (!stop) timed(one, left, [&] { return confirm_cell(one, request); });
      --left;
      report(one);
    }
  }

  CheckResult result_of() {
    CheckResult result{.threshold = request.threshold};
    if (request.against) result.against = request.against->name;
    for (size_t i = 0; i < screened; ++i) result.findings.push_back(cases[i].finding);
    result.mean = mean_of(result.findings, effect);
    return result;
  }

  // The mean of cells that each show nothing must show it again, over operands made anew.
  void confirm_mean(CheckResult& result) {
    if (contains(result.findings, Finding::regressed, &CellFinding::finding)) return;
    std::vector<CellFinding> again;
    for (size_t i = 0; i < screened && !stop; ++i) {
      CellCheck& one = cases[i];
      if (!has_part_in_mean(one.finding)) continue;
      one.quiet.early.noticed.reset();
      again.push_back(guarded(one, [&] {
        const Rounds fresh = measure_set(one, make_problem(one.entry->cell), request, one.quiet, false);
        return judge_rounds(one.finding, {fresh, *one.lineup}, false, one.rules);
      }));
    }
    const std::optional<MeanFinding> mean = mean_of(again, effect);
    if (stop || !mean || mean->cells < result.mean->cells)
      result.mean->finding = Finding::inconclusive;
    else if (mean->finding != Finding::regressed)
      result.mean = mean;
  }

  void report(CellCheck& one) {
    if (one.done) return;
    one.done = true;
    if (listen) listen(one.finding);
  }
};

}  // namespace

void require_comparable(const TunedTable& table, const DeviceInfo& device) {
  if (same_model(table.device, device)) return;
  throw machine_error(
      fmt::format("the table is of {}, this device is {}", model_text(table.device), model_text(device)),
      "times of two devices don't compare: tune here first, then check against that table");
}

CheckResult check(const TunedTable& table, Backend& backend, const CheckRequest& request,
                  const std::function<void(const CellFinding&)>& listen, const std::atomic<bool>& stop) {
  return Checking{request, backend, listen, stop}.run(table);
}

}  // namespace moetune
