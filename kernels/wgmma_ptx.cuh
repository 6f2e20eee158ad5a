// The wgmma instruction for every width, once or four times along k: one asm statement of four instructions compiles
// faster than four statements. Macros write the lists of operands. No policy.
#pragma once
#include "hopper_ptx.cuh"
#include "numbers.cuh"

namespace moetune {

// Operands 0 to 5 are the low halves of the two descriptors, whether to add to the sums, the high half, and what a step
// adds to each low half. They are declared as outputs so that they come first: their numbers then don't depend on the
// width. The sums follow, four for every 8 columns, 16 for every 32.
// clang-format off
#define MOETUNE_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MOETUNE_SIXTEEN(i) MOETUNE_FOUR(i), MOETUNE_FOUR(i + 4), MOETUNE_FOUR(i + 8), MOETUNE_FOUR(i + 12)
#define MOETUNE_NAMES_0
#define MOETUNE_NAMES_32 "%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
#define MOETUNE_NAMES_64 MOETUNE_NAMES_32 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,"
#define MOETUNE_NAMES_96 MOETUNE_NAMES_64 "%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"
#define MOETUNE_NAMES_128 MOETUNE_NAMES_96 "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,"
#define MOETUNE_NAMES_160 MOETUNE_NAMES_128 "%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,"
#define MOETUNE_NAMES_192 MOETUNE_NAMES_160 "%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,"
#define MOETUNE_NAMES_224 MOETUNE_NAMES_192 \
  "%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,"
#define MOETUNE_SUMS_0
#define MOETUNE_SUMS_32 MOETUNE_SIXTEEN(0),
#define MOETUNE_SUMS_64 MOETUNE_SUMS_32 MOETUNE_SIXTEEN(16),
#define MOETUNE_SUMS_96 MOETUNE_SUMS_64 MOETUNE_SIXTEEN(32),
#define MOETUNE_SUMS_128 MOETUNE_SUMS_96 MOETUNE_SIXTEEN(48),
#define MOETUNE_SUMS_160 MOETUNE_SUMS_128 MOETUNE_SIXTEEN(64),
#define MOETUNE_SUMS_192 MOETUNE_SUMS_160 MOETUNE_SIXTEEN(80),
#define MOETUNE_SUMS_224 MOETUNE_SUMS_192 MOETUNE_SIXTEEN(96),

#define MOETUNE_STEP(columns, type, names, across) \
  "mov.b64 a, {%0, %3}; mov.b64 b, {%1, %3}; wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type \
  " {" names "}, a, b, add, 1, 1, " across "; "
#define MOETUNE_NEXT "add.u32 %0, %0, %4; add.u32 %1, %1, %5; "
#define MOETUNE_ISSUE(text, ...) \
  asm volatile("{ .reg .pred add; .reg .b64 a, b; setp.ne.b32 add, %2, 0; " text "}" \
               : "+r"(a), "+r"(b), "+r"(accumulate), "+r"(high), "+r"(a_step), "+r"(b_step), __VA_ARGS__ \
               : "n"(a_across), "n"(b_across))
#define MOETUNE_STEPS(step, ...) \
  if constexpr (steps == 1) MOETUNE_ISSUE(step, __VA_ARGS__); \
  if constexpr (steps == 4) \
    MOETUNE_ISSUE(step "setp.eq.b32 add, 0, 0; " MOETUNE_NEXT step MOETUNE_NEXT step MOETUNE_NEXT step, __VA_ARGS__);
#define MOETUNE_WIDTH(columns, names, across, ...) \
  if constexpr (width == columns && is_bf16<Element>) { \
    MOETUNE_STEPS(MOETUNE_STEP(columns, "bf16", names, across), __VA_ARGS__) \
  } else if constexpr (width == columns) { \
    MOETUNE_STEPS(MOETUNE_STEP(columns, "f16", names, across), __VA_ARGS__) \
  }
// Widths of 8, 16, 24 and 32 columns beyond `before`; sums begin at `i`, n8 to n32 name those of 8 columns each, and x8
// to x32 the two operands after the sums.
#define MOETUNE_WIDTHS(before, w8, w16, w24, w32, i, n8, n16, n24, n32, x8, x16, x24, x32) \
  MOETUNE_WIDTH(w8, MOETUNE_NAMES_##before n8, x8, MOETUNE_SUMS_##before MOETUNE_FOUR(i)) \
  MOETUNE_WIDTH(w16, MOETUNE_NAMES_##before n8 "," n16, x16, \
                MOETUNE_SUMS_##before MOETUNE_FOUR(i), MOETUNE_FOUR(i + 4)) \
  MOETUNE_WIDTH(w24, MOETUNE_NAMES_##before n8 "," n16 "," n24, x24, \
                MOETUNE_SUMS_##before MOETUNE_FOUR(i), MOETUNE_FOUR(i + 4), MOETUNE_FOUR(i + 8)) \
  MOETUNE_WIDTH(w32, MOETUNE_NAMES_##before n8 "," n16 "," n24 "," n32, x32, \
                MOETUNE_SUMS_##before MOETUNE_SIXTEEN(i))
// clang-format on

// D[64, width] = a[64, k] b[width, k]^T, plus D where `accumulate`; k = 16 `steps`, fp32 sums. `a` and `b` are the low
// halves of descriptors (descriptor_low), a_step and b_step what 16 elements along k add to them. An operand that is
// `across` lies in memory as its transpose. A thread of warp w and lane l of the warpgroup has in d[4 j ...] rows
// 16 w + l / 4 and 8 further down, columns 8 j + 2 (l % 4) and the next. Issued by all four warps; completes
// asynchronously.
template <class Element, int width, int steps, bool a_across, bool b_across, int size>
__forceinline__ void wgmma(float (&d)[size], unsigned a, unsigned b, unsigned a_step, unsigned b_step, int accumulate) {
  static_assert(steps == 1 || steps == 4, "wgmma is issued once or four times");
  static_assert(width % 8 == 0 && width >= 8 && width <= 256, "wgmma takes widths in steps of 8 up to 256");
  static_assert(size >= width / 2, "d has half a width of sums");
  unsigned high = kDescriptorHigh;
  // clang-format off
  MOETUNE_WIDTHS(0, 8, 16, 24, 32, 0,
                 "%6,%7,%8,%9", "%10,%11,%12,%13", "%14,%15,%16,%17", "%18,%19,%20,%21",
                 "%10, %11", "%14, %15", "%18, %19", "%22, %23")
  MOETUNE_WIDTHS(32, 40, 48, 56, 64, 16,
                 "%22,%23,%24,%25", "%26,%27,%28,%29", "%30,%31,%32,%33", "%34,%35,%36,%37",
                 "%26, %27", "%30, %31", "%34, %35", "%38, %39")
  MOETUNE_WIDTHS(64, 72, 80, 88, 96, 32,
                 "%38,%39,%40,%41", "%42,%43,%44,%45", "%46,%47,%48,%49", "%50,%51,%52,%53",
                 "%42, %43", "%46, %47", "%50, %51", "%54, %55")
  MOETUNE_WIDTHS(96, 104, 112, 120, 128, 48,
                 "%54,%55,%56,%57", "%58,%59,%60,%61", "%62,%63,%64,%65", "%66,%67,%68,%69",
                 "%58, %59", "%62, %63", "%66, %67", "%70, %71")
  MOETUNE_WIDTHS(128, 136, 144, 152, 160, 64,
                 "%70,%71,%72,%73", "%74,%75,%76,%77", "%78,%79,%80,%81", "%82,%83,%84,%85",
                 "%74, %75", "%78, %79", "%82, %83", "%86, %87")
  MOETUNE_WIDTHS(160, 168, 176, 184, 192, 80,
                 "%86,%87,%88,%89", "%90,%91,%92,%93", "%94,%95,%96,%97", "%98,%99,%100,%101",
                 "%90, %91", "%94, %95", "%98, %99", "%102, %103")
  MOETUNE_WIDTHS(192, 200, 208, 216, 224, 96,
                 "%102,%103,%104,%105", "%106,%107,%108,%109", "%110,%111,%112,%113", "%114,%115,%116,%117",
                 "%106, %107", "%110, %111", "%114, %115", "%118, %119")
  MOETUNE_WIDTHS(224, 232, 240, 248, 256, 112,
                 "%118,%119,%120,%121", "%122,%123,%124,%125", "%126,%127,%128,%129", "%130,%131,%132,%133",
                 "%122, %123", "%126, %127", "%130, %131", "%134, %135")
  // clang-format on
}

}  // namespace moetune
