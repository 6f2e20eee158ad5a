// Integer arithmetic over named sizes, as manifests of kernels write it: "min(held, rows / 128 + experts) * 2".
#pragma once
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace moetune {

using Sizes = std::map<std::string, std::int64_t, std::less<>>;

/// Numbers, names of `sizes`, + - * / % with the usual precedence, parentheses, and the functions min(a, b),
/// max(a, b) and ceil_div(a, b). Division rounds towards zero; arithmetic is of 64 bits and wraps. Throws
/// std::invalid_argument with the place for anything else, for unknown names, for a division by zero, and for
/// parentheses nested deeper than 64.
class Formula {
 public:
  static std::int64_t evaluate(std::string_view text, const Sizes& sizes) {
    Formula formula(text, sizes);
    const std::int64_t value = formula.sum();
    if (formula.peek() != '\0') formula.fail("expected an operator");
    return value;
  }

 private:
  Formula(std::string_view text, const Sizes& sizes) : text_(text), sizes_(sizes) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("formula '" + std::string(text_) + "', column " + std::to_string(at_ + 1) + ": " +
                                what);
  }

  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  void expect(char wanted) {
    if (peek() != wanted) fail(std::string("expected '") + wanted + "'");
    ++at_;
  }

  static std::int64_t wrapped(std::uint64_t value) { return static_cast<std::int64_t>(value); }

  std::int64_t sum() {
    if (++depth_ > kMaxDepth) fail("parentheses are nested deeper than " + std::to_string(kMaxDepth));
    std::int64_t value = product();
    for (char op = peek(); op == '+' || op == '-'; op = peek()) {
      ++at_;
      const auto left = static_cast<std::uint64_t>(value), right = static_cast<std::uint64_t>(product());
      value = wrapped(op == '+' ? left + right : left - right);
    }
    --depth_;
    return value;
  }

  std::int64_t product() {
    std::int64_t value = factor();
    for (char op = peek(); op == '*' || op == '/' || op == '%'; op = peek()) {
      ++at_;
      const std::int64_t right = factor();
      value = op == '*' ? wrapped(static_cast<std::uint64_t>(value) * static_cast<std::uint64_t>(right))
                        : divided(value, right, op == '%');
    }
    return value;
  }

  std::int64_t divided(std::int64_t left, std::int64_t right, bool rest) const {
    if (right == 0) fail("division by zero");
    if (right == -1) return rest ? 0 : wrapped(0 - static_cast<std::uint64_t>(left));
    return rest ? left % right : left / right;
  }

  std::int64_t factor() {
    const char first = peek();
    if (first == '(') {
      ++at_;
      const std::int64_t value = sum();
      expect(')');
      return value;
    }
    if (first >= '0' && first <= '9') return number();
    if (is_letter(first)) return named();
    fail("expected a number, a name or '('");
  }

  std::int64_t number() {
    std::uint64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (value > (INT64_MAX - digit) / 10) fail("the number is too large");
      value = value * 10 + digit;
    }
    return wrapped(value);
  }

  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

  std::int64_t named() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || (text_[at_] >= '0' && text_[at_] <= '9'))) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (peek() == '(') return function(name, begin);
    const auto found = sizes_.find(name);
    if (found == sizes_.end()) {
      at_ = begin;
      fail("unknown name '" + std::string(name) + "'");
    }
    return found->second;
  }

  std::int64_t function(std::string_view name, std::size_t begin) {
    if (name != "min" && name != "max" && name != "ceil_div") {
      at_ = begin;
      fail("unknown function '" + std::string(name) + "'");
    }
    expect('(');
    const std::int64_t left = sum();
    expect(',');
    const std::int64_t right = sum();
    expect(')');
    if (name == "min") return left < right ? left : right;
    if (name == "max") return left > right ? left : right;
    const std::int64_t quotient = divided(left, right, false);
    return quotient * right < left ? quotient + 1 : quotient;
  }

  static constexpr int kMaxDepth = 64;

  std::string_view text_;
  const Sizes& sizes_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace moetune
