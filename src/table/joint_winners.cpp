// Finds the pair of candidates with the least sum of two cells' times.
#include "table/joint_winners.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "variant/variant.h"

namespace moetune {
namespace {

// The values of the knobs that must be equal in a pair.
using Key = std::vector<std::pair<std::string, std::string>>;

Key key_of(const Candidate& candidate, const std::vector<std::string>& shared) {
  Key key = knob_words(candidate);
  if (!shared.empty())
    std::erase_if(key, [&](const auto& knob) { return std::ranges::find(shared, knob.first) == shared.end(); });
  return key;
}

// hidden is k of up and n of down.
auto layer_of(const Cell& cell) {
  const Layer& layer = cell.shape.layer;
  const int64_t hidden = layer.projection == Projection::up ? layer.k : layer.n;
  return std::tuple(layer.model, layer.experts, layer.top_k, layer.dtype, layer.tp, layer.ep, hidden, cell.tokens,
                    text(cell.routing), cell.seed);
}

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
          first.candidate.variant == second.candidate.variant && layer_of(first.cell) == layer_of(second.cell))
        pairs.emplace_back(up, down);
    }
  return pairs;
}

// The fastest candidate of a variant for each key.
std::map<Key, const Trial*> fastest(const Replay& journal, const Entry& entry, const std::vector<std::string>& shared) {
  std::map<Key, const Trial*> best;
  const auto trials = journal.trials.find(id(entry.cell));
  if (trials == journal.trials.end()) return best;
  for (const Trial& trial : trials->second) {
    if (trial.status != Status::ok || trial.candidate.variant != entry.candidate.variant) continue;
    const Trial*& place = best[key_of(trial.candidate, shared)];
    if (!place || trial.measurement.seconds < place->measurement.seconds) place = &trial;
  }
  return best;
}

double least(const std::map<Key, const Trial*>& best) {
  return std::ranges::min_element(best, {}, [](const auto& one) { return one.second->measurement.seconds; })
      ->second->measurement.seconds;
}

struct Pair {
  const Trial *up = nullptr, *down = nullptr;
  double loss = 0;  // of the sum, over the sum of each cell's fastest
  double seconds() const { return up->measurement.seconds + down->measurement.seconds; }
};

std::optional<Pair> best_pair(const std::map<Key, const Trial*>& ups, const std::map<Key, const Trial*>& downs) {
  std::optional<Pair> best;
  for (const auto& [key, up] : ups) {
    const auto down = downs.find(key);
    if (down == downs.end()) continue;
    const Pair pair{up, down->second};
    if (!best || pair.seconds() < best->seconds()) best = pair;
  }
  if (best) best->loss = best->seconds() / (least(ups) + least(downs)) - 1;
  return best;
}

}  // namespace

bool is_packed(const Candidate& candidate) {
  if (!candidate.foreign.empty()) return true;
  return !candidate.variant.empty() && find_variant(candidate.variant).pack != nullptr;
}

bool has_pairs(const TunedTable& table) { return !pairs_of(table).empty(); }

TunedTable with_joint_winners(TunedTable table, const Replay& journal, const std::vector<std::string>& shared,
                              std::vector<std::string>& notes) {
  int64_t joined = 0, apart = 0;
  double worst = 0;
  for (const auto& [first, second] : pairs_of(table)) {
    Entry &up = table.entries[first], &down = table.entries[second];
    const auto pair = best_pair(fastest(journal, up, shared), fastest(journal, down, shared));
    if (!pair) {
      ++apart;
      continue;
    }
    up.candidate = pair->up->candidate, down.candidate = pair->down->candidate;
    up.ties.clear(), down.ties.clear();
    ++joined, worst = std::max(worst, pair->loss);
  }
  if (joined > 0)
    notes.push_back(
        fmt::format("{} of {} pairs of up and down get one configuration, by the least sum of their times: at worst "
                    "{:.1f} % over the fastest of each",
                    joined, joined + apart, 100 * worst));
  if (apart > 0)
    notes.push_back(fmt::format("{} of up and down {} apart: the journal times no candidate in both",
                                apart == 1 ? "1 pair" : fmt::format("{} pairs", apart), apart == 1 ? "stays" : "stay"));
  return table;
}

}  // namespace moetune
