// Parsing with places, checked access, and where lines break in files.
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/system/file.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace moetune {
namespace {

// The library's own sentence, without the number that it begins with.
std::string in_words(const Json::exception& error) {
  const std::string_view what = error.what();
  const size_t end = what.find("] ");
  return std::string(end == std::string_view::npos ? what : what.substr(end + 2));
}

constexpr int kMaxDepth = 64;

std::pair<size_t, size_t> line_and_column(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const size_t line = 1 + static_cast<size_t>(std::ranges::count(before, '\n'));
  const size_t newline = before.rfind('\n');
  return {line, newline == std::string_view::npos ? before.size() + 1 : before.size() - newline};
}

// Where the parser is: "entries[3].measurement.median_us".
class ParserPlace {
 public:
  // False for a key that its object has already.
  bool follow(Json::parse_event_t event, const Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::key) {
      frames_.back().key = value.get<std::string>();
      return frames_.back().keys.insert(frames_.back().key).second;
    }
    if (event == Event::object_end || event == Event::array_end) {
      frames_.pop_back();
      return true;
    }
    if (!frames_.empty()) ++frames_.back().elements;
    if (event != Event::value) frames_.push_back({.is_array = event == Event::array_start});
    return true;
  }

  std::string text() const {
    std::string text;
    for (const Frame& frame : frames_)
      text = pointer_to(text, frame.is_array ? fmt::format("[{}]", frame.elements - 1) : frame.key);
    return text;
  }

 private:
  struct Frame {
    bool is_array = false;
    size_t elements = 0;  // begun
    std::string key = {};
    std::set<std::string> keys = {};
  };
  std::vector<Frame> frames_;
};

// Replaces Python's words for numbers that JSON lacks by null, padded to their length where that fits.
std::string without_python_numbers(std::string_view text) {
  constexpr std::string_view kWords[] = {"NaN", "Infinity", "-Infinity"};
  std::string plain;
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    const auto word =
        std::ranges::find_if(kWords, [&](std::string_view one) { return text.substr(i).starts_with(one); });
    if (!in_string && word != std::end(kWords)) {
      plain += fmt::format("{:<{}}", "null", word->size());
      i += word->size();
      continue;
    }
    const size_t taken = in_string && text[i] == '\\' && i + 1 < text.size() ? 2 : 1;
    if (text[i] == '"') in_string = !in_string;
    plain += text.substr(i, taken);
    i += taken;
  }
  return plain;
}

constexpr size_t kLineWidth = 160;  // a candidate with all its knobs

// Whether it has no values in values.
bool all_plain(const Json& json) {
  return std::ranges::none_of(json, [](const Json& value) { return value.is_structured(); });
}

// `used` columns of this line are taken.
void append(std::string& out, const Json& json, size_t indent, size_t used);

std::string in_one_line(const Json& json) {
  if (!json.is_structured()) return compact_json(json);
  std::string line = json.is_array() ? "[" : "{";
  const std::string_view comma = json.is_array() ? "," : ", ";
  for (auto item = json.begin(); item != json.end(); ++item) {
    if (item != json.begin()) line += comma;
    if (json.is_object()) line += compact_json(item.key()) + ": ";
    line += compact_json(*item);
  }
  return line + (json.is_array() ? "]" : "}");
}

void append_lines(std::string& out, const Json& json, size_t indent) {
  const std::string margin(indent + 2, ' ');
  out += json.is_array() ? "[" : "{";
  for (auto item = json.begin(); item != json.end(); ++item) {
    const size_t line_start = out.size() + (item == json.begin() ? 1 : 2);
    out += (item == json.begin() ? "\n" : ",\n") + margin;
    if (json.is_object()) out += compact_json(item.key()) + ": ";
    append(out, *item, indent + 2, out.size() - line_start);
  }
  out += "\n" + std::string(indent, ' ') + (json.is_array() ? "]" : "}");
}

void append(std::string& out, const Json& json, size_t indent, size_t used) {
  const std::string line = all_plain(json) ? in_one_line(json) : "";
  if (!line.empty() && (!json.is_object() || json.empty() || used + line.size() < kLineWidth))
    out += line;
  else
    append_lines(out, json, indent);
}

}  // namespace

Json parse_json(std::string_view text, const Where& where, Dialect dialect) {
  const std::string plain = dialect == Dialect::python ? without_python_numbers(text) : "";
  const std::string_view whole = dialect == Dialect::python ? plain : text;
  const auto fail = [&](const std::string& sentence, const std::string& hint = {}) {
    throw Error(Exit::request, sentence, hint, ErrorKind::syntax, where);
  };
  const auto fail_at = [&](size_t byte, const std::string& sentence, const std::string& hint) {
    const auto [line, column] = line_and_column(whole, byte);
    Where place = where;
    place.line = where.line == 0 ? line : where.line + line - 1;
    place.column = column;
    throw Error(Exit::request, sentence, hint, ErrorKind::syntax, place);
  };
  // The library takes a zero byte for the end of the text.
  if (const size_t zero = whole.find('\0'); zero != std::string_view::npos)
    fail_at(zero, "not valid JSON: a byte is zero", "the file may have been cut off while it was written");
  ParserPlace place;
  const Json::parser_callback_t guard = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMaxDepth) fail(fmt::format("nested deeper than {} levels", kMaxDepth));
    if (!place.follow(event, value) && dialect == Dialect::strict)
      fail(fmt::format("the key {} appears twice", place.text()), "remove one of them");
    return true;
  };
  try {
    const Json json = Json::parse(whole, guard);
    const bool ours = dialect == Dialect::python && json.is_object() && json.contains("schema");
    return ours ? parse_json(text, where) : json;
  } catch (const Json::parse_error& error) {
    const bool cut = error.byte > whole.size();
    fail_at(error.byte > 0 ? error.byte - 1 : 0,
            whole.empty() ? "the file is empty"
            : cut         ? "the JSON ends too early"
                          : "not valid JSON",
            cut ? "the file may have been cut off while it was written" : in_words(error));
  } catch (const Json::exception& error) {
    fail(in_words(error));
  }
  return {};
}

Json read_json(const std::filesystem::path& path, Dialect dialect) {
  return parse_json(read_text(path), path, dialect);
}

std::string_view kind_of(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number_integer()) return "an integer";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  return value.is_array() ? "an array" : "an object";
}

Json rounded(double value, int digits) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr);
}

bool JsonAt::has(std::string_view key) const {
  if (!value_->is_object()) return false;
  const auto found = value_->find(std::string(key));
  return found != value_->end() && !found->is_null();
}

Where JsonAt::place() const {
  Where place = *root_;
  place.pointer = pointer_;
  return place;
}

const Json& JsonAt::expect(bool found, std::string_view kind) const {
  if (!found) fail(fmt::format("expected {}, found {}", kind, kind_of(*value_)));
  return *value_;
}

JsonAt JsonAt::operator[](std::string_view key) const {
  const Json& object = expect(value_->is_object(), "an object");
  const auto found = object.find(std::string(key));
  if (found == object.end()) fail(fmt::format("'{}' is missing", key));
  return {*found, *this, key};
}

JsonAt JsonAt::operator[](size_t index) const {
  if (index >= size()) fail(fmt::format("has {} elements, asked for number {}", size(), index + 1));
  return {(*value_)[index], *this, fmt::format("[{}]", index)};
}

size_t JsonAt::size() const { return expect(value_->is_array(), "an array").size(); }

std::string JsonAt::string() const { return expect(value_->is_string(), "a string").get<std::string>(); }

bool JsonAt::boolean() const { return expect(value_->is_boolean(), "true or false").get<bool>(); }

double JsonAt::number() const {
  const double number = expect(value_->is_number(), "a number").get<double>();
  if (!std::isfinite(number)) fail("the number is too large");
  return number;
}

int64_t JsonAt::integer(int64_t low, int64_t high) const {
  const Json& value = expect(value_->is_number(), "an integer");
  // 16.0 is an integer to people and to JSON; 16.5 is not.
  const bool fits =
      value.is_number_integer()
          ? !(value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})
          : std::abs(value.get<double>()) < 9e15 && std::trunc(value.get<double>()) == value.get<double>();
  if (!fits) fail(fmt::format("expected an integer, found {}", value.dump()));
  const int64_t integer = value.get<int64_t>();
  if (integer < low || integer > high) fail(fmt::format("{} is outside {} to {}", integer, low, high));
  return integer;
}

void JsonAt::fail(const std::string& what, const std::string& hint) const {
  throw request_error(what, hint).at(place());
}

void require_follows(const JsonAt& file, const Json& expected, std::string_view source, double error, double scale) {
  if (expected.is_object())
    for (const auto& item : expected.items())
      if (file.has(item.key())) require_follows(file[item.key()], item.value(), source, error, scale);
  for (size_t i = 0; expected.is_array() && i < expected.size(); ++i)
    require_follows(file[i], expected[i], source, error, scale);
  if (expected.is_structured() || expected.is_null()) return;
  const double value = expected.is_number() ? expected.get<double>() : 0;
  const bool equal =
      expected.is_number_float()
          ? std::abs(file.number() - value) <= error * (scale + std::max(std::abs(file.number()), std::abs(value)))
          : file.value() == expected;
  if (!equal)
    file.fail(fmt::format("{} contradicts {}: expected {}", file.value().dump(), source,
                          expected.is_number() ? fmt::format("{:.5g}", value) : expected.dump()));
}

std::vector<int32_t> integers(const JsonAt& array, int64_t low, int64_t high) {
  std::vector<int32_t> values(array.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const Json& value = array.value()[i];
    // The text of a place is built only for errors.
    const bool plain = value.is_number_integer() && value <= high && value >= low;
    values[i] = static_cast<int32_t>(plain ? value.get<int64_t>() : array[i].integer(low, high));
  }
  return values;
}

std::string compact_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string pretty_json(const Json& json) {
  std::string out;
  append(out, json, 0, 0);
  return out + "\n";
}

}  // namespace moetune
