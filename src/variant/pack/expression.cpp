// Expressions as trees that are shared and never change.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "variant/pack/launch_rule.h"

namespace moetune {

struct Expression::Node {
  std::string word;  // a name, or what joins two: an operator or a function; empty for a constant
  int64_t constant = 0;
  std::shared_ptr<const Node> a = {}, b = {};

  bool is_operator() const { return a && word.size() == 1; }
  // Of text without parentheses: sums bind least.
  int strength() const { return !is_operator() ? 3 : word == "+" || word == "-" ? 1 : 2; }

  int64_t value(const Sizes& sizes) const {
    if (a) return joined(a->value(sizes), b->value(sizes));
    if (word.empty()) return constant;
    const auto found = sizes.find(word);
    if (found == sizes.end()) throw std::invalid_argument(fmt::format("unknown size '{}'", word));
    return found->second;
  }

  // Arithmetic wraps at 64 bits, as that of formulas does.
  int64_t joined(int64_t left, int64_t right) const {
    const auto l = static_cast<uint64_t>(left), r = static_cast<uint64_t>(right);
    if (word == "+") return static_cast<int64_t>(l + r);
    if (word == "-") return static_cast<int64_t>(l - r);
    if (word == "*") return static_cast<int64_t>(l * r);
    if (word == "min") return std::min(left, right);
    if (word == "max") return std::max(left, right);
    const int64_t quotient = left / right;
    return quotient + (word == "ceil_div" && quotient * right < left ? 1 : 0);
  }

  std::string text() const {
    if (!a) return word.empty() ? std::to_string(constant) : word;
    if (!is_operator()) return fmt::format("{}({}, {})", word, a->text(), b->text());
    const auto part = [&](const Node& node, bool right) {
      const bool bare =
          node.strength() > strength() ||
          (node.strength() == strength() && (!right || (node.word == word && (word == "+" || word == "*"))));
      return bare ? node.text() : fmt::format("({})", node.text());
    };
    return fmt::format("{} {} {}", part(*a, false), word, part(*b, true));
  }
};

Expression::Expression(int64_t constant) : node_(std::make_shared<Node>(Node{.word = {}, .constant = constant})) {}
Expression::Expression(std::string_view name) : node_(std::make_shared<Node>(Node{.word = std::string(name)})) {}
Expression::Expression(std::string_view function, Expression a, Expression b)
    : node_(std::make_shared<Node>(
          Node{.word = std::string(function), .a = std::move(a.node_), .b = std::move(b.node_)})) {}

int64_t Expression::value(const Sizes& sizes) const { return node_->value(sizes); }
std::string Expression::text() const { return node_->text(); }

}  // namespace moetune
