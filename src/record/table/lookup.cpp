// What a table says for a cell that it may not have: the best entry, and how well it fits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "record/table/table.h"
#include "variant/variant.h"

namespace moetune {
namespace {

double log_distance(int64_t a, int64_t b) { return doublings(static_cast<double>(a), static_cast<double>(b)); }

bool is_exact(const Entry& entry, const Cell& cell) {
  return entry.cell.tokens == cell.tokens && entry.cell.routing == cell.routing;
}

// An entry that may answer, and its distance. The figures of the asked cell are computed once, and only where no entry
// is exact.
struct Candidacy {
  const Entry* entry = nullptr;
  Distance distance = {};
};

Candidacy candidacy(const Entry& entry, const Cell& cell, std::optional<RoutingFigures>& asked) {
  if (is_exact(entry, cell)) return {&entry, {}};
  if (!asked) asked = figures(make_problem(cell).routing);
  return {&entry,
          {log_distance(entry.cell.tokens, cell.tokens), doublings(entry.figures.max_over_mean, asked->max_over_mean)}};
}

// Smaller is better. Distances are rounded to millionths, so that rounding errors don't decide.
auto rank(const Candidacy& one, const Cell& cell) {
  const Cell& found = one.entry->cell;
  const Layer &a = found.shape.layer, &b = cell.shape.layer;
  return std::tuple(!is_exact(*one.entry, cell), std::llround(1e6 * one.distance.total()),
                    found.routing != cell.routing, found.tokens, a.model != b.model || a.projection != b.projection,
                    found.seed != cell.seed);
}

Candidacy nearest_of(const std::vector<const Entry*>& entries, const Cell& cell) {
  std::optional<RoutingFigures> asked;
  Candidacy best;
  for (const Entry* entry : entries) {
    const Candidacy one = candidacy(*entry, cell, asked);
    if (!best.entry || rank(one, cell) < rank(best, cell)) best = one;
  }
  return best;
}

// How far a cell of another shape is from the one asked for; smaller is closer.
auto strangeness(const Cell& found, const Cell& cell) {
  const Shape &a = found.shape, &b = cell.shape;
  const auto of_layer = std::ssize(shape_differences(b, a)) - (a.op != b.op) - (a.fusion != b.fusion);
  const auto differs = [&](const FusionPart& part) { return part.is_on(a.fusion) != part.is_on(b.fusion); };
  return std::tuple(a.op != b.op, of_layer, std::ranges::count_if(kFusionParts, differs),
                    std::llround(1e6 * log_distance(found.tokens, cell.tokens)));
}

Answer no_answer(const TunedTable& table, const Cell& cell) {
  const Entry* skipped = nullptr;
  const Entry* closest = nullptr;
  for (const Entry& entry : table.entries) {
    if (!skipped && shape_differences(cell.shape, entry.cell.shape).empty()) skipped = &entry;
    if (!entry.skipped.empty()) continue;
    if (!closest || strangeness(entry.cell, cell) < strangeness(closest->cell, cell)) closest = &entry;
  }
  Answer answer;
  if (skipped)
    answer.explanation = fmt::format("this layer has no winner in the table: {}", skipped->skipped);
  else if (!closest)
    answer.explanation = "the table has no winners";
  else
    answer.explanation =
        fmt::format("no entry has this layer, op and fusion; the closest, {}, has {}", id(closest->cell),
                    fmt::join(shape_differences(cell.shape, closest->cell.shape), ", "));
  return answer;
}

std::string tokens_text(const Cell& cell, const Entry& entry) {
  const int64_t asked = cell.tokens, found = entry.cell.tokens;
  if (asked == found) return fmt::format("for {} tokens as asked", found);
  const double factor = std::exp2(log_distance(asked, found));
  if (factor < 1.095)  // would be shown as "1.0x"
    return fmt::format("for {} tokens, {} {} than the {} asked", found, std::abs(found - asked),
                       found > asked ? "more" : "fewer", asked);
  return fmt::format("for {} tokens, {:.{}f}x {} than the {} asked", found, factor, factor < 9.95 ? 1 : 0,
                     found > asked ? "more" : "fewer", asked);
}

std::string explain(const Answer& answer, const TunedTable& table, const Cell& cell, const DeviceInfo* device) {
  const Cell& found = answer.entry->cell;
  std::string words;
  if (answer.match == Match::exact) {
    words = fmt::format("tuned for this very cell on {}", table.device.name);
    if (found.seed != cell.seed) words += fmt::format(", with rows drawn from seed {}", found.seed);
  } else {
    words = answer.match == Match::other_device
                ? fmt::format("tuned on {}, not on {}: take it as a first guess;", table.device.name, device->name)
                : "tuned";
    words += " " + tokens_text(cell, *answer.entry);
    words += fmt::format(", with {} routing{}", text(found.routing),
                         found.routing == cell.routing ? "" : fmt::format(", not {}", text(cell.routing)));
    if (!is_exact(*answer.entry, cell)) words += fmt::format("; distance {}", text(*answer.distance));
  }
  const Layer &a = cell.shape.layer, &b = found.shape.layer;
  if (a.model != b.model || a.projection != b.projection)
    words += fmt::format("; there the layer of these sizes is called {} {}", b.model, name(b.projection));
  if (!answer.entry->complete) words += "; its tuning was stopped early";
  return words;
}

}  // namespace

double doublings(double a, double b) { return a > 0 && b > 0 ? std::abs(std::log2(a / b)) : 0; }

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
  compare("zero_experts", a.zero_experts, b.zero_experts);
  compare("dtype", a.format.word, b.format.word);
  compare("op", name(asked.op), name(found.op));
  compare("fusion", text(asked.fusion), text(found.fusion));
  return result;
}

std::string_view name(Match match) {
  static constexpr std::string_view kNames[] = {"none", "other_device", "other_routing", "nearest", "choice", "exact"};
  return kNames[static_cast<size_t>(match)];
}

std::string text(const Distance& distance) {
  return fmt::format("{:.2f} (tokens {:.2f}, skew {:.2f})", distance.total(), distance.tokens, distance.skew);
}

Answer lookup(const TunedTable& table, const Cell& cell, const DeviceInfo* device, double max_distance) {
  std::vector<const Entry*> able;
  std::string obstacle;
  const bool elsewhere = device && device->name != table.device.name;  // the table's own device has run its winners
  for (const Entry& entry : table.entries) {
    if (!entry.skipped.empty() || !shape_differences(cell.shape, entry.cell.shape).empty()) continue;
    if (const auto reason = elsewhere ? cannot_run(entry.candidate, cell.shape, *device) : std::nullopt) {
      if (obstacle.empty()) obstacle = *reason;
      continue;
    }
    able.push_back(&entry);
  }
  if (able.empty() && !obstacle.empty())
    return {.explanation = fmt::format("tuned on {}; {} cannot run what won there: {}", table.device.name, device->name,
                                       obstacle)};
  if (able.empty()) return no_answer(table, cell);
  const bool exact = std::ranges::any_of(able, [&](const Entry* entry) { return is_exact(*entry, cell); });
  const RobustChoice* choice =
      elsewhere || exact ? nullptr : find_robust_choice(table.choices, cell.shape, cell.tokens);
  std::erase_if(able, [&](const Entry* one) {
    return exact ? !is_exact(*one, cell) : choice && !contains(choice->cells, one->cell);
  });
  const Candidacy best = nearest_of(able, cell);
  if (best.distance.total() > max_distance)
    return {.distance = best.distance,
            .explanation = fmt::format("the nearest entry, {}, is at distance {}, over the {:g} allowed",
                                       id(best.entry->cell), text(best.distance), max_distance)};
  Answer answer{.match = Match::exact, .entry = best.entry, .choice = choice, .distance = best.distance};
  if (elsewhere)
    answer.match = Match::other_device;
  else if (choice)
    answer.match = Match::choice;
  else if (best.entry->cell.routing != cell.routing)
    answer.match = Match::other_routing;
  else if (best.entry->cell.tokens != cell.tokens)
    answer.match = Match::nearest;
  answer.explanation = choice ? fmt::format("{}; the nearest of them, {}, is at distance {}", sentence(*choice),
                                            id(best.entry->cell), text(best.distance))
                              : explain(answer, table, cell, device);
  return answer;
}

}  // namespace moetune
