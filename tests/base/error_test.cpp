// Nearest words and the errors made of them.
#include "base/error.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

const std::vector<std::string> kWords = {"uniform", "zipf", "powerlaw", "lognormal"};

TEST(Nearest, FindsOneWrongLetter) { EXPECT_EQ(nearest("zipg", kWords), "zipf"); }
TEST(Nearest, CountsASwapAsOneEdit) { EXPECT_EQ(nearest("izpf", kWords), "zipf"); }
TEST(Nearest, FindsMissingAndExtraLetters) {
  EXPECT_EQ(nearest("unform", kWords), "uniform");
  EXPECT_EQ(nearest("powerrlaw", kWords), "powerlaw");
}
TEST(Nearest, KnowsTheWordItself) { EXPECT_EQ(nearest("lognormal", kWords), "lognormal"); }
TEST(Nearest, IsSilentWhereOverAThirdDiffers) {
  EXPECT_EQ(nearest("zzpg", kWords), "");
  EXPECT_EQ(nearest("", kWords), "");
}
TEST(Nearest, TakesTheFirstOfEquals) { EXPECT_EQ(nearest("abd", std::vector<std::string>{"abc", "abe"}), "abc"); }
TEST(Nearest, PrefersTheSmallerDistance) {
  EXPECT_EQ(nearest("qwen3-30", std::vector<std::string>{"qwen3-235", "qwen3-30b"}), "qwen3-30b");
}

TEST(UnknownWord, HintsAtTheNearest) {
  const Error error = unknown_word("routing", "zipff", kWords);
  EXPECT_EQ(error.exit(), Exit::request);
  EXPECT_STREQ(error.what(), "unknown routing 'zipff'");
  EXPECT_EQ(error.hint(), "did you mean 'zipf'?");
}
TEST(UnknownWord, ListsAllWhereNoneIsNear) {
  EXPECT_EQ(unknown_word("op", "forward", {"fwd", "dx"}).hint(), "one of: fwd, dx");
}
TEST(Where, ReadAsPeopleWriteThem) {
  Where place("table.json", 2);
  EXPECT_EQ(place.text(), "table.json:2");
  place.column = 7, place.pointer = "entries[3].us";
  EXPECT_EQ(place.text(), "table.json:2:7: entries[3].us");
  EXPECT_EQ(Where().text(), "");
  EXPECT_EQ(Where::of_option("--tokens").text(), "--tokens");
  EXPECT_EQ(pointer_to(pointer_to(pointer_to("", "entries"), "[3]"), "us"), "entries[3].us");
}
TEST(Where, AreFieldsOfAnError) {
  Where outer("space.json");
  outer.pointer = "mma.block_m[2]";
  const Error error = request_error("'x' is not a whole number", "write one").at(Where::of_option("block_m")).at(outer);
  EXPECT_STREQ(error.what(), "space.json: mma.block_m[2]: 'x' is not a whole number");
  EXPECT_EQ(error.sentence(), "'x' is not a whole number");
  EXPECT_EQ(error.hint(), "write one");
  EXPECT_EQ(error.place().file, "space.json");
  EXPECT_EQ(error.place().pointer, "mma.block_m[2]");
  EXPECT_STREQ(request_error("the list is empty").at(Where::of_option("--tokens")).at(outer).what(),
               "space.json: mma.block_m[2]: --tokens: the list is empty");
}
TEST(Where, InTheSameFileTheFirstStays) {
  const Error inner = request_error("is empty").at("a.json");
  EXPECT_STREQ(inner.at("a.json").what(), "a.json: is empty");
  EXPECT_STREQ(inner.at("b.json").what(), "b.json: a.json: is empty");
}
TEST(ErrorKinds, AreFields) {
  EXPECT_EQ(unknown_word("op", "x", {"fwd"}).at("a.json").kind(), ErrorKind::unknown_word);
  EXPECT_EQ(request_error("x").kind(), ErrorKind::other);
}
TEST(ErrorKinds, KeepTextBehindAZeroByte) {
  EXPECT_STREQ(request_error(std::string("the model 'a\0b'", 15)).what(), "the model 'a\\x00b'");
}
TEST(ErrorKinds, CarryTheirExitCodes) {
  EXPECT_EQ(static_cast<int>(request_error("x").exit()), 2);
  EXPECT_EQ(static_cast<int>(machine_error("x", "do y").exit()), 3);
  EXPECT_EQ(machine_error("x", "do y").hint(), "do y");
}

}  // namespace
}  // namespace moetune
