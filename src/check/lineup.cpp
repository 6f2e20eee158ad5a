// Chooses who is measured, and runs each contender once.
#include "check/lineup.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace moetune {
namespace {

void drop(Lineup& lineup, size_t runner) {
  lineup.runners.erase(lineup.runners.begin() + static_cast<std::ptrdiff_t>(runner));
  lineup.rivals.erase(lineup.rivals.begin() + static_cast<std::ptrdiff_t>(runner - 1));
}

// The other program refuses what it does not know: a knob, a variant or a fusion that came later.
template <typename Call>
auto asked_of(const Lineup& lineup, Call call) {
  try {
    return call();
  } catch (const Error& error) {
    if (error.exit() != Exit::request) throw;
    throw CandidateFault(Status::illegal,
                         fmt::format("{} does not support it: {}", lineup.control().name, error.what()));
  }
}

// The first of them must compile; its code is returned.
std::string require_compiled(Backend& backend, const Shape& shape, const std::vector<Candidate>& candidates) {
  const std::vector<CompileResult> results = backend.compile(shape, candidates);
  if (results.at(0).status != Status::ok) throw CandidateFault(results[0].status, results[0].reason);
  return results[0].code;
}

std::vector<Candidate> candidates_of(const Lineup& lineup, const Backend* backend) {
  std::vector<Candidate> candidates;
  for (const Runner& runner : lineup.runners)
    if (runner.backend == backend && runner.contender.baseline.empty())
      candidates.push_back(runner.contender.candidate);
  return candidates;
}

CellFinding not_judged(const CellFinding& finding, const Lineup& lineup, const std::string& why) {
  return settled(
      finding, Finding::inconclusive,
      fmt::format("{} cannot run this winner, so there is nothing to compare with: {}", lineup.control().name, why));
}

// The same winner in the other program: it must run and be right, or its time says nothing.
std::optional<CellFinding> try_other(const CellFinding& finding, const Problem& problem, const Lineup& lineup) {
  const Runner& there = lineup.runners.back();
  try {
    const Verdict verdict = asked_of(lineup, [&] {
      there.backend->load(problem);
      require_compiled(*there.backend, problem.shape, {there.contender.candidate});
      return there.backend->verify(there.contender);
    });
    if (verdict.ok) return std::nullopt;
    return not_judged(finding, lineup, "its result is wrong: " + verdict.reason);
  } catch (const CandidateFault& fault) {
    return not_judged(finding, lineup, fault.what());
  } catch (const OutOfMemory& memory) {
    return settled(finding, Finding::inconclusive,
                   fmt::format("out of memory: {} and this program hold their operands at the same time: {}",
                               lineup.control().name, memory.what()));
  }
}

}  // namespace

std::optional<Lineup> line_up(const Entry& entry, Backend& backend, bool all) {
  const std::vector<std::string> offered = backend.baselines();
  const Rival* control = find_control(entry, &offered);
  if (!control) return std::nullopt;
  Lineup lineup{.entry = &entry, .runners = {{&backend, {.candidate = entry.candidate}}}};
  const auto first =
      std::ranges::find_if(entry.rivals, [&](const Rival& rival) { return contains(offered, rival.name); });
  for (auto rival = entry.rivals.begin(); rival != entry.rivals.end(); ++rival) {
    if (&*rival == control) continue;
    const bool is_default = rival->name == "default";
    const bool other = is_default && rival->candidate != entry.candidate;
    if (other || rival == first || (all && contains(offered, rival->name))) lineup.rivals.push_back(*rival);
  }
  lineup.rivals.push_back(*control);
  for (const Rival& rival : lineup.rivals) {
    const bool is_default = rival.name == "default";
    lineup.runners.push_back({&backend, {.baseline = is_default ? "" : rival.name, .candidate = rival.candidate}});
  }
  return lineup;
}

Lineup line_up_pair(const Entry& entry, Backend& here, const Against& there) {
  const Contender winner = {.candidate = entry.candidate};
  Lineup lineup{.entry = &entry, .runners = {{&here, winner}}, .paired = true};
  std::vector<std::string> both = here.baselines();
  const std::vector<std::string> theirs = there.backend->baselines();
  std::erase_if(both, [&](const std::string& name) { return !contains(theirs, name); });
  const auto add = [&](Backend& backend, const std::string& name, const Contender& contender) {
    lineup.rivals.push_back({.name = name, .ratio = {1, 1, 1}});
    lineup.runners.push_back({&backend, contender});
  };
  if (!both.empty()) {
    const Rival* control = find_control(entry, &both);
    const std::string witness = control && control->name != "default" ? control->name : both.front();
    for (Backend* backend : {&here, there.backend}) add(*backend, witness, {.baseline = witness});
  }
  const auto other = there.winners.find(&entry);
  add(*there.backend, there.name, other == there.winners.end() ? winner : Contender{.candidate = other->second});
  return lineup;
}

void load(const Lineup& lineup, const Problem& problem) {
  lineup.runners.front().backend->load(problem);
  if (lineup.paired) lineup.runners.back().backend->load(problem);
}

std::optional<CellFinding> try_out(CellFinding& finding, const Problem& problem, Lineup& lineup,
                                   const SampleRequest& sample) {
  Backend* here = lineup.runners[0].backend;
  try {
    here->load(problem);
    finding.code = require_compiled(*here, problem.shape, candidates_of(lineup, here));
    finding.verdict = here->verify(lineup.runners[0].contender);
    if (!finding.verdict.ok) return settled(finding, Finding::wrong_result, finding.verdict.reason);
  } catch (const CandidateFault& fault) {
    return settled(finding, Finding::failed, fault.what());
  }
  if (lineup.paired)
    if (auto other = try_other(finding, problem, lineup)) return other;
  SampleRequest one = sample;
  one.blocks = 1;
  for (size_t i = 0; i < lineup.runners.size(); ++i) try {
      lineup.runners[i].backend->sample(lineup.runners[i].contender, one);
    } catch (const CandidateFault& fault) {
      if (i == 0 || i + 1 == lineup.runners.size()) return ended(finding, lineup, {i, fault});
      if (lineup.paired)  // the baseline of both programs: one side alone says nothing
        drop(lineup, 2), drop(lineup, 1), i = 0;
      else
        drop(lineup, i), --i;
    }
  return std::nullopt;
}

CellFinding ended(const CellFinding& finding, const Lineup& lineup, const ContenderFault& fault) {
  if (fault.contender == 0) return settled(finding, Finding::failed, fault.what());
  const bool control = fault.contender + 1 == lineup.runners.size();
  if (lineup.paired && control) return not_judged(finding, lineup, fault.what());
  return settled(
      finding, Finding::inconclusive,
      fmt::format("{} fails: {}",
                  control ? "its control " + finding.control : text(lineup.runners[fault.contender].contender),
                  fault.what()),
      Remedy::tune);
}

}  // namespace moetune
