// The verdict on other libraries' times: those of two files, by the rules of check.h as far as they apply.
#include "check/check_peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "check/false_discovery.h"
#include "check/verdict.h"

namespace moetune {
namespace {

constexpr const char* kUnchanged = "moetune-export";  // kernels that no update of a library changes

// How a peer's time changed, beyond the change of the control where both files have one.
Estimate change_between(const Peers& before, const Peers& now, const std::string& cell, const std::string& peer) {
  const Estimate change = change_of(now.find(cell, peer)->time, before.find(cell, peer)->time);
  const Measurement *then = before.find(cell, kUnchanged), *today = now.find(cell, kUnchanged);
  if (peer == kUnchanged || !then || !today) return change;
  const Estimate control = change_of(today->time, then->time);
  return around(change.value - control.value, std::hypot(half_width(change), half_width(control)));
}

// `change` is that of `latest`, `first` of the times before these were measured again.
CellFinding compare_peer(CellFinding finding, const std::string& cell, const Peers& before, const Peers& latest,
                         const Estimate& change, const Estimate& first, const SmallestEffect& effect) {
  const Measurement *then = before.find(cell, finding.kernel), *today = latest.find(cell, finding.kernel);
  const bool confirmed = effect.is_increase(change) && effect.is_increase(first);
  finding.now = *today, finding.before_seconds = then->time.value, finding.rounds = std::max(1, today->time.samples);
  finding.change = as_ratio(change);
  finding.metric_changes = metric_changes(*today, *then);
  finding.detectable = effect.detectable(change);
  finding.finding = finding.by_ratio = finding.by_time = effect.judge(change, confirmed);
  std::string beside;
  if (const Measurement* c = latest.find(cell, kUnchanged), *b = before.find(cell, kUnchanged);
      c && b && finding.kernel != kUnchanged) {
    finding.control = kUnchanged;
    finding.control_now_seconds = c->time.value, finding.control_before_seconds = b->time.value;
    beside = fmt::format(", beyond the change of {}", kUnchanged);
  }
  finding.reason = fmt::format("its time changed by {:+.1f} %{}", 100 * finding.change.value, beside);
  const bool changed = finding.finding == Finding::regressed || finding.finding == Finding::improved;
  if (changed && std::max(then->waited, today->waited) > kBusy) {
    finding.finding = Finding::untrusted;
    finding.reason += "; other programs used the processors";
  } else if (changed && finding.kernel == kUnchanged) {
    finding.finding = Finding::untrusted;
    finding.reason += "; these kernels do not change by themselves: the machine did, or the export";
  }
  return finding;
}

}  // namespace

CheckResult check_peers(const Peers& before, const Peers& now, const Peers* again, const std::string& name,
                        double threshold) {
  CheckResult result{.threshold = threshold, .against = name, .same_rounds = false};
  const SmallestEffect effect{.size = std::log1p(threshold)};
  const Peers& latest = again ? *again : now;
  std::vector<double> chances;
  for (const auto& [id, cell] : before.cells)
    for (const PeerTime& time : before.of(id)) {
      CellFinding& finding = result.findings.emplace_back();
      finding.cell = cell, finding.kernel = time.peer;
      if (!now.find(id, time.peer) || !latest.find(id, time.peer)) {
        finding = settled(finding, Finding::failed, fmt::format("{} is only in {}", time.peer, name));
        chances.push_back(1);
        continue;
      }
      const Estimate change = change_between(before, latest, id, time.peer);
      const Estimate first = again ? change_between(before, now, id, time.peer) : change;
      finding = compare_peer(finding, id, before, latest, change, first, effect);
      chances.push_back(effect.chance_of_increase(change));
    }
  const std::vector<bool> slowed = discoveries(chances, kFalseDiscoveries);
  for (size_t i = 0; i < slowed.size(); ++i)
    if (CellFinding& one = result.findings[i]; one.finding == Finding::regressed && !slowed[i])
      one = settled(one, Finding::inconclusive, one.reason + "; chance explains it among so many");
  result.mean = mean_of(result.findings, effect);
  return result;
}

}  // namespace moetune
