// Adds the place in a file to errors of functions that parse single values.
#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace moetune {

/// "'x' is not a whole number" for the message "block_m: 'x' is not a whole number" at a place that ends with block_m,
/// or block_m[2]: the place tells the name already.
inline std::string_view without_name(std::string_view message, std::string_view place) {
  if (place.ends_with(']')) place = place.substr(0, place.rfind('['));
  const size_t colon = message.find(": ");
  if (colon == std::string_view::npos || !place.ends_with(message.substr(0, colon))) return message;
  const std::string_view before = place.substr(0, place.size() - colon);
  return before.ends_with('.') || before.ends_with(' ') ? message.substr(colon + 2) : message;
}

/// read(at); an error that doesn't name a place yet (an unknown word) gets that of `at`.
template <typename Read>
auto placed(const JsonAt& at, Read read) -> decltype(read(at)) {
  try {
    return read(at);
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(at.where())) throw;
    at.fail(std::string(without_name(error.what(), at.where())), error.hint());
  }
}

}  // namespace moetune
