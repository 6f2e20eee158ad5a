// Regrets, how token counts are divided among choices, and their JSON: regrets are written for people and programs;
// readers compute them again.
#include "record/robust_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <ranges>
#include <tuple>

#include "base/error.h"
#include "base/text/units.h"
#include "record/table/table.h"

namespace moetune {
namespace {

// Consecutive cells of one token count: [begin, end).
struct Count {
  int64_t tokens;
  size_t begin, end;
};

std::vector<Count> counts_of(const std::vector<Cell>& cells) {
  std::vector<Count> counts;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (counts.empty() || counts.back().tokens != cells[i].tokens) counts.push_back({cells[i].tokens, i, i});
    counts.back().end = i + 1;
  }
  return counts;
}

// The contender of the least score; of equal ones that of the least other regret, then the first.
size_t best_contender(const RobustChoice& choice) {
  const auto rank = [&](size_t who) {
    const double other = choice.rule == Rule::mean ? worst_regret(choice, who) : mean_regret(choice, who);
    return std::tuple(score(choice, who), other);
  };
  return std::ranges::min(std::views::iota(size_t{0}, choice.contenders.size()), {}, rank);
}

// The choice for cells [begin, end). Nothing where no contender has a time in all of them.
std::optional<RobustChoice> choice_of(const Contest& contest, size_t begin, size_t end, Rule rule, double bucket_loss) {
  RobustChoice choice{.rule = rule, .bucket_loss = bucket_loss};
  choice.cells.assign(contest.cells.begin() + static_cast<std::ptrdiff_t>(begin),
                      contest.cells.begin() + static_cast<std::ptrdiff_t>(end));
  for (size_t who = 0; who < contest.contenders.size(); ++who) {
    Standing standing{contest.contenders[who], {}};
    for (size_t i = begin; i < end; ++i)
      if (const auto& time = contest.times[who][i]) standing.times.push_back(*time);
    if (standing.times.size() == end - begin) choice.contenders.push_back(std::move(standing));
  }
  for (const LeftOut& one : contest.left_out)
    if (std::ranges::any_of(choice.cells, [&](const Cell& cell) { return id(cell) == one.cell; }))
      choice.left_out.push_back(one);
  if (choice.contenders.empty()) return std::nullopt;
  choice.chosen = best_contender(choice);
  return choice;
}

// How token counts before some index are best divided: the number of choices, the sum of their scores, and where the
// last one begins.
struct Division {
  size_t choices = std::numeric_limits<size_t>::max();
  double sum = 0;
  std::optional<RobustChoice> last = {};
  size_t last_begin = 0;
};

// Shortest path over the bounds between token counts. Each count alone must have a choice.
std::vector<RobustChoice> divide(const Contest& contest, const std::vector<Count>& counts, Rule rule,
                                 double bucket_loss) {
  std::vector<Division> best(counts.size() + 1);
  best[0].choices = 0;
  for (size_t end = 1; end <= counts.size(); ++end) {
    for (size_t begin = end; begin-- > 0;) {
      if (bucket_loss <= 0 && end - begin > 1) break;
      auto choice = choice_of(contest, counts[begin].begin, counts[end - 1].end, rule, bucket_loss);
      if (!choice) break;  // a longer range has no contender either
      const double loss = score(*choice, choice->chosen);
      if (end - begin > 1 && loss > bucket_loss) continue;
      const auto now = std::tuple(best[begin].choices + 1, best[begin].sum + loss);
      if (now < std::tuple(best[end].choices, best[end].sum))
        best[end] = {std::get<0>(now), std::get<1>(now), std::move(choice), begin};
    }
  }
  std::vector<RobustChoice> choices;
  for (size_t end = counts.size(); end > 0; end = best[end].last_begin) choices.push_back(std::move(*best[end].last));
  std::ranges::reverse(choices);
  return choices;
}

void set_ranges(std::vector<RobustChoice>& choices) {
  for (size_t i = 0; i + 1 < choices.size(); ++i) {
    choices[i].tokens.to = middle_of(choices[i].cells.back().tokens, choices[i + 1].cells.front().tokens);
    choices[i + 1].tokens.from = *choices[i].tokens.to + 1;
  }
}

}  // namespace

int64_t middle_of(int64_t a, int64_t b) {
  auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(a) * static_cast<double>(b)));
  while (root * root > a * b) --root;
  while ((root + 1) * (root + 1) <= a * b) ++root;
  return root;
}

constexpr std::string_view kRules[] = {"worst", "mean", "layer"};
std::string_view name(Rule rule) { return kRules[static_cast<size_t>(rule)]; }
Rule parse_rule(std::string_view text, std::string_view option) {
  return static_cast<Rule>(place_of_word(option, text, kRules));
}

std::string text(const TokenRange& range) {
  if (!range.to) return range.from == 1 ? "all" : fmt::format("{} and more", range.from);
  return range.from == *range.to ? fmt::format("{}", range.from) : fmt::format("{} to {}", range.from, *range.to);
}

double regret(const RobustChoice& choice, size_t contender, size_t cell) {
  double least = std::numeric_limits<double>::infinity();
  for (const Standing& one : choice.contenders) least = std::min(least, one.times[cell].value);
  return choice.contenders[contender].times[cell].value / least - 1;
}

double worst_regret(const RobustChoice& choice, size_t contender) {
  double worst = 0;
  for (size_t i = 0; i < choice.cells.size(); ++i) worst = std::max(worst, regret(choice, contender, i));
  return worst;
}

double mean_regret(const RobustChoice& choice, size_t contender) {
  double sum = 0;
  for (size_t i = 0; i < choice.cells.size(); ++i) sum += regret(choice, contender, i);
  return sum / static_cast<double>(choice.cells.size());
}

double score(const RobustChoice& choice, size_t contender) {
  return choice.rule == Rule::mean ? mean_regret(choice, contender) : worst_regret(choice, contender);
}

std::string sentence(const RobustChoice& choice) {
  return fmt::format(
      "the robust choice for {} tokens: in {} at most {:.1f} % slower than the fastest there, {:.1f} % on average",
      text(choice.tokens), counted(choice.cells.size(), "cell"), 100 * worst_regret(choice, choice.chosen),
      100 * mean_regret(choice, choice.chosen));
}

double uncertainty(const RobustChoice& choice) {
  double widest = 0;
  for (const Standing& one : choice.contenders)
    for (const Estimate& time : one.times) widest = std::max(widest, log_half_width(time));
  return widest;
}

std::vector<RobustChoice> robust_choices(const Contest& contest, Rule rule, double bucket_loss) {
  std::vector<Count> counts = counts_of(contest.cells);
  std::erase_if(counts, [&](const Count& one) { return !choice_of(contest, one.begin, one.end, rule, bucket_loss); });
  std::vector<RobustChoice> choices;
  // A token count without a contender separates those on its two sides.
  for (size_t begin = 0, end = 0; begin < counts.size(); begin = end) {
    for (end = begin + 1; end < counts.size() && counts[end].begin == counts[end - 1].end;) ++end;
    const std::vector<Count> run(counts.begin() + static_cast<std::ptrdiff_t>(begin),
                                 counts.begin() + static_cast<std::ptrdiff_t>(end));
    for (RobustChoice& choice : divide(contest, run, rule, bucket_loss)) choices.push_back(std::move(choice));
  }
  set_ranges(choices);
  return choices;
}

const RobustChoice* find_robust_choice(const std::vector<RobustChoice>& choices, const Shape& shape, int64_t tokens) {
  const auto found = std::ranges::find_if(choices, [&](const RobustChoice& choice) {
    return choice.tokens.covers(tokens) && shape_differences(shape, choice.shape()).empty();
  });
  return found == choices.end() ? nullptr : &*found;
}

namespace {

constexpr double kRegretRounding = 2e-5;  // relative error of 1 + a regret, from the digits of its times

// A time as a reader gets it. Regrets are computed from it, so that reading and writing gives the same text.
double as_written_us(double seconds) { return rounded(seconds * 1e6).get<double>(); }

RobustChoice as_read(RobustChoice choice) {
  for (Standing& one : choice.contenders)
    for (Estimate& time : one.times)
      time = {as_written_us(time.value) * 1e-6, as_written_us(std::min(time.low, time.value)) * 1e-6,
              as_written_us(std::max(time.high, time.value)) * 1e-6};
  return choice;
}

Json contender_json(const RobustChoice& choice, size_t who) {
  Json regrets = Json::array();
  for (size_t i = 0; i < choice.cells.size(); ++i) regrets.push_back(rounded(regret(choice, who, i)));
  const auto us = [&](double Estimate::*part) {
    return json_list(choice.contenders[who].times, [&](const Estimate& time) { return rounded(time.*part * 1e6); });
  };
  return {{"candidate", to_json(choice.contenders[who].candidate)},
          {"median_us", us(&Estimate::value)},
          {"low_us", us(&Estimate::low)},
          {"high_us", us(&Estimate::high)},
          {"regrets", std::move(regrets)},
          {"worst_regret", rounded(worst_regret(choice, who))},
          {"mean_regret", rounded(mean_regret(choice, who))}};
}

TokenRange range_from_json(const JsonAt& json) {
  TokenRange range{.from = json["from"].integer(1)};
  if (json.has("to")) range.to = json["to"].integer(range.from);
  return range;
}

void read_cells(const JsonAt& json, const std::map<std::string, const Cell*>& known, RobustChoice& choice) {
  each(json, [&](const JsonAt& at) {
    const std::string word = at.string();
    const auto found = known.find(word);
    if (found == known.end()) at.fail(fmt::format("the table has no winner for {}", word));
    const Cell& cell = *found->second;
    if (!choice.cells.empty() && cell.shape != choice.shape()) at.fail(fmt::format("{} is of another layer", word));
    if (contains(choice.cells, cell)) at.fail(fmt::format("{} is in the list twice", word));
    if (!choice.cells.empty() && cell.tokens < choice.cells.back().tokens) at.fail("token counts must not descend");
    if (!choice.tokens.covers(cell.tokens))
      at.fail(fmt::format("{} tokens are outside the range {}", cell.tokens, text(choice.tokens)));
    choice.cells.push_back(cell);
  });
}

Standing standing_from_json(const JsonAt& json, size_t cells, const Catalog& catalog) {
  Standing standing{candidate_from_json(json["candidate"], catalog), {}};
  for (const char* list : {"median_us", "low_us", "high_us", "regrets"})
    if (json[list].size() != cells)
      json[list].fail(fmt::format("expected {} values, one for each cell, found {}", cells, json[list].size()));
  for (size_t i = 0; i < cells; ++i) {
    const Estimate time{json["median_us"][i].number() * 1e-6, json["low_us"][i].number() * 1e-6,
                        json["high_us"][i].number() * 1e-6};
    if (time.low > time.value || time.value > time.high)
      json["median_us"][i].fail(fmt::format("{:.6g} lies outside its interval {:.6g} to {:.6g}", time.value * 1e6,
                                            time.low * 1e6, time.high * 1e6));
    standing.times.push_back(time);
  }
  return standing;
}

void read_contenders(const JsonAt& json, RobustChoice& choice, const Catalog& catalog) {
  for (size_t i = 0; i < json.size(); ++i) {
    Standing one = standing_from_json(json[i], choice.cells.size(), catalog);
    if (contains(choice.contenders, one.candidate, &Standing::candidate))
      json[i].fail(fmt::format("{} is in the list twice", text(one.candidate)));
    choice.contenders.push_back(std::move(one));
  }
}

// Of a contender, and of the choice itself, which has no list of regrets.
void require_regrets(const JsonAt& json, const RobustChoice& choice, size_t who) {
  Json expected = {{"worst_regret", worst_regret(choice, who)}, {"mean_regret", mean_regret(choice, who)}};
  for (size_t i = 0; i < choice.cells.size(); ++i) expected["regrets"].push_back(regret(choice, who, i));
  require_follows(json, expected, "the times", kRegretRounding, 1);
}

void read_chosen(const JsonAt& json, RobustChoice& choice, const Catalog& catalog) {
  const Candidate candidate = candidate_from_json(json["candidate"], catalog);
  const auto found = std::ranges::find(choice.contenders, candidate, &Standing::candidate);
  if (found == choice.contenders.end()) json["candidate"].fail("it is not among the contenders");
  choice.chosen = static_cast<size_t>(found - choice.contenders.begin());
  const size_t best = best_contender(choice);
  if (choice.rule != Rule::layer && score(choice, choice.chosen) > score(choice, best) + kRegretRounding)
    json["candidate"].fail(
        fmt::format("by the rule '{}' {} has less regret", name(choice.rule), text(choice.contenders[best].candidate)));
  require_regrets(json, choice, choice.chosen);
  const bool merged = choice.cells.front().tokens != choice.cells.back().tokens;
  const double loss = score(choice, choice.chosen);
  if (merged && loss > choice.bucket_loss + kRegretRounding)
    json.fail(fmt::format("its regret {:.5g} is over bucket_loss {:g}, and yet token counts are merged", loss,
                          choice.bucket_loss));
}

RobustChoice choice_from_json(const JsonAt& json, const std::map<std::string, const Cell*>& known,
                              const Catalog& catalog) {
  RobustChoice choice;
  choice.rule = word_at(json["rule"], [](const std::string& word) { return parse_rule(word, "rule"); });
  choice.bucket_loss = json["bucket_loss"].number();
  choice.tokens = range_from_json(json["tokens"]);
  read_cells(json["cells"], known, choice);
  read_contenders(json["contenders"], choice, catalog);
  for (size_t i = 0; i < choice.contenders.size(); ++i) require_regrets(json["contenders"][i], choice, i);
  read_chosen(json, choice, catalog);
  choice.left_out = list_at(json["left_out"], [&](const JsonAt& one) -> LeftOut {
    return {candidate_from_json(one["candidate"], catalog), one["cell"].string(), one["reason"].string()};
  });
  return choice;
}

// The ranges of a shape must follow one another and cover all token counts.
void require_ranges(const JsonAt& json, const std::vector<RobustChoice>& choices) {
  const auto places = mapped(std::views::iota(size_t{0}, choices.size()), std::identity());
  for (const auto& of_shape : grouped_by(places, [&](size_t i) -> const Shape& { return choices[i].shape(); })) {
    std::optional<int64_t> end = 0;  // of the ranges so far; empty = no end
    for (const size_t i : of_shape) {
      if (!end || choices[i].tokens.from != *end + 1)
        json[i]["tokens"].fail(end ? fmt::format("the ranges of a layer must cover all token counts: this one must "
                                                 "begin at {}",
                                                 *end + 1)
                                   : "it comes after a range of the same layer that has no end");
      end = choices[i].tokens.to;
    }
    if (end) json.fail(fmt::format("the last range of {} must have no end", title(choices[of_shape[0]].shape())));
  }
}

}  // namespace

Json to_json(const TokenRange& range) { return {{"from", range.from}, {"to", range.to ? Json(*range.to) : Json()}}; }

Json to_json(const RobustChoice& choice) {
  const RobustChoice seen = as_read(choice);
  Json contenders = Json::array();
  for (size_t who = 0; who < seen.contenders.size(); ++who) contenders.push_back(contender_json(seen, who));
  const auto left_out = [](const LeftOut& one) -> Json {
    return {{"candidate", to_json(one.candidate)}, {"cell", one.cell}, {"reason", one.reason}};
  };
  return {{"rule", name(choice.rule)},
          {"bucket_loss", rounded(choice.bucket_loss)},
          {"tokens", to_json(choice.tokens)},
          {"cells", json_list(choice.cells, id)},
          {"candidate", to_json(choice.candidate())},
          {"worst_regret", rounded(worst_regret(seen, seen.chosen))},
          {"mean_regret", rounded(mean_regret(seen, seen.chosen))},
          {"contenders", std::move(contenders)},
          {"left_out", json_list(choice.left_out, left_out)}};
}

std::vector<RobustChoice> robust_choices_from_json(const JsonAt& json, const std::vector<const Cell*>& cells,
                                                   const Catalog& catalog) {
  std::map<std::string, const Cell*> known;
  for (const Cell* cell : cells) known.emplace(id(*cell), cell);
  auto choices = list_at(json, [&](const JsonAt& one) { return choice_from_json(one, known, catalog); });
  require_ranges(json, choices);
  return choices;
}

}  // namespace moetune
