// Messages between parent and worker: whole lines, faults as data, no number rounded.
#include "backend/worker/protocol.h"

#include <gtest/gtest.h>

#include <new>

#include "base/error.h"
#include "tune/fake_backend.h"

namespace moetune {
namespace {

template <typename Thrown>
Json answer_to(const Thrown& thrown) {
  try {
    throw thrown;
  } catch (...) {
    return answer_of_current_exception();
  }
}

TEST(Protocol, LinesAreTakenWholeAndInOrder) {
  std::string buffer = "{\"a\":1}\n{\"b\":", line;
  ASSERT_TRUE(take_line(buffer, line));
  EXPECT_EQ(line, "{\"a\":1}");
  EXPECT_FALSE(take_line(buffer, line));
  buffer += "2}\n\n";
  ASSERT_TRUE(take_line(buffer, line));
  EXPECT_EQ(line, "{\"b\":2}");
  ASSERT_TRUE(take_line(buffer, line));
  EXPECT_EQ(line, "");
  EXPECT_TRUE(buffer.empty());
}

TEST(Protocol, AMessageIsOneLineWhateverItHolds) {
  const std::string line = to_line({{"text", "two\nlines \xff and no UTF-8"}});
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_EQ(line.back(), '\n');
  EXPECT_NO_THROW(parse_json(line, "line"));
}

TEST(Protocol, FaultsCrossWithStatusAndSentence) {
  const Json answer = answer_to(CandidateFault(Status::launch_error, "too many threads"));
  try {
    result_of(answer);
    FAIL();
  } catch (const CandidateFault& fault) {
    EXPECT_EQ(fault.status, Status::launch_error);
    EXPECT_STREQ(fault.what(), "too many threads");
  }
}

TEST(Protocol, ErrorsCrossWithExitAndHint) {
  try {
    result_of(answer_to(Error(Exit::request, "unknown device 'gpu'", "did you mean 'cpu'?")));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::request);
    EXPECT_STREQ(error.what(), "unknown device 'gpu'");
    EXPECT_EQ(error.hint(), "did you mean 'cpu'?");
  }
}

TEST(Protocol, WhatNobodyExpectedIsABug) {
  for (const Json& answer : {answer_to(std::logic_error("an invariant broke")), answer_to(42)}) try {
      result_of(answer);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit(), Exit::bug);
    }
}

TEST(Protocol, AnAnswerWithoutResultIsAnError) {
  EXPECT_THROW(result_of(Json::object()), Error);
  EXPECT_THROW(result_of(Json::array()), Error);
  EXPECT_EQ(result_of({{"ok", 3}}), 3);
  EXPECT_TRUE(result_of({{"ok", nullptr}}).is_null());
}

TEST(Protocol, BlocksKeepEveryBit) {
  const std::vector<Block> blocks = {{.seconds = 1.0 / 3e5,
                                      .launches = 7,
                                      .clock_mhz = 1979.123456789,
                                      .waited = 1.0 / 3,
                                      .metrics = {{Metric::energy, 1.0 / 7}}},
                                     {.seconds = 0x1.fffffffffffffp-20, .launches = 1, .clock_mhz = 0}};
  const std::vector<Block> back = blocks_from_json(JsonAt(parse_json(to_line(to_json(blocks)), "line"), "blocks"));
  ASSERT_EQ(back.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back[i].seconds, blocks[i].seconds);
    EXPECT_EQ(back[i].launches, blocks[i].launches);
    EXPECT_EQ(back[i].clock_mhz, blocks[i].clock_mhz);
    EXPECT_EQ(back[i].waited, blocks[i].waited);
    EXPECT_EQ(back[i].metrics, blocks[i].metrics);
  }
}

TEST(Protocol, RequestsAndOptionsRoundTrip) {
  const SampleRequest sample{.blocks = 3, .block_seconds = 0.1, .hot = true, .regime = Regime::sustained};
  const Json sample_json = to_json(sample);
  const SampleRequest sample_back = sample_request_from_json(JsonAt(sample_json, "sample"));
  EXPECT_EQ(sample_back.blocks, 3);
  EXPECT_EQ(sample_back.block_seconds, 0.1);
  EXPECT_EQ(sample_back.regime, Regime::sustained);
  EXPECT_TRUE(sample_back.hot);
  const BackendOptions options{.kernels_folder = "k", .cache = false, .compile_threads = 5};
  const Json options_json = to_json(options);
  const BackendOptions options_back = backend_options_from_json(JsonAt(options_json, "options"));
  EXPECT_EQ(options_back.kernels_folder, "k");
  EXPECT_FALSE(options_back.cache);
  EXPECT_EQ(options_back.compile_threads, 5);
}

}  // namespace
}  // namespace moetune
