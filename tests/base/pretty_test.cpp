// Where lines break in written JSON.
#include "base/json.h"

#include <gtest/gtest.h>

namespace moetune {
namespace {

TEST(PrettyJson, ParsesBackToTheSameValue) {
  const Json json = Json::parse(
      R"({"a":[1,2,[3,{"b":null}]],"empty":{},"none":[],"text":"tab\t\"quote\" µ","deep":{"x":{"y":{"z":[true,1.5e-7]}}}})");
  EXPECT_EQ(Json::parse(pretty_json(json)), json);
}

TEST(PrettyJson, NumbersOfAnArrayStayOnOneLineHoweverMany) {
  Json json = {{"m_sizes", std::vector<int>(1000, 1234)}};
  const std::string text = pretty_json(json);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
}

TEST(PrettyJson, ShortObjectsOfPlainValuesStayOnOneLine) {
  EXPECT_EQ(pretty_json({{"time", {{"low", 1}, {"high", 2.5}}}}), "{\n  \"time\": {\"low\": 1, \"high\": 2.5}\n}\n");
}

TEST(PrettyJson, LongObjectsBreak) {
  Json inner = Json::object();
  for (int i = 0; i < 20; ++i) inner["knob_" + std::to_string(i)] = 128;
  const std::string text = pretty_json({{"candidate", inner}});
  EXPECT_NE(text.find("\n    \"knob_19\": 128\n"), std::string::npos) << text;
}

TEST(PrettyJson, AnObjectOfExactlyTheWidthFits) {
  for (size_t length : {1, 100, 136, 137, 138, 139, 140, 141, 142, 143, 150}) {
    const std::string text = pretty_json({{"outer", {{"key", std::string(length, 'x')}}}});
    size_t longest = 0, start = 0;
    for (size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1)
      longest = std::max(longest, end - start);
    const bool one_line = text.find("\"outer\": {\"key\"") != std::string::npos;
    EXPECT_EQ(one_line, length <= 137) << length;
    if (one_line) {
      EXPECT_LE(longest, 160u) << length;
    }
  }
}

TEST(PrettyJson, EmptyStructuresAndScalarsAtTheTop) {
  EXPECT_EQ(pretty_json(Json::object()), "{}\n");
  EXPECT_EQ(pretty_json(Json::array()), "[]\n");
  EXPECT_EQ(pretty_json("x"), "\"x\"\n");
  EXPECT_EQ(pretty_json({{"a", Json::object()}, {"b", Json::array()}}), "{\n  \"a\": {},\n  \"b\": []\n}\n");
}

TEST(PrettyJson, ArraysOfObjectsHaveOneALine) {
  EXPECT_EQ(pretty_json({{"ties", {{{"a", 1}}, {{"a", 2}}}}}),
            "{\n  \"ties\": [\n    {\"a\": 1},\n    {\"a\": 2}\n  ]\n}\n");
}

TEST(CompactJson, ReplacesBytesThatAreNoUtf8) {
  EXPECT_EQ(compact_json({{"reason", "caf\xe9"}}), "{\"reason\":\"caf\xef\xbf\xbd\"}");
}

}  // namespace
}  // namespace moetune
