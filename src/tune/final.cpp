// Who takes part in the final, and who wins it.
#include "tune/final.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tune/rounds.h"

namespace moetune {
namespace {

using Say = std::function<void(const std::string&)>;

bool overlap(const Estimate& a, const Estimate& b) { return a.low <= b.high && b.low <= a.high; }

const Trial* find_trial(const std::deque<Trial>& trials, const Candidate& candidate) {
  for (const Trial& trial : trials)
    if (trial.status == Status::ok && trial.candidate == candidate) return &trial;
  return nullptr;
}

// Candidates of the final; the default is the last, where it has a time.
std::vector<Candidate> pick_finalists(const std::deque<Trial>& trials, const std::set<Candidate>& dropped,
                                      const std::optional<Candidate>& fallback) {
  std::vector<const Trial*> right;
  for (const Trial& trial : trials)
    if (trial.status == Status::ok && !dropped.contains(trial.candidate)) right.push_back(&trial);
  std::ranges::stable_sort(right, {}, [](const Trial* trial) { return trial->measurement.time.value; });
  std::vector<Candidate> finalists;
  for (const Trial* trial : right)
    if (finalists.size() < kFinalists && overlap(trial->measurement.time, right[0]->measurement.time))
      finalists.push_back(trial->candidate);
  if (fallback && !dropped.contains(*fallback) && find_trial(trials, *fallback)) {
    std::erase(finalists, *fallback);
    finalists.push_back(*fallback);
  }
  return finalists;
}

std::vector<std::string> able_baselines(Backend& backend, const Layer& layer, const SampleRequest& sample,
                                        const Say& note) {
  std::vector<std::string> able;
  for (const std::string& name : backend.baselines(layer)) {
    try {
      const Contender baseline{.baseline = name};
      if (const Verdict verdict = backend.verify(baseline); !verdict.ok)
        throw CandidateFault(Status::wrong_result, "its result is wrong: " + verdict.reason);
      SampleRequest warm = sample;
      warm.blocks = 1;
      backend.sample(baseline, warm);
      able.push_back(name);
    } catch (const CandidateFault& fault) {
      note(fmt::format("the baseline {} is left out: {}", name, fault.what()));
    }
  }
  return able;
}

struct Final {
  std::vector<Contender> contenders;  // candidates, then baselines
  size_t candidates = 0;
  bool has_default = false;  // then it is the last candidate
  Rounds rounds;

  size_t default_index() const { return candidates - 1; }
};

size_t winner_of(const Final& final) {
  size_t best = 0;
  for (size_t i = 1; i < final.candidates; ++i)
    if (median(final.rounds.values(i)) < median(final.rounds.values(best))) best = i;
  if (!final.has_default || best == final.default_index()) return best;
  return paired_ratio(final.rounds, best, final.default_index()).value < 1 ? best : final.default_index();
}

// The winner's ratio to the first baseline or else the default, which `check` compares with; 1 where it has neither.
Estimate ratio_to_control(const Final& final) {
  const bool has_baseline = final.candidates < final.contenders.size();
  if (!has_baseline && !final.has_default) return {1, 1, 1};
  const size_t rival = has_baseline ? final.candidates : final.default_index(), winner = winner_of(final);
  return winner == rival ? Estimate{1, 1, 1} : paired_ratio(final.rounds, winner, rival);
}

// Makes the operands anew. False where reload_seconds have passed, or memory is too short now.
bool reload(const FinalRequest& request, Clock::time_point begin) {
  if (seconds_since(begin) > request.reload_seconds) return false;
  try {
    request.reload();
    return true;
  } catch (const OutOfMemory&) {
    return false;
  }
}

void play(Final& final, Backend& backend, const FinalRequest& request) {
  Quiet quiet{.wait = request.wait, .early = request.early};
  const int looks = request.reload && !quiet.early.overdue() ? std::max(request.looks, 1) : 1;
  const int rounds = std::max(request.rounds / looks, looks > 1 ? kFewestOfALook : 1);
  const int most = (request.certain ? request.certain->stretch : 1) * looks;
  const Clock::time_point begin = Clock::now();
  if (looks > 1 && final.candidates < final.contenders.size()) quiet.control = final.candidates;  // the first baseline
  const auto measure = [&](int count) {
    append(final.rounds, measure_rounds(backend, final.contenders, count, request.sample, quiet));
  };
  for (int look = 0; look < most; ++look) {
    if (look >= looks && look % looks == 0 && request.certain->holds(ratio_to_control(final))) break;
    if (look > 0 && (quiet.early.overdue() || (looks > 1 && !reload(request, begin)))) break;
    measure(rounds);
  }
  // Where looks took so long that there are too few rounds for an interval, the last look gets more.
  const int missing = std::min(request.rounds, kFewest) - static_cast<int>(final.rounds.count());
  if (missing > 0 && !quiet.early.overdue()) measure(missing);
  final.rounds = undisturbed(final.rounds, quiet);
}

// Measures the finalists, and again without those that fail. Nothing where no candidate is left.
std::optional<Final> settle(const std::deque<Trial>& trials, Backend& backend, const Shape& shape,
                            const FinalRequest& request, const Say& note) {
  std::vector<std::string> baselines = able_baselines(backend, shape.layer, request.sample, note);
  std::set<Candidate> dropped;
  std::map<std::string, int> strikes;
  for (;;) {
    const std::vector<Candidate> finalists = pick_finalists(trials, dropped, request.fallback);
    if (finalists.empty()) return std::nullopt;
    backend.compile(shape, finalists);  // nothing is compiled while something is timed
    Final final;
    for (const Candidate& candidate : finalists) final.contenders.push_back({.candidate = candidate});
    for (const std::string& name : baselines) final.contenders.push_back({.baseline = name});
    final.candidates = finalists.size();
    final.has_default = request.fallback && finalists.back() == *request.fallback;
    try {
      play(final, backend, request);
      return final;
    } catch (const ContenderFault& fault) {
      const Contender& culprit = final.contenders[fault.contender];
      if (++strikes[text(culprit)] < kStrikes) continue;
      note(fmt::format("{} is left out of the final: {}", text(culprit), fault.what()));
      if (culprit.baseline.empty())
        dropped.insert(culprit.candidate);
      else
        std::erase(baselines, culprit.baseline);
    }
  }
}

Rival rival_of(const Final& final, size_t winner, size_t who, const std::string& name) {
  return {.name = name,
          .candidate = final.contenders[who].candidate,
          .measurement = summarise(final.rounds.blocks[who]),
          .ratio = who == winner ? Estimate{1, 1, 1} : paired_ratio(final.rounds, winner, who)};
}

void fill(Entry& entry, const Final& final, size_t winner, const std::deque<Trial>& trials) {
  const Trial& screening = *find_trial(trials, final.contenders[winner].candidate);
  entry.candidate = screening.candidate;
  entry.code = screening.compile.code;
  entry.verdict = screening.verdict;
  entry.measurement = summarise(final.rounds.blocks[winner]);
  entry.rivals.clear();
  if (final.has_default) entry.rivals.push_back(rival_of(final, winner, final.default_index(), "default"));
  for (size_t i = final.candidates; i < final.contenders.size(); ++i)
    entry.rivals.push_back(rival_of(final, winner, i, final.contenders[i].baseline));
  entry.ties.clear();
  for (const Trial& trial : trials)
    if (trial.status == Status::ok && trial.candidate != entry.candidate &&
        overlap(trial.measurement.time, screening.measurement.time))
      entry.ties.push_back(trial.candidate);
}

}  // namespace

bool decide(Entry& entry, const std::deque<Trial>& trials, Backend& backend, const Shape& shape,
            const FinalRequest& request, const Say& note) {
  if (!contains(trials, Status::ok, &Trial::status)) return false;
  const std::optional<Final> final = settle(trials, backend, shape, request, note);
  if (!final) return false;

  const size_t winner = winner_of(*final);
  fill(entry, *final, winner, trials);
  if (const std::string reason = distrust(entry); !reason.empty()) {
    const size_t fallback = final->default_index();  // kept unless the winner surely beats it
    const bool keeps =
        final->has_default && winner != fallback && !(paired_ratio(final->rounds, winner, fallback).high < 1);
    note(fmt::format("{} is too noisy to trust: {}{}; tune it again on a quiet machine", id(entry.cell), reason,
                     keeps ? ", so it keeps the default" : ""));
    if (keeps) fill(entry, *final, fallback, trials);
  }
  return true;
}

}  // namespace moetune
