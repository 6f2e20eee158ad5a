// What a table says for a cell that it may not have: the best entry, and how well it fits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "table/table.h"
#include "variant/variant.h"

namespace moetune {
namespace {

// Facts that make two problems the same computation: neither the model's name nor the projection is one.
std::vector<std::string> shape_differences(const Shape& asked, const Shape& found) {
  std::vector<std::string> result;
  const auto compare = [&](std::string_view what, const auto& a, const auto& b) {
    if (a != b) result.push_back(fmt::format("{} {} (asked: {})", what, b, a));
  };
  const Layer &a = asked.layer, &b = found.layer;
  compare("experts", a.experts, b.experts);
  compare("top_k", a.top_k, b.top_k);
  compare("n", a.n, b.n);
  compare("k", a.k, b.k);
  compare("ep", a.ep, b.ep);
  compare("dtype", name(a.dtype), name(b.dtype));
  compare("op", name(asked.op), name(found.op));
  compare("fusion", text(asked.fusion), text(found.fusion));
  return result;
}

double log_distance(int64_t a, int64_t b) {
  return std::abs(std::log2(static_cast<double>(a)) - std::log2(static_cast<double>(b)));
}

// Smaller is better. Equal distances: the fewer tokens; then what can't change the kernel's work, the layer's name and
// the seed; then the order of the table.
auto rank(const Entry& entry, const Cell& cell) {
  const Layer &a = entry.cell.shape.layer, &b = cell.shape.layer;
  return std::tuple(entry.cell.routing != cell.routing, log_distance(entry.cell.tokens, cell.tokens), entry.cell.tokens,
                    a.model != b.model || a.projection != b.projection, entry.cell.seed != cell.seed);
}

Answer no_answer(const TunedTable& table, const Cell& cell) {
  const Entry* skipped = nullptr;
  std::vector<std::string> fewest;
  const Entry* closest = nullptr;
  for (const Entry& entry : table.entries) {
    const std::vector<std::string> differences = shape_differences(cell.shape, entry.cell.shape);
    if (differences.empty() && !skipped) skipped = &entry;
    if (!entry.skipped.empty()) continue;
    if (!closest || differences.size() < fewest.size()) closest = &entry, fewest = differences;
  }
  Answer answer;
  if (skipped)
    answer.explanation = fmt::format("this layer has no winner in the table: {}", skipped->skipped);
  else if (!closest)
    answer.explanation = "the table has no winners";
  else
    answer.explanation = fmt::format("no entry has this layer, op and fusion; the closest, {}, has {}",
                                     id(closest->cell), fmt::join(fewest, ", "));
  return answer;
}

std::string tokens_told(const Cell& cell, const Entry& entry) {
  const int64_t asked = cell.tokens, found = entry.cell.tokens;
  if (asked == found) return fmt::format("for {} tokens as asked", found);
  const double factor = std::exp2(log_distance(asked, found));
  if (factor < 1.095)  // "1.0x" tells nothing
    return fmt::format("for {} tokens, {} {} than the {} asked", found, std::abs(found - asked),
                       found > asked ? "more" : "fewer", asked);
  return fmt::format("for {} tokens, {:.{}f}x {} than the {} asked", found, factor, factor < 9.95 ? 1 : 0,
                     found > asked ? "more" : "fewer", asked);
}

std::string explain(const Answer& answer, const TunedTable& table, const Cell& cell, const DeviceInfo* device) {
  const Cell& found = answer.entry->cell;
  std::string told;
  if (answer.match == Match::exact) {
    told = fmt::format("tuned for this very cell on {}", table.device.name);
    if (found.seed != cell.seed) told += fmt::format(", with rows drawn from seed {}", found.seed);
  } else {
    told = answer.match == Match::other_device
               ? fmt::format("tuned on {}, not on {}: take it as a first guess;", table.device.name, device->name)
               : "tuned";
    told += " " + tokens_told(cell, *answer.entry);
    told += found.routing == cell.routing
                ? fmt::format(", with {} routing", text(found.routing))
                : fmt::format(", with {} routing, not {}: another skew may have another winner", text(found.routing),
                              text(cell.routing));
  }
  const Layer &a = cell.shape.layer, &b = found.shape.layer;
  if (a.model != b.model || a.projection != b.projection)
    told += fmt::format("; there the layer of these sizes is called {} {}", b.model, name(b.projection));
  if (!answer.entry->complete) told += "; its tuning was stopped early";
  return told;
}

}  // namespace

std::string_view name(Match match) {
  switch (match) {
    case Match::none:
      return "none";
    case Match::other_device:
      return "other_device";
    case Match::other_routing:
      return "other_routing";
    case Match::nearest:
      return "nearest";
    case Match::exact:
      return "exact";
  }
  return "none";
}

Answer lookup(const TunedTable& table, const Cell& cell, const DeviceInfo* device) {
  const Entry* best = nullptr;
  std::string obstacle;
  const bool elsewhere = device && device->name != table.device.name;  // the table's own runs what it was timed on
  for (const Entry& entry : table.entries) {
    if (!entry.skipped.empty() || !shape_differences(cell.shape, entry.cell.shape).empty()) continue;
    if (const auto reason = elsewhere ? cannot_run(entry.candidate, cell.shape, *device) : std::nullopt) {
      if (obstacle.empty()) obstacle = *reason;
      continue;
    }
    if (!best || rank(entry, cell) < rank(*best, cell)) best = &entry;
  }
  if (!best && !obstacle.empty())
    return {.explanation = fmt::format("tuned on {}; {} cannot run what won there: {}", table.device.name, device->name,
                                       obstacle)};
  if (!best) return no_answer(table, cell);
  Answer answer{.match = Match::exact,
                .entry = best,
                .log_tokens_distance = log_distance(best->cell.tokens, cell.tokens),
                .explanation = {}};
  if (device && device->name != table.device.name)
    answer.match = Match::other_device;
  else if (best->cell.routing != cell.routing)
    answer.match = Match::other_routing;
  else if (best->cell.tokens != cell.tokens)
    answer.match = Match::nearest;
  answer.explanation = explain(answer, table, cell, device);
  return answer;
}

}  // namespace moetune
