// Layers of a table: up and down of the experts, tuned as one. Nothing here measures.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "record/table/table.h"

namespace moetune {

/// Places of cells of up and of down that make a layer: feeds(), with the same tokens, routing and seed.
std::vector<std::pair<size_t, size_t>> layers_among(const std::vector<Cell>& cells);

/// Those whose cells have winners in the table.
std::vector<const TunedLayer*> layers_of(const TunedTable& table);

/// The layer of a cell of up or of down, or null.
const TunedLayer* find_layer(const TunedTable& table, const Cell& cell);

/// The table with the pairs of its layers as winners of their cells. Where that changes the winner, the entry gets the
/// time of its part of the pair, and no rivals.
TunedTable with_layers(TunedTable table);
/// The same without choices. Of a shape that layers have, only the cells of layers stay.
TunedTable layers_alone(TunedTable table);

/// Why the layer's times are too noisy to judge by, as a sentence; or empty.
std::string distrust(const TunedLayer& layer);

/// "qwen3-30b-a3b WHAT, bf16: 128 experts, top 8, hidden 2048, intermediate 768" of up and down, then the sharding.
std::string title(const Shape& up, const Shape& down, std::string_view what);
std::string title(const TunedLayer& layer);  // then the fusions

/// "2 layers tuned as one: in 1 another pair is faster than the two winners." Empty without any.
std::string layers_sentence(const TunedTable& table);

/// For each layer what ran, its time and the speedup of the pair, and then the pair.
std::vector<HeadedTable> layer_tables(const TunedTable& table, bool verbose);

Json to_json(const TunedLayer& layer);
/// `places` are those of the table's entries by their ids. Errors name the place: cells that the table has no winner of
/// or that make no layer, candidates that its device cannot run.
TunedLayer layer_from_json(const JsonAt& json, const TunedTable& table, const std::map<std::string, size_t>& places,
                           const Catalog& catalog);

}  // namespace moetune
