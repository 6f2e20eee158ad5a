// Builds these loops for every instruction set of this architecture.
#include "backend/cpu/dots.h"

#include <bit>
#include <cstring>

#include "backend/cpu/microkernel.h"

namespace moetune {
namespace {

#define MOETUNE_ISA generic
#define MOETUNE_TARGET
#define MOETUNE_BYTES 16
#define MOETUNE_COLUMNS 2
#include "backend/cpu/dots.inc"

#if defined(__x86_64__)
#define MOETUNE_ISA avx2
#define MOETUNE_TARGET __attribute__((target("avx2,fma")))
#define MOETUNE_BYTES 32
#define MOETUNE_COLUMNS 2
#include "backend/cpu/dots.inc"

#define MOETUNE_ISA avx512
#define MOETUNE_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")))
#define MOETUNE_BYTES 64
#define MOETUNE_COLUMNS 4
#include "backend/cpu/dots.inc"
#endif

}  // namespace

const Dots& dots() {
#if defined(__x86_64__)
  const Isa isa = usable_isas().back();
  if (isa == Isa::avx512) return avx512::kDots;
  if (isa == Isa::avx2) return avx2::kDots;
#endif
  return generic::kDots;
}

Dots::Few* few(const Dots& dots, Dtype dtype) {
  return dtype == Dtype::bf16 ? dots.few_bf16 : dtype == Dtype::fp16 ? dots.few_fp16 : dots.few_fp32;
}

void widen(const Dots& dots, Dtype dtype, const void* source, int64_t count, float* target) {
  if (dtype == Dtype::bf16) dots.widen_bf16(static_cast<const uint16_t*>(source), count, target);
  if (dtype == Dtype::fp16) dots.widen_fp16(static_cast<const uint16_t*>(source), count, target);
  if (dtype == Dtype::fp32) std::memcpy(target, source, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace moetune
