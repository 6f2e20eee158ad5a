// How long a launch of the mma variant should take. Not what is legal.
#pragma once
#include "kernels/mma/mma_plan.h"
#include "variant/cost.h"
#include "variant/device.h"
#include "workload/problem.h"

namespace moetune {

/// What configs/cost/mma.json holds, and describes.
struct MmaCost {
  Constants of;
  double mma_flops = of.at("mma_flops"), latency = of.at("latency"), step = of.at("step");
  double shared_rate = of.at("shared_rate"), load_rate = of.at("load_rate"), stored_sum = of.at("stored_sum");
  double write_rate = of.at("write_rate"), launch = of.at("launch"), overlap_shared = of.at("overlap_shared");
  double overlap_memory = of.at("overlap_memory");
};

/// Seconds that a launch should take with `blocks` of them on an SM and these rows of each expert; 0 where the device's
/// peaks are unknown. The slower of two, as far as they don't overlap: what the busiest SM multiplies, reads from
/// shared memory and waits for; bytes from and to memory. The device enters by its SMs, its peaks and whether it has
/// wgmma, beside which mma.sync is slower.
double mma_seconds(const MmaCost& cost, const MmaKnobs& knobs, int blocks, const Problem& problem,
                   const DeviceInfo& device);

}  // namespace moetune
