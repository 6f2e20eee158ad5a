// Reading values inside a file by functions that know nothing of files, so that every error names its place.
#pragma once
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace moetune {

/// read(at); an error that doesn't name a place yet (an unknown word) gets that of `at`.
template <typename Read>
auto placed(const JsonAt& at, Read read) -> decltype(read(at)) {
  try {
    return read(at);
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(at.where())) throw;
    at.fail(error.what(), error.hint());
  }
}

}  // namespace moetune
