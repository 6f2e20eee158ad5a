// The table of formats: its words, its look-ups, and what it refuses.
#include "workload/format.h"

#include <gtest/gtest.h>

#include <set>

#include "base/embedded.h"
#include "base/group.h"
#include "base/json.h"
#include "error_of.h"

namespace moetune {
namespace {

TEST(Formats, AreFoundByTheirWordsAndByWhatPeopleType) {
  std::set<std::string_view> words;
  for (const Format& format : formats()) {
    EXPECT_TRUE(words.insert(format.word).second) << format.word;
    EXPECT_EQ(format_named(format.word).w, format.w);
    EXPECT_EQ(find_format(format.dtype, format.scales, format.y.dtype, has_fast_sums(format), format.w.reordered),
              format)
        << format.word;
  }
  EXPECT_EQ(words.size(), 46u);
  EXPECT_EQ(formats().front().word, "bf16");
  EXPECT_EQ(find_format("fp8").word, "fp8-block");
  EXPECT_EQ(find_format("int4").word, "int4-group128");
  EXPECT_EQ(find_format("int8").word, "int8");
  EXPECT_EQ(find_format("fp8", ScaleKind::tensor, Dtype::fp16, true).word, "fp8-tensor-fp16-fast");
}

TEST(Formats, DescribeOperands) {
  const Format& fp8 = find_format("fp8");
  EXPECT_EQ(fp8.x.scales, block_scales(1, 128));
  EXPECT_EQ(fp8.w.scales, block_scales(128, 128));
  EXPECT_EQ(fp8.sums, Sums::promoted);
  EXPECT_EQ(format_named("fp8-block-fp8").y.scales, block_scales(1, 128));
  const Format& int4 = format_named("uint4-group32-fp16");
  EXPECT_EQ(int4.x, plain_type(Dtype::fp16));
  EXPECT_EQ(int4.w.stage, Dtype::fp16);
  EXPECT_EQ(int4.w.scales, (Scales{ScaleKind::block, 1, 32, Dtype::fp16}));
  const Format& mxfp4 = format_named("mxfp4-reordered");
  EXPECT_EQ(mxfp4.w.scales, (Scales{ScaleKind::block, 1, 32, Dtype::e8m0}));
  EXPECT_TRUE(mxfp4.w.reordered && !format_named("mxfp4").w.reordered && mxfp4.w.dtype == Dtype::e2m1);
  EXPECT_TRUE(int4.w.zero_points && is_weights_only(int4) && !is_weights_only(fp8) && is_quantised(int4));
}

TEST(Formats, RefuseWhatNoRowHas) {
  const auto refused = [](std::string_view dtype, ScaleKind scales, Dtype result = Dtype::bf16, bool fast = false) {
    return error_of([&] { find_format(dtype, scales, result, fast); }).what;
  };
  EXPECT_EQ(refused("fp8", ScaleKind::none), "fp8 needs scales");
  EXPECT_EQ(refused("fp8", ScaleKind::block, Dtype::bf16, true), "fp8 with scales of blocks has no fast sums");
  EXPECT_EQ(refused("fp8", ScaleKind::block, Dtype::fp32), "Y of fp8 cannot be fp32");
  EXPECT_EQ(refused("fp8", ScaleKind::channel, Dtype::fp8), "Y of fp8 cannot be fp8");
  EXPECT_EQ(refused("bf16", ScaleKind::block), "bf16 has no scales, no other Y and no fast sums");
  EXPECT_EQ(refused("int4", ScaleKind::channel), "int4 has no scales of channel");
  EXPECT_EQ(refused("int4", ScaleKind::group32, Dtype::fp8), "Y of int4 cannot be fp8");
  EXPECT_EQ(refused("int8", ScaleKind::group32), "int8 has no scales of group32");
  EXPECT_EQ(refused("int8", ScaleKind::channel, Dtype::bf16, true), "int8 has no fast sums");
  EXPECT_EQ(error_of([] { find_format("fp8", {}, Dtype::bf16, false, true); }).what, "W of fp8 is not reordered");
  EXPECT_EQ(error_of([] { find_format("bf61"); }).what, "unknown dtype 'bf61'");
  EXPECT_EQ(error_of([] { format_named("fp8-blok"); }).hint, "did you mean 'fp8-block'?");
}

// A row that the schemas don't have would be refused in files that moetune itself writes.
TEST(Formats, AreWhatTheSchemasHave) {
  const Json common = Json::parse(*embedded_file("configs/schema/common.json"));
  const Json& fields = common["$defs"]["cell"]["properties"];
  EXPECT_EQ(fields["dtype"]["enum"].get<std::vector<std::string>>(), format_dtypes());
  EXPECT_EQ(fields["scales"]["enum"].get<std::vector<std::string>>(), scale_names());
  std::set<std::string> results;
  for (const Format& format : formats())
    if (is_quantised(format)) results.insert(std::string(name(format.y.dtype)));
  EXPECT_EQ(fields["out_dtype"]["enum"].get<std::set<std::string>>(), results);
  EXPECT_EQ(common["$defs"]["format"]["enum"].get<std::vector<std::string>>(),
            mapped<std::string>(formats(), &Format::word));
}

}  // namespace
}  // namespace moetune
