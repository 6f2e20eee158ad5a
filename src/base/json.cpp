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

std::string_view kind_of(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number_integer()) return "an integer";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  return value.is_array() ? "an array" : "an object";
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
      text += frame.is_array ? fmt::format("[{}]", frame.elements - 1) : (text.empty() ? "" : ".") + frame.key;
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

Json parse_json(std::string_view text, const std::string& where, Dialect dialect) {
  const std::string plain = dialect == Dialect::python ? without_python_numbers(text) : "";
  if (dialect == Dialect::python) text = plain;
  ParserPlace place;
  const Json::parser_callback_t guard = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kMaxDepth) throw request_error(fmt::format("{}: nested deeper than {} levels", where, kMaxDepth));
    if (!place.follow(event, value) && dialect == Dialect::strict)
      throw request_error(fmt::format("{}: the key {} appears twice", where, place.text()), "remove one of them");
    return true;
  };
  try {
    return Json::parse(text, guard);
  } catch (const Json::parse_error& error) {
    const auto [line, column] = line_and_column(text, error.byte > 0 ? error.byte - 1 : 0);
    const bool cut = error.byte > text.size();
    throw request_error(fmt::format("{}:{}:{}: {}", where, line, column,
                                    text.empty() ? "the file is empty"
                                    : cut        ? "the JSON ends too early"
                                                 : "not valid JSON"),
                        cut ? "the file may have been cut off while it was written" : in_words(error));
  } catch (const Json::exception& error) {
    throw request_error(fmt::format("{}: {}", where, in_words(error)));
  }
}

Json read_json(const std::filesystem::path& path, Dialect dialect) {
  return parse_json(read_text(path), path.string(), dialect);
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

JsonAt JsonAt::operator[](std::string_view key) const {
  if (!value_->is_object()) fail(fmt::format("expected an object, found {}", kind_of(*value_)));
  const auto found = value_->find(std::string(key));
  if (found == value_->end()) fail(fmt::format("'{}' is missing", key));
  return JsonAt(*found, where_.ends_with(": ")                   ? fmt::format("{}{}", where_, key)
                        : where_.find(": ") == std::string::npos ? fmt::format("{}: {}", where_, key)
                                                                 : fmt::format("{}.{}", where_, key));
}

JsonAt JsonAt::operator[](size_t index) const {
  if (index >= size()) fail(fmt::format("has {} elements, asked for number {}", size(), index + 1));
  return JsonAt((*value_)[index], fmt::format("{}[{}]", where_, index));
}

size_t JsonAt::size() const {
  if (!value_->is_array()) fail(fmt::format("expected an array, found {}", kind_of(*value_)));
  return value_->size();
}

std::string JsonAt::string() const {
  if (!value_->is_string()) fail(fmt::format("expected a string, found {}", kind_of(*value_)));
  return value_->get<std::string>();
}

bool JsonAt::boolean() const {
  if (!value_->is_boolean()) fail(fmt::format("expected true or false, found {}", kind_of(*value_)));
  return value_->get<bool>();
}

double JsonAt::number() const {
  if (!value_->is_number()) fail(fmt::format("expected a number, found {}", kind_of(*value_)));
  const double number = value_->get<double>();
  if (!std::isfinite(number)) fail("the number is too large");
  return number;
}

int64_t JsonAt::integer(int64_t low, int64_t high) const {
  if (!value_->is_number()) fail(fmt::format("expected an integer, found {}", kind_of(*value_)));
  // 16.0 is an integer to people and to JSON; 16.5 is not.
  const bool fits =
      value_->is_number_integer()
          ? !(value_->is_number_unsigned() && value_->get<uint64_t>() > uint64_t{INT64_MAX})
          : std::abs(value_->get<double>()) < 9e15 && std::trunc(value_->get<double>()) == value_->get<double>();
  if (!fits) fail(fmt::format("expected an integer, found {}", value_->dump()));
  const int64_t integer = value_->get<int64_t>();
  if (integer < low || integer > high) fail(fmt::format("{} is outside {} to {}", integer, low, high));
  return integer;
}

void JsonAt::fail(const std::string& what, const std::string& hint) const {
  throw request_error(fmt::format("{}: {}", where_, what), hint);
}

// Inside a catch block. A message that begins with a name, "block_m: 'x' is not a whole number", loses it at a place
// that ends with that name, or with block_m[2].
void fail_with_place(const JsonAt& at, const Error& error) {
  const std::string_view message = error.what();
  if (message.starts_with(at.where())) throw;
  std::string_view place = at.where();
  if (place.ends_with(']')) place = place.substr(0, place.rfind('['));
  const size_t colon = message.find(": ");
  const bool named = colon != std::string_view::npos && place.ends_with(message.substr(0, colon));
  const std::string_view before = named ? place.substr(0, place.size() - colon) : "";
  const bool twice = before.ends_with('.') || before.ends_with(' ');
  at.fail(std::string(twice ? message.substr(colon + 2) : message), error.hint());
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
