// Launches as manifests write them: checked before anything is launched. configs/schema/kernels.json and pack.json
// describe the form.
#pragma once
#include <set>
#include <string>

#include "base/json.h"
#include "runtime/moetune/formula.h"

namespace moetune {

/// What the launches of a manifest may name.
struct LaunchNames {
  moetune_kernels::Sizes sizes;    // names that formulas use, with values to try them with
  std::set<std::string> pointers;  // operands and buffers
};

/// Every name that formulas of moetune.kernels/1 may use, with a value to try them that divides none by zero.
moetune_kernels::Sizes any_sizes();

template <typename Read>
void each(const JsonAt& array, Read read) {
  for (size_t i = 0; i < array.size(); ++i) read(array[i]);
}

// What follows throws Exit::request with the place.

void require_formula(const JsonAt& json, const moetune_kernels::Sizes& sizes);

/// The operands and buffers of a kernel, whose names are added to `names`.
void require_operands(const JsonAt& operands, LaunchNames& names);
void require_buffers(const JsonAt& buffers, LaunchNames& names);

/// An argument of a launch: a value or a struct of values.
void require_argument(const JsonAt& argument, const LaunchNames& names);

/// A fill, or a kernel whose cubins are among `files`.
void require_launch(const JsonAt& launch, const LaunchNames& names, const JsonAt& files);

/// What every kernel's launch has, of a cubin or of the candidate: "cooperative", "grid" and "arguments".
void require_grid_and_arguments(const JsonAt& launch, const LaunchNames& names);

}  // namespace moetune
