// Candidates looked for once a shape, whole or drawn.
#include "variant/space/space.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "error_of.h"
#include "h200.h"
#include "variant/space/small_space.h"

namespace moetune {
namespace {

// Over five million candidates, whatever values the built-in space has.
SearchSpace large() {
  SearchSpace space = only("full", "wgmma");
  set_values(space, "group=1-400", built_in());
  return space;
}

TEST(CandidateSource, LooksOnceForCellsOfOneShape) {
  CandidateSource source(only("quick", "mma"), device_of_arch("sm_90a"));
  const auto first = source.candidates(small_shape(), 0);
  EXPECT_EQ(first->legal, enumerate(source.space(), small_shape(), device_of_arch("sm_90a")).legal);
  EXPECT_EQ(source.candidates(small_shape(), 7), first);  // the very object: a seed changes nothing of a whole space
  EXPECT_NE(source.candidates(small_shape(8), 0), first);
}

TEST(CandidateSource, DrawsBySeed) {
  CandidateSource source(only("full", "mma"), device_of_arch("sm_90a"), 5);
  const auto first = source.candidates(small_shape(), 1);
  EXPECT_EQ(first->legal, draw(source.space(), small_shape(), device_of_arch("sm_90a"), 5, 1).legal);
  EXPECT_EQ(source.candidates(small_shape(), 1), first);
  EXPECT_NE(source.candidates(small_shape(), 2)->legal, first->legal);
}

TEST(CandidateSource, DrawsFromSpacesThatAreTooLargeToList) {
  const DeviceInfo hopper = device_of_arch("sm_90a");
  EXPECT_EQ(CandidateSource(large(), hopper, 20).candidates(small_shape(), 0)->legal.size(), 20u);
  for (const Caught& refused : {error_of([&] { CandidateSource(large(), hopper).candidates(small_shape(), 0); }),
                                error_of([&] { require_listable(large(), hopper); })}) {
    EXPECT_EQ(refused.exit, Exit::request);
    EXPECT_EQ(refused.what, "the space of 'wgmma' has over 5000000 candidates");
    EXPECT_NE(refused.hint.find("--strategy random"), std::string::npos) << refused.hint;
    EXPECT_NE(refused.hint.find("--max-candidates N"), std::string::npos) << refused.hint;
  }
  EXPECT_EQ(error_of([&] { require_listable(only("full", "mma"), hopper); }).exit, Exit::yes);
}

TEST(CandidateSource, ALongerDrawBeginsAsAShorterOne) {
  const DeviceInfo hopper = device_of_arch("sm_90a");
  const auto few = draw(large(), small_shape(), hopper, 10, 3).legal;
  auto many = draw(large(), small_shape(), hopper, 30, 3).legal;
  many.resize(10);
  EXPECT_EQ(many, few);
}

TEST(KeepVariants, AVariantThatTheSpaceLacksBringsItsOwnValues) {
  SearchSpace quick = load_space("quick", built_in()), all = whole_space(built_in());
  keep_variants(quick, {"simt"}, built_in()), keep_variants(all, {"simt"}, built_in());
  EXPECT_EQ(quick.variants.at(0).values, all.variants.at(0).values);
}

}  // namespace
}  // namespace moetune
