// What was measured of one candidate in one cell: its time, and the metrics that the backend could measure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/stats.h"
#include "variant/candidate.h"
#include "variant/outcome.h"

namespace moetune {

/// The time of a launch in seconds, by which candidates are judged, and the metrics measured beside it.
struct Measurement {
  Estimate time;            // median over blocks of the mean time of a launch; its samples are the blocks
  double min = 0, max = 0;  // of the blocks; 0 in files from before
  int64_t launches = 0;     // in all blocks
  double clock_mhz = 0;     // median; 0 = unknown
  double waited = 0;        // on a cpu: fraction of the processors' time that other programs took; mean over blocks
  Metrics<Estimate> metrics = {};  // as `time`; those that every block has
};

/// Above this fraction of `waited` a time depends on other programs as well, by as much as `check` looks for.
constexpr double kBusy = 0.05;

constexpr int kFewest = 5;  // rounds, or looks: fewer give no useful interval

/// The summary of blocks; nothing is dropped.
Measurement summarise(const std::vector<Block>& blocks);

/// {name, name_low, name_high}, such as "ratio".
Json estimate_json(const std::string& name, const Estimate& estimate, int digits = 6);
/// "energy (J)".
std::string title(Metric metric);
/// The metrics that any of them has.
std::vector<Metric> metrics_of(const std::vector<const Measurement*>& measurements);
/// By how much metrics changed that both have, as ratios - 1: above 0, there is more now.
Metrics<Estimate> metric_changes(const Measurement& now, const Measurement& then);
/// How many times as good `one` is as `other`: above 1, it has less of the metric, or more where that is better.
std::optional<Estimate> advantage(Metric metric, const Measurement& one, const Measurement& other);

Json to_json(const Measurement& measurement);  // microseconds, named so
Measurement measurement_from_json(const JsonAt& json);

/// One finished trial, as the journal keeps it.
struct Trial {
  Candidate candidate;
  Status status = Status::ok;
  std::string reason;              // a sentence where not ok
  Measurement measurement = {};    // where ok: of all blocks
  std::vector<Block> blocks = {};  // where ok, in the order of time; none in journals from before
  Verdict verdict = {};            // where it ran
  CompileResult compile = {};
  double took = 0;  // seconds of its last blocks, and of what came before its first: verifying, and its part of
                    // compiling its batch; 0 = unknown
};
Json to_json(const Trial& trial);
Trial trial_from_json(const JsonAt& json, const Catalog& catalog);

}  // namespace moetune
