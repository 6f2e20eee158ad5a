// What Hopper alone has: the wgmma instruction for every width, once or four times along k, the registers that it adds
// to, its fences and descriptors. No policy.
#pragma once
#include "numbers.cuh"
#include "tma_ptx.cuh"

namespace moetune {

// clang-format off
template <int count>
__forceinline__ void registers_down() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count)); }
template <int count>
__forceinline__ void registers_up() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count)); }

__forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `pending` of the newest groups are still under way.
template <int pending>
__forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"); }
// clang-format on

// wgmma's descriptor of an operand in shared memory: rows of 128 bytes in the 128-byte swizzle, from a 1024-byte
// boundary on (PTX ISA, "Matrix Descriptor Format"). The low half has address / 16 and, where each row is a step along
// k, the distance between planes of 64 columns. Where k is contiguous, a step of 16 elements along k adds 2 to it. The
// high half is always 1024 / 16, the distance between groups of eight rows, and the swizzle mode.
__forceinline__ unsigned descriptor_low(unsigned address, int plane_bytes = 16) {
  return (address & 0x3ffffu) >> 4 | static_cast<unsigned>(plane_bytes / 16) << 16;
}
constexpr unsigned kDescriptorHigh = 1u << 30 | 64;

// A thread's sums, up to four groups of up to 128. They are registers that only the assembler knows, sum<g>_<i> for sum
// i of group g: were they operands of each statement, kernels would compile up to 60 % longer. A function declares them
// once, before all else. read_sums() copies a group from there, after wgmma_wait(); write_sums() copies it there,
// before wgmma_fence().
template <int groups, int size>
__forceinline__ void declare_sums() {
  static_assert(groups <= 4, "declare_sums() knows four groups");
  asm volatile(".reg .f32 sum0_<%0>;" ::"n"(size));
  if constexpr (groups > 1) asm volatile(".reg .f32 sum1_<%0>;" ::"n"(size));
  if constexpr (groups > 2) asm volatile(".reg .f32 sum2_<%0>;" ::"n"(size));
  if constexpr (groups > 3) asm volatile(".reg .f32 sum3_<%0>;" ::"n"(size));
}
template <int group, int first = 0, int size>
__forceinline__ void read_sums(float (&d)[size]) {
  if constexpr (first < size) {
    asm volatile("mov.f32 %0, sum%4_%5; mov.f32 %1, sum%4_%6; mov.f32 %2, sum%4_%7; mov.f32 %3, sum%4_%8;"
                 : "=f"(d[first]), "=f"(d[first + 1]), "=f"(d[first + 2]), "=f"(d[first + 3])
                 : "n"(group), "n"(first), "n"(first + 1), "n"(first + 2), "n"(first + 3));
    read_sums<group, first + 4>(d);
  }
}
// Multiplies four sums where they are: a product elsewhere would need as many registers again.
template <int group, int first>
__forceinline__ void multiply_sums(const float (&by)[4]) {
  asm volatile(
      "mul.f32 sum%4_%5, sum%4_%5, %0; mul.f32 sum%4_%6, sum%4_%6, %1; mul.f32 sum%4_%7, sum%4_%7, %2; "
      "mul.f32 sum%4_%8, sum%4_%8, %3;" ::"f"(by[0]),
      "f"(by[1]), "f"(by[2]), "f"(by[3]), "n"(group), "n"(first), "n"(first + 1), "n"(first + 2), "n"(first + 3));
}
template <int group, int first = 0, int size>
__forceinline__ void write_sums(const float (&d)[size]) {
  if constexpr (first < size) {
    asm volatile(
        "mov.f32 sum%4_%5, %0; mov.f32 sum%4_%6, %1; mov.f32 sum%4_%7, %2; mov.f32 sum%4_%8, %3;" ::"f"(d[first]),
        "f"(d[first + 1]), "f"(d[first + 2]), "f"(d[first + 3]), "n"(group), "n"(first), "n"(first + 1), "n"(first + 2),
        "n"(first + 3));
    write_sums<group, first + 4>(d);
  }
}

// Operands are the low halves of the two descriptors, whether to add to the sums, the high half, what a step adds to
// each low half, the group, and for each side whether it is across. Every 8 columns have four sums a thread.
// clang-format off
#define MOETUNE_FOUR(a, b, c, d) "sum%6_" #a ",sum%6_" #b ",sum%6_" #c ",sum%6_" #d
#define MOETUNE_NAMES_8 MOETUNE_FOUR(0, 1, 2, 3)
#define MOETUNE_NAMES_16 MOETUNE_NAMES_8 "," MOETUNE_FOUR(4, 5, 6, 7)
#define MOETUNE_NAMES_24 MOETUNE_NAMES_16 "," MOETUNE_FOUR(8, 9, 10, 11)
#define MOETUNE_NAMES_32 MOETUNE_NAMES_24 "," MOETUNE_FOUR(12, 13, 14, 15)
#define MOETUNE_NAMES_40 MOETUNE_NAMES_32 "," MOETUNE_FOUR(16, 17, 18, 19)
#define MOETUNE_NAMES_48 MOETUNE_NAMES_40 "," MOETUNE_FOUR(20, 21, 22, 23)
#define MOETUNE_NAMES_56 MOETUNE_NAMES_48 "," MOETUNE_FOUR(24, 25, 26, 27)
#define MOETUNE_NAMES_64 MOETUNE_NAMES_56 "," MOETUNE_FOUR(28, 29, 30, 31)
#define MOETUNE_NAMES_72 MOETUNE_NAMES_64 "," MOETUNE_FOUR(32, 33, 34, 35)
#define MOETUNE_NAMES_80 MOETUNE_NAMES_72 "," MOETUNE_FOUR(36, 37, 38, 39)
#define MOETUNE_NAMES_88 MOETUNE_NAMES_80 "," MOETUNE_FOUR(40, 41, 42, 43)
#define MOETUNE_NAMES_96 MOETUNE_NAMES_88 "," MOETUNE_FOUR(44, 45, 46, 47)
#define MOETUNE_NAMES_104 MOETUNE_NAMES_96 "," MOETUNE_FOUR(48, 49, 50, 51)
#define MOETUNE_NAMES_112 MOETUNE_NAMES_104 "," MOETUNE_FOUR(52, 53, 54, 55)
#define MOETUNE_NAMES_120 MOETUNE_NAMES_112 "," MOETUNE_FOUR(56, 57, 58, 59)
#define MOETUNE_NAMES_128 MOETUNE_NAMES_120 "," MOETUNE_FOUR(60, 61, 62, 63)
#define MOETUNE_NAMES_136 MOETUNE_NAMES_128 "," MOETUNE_FOUR(64, 65, 66, 67)
#define MOETUNE_NAMES_144 MOETUNE_NAMES_136 "," MOETUNE_FOUR(68, 69, 70, 71)
#define MOETUNE_NAMES_152 MOETUNE_NAMES_144 "," MOETUNE_FOUR(72, 73, 74, 75)
#define MOETUNE_NAMES_160 MOETUNE_NAMES_152 "," MOETUNE_FOUR(76, 77, 78, 79)
#define MOETUNE_NAMES_168 MOETUNE_NAMES_160 "," MOETUNE_FOUR(80, 81, 82, 83)
#define MOETUNE_NAMES_176 MOETUNE_NAMES_168 "," MOETUNE_FOUR(84, 85, 86, 87)
#define MOETUNE_NAMES_184 MOETUNE_NAMES_176 "," MOETUNE_FOUR(88, 89, 90, 91)
#define MOETUNE_NAMES_192 MOETUNE_NAMES_184 "," MOETUNE_FOUR(92, 93, 94, 95)
#define MOETUNE_NAMES_200 MOETUNE_NAMES_192 "," MOETUNE_FOUR(96, 97, 98, 99)
#define MOETUNE_NAMES_208 MOETUNE_NAMES_200 "," MOETUNE_FOUR(100, 101, 102, 103)
#define MOETUNE_NAMES_216 MOETUNE_NAMES_208 "," MOETUNE_FOUR(104, 105, 106, 107)
#define MOETUNE_NAMES_224 MOETUNE_NAMES_216 "," MOETUNE_FOUR(108, 109, 110, 111)
#define MOETUNE_NAMES_232 MOETUNE_NAMES_224 "," MOETUNE_FOUR(112, 113, 114, 115)
#define MOETUNE_NAMES_240 MOETUNE_NAMES_232 "," MOETUNE_FOUR(116, 117, 118, 119)
#define MOETUNE_NAMES_248 MOETUNE_NAMES_240 "," MOETUNE_FOUR(120, 121, 122, 123)
#define MOETUNE_NAMES_256 MOETUNE_NAMES_248 "," MOETUNE_FOUR(124, 125, 126, 127)

#define MOETUNE_STEP(columns, type) \
  "mov.b64 a, {%0, %3}; mov.b64 b, {%1, %3}; wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type \
  " {" MOETUNE_NAMES_##columns "}, a, b, add, 1, 1, %7, %8; "
#define MOETUNE_STEP_OF_BYTES(columns) \
  "mov.b64 a, {%0, %3}; mov.b64 b, {%1, %3}; wgmma.mma_async.sync.aligned.m64n" #columns "k32.f32.e4m3.e4m3" \
  " {" MOETUNE_NAMES_##columns "}, a, b, add, 1, 1; "
#define MOETUNE_NEXT "add.u32 %0, %0, %4; add.u32 %1, %1, %5; "
#define MOETUNE_ISSUE(text) \
  asm volatile("{ .reg .pred add; .reg .b64 a, b; setp.ne.b32 add, %2, 0; " text "}" \
               : "+r"(a), "+r"(b), "+r"(accumulate), "+r"(high), "+r"(a_step), "+r"(b_step) \
               : "n"(group), "n"(a_across), "n"(b_across))
#define MOETUNE_STEPS(step) \
  if constexpr (steps == 1) MOETUNE_ISSUE(step); \
  if constexpr (steps == 4) \
    MOETUNE_ISSUE(step "setp.eq.b32 add, 0, 0; " MOETUNE_NEXT step MOETUNE_NEXT step MOETUNE_NEXT step);
#define MOETUNE_WIDTH(columns) \
  if constexpr (width == columns && sizeof(Element) == 1) { \
    MOETUNE_STEPS(MOETUNE_STEP_OF_BYTES(columns)) \
  } else if constexpr (width == columns && is_bf16<Element>) { \
    MOETUNE_STEPS(MOETUNE_STEP(columns, "bf16")) \
  } else if constexpr (width == columns) { \
    MOETUNE_STEPS(MOETUNE_STEP(columns, "f16")) \
  }
#define MOETUNE_WIDTHS(w8, w16, w24, w32) \
  MOETUNE_WIDTH(w8) MOETUNE_WIDTH(w16) MOETUNE_WIDTH(w24) MOETUNE_WIDTH(w32)
// clang-format on

// Operands in registers, two sets of four steps of four registers each, known to the assembler alone as sums are: where
// wgmma of several widths took values of the compiler, each width would have registers of its own.
__forceinline__ void declare_operands() { asm volatile(".reg .b32 operand0_<16>; .reg .b32 operand1_<16>;"); }
template <int set, int step>
__forceinline__ void write_operand(const unsigned (&a)[4]) {
  asm volatile(
      "mov.b32 operand%4_%5, %0; mov.b32 operand%4_%6, %1; mov.b32 operand%4_%7, %2; mov.b32 operand%4_%8, %3;" ::"r"(
          a[0]),
      "r"(a[1]), "r"(a[2]), "r"(a[3]), "n"(set), "n"(step * 4), "n"(step * 4 + 1), "n"(step * 4 + 2),
      "n"(step * 4 + 3));
}

// clang-format off
#define MOETUNE_STEP_OF(columns, type, a0, a1, a2, a3) \
  "mov.b64 b, {%0, %2}; wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type \
  " {" MOETUNE_NAMES_##columns "}, " \
  "{operand%5_" #a0 ",operand%5_" #a1 ",operand%5_" #a2 ",operand%5_" #a3 "}, b, add, 1, 1, 0; "
#define MOETUNE_NEXT_OF "add.u32 %0, %0, %3; "
#define MOETUNE_OF_REGISTERS(columns, type) \
  asm volatile("{ .reg .pred add; .reg .b64 b; setp.ne.b32 add, %1, 0; " \
               MOETUNE_STEP_OF(columns, type, 0, 1, 2, 3) "setp.eq.b32 add, 0, 0; " MOETUNE_NEXT_OF \
               MOETUNE_STEP_OF(columns, type, 4, 5, 6, 7) MOETUNE_NEXT_OF \
               MOETUNE_STEP_OF(columns, type, 8, 9, 10, 11) MOETUNE_NEXT_OF \
               MOETUNE_STEP_OF(columns, type, 12, 13, 14, 15) "}" \
               : "+r"(b), "+r"(accumulate), "+r"(high), "+r"(b_step) : "n"(0), "n"(set), "n"(group))
#define MOETUNE_WIDTH_OF_REGISTERS(columns) \
  if constexpr (width == columns && is_bf16<Element>) MOETUNE_OF_REGISTERS(columns, "bf16"); \
  else if constexpr (width == columns) MOETUNE_OF_REGISTERS(columns, "f16");
// clang-format on

// wgmma() four times along k with `a` in a set of operands: a thread's rows are those of its sums, its columns of a
// step 2 (l % 4) and the next, and eight further on (the last two of write_operand()). Nothing may write them until
// wgmma_wait().
template <class Element, int width, int group, int set>
__forceinline__ void wgmma_of_registers(unsigned b, unsigned b_step, int accumulate) {
  static_assert(width == 8 || (width % 16 == 0 && width <= 256), "8, or widths in steps of 16 up to 256");
  unsigned high = kDescriptorHigh;
  // clang-format off
  MOETUNE_WIDTH_OF_REGISTERS(8)
  MOETUNE_WIDTH_OF_REGISTERS(16) MOETUNE_WIDTH_OF_REGISTERS(32) MOETUNE_WIDTH_OF_REGISTERS(48)
  MOETUNE_WIDTH_OF_REGISTERS(64) MOETUNE_WIDTH_OF_REGISTERS(80) MOETUNE_WIDTH_OF_REGISTERS(96)
  MOETUNE_WIDTH_OF_REGISTERS(112) MOETUNE_WIDTH_OF_REGISTERS(128) MOETUNE_WIDTH_OF_REGISTERS(144)
  MOETUNE_WIDTH_OF_REGISTERS(160) MOETUNE_WIDTH_OF_REGISTERS(176) MOETUNE_WIDTH_OF_REGISTERS(192)
  MOETUNE_WIDTH_OF_REGISTERS(208) MOETUNE_WIDTH_OF_REGISTERS(224) MOETUNE_WIDTH_OF_REGISTERS(240)
  MOETUNE_WIDTH_OF_REGISTERS(256)
  // clang-format on
}

// D[64, width] = a[64, k] b[width, k]^T, plus D where `accumulate`; k = 16 `steps`, 32 of fp8; fp32 sums of `group`.
// `a` and `b` are the low halves of descriptors (descriptor_low), a_step and b_step what 16 elements along k add to
// them. An operand that is `across` lies in memory as its transpose. A thread of warp w and lane l of the warpgroup has
// in sums 4 j ... rows 16 w + l / 4 and 8 further down, columns 8 j + 2 (l % 4) and the next. Issued by all four warps;
// completes asynchronously.
template <class Element, int width, int steps, bool a_across, bool b_across, int group>
__forceinline__ void wgmma(unsigned a, unsigned b, unsigned a_step, unsigned b_step, int accumulate) {
  static_assert(steps == 1 || steps == 4, "wgmma is issued once or four times");
  static_assert(sizeof(Element) == 2 || (!a_across && !b_across), "fp8 is contiguous along k in both operands");
  static_assert(width % 8 == 0 && width >= 8 && width <= 256, "wgmma takes widths in steps of 8 up to 256");
  unsigned high = kDescriptorHigh;
  // clang-format off
  MOETUNE_WIDTHS(8, 16, 24, 32)
  MOETUNE_WIDTHS(40, 48, 56, 64)
  MOETUNE_WIDTHS(72, 80, 88, 96)
  MOETUNE_WIDTHS(104, 112, 120, 128)
  MOETUNE_WIDTHS(136, 144, 152, 160)
  MOETUNE_WIDTHS(168, 176, 184, 192)
  MOETUNE_WIDTHS(200, 208, 216, 224)
  MOETUNE_WIDTHS(232, 240, 248, 256)
  // clang-format on
}

}  // namespace moetune
