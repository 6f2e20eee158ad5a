// Shapes compared.
#include "record/table/match.h"

#include <fmt/format.h>

namespace moetune {

std::vector<std::string> shape_differences(const Shape& asked, const Shape& found) {
  std::vector<std::string> result;
  const auto compare = [&](std::string_view what, const auto& a, const auto& b) {
    if (a != b) result.push_back(fmt::format("{} {} (asked: {})", what, b, a));
  };
  const Layer &a = asked.layer, &b = found.layer;
  compare("experts", a.experts, b.experts);
  compare("top_k", a.top_k, b.top_k);
  compare("n", a.n, b.n);
  compare("k", a.k, b.k);
  compare("ep", a.ep, b.ep);
  compare("dtype", name(a.dtype), name(b.dtype));
  compare("op", name(asked.op), name(found.op));
  compare("fusion", text(asked.fusion), text(found.fusion));
  return result;
}

}  // namespace moetune
