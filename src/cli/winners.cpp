// Grids and the answer of `tune`.
#include "cli/winners.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/stats.h"
#include "base/units.h"
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

using Entries = std::vector<const Entry*>;

// The table's entries layer by layer, in the order of their first appearance.
std::vector<Entries> layers_of(const TunedTable& table) {
  std::vector<Entries> layers;
  for (const Entry& entry : table.entries) {
    const auto same = [&](const Entries& layer) { return layer[0]->cell.shape == entry.cell.shape; };
    const auto found = std::find_if(layers.begin(), layers.end(), same);
    if (found == layers.end())
      layers.push_back({&entry});
    else
      found->push_back(&entry);
  }
  return layers;
}

// What tells the cells of one layer apart.
std::vector<Column> cell_columns() { return {{"tokens", true}, {"routing"}}; }
std::vector<std::string> cell_texts(const Entry& entry) {
  constexpr int kRoutingColumns = 15;
  const std::string seed = entry.cell.seed == 0 ? "" : fmt::format(", seed {}", entry.cell.seed);
  return {fmt::format("{}", entry.cell.tokens), shortened(text(entry.cell.routing) + seed, kRoutingColumns)};
}

Grid routing_grid(const Entries& entries, const TunedTable& table) {
  Grid grid{cell_columns(), {}};
  const std::vector<Column> figures = figures_columns();  // but for the rows: tokens tell as much
  grid.columns.insert(grid.columns.end(), figures.begin() + 1, figures.end());
  grid.columns.push_back({"occupancy", true});
  const bool any_loss = std::any_of(entries.begin(), entries.end(),
                                    [&](const Entry* entry) { return loss_to_balanced(table, *entry).has_value(); });
  if (any_loss) grid.columns.push_back({"loss", true});
  for (const Entry* entry : entries) {
    std::vector<std::string> row = cell_texts(*entry);
    const std::vector<std::string> texts = figures_row(entry->figures, entry->cell.shape.layer.local_experts());
    row.insert(row.end(), texts.begin() + 1, texts.end());
    row.push_back(entry->skipped.empty() ? fmt::format("{:.0f} %", 100 * entry->occupancy) : "");
    const std::optional<double> loss = loss_to_balanced(table, *entry);
    if (any_loss) row.push_back(loss ? fmt::format("{:+.1f} %", 100 * *loss) : "");
    grid.rows.push_back(std::move(row));
  }
  return grid;
}

// `rivals`: whom the winners are compared with.
Grid times_grid(const Entries& entries, const std::vector<std::string>& rivals, bool verbose) {
  Grid grid{cell_columns(), {}};
  grid.columns.push_back({"time", true});
  for (const std::string& rival : rivals) grid.columns.push_back({"vs " + rival, true});
  if (verbose) grid.columns.insert(grid.columns.end(), {{"TFLOP/s", true}, {"TB/s", true}, {"winner"}});
  for (const Entry* entry : entries) {
    std::vector<std::string> row = cell_texts(*entry);
    if (!entry->skipped.empty()) {
      row.push_back("no winner");
      row.resize(grid.columns.size());
      if (verbose) row.back() = "none: " + entry->skipped;
    } else {
      const bool noisy = !distrust(*entry).empty();
      row.push_back(time_text(entry->measurement));
      for (const std::string& rival : rivals)
        row.push_back(noisy ? "noisy" : speedup_text(find_rival(*entry, rival), verbose));
      if (verbose) {
        row.push_back(fmt::format("{:.4g}", tflops(*entry)));
        row.push_back(fmt::format("{:.3g}", terabytes_per_second(*entry)));
        row.push_back(text(entry->candidate) + marks(*entry));
      }
    }
    grid.rows.push_back(std::move(row));
  }
  return grid;
}

// Lines of at most `width` columns, broken between words.
std::vector<std::string> wrapped(const std::string& text, int width) {
  std::vector<std::string> lines = {""};
  for (const std::string& word : split(text, ' ')) {
    if (!lines.back().empty() && display_width(lines.back()) + 1 + display_width(word) > width) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

// `width` of the column of winners; 0 = as wide as it takes. A winner that is longer goes on in rows of its own.
Grid winners_grid(const Entries& entries, int width) {
  Grid grid{cell_columns(), {}};
  grid.columns.push_back({"winner, by what differs from the default"});
  for (const Entry* entry : entries) {
    const std::string text = entry->skipped.empty() ? winner_text(*entry) + marks(*entry) : "none: " + entry->skipped;
    std::vector<std::string> row = cell_texts(*entry);
    for (const std::string& line : width > 0 ? wrapped(text, width) : std::vector{text}) {
      row.push_back(line);
      grid.rows.push_back(std::move(row));
      row.assign(cell_columns().size(), "");
    }
  }
  return grid;
}

}  // namespace

std::string results_text(const TunedTable& table, Format format, const Terminal& terminal, bool verbose) {
  constexpr int kWinnerColumns = 48;
  std::vector<std::string> rivals = rival_names(table);
  const auto is_baseline = [](const std::string& name) { return name != "default"; };
  const auto first = std::find_if(rivals.begin(), rivals.end(), is_baseline);
  if (!verbose && first != rivals.end())
    rivals.erase(std::remove_if(first + 1, rivals.end(), is_baseline), rivals.end());
  std::string out;
  for (const Entries& entries : layers_of(table)) {
    const std::string heading = title(entries[0]->cell.shape);
    out += (out.empty() ? "" : "\n") + (format == Format::markdown ? "## " + markdown_text(heading) : heading) + "\n\n";
    out += table_text(routing_grid(entries, table), format, terminal) + "\n";
    out += table_text(times_grid(entries, rivals, verbose), format, terminal);
    if (!verbose)
      out += "\n" + table_text(winners_grid(entries, format == Format::text ? kWinnerColumns : 0), format, terminal);
  }
  return out;
}

std::string winner_text(const Entry& entry) {
  const Rival* fallback = find_rival(entry, "default");
  if (!fallback) return text(entry.candidate);
  const std::string words = difference(entry.candidate, fallback->candidate);
  return words.empty() ? "the default" : words;
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
