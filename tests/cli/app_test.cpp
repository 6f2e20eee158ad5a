// Faults become exit codes and lines on standard error.
#include "cli/app.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "base/error.h"

namespace moetune {
namespace {

struct Said {
  int code;
  std::string text;
};

Said guard(const std::function<int()>& body) {
  testing::internal::CaptureStderr();
  const int code = guarded({}, body);
  return {code, testing::internal::GetCapturedStderr()};
}

TEST(Guarded, PassesExitCodesOn) {
  EXPECT_EQ(guard([] { return 4; }).code, 4);
  EXPECT_EQ(guard([] { return 0; }).text, "");
}

TEST(Guarded, ErrorsHaveTheirHint) {
  const Said said = guard([]() -> int { throw request_error("unknown word 'x'", "did you mean 'y'?"); });
  EXPECT_EQ(said.code, 2);
  EXPECT_EQ(said.text, "moetune: error: unknown word 'x'\nhint: did you mean 'y'?\n");
  EXPECT_EQ(guard([]() -> int { throw machine_error("no GPU"); }).text, "moetune: error: no GPU\n");
}

TEST(Guarded, WhatNobodyExpectedIsOurBug) {
  const Said said = guard([]() -> int { throw std::logic_error("oops"); });
  EXPECT_EQ(said.code, 70);
  EXPECT_EQ(said.text.find("moetune: error: internal error: oops\nhint: this is a bug in moetune"), 0u) << said.text;
}

TEST(Guarded, MemoryAndWorkersAreTheMachine) {
  EXPECT_EQ(guard([]() -> int { throw std::bad_alloc(); }).code, 3);
  EXPECT_EQ(guard([]() -> int { throw OutOfMemory("needs 30 GB", 30); }).code, 3);
  const Said said = guard([]() -> int { throw CandidateFault(Status::crashed, "died of signal 11"); });
  EXPECT_EQ(said.code, 3);
  EXPECT_NE(said.text.find("died of signal 11"), std::string::npos);
}

}  // namespace
}  // namespace moetune
