// Integer expressions over named sizes, made by code: evaluated here, printed as formulas in manifests. Formulas that
// come from a file: runtime/formula.h.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/formula.h"

namespace moetune {

class Expression {
 public:
  Expression(int64_t constant);                                         // NOLINT: numbers are expressions
  Expression(const char* name) : Expression(std::string_view(name)) {}  // NOLINT: so are names of sizes
  Expression(std::string_view name);                                    // NOLINT
  /// The value, as Formula evaluates text(). Throws std::invalid_argument for a size that `sizes` lacks.
  int64_t value(const Sizes& sizes) const;
  std::string text() const;

  friend Expression operator+(Expression a, Expression b);
  friend Expression operator-(Expression a, Expression b);
  friend Expression operator*(Expression a, Expression b);
  friend Expression operator/(Expression a, Expression b);
  friend Expression min(Expression a, Expression b);
  friend Expression max(Expression a, Expression b);
  friend Expression ceil_div(Expression a, Expression b);

 private:
  struct Node;
  Expression(std::string_view function, Expression a, Expression b);
  std::shared_ptr<const Node> node_;
};

}  // namespace moetune
