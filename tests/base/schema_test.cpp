// Each keyword of JSON Schema that configs/schema uses, the sentences for what they refuse, and that all schemas
// compile.
#include "base/json.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "base/embedded.h"
#include "base/error.h"

namespace moetune {
namespace {

// The error's text, with its hint behind "; ", or "" where `value` is valid.
std::string refusal(const char* schema, const char* value) {
  try {
    require_matches(JsonAt(Json::parse(value), "a.json"), Json::parse(schema));
  } catch (const Error& error) {
    return error.what() + (error.hint().empty() ? "" : "; " + error.hint());
  }
  return "";
}

TEST(Schema, EverySchemaIsEvaluated) {
  const std::vector<std::string> names = embedded_names("configs/schema/");
  EXPECT_GT(names.size(), 20U);
  const Json number = 3;
  for (const std::string& name : names)
    if (name != "common") {
      EXPECT_THROW(require_valid(JsonAt(number, name), name), Error) << name;
    }
  EXPECT_THROW(refusal(R"({"items": {"dependentRequired": {}}})", "[]"), std::logic_error);
}

TEST(Schema, NamesThePlaceAndWhatIsExpected) {
  const char* entries =
      R"({"properties": {"entries": {"items": {"required": ["us"], "properties": {"us": {"type": "number"}}}}}})";
  EXPECT_EQ(refusal(entries, R"({"entries": [{"us": 1}, {"us": 2.5}], "other": null})"), "");
  EXPECT_EQ(refusal(entries, R"({"entries": [{"us": 1}, {"us": "2"}]})"),
            "a.json: entries[1].us: expected a number, found a string");
  EXPECT_EQ(refusal(entries, R"({"entries": [{}]})"), "a.json: entries[0]: 'us' is missing");
  EXPECT_EQ(refusal(R"({"type": ["integer", "null"]})", "1.5"), "a.json: expected null or an integer, found a number");
  EXPECT_EQ(refusal(R"({"type": "integer"})", "16.0"), "");
  EXPECT_EQ(refusal(R"({"items": {"type": "integer"}})", "[16.5]"), "a.json[0]: expected an integer, found 16.5");
}

TEST(Schema, WordsAreNamedWithTheNearest) {
  const char* schema = R"({"properties": {"op": {"enum": ["fwd", "dx", "dw"]}, "swizzle": {"enum": [0, 128]}}})";
  EXPECT_EQ(refusal(schema, R"({"op": "fwdd"})"), "a.json: op: unknown op 'fwdd'; did you mean 'fwd'?");
  EXPECT_EQ(refusal(schema, R"({"op": 3})"), R"(a.json: op: expected one of ["fwd","dx","dw"], found 3)");
  EXPECT_EQ(refusal(schema, R"({"swizzle": 64})"), "a.json: swizzle: expected one of [0,128], found 64");
  EXPECT_EQ(refusal(R"({"const": 128})", "64"), "a.json: expected 128, found 64");
  EXPECT_EQ(refusal(R"({"propertyNames": {"enum": ["tokens"]}})", R"({"token": 1})"),
            "a.json: token: unknown key 'token'; did you mean 'tokens'?");
}

TEST(Schema, Limits) {
  EXPECT_EQ(refusal(R"({"minimum": 1})", "0"), "a.json: must be at least 1, found 0");
  EXPECT_EQ(refusal(R"({"exclusiveMinimum": 0})", "0"), "a.json: must be more than 0, found 0");
  EXPECT_EQ(refusal(R"({"maximum": 1})", "1.5"), "a.json: must be at most 1, found 1.5");
  EXPECT_EQ(refusal(R"({"minimum": 1, "minLength": 1})", R"("")"), "a.json: the text is empty");
  EXPECT_EQ(refusal(R"({"minItems": 1, "minProperties": 1})", "[]"), "a.json: is empty");
  EXPECT_EQ(refusal(R"({"minItems": 1, "minProperties": 1})", "{}"), "a.json: is empty");
  EXPECT_EQ(refusal(R"({"minItems": 2})", "[1]"), "a.json: has 1 elements, expected 2");
  EXPECT_EQ(refusal(R"({"maxItems": 1})", "[1, 2]"), "a.json: has 2 elements, expected at most 1");
  EXPECT_EQ(refusal(R"({"uniqueItems": true})", "[1, 2, 1]"), "a.json: has 1 twice");
  EXPECT_EQ(refusal(R"({"pattern": "^a+$"})", R"("b")"), "a.json: 'b' does not match ^a+$");
}

TEST(Schema, OfSeveralFormsTheOneThatWasMeantIsJudged) {
  const char* any = R"({"anyOf": [{"required": ["a"], "properties": {"a": {"type": "string"}}}, {"required": ["b"]}]})";
  EXPECT_EQ(refusal(any, R"({"b": 1})"), "");
  EXPECT_EQ(refusal(any, R"({"a": 1})"), "a.json: a: expected a string, found an integer");
  EXPECT_EQ(refusal(any, "{}"), "a.json: 'a' is missing, or 'b' is missing");
  const char* one = R"({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]})";
  EXPECT_EQ(refusal(one, R"({"a": 1})"), "");
  EXPECT_EQ(refusal(one, R"({"a": 1, "b": 1})"), "a.json: may have only one of 'a', 'b'");
}

TEST(Schema, Conditions) {
  const char* rule = R"({"if": {"properties": {"ok": {"const": true}}}, "then": {"not": {"required": ["why"]}},
                         "else": {"required": ["why"]}, "properties": {"gone": false}})";
  EXPECT_EQ(refusal(rule, R"({"ok": true})"), "");
  EXPECT_EQ(refusal(rule, R"({"ok": true, "why": ""})"), "a.json: 'why' must not be there");
  EXPECT_EQ(refusal(rule, R"({"ok": false})"), "a.json: 'why' is missing");
  EXPECT_EQ(refusal(rule, R"({"ok": true, "gone": 1})"), "a.json: gone: must not be there");
}

TEST(Schema, ReferencesToDefinitionsAndToOtherFiles) {
  const char* schema = R"({"$defs": {"low": {"maximum": 3}}, "additionalProperties": {"$ref": "#/$defs/low"},
                           "properties": {"op": {"$ref": "common.json#/$defs/size"}}})";
  EXPECT_EQ(refusal(schema, R"({"a": 3, "op": 9})"), "");
  EXPECT_EQ(refusal(schema, R"({"a": 4})"), "a.json: a: must be at most 3, found 4");
  EXPECT_EQ(refusal(schema, R"({"op": 0})"), "a.json: op: must be at least 1, found 0");
}

}  // namespace
}  // namespace moetune
