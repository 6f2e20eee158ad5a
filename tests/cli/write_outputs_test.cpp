// Several outputs, of which some fail.
#include "cli/files/files.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace moetune {
namespace {

TEST(WriteOutputs, EveryOneHasItsTurnInOrder) {
  std::string done;
  write_outputs({[&] { done += 'a'; }, [&] { done += 'b'; }});
  EXPECT_EQ(done, "ab");
  EXPECT_NO_THROW(write_outputs({}));
}

TEST(WriteOutputs, ThoseAfterAFailureTooAndAllFailuresAreNamed) {
  std::string done;
  try {
    write_outputs({[&] { done += 'a'; }, [] { throw machine_error("x: full", "free some space"); },
                   [&] { done += 'b'; }, [] { throw machine_error("y: gone", "look for it"); }, [&] { done += 'c'; }});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::machine);
    EXPECT_STREQ(error.what(), "x: full; y: gone");
    EXPECT_EQ(error.hint(), "free some space");
  }
  EXPECT_EQ(done, "abc");
}

TEST(WriteOutputs, TheSameFailureIsNamedOnce) {
  const auto full = [] { throw machine_error("x: full"); };
  try {
    write_outputs({full, full});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "x: full");
  }
}

TEST(WriteOutputs, WhatIsNoErrorOfOursIsNotHeldBack) {
  EXPECT_THROW(write_outputs({[] { throw std::logic_error("a bug"); }}), std::logic_error);
}

}  // namespace
}  // namespace moetune
