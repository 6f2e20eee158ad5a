// The wgmma instruction for every width: its operands are written out, which only macros can count. No policy.
#pragma once
#include "numbers.cuh"

namespace moetune {

// D[64, width] = a[64, 16] b[width, 16]^T, plus D where `accumulate`; fp32 sums, operands by descriptor (see
// operand_descriptor). A thread of warp w and lane l of the warpgroup holds in d[4 j ...] rows 16 w + l / 4 and 8 further
// down, columns 8 j + 2 (l % 4) and the next. Issued by all four warps; completes asynchronously.
template <class Element, int width, int size>
__device__ __forceinline__ void wgmma(float (&d)[size], unsigned long long a, unsigned long long b, int accumulate);

// Operands 0 to 2 are the descriptors and the predicate, listed as written to so that they come first: their numbers then
// don't depend on the width. The sums follow, four for every 8 columns.
#define MOETUNE_NAMES_8 "%3,%4,%5,%6"
#define MOETUNE_NAMES_16 MOETUNE_NAMES_8 "," "%7,%8,%9,%10"
#define MOETUNE_NAMES_24 MOETUNE_NAMES_16 "," "%11,%12,%13,%14"
#define MOETUNE_NAMES_32 MOETUNE_NAMES_24 "," "%15,%16,%17,%18"
#define MOETUNE_NAMES_40 MOETUNE_NAMES_32 "," "%19,%20,%21,%22"
#define MOETUNE_NAMES_48 MOETUNE_NAMES_40 "," "%23,%24,%25,%26"
#define MOETUNE_NAMES_56 MOETUNE_NAMES_48 "," "%27,%28,%29,%30"
#define MOETUNE_NAMES_64 MOETUNE_NAMES_56 "," "%31,%32,%33,%34"
#define MOETUNE_NAMES_72 MOETUNE_NAMES_64 "," "%35,%36,%37,%38"
#define MOETUNE_NAMES_80 MOETUNE_NAMES_72 "," "%39,%40,%41,%42"
#define MOETUNE_NAMES_88 MOETUNE_NAMES_80 "," "%43,%44,%45,%46"
#define MOETUNE_NAMES_96 MOETUNE_NAMES_88 "," "%47,%48,%49,%50"
#define MOETUNE_NAMES_104 MOETUNE_NAMES_96 "," "%51,%52,%53,%54"
#define MOETUNE_NAMES_112 MOETUNE_NAMES_104 "," "%55,%56,%57,%58"
#define MOETUNE_NAMES_120 MOETUNE_NAMES_112 "," "%59,%60,%61,%62"
#define MOETUNE_NAMES_128 MOETUNE_NAMES_120 "," "%63,%64,%65,%66"
#define MOETUNE_NAMES_136 MOETUNE_NAMES_128 "," "%67,%68,%69,%70"
#define MOETUNE_NAMES_144 MOETUNE_NAMES_136 "," "%71,%72,%73,%74"
#define MOETUNE_NAMES_152 MOETUNE_NAMES_144 "," "%75,%76,%77,%78"
#define MOETUNE_NAMES_160 MOETUNE_NAMES_152 "," "%79,%80,%81,%82"
#define MOETUNE_NAMES_168 MOETUNE_NAMES_160 "," "%83,%84,%85,%86"
#define MOETUNE_NAMES_176 MOETUNE_NAMES_168 "," "%87,%88,%89,%90"
#define MOETUNE_NAMES_184 MOETUNE_NAMES_176 "," "%91,%92,%93,%94"
#define MOETUNE_NAMES_192 MOETUNE_NAMES_184 "," "%95,%96,%97,%98"
#define MOETUNE_NAMES_200 MOETUNE_NAMES_192 "," "%99,%100,%101,%102"
#define MOETUNE_NAMES_208 MOETUNE_NAMES_200 "," "%103,%104,%105,%106"
#define MOETUNE_NAMES_216 MOETUNE_NAMES_208 "," "%107,%108,%109,%110"
#define MOETUNE_NAMES_224 MOETUNE_NAMES_216 "," "%111,%112,%113,%114"
#define MOETUNE_NAMES_232 MOETUNE_NAMES_224 "," "%115,%116,%117,%118"
#define MOETUNE_NAMES_240 MOETUNE_NAMES_232 "," "%119,%120,%121,%122"
#define MOETUNE_NAMES_248 MOETUNE_NAMES_240 "," "%123,%124,%125,%126"
#define MOETUNE_NAMES_256 MOETUNE_NAMES_248 "," "%127,%128,%129,%130"

#define MOETUNE_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MOETUNE_SUMS_8 MOETUNE_FOUR(0)
#define MOETUNE_SUMS_16 MOETUNE_SUMS_8, MOETUNE_FOUR(4)
#define MOETUNE_SUMS_24 MOETUNE_SUMS_16, MOETUNE_FOUR(8)
#define MOETUNE_SUMS_32 MOETUNE_SUMS_24, MOETUNE_FOUR(12)
#define MOETUNE_SUMS_40 MOETUNE_SUMS_32, MOETUNE_FOUR(16)
#define MOETUNE_SUMS_48 MOETUNE_SUMS_40, MOETUNE_FOUR(20)
#define MOETUNE_SUMS_56 MOETUNE_SUMS_48, MOETUNE_FOUR(24)
#define MOETUNE_SUMS_64 MOETUNE_SUMS_56, MOETUNE_FOUR(28)
#define MOETUNE_SUMS_72 MOETUNE_SUMS_64, MOETUNE_FOUR(32)
#define MOETUNE_SUMS_80 MOETUNE_SUMS_72, MOETUNE_FOUR(36)
#define MOETUNE_SUMS_88 MOETUNE_SUMS_80, MOETUNE_FOUR(40)
#define MOETUNE_SUMS_96 MOETUNE_SUMS_88, MOETUNE_FOUR(44)
#define MOETUNE_SUMS_104 MOETUNE_SUMS_96, MOETUNE_FOUR(48)
#define MOETUNE_SUMS_112 MOETUNE_SUMS_104, MOETUNE_FOUR(52)
#define MOETUNE_SUMS_120 MOETUNE_SUMS_112, MOETUNE_FOUR(56)
#define MOETUNE_SUMS_128 MOETUNE_SUMS_120, MOETUNE_FOUR(60)
#define MOETUNE_SUMS_136 MOETUNE_SUMS_128, MOETUNE_FOUR(64)
#define MOETUNE_SUMS_144 MOETUNE_SUMS_136, MOETUNE_FOUR(68)
#define MOETUNE_SUMS_152 MOETUNE_SUMS_144, MOETUNE_FOUR(72)
#define MOETUNE_SUMS_160 MOETUNE_SUMS_152, MOETUNE_FOUR(76)
#define MOETUNE_SUMS_168 MOETUNE_SUMS_160, MOETUNE_FOUR(80)
#define MOETUNE_SUMS_176 MOETUNE_SUMS_168, MOETUNE_FOUR(84)
#define MOETUNE_SUMS_184 MOETUNE_SUMS_176, MOETUNE_FOUR(88)
#define MOETUNE_SUMS_192 MOETUNE_SUMS_184, MOETUNE_FOUR(92)
#define MOETUNE_SUMS_200 MOETUNE_SUMS_192, MOETUNE_FOUR(96)
#define MOETUNE_SUMS_208 MOETUNE_SUMS_200, MOETUNE_FOUR(100)
#define MOETUNE_SUMS_216 MOETUNE_SUMS_208, MOETUNE_FOUR(104)
#define MOETUNE_SUMS_224 MOETUNE_SUMS_216, MOETUNE_FOUR(108)
#define MOETUNE_SUMS_232 MOETUNE_SUMS_224, MOETUNE_FOUR(112)
#define MOETUNE_SUMS_240 MOETUNE_SUMS_232, MOETUNE_FOUR(116)
#define MOETUNE_SUMS_248 MOETUNE_SUMS_240, MOETUNE_FOUR(120)
#define MOETUNE_SUMS_256 MOETUNE_SUMS_248, MOETUNE_FOUR(124)

#define MOETUNE_WGMMA(width, type)                                                                        \
  asm volatile("{ .reg .pred add; setp.ne.b32 add, %2, 0; wgmma.mma_async.sync.aligned.m64n" #width       \
               "k16.f32." type "." type " {" MOETUNE_NAMES_##width "}, %0, %1, add, 1, 1, 0, 0; }"        \
               : "+l"(a), "+l"(b), "+r"(accumulate), MOETUNE_SUMS_##width)

#define MOETUNE_WIDTH(columns)                                        \
  if constexpr (width == columns) {                                   \
    static_assert(size >= columns / 2, "d has half a width of sums"); \
    if constexpr (IsBf16<Element>::value)                             \
      MOETUNE_WGMMA(columns, "bf16");                                 \
    else                                                              \
      MOETUNE_WGMMA(columns, "f16");                                  \
  }

template <class Element>
struct IsBf16 {
  static constexpr bool value = false;
};
template <>
struct IsBf16<bf16> {
  static constexpr bool value = true;
};

template <class Element, int width, int size>
__device__ __forceinline__ void wgmma(float (&d)[size], unsigned long long a, unsigned long long b, int accumulate) {
  static_assert(width % 8 == 0 && width >= 8 && width <= 256, "wgmma takes widths in steps of 8 up to 256");
  MOETUNE_WIDTH(8)
  MOETUNE_WIDTH(16)
  MOETUNE_WIDTH(24)
  MOETUNE_WIDTH(32)
  MOETUNE_WIDTH(40)
  MOETUNE_WIDTH(48)
  MOETUNE_WIDTH(56)
  MOETUNE_WIDTH(64)
  MOETUNE_WIDTH(72)
  MOETUNE_WIDTH(80)
  MOETUNE_WIDTH(88)
  MOETUNE_WIDTH(96)
  MOETUNE_WIDTH(104)
  MOETUNE_WIDTH(112)
  MOETUNE_WIDTH(120)
  MOETUNE_WIDTH(128)
  MOETUNE_WIDTH(136)
  MOETUNE_WIDTH(144)
  MOETUNE_WIDTH(152)
  MOETUNE_WIDTH(160)
  MOETUNE_WIDTH(168)
  MOETUNE_WIDTH(176)
  MOETUNE_WIDTH(184)
  MOETUNE_WIDTH(192)
  MOETUNE_WIDTH(200)
  MOETUNE_WIDTH(208)
  MOETUNE_WIDTH(216)
  MOETUNE_WIDTH(224)
  MOETUNE_WIDTH(232)
  MOETUNE_WIDTH(240)
  MOETUNE_WIDTH(248)
  MOETUNE_WIDTH(256)
}

}  // namespace moetune
