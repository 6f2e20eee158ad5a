// What compiling, verifying and timing a candidate result in, as plain values.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"

namespace moetune {

/// What became of a candidate. Its own fault is data, not an Error.
enum class Status { ok, illegal, compile_error, spills, launch_error, wrong_result, timeout, crashed };
std::string_view name(Status status);
Status parse_status(std::string_view text);

struct CompileResult {
  Status status = Status::ok;  // ok, compile_error or spills
  std::string reason = {};     // a sentence where not ok
  int registers = 0;           // a thread; 0 for a cpu
  int spill_bytes = 0;         // stores and loads
  int64_t static_shared_bytes = 0;
  std::string code = {};  // a hash of the machine code; empty = unknown
  bool from_cache = false;
  double seconds = 0;
};
Json to_json(const CompileResult& result);
CompileResult compile_result_from_json(const JsonAt& json);

/// The outcome of a verification of every output element of every expert.
struct Verdict {
  bool ok = false;
  std::string reason = {};      // where not ok: which check, how many elements, the first with expert, row, column
  int64_t elements = 0;         // compared
  int64_t mismatches = 0;       // on integer inputs: elements that are not bit-identical to the reference
  double normalised_error = 0;  // random inputs: ||y - reference|| / ||reference||
  double max_ulps = 0;          // random inputs: |y - reference| in units in the last place of max(|reference|, rms)
};
Json to_json(const Verdict& verdict);
Verdict verdict_from_json(const JsonAt& json);

/// The outcome of launching again and again on the same operands.
struct Repetition {
  int64_t launches = 0;   // compared with the first
  int64_t different = 0;  // of those, whose results have other bits
  std::string reason;     // where different: what differs first
};
Json to_json(const Repetition& repetition);
Repetition repetition_from_json(const JsonAt& json);

/// How a GPU is loaded while it is timed. burst: with pauses, near its boost clock. sustained: all the time, so that
/// its power limit bounds the clock. Times of the two regimes don't compare.
enum class Regime { burst, sustained };
std::string_view name(Regime regime);
Regime parse_regime(std::string_view text);

/// What a launch takes besides time. To add a metric, add its word here and its row to kMetrics; a backend that can
/// measure it sets Block::metrics. Journals, tables, exports, the report and `check` carry what is there.
enum class Metric { energy };
struct MetricInfo {
  std::string_view key;         // in files, with its unit
  std::string_view name, unit;  // for people
  bool smaller_is_better = true;
};
inline constexpr std::array kMetrics = {MetricInfo{"energy_j", "energy", "J"}};
constexpr const MetricInfo& info(Metric metric) { return kMetrics.at(static_cast<size_t>(metric)); }

/// A value for each metric that was measured.
template <typename Value>
using Metrics = std::map<Metric, Value>;

/// write(value) by the keys of the metrics.
template <typename Value, typename Write>
Json metrics_json(const Metrics<Value>& metrics, Write write) {
  Json json = Json::object();
  for (const auto& [metric, value] : metrics) json[info(metric).key] = write(value);
  return json;
}

/// read(place) of the keys that name a metric; others are ignored.
template <typename Read>
auto metrics_from_json(const JsonAt& json, Read read) {
  Metrics<std::invoke_result_t<Read, JsonAt>> metrics;
  for (size_t i = 0; i < kMetrics.size(); ++i)
    if (json.has(kMetrics[i].key)) metrics.emplace(static_cast<Metric>(i), std::invoke(read, json[kMetrics[i].key]));
  return metrics;
}

/// One timed block of launches over rotating operand sets: the operands of each launch are cold.
struct Block {
  double seconds = 0;  // a launch, the mean of the block
  int launches = 0;
  double clock_mhz = 0;  // SM clock during the block; 0 = unknown
  double waited = 0;     // on a cpu: share of the processors' time that others took while its threads were ready to run
  Metrics<double> metrics = {};  // a launch, as `seconds`
};

}  // namespace moetune
