// Which pairs of candidates meet, and which of them is the layer's.
#include "tune/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/stats.h"
#include "record/layer.h"

namespace moetune {
namespace {

constexpr size_t kTried = 3;  // candidates of a cell

Contender pair_of(const Candidate& up, const Candidate& down) { return {.candidate = up, .down = down}; }

// One layer while it is measured.
struct Bench {
  Backend& backend;
  const ContestRequest& request;
  const ContestListener& listener;
  const std::atomic<bool>& stop;
  const Entry &up, &down;
  const TunedLayer* known;  // whose pair is measured again; null: the fastest is searched
  Problem up_problem = make_problem(up.cell), down_problem = make_problem(down.cell);

  void note(const std::string& text) const {
    if (listener.note) listener.note(fmt::format("{}, then down: {}", id(up.cell), text));
  }

  void leave_out(const Contender& contender, const std::string& reason) const {
    note(fmt::format("{} is left out: {}", text(contender), reason));
  }

  bool runs(const Contender& contender) const try {
    if (stop) return false;
    const Verdict verdict = backend.verify(contender);
    if (!verdict.ok) return leave_out(contender, verdict.reason), false;
    backend.sample(contender, request.sample);
    return true;
  } catch (const CandidateFault& fault) {
    return leave_out(contender, fault.what()), false;
  }

  Rounds rounds(std::vector<Contender>& contenders, const ContestRequest& how) const {
    return measure_looks(
        backend, contenders, how, stop, [&] { backend.load_layer(up_problem, down_problem); },
        [&](const Contender& one, const std::string& reason) { leave_out(one, reason); });
  }
};

// The fastest of the pairs in a few rounds; one that proves wrong is left out.
Contender fastest(const Bench& bench, std::vector<Contender> pairs) {
  ContestRequest few = bench.request;
  few.rounds = kFewest, few.looks = 1;
  while (pairs.size() > 1) {
    const Rounds rounds = bench.rounds(pairs, few);
    if (rounds.blocks.empty()) break;
    const auto least = std::ranges::min_element(
        rounds.blocks, {}, [](const std::vector<Block>& blocks) { return summarise(blocks).time.value; });
    const Contender best = pairs[static_cast<size_t>(least - rounds.blocks.begin())];
    if (bench.runs(best)) return best;
    std::erase(pairs, best);
  }
  return pairs.empty() ? Contender{} : pairs[0];
}

using Named = std::vector<std::pair<std::string, Contender>>;

// `rivals` are beside the pair of the winners and the `best` one.
std::optional<TunedLayer> decide(const Bench& bench, const Contender& winners, const Contender& best, Named rivals) {
  std::vector<Contender> contenders;
  const auto add = [&](const Contender& one) { add_once(contenders, one); };
  const auto alone_up = [](const Contender& pair) { return Contender{.candidate = pair.candidate}; };
  const auto alone_down = [](const Contender& pair) { return pair_of({}, pair.down); };
  for (const Contender& pair : {best, winners}) add(pair), add(alone_up(pair)), add(alone_down(pair));
  for (const auto& [name, rival] : rivals) add(rival);
  const Rounds rounds = bench.rounds(contenders, bench.request);

  const auto place = [&](const Contender& one) {
    return static_cast<size_t>(std::ranges::find(contenders, one) - contenders.begin());
  };
  const auto ran = [&](const Contender& one) { return place(one) < rounds.blocks.size(); };
  if (!ran(winners)) return std::nullopt;
  const bool better = ran(best) && paired_ratio(rounds, place(best), place(winners)).high < 1;
  const Contender& chosen = better ? best : winners;
  if (!ran(alone_up(chosen)) || !ran(alone_down(chosen))) return std::nullopt;
  if (better) rivals.emplace(rivals.begin(), "winners", winners);

  const auto measured = [&](const Contender& one) { return summarise(rounds.blocks[place(one)]); };
  TunedLayer layer{.up = bench.up.cell,
                   .down = bench.down.cell,
                   .up_candidate = chosen.candidate,
                   .down_candidate = chosen.down,
                   .measurement = measured(chosen),
                   .up_measurement = measured(alone_up(chosen)),
                   .down_measurement = measured(alone_down(chosen))};
  for (const auto& [name, rival] : rivals)
    if (ran(rival))
      layer.rivals.push_back(
          {.name = name,
           .measurement = measured(rival),
           .ratio = rival == chosen ? Estimate{1, 1, 1} : paired_ratio(rounds, place(chosen), place(rival))});
  return layer;
}

std::optional<TunedLayer> measure(const Bench& bench) {
  const auto tried = [&](const Entry& entry) {
    return bench.known ? std::vector{entry.candidate} : bench.request.contenders({&entry});
  };
  std::vector<Candidate> ups = tried(bench.up), downs = tried(bench.down);
  std::vector<Contender> pairs;  // the winners first
  for (const Candidate& up : ups)
    for (const Candidate& down : downs) pairs.push_back(pair_of(up, down));
  const Contender winners = pairs[0];
  Named rivals;
  const Rival *up = find_rival(bench.up, "default"), *down = find_rival(bench.down, "default");
  if (up && down) {
    ups.push_back(up->candidate), downs.push_back(down->candidate);
    rivals.emplace_back("default", pair_of(ups.back(), downs.back()));
    if (!contains(pairs, rivals[0].second)) pairs.push_back(rivals[0].second);
  }
  if (bench.known) {
    ups.push_back(bench.known->up_candidate), downs.push_back(bench.known->down_candidate);
    pairs = {pair_of(ups.back(), downs.back())};
    if (pairs[0] != winners) rivals.emplace(rivals.begin(), "winners", winners);
  }
  const Contender first = pairs[0];
  for (const std::string& name : bench.backend.baselines(bench.up.cell.shape.layer))
    rivals.emplace_back(name, Contender{.baseline = name});
  if (bench.listener.begins) bench.listener.begins(bench.up.cell, pairs.size());
  bench.backend.compile(bench.up.cell.shape, ups);
  bench.backend.compile(bench.down.cell.shape, downs);
  bench.backend.load_layer(bench.up_problem, bench.down_problem);
  if (!bench.runs(first)) return std::nullopt;
  const Contender best = fastest(bench, pairs);
  std::erase_if(rivals, [&](const auto& rival) {
    return rival.second != first && rival.second != best && !bench.runs(rival.second);
  });
  return decide(bench, first, best, std::move(rivals));
}

}  // namespace

std::vector<Candidate> fastest_candidates(const Entry& entry, const JournalContents& journal) {
  std::vector<Candidate> fastest = {entry.candidate};
  const auto add = [&](const Candidate& one) {
    if (fastest.size() < kTried && !contains(fastest, one)) fastest.push_back(one);
  };
  std::vector<const Trial*> right = pointers_to(value_in(journal.trials, id(entry.cell)));
  std::erase_if(right, [](const Trial* trial) { return trial->status != Status::ok; });
  std::ranges::stable_sort(right, {}, [](const Trial* trial) { return trial->measurement.time.value; });
  for (const Trial* trial : right) add(trial->candidate);
  for (const Candidate& tie : entry.ties) add(tie);
  return fastest;
}

std::vector<TunedLayer> measure_layers(const TunedTable& table, Backend& backend, const ContestRequest& request,
                                       const ContestListener& listener, const std::atomic<bool>& stop) {
  Entries won = all_entries(table);
  std::erase_if(won, [](const Entry* entry) { return !entry->skipped.empty(); });
  std::vector<TunedLayer> layers;
  for (const auto& [up, down] : layers_among(mapped(won, &Entry::cell))) {
    const auto same = [&](const TunedLayer& one) { return one.up == won[up]->cell && one.down == won[down]->cell; };
    const auto known = std::ranges::find_if(table.layers, same);
    if (!request.contenders && known == table.layers.end()) continue;
    const Bench bench{backend, request, listener, stop, *won[up], *won[down], request.contenders ? nullptr : &*known};
    const auto is_late = [&] { return Clock::now() >= request.end; };
    const std::string late = "the time budget is spent: tune the layer with --append";
    if (is_late())
      bench.note(late);
    else if (!stop)
      try {
        if (std::optional<TunedLayer> layer = measure(bench))
          layers.push_back(std::move(*layer));
        else if (!stop)
          bench.note(is_late() ? late : "no layer: its kernels do not run one after the other");
      } catch (const OutOfMemory& error) {
        bench.note(fmt::format("no layer: out of memory: {}", error.what()));
      }
  }
  return layers;
}

}  // namespace moetune
