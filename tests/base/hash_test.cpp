// Content hashes: known values and borders between pieces.
#include "base/hash.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

TEST(Hash, StartsAtTheOffsetBasisOfFnv1a) { EXPECT_EQ(Hash().hex(), "6c62272e07bb014262b821756295c58d"); }
TEST(Hash, IsThirtyTwoHexadecimalDigits) {
  EXPECT_EQ(Hash().add("x").hex().size(), 32u);
  EXPECT_EQ(Hash().add("x").hex().find_first_not_of("0123456789abcdef"), std::string::npos);
}
TEST(Hash, DependsOnBordersOrderAndEmptyPieces) {
  EXPECT_EQ(Hash().add("ab").add("c").hex(), Hash().add("ab").add("c").hex());
  EXPECT_NE(Hash().add("ab").add("c").hex(), Hash().add("a").add("bc").hex());
  EXPECT_NE(Hash().add("a").add("b").hex(), Hash().add("b").add("a").hex());
  EXPECT_NE(Hash().add("a").hex(), Hash().add("a").add("").hex());
}
TEST(Hash, SeesZeroAndHighBytes) {
  EXPECT_NE(Hash().add(std::string_view("a\0", 2)).hex(), Hash().add("a").hex());
  EXPECT_NE(Hash().add("\xff").hex(), Hash().add("\x7f").hex());
}
TEST(Hash, KeepsItsPinnedValue) { EXPECT_EQ(Hash().add("moetune").hex(), "df210ba5f6852504e49dd0cbdaa0b0b9"); }

}  // namespace
}  // namespace moetune
