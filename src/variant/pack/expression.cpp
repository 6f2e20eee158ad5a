// Expressions are kept as the formulas that they print.
#include <fmt/format.h>

#include "variant/pack/launch_rule.h"

namespace moetune {
namespace {

// How much binds what an operator joins: sums least.
int strength(char operation) { return operation == 0 ? 3 : operation == '+' || operation == '-' ? 1 : 2; }

}  // namespace

Expression::Expression(int64_t constant) : text_(std::to_string(constant)) {}
Expression::Expression(std::string_view name) : text_(name) {}
Expression::Expression(std::string_view function, const Expression& a, const Expression& b)
    : text_(fmt::format("{}({}, {})", function, a.text_, b.text_)) {}

Expression::Expression(char operation, const Expression& a, const Expression& b) : operation_(operation) {
  const bool associates = operation == '+' || operation == '*';
  const auto part = [&](const Expression& side, bool bare) {
    bare = bare || strength(side.operation_) > strength(operation);
    return bare ? side.text_ : fmt::format("({})", side.text_);
  };
  text_ = fmt::format("{} {} {}", part(a, strength(a.operation_) == strength(operation)), operation,
                      part(b, associates && b.operation_ == operation));
}

int64_t Expression::value(const Sizes& sizes) const { return Formula::evaluate(text_, sizes); }

}  // namespace moetune
