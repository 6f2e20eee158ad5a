// Reads JSON (RFC 8259) into values whose errors name their place.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moetune_kernels {

/// A value and its place, "manifest.json: kernels[3].grid". Accessors throw std::runtime_error with the place.
class Value {
 public:
  enum class Kind { null, boolean, number, string, array, object };

  Kind kind() const { return kind_; }
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const Value& operator[](std::string_view key) const {
    need(Kind::object, "an object");
    if (const Value* value = find(key)) return *value;
    fail("'" + std::string(key) + "' is missing");
  }
  const std::vector<Value>& items() const { return need(Kind::array, "an array").items_; }
  const std::vector<std::pair<std::string, Value>>& members() const { return need(Kind::object, "an object").members_; }
  const std::string& string() const { return need(Kind::string, "a string").text_; }
  bool boolean() const { return need(Kind::boolean, "true or false").text_ == "true"; }
  double number() const { return std::strtod(need(Kind::number, "a number").text_.c_str(), nullptr); }
  std::int64_t integer() const {
    need(Kind::number, "a whole number");
    char* end = nullptr;
    const long long value = std::strtoll(text_.c_str(), &end, 10);
    if (*end != '\0') fail("expected a whole number, found " + text_);
    return value;
  }
  [[noreturn]] void fail(const std::string& what) const { throw std::runtime_error(where_ + ": " + what); }

  /// Throws std::runtime_error with the line for text that is not JSON.
  static Value parse(std::string_view text, const std::string& where);

 private:
  friend class JsonReader;
  const Value* find(std::string_view key) const {
    for (const auto& [name, value] : members_)
      if (name == key) return &value;
    return nullptr;
  }
  const Value& need(Kind kind, const char* what) const {
    if (kind_ != kind) fail(std::string("expected ") + what);
    return *this;
  }

  Kind kind_ = Kind::null;
  std::string where_, text_;
  std::vector<Value> items_;
  std::vector<std::pair<std::string, Value>> members_;
};

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Value whole() {
    Value value = read(where_, 0);
    skip_space();
    if (at_ != text_.size()) fail("more text follows the value");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    std::size_t line = 1;
    for (std::size_t i = 0; i < at_ && i < text_.size(); ++i) line += text_[i] == '\n' ? 1 : 0;
    throw std::runtime_error(where_ + ", line " + std::to_string(line) + ": " + what);
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  char next() {
    skip_space();
    if (at_ == text_.size()) fail("the text ends too early");
    return text_[at_];
  }
  bool take(char wanted) {
    if (next() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) fail(std::string("expected '") + wanted + "'");
  }

  Value read(const std::string& where, int depth) {
    if (depth > 64) fail("values are nested too deeply");
    Value value;
    value.where_ = where;
    const char first = next();
    if (first == '{') {
      read_object(value, depth);
    } else if (first == '[') {
      read_array(value, depth);
    } else if (first == '"') {
      value.kind_ = Value::Kind::string;
      value.text_ = read_string();
    } else {
      read_word(value);
    }
    return value;
  }

  void read_object(Value& value, int depth) {
    value.kind_ = Value::Kind::object;
    ++at_;
    if (take('}')) return;
    do {
      if (next() != '"') fail("expected the name of a member");
      const std::string name = read_string();
      if (value.has(name)) fail("'" + name + "' appears twice");
      expect(':');
      value.members_.emplace_back(name, read(value.where_ + "." + name, depth + 1));
    } while (take(','));
    expect('}');
  }

  void read_array(Value& value, int depth) {
    value.kind_ = Value::Kind::array;
    ++at_;
    if (take(']')) return;
    do value.items_.push_back(read(value.where_ + "[" + std::to_string(value.items_.size()) + "]", depth + 1));
    while (take(','));
    expect(']');
  }

  void read_word(Value& value) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::string_view(" \t\r\n,]}").find(text_[at_]) == std::string_view::npos) ++at_;
    value.text_ = std::string(text_.substr(begin, at_ - begin));
    if (value.text_ == "null") return;
    if (value.text_ == "true" || value.text_ == "false") {
      value.kind_ = Value::Kind::boolean;
      return;
    }
    char* end = nullptr;
    std::strtod(value.text_.c_str(), &end);
    const char start = value.text_.empty() ? '?' : value.text_.front();
    const bool digits = value.text_.find_first_not_of("0123456789+-.eE") == std::string::npos;
    if (*end != '\0' || !digits || !(start == '-' || (start >= '0' && start <= '9')))
      fail("'" + value.text_ + "' is not a JSON value");
    value.kind_ = Value::Kind::number;
  }

  std::string read_string() {
    std::string result;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (static_cast<unsigned char>(text_[at_]) < 0x20) fail("a control character in a string");
      if (text_[at_] != '\\') {
        result += text_[at_];
        continue;
      }
      if (++at_ == text_.size()) break;
      static constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
      if (const std::size_t place = kFrom.find(text_[at_]); place != std::string_view::npos)
        result += kTo[place];
      else if (text_[at_] == 'u')
        append_utf8(result);
      else
        fail("an unknown escape in a string");
    }
    if (at_ >= text_.size()) fail("a string does not end");
    ++at_;
    return result;
  }

  unsigned read_hex() {
    if (at_ + 4 >= text_.size()) fail("an escape does not end");
    const std::string digits(text_.substr(at_ + 1, 4));
    if (digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) fail("a wrong escape in a string");
    at_ += 4;
    return static_cast<unsigned>(std::strtoul(digits.c_str(), nullptr, 16));
  }

  void append_utf8(std::string& out) {
    unsigned code = read_hex();
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_ + 1, 2) == "\\u") {
      at_ += 2;
      const unsigned low = read_hex();
      if (low < 0xdc00 || low > 0xdfff) fail("half of a surrogate pair in a string");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    const auto add = [&](unsigned byte) { out += static_cast<char>(byte); };
    if (code < 0x80) {
      add(code);
    } else if (code < 0x800) {
      add(0xc0 | (code >> 6)), add(0x80 | (code & 63));
    } else if (code < 0x10000) {
      add(0xe0 | (code >> 12)), add(0x80 | ((code >> 6) & 63)), add(0x80 | (code & 63));
    } else {
      add(0xf0 | (code >> 18)), add(0x80 | ((code >> 12) & 63)), add(0x80 | ((code >> 6) & 63)),
          add(0x80 | (code & 63));
    }
  }

  std::string_view text_;
  std::string where_;
  std::size_t at_ = 0;
};

inline Value Value::parse(std::string_view text, const std::string& where) { return JsonReader(text, where).whole(); }

}  // namespace moetune_kernels
