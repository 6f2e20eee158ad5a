// What "most" means in a space: the largest value with which a candidate is legal.
#pragma once
#include "variant/variant.h"

namespace moetune {

/// A value of a space: the largest with which the candidate is legal. Written "most".
constexpr int kMost = -1;

/// Gives knobs whose value is kMost their value: those of the last such knob are tried downwards and, with each, those
/// of the knobs before it. A number that is illegal as 2 and as 1 is not tried any further. False where nothing is
/// legal.
bool resolve_most(Candidate& candidate, const Variant& variant, const Shape& shape, const DeviceInfo& device);

}  // namespace moetune
