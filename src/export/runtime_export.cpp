// A compact table for programs that pick kernels while they run.
#include <fmt/format.h>

#include "export/exporter.h"
#include "export/kernels/kernel_manifest.h"
#include "record/layer.h"
#include "variant/variant.h"

namespace moetune {
namespace {

Json knobs_of(const Candidate& candidate) {
  Json knobs = to_json(candidate);
  knobs.erase("variant");
  knobs.erase("pack");
  return knobs;
}

// The cubin that `export --format kernels` writes for it; null for what has none.
Json file_of(const Candidate& candidate, const Shape& shape, const DeviceInfo& device) {
  if (device.kind != DeviceKind::cuda || cannot_run(candidate, shape, device)) return nullptr;
  return cubin_name(kernel_name(candidate, shape), arch(device));
}

Json served(const Candidate& winner, const Shape& shape, const DeviceInfo& device) {
  const Candidate candidate = launchable(winner);
  return {{"variant", candidate.variant->name},
          {"knobs", knobs_of(candidate)},
          {"file", file_of(candidate, shape, device)},
          {"asked", asked_json(shape)}};
}

}  // namespace

void require_runtime(const JsonAt& json) {
  require_schema(json, "runtime");
  each(json["ranges"], [](const JsonAt& range) {
    const JsonAt tokens = range["tokens"];
    if (tokens.has("to")) tokens["to"].integer(tokens["from"].integer());
  });
}

Export export_runtime(const TunedTable& winners) {
  const TunedTable table = with_layers(winners);
  Json cells = Json::object(), ranges = Json::array();
  Export result;
  for (const Entry& entry : table.entries) {
    if (!entry.skipped.empty()) {
      result.notes.push_back(fmt::format("{} has no winner: {}", id(entry.cell), entry.skipped));
      continue;
    }
    if (launchable(entry.candidate) != entry.candidate)
      result.notes.push_back(fmt::format(
          "{} gets its winner with addressing=base; its time is that of addressing=pointers", id(entry.cell)));
    Json cell = served(entry.candidate, entry.cell.shape, table.device);
    cell["tokens"] = entry.cell.tokens;
    cell["skew"] = rounded(entry.figures.max_over_mean);
    cell["time_us"] = rounded(entry.measurement.time.value * 1e6);
    if (const TunedLayer* layer = find_layer(table, entry.cell); layer && layer->up == entry.cell)
      cell["down"] = id(layer->down);
    cells[id(entry.cell)] = std::move(cell);
  }
  for (const RobustChoice& choice : table.choices) {
    Json range = served(choice.candidate(), choice.shape(), table.device);
    range["tokens"] = to_json(choice.tokens);
    range["worst_regret"] = rounded(worst_regret(choice, choice.chosen));
    ranges.push_back(std::move(range));
  }
  if (cells.empty()) return result;
  result.files.push_back({"", pretty_json({{"schema", "moetune.runtime/1"},
                                           {"tool", table.tool},
                                           {"device", {{"name", table.device.name}}},
                                           {"regime", name(table.regime)},
                                           {"cells", std::move(cells)},
                                           {"ranges", std::move(ranges)}})});
  return result;
}

}  // namespace moetune
