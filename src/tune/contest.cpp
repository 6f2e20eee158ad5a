// Measures the contenders of each cell. Which of them is chosen: record/robust_choice.cpp.
#include "tune/contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace moetune {
namespace {

constexpr size_t kContenders = 8;  // of a cell; more only if it has more winners

// The winners of each shape, their tokens ascending.
std::vector<Entries> winners_by_shape(const TunedTable& table) {
  std::vector<Entries> shapes = by_shape(table);
  for (Entries& entries : shapes) {
    std::erase_if(entries, [](const Entry* entry) { return !entry->skipped.empty(); });
    std::ranges::stable_sort(entries, {}, [](const Entry* entry) { return entry->cell.tokens; });
  }
  std::erase_if(shapes, [](const Entries& entries) { return entries.empty(); });
  return shapes;
}

// Entries that have the same contenders: all, or those of each token count.
std::vector<Entries> pools_of(const Entries& entries, double bucket_loss) {
  std::vector<Entries> pools;
  for (const Entry* entry : entries) {
    if (pools.empty() || (bucket_loss <= 0 && pools.back()[0]->cell.tokens != entry->cell.tokens)) pools.emplace_back();
    pools.back().push_back(entry);
  }
  return pools;
}

// The different candidates of a list, the most frequent first.
std::vector<Candidate> by_frequency(const std::vector<Candidate>& list) {
  std::map<Candidate, int> counts;
  for (const Candidate& one : list) ++counts[one];
  std::vector<Candidate> distinct = mapped(counts, [](const auto& one) { return one.first; });
  std::ranges::stable_sort(distinct, std::ranges::greater(), [&](const Candidate& one) { return counts.at(one); });
  return distinct;
}

// What all cells of a shape have in common.
struct Field {
  Backend& backend;
  const ContestRequest& request;
  const ContestListener& listener;
  const std::atomic<bool>& stop;

  bool over() const { return StopEarly{.stop = &stop, .end = request.end}.due(); }
  void note(const std::string& text) const {
    if (listener.note) listener.note(text);
  }
};

struct Meeting {
  const Field& field;
  const Cell& cell;
  std::vector<Candidate> able;
  Problem problem = make_problem(cell);
  std::vector<LeftOut> faults = {};

  void drop(const Candidate& candidate, const std::string& reason) {
    faults.push_back({candidate, id(cell), reason});
    std::erase(able, candidate);
  }
};

void verify_all(Meeting& meeting) {
  for (const Candidate& candidate : std::vector<Candidate>(meeting.able)) try {
      if (meeting.field.stop) return;
      const Verdict verdict = meeting.field.backend.verify({.candidate = candidate});
      if (!verdict.ok) meeting.drop(candidate, fmt::format("its result is wrong: {}", verdict.reason));
    } catch (const CandidateFault& fault) {
      meeting.drop(candidate, fault.what());
    }
}

Rounds settle(Meeting& meeting) {
  const auto contender = [](const Candidate& one) { return Contender{.candidate = one}; };
  std::vector<Contender> contenders = mapped(meeting.able, contender);
  const Field& field = meeting.field;
  return measure_looks(
      field.backend, contenders, field.request, field.stop, [&] { field.backend.load(meeting.problem); },
      [&](const Contender& one, const std::string& reason) { meeting.drop(one.candidate, reason); });
}

struct Pool {
  Entries entries;
  std::vector<Candidate> contenders;
};

void compile(const Field& field, Contest& contest, std::vector<Pool>& pools) {
  const Shape& shape = pools[0].entries[0]->cell.shape;
  const std::vector<CompileResult> results = field.backend.compile(shape, contest.contenders);
  if (results.size() != contest.contenders.size()) throw Error(Exit::bug, "not every candidate got a compile result");
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].status == Status::ok) continue;
    const Candidate& broken = contest.contenders[i];
    field.note(fmt::format("{} is left out of the choice: {}", text(broken), results[i].reason));
    for (Pool& pool : pools)
      if (std::erase(pool.contenders, broken) > 0)
        for (const Entry* entry : pool.entries)
          contest.left_out.push_back({broken, id(entry->cell), results[i].reason});
  }
}

// Adds the cell and the times of its contenders. Nothing is added where it does not fit into memory. False where a stop
// or the end of the time cuts it short.
bool add_cell(Contest& contest, const Field& field, const Entry& entry, const std::vector<Candidate>& contenders) {
  Meeting meeting{field, entry.cell, contenders};
  if (field.listener.begins) field.listener.begins(entry.cell, contenders.size());
  Rounds rounds;
  try {
    field.backend.load(meeting.problem);
    verify_all(meeting);
    rounds = settle(meeting);
  } catch (const OutOfMemory& error) {
    field.note(fmt::format("{} is left out of the choice: out of memory: {}", id(entry.cell), error.what()));
    return true;
  }
  if (rounds.blocks.empty() && !meeting.able.empty()) return false;
  contest.cells.push_back(entry.cell);
  for (size_t who = 0; who < contest.contenders.size(); ++who) {
    contest.times[who].emplace_back();
    const auto place = std::ranges::find(meeting.able, contest.contenders[who]);
    if (place == meeting.able.end()) continue;
    contest.times[who].back() = estimate_of(rounds, static_cast<size_t>(place - meeting.able.begin()));
  }
  for (const LeftOut& fault : meeting.faults) {
    contest.left_out.push_back(fault);
    field.note(fmt::format("{} is left out of the choice: in {}: {}", text(fault.candidate), fault.cell, fault.reason));
  }
  return true;
}

std::optional<Contest> measure(const Field& field, const Entries& entries) {
  Contest contest;
  std::vector<Pool> pools;
  for (const Entries& part : pools_of(entries, field.request.bucket_loss)) {
    pools.push_back({part, field.request.contenders ? field.request.contenders(part) : pick_contenders(part)});
    for (const Candidate& one : pools.back().contenders) add_once(contest.contenders, one);
  }
  contest.times.resize(contest.contenders.size());
  compile(field, contest, pools);
  for (const Pool& pool : pools)
    for (const Entry* entry : pool.entries)
      if (field.over() || !add_cell(contest, field, *entry, pool.contenders)) return std::nullopt;
  if (field.stop) return std::nullopt;
  return contest;
}

}  // namespace

Rounds measure_looks(Backend& backend, std::vector<Contender>& contenders, const ContestRequest& request,
                     const std::atomic<bool>& stop, const std::function<void()>& reload,
                     const std::function<void(const Contender&, const std::string&)>& drop) {
  std::map<std::string, int> strikes;
  const int looks = std::max(request.looks, 1), share = std::max(request.rounds / looks, 1);
  Quiet quiet{.early = {.stop = &stop, .end = request.end}};
  while (!contenders.empty() && !quiet.early.overdue()) try {
      quiet.wait = request.wait;
      Rounds rounds;
      for (int look = 0; look < looks && (look == 0 || !quiet.early.overdue()); ++look) {
        if (look > 0) reload();
        append(rounds, measure_rounds(backend, contenders, share, request.sample, quiet));
      }
      const bool enough = rounds.count() >= static_cast<size_t>(std::min(looks * share, kFewest));
      return enough ? rounds : Rounds{};
    } catch (const ContenderFault& fault) {
      const auto culprit = contenders.begin() + static_cast<std::ptrdiff_t>(fault.contender);
      if (++strikes[text(*culprit)] < kStrikes) continue;
      drop(*culprit, fault.what());
      contenders.erase(culprit);
    }
  return {};
}

bool has_contest(const std::vector<Cell>& cells, double bucket_loss) {
  for (size_t i = 0; i < cells.size(); ++i)
    for (size_t j = i + 1; j < cells.size(); ++j)
      if (cells[i].shape == cells[j].shape && (bucket_loss > 0 || cells[i].tokens == cells[j].tokens)) return true;
  return false;
}

std::vector<Candidate> pick_contenders(const Entries& entries) {
  std::vector<Candidate> winners, defaults, ties;
  for (const Entry* entry : entries) {
    winners.push_back(entry->candidate);
    if (const Rival* fallback = find_rival(*entry, "default")) defaults.push_back(fallback->candidate);
    ties.insert(ties.end(), entry->ties.begin(), entry->ties.end());
  }
  std::vector<Candidate> picked = by_frequency(winners);
  const size_t most = std::max(kContenders, picked.size() + 1);  // one default at least
  for (const std::vector<Candidate>& more : {by_frequency(defaults), by_frequency(ties)})
    for (const Candidate& one : more)
      if (picked.size() < most && !contains(picked, one)) picked.push_back(one);
  return picked;
}

std::vector<RobustChoice> measure_choices(const TunedTable& table, Backend& backend, const ContestRequest& request,
                                          const ContestListener& listener, const std::atomic<bool>& stop) {
  std::vector<RobustChoice> choices;
  for (const Entries& entries : winners_by_shape(table)) {
    if (!request.contenders && !has_contest(mapped(entries, &Entry::cell), request.bucket_loss)) continue;
    const Field field{backend, request, listener, stop};
    const std::optional<Contest> contest = measure(field, entries);
    if (!contest) {
      if (!stop)
        field.note(fmt::format("the time budget is spent: {} gets no choice; run again with --append",
                               title(entries[0]->cell.shape)));
      continue;
    }
    for (RobustChoice& choice : robust_choices(*contest, request.rule, request.bucket_loss))
      choices.push_back(std::move(choice));
  }
  return choices;
}

}  // namespace moetune
