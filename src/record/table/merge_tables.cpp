// What two files must have in common to be merged, and one table from several.
#include "record/table/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/error.h"
#include "record/layer.h"

namespace moetune {
namespace {

bool faster(const Entry& a, const Entry& b) {
  if (a.skipped.empty() != b.skipped.empty()) return a.skipped.empty();
  return a.skipped.empty() && a.measurement.time.value < b.measurement.time.value;
}

// Equal as they are written to a file.
bool equal(const Entry& a, const Entry& b, const TunedTable& table) {
  const auto alone = [&](const Entry& entry) {
    TunedTable one = table;
    one.entries = {entry};
    one.choices.clear();
    one.updates.clear();
    return compact_json(to_json(one));
  };
  return alone(a) == alone(b);
}

std::vector<RobustChoice> choices_of(const TunedTable& table, const Shape& shape) {
  return filtered(table.choices, [&](const RobustChoice& choice) { return choice.shape() == shape; });
}

void put_in_order(TunedTable& table, const std::vector<std::string>& sweep) {
  std::map<std::string, size_t> places;
  for (const std::string& cell : sweep) places.emplace(cell, places.size());
  std::ranges::stable_sort(table.entries, {}, [&](const Entry& one) { return places.at(id(one.cell)); });
  table.sweep = table.entries.size() == sweep.size() ? std::vector<std::string>() : sweep;
}

// Whether an entry of the shape's choices is another one in the merged table.
bool changed(const TunedTable& table, const Shape& shape, const std::map<std::string, const Entry*>& merged) {
  std::set<std::string> cells;
  for (const RobustChoice& choice : choices_of(table, shape))
    for (const Cell& cell : choice.cells) cells.insert(id(cell));
  return std::ranges::any_of(table.entries, [&](const Entry& entry) {
    const std::string cell = id(entry.cell);
    return cells.contains(cell) && !equal(entry, *merged.at(cell), table);
  });
}

void take_choices(Merged& merged, const std::vector<const TunedTable*>& tables) {
  TunedTable& to = merged.table;
  std::map<std::string, const Entry*> entries;
  for (const Entry& entry : to.entries) entries.emplace(id(entry.cell), &entry);
  for (const TunedTable* table : tables)
    for (const RobustChoice& choice : table->choices)
      if (choices_of(to, choice.shape()).empty() && !changed(*table, choice.shape(), entries))
        for (const RobustChoice& one : choices_of(*table, choice.shape())) to.choices.push_back(one);
  std::set<std::string> dropped;
  for (const TunedTable* table : tables)
    for (const RobustChoice& choice : table->choices)
      if (choices_of(to, choice.shape()).empty()) dropped.insert(title(choice.shape()));
  merged.dropped_choices.assign(dropped.begin(), dropped.end());
}

// The layers whose entries are the merged table's.
void take_layers(TunedTable& to, const std::vector<const TunedTable*>& tables) {
  std::vector<TunedLayer> taken;
  for (const TunedTable* table : tables)
    for (const TunedLayer* layer : layers_of(*table)) {
      const bool known = std::ranges::any_of(
          taken, [&](const TunedLayer& one) { return one.up == layer->up && one.down == layer->down; });
      const auto kept = [&](const Cell& cell) {
        return equal(*find_entry(*table, cell), *find_entry(to, cell), *table);
      };
      if (!known && kept(layer->up) && kept(layer->down)) taken.push_back(*layer);
    }
  to.layers = std::move(taken);
}

void take_updates(TunedTable& to, const std::vector<TunedTable>& tables) {
  to.updates.clear();
  std::set<std::string> known;
  for (const TunedTable& table : tables)
    for (const Update& update : table.updates)
      if (known.insert(compact_json(to_json(update))).second) to.updates.push_back(update);
}

std::vector<ValueDifference> value_differences(const Json& first, const Json& second, const std::string& path = "") {
  const auto shown = [](const Json& side, const std::string& key) {
    return side.contains(key) ? compact_json(side[key]) : "nothing";
  };
  std::set<std::string> keys;
  for (const Json* side : {&first, &second})
    for (const auto& item : side->items()) keys.insert(item.key());
  std::vector<ValueDifference> differences;
  for (const std::string& key : keys) {
    const std::string one = shown(first, key), other = shown(second, key);
    if (first.contains(key) && second.contains(key) && first[key].is_object() && second[key].is_object())
      std::ranges::move(value_differences(first[key], second[key], path + key + "."), std::back_inserter(differences));
    else if (one != other)
      differences.push_back({path + key, one, other});
  }
  return differences;
}

}  // namespace

bool same_model(const DeviceInfo& a, const DeviceInfo& b) {
  return a.kind == b.kind && a.name == b.name && a.compute_capability == b.compute_capability &&
         a.processors == b.processors;
}

std::string model_text(const DeviceInfo& device) {
  return fmt::format("{} with {} {}", device.name, device.processors,
                     device.kind == DeviceKind::cuda ? "SMs" : "threads");
}

std::vector<ValueDifference> identity_differences(const Json& first, const Json& second) {
  const auto identity = [](const Json& environment) {
    const Json value = environment.is_object() ? environment.value("identity", Json()) : Json();
    if (value.is_object()) return value;
    return value.is_null() ? Json::object() : Json{{"identity", value}};
  };
  return value_differences(identity(first), identity(second));
}

void require_mergeable(std::string_view what, const Origin& a, const Origin& b) {
  if (!same_model(a.device, b.device))
    throw machine_error(fmt::format("{} of different devices don't merge: {}, and {}", what, model_text(a.device),
                                    model_text(b.device)),
                        fmt::format("keep {} of each device apart", what));
  if (a.regime != b.regime)
    throw machine_error(fmt::format("the regimes {} and {} don't compare", name(a.regime), name(b.regime)),
                        fmt::format("keep {} of each regime apart", what));
  for (const auto& [key, first, second] : identity_differences(a.environment, b.environment))
    throw machine_error(
        fmt::format("the environments don't compare: {} is {} in one and {} in the other", key, first, second),
        "tune those cells again in one environment");
}

std::vector<std::string> merged_sweep(const std::vector<std::vector<std::string>>& sweeps) {
  std::set<std::string> known;
  std::vector<std::string> merged;
  for (const std::vector<std::string>& sweep : sweeps)
    for (const std::string& cell : sweep)
      if (known.insert(cell).second) merged.push_back(cell);
  return merged;
}

Merged merge(const std::vector<TunedTable>& tables, const std::string& prefer) {
  if (!prefer.empty()) place_of_word("preference", prefer, kPreferences);
  if (tables.empty()) throw request_error("nothing to merge", "name two tables or more");
  Merged merged{.table = tables[0]};
  merged.table.entries.clear();
  merged.table.choices.clear();
  TunedTable bare = merged.table;
  std::map<std::string, size_t> places;
  std::vector<std::vector<std::string>> sweeps;
  for (const TunedTable& table : tables) {
    require_mergeable("tables", {bare.device, bare.environment, bare.regime},
                      {table.device, table.environment, table.regime});
    sweeps.insert(sweeps.end(), {table.sweep, mapped(table.entries, [](const Entry& one) { return id(one.cell); })});
    for (const Entry& entry : table.entries) {
      const std::string cell = id(entry.cell);
      const auto [place, fresh] = places.emplace(cell, merged.table.entries.size());
      if (fresh) {
        merged.table.entries.push_back(entry);
        continue;
      }
      Entry& kept = merged.table.entries[place->second];
      if (equal(kept, entry, bare)) continue;
      add_once(merged.conflicts, cell);
      if (prefer == "last" || (prefer == "fastest" && faster(entry, kept))) kept = entry;
    }
  }
  put_in_order(merged.table, merged_sweep(sweeps));
  take_updates(merged.table, tables);
  std::vector<const TunedTable*> order = pointers_to(tables);
  if (prefer == "last") std::ranges::reverse(order);
  take_choices(merged, order);
  take_layers(merged.table, order);
  return merged;
}

}  // namespace moetune
