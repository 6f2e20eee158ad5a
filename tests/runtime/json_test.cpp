#include "runtime/moetune/json.h"

#include <gtest/gtest.h>

namespace moetune_kernels {
namespace {

std::string error(std::string_view text) {
  try {
    Value::parse(text, "m.json");
    return "no error";
  } catch (const std::runtime_error& e) {
    return e.what();
  }
}

TEST(LoaderJson, ReadsEveryKindOfValue) {
  const Value json = Value::parse(R"({"a": [1, -2.5e1, true, null, "x"], "b": {"c": ""}})", "m.json");
  const std::vector<Value>& a = json["a"].items();
  EXPECT_EQ(a[0].integer(), 1);
  EXPECT_EQ(a[1].number(), -25);
  EXPECT_TRUE(a[2].boolean());
  EXPECT_EQ(a[3].kind(), Value::Kind::null);
  EXPECT_EQ(a[4].string(), "x");
  EXPECT_TRUE(json["b"].has("c"));
  EXPECT_FALSE(json["b"].has("d"));
  EXPECT_EQ(Value::parse(" {} ", "m.json").members().size(), 0u);
}

TEST(LoaderJson, ReadsEscapes) {
  EXPECT_EQ(Value::parse(R"("\"\\\/\n\u0041\u00e9\u20ac\ud83d\ude00")", "m.json").string(),
            "\"\\/\nA\u00e9\u20ac\U0001F600");
}

TEST(LoaderJson, NamesThePlaceOfAWrongValue) {
  const Value json = Value::parse(R"({"a": [{"b": 1.5}]})", "m.json");
  const auto said = [](const auto& ask) {
    try {
      ask();
      return std::string("no error");
    } catch (const std::runtime_error& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(said([&] { json["c"]; }), "m.json: 'c' is missing");
  EXPECT_EQ(said([&] { json["a"].items()[0]["b"].string(); }), "m.json.a[0].b: expected a string");
  EXPECT_EQ(said([&] { json["a"].items()[0]["b"].integer(); }), "m.json.a[0].b: expected a whole number, found 1.5");
  EXPECT_EQ(said([&] { json["a"]["b"]; }), "m.json.a: expected an object");
}

TEST(LoaderJson, RefusesWhatIsNoJson) {
  EXPECT_EQ(error(""), "m.json, line 1: the text ends too early");
  EXPECT_EQ(error("{\n\"a\": 1,\n}"), "m.json, line 3: expected the name of a member");
  EXPECT_EQ(error("[1 2]"), "m.json, line 1: expected ']'");
  EXPECT_EQ(error("[1] 2"), "m.json, line 1: more text follows the value");
  EXPECT_EQ(error(R"({"a": 1, "a": 2})"), "m.json, line 1: 'a' appears twice");
  EXPECT_EQ(error("nan"), "m.json, line 1: 'nan' is not a JSON value");
  EXPECT_EQ(error("0x10"), "m.json, line 1: '0x10' is not a JSON value");
  EXPECT_EQ(error("\"a"), "m.json, line 1: a string does not end");
  EXPECT_EQ(error(R"("\u12")"), "m.json, line 1: an escape does not end");
  EXPECT_EQ(error(R"("\x")"), "m.json, line 1: an unknown escape in a string");
  EXPECT_EQ(error(std::string(100, '[')), "m.json, line 1: values are nested too deeply");
}

}  // namespace
}  // namespace moetune_kernels
