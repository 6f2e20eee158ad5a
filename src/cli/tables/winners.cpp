// Grids and the answer of `tune`.
#include "cli/tables/winners.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/stats.h"
#include "base/text/text.h"
#include "base/text/units.h"
#include "record/layer.h"
#include "record/step.h"
#include "variant/variant.h"

namespace moetune {
namespace {

constexpr size_t kNamed = 3;  // noisy cells, in a sentence

// Names of all rivals in the table: the default, then baselines, the fastest first.
std::vector<std::string> ranked_rivals(const TunedTable& table) {
  std::map<std::string, std::vector<double>> ratios;
  for (const Entry& entry : table.entries)
    for (const Rival& rival : entry.rivals)
      if (rival.ratio.value > 0) ratios[rival.name].push_back(rival.ratio.value);
  std::vector<std::string> names = mapped(ratios, [](const auto& one) { return one.first; });
  std::ranges::stable_sort(
      names, {}, [&](const std::string& name) { return name == "default" ? 0 : 1 / geometric_mean(ratios.at(name)); });
  return names;
}

// Whether the entry's ratio to this rival is certain enough to claim.
bool is_sure(const Entry& entry, const Rival* rival) {
  return entry.skipped.empty() && rival && rival->ratio.value > 0 && log_half_width(rival->ratio) <= kUncertainRatio &&
         distrust(entry).empty();
}

// "1.35x as fast as the default", over the cells that met this rival and can be trusted.
std::string against(const TunedTable& table, const std::string& name, int64_t won) {
  std::vector<double> speedups;
  for (const Entry& entry : table.entries)
    if (const Rival* rival = find_rival(entry, name); is_sure(entry, rival)) speedups.push_back(1 / rival->ratio.value);
  if (speedups.empty()) return "";
  const auto count = static_cast<int64_t>(speedups.size());
  return fmt::format("{} as fast as {}{}", factor_text(geometric_mean(speedups)),
                     name == "default" ? "the default" : name,
                     count < won ? fmt::format(" in {}", counted(count, "cell")) : "");
}

std::string marks(const Entry& entry) {
  return fmt::format("{}{}", entry.complete ? "" : " (stopped early)",
                     distrust(entry).empty() ? "" : " (too noisy to trust)");
}

// Places of the figures to show: no rows, which follow from the tokens; beside losses no effective experts, which
// follow from the CV.
std::vector<size_t> shown_figures(bool any_loss) {
  const std::vector<Column> all = figures_columns();
  std::vector<size_t> shown;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].title != "rows" && !(any_loss && all[i].title == "effective")) shown.push_back(i);
  return shown;
}

Grid routing_grid(const Entries& entries, const TunedTable& table, bool verbose) {
  const bool any_loss =
      std::ranges::any_of(entries, [&](const Entry* entry) { return !loss_to_balanced(table, *entry).empty(); });
  const std::vector<size_t> shown = shown_figures(any_loss && !verbose);
  Grid grid = cell_grid({});
  for (const size_t i : shown) grid.columns.push_back(figures_columns()[i]);
  grid.columns.push_back({"occupancy", true});
  if (any_loss) grid.columns.push_back({"loss", true});
  for (const Entry* entry : entries) {
    std::vector<std::string> row;
    const std::vector<std::string> texts = figures_row(entry->figures, entry->cell.shape.layer.local_experts());
    for (const size_t i : shown) row.push_back(texts[i]);
    row.push_back(entry->skipped.empty() ? fmt::format("{:.0f} %", 100 * entry->occupancy) : "");
    if (any_loss) row.push_back(loss_to_balanced(table, *entry));
    add_row(grid, entry->cell, row);
  }
  return grid;
}

// `rivals`: the names of those that the winners are compared with.
Grid times_grid(const Entries& entries, const std::vector<std::string>& rivals, bool verbose) {
  Grid grid = cell_grid({{"time", true}});
  const std::vector<Metric> metrics =
      metrics_of(mapped(entries, [](const Entry* entry) { return &entry->measurement; }));
  for (const Metric metric : metrics) grid.columns.push_back({title(metric), true});
  for (const std::string& rival : rivals) grid.columns.push_back({"vs " + rival, true});
  if (verbose)
    grid.columns.insert(grid.columns.end(), {{"min to max", true}, {"TFLOP/s", true}, {"TB/s", true}, {"winner"}});
  for (const Entry* entry : entries) {
    std::vector<std::string> row;
    if (!entry->skipped.empty()) {
      row = {"no winner"};
      row.resize(grid.columns.size() - 2);
      if (verbose) row.back() = "none: " + entry->skipped;
    } else {
      const bool noisy = !distrust(*entry).empty();
      row.push_back(time_text(entry->measurement.time));
      for (const Metric metric : metrics) row.push_back(metric_text(entry->measurement, metric));
      for (const std::string& rival : rivals)
        row.push_back(noisy ? "noisy" : speedup_text(find_rival(*entry, rival), verbose));
      if (verbose) {
        row.push_back(range_text(entry->measurement));
        row.push_back(fmt::format("{:.4g}", tflops(*entry)));
        row.push_back(fmt::format("{:.3g}", terabytes_per_second(*entry)));
        row.push_back(text(entry->candidate) + marks(*entry));
      }
    }
    add_row(grid, entry->cell, row);
  }
  return grid;
}

// The default's values of the knobs by which the winner differs; its name alone if it is of another variant.
std::string default_text(const Entry& entry) {
  const Rival* fallback = find_rival(entry, "default");
  if (!fallback || !entry.skipped.empty()) return "";
  const Candidate& candidate = fallback->candidate;
  return same_variant(candidate, entry.candidate) ? difference(candidate, entry.candidate) : candidate.variant->name;
}

Grid winners_grid(const Entries& entries, const DeviceInfo& device) {
  Grid grid = cell_grid({{"winner (knobs that differ from the default)"}, {"default"}});
  for (const Entry* entry : entries)
    add_row(grid, entry->cell,
            {entry->skipped.empty() ? winner_text(*entry, device) + marks(*entry) : "none: " + entry->skipped,
             default_text(*entry)});
  return grid;
}

}  // namespace

std::string results_text(const TunedTable& table, const Style& style) {
  std::vector<std::string> rivals = ranked_rivals(table);
  const auto is_baseline = [](const std::string& name) { return name != "default"; };
  const auto first = std::ranges::find_if(rivals, is_baseline);
  if (!style.verbose && first != rivals.end())
    rivals.erase(std::remove_if(first + 1, rivals.end(), is_baseline), rivals.end());
  std::vector<HeadedTable> tables;
  for (const Entries& entries : by_shape(table)) {
    const std::vector<std::string> heading = {title(entries[0]->cell.shape)};
    tables.push_back({heading, routing_grid(entries, table, style.verbose)});
    tables.push_back({heading, times_grid(entries, rivals, style.verbose)});
    if (!style.verbose) tables.push_back({heading, winners_grid(entries, table.device)});
  }
  std::ranges::move(layer_tables(table, style.verbose), std::back_inserter(tables));
  std::ranges::move(step_tables(cell_times(table)), std::back_inserter(tables));
  return headed_tables_text(tables, style);
}

std::string noise_sentence(const TunedTable& table) {
  std::vector<std::string> noisy;
  for (const Entry& entry : table.entries)
    if (const std::string reason = distrust(entry); !reason.empty())
      noisy.push_back(fmt::format("{} ({})", id(entry.cell), reason));
  if (noisy.empty()) return "";
  return fmt::format("{} of {} {} too noisy to trust: {}; tune again with a longer --wait or on a quieter machine.",
                     noisy.size(), counted(table.entries.size(), "cell"), noisy.size() == 1 ? "is" : "are",
                     some_of(noisy, kNamed));
}

std::string answer(const TunedTable& table, size_t cells) {
  int64_t won = 0, trusted = 0;
  for (const Entry& entry : table.entries) {
    won += entry.skipped.empty();
    trusted += entry.skipped.empty() && distrust(entry).empty();
  }
  std::string sentence = fmt::format("{} of {} tuned", won, counted(cells, "cell"));
  const std::string noise = noise_sentence(table);
  if (won > 0 && trusted == 0 && table.entries.size() == cells) return noise;
  std::vector<std::string> facts;
  for (const std::string& name : ranked_rivals(table))
    if (std::string fact = against(table, name, won); !fact.empty() && facts.size() < 2)
      facts.push_back(std::move(fact));
  if (!facts.empty())
    sentence += fmt::format(": the {} {}{}", won == 1 ? "winner is" : "winners are", fmt::join(facts, " and "),
                            won == 1 ? "" : " (geometric means)");
  return sentence + "." + (noise.empty() ? "" : " " + noise);
}

}  // namespace moetune
