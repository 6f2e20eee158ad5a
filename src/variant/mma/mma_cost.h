// How long a launch of the mma variant should take. Not what is legal.
#pragma once
#include "kernels/mma_plan.h"
#include "variant/device.h"
#include "workload/problem.h"

namespace moetune {

/// Seconds that a launch should take with `blocks` of them on an SM and these rows of each expert; 0 where the device's
/// peaks are unknown. The slower of two, as far as they don't overlap: what the busiest SM multiplies, reads from
/// shared memory and waits for; bytes from and to memory. Cycles are those of the kernels on Hopper, fitted to the
/// tables of configs/tuned; the device enters by its SMs, its peaks and whether it has wgmma, beside which mma.sync is
/// slower.
double mma_seconds(const MmaKnobs& knobs, int blocks, const Problem& problem, const DeviceInfo& device);

}  // namespace moetune
