// What is wrong with options that make cells.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "cli/options/cells.h"
#include "error_of.h"

namespace moetune {

/// The error of a request, or "no error".
inline std::string cell_error(const CellOptions& options) {
  const Caught caught = error_of([&] { make_cells(options); });
  if (caught.exit == Exit::yes) return "no error";
  EXPECT_EQ(caught.exit, Exit::request);
  return caught.what;
}

}  // namespace moetune
