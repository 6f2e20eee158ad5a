// Errors as values, so that tests can look at their words.
#pragma once
#include <string>

#include "base/error.h"

namespace moetune {

struct Caught {
  Exit exit = Exit::yes;  // where nothing was thrown
  std::string what;
  std::string hint;
};

template <typename Action>
Caught error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.exit(), error.what(), error.hint()};
  }
  return {};
}

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace moetune
