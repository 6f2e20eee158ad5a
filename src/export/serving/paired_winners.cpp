// Finds the pair of candidates with the least sum of two cells' times.
#include "export/serving/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "variant/pack/pack.h"
#include "variant/variant.h"

namespace moetune {
namespace {

constexpr size_t kContenders = 8;        // of a cell; more only if it has more winners
constexpr double kUntriedRegret = 0.05;  // of a cell in which a candidate was not tried

// The values of the knobs that must be equal in a pair.
using Key = std::vector<std::pair<std::string, std::string>>;

Key key_of(const Candidate& candidate, const std::vector<std::string>& shared) {
  Key key = knob_words(candidate);
  if (!shared.empty()) std::erase_if(key, [&](const auto& knob) { return !contains(shared, knob.first); });
  return key;
}

auto layer_of(const Cell& cell) {
  return std::tuple(key_of_layer(cell.shape.layer), cell.tokens, text(cell.routing), cell.seed);
}

// The hash of its manifest; empty where the candidate is of no pack.
std::string pack_of(const Candidate& candidate) {
  if (!candidate.foreign.empty()) return candidate.foreign.front().second;
  return candidate.variant && candidate.variant->pack ? candidate.variant->pack->hash : "";
}

bool of_one_pack(const Candidate& a, const Candidate& b) { return same_variant(a, b) && pack_of(a) == pack_of(b); }

bool is_forward(const Entry& entry, Projection projection) {
  return entry.skipped.empty() && entry.cell.shape.op == Op::fwd && entry.cell.shape.layer.projection == projection &&
         is_packed(entry.candidate);
}

// The entries of up and down of the same layer, tokens, routing and seed, by their places in the table.
std::vector<std::pair<size_t, size_t>> pairs_of(const TunedTable& table) {
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t up = 0; up < table.entries.size(); ++up)
    for (size_t down = 0; down < table.entries.size(); ++down) {
      const Entry &first = table.entries[up], &second = table.entries[down];
      if (is_forward(first, Projection::up) && is_forward(second, Projection::down) &&
          of_one_pack(first.candidate, second.candidate) && layer_of(first.cell) == layer_of(second.cell))
        pairs.emplace_back(up, down);
    }
  return pairs;
}

struct Timed {
  const Candidate* candidate = nullptr;
  double seconds = 0;
};

// The winner and the default, as the final timed them.
std::vector<Timed> of_final(const Entry& entry) {
  std::vector<Timed> timed = {{&entry.candidate, entry.measurement.time.value}};
  for (const Rival& rival : entry.rivals)
    if (rival.candidate.variant && rival.candidate != entry.candidate)
      timed.push_back({&rival.candidate, rival.measurement.time.value});
  return timed;
}

// The fastest candidate of the winner's pack for each key. A time of the final counts before those of the search, whose
// few samples may be lucky: none is below the winner's.
std::map<Key, Timed> fastest(const JournalContents& journal, const Entry& entry,
                             const std::vector<std::string>& shared) {
  std::map<Key, Timed> best;
  const auto add = [&](const Candidate& candidate, double seconds) {
    if (!of_one_pack(candidate, entry.candidate)) return;
    const Timed timed{&candidate, std::max(seconds, entry.measurement.time.value)};
    Timed& place = best[key_of(candidate, shared)];
    if (!place.candidate || timed.seconds < place.seconds) place = timed;
  };
  const std::vector<Timed> finalists = of_final(entry);
  for (const Timed& finalist : finalists) add(*finalist.candidate, finalist.seconds);
  const auto in_final = [&](const Candidate& candidate) {
    return std::ranges::any_of(finalists, [&](const Timed& one) { return *one.candidate == candidate; });
  };
  for (const Trial& trial : value_in(journal.trials, id(entry.cell)))
    if (trial.status == Status::ok && !in_final(trial.candidate)) add(trial.candidate, trial.measurement.time.value);
  return best;
}

struct Pair {
  Timed up, down;
  double seconds() const { return up.seconds + down.seconds; }
};

// Nothing where no candidates of an equal key were timed in both cells.
std::optional<Pair> best_pair(const Entry& up, const Entry& down, const JournalContents& journal,
                              const std::vector<std::string>& shared) {
  if (key_of(up.candidate, shared) == key_of(down.candidate, shared))
    return Pair{{&up.candidate, up.measurement.time.value}, {&down.candidate, down.measurement.time.value}};
  const std::map<Key, Timed> ups = fastest(journal, up, shared), downs = fastest(journal, down, shared);
  std::optional<Pair> best;
  for (const auto& [key, timed] : ups) {
    const auto other = downs.find(key);
    if (other == downs.end()) continue;
    const Pair pair{timed, other->second};
    if (!best || pair.seconds() < best->seconds()) best = pair;
  }
  return best;
}

}  // namespace

LayerKey key_of_layer(const Layer& layer) {
  return {layer.model, layer.experts, layer.top_k,       std::string(layer.format.word),
          layer.tp,    layer.ep,      hidden_size(layer)};
}

bool is_packed(const Candidate& candidate) { return !pack_of(candidate).empty(); }

std::vector<std::string> shared_knobs(const Server& server) {
  return server.down_files ? std::vector<std::string>{kBlockM} : std::vector<std::string>();
}

std::vector<Candidate> serving_contenders(const Entries& entries, const JournalContents& journal,
                                          const std::vector<std::string>& shared, std::vector<Candidate> own) {
  std::vector<Candidate> picked = std::move(own);
  const auto add = [&](const Candidate& one) { add_once(picked, one); };
  // By the largest regret in the cells of these projections; one that was not tried everywhere comes later.
  const auto ranked = [&](const std::vector<Projection>& projections) {
    std::map<Candidate, double> scores;
    std::map<Candidate, int> tried;
    int cells = 0;
    for (const Entry* entry : entries) {
      const std::vector<Trial>& trials = value_in(journal.trials, id(entry->cell));
      if (!contains(projections, entry->cell.shape.layer.projection) || trials.empty()) continue;
      ++cells;
      std::map<Candidate, double> times;
      for (const Trial& trial : trials)
        if (trial.status == Status::ok) times[trial.candidate] = trial.measurement.time.value;
      double least = std::numeric_limits<double>::infinity();
      for (const auto& [candidate, seconds] : times) least = std::min(least, seconds);
      for (const auto& [candidate, seconds] : times) {
        double& score = scores[candidate];
        score = std::max(score, seconds / least - 1), ++tried[candidate];
      }
    }
    std::vector<Candidate> order = mapped(scores, [](const auto& one) { return one.first; });
    std::ranges::stable_sort(
        order, {}, [&](const Candidate& one) { return scores.at(one) + kUntriedRegret * (cells - tried.at(one)); });
    return order;
  };
  for (const Entry* entry : entries) add(entry->candidate);
  if (!shared.empty())
    for (const Candidate& winner : std::vector<Candidate>(picked))
      for (const Projection projection : {Projection::up, Projection::down}) {
        const std::vector<Candidate> order = ranked({projection});
        const auto best =
            std::ranges::find(order, key_of(winner, shared), [&](const Candidate& one) { return key_of(one, shared); });
        if (best != order.end()) add(*best);
      }
  for (const Candidate& one : ranked({Projection::up, Projection::down}))
    if (picked.size() < kContenders) add(one);
  return picked;
}

void choose_together(std::vector<RobustChoice>& choices, const std::vector<std::string>& shared) {
  for (RobustChoice& up : choices)
    for (RobustChoice& down : choices) {
      if (up.shape().layer.projection != Projection::up || down.shape().layer.projection != Projection::down ||
          key_of_layer(up.shape().layer) != key_of_layer(down.shape().layer) ||
          up.cells[0].tokens != down.cells[0].tokens)
        continue;
      struct Pair {
        size_t first, second;
        std::vector<double> sums = {};  // by routing
      };
      std::vector<Pair> pairs;
      for (size_t first = 0; first < up.contenders.size(); ++first)
        for (size_t second = 0; second < down.contenders.size(); ++second) {
          if (key_of(up.contenders[first].candidate, shared) != key_of(down.contenders[second].candidate, shared))
            continue;
          Pair& pair = pairs.emplace_back(first, second);
          for (size_t a = 0; a < up.cells.size(); ++a)
            for (size_t b = 0; b < down.cells.size(); ++b)
              if (layer_of(up.cells[a]) == layer_of(down.cells[b]))
                pair.sums.push_back(up.contenders[first].times[a].value + down.contenders[second].times[b].value);
        }
      const auto regret = [&](const Pair& pair) {
        double worst = 0;
        for (size_t i = 0; i < pair.sums.size(); ++i) {
          const auto at = [i](const Pair& one) { return one.sums[i]; };
          worst = std::max(worst, pair.sums[i] / at(*std::ranges::min_element(pairs, {}, at)));
        }
        return worst;
      };
      if (pairs.empty() || pairs[0].sums.empty()) continue;
      const Pair& best = *std::ranges::min_element(pairs, {}, regret);
      up.chosen = best.first, down.chosen = best.second;
    }
}

bool has_pairs(const TunedTable& table) { return !pairs_of(table).empty(); }

TunedTable with_paired_winners(TunedTable table, const JournalContents& journal, const std::vector<std::string>& shared,
                               std::vector<std::string>& notes) {
  int64_t paired = 0, apart = 0;
  double worst = 0;
  for (const auto& [first, second] : pairs_of(table)) {
    Entry &up = table.entries[first], &down = table.entries[second];
    const double apart_seconds = up.measurement.time.value + down.measurement.time.value;
    const auto pair = best_pair(up, down, journal, shared);
    if (!pair) {
      ++apart;
      continue;
    }
    const Candidate first_candidate = *pair->up.candidate, second_candidate = *pair->down.candidate;
    up.candidate = first_candidate, down.candidate = second_candidate;
    up.ties.clear(), down.ties.clear();
    ++paired, worst = std::max(worst, pair->seconds() / apart_seconds - 1);
  }
  if (paired > 0)
    notes.push_back(
        fmt::format("{} of {} pairs of up and down get one configuration, by the least sum of their times: at worst "
                    "{:.1f} % over the winners of each",
                    paired, paired + apart, 100 * worst));
  if (apart > 0)
    notes.push_back(fmt::format("{} of up and down {} apart: no candidates that fit together were timed",
                                apart == 1 ? "1 pair" : fmt::format("{} pairs", apart), apart == 1 ? "stays" : "stay"));
  return table;
}

}  // namespace moetune
