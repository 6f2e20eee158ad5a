// --space, --variant, --set, --candidate, --table, and the contenders of each cell.
#include "cli/options/contenders.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "base/embedded.h"
#include "base/error.h"
#include "base/text/units.h"
#include "record/layer.h"
#include "variant/catalog.h"

namespace moetune {

void declare(OptionSet& set, SearchOptions& options, const std::string& default_space) {
  set.group("Candidates");
  const std::string otherwise = default_space.empty() ? "" : fmt::format(" [{}]", default_space);
  set.value("--space", options.space, "NAME|FILE",
            "Values to try for each knob: a named space (moetune list spaces), or a file" + otherwise,
            [] { return embedded_names("configs/spaces/"); });
  set.list("--variant", options.variants, "LIST",
           "Only these variants (moetune list variants), even if the space lacks them",
           [] { return mapped(Catalog().variants(), [](const VariantPtr& variant) { return variant->name; }); });
  set.list("--set", options.settings, "KNOB=LIST", "Other values to try for a knob, such as block_m=64,128");
  if (default_space.empty())
    set.number("--max-candidates", options.max_candidates, 1, INT64_MAX,
               "At most N candidates of the space per cell, drawn at random by the cell's seed");
  set.group("Options");
}

SearchSpace make_space(const SearchOptions& options, const std::string& default_space, const Catalog& catalog) {
  SearchSpace space = load_space(options.space.empty() ? default_space : options.space, catalog);
  const std::vector<std::string> variants = list_words(options.variants, "--variant");
  if (!variants.empty()) keep_variants(space, variants, catalog);
  std::set<std::string> set;  // a knob that is set twice has the values of both
  for (const std::string& setting : options.settings)
    set_values(space, setting, catalog, !set.insert(setting.substr(0, setting.find('='))).second);
  return space;
}

void require_knobs(const SearchOptions& options, const SearchSpace& space, const DeviceInfo& device) {
  if (options.names_space()) require_variant(space, device);
  for (const std::string& setting : options.settings) {
    const std::string name = setting.substr(0, setting.find('='));
    std::vector<std::string> owners;
    bool here = false;
    for (const auto& [variant, values] : space.variants)
      if (contains(variant->knobs, name, &Knob::name))
        owners.push_back(variant->name), here = here || variant->device == device.kind;
    if (!here)
      throw request_error(fmt::format("--set {}: no variant of the space '{}' that runs on {} has the knob '{}'",
                                      setting, space.name, device.kind == DeviceKind::cuda ? "a GPU" : "a cpu", name),
                          fmt::format("variants that have it: {}", fmt::join(owners, ", ")));
  }
}

int64_t candidate_limit(const SearchOptions& options) {
  if (options.max_candidates && !options.names_space())
    throw request_error("--max-candidates needs a space to draw from", "add --space quick or --space full");
  return options.max_candidates.value_or(0);
}

std::vector<Candidate> parse_candidates(const std::vector<std::string>& texts, const Catalog& catalog) {
  std::vector<Candidate> candidates;
  for (const std::string& text : texts) add_once(candidates, parse_partial_candidate(text, catalog));
  return candidates;
}

void declare(OptionSet& set, ContenderOptions& options) {
  set.group("Candidates");
  set.list("--candidate", options.candidates, "TEXT",
           "A candidate, such as \"mma block_m=128 stages=4\"; other knobs have the default's values");
  set.argument("TABLE", options.table, "A tuned table, as of --table", {}, /*required=*/false);
  set.value(
      "--table",
      [&options](const std::string& word, const std::string&) {
        if (!options.table.empty()) throw request_error("TABLE and --table both name a table", "leave one of them out");
        options.table = word;
      },
      "FILE", "Take the winners and layers of a tuned table; the options of cells pick among its cells");
  set.group("Options");
}

void add_entrant(CellWork& work, const std::string& role, const Contender& contender) {
  const auto known = std::ranges::find(work.entrants, contender, &Entrant::contender);
  if (known == work.entrants.end())
    work.entrants.push_back({.role = role, .contender = contender});
  else if (known->role != role)
    known->role += "+" + role;
}

void complete_entrants(CellWork& work, const Problem& problem, const DeviceInfo& device) {
  for (auto& [role, contender, name] : work.entrants)
    if (contender.baseline.empty()) contender.candidate = complete(contender.candidate, problem, device);
}

SearchSpace usual_space(const Catalog& catalog) { return load_space("quick", catalog); }

void name_entrants(CellWork& work, const SearchSpace& usual, const Problem& problem, const DeviceInfo& device) {
  const Candidate fallback = default_candidate(usual, problem, device);
  for (auto& [role, contender, name] : work.entrants)
    name =
        contender.baseline.empty() ? short_text(contender.candidate, &fallback, problem, device) : contender.baseline;
}

std::vector<std::string> verify_arguments(const Cell& cell, const Candidate& candidate, const DeviceOptions& device) {
  std::vector<std::string> argv = {"moetune", "verify"};
  std::ranges::move(device_arguments(device), std::back_inserter(argv));
  std::ranges::move(cell_arguments(cell), std::back_inserter(argv));
  argv.insert(argv.end(), {"--candidate", text(candidate)});
  return argv;
}

std::string wrong_results_text(const std::vector<VerifiedCandidate>& verified, const DeviceOptions& device,
                               const Style& style) {
  const std::optional<WrongResults> wrong = wrong_results(verified);
  if (!wrong) return "";
  return paragraph(sentence(*wrong), style) +
         "Again: " + shell_line(verify_arguments(wrong->first.cell, wrong->first.candidate, device)) + "\n";
}

void choose_weight_order(CellOptions& cells, const DeviceOptions& device, const std::vector<std::string>& variants,
                         const Terminal& terminal) {
  if (!cells.request.weights.empty() || !cells.suite.empty() || !device.packs.empty()) return;
  const std::vector<std::string> named = list_words(variants, "--variant");
  if (!named.empty() && !contains(named, "wgmma")) return;
  const auto may_be = [](const Cell& cell) { return may_be_reordered(cell.shape.layer.format.dtype); };
  if (device.device == "cpu" || std::ranges::none_of(make_cells(cells), may_be)) return;
  if (open_worker(device)->device().compute_capability != 90) return;
  cells.request.weights = {WeightOrder::reordered};
  note(terminal, "W of 4 bits is reordered ahead of time, as wgmma reads it: --weights as-is leaves it in rows");
}

std::vector<VerifiedCandidate> verified_candidates(const std::vector<EntrantResult>& results) {
  std::vector<VerifiedCandidate> verified;
  for (const EntrantResult& result : results)
    if (const Contender& contender = result.entrant.contender;
        contender.baseline.empty() && (result.status == Status::ok || result.status == Status::wrong_result))
      verified.push_back({result.cell, contender.candidate, result.status == Status::ok ? "" : result.reason});
  return verified;
}

std::string reason_of(const EntrantResult& result) {
  return fmt::format("{}, {}: {}: {}", id(result.cell), result.entrant.name, name(result.status), result.reason);
}

void require_kind(const TunedTable& taken, const ContenderOptions& contenders, const DeviceInfo& device) {
  if (!taken.entries.empty() && taken.device.kind != device.kind)
    throw machine_error(
        fmt::format("{}: its winners are of {}, this device is {}", contenders.table, taken.device.name, device.name),
        "tune a table on this device, or name another with --device");
}

std::vector<CellWork> make_work(const CellOptions& cells, const ContenderOptions& contenders, const Catalog& catalog,
                                const Terminal& terminal, TunedTable* taken) {
  const std::vector<Candidate> candidates = parse_candidates(contenders.candidates, catalog);
  std::vector<CellWork> work;
  if (contenders.table.empty()) {
    work = mapped(make_cells(cells), [](const Cell& cell) { return CellWork{cell, {}}; });
  } else {
    TunedTable table = read_table(contenders.table, catalog);
    pick_entries(table, contenders.table, cells);
    for (const Entry& entry : table.entries) {
      work.push_back({entry.cell, {}});
      if (entry.skipped.empty())
        add_entrant(work.back(), "winner", {.candidate = entry.candidate});
      else
        warn(terminal, fmt::format("{}: the table has no winner: {}", id(entry.cell), entry.skipped));
      for (const TunedLayer* layer : layers_of(table))
        if (layer->up == entry.cell || layer->down == entry.cell)
          add_entrant(work.back(), "layer",
                      {.candidate = layer->up == entry.cell ? layer->up_candidate : layer->down_candidate});
    }
    if (taken) *taken = std::move(table);
  }
  for (CellWork& one : work)
    for (const Candidate& candidate : candidates) add_entrant(one, "candidate", {.candidate = candidate});
  return work;
}

void require_candidates(const std::vector<Cell>& cells, const SearchSpace& space, const DeviceInfo& device,
                        const std::string& hint) {
  require_variant(space, device);
  Shape before;
  for (const Cell& cell : cells) {
    if (cell.shape == before) continue;  // legality does not depend on rows
    before = cell.shape;
    const Enumeration found = draw(space, cell.shape, device, 1, 0);  // looks no further than the first legal one
    if (!found.legal.empty()) continue;
    const auto reason =
        std::ranges::max_element(found.pruned, [](const auto& a, const auto& b) { return a.second < b.second; });
    throw request_error(fmt::format("{}: no candidate of the space '{}' is legal: {}", id(cell), space.name,
                                    reason == found.pruned.end() ? "it has none" : reason->first),
                        hint);
  }
}

}  // namespace moetune
