// Activations of a gate and an up in double precision, and their derivatives.
#pragma once
#include "kernels/formulas.h"

namespace moetune {

/// A column of D, of a gate and an up.
double activate(Activation activation, double gate, double up);

/// Its derivatives.
struct Slopes {
  double gate, up;
};
Slopes slopes(Activation activation, double gate, double up);

}  // namespace moetune
