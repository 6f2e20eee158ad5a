// The table as CSV.
#include <fmt/format.h>

#include "base/grid.h"
#include "table/text_export.h"
#include "variant/variant.h"

namespace moetune {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;  // column, value

std::string number(double value, int digits = 6) {
  return rounded(value, digits).is_null() ? "" : fmt::format("{:.{}g}", value, digits);
}

std::string boolean(bool value) { return value ? "true" : "false"; }

void add_cell(Fields& fields, const Cell& cell) {
  const Layer& layer = cell.shape.layer;
  const auto add = [&](std::string_view column, auto value) { fields.emplace_back(column, fmt::format("{}", value)); };
  add("id", id(cell));
  add("model", layer.model);
  add("projection", name(layer.projection));
  add("op", name(cell.shape.op));
  add("dtype", name(layer.dtype));
  add("experts", layer.experts);
  add("top_k", layer.top_k);
  add("n", layer.n);
  add("k", layer.k);
  add("tp", layer.tp);
  add("ep", layer.ep);
  add("permute_x", boolean(cell.shape.fusion.permute_x));
  add("permute_y", boolean(cell.shape.fusion.permute_y));
  add("topk_weights", boolean(cell.shape.fusion.topk_weights));
  add("tokens", cell.tokens);
  add("routing", text(cell.routing));
  add("seed", cell.seed);
}

void add_figures(Fields& fields, const RoutingFigures& figures) {
  fields.emplace_back("rows", std::to_string(figures.rows));
  fields.emplace_back("active_experts", std::to_string(figures.active_experts));
  fields.emplace_back("max_rows", std::to_string(figures.max_rows));
  fields.emplace_back("max_over_mean", number(figures.max_over_mean, 5));
  fields.emplace_back("cv", number(figures.cv, 5));
  fields.emplace_back("effective_experts", number(figures.effective_experts, 5));
}

// A knob that the variant doesn't have stays empty: 0 would be a value.
void add_candidate(Fields& fields, const Candidate& candidate, bool won) {
  fields.emplace_back("variant", won ? candidate.variant : "");
  const Variant* variant = won ? &find_variant(candidate.variant) : nullptr;
  for (const std::string& name : knob_names()) {
    std::string value;
    for (size_t i = 0; variant && i < variant->knobs.size(); ++i)
      if (variant->knobs[i].name == name) value = knob_text(variant->knobs[i], candidate.values[i]);
    fields.emplace_back(name, value);
  }
}

void add_rival(Fields& fields, const std::string& prefix, const Rival* rival) {
  fields.emplace_back(prefix + "_us", rival ? number(rival->measurement.seconds * 1e6) : "");
  fields.emplace_back(prefix + "_speedup", rival ? number(1 / rival->ratio, 4) : "");
  fields.emplace_back(prefix + "_speedup_low", rival ? number(1 / rival->ratio_interval.high, 4) : "");
  fields.emplace_back(prefix + "_speedup_high", rival ? number(1 / rival->ratio_interval.low, 4) : "");
}

void add_rivals(Fields& fields, const Entry& entry) {
  const Rival* baseline = nullptr;
  std::string others;
  for (const Rival& rival : entry.rivals) {
    if (rival.name == "default") continue;
    if (!baseline)
      baseline = &rival;
    else
      others += fmt::format("{}{}={}", others.empty() ? "" : ";", rival.name, number(rival.measurement.seconds * 1e6));
  }
  add_rival(fields, "default", find_rival(entry, "default"));
  fields.emplace_back("baseline", baseline ? baseline->name : "");
  add_rival(fields, "baseline", baseline);
  fields.emplace_back("other_baselines_us", others);
}

Fields fields_of(const Entry& entry, const TunedTable& table) {
  const bool won = entry.skipped.empty();
  const Measurement& time = entry.measurement;
  const double roof = roof_seconds(entry, table.device);
  Fields fields = {{"device", table.device.name}, {"regime", table.regime}};
  const auto add = [&](std::string_view column, std::string value) {
    fields.emplace_back(column, won ? std::move(value) : std::string());
  };
  add_cell(fields, entry.cell);
  add_figures(fields, entry.figures);
  add_candidate(fields, entry.candidate, won);
  add("median_us", number(time.seconds * 1e6));
  add("low_us", number(time.interval.low * 1e6));
  add("high_us", number(time.interval.high * 1e6));
  add("samples", std::to_string(time.samples));
  add("launches", std::to_string(time.launches));
  add("clock_mhz", time.clock_mhz > 0 ? number(time.clock_mhz, 5) : "");
  add("tflops", number(tflops(entry), 4));
  add("tbps", number(terabytes_per_second(entry), 4));
  add("percent_of_roof", roof > 0 && time.seconds > 0 ? number(100 * roof / time.seconds, 4) : "");
  add("occupancy", number(entry.occupancy, 5));
  add_rivals(fields, entry);
  add("normalised_error", number(entry.verdict.normalised_error, 4));
  add("max_ulps", number(entry.verdict.max_ulps, 4));
  add("ties", std::to_string(entry.ties.size()));
  fields.emplace_back("legal", std::to_string(entry.legal));
  fields.emplace_back("measured", std::to_string(entry.measured));
  fields.emplace_back("failed", std::to_string(entry.failed));
  fields.emplace_back("complete", boolean(entry.complete));
  fields.emplace_back("skipped", entry.skipped);
  fields.emplace_back("untrusted", distrust(entry));
  return fields;
}

}  // namespace

Export export_csv(const TunedTable& table) {
  Entry blank;
  blank.skipped = "-";
  Grid grid;
  for (const auto& field : fields_of(blank, table)) grid.columns.push_back({field.first});
  for (const Entry& entry : table.entries) {
    grid.rows.emplace_back();
    for (const auto& field : fields_of(entry, table)) grid.rows.back().push_back(field.second);
  }
  return {.files = {{"", csv(grid)}}, .notes = {}};
}

}  // namespace moetune
