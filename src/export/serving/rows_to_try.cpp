// Which rows of the servers' kernel are worth compiling for a layer.
#include <algorithm>

#include "export/serving/serving.h"
#include "variant/variant.h"

namespace moetune {
namespace {

using KnobValues = std::vector<int64_t>;

struct Tile {
  int64_t block_m, block_n, warps;
};
// Those of the files that both programs bundle for GPUs of compute capability 9.0, and some between them.
constexpr Tile kTiles[] = {{16, 32, 4},  {16, 64, 4},  {16, 128, 4},  {16, 128, 8}, {16, 256, 4},
                           {32, 64, 4},  {32, 128, 4}, {64, 64, 4},   {64, 128, 4}, {64, 128, 8},
                           {64, 256, 8}, {128, 64, 4}, {128, 128, 8}, {128, 256, 8}};
constexpr double kTilesOfRows = 8;  // a tile is tried where its rows are at most so many times those of an expert

std::vector<Tile> tiles_of(const RowSearch& search) {
  const auto given = [&](const char* knob) { return search.full || search.values.contains(knob); };
  if (!given(kBlockM) && !given(kBlockN) && !given(kWarps)) return {std::begin(kTiles), std::end(kTiles)};
  const auto values = [&](const char* knob, const KnobValues& otherwise) {
    const auto own = search.values.find(knob);
    return own == search.values.end() ? otherwise : own->second;
  };
  std::vector<Tile> tiles;
  for (const int64_t block_m : values(kBlockM, {16, 32, 64, 128, 256}))
    for (const int64_t block_n : values(kBlockN, {32, 64, 128, 256}))
      for (const int64_t warps : values(kWarps, {4, 8})) tiles.push_back({block_m, block_n, warps});
  std::ranges::stable_sort(tiles, {}, &Tile::block_m);
  return tiles;
}

}  // namespace

std::vector<TriedRow> rows_to_try(const RowSearch& search) {
  const ServingFormat& format = search.format;
  const bool wide = !format.quantised_x();
  const auto values = [&](const char* knob, const KnobValues& usual, const KnobValues& all) {
    const auto own = search.values.find(knob);
    return own != search.values.end() ? own->second : search.full ? all : usual;
  };
  const KnobValues depths = values(
      kBlockK,
      wide ? KnobValues{64, 128} : KnobValues(search.server->fp8_depths.begin(), search.server->fp8_depths.end()),
      format.blocks() ? KnobValues{64, 128} : KnobValues{64, 128, 256});
  const KnobValues groups = values(kGroupM, wide ? KnobValues{1, 16} : KnobValues{1, 16, 64}, {1, 16, 32, 64});
  const KnobValues stages = values(kStages, {2, 3, 4, 5}, {2, 3, 4, 5});
  std::vector<TriedRow> rows;
  for (const Tile& tile : tiles_of(search))
    for (const int64_t depth : depths)
      for (const int64_t group : groups)
        for (const int64_t stage : stages) {
          const int64_t bytes = (stage - 1) * depth * (tile.block_m * format.x_bytes + tile.block_n * format.w_bytes);
          if (search.shared_memory > 0 && bytes > search.shared_memory) continue;
          TriedRow tried{{tile.block_m, tile.block_n, depth, group, tile.warps, stage, {}}, {}};
          for (const auto& [tokens, mean] : search.mean_rows)
            if (rows.empty() || search.full || tile.block_m <= 16 ||
                static_cast<double>(tile.block_m) <= kTilesOfRows * mean)
              tried.tokens.push_back(tokens);
          if (!tried.tokens.empty()) rows.push_back(std::move(tried));
        }
  return rows;
}

Candidate candidate_of(const VariantPtr& variant, const ServingRow& row) {
  Candidate candidate{variant, std::vector<int>(variant->knobs.size(), 0)};
  for (const auto& [knob, value] : kRowKnobs)
    if (find_value(candidate, knob)) candidate = with_value(candidate, knob, static_cast<int>(row.*value));
  return candidate;
}

}  // namespace moetune
