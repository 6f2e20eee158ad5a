// What all lanes of a warp have together; and launches that begin early.
#pragma once

namespace moetune {

// Programmatic dependent launch: waits until the launch before has ended, and lets the next one begin. A kernel calls
// it before all else.
__device__ __forceinline__ void follow_any() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ unsigned warp_max(unsigned value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(~0u, value);
#else
  for (int step = 16; step > 0; step /= 2) value = max(value, __shfl_xor_sync(~0u, value, step));
  return value;
#endif
}
__device__ __forceinline__ int warp_sum(int value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(~0u, value);
#else
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
#endif
}
__device__ __forceinline__ float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

}  // namespace moetune
