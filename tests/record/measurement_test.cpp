// Summaries of blocks, and the JSON of measurements and trials.
#include "record/measurement.h"

#include "built_in.h"
#include "record/sample.h"
#include "record/table/table.h"

namespace moetune {
namespace {

Block block(double us, int launches = 10, double clock = 0) {
  return {.seconds = us * 1e-6, .launches = launches, .clock_mhz = clock};
}

Measurement reread(const Measurement& measurement) {
  const Json json = to_json(measurement);
  return measurement_from_json(JsonAt(json, "m"));
}

TEST(Summarise, TakesTheMedianAndCountsEverything) {
  std::vector<Block> blocks = {block(3, 10, 1900), block(1, 20, 1980), block(2, 30, 1950)};
  blocks[1].waited = 0.3;
  const Measurement m = summarise(blocks);
  EXPECT_DOUBLE_EQ(m.waited, 0.1);
  EXPECT_EQ(summarise({}).time.samples, 0);
  EXPECT_DOUBLE_EQ(m.time.value, 2e-6);
  EXPECT_EQ(m.time.samples, 3);
  EXPECT_EQ(m.launches, 60);
  EXPECT_DOUBLE_EQ(m.clock_mhz, 1950);
}

TEST(Summarise, FewBlocksGiveTheWholeRangeAsInterval) {
  const Measurement m = summarise({block(5), block(1), block(3)});
  EXPECT_DOUBLE_EQ(m.time.low, 1e-6);
  EXPECT_DOUBLE_EQ(m.time.high, 5e-6);
}

TEST(Summarise, ManyBlocksGiveThe95PercentInterval) {
  std::vector<Block> blocks;
  for (int i = 1; i <= 100; ++i) blocks.push_back(block(i));
  const Measurement m = summarise(blocks);
  // Order statistics 40 and 61 of 100: Conover's table for n = 100.
  EXPECT_DOUBLE_EQ(m.time.low, 40e-6);
  EXPECT_DOUBLE_EQ(m.time.high, 61e-6);
  EXPECT_DOUBLE_EQ(reread(m).min, 1e-6);
  EXPECT_DOUBLE_EQ(reread(m).max, 100e-6);
  EXPECT_EQ(range_text(m), "1.00 µs to 100 µs");
}

TEST(Summarise, IgnoresUnknownClocks) {
  EXPECT_DOUBLE_EQ(summarise({block(1, 1, 0), block(1, 1, 1900), block(1, 1, 0)}).clock_mhz, 1900);
  EXPECT_DOUBLE_EQ(summarise({block(1), block(2)}).clock_mhz, 0);
}

TEST(MeasurementJson, HasMicrosecondsWithSixDigits) {
  const Measurement m{.time = {12.3456789e-6, 12.1e-6, 12.987654321e-6, 11}, .launches = 220, .clock_mhz = 1964.98765};
  EXPECT_EQ(to_json(m).dump(),
            R"({"median_us":12.3457,"low_us":12.1,"high_us":12.9877,"samples":11,"launches":220,"clock_mhz":1965.0})");
}

TEST(MeasurementJson, HasWaitingInThousandths) {
  Measurement m = sample::measurement(10);
  m.waited = 0.12345;
  EXPECT_EQ(to_json(m)["waited"].dump(), "0.123");
  EXPECT_DOUBLE_EQ(reread(m).waited, 0.123);
  m.waited = 0.0004;
  EXPECT_FALSE(to_json(m).contains("waited"));
  EXPECT_DOUBLE_EQ(reread(m).waited, 0);
}

TEST(MeasurementJson, ReadingAndWritingAgainGivesTheSameText) {
  for (const double us : {0.001234567, 1.0, 3.3333333333, 12.3456789, 999999.5, 1234567.89, 3.6e9}) {
    const Measurement m = sample::measurement(us);
    EXPECT_EQ(to_json(reread(m)).dump(), to_json(m).dump()) << us;
    EXPECT_NEAR(reread(m).time.value, us * 1e-6, us * 1e-11);
  }
}

TEST(MeasurementJson, RefusesContradictionsWithThePlace) {
  const auto read = [](const JsonAt& json) { measurement_from_json(json); };
  sample::expect_refused(to_json(sample::measurement(10)), "t.json",
                         {{"/low_us", "11", "t.json: the median 10 lies outside its interval 11 to 10.2"},
                          {"/high_us", "9.95", "t.json: the median 10 lies outside its interval 9.9 to 9.95"},
                          {"/samples", "0", "t.json: samples: 0 is outside 1 to 1073741824"},
                          {"/launches", "10", "t.json: 10 launches cannot fill 11 blocks"}},
                         read);
}

TEST(TrialJson, AGoodTrialComesBack) {
  const Trial trial = sample::trial(sample::mma(128), 42);
  const Json json = to_json(trial);
  const Trial again = trial_from_json(JsonAt(json, "t"), built_in());
  EXPECT_EQ(again.candidate, trial.candidate);
  EXPECT_EQ(again.status, Status::ok);
  EXPECT_EQ(again.compile.registers, 128);
  EXPECT_TRUE(again.verdict.ok);
  EXPECT_EQ(to_json(again).dump(), json.dump());
}

TEST(TrialJson, AFailedTrialKeepsItsReasonAndHasNoTime) {
  for (const Status status : {Status::illegal, Status::compile_error, Status::spills, Status::launch_error,
                              Status::wrong_result, Status::timeout, Status::crashed}) {
    const Json json = to_json(sample::failed_trial(sample::mma(64), status, "why"));
    EXPECT_FALSE(json.contains("measurement") || json.contains("verdict"));
    const Trial again = trial_from_json(JsonAt(json, "t"), built_in());
    EXPECT_EQ(again.status, status);
    EXPECT_EQ(again.reason, "why");
  }
}

TEST(TrialJson, HasNoCompileFieldForACpu) {
  Trial trial = sample::trial(candidate_of("cpu", {32, 64, 64, 2}), 50);
  trial.compile = {};
  EXPECT_FALSE(to_json(trial).contains("compile"));
}

TEST(TrialJson, OkWithAWrongResultIsAContradiction) {
  Json json = to_json(sample::trial(sample::mma(64), 1));
  json["verdict"]["ok"] = false;
  EXPECT_EQ(error_of([&] { trial_from_json(JsonAt(json, "j:2"), built_in()); }).what,
            "j:2: the status is ok, but the result was not found right");
  json.erase("measurement");
  EXPECT_EQ(error_of([&] { trial_from_json(JsonAt(json, "j:2"), built_in()); }).what, "j:2: 'measurement' is missing");
}

TEST(TrialJson, NamesTheNearestKnownWord) {
  Json json = to_json(sample::trial(sample::mma(64), 1));
  json["status"] = "okay";
  EXPECT_TRUE(holds(error_of([&] { trial_from_json(JsonAt(json, "j:2"), built_in()); }).what,
                    "j:2: status: unknown status 'okay'"));
  json["status"] = "timeot";
  EXPECT_EQ(error_of([&] { trial_from_json(JsonAt(json, "j:2"), built_in()); }).hint, "did you mean 'timeout'?");
  json["status"] = "ok";
  json["candidate"]["variant"] = "nma";
  const auto fault = error_of([&] { trial_from_json(JsonAt(json, "j:2"), built_in()); });
  EXPECT_TRUE(holds(fault.what, "j:2: candidate"));
  EXPECT_EQ(fault.hint, "did you mean 'mma'?");
}

}  // namespace
}  // namespace moetune
