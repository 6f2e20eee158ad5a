// Columns and their values.
#include "record/fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/grid.h"
#include "variant/catalog.h"

namespace moetune {

std::string number_field(double value, int digits) {
  return rounded(value, digits).is_null() ? "" : fmt::format("{:.{}g}", value, digits);
}

std::string boolean_field(bool value) { return value ? "true" : "false"; }

void add_cell(Fields& fields, const Cell& cell) {
  const Layer& layer = cell.shape.layer;
  const auto add = [&](std::string_view column, auto value) { fields.emplace_back(column, fmt::format("{}", value)); };
  add("id", id(cell));
  add("model", layer.model);
  add("projection", name(layer.projection));
  add("op", name(cell.shape.op));
  add("dtype", name(layer.dtype));
  add("scales", name(layer.scales));
  add("out_dtype", name(result_dtype(layer)));
  add("fast_sums", boolean_field(layer.fast_sums));
  add("experts", layer.experts);
  add("top_k", layer.top_k);
  add("n", layer.n);
  add("k", layer.k);
  add("tp", layer.tp);
  add("ep", layer.ep);
  add("zero_experts", layer.zero_experts);
  for (const FusionPart& part : kFusionParts) add(part.name, boolean_field(cell.shape.fusion.*part.on));
  add("tokens", cell.tokens);
  add("routing", text(cell.routing));
  add("seed", cell.seed);
}

void add_figures(Fields& fields, const RoutingFigures& figures) {
  fields.emplace_back("rows", std::to_string(figures.rows));
  fields.emplace_back("active_experts", std::to_string(figures.active_experts));
  fields.emplace_back("max_rows", std::to_string(figures.max_rows));
  fields.emplace_back("max_over_mean", number_field(figures.max_over_mean, 5));
  fields.emplace_back("cv", number_field(figures.cv, 5));
  fields.emplace_back("effective_experts", number_field(figures.effective_experts, 5));
}

// A knob that the variant doesn't have stays empty: 0 would be a value.
void add_candidate(Fields& fields, const Candidate* candidate) {
  static const std::vector<std::string> names = Catalog().knob_names();
  if (candidate && !candidate->variant) candidate = nullptr;
  fields.emplace_back("variant", candidate ? candidate->variant->name : "");
  const auto words = candidate ? knob_words(*candidate) : decltype(knob_words(*candidate))();
  for (const std::string& name : names) {
    const auto found = std::ranges::find(words, name, [](const auto& word) { return word.first; });
    fields.emplace_back(name, found == words.end() ? "" : found->second);
  }
  for (const auto& [name, value] : words)  // of a pack
    if (std::ranges::find(names, name) == names.end()) fields.emplace_back(name, value);
}

void add_measurement(Fields& fields, const Measurement* time) {
  const auto add = [&](std::string_view column, auto&& value) {
    fields.emplace_back(column, time ? value() : std::string());
  };
  add("median_us", [&] { return number_field(time->time.value * 1e6); });
  add("low_us", [&] { return number_field(time->time.low * 1e6); });
  add("high_us", [&] { return number_field(time->time.high * 1e6); });
  add("samples", [&] { return std::to_string(time->time.samples); });
  add("launches", [&] { return std::to_string(time->launches); });
  add("clock_mhz", [&] { return time->clock_mhz > 0 ? number_field(time->clock_mhz, 5) : ""; });
}

void add_verdict(Fields& fields, const Verdict* verdict) {
  fields.emplace_back("normalised_error", verdict ? number_field(verdict->normalised_error, 4) : "");
  fields.emplace_back("max_ulps", verdict ? number_field(verdict->max_ulps, 4) : "");
}

std::string csv_text(const Fields& columns, const std::vector<Fields>& rows) {
  Grid grid;
  const auto place = [&](std::string_view name) { return std::ranges::find(grid.columns, name, &Column::title); };
  for (const auto& field : columns) grid.columns.push_back({field.first});
  for (const Fields& row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      if (place(row[i].first) == grid.columns.end())
        grid.columns.insert(i == 0 ? grid.columns.begin() : place(row[i - 1].first) + 1, {row[i].first});
  for (const Fields& row : rows) {
    std::vector<std::string>& cells = grid.rows.emplace_back(grid.columns.size());
    for (const auto& [name, value] : row) cells[static_cast<size_t>(place(name) - grid.columns.begin())] = value;
  }
  return csv(grid);
}

}  // namespace moetune
