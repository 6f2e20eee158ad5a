// Which cells make a layer, and layers as text and JSON.
#include "record/layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/group.h"
#include "base/text/units.h"
#include "workload/product/product.h"

namespace moetune {
namespace {

void take(TunedTable& table, const Cell& cell, const Candidate& candidate, const Measurement& time) {
  const auto entry = std::ranges::find(table.entries, cell, &Entry::cell);
  if (entry == table.entries.end() || entry->candidate == candidate) return;
  entry->candidate = candidate, entry->measurement = time;
  entry->code.clear(), entry->rivals.clear(), entry->ties.clear();
}

bool has_winners(const TunedTable& table, const TunedLayer& layer) {
  return std::ranges::all_of(std::array{&layer.up, &layer.down}, [&](const Cell* cell) {
    const Entry* entry = find_entry(table, *cell);
    return entry && entry->skipped.empty();
  });
}

}  // namespace

std::vector<std::pair<size_t, size_t>> layers_among(const std::vector<Cell>& cells) {
  std::vector<std::pair<size_t, size_t>> layers;
  for (size_t up = 0; up < cells.size(); ++up)
    for (size_t down = 0; down < cells.size(); ++down) {
      const Cell &one = cells[up], &other = cells[down];
      if (one.tokens == other.tokens && one.routing == other.routing && one.seed == other.seed &&
          feeds(one.shape, other.shape))
        layers.emplace_back(up, down);
    }
  return layers;
}

std::vector<const TunedLayer*> layers_of(const TunedTable& table) {
  std::vector<const TunedLayer*> layers = pointers_to(table.layers);
  std::erase_if(layers, [&](const TunedLayer* layer) { return !has_winners(table, *layer); });
  return layers;
}

const TunedLayer* find_layer(const TunedTable& table, const Cell& cell) {
  for (const TunedLayer& layer : table.layers)
    if ((layer.up == cell || layer.down == cell) && has_winners(table, layer)) return &layer;
  return nullptr;
}

TunedTable with_layers(TunedTable table) {
  for (const TunedLayer* layer : layers_of(table)) {
    take(table, layer->up, layer->up_candidate, layer->up_measurement);
    take(table, layer->down, layer->down_candidate, layer->down_measurement);
  }
  return table;
}

TunedTable layers_alone(TunedTable table) {
  table = with_layers(std::move(table));
  std::vector<Cell> parts;
  for (const TunedLayer* layer : layers_of(table)) parts.push_back(layer->up), parts.push_back(layer->down);
  std::erase_if(table.entries, [&](const Entry& entry) {
    return contains(parts, entry.cell.shape, &Cell::shape) && !contains(parts, entry.cell);
  });
  table.choices.clear();
  return table;
}

std::string distrust(const TunedLayer& layer) {
  return distrust({.cell = layer.up, .measurement = layer.measurement, .rivals = layer.rivals});
}

std::string title(const Shape& up, const Shape& down, std::string_view what) {
  const Layer& layer = up.layer;
  std::string title = fmt::format("{} {}, {}: {} experts, top {}, hidden {}, intermediate {}", layer.model, what,
                                  layer.format.word, layer.experts, layer.top_k, layer.k, down.layer.k * layer.tp);
  if (layer.tp > 1) title += fmt::format(", tp {}", layer.tp);
  if (layer.ep > 1) title += fmt::format(", ep {}", layer.ep);
  return title;
}

std::string title(const TunedLayer& layer) {
  const Shape &up = layer.up.shape, &down = layer.down.shape;
  return fmt::format("{}, up {}, down {}", title(up, down, "ffn"), text(up.fusion), text(down.fusion));
}

std::string layers_sentence(const TunedTable& table) {
  const std::vector<const TunedLayer*> layers = layers_of(table);
  if (layers.empty()) return "";
  const auto others = std::ranges::count_if(
      layers, [](const TunedLayer* layer) { return contains(layer->rivals, "winners", &Rival::name); });
  return fmt::format("{} tuned as one: {}.", counted(layers.size(), "layer"),
                     others == 0 ? "no pair is faster than the two winners"
                                 : fmt::format("in {} another pair is faster than the two winners", others));
}

namespace {

// What ran, its time, and how many times as fast the pair is: the pair, its parts, then the rivals.
std::vector<std::vector<std::string>> rows_of(const TunedLayer& layer) {
  const bool noisy = !distrust(layer).empty();
  std::vector<std::vector<std::string>> rows = {{"up, then down", time_text(layer.measurement.time), ""},
                                                {"up alone", time_text(layer.up_measurement.time), ""},
                                                {"down alone", time_text(layer.down_measurement.time), ""}};
  for (const Rival& rival : layer.rivals)
    rows.push_back({rival.name, time_text(rival.measurement.time), noisy ? "noisy" : ratio_text(1 / rival.ratio)});
  return rows;
}

}  // namespace

std::vector<HeadedTable> layer_tables(const TunedTable& table, bool verbose) {
  std::vector<HeadedTable> tables;
  const TunedTable pairs = with_layers(table);
  const auto candidate_of = [&](const Cell& cell) {
    const Entry& entry = *find_entry(pairs, cell);
    return verbose ? text(entry.candidate) : winner_text(entry, table.device);
  };
  for (const TunedLayer* layer : layers_of(table)) {
    const std::string heading = title(*layer);
    if (tables.empty() || tables.back().heading[0] != heading) {
      tables.push_back({{heading}, cell_grid({{"what ran"}, {"time", true}, {"speedup", true}})});
      tables.push_back({{heading}, cell_grid({{"part"}, {"its candidate in the pair"}})});
    }
    add_rows(tables.rbegin()[1].grid, layer->up, rows_of(*layer));
    add_rows(tables.back().grid, layer->up, {{"up", candidate_of(layer->up)}, {"down", candidate_of(layer->down)}});
  }
  return tables;
}

Json to_json(const TunedLayer& layer) {
  const auto part = [](const Cell& cell, const Candidate& candidate, const Measurement& alone) -> Json {
    return {{"cell", id(cell)}, {"candidate", to_json(candidate)}, {"measurement", to_json(alone)}};
  };
  Json json = {{"up", part(layer.up, layer.up_candidate, layer.up_measurement)},
               {"down", part(layer.down, layer.down_candidate, layer.down_measurement)},
               {"measurement", to_json(layer.measurement)},
               {"rivals", json_list(layer.rivals)}};
  if (const std::string reason = distrust(layer); !reason.empty()) json["untrusted"] = reason;
  return json;
}

TunedLayer layer_from_json(const JsonAt& json, const TunedTable& table, const std::map<std::string, size_t>& places,
                           const Catalog& catalog) {
  TunedLayer layer;
  layer.measurement = measurement_from_json(json["measurement"]);
  layer.rivals = list_at(json["rivals"], [&](const JsonAt& rival) { return rival_from_json(rival, catalog); });
  const auto read = [&](const JsonAt& part, Cell& cell, Candidate& candidate, Measurement& time) {
    const auto place = places.find(part["cell"].string());
    if (place == places.end() || !table.entries[place->second].skipped.empty())
      part["cell"].fail("no entry with a winner has this id");
    cell = table.entries[place->second].cell;
    candidate = candidate_from_json(part["candidate"], catalog);
    require_runnable(candidate, cell.shape, table.device, part["candidate"]);
    time = measurement_from_json(part["measurement"]);
  };
  read(json["up"], layer.up, layer.up_candidate, layer.up_measurement);
  read(json["down"], layer.down, layer.down_candidate, layer.down_measurement);
  if (layers_among({layer.up, layer.down}).empty()) json.fail("the two cells are not up and down of one layer");
  return layer;
}

}  // namespace moetune
