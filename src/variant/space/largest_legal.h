// What "most" means in a space: the largest value with which a candidate is legal.
#pragma once
#include "variant/variant.h"

namespace moetune {

/// A value of a space: the largest with which the candidate is legal. Written "most".
constexpr int kLargestLegal = -1;

/// Replaces each kLargestLegal by a value: values of the last such knob are tried downwards and, with each, values of
/// the knobs before it. A number that is illegal at 2 and at 1 is not tried any further. False where no values are
/// legal.
bool set_largest_legal(Candidate& candidate, const Shape& shape, const DeviceInfo& device);

}  // namespace moetune
