// The table as CSV.
#include <fmt/format.h>

#include <algorithm>

#include "export/exporter.h"
#include "record/fields.h"
#include "record/layer.h"
#include "record/step.h"
#include "variant/variant.h"

namespace moetune {
namespace {

void add_rival(Fields& fields, const std::string& prefix, const Rival* rival) {
  fields.emplace_back(prefix + "_us", rival ? number_field(rival->measurement.time.value * 1e6) : "");
  fields.emplace_back(prefix + "_speedup", rival ? number_field(1 / rival->ratio.value, 4) : "");
  fields.emplace_back(prefix + "_speedup_low", rival ? number_field(1 / rival->ratio.high, 4) : "");
  fields.emplace_back(prefix + "_speedup_high", rival ? number_field(1 / rival->ratio.low, 4) : "");
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
  const double seconds = entry.measurement.time.value;
  const double roof = roof_seconds(entry, table.device);
  Fields fields = {{"device", table.device.name}, {"regime", std::string(name(table.regime))}};
  const auto add = [&](std::string_view column, std::string value) {
    fields.emplace_back(column, won ? std::move(value) : std::string());
  };
  add_cell(fields, entry.cell);
  add_figures(fields, entry.figures);
  add_candidate(fields, won ? &entry.candidate : nullptr);
  add_measurement(fields, won ? &entry.measurement : nullptr);
  add("tflops", number_field(tflops(entry), 4));
  add("tbps", number_field(terabytes_per_second(entry), 4));
  add("percent_of_roof", roof > 0 && seconds > 0 ? number_field(100 * roof / seconds, 4) : "");
  add("occupancy", number_field(entry.occupancy, 5));
  add_rivals(fields, entry);
  add_verdict(fields, won ? &entry.verdict : nullptr);
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

}  // namespace

Export export_csv(const TunedTable& table) {
  std::vector<Fields> rows;
  const std::vector<Step> steps = training_steps(cell_times(table));
  for (size_t i = 0; i < table.entries.size(); ++i)
    rows.push_back(fields_of(table.entries[i], table, step_of(steps, i)));
  Entry blank;
  blank.skipped = "-";
  return {.files = {{"", csv_text(fields_of(blank, table, nullptr), rows)}}, .notes = {}};
}

}  // namespace moetune
