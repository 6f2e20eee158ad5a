// What the GPU reaches at best, measured: bandwidth, dense GEMM, launch cost.
#pragma once
#include "backend/backend.h"
#include "backend/cuda/libraries/cublas.h"
#include "backend/cuda/verify/service.h"

namespace moetune {

/// Takes about three seconds and 4 GB; OutOfMemory where the GPU has less free.
Ceilings measure_ceilings(const Service& service, Cublas& cublas, const Stream& stream, int sms);

}  // namespace moetune
