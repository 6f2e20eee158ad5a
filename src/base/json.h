// JSON values, with errors that name the file and the place in it. Not any file format of our own.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/group.h"

// Compiled once, in json.cpp.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace moetune {

/// Keys keep their order, so that files diff well.
using Json = nlohmann::ordered_json;

/// strict: JSON as RFC 8259 defines it, with each key at most once in an object. python: what Python's json module
/// writes and reads: NaN, Infinity and -Infinity become null, and of equal keys the last one counts; but a document
/// with a "schema" is of moetune, and read strictly.
enum class Dialect { strict, python };

/// Parses all of `text`. Errors (Exit::request) name `where` and the line and column, or the place of a key that
/// appears twice. With a line in `where`, lines are counted from there. Nesting deeper than 64 is refused.
Json parse_json(std::string_view text, const Where& where, Dialect dialect = Dialect::strict);

/// Reads and parses a file, as large as read_text takes. Errors name the path.
Json read_json(const std::filesystem::path& path, Dialect dialect = Dialect::strict);

/// The text form of files that people read and git compares: indented by two, a newline at the end. Arrays of plain
/// values stay on one line whatever their length; objects of plain values stay on one line where they fit into 160
/// columns: a new winner is then one changed line.
std::string pretty_json(const Json& json);

/// On one line, without a newline. Bytes that are not UTF-8, as in a compiler's message, become U+FFFD.
std::string compact_json(const Json& json);

/// `value` to `digits` significant decimal digits; NaN and infinities become null.
Json rounded(double value, int digits = 6);

/// "a string", "an object": what a value is, in words.
std::string_view kind_of(const Json& value);

/// A place in a JSON document: every accessor checks and its error names the place, as in
/// "table.json: entries[3].candidate: expected a number, found a string".
class JsonAt {
 public:
  JsonAt(const Json& value, Where place)
      : value_(&value), pointer_(place.pointer), root_(std::make_shared<const Where>(std::move(place))) {}

  const Json& value() const { return *value_; }
  Where place() const;
  std::string where() const { return place().text(); }

  bool has(std::string_view key) const;           // an object with that key, and it isn't null
  JsonAt operator[](std::string_view key) const;  // error where it is missing
  JsonAt operator[](size_t index) const;
  size_t size() const;  // of an array; error for anything else
  std::string string() const;
  bool boolean() const;
  double number() const;  // finite
  int64_t integer(int64_t low = std::numeric_limits<int64_t>::min(),
                  int64_t high = std::numeric_limits<int64_t>::max()) const;
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const;

 private:
  JsonAt(const Json& value, const JsonAt& outer, std::string_view step)
      : value_(&value), pointer_(pointer_to(outer.pointer_, step)), root_(outer.root_) {}
  const Json& expect(bool found, std::string_view kind) const;  // the value

  const Json* value_;
  std::string pointer_;
  std::shared_ptr<const Where> root_;  // of the document, with its file and line
};

/// read(at), whose errors get the place of `at`.
template <typename Read>
auto with_place(const JsonAt& at, Read read) -> decltype(read(at)) {
  return with_place(at.place(), [&]() -> decltype(auto) { return read(at); });
}

/// parse(word) of the string at a place.
template <typename Parse>
auto word_at(const JsonAt& at, Parse parse) {
  return with_place(at, [&](const JsonAt& place) { return parse(place.string()); });
}

/// read(element) of each element of an array, in their order.
template <typename Read>
void each(const JsonAt& array, Read read) {
  for (size_t i = 0; i < array.size(); ++i) read(array[i]);
}
/// What read(element) gives for each of them.
template <typename Read>
auto list_at(const JsonAt& array, Read read) {
  std::vector<std::invoke_result_t<Read, JsonAt>> list;
  each(array, [&](const JsonAt& element) { list.push_back(std::invoke(read, element)); });
  return list;
}

/// An array of make(item), or of to_json(item), for each item.
template <typename Items, typename Make>
Json json_list(const Items& items, Make make) {
  return mapped<Json>(items, make);
}
template <typename Items>
Json json_list(const Items& items) {
  return json_list(items, [](const auto& item) -> Json { return to_json(item); });
}

/// An array of 32-bit integers, each within [low, high]. It is fast for long arrays.
std::vector<int32_t> integers(const JsonAt& array, int64_t low, int64_t high);

// Files are checked against the schemas in configs/schema, the one description of each. What a schema cannot say (sums,
// references between fields) is checked by the reader of the file.

/// Checks values of a file that are derived from others: each part of `expected` that the file has must be equal there,
/// numbers up to `error` times (scale + their size). The error names the `source` of what was expected.
void require_follows(const JsonAt& file, const Json& expected, std::string_view source, double error, double scale = 0);

/// Throws Exit::request, with the place, for a document that configs/schema/KIND.json refuses. A schema with a keyword
/// that this program doesn't evaluate throws std::logic_error.
void require_valid(const JsonAt& file, std::string_view kind);

/// Checks against `schema`, whose $refs may name its own $defs and embedded files beside `kind`: for tests.
void require_matches(const JsonAt& file, const Json& schema);

/// Checks that a file says `"schema": "moetune.<kind>/<version>"` (errors say what it is instead) and is valid by it.
void require_schema(const JsonAt& file, std::string_view kind, int version = 1);

}  // namespace moetune
