// Taking turns, and the ratios that come of it.
#include "tune/rounds.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <span>
#include <thread>

#include "base/error.h"
#include "table/measurement.h"

namespace moetune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kFewLooks = 5;  // medians of fewer give no interval
constexpr double kFirstNap = 10e-3, kLongestNap = 160e-3;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// A block of each, beginning with contender `first`.
std::vector<Block> measure_round(Backend& backend, const std::vector<Contender>& contenders, size_t first,
                                 const SampleRequest& request) {
  SampleRequest one = request;
  one.blocks = 1;
  const size_t count = contenders.size();
  std::vector<Block> round(count);
  for (size_t turn = 0; turn < count; ++turn) {
    const size_t who = (first + turn) % count;
    try {
      const std::vector<Block> blocks = backend.sample(contenders[who], one);
      if (blocks.empty()) throw Error(Exit::bug, "a sample of one block came back empty");
      round[who] = blocks.front();
    } catch (const CandidateFault& fault) {
      throw ContenderFault(who, fault);
    }
  }
  return round;
}

bool is_disturbed(const std::vector<Block>& round) {
  return std::any_of(round.begin(), round.end(), [](const Block& block) { return block.waited > kBusy; });
}

// Rounds [from, from + count): one look.
bool is_slow(const Rounds& rounds, size_t from, size_t count, const Quiet& quiet) {
  const auto control = std::span(rounds.seconds[quiet.control]).subspan(from, count);
  return median(control) > kDisturbed * quiet.control_seconds;
}

Rounds with_room_for(size_t contenders) {
  Rounds rounds;
  rounds.seconds.resize(contenders);
  rounds.blocks.resize(contenders);
  return rounds;
}

void append_round(Rounds& rounds, size_t who, const Block& block) {
  rounds.blocks[who].push_back(block);
  rounds.seconds[who].push_back(block.seconds);
}

// Sleeps before something is measured again that began at `begin`, a little longer from time to time.
void rest(Quiet& quiet, double& nap, Clock::time_point begin) {
  std::this_thread::sleep_for(std::chrono::duration<double>(std::min(nap, quiet.wait)));
  nap = std::min(2 * nap, kLongestNap);
  quiet.wait -= since(begin);
  if (quiet.stop && *quiet.stop) quiet.wait = 0;
}

}  // namespace

Rounds measure_rounds(Backend& backend, const std::vector<Contender>& contenders, int rounds,
                      const SampleRequest& request, Quiet& quiet) {
  Rounds result = with_room_for(contenders.size());
  double nap = kFirstNap, look_nap = kFirstNap;
  Clock::time_point begin_look = Clock::now();
  for (int done = 0; done < rounds;) {
    const Clock::time_point begin = Clock::now();
    const size_t first = static_cast<size_t>(done) % std::max<size_t>(contenders.size(), 1);
    const std::vector<Block> round = measure_round(backend, contenders, first, request);
    if (quiet.wait > 0 && is_disturbed(round)) {
      rest(quiet, nap, begin);
      begin_look += Clock::now() - begin;  // that time is counted
      continue;
    }
    for (size_t who = 0; who < round.size(); ++who) append_round(result, who, round[who]);
    nap = kFirstNap;
    if (++done == rounds && quiet.wait > 0 && is_slow(result, 0, static_cast<size_t>(done), quiet)) {
      rest(quiet, look_nap, begin_look);
      result = with_room_for(contenders.size());
      done = 0;
      begin_look = Clock::now();
    }
  }
  result.looks.push_back(static_cast<size_t>(rounds));
  return result;
}

Rounds measure_rounds(Backend& backend, const std::vector<Contender>& contenders, int rounds,
                      const SampleRequest& request) {
  Quiet quiet;
  return measure_rounds(backend, contenders, rounds, request, quiet);
}

Rounds undisturbed(const Rounds& rounds, const Quiet& quiet) {
  Rounds kept = with_room_for(rounds.seconds.size());
  size_t from = 0;
  for (const size_t count : rounds.looks) {
    if (!is_slow(rounds, from, count, quiet)) {
      for (size_t who = 0; who < rounds.blocks.size(); ++who)
        for (size_t round = from; round < from + count; ++round) append_round(kept, who, rounds.blocks[who][round]);
      kept.looks.push_back(count);
    }
    from += count;
  }
  return 4 * kept.looks.size() >= rounds.looks.size() ? kept : rounds;
}

void append(Rounds& rounds, const Rounds& more) {
  rounds.seconds.resize(more.seconds.size());
  rounds.blocks.resize(more.blocks.size());
  for (size_t i = 0; i < rounds.seconds.size(); ++i) {
    rounds.seconds[i].insert(rounds.seconds[i].end(), more.seconds[i].begin(), more.seconds[i].end());
    rounds.blocks[i].insert(rounds.blocks[i].end(), more.blocks[i].begin(), more.blocks[i].end());
  }
  rounds.looks.insert(rounds.looks.end(), more.looks.begin(), more.looks.end());
}

Ratio paired_ratio(const std::vector<double>& a, const std::vector<double>& b, double confidence) {
  std::vector<double> logs;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) logs.push_back(std::log(a[i] / b[i]));
  const Interval interval = bootstrap_median_interval(logs, confidence);
  const double middle = median(logs);
  // With few rounds the interval of resampled medians may miss the median itself by a rounding.
  return {std::exp(middle), {std::exp(std::min(interval.low, middle)), std::exp(std::max(interval.high, middle))}};
}

Ratio paired_ratio(const Rounds& rounds, size_t a, size_t b) {
  const std::vector<double>&above = rounds.seconds[a], &below = rounds.seconds[b];
  if (rounds.looks.size() < kFewLooks) return paired_ratio(above, below);
  std::vector<double> medians;
  for (size_t look = 0, at = 0; look < rounds.looks.size(); at += rounds.looks[look++]) {
    std::vector<double> ratios;
    for (size_t i = at; i < at + rounds.looks[look]; ++i) ratios.push_back(above[i] / below[i]);
    medians.push_back(median(ratios));
  }
  return paired_ratio(medians, std::vector<double>(medians.size(), 1));
}

double log_half_width(const Interval& interval) {
  if (!(interval.low > 0 && interval.high >= interval.low)) return std::numeric_limits<double>::infinity();
  return std::log(interval.high / interval.low) / 2;
}

}  // namespace moetune
