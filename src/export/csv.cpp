// The table as CSV. Units stand in the names of columns; what a row has no value for is empty.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/text/text.h"
#include "export/exporter.h"
#include "record/layer.h"
#include "record/step.h"
#include "variant/catalog.h"

namespace moetune {
namespace {

// `digits` significant digits; nothing for NaN and infinities.
std::string number_field(double value, int digits = 6) {
  return rounded(value, digits).is_null() ? "" : fmt::format("{:.{}g}", value, digits);
}

std::string boolean_field(bool value) { return value ? "true" : "false"; }

// The variant, a column for each knob of any variant that is built in, and those of a pack's candidate. A knob that the
// variant does not have stays empty: 0 would be a value.
void add_candidate(Fields& fields, const Entry& entry) {
  static const std::vector<std::string> names = Catalog().knob_names();
  Fields words;
  if (entry.skipped.empty()) words = knob_words(entry.candidate);
  fields.emplace_back("variant", entry.skipped.empty() ? entry.candidate.variant->name : "");
  for (const std::string& name : names) {
    const auto found = std::ranges::find(words, name, &Fields::value_type::first);
    fields.emplace_back(name, found == words.end() ? "" : found->second);
  }
  for (const auto& [name, value] : words)  // of a pack
    if (!contains(names, name)) fields.emplace_back(name, value);
}

// Columns of the metrics that were measured: "energy_j", "energy_j_low", "default_energy_j".
void add_metrics(Fields& fields, const std::string& prefix, const Measurement& measurement) {
  for (const auto& [metric, value] : measurement.metrics) {
    const std::string name = fmt::format("{}{}", prefix, info(metric).key);
    fields.emplace_back(name, number_field(value.value));
    fields.emplace_back(name + "_low", number_field(value.low));
    fields.emplace_back(name + "_high", number_field(value.high));
  }
}

void add_rival(Fields& fields, const std::string& prefix, const Rival* rival) {
  fields.emplace_back(prefix + "_us", rival ? number_field(rival->measurement.time.value * 1e6) : "");
  fields.emplace_back(prefix + "_speedup", rival ? number_field(1 / rival->ratio.value, 4) : "");
  fields.emplace_back(prefix + "_speedup_low", rival ? number_field(1 / rival->ratio.high, 4) : "");
  fields.emplace_back(prefix + "_speedup_high", rival ? number_field(1 / rival->ratio.low, 4) : "");
  if (rival) add_metrics(fields, prefix + "_", rival->measurement);
}

void add_rivals(Fields& fields, const Entry& entry) {
  const Rival* baseline = nullptr;
  std::string others;
  for (const Rival& rival : entry.rivals) {
    if (rival.name == "default") continue;
    if (!baseline)
      baseline = &rival;
    else
      others += fmt::format("{}{}={}", others.empty() ? "" : ";", rival.name,
                            number_field(rival.measurement.time.value * 1e6));
  }
  add_rival(fields, "default", find_rival(entry, "default"));
  fields.emplace_back("baseline", baseline ? baseline->name : "");
  add_rival(fields, "baseline", baseline);
  fields.emplace_back("other_baselines_us", others);
}

// Sums over the six cells of the entry's training step; `step` may be null.
void add_step(Fields& fields, const Step* step, const Entry& entry) {
  const auto baseline = std::ranges::find_if(entry.rivals, [](const Rival& rival) { return rival.name != "default"; });
  const auto add = [&](std::string_view column, const std::string& contender) {
    const ContenderTime* sum = step ? find_sum(*step, contender) : nullptr;
    fields.emplace_back(column, sum ? number_field(sum->time.value * 1e6) : "");
  };
  add("step_us", "winners");
  add("step_default_us", "default");
  add("step_baseline_us", baseline == entry.rivals.end() ? "" : baseline->name);
}

// Of the entry's layer, which may be null: both launches, and this one alone with its candidate.
void add_layer(Fields& fields, const TunedLayer* layer, const Entry& entry) {
  const bool up = layer && layer->up == entry.cell;
  const auto time = [](const Measurement& of) { return number_field(of.time.value * 1e6); };
  fields.emplace_back("layer_us", layer ? time(layer->measurement) : "");
  fields.emplace_back("layer_part_us", layer ? time(up ? layer->up_measurement : layer->down_measurement) : "");
  fields.emplace_back("layer_candidate", layer ? text(up ? layer->up_candidate : layer->down_candidate) : "");
}

Fields fields_of(const Entry& entry, const TunedTable& table, const Step* step) {
  const bool won = entry.skipped.empty();
  const Measurement& measurement = entry.measurement;
  const Estimate& time = measurement.time;
  const double roof = roof_seconds(entry, table.device);
  Fields fields = {{"device", table.device.name}, {"regime", std::string(name(table.regime))}};
  const auto add = [&](std::string_view column, std::string value) {
    fields.emplace_back(column, won ? std::move(value) : std::string());
  };
  std::ranges::copy(fields_of(entry.cell), std::back_inserter(fields));
  add_figures(fields, entry.figures);
  add_candidate(fields, entry);
  add("median_us", number_field(time.value * 1e6));
  add("low_us", number_field(time.low * 1e6));
  add("high_us", number_field(time.high * 1e6));
  add("samples", std::to_string(time.samples));
  add("launches", std::to_string(measurement.launches));
  add("clock_mhz", measurement.clock_mhz > 0 ? number_field(measurement.clock_mhz, 5) : "");
  add_metrics(fields, "", measurement);
  add("tflops", number_field(tflops(entry), 4));
  add("tbps", number_field(terabytes_per_second(entry), 4));
  add("percent_of_roof", roof > 0 && time.value > 0 ? number_field(100 * roof / time.value, 4) : "");
  add("occupancy", number_field(entry.occupancy, 5));
  add_rivals(fields, entry);
  add("normalised_error", number_field(entry.verdict.normalised_error, 4));
  add("max_ulps", number_field(entry.verdict.max_ulps, 4));
  add("ties", std::to_string(entry.ties.size()));
  fields.emplace_back("legal", std::to_string(entry.legal));
  fields.emplace_back("measured", std::to_string(entry.measured));
  fields.emplace_back("failed", std::to_string(entry.failed));
  fields.emplace_back("complete", boolean_field(entry.complete));
  fields.emplace_back("skipped", entry.skipped);
  fields.emplace_back("untrusted", distrust(entry));
  add_layer(fields, won ? find_layer(table, entry.cell) : nullptr, entry);
  add_step(fields, step, entry);
  return fields;
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return '"' + replaced(text, "\"", {"\"\""}) + '"';
}

}  // namespace

void add_figures(Fields& fields, const RoutingFigures& figures) {
  fields.emplace_back("rows", std::to_string(figures.rows));
  fields.emplace_back("active_experts", std::to_string(figures.active_experts));
  fields.emplace_back("max_rows", std::to_string(figures.max_rows));
  fields.emplace_back("max_over_mean", number_field(figures.max_over_mean, 5));
  fields.emplace_back("cv", number_field(figures.cv, 5));
  fields.emplace_back("effective_experts", number_field(figures.effective_experts, 5));
}

std::string csv_text(const std::vector<Fields>& rows, size_t first) {
  std::vector<std::string> columns;
  const auto place = [&](const std::string& name) { return std::ranges::find(columns, name); };
  for (const Fields& row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      if (place(row[i].first) == columns.end())
        columns.insert(i == 0 ? columns.begin() : place(row[i - 1].first) + 1, row[i].first);
  std::string text = fmt::format("{}\n", fmt::join(mapped(columns, quoted), ","));
  for (const Fields& row : std::span(rows).subspan(first)) {
    std::vector<std::string> values(columns.size());
    for (const auto& [name, value] : row) values[static_cast<size_t>(place(name) - columns.begin())] = quoted(value);
    text += fmt::format("{}\n", fmt::join(values, ","));
  }
  return text;
}

Export export_csv(const TunedTable& table) {
  Entry blank;
  blank.skipped = "-";
  std::vector<Fields> rows = {fields_of(blank, table, nullptr)};
  const std::vector<Step> steps = training_steps(cell_times(table));
  for (size_t i = 0; i < table.entries.size(); ++i)
    rows.push_back(fields_of(table.entries[i], table, step_of(steps, i)));
  return {.files = {{"", csv_text(rows, 1)}}};
}

}  // namespace moetune
