// Which pairs of candidates meet, and which of them is the layer's.
#include "tune/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/stats.h"
#include "record/layer.h"
#include "tune/rounds.h"

namespace moetune {
namespace {

constexpr size_t kTried = 3;  // candidates of a cell

Contender pair_of(const Candidate& up, const Candidate& down) {
  return {.baseline = "", .candidate = up, .down = down};
}

// One layer while it is measured.
struct Bench {
  Backend& backend;
  const ContestRequest& request;
  const ContestListener& listener;
  const std::atomic<bool>& stop;
  const Entry &up, &down;
  Problem up_problem = make_problem(up.cell), down_problem = make_problem(down.cell);

  void note(const std::string& text) const {
    if (listener.note) listener.note(fmt::format("{}, then down: {}", id(up.cell), text));
  }

  bool runs(const Contender& contender) const try {
    const Verdict verdict = backend.verify(contender);
    if (verdict.ok) backend.sample(contender, request.sample);
    if (!verdict.ok) note(fmt::format("{} is left out: {}", text(contender), verdict.reason));
    return verdict.ok;
  } catch (const CandidateFault& fault) {
    note(fmt::format("{} is left out: {}", text(contender), fault.what()));
    return false;
  }

  Rounds play(const std::vector<Contender>& contenders, int rounds, int looks) const {
    Quiet quiet{.wait = request.wait, .stop = &stop};
    Rounds all;
    for (int look = 0; look < looks && !stop; ++look) {
      if (look > 0) backend.load_layer(up_problem, down_problem);
      append(all, measure_rounds(backend, contenders, std::max(rounds / looks, 1), request.sample, quiet));
    }
    return all;
  }

  // Leaves out those that fail twice.
  Rounds settle(std::vector<Contender>& contenders, int rounds, int looks) const {
    std::map<std::string, int> strikes;
    while (!contenders.empty() && !stop) try {
        return play(contenders, rounds, looks);
      } catch (const ContenderFault& fault) {
        const auto culprit = contenders.begin() + static_cast<std::ptrdiff_t>(fault.contender);
        if (++strikes[text(*culprit)] < kStrikes) continue;
        note(fmt::format("{} is left out: {}", text(*culprit), fault.what()));
        contenders.erase(culprit);
      }
    return {};
  }
};

// The fastest of the pairs in a few rounds; one that proves wrong is left out.
Contender fastest(const Bench& bench, std::vector<Contender> pairs) {
  while (pairs.size() > 1 && !bench.stop) {
    const Rounds rounds = bench.settle(pairs, kFewest, 1);
    if (rounds.seconds.empty()) break;
    const auto least =
        std::ranges::min_element(rounds.seconds, {}, [](const auto& seconds) { return median(seconds); });
    const Contender best = pairs[static_cast<size_t>(least - rounds.seconds.begin())];
    if (bench.runs(best)) return best;
    std::erase(pairs, best);
  }
  return pairs.empty() ? Contender{} : pairs[0];
}

std::optional<TunedLayer> decide(const Bench& bench) {
  const Rival *up_default = find_rival(bench.up, "default"), *down_default = find_rival(bench.down, "default");
  std::vector<Candidate> ups = bench.request.contenders({&bench.up}), downs = bench.request.contenders({&bench.down});
  std::vector<Contender> pairs;  // the winners first
  for (const Candidate& up : ups)
    for (const Candidate& down : downs) pairs.push_back(pair_of(up, down));
  std::vector<std::pair<std::string, Contender>> rivals;
  if (up_default && down_default) {
    ups.push_back(up_default->candidate), downs.push_back(down_default->candidate);
    rivals.emplace_back("default", pair_of(ups.back(), downs.back()));
  }
  for (const std::string& name : bench.backend.baselines())
    rivals.emplace_back(name, Contender{.baseline = name, .candidate = {}});
  if (bench.listener.begins) bench.listener.begins(bench.up.cell, pairs.size());
  bench.backend.compile(bench.up.cell.shape, ups);
  bench.backend.compile(bench.down.cell.shape, downs);
  bench.backend.load_layer(bench.up_problem, bench.down_problem);
  const Contender winners = pairs[0];
  if (!bench.runs(winners)) return std::nullopt;
  const Contender best = fastest(bench, pairs);
  std::erase_if(rivals, [&](const auto& rival) { return rival.second != winners && !bench.runs(rival.second); });

  // The two pairs, their parts, and the rivals.
  std::vector<Contender> contenders;
  const auto add = [&](const Contender& one) {
    if (std::ranges::find(contenders, one) == contenders.end()) contenders.push_back(one);
  };
  for (const Contender& pair : {best, winners}) {
    add(pair);
    add({.baseline = "", .candidate = pair.candidate});
    add({.baseline = "", .candidate = {}, .down = pair.down});
  }
  for (const auto& [name, rival] : rivals) add(rival);

  const Rounds rounds = bench.settle(contenders, bench.request.rounds, std::max(bench.request.looks, 1));
  const auto place = [&](const Contender& one) {
    const auto found = std::ranges::find(contenders, one);
    return found == contenders.end() ? std::nullopt : std::optional(static_cast<size_t>(found - contenders.begin()));
  };
  const auto of_winners = place(winners), of_best = place(best);
  if (rounds.seconds.empty() || !of_winners) return std::nullopt;
  const bool better = of_best && paired_ratio(rounds, *of_best, *of_winners).high < 1;
  const Contender& chosen = better ? best : winners;
  const auto measured = [&](const Contender& one) {
    const auto found = place(one);
    return found ? std::optional(summarise(rounds.blocks[*found])) : std::nullopt;
  };
  const auto up_time = measured({.baseline = "", .candidate = chosen.candidate});
  const auto down_time = measured({.baseline = "", .candidate = {}, .down = chosen.down});
  if (!up_time || !down_time) return std::nullopt;
  TunedLayer layer{.up = bench.up.cell,
                   .down = bench.down.cell,
                   .up_candidate = chosen.candidate,
                   .down_candidate = chosen.down,
                   .measurement = *measured(chosen),
                   .up_measurement = *up_time,
                   .down_measurement = *down_time,
                   .rivals = {}};
  if (better) rivals.emplace(rivals.begin(), "winners", winners);
  for (const auto& [name, rival] : rivals)
    if (const auto who = place(rival))
      layer.rivals.push_back(
          {.name = name,
           .measurement = summarise(rounds.blocks[*who]),
           .ratio = rival == chosen ? Estimate{1, 1, 1} : paired_ratio(rounds, *place(chosen), *who)});
  return layer;
}

}  // namespace

std::vector<Candidate> fastest_candidates(const Entry& entry, const JournalContents& journal) {
  std::vector<Candidate> fastest = {entry.candidate};
  const auto add = [&](const Candidate& one) {
    if (fastest.size() < kTried && std::ranges::find(fastest, one) == fastest.end()) fastest.push_back(one);
  };
  if (const auto trials = journal.trials.find(id(entry.cell)); trials != journal.trials.end()) {
    std::vector<const Trial*> right;
    for (const Trial& trial : trials->second)
      if (trial.status == Status::ok) right.push_back(&trial);
    std::ranges::stable_sort(right, {}, [](const Trial* trial) { return trial->measurement.time.value; });
    for (const Trial* trial : right) add(trial->candidate);
  }
  for (const Candidate& tie : entry.ties) add(tie);
  return fastest;
}

std::vector<TunedLayer> measure_layers(const TunedTable& table, Backend& backend, const ContestRequest& request,
                                       const ContestListener& listener, const std::atomic<bool>& stop) {
  Entries won = all_entries(table);
  std::erase_if(won, [](const Entry* entry) { return !entry->skipped.empty(); });
  std::vector<TunedLayer> layers;
  for (const auto& [up, down] : layers_among(mapped(won, &Entry::cell))) {
    const Bench bench{backend, request, listener, stop, *won[up], *won[down]};
    if (std::chrono::steady_clock::now() >= request.end)
      bench.note("the time budget is spent: tune the layer with --append");
    else if (!stop)
      try {
        if (std::optional<TunedLayer> layer = decide(bench))
          layers.push_back(std::move(*layer));
        else if (!stop)
          bench.note("no layer: the winners do not run one after the other");
      } catch (const OutOfMemory& error) {
        bench.note(fmt::format("no layer: out of memory: {}", error.what()));
      }
  }
  return layers;
}

}  // namespace moetune
