// Tests that change what a process has only one of.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>

namespace moetune {

/// Runs `body` in a process of its own, whose failures are those of the test: the catalog of a process only grows.
template <typename Body>
void in_own_process(Body body) {
  const auto run = [&] {
    body();
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

}  // namespace moetune
