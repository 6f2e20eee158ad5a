// From entries to the layers that serving files are named after.
#include "export/serving/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "variant/variant.h"
#include "workload/model.h"

namespace moetune {
namespace {

bool siblings(const Layer& a, const Layer& b) { return key_of_layer(a) == key_of_layer(b); }

// k of down. For up: by the cell's gate, else k of the table's own down projection, else from the preset, else n / 2 as
// of a gated model.
int64_t intermediate_size(const Layer& layer, const TunedTable& table, std::vector<std::string>& notes) {
  if (layer.projection == Projection::down) return layer.k;
  if (layer.gate.gated) return *layer.gate.gated ? layer.n / 2 : layer.n;
  for (const Entry& entry : table.entries) {
    const Layer& other = entry.cell.shape.layer;
    if (other.projection == Projection::down && siblings(layer, other) &&
        (other.k == layer.n || 2 * other.k == layer.n))
      return other.k;
  }
  for (const Model& model : model_presets())
    if (model.name == layer.model && model.hidden == layer.k) return model.gated ? layer.n / 2 : layer.n;
  if (layer.n % 2 != 0) return layer.n;
  const std::string note =
      fmt::format("{} is not a preset: its experts are assumed gated, so N = n / 2 = {}", layer.model, layer.n / 2);
  add_once(notes, note);
  return layer.n / 2;
}

// The servers' kernel gathers rows of up and scatters all rows, and adds no slots: entries with these fusions are
// preferred.
bool is_fused(const Shape& shape) {
  if (shape.fusion.sum_slots) return false;
  return shape.fusion.by_slot || shape.layer.projection == Projection::up ? shape.fusion.permute_x
                                                                          : shape.fusion.permute_y;
}

auto preference(const Entry& entry) {
  const std::string& routing = entry.cell.routing.name;
  return std::tuple(routing == "uniform" ? 0 : routing == "balanced" ? 1 : 2, !is_fused(entry.cell.shape));
}

struct Group {
  ServingLayer layer;
  Layer first;                                         // only entries of the same model, dtype and sizes are taken
  std::map<int64_t, const Entry*> up = {}, down = {};  // the entry taken for each token count
  std::vector<std::string> other_models = {};          // of the same file name, left out
  std::map<int64_t, std::string> chosen = {};          // tokens with several routings -> the one taken
  std::vector<const RobustChoice*> choices = {};       // of both projections; those of one projection have one shape
};

std::vector<const RobustChoice*> choices_of(const Group& group, Projection projection) {
  return filtered(group.choices,
                  [&](const RobustChoice* choice) { return choice->shape().layer.projection == projection; });
}

// The choices of each projection: those of its fused shape, or of its first.
void find_choices(Group& group, const TunedTable& table) {
  for (const Projection projection : {Projection::up, Projection::down}) {
    const Shape* shape = nullptr;
    for (const RobustChoice& choice : table.choices) {
      const Shape& one = choice.shape();
      if (one.op != Op::fwd || one.layer.projection != projection || !siblings(group.first, one.layer)) continue;
      if (!shape || is_fused(one) > is_fused(*shape)) shape = &one;
    }
    for (const RobustChoice& choice : table.choices)
      if (shape && choice.shape() == *shape) group.choices.push_back(&choice);
  }
}

void take(Group& group, const Entry& entry) {
  const Layer& layer = entry.cell.shape.layer;
  if (!siblings(group.first, layer)) {
    const std::string other =
        fmt::format("{} ({}, top {}, hidden {})", layer.model, layer.format.word, layer.top_k, hidden_size(layer));
    add_once(group.other_models, other);
    return;
  }
  if (is_triton(entry.candidate)) group.layer.cells.push_back(entry.cell);
  if (!choices_of(group, layer.projection).empty()) return;
  auto& rows = layer.projection == Projection::up ? group.up : group.down;
  const auto [place, fresh] = rows.emplace(entry.cell.tokens, &entry);
  if (fresh) return;
  if (preference(entry) < preference(*place->second)) place->second = &entry;
  group.chosen[entry.cell.tokens] = text(place->second->cell.routing);
}

ServingWinner winner_of(const RobustChoice& choice) {
  ServingWinner winner{.candidate = choice.candidate(), .last = choice.tokens.to};
  const double loss = std::max(choice.bucket_loss, score(choice, choice.chosen));
  for (size_t who = 0; who < choice.contenders.size(); ++who)
    if (who != choice.chosen && score(choice, who) <= loss) winner.ties.push_back(choice.contenders[who].candidate);
  return winner;
}

ServingWinners winners_of(const Group& group, Projection projection) {
  ServingWinners winners;
  for (const auto& [tokens, entry] : projection == Projection::up ? group.up : group.down)
    winners[tokens] = {entry->candidate, entry->ties, {}};
  const std::vector<const RobustChoice*> choices = choices_of(group, projection);
  std::set<int64_t> counts(serving_token_counts().begin(), serving_token_counts().end());
  for (const RobustChoice* choice : choices)
    for (const Cell& cell : choice->cells) counts.insert(cell.tokens);
  for (const int64_t tokens : counts)
    for (const RobustChoice* choice : choices)
      if (choice->tokens.covers(tokens)) winners[tokens] = winner_of(*choice);
  return winners;
}

void add_notes(const Group& group, std::vector<std::string>& notes) {
  const std::string file = fmt::format("E={},N={}", group.layer.file.experts, group.layer.file.intermediate);
  std::map<std::string, std::vector<int64_t>> by_routing;
  for (const auto& [tokens, routing] : group.chosen) by_routing[routing].push_back(tokens);
  for (const auto& [routing, tokens] : by_routing)
    notes.push_back(fmt::format("{}: of several entries for {} tokens the one with {} routing was taken", file,
                                fmt::join(tokens, ", "), routing));
  for (const Projection projection : {Projection::up, Projection::down}) {
    const auto ranges = mapped(choices_of(group, projection), [](const auto* choice) { return text(choice->tokens); });
    if (!ranges.empty())
      notes.push_back(fmt::format("{}: the winners of {} are the table's robust choices, for {} tokens", file,
                                  name(projection), fmt::join(ranges, ", ")));
  }
  if (!group.other_models.empty())
    notes.push_back(fmt::format("{}: taken from {}; left out, because the file name is the same: {}", file,
                                group.first.model, fmt::join(group.other_models, ", ")));
}

}  // namespace

std::vector<ServingLayer> serving_layers(const Server& server, const TunedTable& table,
                                         std::vector<std::string>& notes) {
  std::vector<Group> groups;
  std::map<std::string, int64_t> left_out;  // reason -> entries
  for (const Entry& entry : table.entries) {
    const Layer& layer = entry.cell.shape.layer;
    if (entry.cell.shape.op != Op::fwd) {
      ++left_out["serving has no dx and dw"];
    } else if (!entry.skipped.empty()) {
      ++left_out["they have no winner"];
    } else if (!find_format_name(server, serving_format(layer))) {
      ++left_out[fmt::format("{} has no files for {}", server.title, layer.format.word)];
    } else {
      const ServedFile file = served_file(server, layer, intermediate_size(layer, table, notes), table.device.name);
      auto group = std::ranges::find_if(groups, [&](const Group& one) { return one.layer.file.name == file.name; });
      if (group == groups.end()) {
        group = groups.insert(groups.end(), {.layer = {.file = file, .model = layer.model}, .first = layer});
        find_choices(*group, table);
      }
      take(*group, entry);
    }
  }
  for (const auto& [reason, entries] : left_out)
    notes.push_back(fmt::format("{} entries left out: {}", entries, reason));
  std::vector<ServingLayer> layers;
  for (Group& group : groups) {
    add_notes(group, notes);
    std::vector<Cell>& cells = group.layer.cells;  // those of fused shapes, where there are any
    const auto fused = [&](Projection projection) {
      return std::ranges::any_of(
          cells, [&](const Cell& one) { return one.shape.layer.projection == projection && is_fused(one.shape); });
    };
    const bool up = fused(Projection::up), down = fused(Projection::down);
    std::erase_if(cells, [&](const Cell& one) {
      return (one.shape.layer.projection == Projection::up ? up : down) && !is_fused(one.shape);
    });
    group.layer.up = winners_of(group, Projection::up);
    group.layer.down = winners_of(group, Projection::down);
    layers.push_back(group.layer);
  }
  return layers;
}

bool is_triton(const Candidate& candidate) {
  return is_packed(candidate) && find_value(candidate, kBlockM) && find_value(candidate, kBlockN) &&
         find_value(candidate, kBlockK);
}

std::optional<ServingRow> serving_row(const Candidate& candidate) {
  if (!is_triton(candidate)) return std::nullopt;
  ServingRow row;
  for (const auto& [knob, value] : kRowKnobs) row.*value = find_value(candidate, knob).value_or(row.*value);
  return row;
}

ServingTimes::ServingTimes(const TunedTable& table, const ServingRequest& request) {
  const JournalContents* const journal = request.journal;
  const auto add = [&](const Cell& cell, const Candidate& candidate, const Estimate& time) {
    if (const auto row = candidate.variant ? serving_row(candidate) : std::nullopt)
      times_[id(cell)].emplace_back(*row, time);
  };
  for (const RobustChoice& choice : table.choices)
    for (const Standing& contender : choice.contenders)
      for (size_t cell = 0; cell < choice.cells.size(); ++cell)
        add(choice.cells[cell], contender.candidate, contender.times[cell]);
  for (const Entry& entry : table.entries) {
    if (!entry.skipped.empty()) continue;
    add(entry.cell, entry.candidate, entry.measurement.time);
    for (const Rival& rival : entry.rivals) add(entry.cell, rival.candidate, rival.measurement.time);
    if (!journal) continue;
    for (const Trial& trial : value_in(journal->trials, id(entry.cell)))
      if (trial.status == Status::ok) add(entry.cell, trial.candidate, trial.measurement.time);
  }
}

std::optional<Estimate> ServingTimes::find(const Cell& cell, const ServingRow& row) const {
  const auto rows = times_.find(id(cell));
  if (rows == times_.end()) return std::nullopt;
  ServingRow untyped = row;
  if (row.use_tma == false) untyped.use_tma = {};  // packs have no TMA: a row with it was not timed
  const auto found = std::ranges::find(rows->second, untyped, [](const auto& one) { return one.first; });
  return found == rows->second.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace moetune
