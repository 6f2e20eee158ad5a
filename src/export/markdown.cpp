// The table as Markdown that people like to read.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/text/grid.h"
#include "base/text/units.h"
#include "export/exporter.h"
#include "record/layer.h"
#include "record/step.h"

namespace moetune {
namespace {

std::vector<std::string> row(const Entry& entry, const std::vector<std::string>& rivals, const DeviceInfo& device) {
  std::vector<std::string> cells = {std::to_string(entry.cell.tokens), text(entry.cell.routing),
                                    fmt::format("{:.1f}", entry.figures.max_over_mean)};
  if (!entry.skipped.empty()) {
    cells.push_back("none: " + entry.skipped);
    cells.resize(9 + rivals.size());
    return cells;
  }
  const double roof = roof_seconds(entry, device);
  cells.push_back(text(entry.candidate) + (entry.complete ? "" : " (stopped early)") +
                  (distrust(entry).empty() ? "" : " (too noisy to trust)"));
  cells.push_back(time_text(entry.measurement.time));
  cells.push_back(fmt::format("{:.4g}", tflops(entry)));
  cells.push_back(fmt::format("{:.3g}", terabytes_per_second(entry)));
  const double percent = 100 * roof / entry.measurement.time.value;
  const std::string told = percent < 9.95 ? fmt::format("{:.2g} %", percent) : fmt::format("{:.0f} %", percent);
  cells.push_back(roof > 0 ? told : "");
  const bool noisy = !distrust(entry).empty();
  for (const std::string& name : rivals) {
    const Rival* rival = find_rival(entry, name);
    cells.push_back(!rival ? "" : noisy ? "noisy" : speedup_text(rival));
  }
  cells.push_back(std::to_string(entry.ties.size()));
  return cells;
}

// The cost of uneven rows beside their figures; nothing where no entry has balanced rows to compare with.
std::string routing_section(const Entries& entries, const TunedTable& table) {
  Grid grid = titled("tokens>|routing|rows>|active experts>|max/mean>|occupancy>|time>|TFLOP/s>|loss>");
  std::vector<double> losses;
  for (const Entry* entry : entries) {
    if (!entry->skipped.empty()) continue;
    const std::optional<double> loss = loss_to_balanced(table, *entry);
    if (loss) losses.push_back(*loss);
    const RoutingFigures& f = entry->figures;
    grid.rows.push_back({std::to_string(entry->cell.tokens), text(entry->cell.routing), std::to_string(f.rows),
                         fmt::format("{}/{}", f.active_experts, entry->cell.shape.layer.local_experts()),
                         fmt::format("{:.2f}", f.max_over_mean), fmt::format("{:.1f} %", 100 * entry->occupancy),
                         format_time(entry->measurement.time.value), fmt::format("{:.4g}", tflops(*entry)),
                         loss ? fmt::format("{:+.1f} %", 100 * *loss) : ""});
  }
  if (losses.empty()) return "";
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return fmt::format(
      "\n{}\nLoss is how much longer a launch takes than with balanced rows: {:+.1f} % on average, {:+.1f} % at the "
      "most.\nOccupancy is the share of the rows of all tiles that an expert really has.\n",
      markdown(grid), 100 * sum / static_cast<double>(losses.size()),
      100 * *std::max_element(losses.begin(), losses.end()));
}

std::string section(const Entries& entries, const TunedTable& table) {
  const std::vector<std::string> rivals = rival_names(entries);
  Grid grid = titled("tokens>|routing|max/mean>|winner|time>|TFLOP/s>|TB/s>|of roof>");
  for (const std::string& rival : rivals) grid.columns.push_back({"vs " + rival, true});
  grid.columns.push_back({"ties", true});
  for (const Entry* entry : entries) grid.rows.push_back(row(*entry, rivals, table.device));
  return fmt::format("## {}\n\n{}{}\n", markdown_text(title(entries[0]->cell.shape)), markdown(grid),
                     routing_section(entries, table));
}

std::string layers_section(const TunedTable& table) {
  const Grid grid = layers_grid(table);
  return grid.rows.empty() ? "" : fmt::format("## Layers: up and down tuned as one\n\n{}\n", markdown(grid));
}

std::string steps_section(const TunedTable& table) {
  const Grid grid = steps_grid(cell_times(table));
  return grid.rows.empty() ? "" : fmt::format("## Training steps\n\n{}\n", markdown(grid));
}

std::string choices_section(const TunedTable& table) {
  Grid grid = titled("layer|for tokens|robust choice|worst regret>|mean regret>|cells>");
  for (const RobustChoice& choice : table.choices)
    grid.rows.push_back({title(choice.shape()), text(choice.tokens), text(choice.candidate()),
                         fmt::format("{:.1f} %", 100 * worst_regret(choice, choice.chosen)),
                         fmt::format("{:.1f} %", 100 * mean_regret(choice, choice.chosen)),
                         std::to_string(choice.cells.size())});
  if (grid.rows.empty()) return "";
  return fmt::format(
      "## Robust choices\n\n{}\nRegret is how much longer the choice takes in a cell than the fastest contender "
      "there.\n\n",
      markdown(grid));
}

std::string noise_section(const TunedTable& table) {
  std::string lines;
  for (const Entry& entry : table.entries)
    if (const std::string reason = distrust(entry); !reason.empty())
      lines += fmt::format("- {}: {}\n", markdown_text(id(entry.cell)), markdown_text(reason));
  return lines.empty() ? "" : "\nToo noisy to trust, tune again on a quiet machine:\n\n" + lines;
}

}  // namespace

Export export_markdown(const TunedTable& table) {
  std::string out = fmt::format("# Tuned on {} ({})\n\n", markdown_text(table.device.name), name(table.regime));
  const std::vector<Entries> sections = by_shape(table);
  for (const Entries& entries : sections) out += section(entries, table);
  out += layers_section(table) + steps_section(table) + choices_section(table);
  if (sections.empty())
    out += "The table has no entries.\n";
  else
    out +=
        "Times are medians of one launch on cold operands; ± is half of their 95 % interval. \"vs\" is how much\n"
        "faster the winner is than a rival, from paired interleaved rounds: above 1, the winner is faster. Ties are\n"
        "other candidates whose interval overlaps the winner's.\n" +
        noise_section(table);
  return {.files = {{"", out}}, .notes = {}};
}

}  // namespace moetune
