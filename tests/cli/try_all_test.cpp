// Several outputs, of which some fail.
#include "cli/files/try_all.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace moetune {
namespace {

TEST(TryAll, EveryOneHasItsTurnInOrder) {
  std::string done;
  try_all({[&] { done += 'a'; }, [&] { done += 'b'; }});
  EXPECT_EQ(done, "ab");
  EXPECT_NO_THROW(try_all({}));
}

TEST(TryAll, ThoseAfterAFailureTooAndAllFailuresAreNamed) {
  std::string done;
  try {
    try_all({[&] { done += 'a'; }, [] { throw machine_error("x: full", "free some space"); }, [&] { done += 'b'; },
             [] { throw machine_error("y: gone", "look for it"); }, [&] { done += 'c'; }});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit(), Exit::machine);
    EXPECT_STREQ(error.what(), "x: full; y: gone");
    EXPECT_EQ(error.hint(), "free some space");
  }
  EXPECT_EQ(done, "abc");
}

TEST(TryAll, TheSameFailureIsToldOnce) {
  const auto full = [] { throw machine_error("x: full"); };
  try {
    try_all({full, full});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "x: full");
  }
}

TEST(TryAll, WhatIsNoErrorOfOursIsNotHeldBack) {
  EXPECT_THROW(try_all({[] { throw std::logic_error("a bug"); }}), std::logic_error);
}

}  // namespace
}  // namespace moetune
