// Integer expressions over named sizes, made by code: evaluated here, printed as formulas in manifests. Formulas that
// come from a file: runtime/moetune/formula.h.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/moetune/formula.h"

namespace moetune {

using moetune_kernels::Sizes;

class Extent {
 public:
  Extent(int64_t constant);                                     // NOLINT: numbers are expressions
  Extent(const char* name) : Extent(std::string_view(name)) {}  // NOLINT: so are names of sizes
  Extent(std::string_view name);                                // NOLINT
  /// The value, as Formula evaluates text(). Throws std::invalid_argument for a size that `sizes` lacks.
  int64_t value(const Sizes& sizes) const;
  std::string text() const;

  friend Extent operator+(Extent a, Extent b);
  friend Extent operator-(Extent a, Extent b);
  friend Extent operator*(Extent a, Extent b);
  friend Extent operator/(Extent a, Extent b);
  friend Extent min(Extent a, Extent b);
  friend Extent max(Extent a, Extent b);
  friend Extent ceil_div(Extent a, Extent b);

 private:
  struct Node;
  Extent(std::string_view function, Extent a, Extent b);
  std::shared_ptr<const Node> node_;
};

}  // namespace moetune
