// Builds the microkernels for every instruction set of this architecture and picks one at run time.
#include "backend/cpu/microkernel.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace moetune {
namespace {

/// Calls f with the dtype as a constant.
template <class F>
void by_dtype(Dtype dtype, F f) {
  switch (dtype) {
    case Dtype::bf16:
      return f(std::integral_constant<Dtype, Dtype::bf16>());
    case Dtype::fp16:
      return f(std::integral_constant<Dtype, Dtype::fp16>());
    case Dtype::fp32:
      return f(std::integral_constant<Dtype, Dtype::fp32>());
  }
}

#define MOETUNE_ISA generic
#define MOETUNE_TARGET
#define MOETUNE_LANES 4
#define MOETUNE_TILE_ROWS 4
#include "backend/cpu/microkernel.inc"

#if defined(__x86_64__)
#define MOETUNE_ISA avx2
#define MOETUNE_TARGET __attribute__((target("avx2,fma,f16c")))
#define MOETUNE_LANES 8
#define MOETUNE_TILE_ROWS 4
#include "backend/cpu/microkernel.inc"

#define MOETUNE_ISA avx512
#define MOETUNE_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")))
#define MOETUNE_LANES 16
#define MOETUNE_TILE_ROWS 8
#include "backend/cpu/microkernel.inc"
#endif

}  // namespace

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return "avx512";
    case Isa::avx2:
      return "avx2";
    case Isa::generic:
      break;
  }
  return "generic";
}

std::vector<Isa> usable_isas() {
  std::vector<Isa> isas = {Isa::generic};
#if defined(__x86_64__)
  // Whatever has avx2 has f16c, which not every compiler can ask for.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isas.push_back(Isa::avx2);
  if (isas.back() == Isa::avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    isas.push_back(Isa::avx512);
#endif
  return isas;
}

const Microkernel& microkernel(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return avx512::kMicrokernel;
  if (isa == Isa::avx2) return avx2::kMicrokernel;
#endif
  static_cast<void>(isa);
  return generic::kMicrokernel;
}

const Microkernel& microkernel() { return microkernel(usable_isas().back()); }

}  // namespace moetune
