// The JSON of tuned tables. Derived figures are written for people; readers compute them again, and refuse those that
// contradict the rest.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/json.h"
#include "record/layer.h"
#include "record/step.h"
#include "record/table/table.h"
#include "variant/variant.h"

namespace moetune {
namespace {

constexpr int kDerivedDigits = 4;
constexpr double kFigureRounding = 1e-3;  // relative, of the figures that are written with the fewest digits

// A value as a reader gets it, rounded. Derived figures are computed from that, so that reading and writing a table
// gives the same text.
double as_written(double value, int digits = 6) {
  const Json json = rounded(value, digits);
  return json.is_null() ? 0 : json.get<double>();
}

// FLOPs and bytes are counts: written as integers while doubles are exact.
Json count(double value) {
  if (value >= 0 && value < 9e15) return static_cast<int64_t>(value);
  return rounded(value);
}

Measurement as_read(Measurement measurement) {
  const auto time = [](double seconds) { return as_written(seconds * 1e6) * 1e-6; };
  const auto [value, low, high, samples] = measurement.time;
  measurement.time = {time(value), time(low), time(high), samples};
  measurement.waited = std::round(1000 * measurement.waited) / 1000;
  return measurement;
}

// An entry or a layer, which are timed beside rivals.
template <typename Timed>
Timed with_read_times(Timed timed) {
  timed.measurement = as_read(timed.measurement);
  for (Rival& rival : timed.rivals) {
    rival.measurement = as_read(rival.measurement);
    const auto& [value, low, high, samples] = rival.ratio;
    rival.ratio = {as_written(value, 5), as_written(std::min(value, low), 5), as_written(std::max(value, high), 5),
                   samples};
  }
  return timed;
}

Entry as_read(Entry entry) {
  entry.flops = count(entry.flops).get<double>();
  entry.bytes = count(entry.bytes).get<double>();
  return with_read_times(std::move(entry));
}

Json derived(const Entry& seen, const DeviceInfo& device) {
  const double roof = roof_seconds(seen, device);
  Json speedup = Json::object();
  for (const Rival& rival : seen.rivals) speedup[rival.name] = rounded(1 / rival.ratio.value, kDerivedDigits);
  const bool roof_known = roof > 0 && seen.measurement.time.value > 0;
  return {{"tflops", rounded(tflops(seen), kDerivedDigits)},
          {"tbps", rounded(terabytes_per_second(seen), kDerivedDigits)},
          {"percent_of_roof", roof_known ? rounded(100 * roof / seen.measurement.time.value, kDerivedDigits) : Json()},
          {"speedup", std::move(speedup)}};
}

Json steps_json(const TunedTable& table) {
  TunedTable seen = table;
  for (Entry& entry : seen.entries) entry = as_read(entry);
  return steps_json(cell_times(seen));
}

Update update_from_json(const JsonAt& json) {
  return {.date = json["date"].string(),
          .reason = json["reason"].string(),
          .tool = json["tool"].value(),
          .cells = list_at(json["cells"], &JsonAt::string)};
}

RoutingFigures figures_from_json(const JsonAt& json) {
  return {.rows = json["rows"].integer(0),
          .active_experts = json["active_experts"].integer(0),
          .max_rows = json["max_rows"].integer(0),
          .max_over_mean = json["max_over_mean"].number(),
          .cv = json["cv"].number(),
          .effective_experts = json["effective_experts"].number()};
}

std::vector<int32_t> m_sizes_from_json(const JsonAt& json, const Cell& cell) {
  std::vector<int32_t> m_sizes(json.size());
  for (size_t i = 0; i < m_sizes.size(); ++i) {
    const int64_t rows = json[i].integer(0, INT32_MAX);
    // No token picks an expert twice.
    if (rows > cell.tokens) json[i].fail(fmt::format("{} rows are more than the {} tokens", rows, cell.tokens));
    m_sizes[i] = static_cast<int32_t>(rows);
  }
  const Layer& layer = cell.shape.layer;
  if (static_cast<int64_t>(m_sizes.size()) != layer.local_experts())
    json.fail(fmt::format("has {} experts, the layer {}", m_sizes.size(), layer.local_experts()));
  const auto sum = std::accumulate(m_sizes.begin(), m_sizes.end(), int64_t{0});
  const int64_t most = cell.tokens * layer.top_k;
  // A recording may lack rows that no expert computed.
  const bool all = layer.ep == 1 && layer.zero_experts == 0 && cell.routing.name != "trace";
  if (all ? sum != most : sum > most)
    json.fail(
        fmt::format("the rows sum to {}, but {} tokens with top_k {} make {}", sum, cell.tokens, layer.top_k, most));
  return m_sizes;
}

// Entries whose parts contradict each other: the id and the cell, figures and rows, derived figures and their inputs,
// ratios and times, or a winner or rival that the table's own device cannot run. Ratios and times that are uncertain,
// or that the file marks as untrusted, may differ; `check` judges candidates of older kernels.

void require_ratios_of_times(const Entry& entry, const JsonAt& json) {
  if (json.has("untrusted") || !uncertainty(entry).empty()) return;
  const JsonAt rivals = json["rivals"];
  for (size_t i = 0; i < entry.rivals.size(); ++i) {
    const Rival& rival = entry.rivals[i];
    if (contradicts_times(entry, rival))
      rivals[i]["ratio"].fail(fmt::format("{:g} contradicts the times {:g} and {:g} us: expected {:.4g}",
                                          rival.ratio.value, 1e6 * entry.measurement.time.value,
                                          1e6 * rival.measurement.time.value,
                                          entry.measurement.time.value / rival.measurement.time.value));
  }
}

void require_consistent(const Entry& entry, const DeviceInfo& device, const JsonAt& json) {
  require_follows(json, {{"id", id(entry.cell)}}, "the cell", 0);
  const RoutingFigures counted = figures({.m_sizes = entry.m_sizes});
  require_follows(json["figures"], to_json(counted), "m_sizes", kFigureRounding);
  if (!entry.skipped.empty()) return;
  require_follows(json, {{"derived", derived(entry, {})}}, "the times, ratios, flops and bytes", kFigureRounding);
  require_ratios_of_times(entry, json);
  require_runnable(entry.candidate, entry.cell.shape, device, json["candidate"]);
  const JsonAt rivals = json["rivals"];
  for (size_t i = 0; i < entry.rivals.size(); ++i)
    require_runnable(entry.rivals[i].candidate, entry.cell.shape, device, rivals[i]);
}

void read_winner(const JsonAt& json, Entry& entry, const Catalog& catalog) {
  entry.candidate = candidate_from_json(json["candidate"], catalog);
  entry.measurement = measurement_from_json(json["measurement"]);
  if (json.has("code")) entry.code = json["code"].string();
  entry.verdict = verdict_from_json(json["verdict"]);
  if (!entry.verdict.ok) json["verdict"].fail("the winner's result is wrong");
  entry.occupancy = json["occupancy"].number();
  each(json["rivals"], [&](const JsonAt& rival) {
    entry.rivals.push_back(rival_from_json(rival, catalog));
    if (find_rival(entry, entry.rivals.back().name) != &entry.rivals.back())
      rival.fail(fmt::format("'{}' is in the list twice", entry.rivals.back().name));
  });
  entry.ties = list_at(json["ties"], [&](const JsonAt& tie) { return candidate_from_json(tie, catalog); });
}

std::vector<std::string> sweep_from_json(const JsonAt& json, const std::map<std::string, size_t>& entries) {
  std::set<std::string> known;
  std::vector<std::string> sweep = list_at(json, [&](const JsonAt& at) {
    if (!known.insert(at.string()).second) at.fail(fmt::format("{} is in the list twice", at.string()));
    return at.string();
  });
  for (const auto& [cell, index] : entries)
    if (!known.contains(cell)) json.fail(fmt::format("entries[{}] is not in it: {}", index, cell));
  return sweep;
}

std::vector<RobustChoice> choices_of(const JsonAt& json, const TunedTable& table, const Catalog& catalog) {
  std::vector<const Cell*> cells;
  for (const Entry& entry : table.entries)
    if (entry.skipped.empty()) cells.push_back(&entry.cell);
  std::vector<RobustChoice> choices = robust_choices_from_json(json, cells, catalog);
  for (size_t i = 0; i < choices.size(); ++i)
    require_runnable(choices[i].candidate(), choices[i].shape(), table.device, json[i]["candidate"]);
  return choices;
}

}  // namespace

Json to_json(const Rival& rival) {
  Json json = {{"name", rival.name}};
  if (rival.candidate.variant) json["candidate"] = to_json(rival.candidate);
  json["measurement"] = to_json(rival.measurement);
  // A bootstrap interval may miss its own median by a rounding error, which readers would refuse as a contradiction.
  const auto& [value, low, high, samples] = rival.ratio;
  json.update(estimate_json("ratio", {value, std::min(value, low), std::max(value, high)}, 5));
  return json;
}

Rival rival_from_json(const JsonAt& json, const Catalog& catalog) {
  Rival rival{.name = json["name"].string(),
              .measurement = measurement_from_json(json["measurement"]),
              .ratio = {json["ratio"].number(), json["ratio_low"].number(), json["ratio_high"].number()}};
  if (json.has("candidate")) rival.candidate = candidate_from_json(json["candidate"], catalog);
  if (rival.ratio.low > rival.ratio.value || rival.ratio.value > rival.ratio.high)
    json.fail(fmt::format("the ratio {} lies outside its interval {} to {}", rival.ratio.value, rival.ratio.low,
                          rival.ratio.high));
  return rival;
}

void require_runnable(const Candidate& candidate, const Shape& shape, const DeviceInfo& device, const JsonAt& json) {
  if (!candidate.variant || !candidate.unknown_knobs.empty() || !candidate.foreign.empty()) return;
  if (const auto reason = cannot_run(candidate, shape, device))
    json.fail(fmt::format("the table's own device cannot run it: {}", *reason));
}

Json to_json(const Entry& entry, const DeviceInfo& device) {
  Json json = {{"id", id(entry.cell)},        {"cell", to_json(entry.cell)},
               {"m_sizes", entry.m_sizes},    {"figures", to_json(entry.figures)},
               {"flops", count(entry.flops)}, {"bytes", count(entry.bytes)}};
  if (!entry.skipped.empty()) {
    json["skipped"] = entry.skipped;
  } else {
    json["candidate"] = to_json(entry.candidate);
    json["measurement"] = to_json(entry.measurement);
    json["occupancy"] = rounded(entry.occupancy, 5);
    const Entry seen = as_read(entry);
    json["derived"] = derived(seen, device);
    if (const std::string reason = distrust(seen); !reason.empty()) json["untrusted"] = reason;
    if (!entry.code.empty()) json["code"] = entry.code;
    json["verdict"] = to_json(entry.verdict);
    json["rivals"] = json_list(entry.rivals);
    json["ties"] = json_list(entry.ties);
  }
  json["candidates"] = {{"legal", entry.legal}, {"measured", entry.measured}, {"failed", entry.failed}};
  json["complete"] = entry.complete;
  return json;
}

Entry entry_from_json(const JsonAt& json, const DeviceInfo& device, const Catalog& catalog) {
  Entry entry;
  entry.cell = with_place(json["cell"], cell_from_json);
  entry.m_sizes = m_sizes_from_json(json["m_sizes"], entry.cell);
  entry.figures = figures_from_json(json["figures"]);
  entry.flops = json["flops"].number();
  entry.bytes = json["bytes"].number();
  if (json.has("skipped")) {
    entry.skipped = json["skipped"].string();
  } else {
    read_winner(json, entry, catalog);
  }
  const JsonAt counts = json["candidates"];
  entry.legal = counts["legal"].integer(0);
  entry.measured = counts["measured"].integer(0);
  entry.failed = counts["failed"].integer(0, entry.measured);
  entry.complete = json["complete"].boolean();
  require_consistent(entry, device, json);
  return entry;
}

Json to_json(const Update& update) {
  return {{"date", update.date}, {"reason", update.reason}, {"tool", update.tool}, {"cells", update.cells}};
}

Json to_json(const TunedTable& table) {
  const auto object = [](const Json& json) { return json.is_null() ? Json::object() : json; };
  Json json = {{"schema", "moetune.table/1"},
               {"tool", object(table.tool)},
               {"device", to_json(table.device)},
               {"environment", object(table.environment)},
               {"regime", name(table.regime)}};
  if (!table.sweep.empty()) json["sweep"] = table.sweep;
  // Peaks as a reader sees them, for percent_of_roof.
  const DeviceInfo device = device_from_json(JsonAt(json["device"], "device"));
  json["entries"] = json_list(table.entries, [&](const Entry& entry) { return to_json(entry, device); });
  if (!table.choices.empty()) json["choices"] = json_list(table.choices);
  if (!table.updates.empty()) json["updates"] = json_list(table.updates);
  if (const auto layers = layers_of(table); !layers.empty())
    json["layers"] = json_list(layers, [](const TunedLayer* layer) { return to_json(with_read_times(*layer)); });
  if (Json steps = steps_json(table); !steps.empty()) json["training_steps"] = std::move(steps);
  return json;
}

TunedTable table_from_json(const JsonAt& json, const Catalog& catalog) {
  require_schema(json, "table");
  TunedTable table;
  table.tool = json["tool"].value();
  table.device = device_from_json(json["device"]);
  table.environment = json["environment"].value();
  table.regime = parse_regime(json["regime"].string());
  const JsonAt entries = json["entries"];
  std::map<std::string, size_t> seen;
  for (size_t i = 0; i < entries.size(); ++i) {
    table.entries.push_back(entry_from_json(entries[i], table.device, catalog));
    const auto [first, fresh] = seen.emplace(id(table.entries.back().cell), i);
    if (!fresh) entries[i].fail(fmt::format("the same cell as entries[{}]: {}", first->second, first->first));
  }
  if (json.has("sweep")) table.sweep = sweep_from_json(json["sweep"], seen);
  if (json.has("choices")) table.choices = choices_of(json["choices"], table, catalog);
  if (json.has("layers"))
    table.layers =
        list_at(json["layers"], [&](const JsonAt& layer) { return layer_from_json(layer, table, seen, catalog); });
  if (json.has("updates")) table.updates = list_at(json["updates"], update_from_json);
  return table;
}

}  // namespace moetune
