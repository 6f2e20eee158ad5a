// How long a launch of the wgmma variant should take. Not what is legal.
#pragma once
#include "kernels/wgmma_plan.h"
#include "variant/device.h"
#include "workload/problem.h"

namespace moetune {

/// Seconds that a launch should take with these rows of each expert; 0 where the device's peaks are unknown. The
/// slowest of four, as far as they don't overlap: what the busiest SM multiplies and waits for, tile by tile, at the
/// peak clock; what all SMs do, at the clock that power allows them; bytes through L2; bytes from and to memory. Cycles
/// are those of the kernels on Hopper, fitted to the journals of tests/journals, by errors and by the time that the
/// model's first choice loses; the device enters by its SMs, its L2 and its peaks. Addressing makes no difference to
/// it.
double wgmma_seconds(const WgmmaKnobs& knobs, const Problem& problem, const DeviceInfo& device);

}  // namespace moetune
