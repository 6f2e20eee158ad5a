// The JSON of robust choices. Regrets are written for people and programs; readers compute them again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json.h"
#include "record/robust_choice.h"

namespace moetune {
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
  Json median = Json::array(), low = Json::array(), high = Json::array(), regrets = Json::array();
  const std::vector<Estimate>& times = choice.contenders[who].times;
  for (size_t i = 0; i < times.size(); ++i) {
    median.push_back(rounded(times[i].value * 1e6));
    low.push_back(rounded(times[i].low * 1e6));
    high.push_back(rounded(times[i].high * 1e6));
    regrets.push_back(rounded(regret(choice, who, i)));
  }
  return {{"candidate", to_json(choice.contenders[who].candidate)},
          {"median_us", std::move(median)},
          {"low_us", std::move(low)},
          {"high_us", std::move(high)},
          {"regrets", std::move(regrets)},
          {"worst_regret", rounded(worst_regret(choice, who))},
          {"mean_regret", rounded(mean_regret(choice, who))}};
}

TokenRange range_from_json(const JsonAt& json) {
  TokenRange range{.from = json["from"].integer(1), .to = {}};
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
    if (std::ranges::find(choice.cells, cell) != choice.cells.end())
      at.fail(fmt::format("{} is in the list twice", word));
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
    if (std::ranges::any_of(choice.contenders, [&](const Standing& known) { return known.candidate == one.candidate; }))
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
  const auto found =
      std::ranges::find_if(choice.contenders, [&](const Standing& one) { return one.candidate == candidate; });
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
  std::vector<bool> told(choices.size(), false);
  for (size_t first = 0; first < choices.size(); ++first) {
    if (told[first]) continue;
    std::optional<int64_t> end = 0;  // of the ranges so far; empty = no end
    for (size_t i = first; i < choices.size(); ++i) {
      if (choices[i].shape() != choices[first].shape()) continue;
      told[i] = true;
      if (!end || choices[i].tokens.from != *end + 1)
        json[i]["tokens"].fail(end ? fmt::format("the ranges of a layer must cover all token counts: this one must "
                                                 "begin at {}",
                                                 *end + 1)
                                   : "it comes after a range of the same layer that has no end");
      end = choices[i].tokens.to;
    }
    if (end) json.fail(fmt::format("the last range of {} must have no end", title(choices[first].shape())));
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
