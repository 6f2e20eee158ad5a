// The examples of FIPS 180-4 and of NIST's short messages; borders between pieces of content.
#include "base/hash.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(Sha256::hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256::hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256::hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256::hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

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

}  // namespace
}  // namespace moetune
