// Plans for servers' files, and what they gain.
#include "export/serving/served_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/embedded.h"
#include "base/error.h"
#include "base/text/units.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kGemms = 2;  // up and down have kernels of their own

std::vector<PlannedLayer> layers_of(const ServedPlan& plan, const DeviceInfo& device) {
  std::vector<PlannedLayer> layers;
  for (const Cell& cell : plan.cells) {
    const Layer& layer = cell.shape.layer;
    if (layer.projection != Projection::down) continue;
    auto place =
        std::ranges::find(layers, key_of_layer(layer), [](const PlannedLayer& one) { return key_of_layer(one.layer); });
    if (place == layers.end()) {
      if (multiplies_fp8(layer.format) && device.kind == DeviceKind::cuda && device.compute_capability < 89)
        throw request_error(fmt::format("--for {}: Triton has no fp8 on {} ({}), which needs sm_89 or newer",
                                        plan.server->word, device.name, arch(device)),
                            "servers run such a checkpoint there with kernels that read no file: take one in bf16");
      PlannedLayer one{.layer = layer, .file = served_file(*plan.server, layer, layer.k, device.name)};
      if (const std::string why = obstacle(one.file); !why.empty())
        throw request_error(fmt::format("--for {}: {}", plan.server->word, why),
                            "use a --tp for which 128 divides the width");
      find_rows(one.file, plan.places);
      place = layers.insert(layers.end(), std::move(one));
    }
    add_once(place->tokens, cell.tokens);
  }
  for (PlannedLayer& one : layers) std::ranges::sort(one.tokens);
  return layers;
}

// The server's own rows join those to try. Packs have no TMA.
void add_own_rows(ServedPlan& plan) {
  for (const PlannedLayer& layer : plan.layers)
    for (const int64_t tokens : layer.tokens) {
      const RowPair own = layer.file.own(tokens);
      for (ServingRow row : {own.first, own.second}) {
        if (row.use_tma == true) continue;
        row.use_tma = {};
        auto place = std::ranges::find(plan.rows, row, &TriedRow::row);
        if (place == plan.rows.end()) place = plan.rows.insert(place, {row, {}});
        add_once(place->tokens, tokens);
      }
    }
}

int64_t kernels_of(const ServedPlan& plan) {
  const ServedFile& file = plan.layers[0].file;
  const auto is_few = [&](int64_t tokens) {
    return plan.server->slot_blocks && !file.format.groups() && 4 * tokens * plan.layers[0].layer.top_k <= file.experts;
  };
  int64_t kernels = 0;
  for (const TriedRow& row : plan.rows) {
    const auto few = std::ranges::count_if(row.tokens, is_few);
    kernels += kGemms * ((few > 0) + (few < std::ssize(row.tokens)));
  }
  return kernels;
}

bool is_chosen(const TunedTable& table, const Layer& layer, int64_t tokens) {
  return std::ranges::count_if(table.choices, [&](const RobustChoice& choice) {
           return key_of_layer(choice.shape().layer) == key_of_layer(layer) && choice.cells[0].tokens == tokens;
         }) >= 2;
}

}  // namespace

CellRequest served_request(const Server& server, CellRequest asked, int64_t shared_experts,
                           const std::function<std::vector<Cell>(const CellRequest&)>& expand) {
  asked.projections = {Projection::up, Projection::down};
  asked.fusion.permute_x = asked.fusion.by_slot = asked.fusion.topk_weights = true;
  CellRequest probe = asked;
  probe.tokens = {1}, probe.routings = {parse_routing("uniform")};
  const std::vector<Cell> one = expand(probe);
  const Layer& first = one.at(0).shape.layer;
  for (const Cell& cell : one) {
    const Layer& layer = cell.shape.layer;
    if (layer.top_k != first.top_k || layer.format != first.format)
      throw request_error(fmt::format("--for {} compiles the kernel for one top_k and format, and {} differs from {}",
                                      server.word, title(cell.shape), title(one[0].shape)),
                          "tune one kind after the other into the same folder: --model NAME#1, then --model NAME#2");
  }
  const ServingFormat format = serving_format(first);
  static_cast<void>(format_name(server, format));
  asked.fast_sums = format.element == "fp8" && !format.blocks();
  if (asked.tokens.empty()) {
    asked.tokens = serving_token_counts();
    const int64_t largest = asked.tokens.back();
    std::erase_if(asked.tokens, [&](int64_t count) {
      return count < largest && runs_other_kernel(server, count, first.local_experts(), format);
    });
  }
  if (asked.routings.empty()) asked.routings = {parse_routing("uniform"), parse_routing("zipf:1")};
  if (shared_experts == 0) return asked;
  if (!server.fuses_shared_experts)
    throw request_error(fmt::format("--shared-experts: {} does not fuse them into the routed experts", server.title),
                        "leave it out");
  if (std::ranges::any_of(one, [&](const Cell& cell) { return cell.shape.layer.experts != first.experts; }) ||
      first.ep > 1)
    throw request_error("--shared-experts is for one model without --ep");
  asked.experts = first.experts + shared_experts, asked.top_k = first.top_k + shared_experts;
  for (RoutingSpec& routing : asked.routings)
    routing = parse_routing(fmt::format("shared:{}:{}", shared_experts, text(routing)));
  return asked;
}

ServedPlan make_served_plan(const Server& server, const std::vector<Cell>& cells, const DeviceInfo& device,
                            const LookUp& places, const std::string& triton,
                            const std::map<std::string, std::vector<int64_t>>& values, bool full) {
  ServedPlan plan{.server = &server, .prefix = file_prefix(server, triton), .places = places, .cells = cells};
  for (const Cell& cell : cells)
    if (const Layer& layer = cell.shape.layer;
        runs_other_kernel(server, cell.tokens, layer.local_experts(), serving_format(layer)))
      throw request_error(
          fmt::format("--tokens {}: {} runs its CUDA kernel moe_wna16 for so few tokens of 4 bits, and no file "
                      "changes that",
                      cell.tokens, server.title),
          fmt::format("give more than {} rows an expert", server.rows_of_other_kernel));
  plan.layers = layers_of(plan, device);
  RowSearch search{.server = &server, .format = plan.layers.at(0).file.format, .values = values, .full = full};
  search.shared_memory = device.shared_memory_per_block;
  for (const Cell& cell : cells) {
    const Problem problem = make_problem(cell);
    double& mean = search.mean_rows[cell.tokens];
    mean = std::max(mean, static_cast<double>(problem.routing.rows()) /
                              static_cast<double>(std::max<int64_t>(problem.active_experts(), 1)));
  }
  plan.rows = rows_to_try(search);
  search.full = true, search.values.clear(), search.shared_memory = 0;
  plan.of_rows = std::ssize(rows_to_try(search));
  add_own_rows(plan);
  plan.kernels = kernels_of(plan);
  return plan;
}

std::vector<Candidate> planned_contenders(const ServedPlan& plan, const TunedTable& table, const Entries& pool,
                                          const JournalContents& journal, const VariantPtr& variant) {
  const Cell& cell = pool[0]->cell;
  const auto key = key_of_layer(cell.shape.layer);
  Entries both;
  for (const Entry& entry : table.entries)
    if (entry.skipped.empty() && entry.cell.tokens == cell.tokens && key_of_layer(entry.cell.shape.layer) == key)
      both.push_back(&entry);
  std::vector<Candidate> own;
  for (const PlannedLayer& layer : plan.layers) {
    if (key_of_layer(layer.layer) != key) continue;
    const RowPair rows = layer.file.own(cell.tokens);
    for (const ServingRow& row : {rows.first, rows.second})
      if (row.use_tma != true) add_once(own, candidate_of(variant, row));
  }
  return serving_contenders(both, journal, shared_knobs(*plan.server), std::move(own));
}

TunedTable finished(const TunedTable& table) {
  TunedTable kept = table;
  std::erase_if(kept.entries,
                [&](const Entry& one) { return !is_chosen(table, one.cell.shape.layer, one.cell.tokens); });
  std::erase_if(kept.choices,
                [&](const RobustChoice& one) { return !is_chosen(table, one.shape().layer, one.cells[0].tokens); });
  return kept;
}

std::vector<std::string> routings_of(const ServedPlan& plan) {
  std::vector<std::string> routings;
  for (const Cell& cell : plan.cells) add_once(routings, text(cell.routing));
  return routings;
}

std::vector<RowGain> gains_of(const ServedPlan& plan, const PlannedLayer& layer, const TunedTable& table,
                              const Export& written) {
  const ServingTimes times(table, {});
  ServedFile with_files = layer.file;
  for (const ExportedFile& file : written.files) {
    if (file.name == plan.prefix + layer.file.name) with_files.rows = parse_serving(file.text, file.name);
    if (file.name == plan.prefix + layer.file.down_name) with_files.down_rows = parse_serving(file.text, file.name);
  }
  std::vector<RowGain> gains;
  for (const int64_t tokens : layer.tokens) {
    if (!is_chosen(table, layer.layer, tokens)) continue;
    RowGain gain{.tokens = tokens, .own = layer.file.own(tokens), .written = with_files.own(tokens)};
    for (const std::string& routing : routings_of(plan)) {
      Estimate before, after;
      bool timed = true;
      for (const Entry& entry : table.entries) {
        if (entry.cell.tokens != tokens || text(entry.cell.routing) != routing ||
            key_of_layer(entry.cell.shape.layer) != key_of_layer(layer.layer))
          continue;
        const auto old = times.find(entry.cell, row_for(gain.own, entry.cell)),
                   now = times.find(entry.cell, row_for(gain.written, entry.cell));
        timed = timed && old && now;
        if (old && now) before += *old, after += *now;
      }
      gain.by_routing.push_back(timed && after.value > 0 ? std::optional(before / after) : std::nullopt);
    }
    gains.push_back(std::move(gain));
  }
  return gains;
}

std::vector<ReadyFile> ready_files() {
  std::vector<ReadyFile> files;
  for (const Server* server : servers())
    for (const EmbeddedFile& file : embedded_files())
      if (file.path.starts_with(fmt::format("configs/tuned/served/{}/", server->word)))
        files.push_back({server, file.path, file.text});
  return files;
}

std::vector<std::pair<fs::path, fs::path>> files_to_copy(const ServedPlan& plan, const fs::path& folder) {
  std::vector<std::pair<fs::path, fs::path>> files;
  const fs::path& bundled = plan.places.bundled;
  std::error_code error;
  if (!plan.server->variable_hides_bundled || bundled.empty() || fs::equivalent(bundled, folder / "configs", error))
    return files;
  for (const auto& version : fs::directory_iterator(bundled, error))
    for (const auto& one : fs::directory_iterator(version, error))
      if (const fs::path to = folder / "configs" / version.path().filename() / one.path().filename();
          one.path().extension() == ".json" && !is_there(to))
        files.emplace_back(one.path(), to);
  std::ranges::sort(files);
  return files;
}

}  // namespace moetune
