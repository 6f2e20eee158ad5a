// Headings, lists, and cells as rows.
#include "cli/text/headed_tables.h"

#include <fmt/format.h>

#include "cli/text/console.h"
#include "record/layer.h"

namespace moetune {
namespace {

constexpr int kColumns = 80;
constexpr int kRoutingColumns = 15;

std::string seed_text(const Cell& cell) { return cell.seed == 0 ? "" : fmt::format(", seed {}", cell.seed); }

// Rows of one cell, which the first names.
void add_rows(Grid& grid, const Cell& cell, const std::vector<std::vector<std::string>>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    add_row(grid, cell, rows[i]);
    if (i > 0) grid.rows.back()[0] = grid.rows.back()[1] = "";
  }
}

}  // namespace

std::string headed_tables_text(const std::vector<HeadedTable>& tables, const Style& style) {
  std::string out;
  const std::vector<std::string>* before = nullptr;
  for (const auto& [heading, grid] : tables) {
    if (before != nullptr) out += "\n";
    bool known = before != nullptr;
    bool any = false;
    for (size_t i = 0; i < heading.size(); ++i) {
      known = known && i < before->size() && (*before)[i] == heading[i];
      if (known) continue;
      any = true;
      if (style.format == Format::markdown)
        out += fmt::format("{} {}\n", std::string(i + 2, '#'), markdown_text(heading[i]));
      else
        for (const std::string& line : lines_of(heading[i], style.columns)) out += line + "\n";
    }
    out += (any ? "\n" : "") + grid_text(grid, style);
    before = &heading;
  }
  return out;
}

std::string grid_text(const Grid& grid, const Style& style) {
  return style.format == Format::markdown ? markdown(grid) : fitted(grid, style.columns);
}

Style style_of(Format format, const Terminal& terminal, bool verbose) {
  const int columns = terminal.output_columns > 0 || verbose ? terminal.output_columns : kColumns;
  return {format, format == Format::text ? columns : 0, verbose};
}

std::string bullets(const std::vector<std::string>& items, const Style& style) {
  const auto shown = style.format == Format::markdown ? markdown_text : one_line;
  std::string out;
  for (const std::string& item : items) {
    const char* begin = "- ";
    for (const std::string& line : lines_of(shown(item), std::max(style.columns - 2, 0))) {
      out += begin + line + "\n";
      begin = "  ";
    }
  }
  return out.empty() ? "" : "\n" + out;
}

std::string paragraph(const std::string& sentence, const Style& style) {
  return fmt::format("{}\n", fmt::join(lines_of(sentence, style.columns), "\n"));
}

Grid cell_grid(const std::vector<Column>& columns) {
  Grid grid{{{"tokens", true}, {"routing"}}, {}, 2};
  grid.columns.insert(grid.columns.end(), columns.begin(), columns.end());
  return grid;
}

void add_row(Grid& grid, const Cell& cell, const std::vector<std::string>& texts) {
  grid.rows.push_back({std::to_string(cell.tokens), shortened(text(cell.routing) + seed_text(cell), kRoutingColumns)});
  grid.rows.back().insert(grid.rows.back().end(), texts.begin(), texts.end());
}

std::vector<std::string> cell_heading(const Cell& cell) {
  return {title(cell.shape), fmt::format("{} token{}, {}{}", cell.tokens, cell.tokens == 1 ? "" : "s",
                                         text(cell.routing), seed_text(cell))};
}

std::vector<HeadedTable> layer_tables(const TunedTable& table, bool verbose) {
  std::vector<HeadedTable> tables;
  const TunedTable pairs = with_layers(table);
  const auto candidate_of = [&](const Cell& cell) {
    const Entry& entry = *find_entry(pairs, cell);
    return verbose ? text(entry.candidate) : winner_text(entry, table.device);
  };
  for (const TunedLayer* layer : layers_of(table)) {
    const std::string heading = title(*layer);
    if (tables.empty() || tables.back().heading[0] != heading) {
      tables.push_back({{heading}, cell_grid({{"what ran"}, {"time", true}, {"speedup", true}})});
      tables.push_back({{heading}, cell_grid({{"part"}, {"its candidate in the fastest pair"}})});
    }
    add_rows(tables.rbegin()[1].grid, layer->up, rows_of(*layer));
    add_rows(tables.back().grid, layer->up, {{"up", candidate_of(layer->up)}, {"down", candidate_of(layer->down)}});
  }
  return tables;
}

std::vector<HeadedTable> step_tables(const std::vector<CellTimes>& cells) {
  std::vector<HeadedTable> tables;
  for (const Step& step : training_steps(cells)) {
    const auto shape = [&](size_t part) -> const Shape& { return cells[step.cells[part]].cell.shape; };
    const std::string heading = title(shape(2), shape(5), "training step") + fusions_text(cells, step);
    if (tables.empty() || tables.back().heading[0] != heading) {
      const std::string speedup = fmt::format("speedup of {}", step.sums[0].contender);
      tables.push_back({{heading}, cell_grid({{"contender"}, {"six GEMMs", true}, {speedup, true}})});
    }
    add_rows(tables.back().grid, cells[step.cells[0]].cell,
             mapped(step.sums, [&](const ContenderTime& sum) { return sum_row(step, sum); }));
  }
  return tables;
}

}  // namespace moetune
