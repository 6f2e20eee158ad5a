// A small shape, and spaces of one variant.
#pragma once
#include <string>

#include "built_in.h"
#include "variant/space/space.h"

namespace moetune {

inline Shape small_shape(int64_t n = 256) {
  return {.layer = {.model = "custom", .experts = 8, .top_k = 2, .n = n, .k = 256}, .op = Op::fwd, .fusion = {}};
}

inline SearchSpace only(const std::string& space, const std::string& variant) {
  SearchSpace result = load_space(space, built_in());
  keep_variants(result, {variant}, built_in());
  return result;
}

}  // namespace moetune
