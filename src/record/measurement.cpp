// Summaries of timed blocks; JSON of times and trials.
#include "record/measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"

namespace moetune {
namespace {

constexpr double kMicro = 1e-6;
constexpr int64_t kMaxSamples = int64_t{1} << 40;

bool ran(const Verdict& verdict) { return verdict.ok || verdict.elements > 0 || !verdict.reason.empty(); }

// The metrics that every block has.
Metrics<std::vector<double>> metrics_of(const std::vector<Block>& blocks) {
  Metrics<std::vector<double>> values;
  for (const Block& block : blocks)
    for (const auto& [metric, value] : block.metrics) values[metric].push_back(value);
  std::erase_if(values, [&](const auto& one) { return one.second.size() != blocks.size(); });
  return values;
}

// A list for each figure, since a trial has few blocks and a journal many trials.
Json blocks_to_json(const std::vector<Block>& blocks) {
  Json json = {{"us", json_list(blocks, [](const Block& block) { return rounded(block.seconds / kMicro); })},
               {"launches", json_list(blocks, &Block::launches)},
               {"clock_mhz", json_list(blocks, [](const Block& block) { return rounded(block.clock_mhz, 5); })}};
  json.update(metrics_json(metrics_of(blocks), [](const std::vector<double>& values) {
    return json_list(values, [](double value) { return rounded(value); });
  }));
  return json;
}

std::vector<Block> blocks_from_json(const JsonAt& json) {
  const JsonAt us = json["us"], launches = json["launches"], clocks = json["clock_mhz"];
  if (launches.size() != us.size() || clocks.size() != us.size())
    json.fail(fmt::format("{} times, {} counts of launches and {} clocks must be equally many", us.size(),
                          launches.size(), clocks.size()));
  const auto metrics = metrics_from_json(json, [&](const JsonAt& values) {
    if (values.size() != us.size()) values.fail(fmt::format("expected {} values, one a block", us.size()));
    return list_at(values, &JsonAt::number);
  });
  std::vector<Block> blocks;
  for (size_t i = 0; i < us.size(); ++i) {
    blocks.push_back({.seconds = us[i].number() * kMicro,
                      .launches = static_cast<int>(launches[i].integer(1, 1 << 30)),
                      .clock_mhz = clocks[i].number()});
    for (const auto& [metric, values] : metrics) blocks.back().metrics[metric] = values[i];
  }
  return blocks;
}

bool compiled(const CompileResult& result) {
  return result.status != Status::ok || result.registers > 0 || result.from_cache || result.seconds > 0;
}

}  // namespace

Measurement summarise(const std::vector<Block>& blocks) {
  std::vector<double> seconds, clocks;
  Measurement result;
  for (const Block& block : blocks) {
    seconds.push_back(block.seconds);
    result.launches += block.launches;
    if (block.clock_mhz > 0) clocks.push_back(block.clock_mhz);
    result.waited += block.waited / static_cast<double>(blocks.size());
  }
  if (blocks.empty()) return result;
  result.time = median_estimate(seconds);
  result.min = std::ranges::min(seconds), result.max = std::ranges::max(seconds);
  result.clock_mhz = clocks.empty() ? 0 : median(clocks);
  for (const auto& [metric, values] : metrics_of(blocks)) result.metrics[metric] = median_estimate(values);
  return result;
}

std::string title(Metric metric) { return fmt::format("{} ({})", info(metric).name, info(metric).unit); }

std::vector<Metric> metrics_of(const std::vector<const Measurement*>& measurements) {
  Metrics<Estimate> found;
  for (const Measurement* measurement : measurements)
    found.insert(measurement->metrics.begin(), measurement->metrics.end());
  return mapped(found, [](const auto& one) { return one.first; });
}

Metrics<Estimate> metric_changes(const Measurement& now, const Measurement& then) {
  Metrics<Estimate> changes;
  for (const auto& [metric, value] : now.metrics)
    if (const auto before = then.metrics.find(metric); before != then.metrics.end()) {
      const Estimate ratio = value / before->second;
      changes[metric] = {ratio.value - 1, ratio.low - 1, ratio.high - 1, ratio.samples};
    }
  return changes;
}

std::optional<Estimate> advantage(Metric metric, const Measurement& one, const Measurement& other) {
  const auto ours = one.metrics.find(metric), theirs = other.metrics.find(metric);
  if (ours == one.metrics.end() || theirs == other.metrics.end()) return std::nullopt;
  return info(metric).smaller_is_better ? theirs->second / ours->second : ours->second / theirs->second;
}

Json estimate_json(const std::string& name, const Estimate& estimate, int digits) {
  return {{name, rounded(estimate.value, digits)},
          {name + "_low", rounded(estimate.low, digits)},
          {name + "_high", rounded(estimate.high, digits)}};
}

Json to_json(const Measurement& measurement) {
  Json json = {{"median_us", rounded(measurement.time.value / kMicro)},
               {"low_us", rounded(measurement.time.low / kMicro)},
               {"high_us", rounded(measurement.time.high / kMicro)},
               {"samples", measurement.time.samples},
               {"launches", measurement.launches},
               {"clock_mhz", rounded(measurement.clock_mhz, 5)}};
  if (measurement.max > 0) {
    json["min_us"] = rounded(measurement.min / kMicro);
    json["max_us"] = rounded(measurement.max / kMicro);
  }
  if (const double thousandths = std::round(1000 * measurement.waited); thousandths > 0)
    json["waited"] = thousandths / 1000;  // smaller parts are normal on any machine
  if (!measurement.metrics.empty())
    json["metrics"] = metrics_json(measurement.metrics, [](const Estimate& one) -> Json {
      return {{"median", rounded(one.value)}, {"low", rounded(one.low)}, {"high", rounded(one.high)}};
    });
  return json;
}

Measurement measurement_from_json(const JsonAt& json) {
  const double median_us = json["median_us"].number(), low = json["low_us"].number(), high = json["high_us"].number();
  if (low > median_us || median_us > high)
    json.fail(fmt::format("the median {} lies outside its interval {} to {}", median_us, low, high));
  Measurement result{
      .time = {median_us * kMicro, low * kMicro, high * kMicro, static_cast<int>(json["samples"].integer(1, 1 << 30))},
      .min = json.has("min_us") ? json["min_us"].number() * kMicro : 0,
      .max = json.has("max_us") ? json["max_us"].number() * kMicro : 0,
      .launches = json["launches"].integer(1, kMaxSamples),
      .clock_mhz = json["clock_mhz"].number(),
      .waited = json.has("waited") ? json["waited"].number() : 0};
  if (json.has("metrics"))
    result.metrics = metrics_from_json(json["metrics"], [&](const JsonAt& one) -> Estimate {
      return {one["median"].number(), one["low"].number(), one["high"].number(), result.time.samples};
    });
  if (result.launches < result.time.samples)
    json.fail(fmt::format("{} launches cannot fill {} blocks", result.launches, result.time.samples));
  return result;
}

Json to_json(const Trial& trial) {
  Json json = {{"candidate", to_json(trial.candidate)}, {"status", name(trial.status)}};
  if (!trial.reason.empty() || trial.status != Status::ok) json["reason"] = trial.reason;
  if (trial.status == Status::ok) json["measurement"] = to_json(trial.measurement);
  if (trial.status == Status::ok && !trial.blocks.empty()) json["blocks"] = blocks_to_json(trial.blocks);
  if (ran(trial.verdict)) json["verdict"] = to_json(trial.verdict);
  if (compiled(trial.compile)) json["compile"] = to_json(trial.compile);
  if (trial.took > 0) json["took_us"] = rounded(trial.took / kMicro, 4);
  return json;
}

Trial trial_from_json(const JsonAt& json, const Catalog& catalog) {
  Trial trial;
  trial.candidate = candidate_from_json(json["candidate"], catalog);
  trial.status = word_at(json["status"], parse_status);
  if (json.has("reason")) trial.reason = json["reason"].string();
  if (trial.status == Status::ok) trial.measurement = measurement_from_json(json["measurement"]);
  if (trial.status == Status::ok && json.has("blocks")) trial.blocks = blocks_from_json(json["blocks"]);
  if (json.has("verdict")) trial.verdict = verdict_from_json(json["verdict"]);
  if (json.has("compile")) trial.compile = with_place(json["compile"], compile_result_from_json);
  if (json.has("took_us")) trial.took = json["took_us"].number() * kMicro;
  if (trial.status == Status::ok && !trial.verdict.ok)
    json.fail("the status is ok, but the result was not found right");
  return trial;
}

}  // namespace moetune
