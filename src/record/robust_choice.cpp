// Regrets, and how token counts are divided among choices. The JSON of choices: robust_choice_json.cpp.
#include "record/robust_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/error.h"
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

// The choice for cells [begin, end). Nothing where no contender has a time in all of them.
std::optional<RobustChoice> choice_of(const Contest& contest, size_t begin, size_t end, Rule rule, double bucket_loss) {
  RobustChoice choice{
      .rule = rule, .bucket_loss = bucket_loss, .tokens = {}, .cells = {}, .contenders = {}, .left_out = {}};
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

// Shortest path over the bounds between token counts. All counts must have a choice of their own.
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

size_t best_contender(const RobustChoice& choice) {
  const auto rank = [&](size_t who) {
    const double other = choice.rule == Rule::mean ? worst_regret(choice, who) : mean_regret(choice, who);
    return std::tuple(score(choice, who), other);
  };
  size_t best = 0;
  for (size_t who = 1; who < choice.contenders.size(); ++who)
    if (rank(who) < rank(best)) best = who;
  return best;
}

std::string sentence(const RobustChoice& choice) {
  const size_t cells = choice.cells.size();
  return fmt::format(
      "the robust choice for {} tokens: in {} cell{} at most {:.1f} % slower than the fastest there, "
      "{:.1f} % on average",
      text(choice.tokens), cells, cells == 1 ? "" : "s", 100 * worst_regret(choice, choice.chosen),
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

}  // namespace moetune
