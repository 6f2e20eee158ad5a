// The order of blocks in a round, waiting for a quiet machine, and paired ratios.
#include "tune/rounds.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/error.h"

namespace moetune {
namespace {

constexpr size_t kEnoughCalm = 10;      // rounds
constexpr size_t kFastestBlocks = 3;    // fastest blocks; the slowest of them counts
constexpr size_t kMaxResampled = 1000;  // rounds
constexpr double kFirstNap = 10e-3, kLongestNap = 160e-3;

// The contender whose turn it is. Each contender follows every other one equally often in every `count` rounds, or in
// twice as many where `count` is odd, because one that takes much power lowers a GPU's clock for the next. The order is
// that of Williams's Latin square balanced for residual effects (1949): 0, 1, n - 1, 2, n - 2, ..., each plus the
// round's number; where `count` is odd, every other square is reversed.
size_t whose_turn(size_t round, size_t turn, size_t count) {
  if (count % 2 != 0 && round / count % 2 != 0) turn = count - 1 - turn;
  return (round + (turn % 2 != 0 ? (turn + 1) / 2 : count - turn / 2)) % count;
}

bool is_slow(const Block& block, const Quiet& quiet) { return block.seconds > kDisturbed * quiet.control_seconds; }

void learn(Quiet& quiet, double seconds) {
  quiet.fastest.insert(std::ranges::upper_bound(quiet.fastest, seconds), seconds);
  if (quiet.fastest.size() < kFastestBlocks) return;
  quiet.fastest.resize(kFastestBlocks);
  quiet.control_seconds = std::min(quiet.control_seconds, kUndisturbed * quiet.fastest.back());
}

// Measures a block of each contender into `round`, the one with this number. False where it is given up: the control
// shows a disturbance while there is time left to measure again, or measuring stops.
bool measure_round(const std::vector<Runner>& runners, size_t number, const SampleRequest& request, Quiet& quiet,
                   std::vector<Block>& round) {
  SampleRequest one = request;
  one.blocks = 1;
  const size_t count = runners.size();
  round.assign(count, {});
  for (size_t turn = 0; turn < count; ++turn) {
    if (quiet.early.holds(static_cast<int>(number))) return false;
    const size_t who = whose_turn(number, turn, count);
    try {
      const std::vector<Block> blocks = runners[who].backend->sample(runners[who].contender, one);
      if (blocks.empty()) throw Error(Exit::bug, "a sample of one block came back empty");
      round[who] = blocks.front();
    } catch (const CandidateFault& fault) {
      throw ContenderFault(who, fault);
    }
    if (who != quiet.control) continue;
    learn(quiet, round[who].seconds);
    if (quiet.waits() && is_slow(round[who], quiet)) return false;
  }
  return true;
}

Estimate ratio_by_looks(const Rounds& rounds, const std::vector<double>& above, const std::vector<double>& below) {
  if (rounds.looks.size() < kFewest) return paired_ratio(above, below);
  std::vector<double> medians;
  for (size_t look = 0, at = 0; look < rounds.looks.size(); at += rounds.looks[look++]) {
    std::vector<double> ratios;
    for (size_t i = at; i < at + rounds.looks[look]; ++i) ratios.push_back(above[i] / below[i]);
    medians.push_back(median(ratios));
  }
  return paired_ratio(medians, std::vector<double>(medians.size(), 1));
}

}  // namespace

std::vector<double> Rounds::values(size_t contender, const Quantity& quantity) const {
  return mapped(blocks[contender], [&](const Block& block) { return quantity.of(block); });
}

Rounds measure_rounds(const std::vector<Runner>& runners, int rounds, const SampleRequest& request, Quiet& quiet) {
  Rounds result{.blocks = std::vector<std::vector<Block>>(runners.size())};
  double nap = kFirstNap;
  std::vector<Block> round;
  int done = 0;
  while (done < rounds && !quiet.early.holds(done)) {
    const Clock::time_point begin = Clock::now();
    if (!measure_round(runners, static_cast<size_t>(done), request, quiet, round)) {
      // No sleep: other users of the cores pause only briefly, and trying again finds such a pause.
      quiet.wait -= seconds_since(begin);
      continue;
    }
    if (quiet.waits() && std::ranges::any_of(round, [](const Block& block) { return block.waited > kBusy; })) {
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(nap, quiet.wait)));
      nap = std::min(2 * nap, kLongestNap);
      quiet.wait -= seconds_since(begin);
      continue;
    }
    for (size_t who = 0; who < round.size(); ++who) result.blocks[who].push_back(round[who]);
    nap = kFirstNap;
    ++done;
  }
  result.looks.push_back(static_cast<size_t>(done));
  return result;
}

Rounds measure_rounds(Backend& backend, const std::vector<Contender>& contenders, int rounds,
                      const SampleRequest& request, Quiet& quiet) {
  const auto runner = [&](const Contender& contender) { return Runner{&backend, contender}; };
  return measure_rounds(mapped(contenders, runner), rounds, request, quiet);
}

Rounds undisturbed(const Rounds& rounds, const Quiet& quiet) {
  if (!quiet.control) return rounds;
  Rounds kept{.blocks = std::vector<std::vector<Block>>(rounds.blocks.size())};
  size_t round = 0;
  for (const size_t count : rounds.looks) {
    size_t calm = 0;
    for (const size_t end = round + count; round < end; ++round) {
      if (is_slow(rounds.blocks[*quiet.control][round], quiet)) continue;
      for (size_t who = 0; who < rounds.blocks.size(); ++who) kept.blocks[who].push_back(rounds.blocks[who][round]);
      ++calm;
    }
    if (calm > 0) kept.looks.push_back(calm);
  }
  const size_t left = kept.count();
  const bool enough = left >= kEnoughCalm || (left >= kFewest && 4 * left >= rounds.count());
  return enough ? kept : rounds;
}

void append(Rounds& rounds, const Rounds& more) {
  rounds.blocks.resize(more.blocks.size());
  for (size_t i = 0; i < rounds.blocks.size(); ++i)
    rounds.blocks[i].insert(rounds.blocks[i].end(), more.blocks[i].begin(), more.blocks[i].end());
  rounds.looks.insert(rounds.looks.end(), more.looks.begin(), more.looks.end());
}

Estimate paired_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> logs;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) logs.push_back(std::log(a[i] / b[i]));
  // Resampling more takes seconds, and order statistics agree with it.
  const Estimate log = logs.size() > kMaxResampled ? median_estimate(logs) : bootstrap_median(logs);
  return {std::exp(log.value), std::exp(log.low), std::exp(log.high), log.samples};
}

Estimate paired_ratio(const Rounds& rounds, size_t a, size_t b, const Quantity& quantity) {
  return ratio_by_looks(rounds, rounds.values(a, quantity), rounds.values(b, quantity));
}

Estimate estimate_of(const Rounds& rounds, size_t contender, const Quantity& quantity) {
  return ratio_by_looks(rounds, rounds.values(contender, quantity), std::vector<double>(rounds.count(), 1));
}

}  // namespace moetune
