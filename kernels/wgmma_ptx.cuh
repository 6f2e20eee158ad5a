// The wgmma instruction for every width: its operands are written out, which only macros can count. No policy.
#pragma once
#include "numbers.cuh"

namespace moetune {

// Operands 0 to 2 are the descriptors and the predicate, listed as written to so that they come first: their numbers
// then don't depend on the width. The sums follow, four for every 8 columns, 16 for every 32.
// clang-format off
#define MOETUNE_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MOETUNE_SIXTEEN(i) MOETUNE_FOUR(i), MOETUNE_FOUR(i + 4), MOETUNE_FOUR(i + 8), MOETUNE_FOUR(i + 12)
#define MOETUNE_NAMES_0
#define MOETUNE_NAMES_32 "%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,"
#define MOETUNE_NAMES_64 MOETUNE_NAMES_32 "%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,"
#define MOETUNE_NAMES_96 MOETUNE_NAMES_64 "%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,"
#define MOETUNE_NAMES_128 MOETUNE_NAMES_96 "%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,"
#define MOETUNE_NAMES_160 MOETUNE_NAMES_128 "%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,"
#define MOETUNE_NAMES_192 MOETUNE_NAMES_160 "%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,"
#define MOETUNE_NAMES_224 MOETUNE_NAMES_192 \
  "%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,"
#define MOETUNE_SUMS_0
#define MOETUNE_SUMS_32 MOETUNE_SIXTEEN(0),
#define MOETUNE_SUMS_64 MOETUNE_SUMS_32 MOETUNE_SIXTEEN(16),
#define MOETUNE_SUMS_96 MOETUNE_SUMS_64 MOETUNE_SIXTEEN(32),
#define MOETUNE_SUMS_128 MOETUNE_SUMS_96 MOETUNE_SIXTEEN(48),
#define MOETUNE_SUMS_160 MOETUNE_SUMS_128 MOETUNE_SIXTEEN(64),
#define MOETUNE_SUMS_192 MOETUNE_SUMS_160 MOETUNE_SIXTEEN(80),
#define MOETUNE_SUMS_224 MOETUNE_SUMS_192 MOETUNE_SIXTEEN(96),

#define MOETUNE_WGMMA(columns, type, names, across, ...) \
  asm volatile("{ .reg .pred add; setp.ne.b32 add, %2, 0; wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." \
               type "." type " {" names "}, %0, %1, add, 1, 1, " across "; }" \
               : "+l"(a), "+l"(b), "+r"(accumulate), __VA_ARGS__ : "n"(a_across), "n"(b_across))
#define MOETUNE_WIDTH(columns, names, across, ...) \
  if constexpr (width == columns && is_bf16<Element>) MOETUNE_WGMMA(columns, "bf16", names, across, __VA_ARGS__); \
  if constexpr (width == columns && !is_bf16<Element>) MOETUNE_WGMMA(columns, "f16", names, across, __VA_ARGS__);
// Widths of 8, 16, 24 and 32 columns beyond `before`; sums begin at `i`, n8 to n32 name those of 8 columns each, and x8
// to x32 the operands behind the sums of a width.
#define MOETUNE_WIDTHS(before, w8, w16, w24, w32, i, n8, n16, n24, n32, x8, x16, x24, x32) \
  MOETUNE_WIDTH(w8, MOETUNE_NAMES_##before n8, x8, MOETUNE_SUMS_##before MOETUNE_FOUR(i)) \
  MOETUNE_WIDTH(w16, MOETUNE_NAMES_##before n8 "," n16, x16, \
                MOETUNE_SUMS_##before MOETUNE_FOUR(i), MOETUNE_FOUR(i + 4)) \
  MOETUNE_WIDTH(w24, MOETUNE_NAMES_##before n8 "," n16 "," n24, x24, \
                MOETUNE_SUMS_##before MOETUNE_FOUR(i), MOETUNE_FOUR(i + 4), MOETUNE_FOUR(i + 8)) \
  MOETUNE_WIDTH(w32, MOETUNE_NAMES_##before n8 "," n16 "," n24 "," n32, x32, \
                MOETUNE_SUMS_##before MOETUNE_SIXTEEN(i))
// clang-format on

// D[64, width] = a[64, 16] b[width, 16]^T, plus D where `accumulate`; fp32 sums, operands by descriptor (see
// operand_descriptor). An operand that is `across` lies in memory as its transpose. A thread of warp w and lane l of
// the warpgroup holds in d[4 j ...] rows 16 w + l / 4 and 8 further down, columns 8 j + 2 (l % 4) and the next. Issued
// by all four warps; completes asynchronously.
template <class Element, int width, bool a_across, bool b_across, int size>
__forceinline__ void wgmma(float (&d)[size], unsigned long long a, unsigned long long b, int accumulate) {
  static_assert(width % 8 == 0 && width >= 8 && width <= 256, "wgmma takes widths in steps of 8 up to 256");
  static_assert(size >= width / 2, "d has half a width of sums");
  // clang-format off
  MOETUNE_WIDTHS(0, 8, 16, 24, 32, 0,
                 "%3,%4,%5,%6", "%7,%8,%9,%10", "%11,%12,%13,%14", "%15,%16,%17,%18",
                 "%7, %8", "%11, %12", "%15, %16", "%19, %20")
  MOETUNE_WIDTHS(32, 40, 48, 56, 64, 16,
                 "%19,%20,%21,%22", "%23,%24,%25,%26", "%27,%28,%29,%30", "%31,%32,%33,%34",
                 "%23, %24", "%27, %28", "%31, %32", "%35, %36")
  MOETUNE_WIDTHS(64, 72, 80, 88, 96, 32,
                 "%35,%36,%37,%38", "%39,%40,%41,%42", "%43,%44,%45,%46", "%47,%48,%49,%50",
                 "%39, %40", "%43, %44", "%47, %48", "%51, %52")
  MOETUNE_WIDTHS(96, 104, 112, 120, 128, 48,
                 "%51,%52,%53,%54", "%55,%56,%57,%58", "%59,%60,%61,%62", "%63,%64,%65,%66",
                 "%55, %56", "%59, %60", "%63, %64", "%67, %68")
  MOETUNE_WIDTHS(128, 136, 144, 152, 160, 64,
                 "%67,%68,%69,%70", "%71,%72,%73,%74", "%75,%76,%77,%78", "%79,%80,%81,%82",
                 "%71, %72", "%75, %76", "%79, %80", "%83, %84")
  MOETUNE_WIDTHS(160, 168, 176, 184, 192, 80,
                 "%83,%84,%85,%86", "%87,%88,%89,%90", "%91,%92,%93,%94", "%95,%96,%97,%98",
                 "%87, %88", "%91, %92", "%95, %96", "%99, %100")
  MOETUNE_WIDTHS(192, 200, 208, 216, 224, 96,
                 "%99,%100,%101,%102", "%103,%104,%105,%106", "%107,%108,%109,%110", "%111,%112,%113,%114",
                 "%103, %104", "%107, %108", "%111, %112", "%115, %116")
  MOETUNE_WIDTHS(224, 232, 240, 248, 256, 112,
                 "%115,%116,%117,%118", "%119,%120,%121,%122", "%123,%124,%125,%126", "%127,%128,%129,%130",
                 "%119, %120", "%123, %124", "%127, %128", "%131, %132")
  // clang-format on
}

}  // namespace moetune
