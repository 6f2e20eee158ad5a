// Grids and the answer of `tune`.
#include "cli/winners.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/stats.h"
#include "cli/wording.h"

namespace moetune {
namespace {

constexpr size_t kNamed = 3;  // noisy cells, in a sentence

// Names of all rivals in the table, in the order of their first appearance.
std::vector<std::string> rival_names(const TunedTable& table) {
  std::vector<std::string> names;
  for (const Entry& entry : table.entries)
    for (const Rival& rival : entry.rivals)
      if (std::find(names.begin(), names.end(), rival.name) == names.end()) names.push_back(rival.name);
  return names;
}

// Whether the entry's ratio to this rival may be told as a fact.
bool is_sure(const Entry& entry, const Rival* rival) {
  return entry.skipped.empty() && rival && rival->ratio > 0 &&
         log_half_width(rival->ratio_interval) <= kUncertainRatio && distrust(entry).empty();
}

// "1.35x as fast as the default", over the cells that met this rival and can be trusted.
std::string against(const TunedTable& table, const std::string& name, int64_t won) {
  std::vector<double> speedups;
  for (const Entry& entry : table.entries)
    if (const Rival* rival = find_rival(entry, name); is_sure(entry, rival)) speedups.push_back(1 / rival->ratio);
  if (speedups.empty()) return "";
  const auto count = static_cast<int64_t>(speedups.size());
  return fmt::format("{} as fast as {}{}", factor_text(geometric_mean(speedups)),
                     name == "default" ? "the default" : name,
                     count < won ? fmt::format(" in {}", counted(count, "cell", "cells")) : "");
}

std::string marks(const Entry& entry) {
  return fmt::format("{}{}", entry.complete ? "" : " (stopped early)",
                     distrust(entry).empty() ? "" : " (too noisy to trust)");
}

}  // namespace

Grid winners_grid(const TunedTable& table) {
  const std::vector<std::string> rivals = rival_names(table);
  Grid grid{{{"cell"}, {"winner"}, {"time", true}}, {}};
  for (const std::string& rival : rivals) grid.columns.push_back({"vs " + rival, true});
  grid.columns.push_back({"TFLOP/s", true});
  grid.columns.push_back({"TB/s", true});
  for (const Entry& entry : table.entries) {
    std::vector<std::string> row = {id(entry.cell)};
    if (!entry.skipped.empty()) {
      row.push_back("none: " + entry.skipped);
      row.resize(grid.columns.size());
    } else {
      row.push_back(text(entry.candidate) + marks(entry));
      row.push_back(time_text(entry.measurement));
      const bool noisy = !distrust(entry).empty();
      for (const std::string& rival : rivals) row.push_back(noisy ? "noisy" : speedup_text(find_rival(entry, rival)));
      row.push_back(fmt::format("{:.4g}", tflops(entry)));
      row.push_back(fmt::format("{:.3g}", terabytes_per_second(entry)));
    }
    grid.rows.push_back(std::move(row));
  }
  return grid;
}

Grid routing_grid(const TunedTable& table) {
  Grid grid{{{"cell"}}, {}};
  for (const Column& column : figures_columns()) grid.columns.push_back(column);
  grid.columns.push_back({"occupancy", true});
  const bool any_loss = std::any_of(table.entries.begin(), table.entries.end(),
                                    [&](const Entry& entry) { return loss_to_balanced(table, entry).has_value(); });
  if (any_loss) grid.columns.push_back({"loss to balanced", true});
  for (const Entry& entry : table.entries) {
    std::vector<std::string> row = {id(entry.cell)};
    for (std::string& text : figures_row(entry.figures, entry.cell.shape.layer.local_experts()))
      row.push_back(std::move(text));
    row.push_back(entry.skipped.empty() ? fmt::format("{:.0f} %", 100 * entry.occupancy) : "");
    const std::optional<double> loss = loss_to_balanced(table, entry);
    if (any_loss) row.push_back(loss ? fmt::format("{:+.1f} %", 100 * *loss) : "");
    grid.rows.push_back(std::move(row));
  }
  return grid;
}

std::string noise_sentence(const TunedTable& table) {
  std::vector<std::string> noisy;
  for (const Entry& entry : table.entries)
    if (const std::string reason = distrust(entry); !reason.empty())
      noisy.push_back(fmt::format("{} ({})", id(entry.cell), reason));
  if (noisy.empty()) return "";
  const size_t count = noisy.size();
  if (count > kNamed) noisy.resize(kNamed), noisy.push_back(fmt::format("and {} more", count - kNamed));
  return fmt::format("{} of {} {} too noisy to trust: {}; tune again with a longer --wait or on a quieter machine.",
                     count, counted(static_cast<int64_t>(table.entries.size()), "cell", "cells"),
                     count == 1 ? "is" : "are", fmt::join(noisy, ", "));
}

std::string answer(const TunedTable& table, size_t cells) {
  int64_t won = 0;
  for (const Entry& entry : table.entries) won += entry.skipped.empty();
  std::string sentence = fmt::format("{} of {} tuned", won, counted(static_cast<int64_t>(cells), "cell", "cells"));
  std::vector<std::string> facts;
  for (const std::string& name : rival_names(table))
    if (std::string fact = against(table, name, won); !fact.empty() && facts.size() < 2)
      facts.push_back(std::move(fact));
  if (facts.empty())
    sentence += ".";
  else
    sentence = fmt::format("{}: the {} {}{}.", sentence, won == 1 ? "winner is" : "winners are",
                           fmt::join(facts, " and "), won == 1 ? "" : " (geometric means)");
  const std::string noise = noise_sentence(table);
  return noise.empty() ? sentence : sentence + " " + noise;
}

}  // namespace moetune
