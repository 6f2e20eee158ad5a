// Robust choices: one candidate for all routings of a range of token counts, and what it costs in each cell. Times are
// measured in tune/contest.h.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/stats.h"
#include "variant/candidate.h"
#include "workload/problem.h"

namespace moetune {

/// What a choice minimises: the largest regret over its cells, or their mean; `layer`: the largest regret of up and
/// down of the layer together, which the choice alone does not show.
enum class Rule { worst, mean, layer };
std::string_view name(Rule rule);
Rule parse_rule(std::string_view text, std::string_view option);

/// A candidate that may be chosen, with its times in all cells; seconds.
struct Standing {
  Candidate candidate;
  std::vector<Estimate> times;  // [cells]
};

/// A contender without a right result in one of the cells.
struct LeftOut {
  Candidate candidate;
  std::string cell;    // its id
  std::string reason;  // a sentence
};

/// Token counts, both included.
struct TokenRange {
  int64_t from = 1;
  std::optional<int64_t> to = {};  // empty = no end
  bool covers(int64_t tokens) const { return tokens >= from && (!to || tokens <= *to); }
  bool operator==(const TokenRange&) const = default;
};
/// Where ranges of neighbouring token counts meet: the largest whole number whose square is at most a * b < 2^56.
int64_t middle_of(int64_t a, int64_t b);
/// "1 to 90", "91 and more", "all".
std::string text(const TokenRange& range);

/// Contenders measured side by side in cells of one shape, and the one that is chosen for a range of token counts.
struct RobustChoice {
  Rule rule = Rule::worst;
  double bucket_loss = 0;                 // token counts were merged while the regret stayed within it
  TokenRange tokens = {};                 // which it serves
  std::vector<Cell> cells = {};           // of one shape, tokens ascending; all within the range
  std::vector<Standing> contenders = {};  // distinct
  size_t chosen = 0;
  std::vector<LeftOut> left_out = {};

  const Shape& shape() const { return cells.front().shape; }
  const Candidate& candidate() const { return contenders[chosen].candidate; }
};

/// How much longer a contender takes in a cell than the fastest contender there: time / least time - 1.
double regret(const RobustChoice& choice, size_t contender, size_t cell);
double worst_regret(const RobustChoice& choice, size_t contender);
double mean_regret(const RobustChoice& choice, size_t contender);
/// The one of the two that its rule minimises.
double score(const RobustChoice& choice, size_t contender);
/// "the robust choice for 1 to 90 tokens: in 4 cells at most 1.2 % slower than the fastest there, 0.4 % on average".
std::string sentence(const RobustChoice& choice);
/// Half the widest interval of its contenders' times, in the logarithm: regrets below it may be noise.
double uncertainty(const RobustChoice& choice);

/// Contenders that were measured in the cells of one shape. A contender may lack a time where it is not right.
struct Contest {
  std::vector<Cell> cells;  // of one shape, tokens ascending
  std::vector<Candidate> contenders;
  std::vector<std::vector<std::optional<Estimate>>> times;  // [contenders][cells]
  std::vector<LeftOut> left_out;
};

/// One choice for each token count of the contest; neighbouring counts are merged where the score of one contender over
/// all their cells is at most `bucket_loss` (0: none is merged). There are as few choices as this allows, and of the
/// ways to have so few, the one whose scores have the least sum. Contenders without a time in a cell of a choice do not
/// take part in it; token counts without any contender get no choice. Ranges cover all token counts: they meet at the
/// middle, in the logarithm, between the last count of one and the first of the next.
std::vector<RobustChoice> robust_choices(const Contest& contest, Rule rule, double bucket_loss);

/// The choice of a list for a computation and a token count; null where there is none. Names of models and projections
/// do not count.
const RobustChoice* find_robust_choice(const std::vector<RobustChoice>& choices, const Shape& shape, int64_t tokens);

Json to_json(const TokenRange& range);
Json to_json(const RobustChoice& choice);
/// Reads choices whose cells are among `cells`. Errors name the place: values out of range, cells that are not there, a
/// cell, contender or token count twice, regrets that do not follow from the times, a candidate that is not the best by
/// the rule, and ranges of one shape that overlap or leave a gap.
std::vector<RobustChoice> robust_choices_from_json(const JsonAt& json, const std::vector<const Cell*>& cells,
                                                   const Catalog& catalog);

}  // namespace moetune
