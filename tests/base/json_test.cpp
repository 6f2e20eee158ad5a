// Places in errors, checked access, and what the parser refuses.
#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "error_of.h"

namespace moetune {
namespace {

Caught parse_error(std::string_view text) {
  return error_of([&] { parse_json(text, "a.json"); });
}

// What an access to the document throws.
template <typename Access>
std::string access_error(const Json& json, Access access) {
  return error_of([&] { access(JsonAt(json, "a.json")); }).what;
}

TEST(ParseJson, NamesLineAndColumn) {
  EXPECT_EQ(parse_error("{\"a\": 1,\n  \"b\": x}").what, "a.json:2:8: not valid JSON");
  EXPECT_EQ(parse_error("{\"a\": 1,\n  \"b\": x}").exit, Exit::request);
}
TEST(ParseJson, ACutFileIsNamed) {
  const Caught error = parse_error("{\"entries\": [1, 2");
  EXPECT_NE(error.what.find("the JSON ends too early"), std::string::npos) << error.what;
  EXPECT_EQ(error.hint, "the file may have been cut off while it was written");
}
TEST(ParseJson, AnEmptyFileIsNamed) { EXPECT_NE(parse_error("").what.find("the file is empty"), std::string::npos); }
TEST(ParseJson, ANumberThatIsTooLargeIsNamed) {
  EXPECT_EQ(parse_error("{\"k\": 1e999}").what, "a.json: number overflow parsing '1e999'");
}
TEST(ParseJson, CountsLinesFromThatOfItsPlace) {
  const Caught error = error_of([&] { parse_json("{\"a\": x}", Where("a.jsonl", 3)); });
  EXPECT_EQ(error.what, "a.jsonl:3:7: not valid JSON");
}
TEST(ParseJson, RefusesAZeroByteAndWhatIsBehindIt) {
  for (const std::string end : {"", "x", "{}"}) {
    const Caught error = parse_error("{\"a\": 1}\n" + std::string(1, '\0') + end);
    EXPECT_EQ(error.what, "a.json:2:1: not valid JSON: a byte is zero");
    EXPECT_EQ(error.hint, "the file may have been cut off while it was written");
  }
}
TEST(ParseJson, RefusesTrailingText) { EXPECT_EQ(parse_error("{} x").exit, Exit::request); }
TEST(ParseJson, RefusesInvalidUtf8) { EXPECT_EQ(parse_error("\"\xff\"").exit, Exit::request); }
TEST(ParseJson, RefusesNumbersThatNoDoubleHolds) { EXPECT_EQ(parse_error("[1e999]").exit, Exit::request); }
TEST(ParseJson, TakesSixtyFourLevelsAndNoMore) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(parse_error(nested(64)).exit, Exit::yes);
  EXPECT_EQ(parse_error(nested(66)).what, "a.json: nested deeper than 64 levels");
  EXPECT_EQ(parse_error(std::string(1000000, '[')).what, "a.json: nested deeper than 64 levels");
}
TEST(ParseJson, KeepsTheOrderOfKeys) { EXPECT_EQ(parse_json(R"({"b": 1, "a": 2})", "x").dump(), R"({"b":1,"a":2})"); }
TEST(ParseJson, RefusesAKeyThatIsThereTwice) {
  EXPECT_EQ(parse_error(R"({"a": 1, "b": 2, "a": 3})").what, "a.json: the key a appears twice");
  EXPECT_EQ(parse_error(R"({"a": [7, {"x": 1}, {"b": {"c": 1, "d": {}, "c": 1}}]})").what,
            "a.json: the key a[2].b.c appears twice");
  EXPECT_EQ(parse_error(R"({"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}, {"b": 1}]})").exit, Exit::yes);
}
TEST(ParseJson, ReadsPythonsNumbersWhereAskedAlone) {
  const std::string text = R"({"limit": [0.0, Infinity, -Infinity,NaN], "a": "Infinity \"NaN\\", "b": -1})";
  EXPECT_EQ(parse_json(text, "a.json", Dialect::python).dump(),
            R"({"limit":[0.0,null,null,null],"a":"Infinity \"NaN\\","b":-1})");
  EXPECT_EQ(parse_error(text).what, "a.json:1:17: not valid JSON");
  EXPECT_EQ(parse_json(R"({"a": 1, "a": 2})", "a.json", Dialect::python).dump(), R"({"a":2})");
}
TEST(ParseJson, ReadsFilesOfMoetuneStrictlyInEitherDialect) {
  for (const Dialect dialect : {Dialect::strict, Dialect::python}) {
    const auto refused = [&](std::string_view text) {
      return error_of([&] { parse_json(text, "a.json", dialect); }).what;
    };
    EXPECT_EQ(refused(R"({"schema": "moetune.model/1", "n": 1, "n": 2})"), "a.json: the key n appears twice");
    EXPECT_EQ(refused(R"({"n": NaN, "schema": "moetune.model/1"})"), "a.json:1:7: not valid JSON");
  }
}
TEST(ParseJson, CountsColumnsBehindPythonsNumbers) {
  const auto python_error = [](std::string_view text) {
    return error_of([&] { parse_json(text, "a.json", Dialect::python); }).what;
  };
  EXPECT_EQ(python_error("[Infinity, -Infinity, x]"), "a.json:1:23: not valid JSON");
  EXPECT_EQ(python_error("[1, -Infinitys]"), "a.json:1:14: not valid JSON");
  EXPECT_EQ(python_error("[1, \"NaN\""), "a.json:1:10: the JSON ends too early");
}

TEST(JsonAt, NamesThePlace) {
  const Json json = parse_json(R"({"entries": [{"candidate": {"block_m": "x"}}]})", "a.json");
  EXPECT_EQ(access_error(json, [](JsonAt at) { at["entries"][0]["candidate"]["block_m"].number(); }),
            "a.json: entries[0].candidate.block_m: expected a number, found a string");
}
TEST(JsonAt, NamesAMissingKey) {
  EXPECT_EQ(access_error({{"a", Json::object()}}, [](JsonAt at) { at["a"]["b"]; }), "a.json: a: 'b' is missing");
  EXPECT_EQ(access_error({{"a", 1}}, [](JsonAt at) { at["a"]["b"]; }),
            "a.json: a: expected an object, found an integer");
}
TEST(JsonAt, ChecksIndices) {
  EXPECT_EQ(access_error({{"a", {1, 2}}}, [](JsonAt at) { at["a"][2]; }),
            "a.json: a: has 2 elements, asked for number 3");
  EXPECT_EQ(access_error({{"a", nullptr}}, [](JsonAt at) { at["a"].size(); }),
            "a.json: a: expected an array, found null");
}
TEST(JsonAt, HasIsFalseForNullAndForNonObjects) {
  const Json json = {{"a", nullptr}, {"b", 0}};
  EXPECT_FALSE(JsonAt(json, "x").has("a"));
  EXPECT_TRUE(JsonAt(json, "x").has("b"));
  EXPECT_FALSE(JsonAt(json["b"], "x").has("a"));
}
TEST(JsonAt, ChecksKinds) {
  const Json json = {{"t", true}, {"s", "x"}, {"n", 1.5}};
  EXPECT_EQ(access_error(json, [](JsonAt at) { at["t"].string(); }), "a.json: t: expected a string, found a boolean");
  EXPECT_EQ(access_error(json, [](JsonAt at) { at["s"].boolean(); }),
            "a.json: s: expected true or false, found a string");
  EXPECT_EQ(JsonAt(json, "x")["n"].number(), 1.5);
}

TEST(JsonInteger, TakesWholeNumbersHoweverWritten) {
  const Json json = parse_json("[16, 16.0, 1.6e1, -3]", "x");
  const JsonAt at(json, "x");
  EXPECT_EQ(at[0].integer(), 16);
  EXPECT_EQ(at[1].integer(), 16);
  EXPECT_EQ(at[2].integer(), 16);
  EXPECT_EQ(at[3].integer(), -3);
}
TEST(JsonInteger, RefusesFractionsAndOverflow) {
  const Json json = parse_json("[16.5, 18446744073709551615, 1e300, true]", "x");
  EXPECT_EQ(access_error(json, [](JsonAt at) { at[0].integer(); }), "a.json[0]: expected an integer, found 16.5");
  EXPECT_EQ(access_error(json, [](JsonAt at) { at[1].integer(); }),
            "a.json[1]: expected an integer, found 18446744073709551615");
  EXPECT_NE(access_error(json, [](JsonAt at) { at[2].integer(); }), "");
  EXPECT_EQ(access_error(json, [](JsonAt at) { at[3].integer(); }), "a.json[3]: expected an integer, found a boolean");
}
TEST(JsonInteger, ChecksTheRange) {
  const Json json = {0, 1, 9, 10};
  EXPECT_EQ(access_error(json, [](JsonAt at) { at[0].integer(1, 9); }), "a.json[0]: 0 is outside 1 to 9");
  EXPECT_EQ(access_error(json, [](JsonAt at) { at[3].integer(1, 9); }), "a.json[3]: 10 is outside 1 to 9");
  EXPECT_EQ(JsonAt(json, "x")[1].integer(1, 9), 1);
  EXPECT_EQ(JsonAt(json, "x")[2].integer(1, 9), 9);
}

TEST(JsonIntegers, ReadsAnArrayAndNamesTheWrongElement) {
  const Json json = {{"m", {1, 2.0, 3}}, {"n", {1, -2, 3}}, {"f", {1, 2.5}}, {"u", {18446744073709551615ull}}};
  EXPECT_EQ(integers(JsonAt(json, "x")["m"], 0, 9), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(access_error(json, [](JsonAt at) { integers(at["n"], 0, 9); }), "a.json: n[1]: -2 is outside 0 to 9");
  EXPECT_EQ(access_error(json, [](JsonAt at) { integers(at["f"], 0, 9); }),
            "a.json: f[1]: expected an integer, found 2.5");
  EXPECT_NE(access_error(json, [](JsonAt at) { integers(at["u"], 0, 9); }), "");
}

TEST(Rounded, KeepsSignificantDigits) {
  EXPECT_EQ(rounded(123456.789, 4).dump(), "123500.0");
  EXPECT_EQ(rounded(0.1 + 0.2).dump(), "0.3");
  EXPECT_EQ(rounded(-0.000123456789, 3).get<double>(), -0.000123);
}
TEST(Rounded, MakesNonFiniteNull) {
  EXPECT_TRUE(rounded(std::nan("")).is_null());
  EXPECT_TRUE(rounded(std::numeric_limits<double>::infinity()).is_null());
}

TEST(RequireSchema, NamesTheSchemaFound) {
  const Json right = {{"schema", "moetune.table/1"}}, other = {{"schema", "moetune.journal/1"}}, none = Json::object();
  EXPECT_EQ(access_error(right, [](JsonAt at) { require_schema(at, "table"); }), "a.json: 'tool' is missing");
  EXPECT_EQ(access_error(other, [](JsonAt at) { require_schema(at, "table"); }),
            "a.json: its schema is 'moetune.journal/1', expected 'moetune.table/1'");
  EXPECT_EQ(access_error(none, [](JsonAt at) { require_schema(at, "table"); }),
            "a.json: expected a table file, but \"schema\" is missing");
  EXPECT_NE(access_error(right, [](JsonAt at) { require_schema(at, "table", 2); }), "");
}

}  // namespace
}  // namespace moetune
