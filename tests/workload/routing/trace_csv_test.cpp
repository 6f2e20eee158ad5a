// Recordings in CSV, and errors that name the line.
#include <gtest/gtest.h>

#include "error_of.h"
#include "workload/routing/recording.h"

namespace moetune {
namespace {

using Ints = std::vector<int32_t>;

Trace read_csv(std::string_view text, int64_t experts = 0, int64_t top_k = 0) {
  return trace_from_csv(text, "t.csv", experts, top_k);
}
std::string csv_refusal(std::string_view text, int64_t experts = 0, int64_t top_k = 0) {
  return error_of([&] { read_csv(text, experts, top_k); }).what;
}

TEST(CsvTrace, ReadsRowsPerExpert) {
  const Trace trace = read_csv("# tokens=4, top_k=2\nlayer,expert,rows\n1,0,4\n1,2,1\n1,1,3\n7,0,4\n7,2,4\n");
  EXPECT_EQ(trace.experts, 3);
  EXPECT_EQ(trace.top_k, 2);
  ASSERT_EQ(trace.layers.size(), 2u);
  EXPECT_EQ(trace.layers[0].name, "1");
  EXPECT_EQ(trace.layers[0].m_sizes, (Ints{4, 3, 1}));
  EXPECT_EQ(trace.layers[1].m_sizes, (Ints{4, 0, 4}));  // an expert without a line
}
TEST(CsvTrace, ReadsChosenExpertsInAnyOrderOfLines) {
  const Trace trace = read_csv("layer,token,slot,expert\n0,1,1,0\n0,0,0,2\n0,1,0,3\n0,0,1,1\n");
  EXPECT_EQ(trace.top_k, 2);
  EXPECT_EQ(trace.experts, 4);
  EXPECT_EQ(trace.layers[0].tokens, 2);
  EXPECT_EQ(trace.layers[0].topk_ids, (Ints{2, 1, 3, 0}));
}
TEST(CsvTrace, TakesQuotedValues) {
  const Trace trace = read_csv("\"layer\",\"expert\",\"rows\"\r\n\"a b\",\"0\",\"2\"\r\n\"a b\", \"1\" ,1\r\n", 0, 1);
  ASSERT_EQ(trace.layers.size(), 1u);
  EXPECT_EQ(trace.layers[0].name, "a b");
  EXPECT_EQ(trace.layers[0].m_sizes, (Ints{2, 1}));
}
TEST(CsvTrace, QuotesAreOfWholeValuesWithoutCommas) {
  EXPECT_EQ(csv_refusal("expert,rows\n\"0,2\n"), "t.csv:2: expert: '\"0' is not a whole number");
  EXPECT_EQ(csv_refusal("layer,expert,rows\n\"a, b\",0,2\n"), "t.csv:2: 4 values under 3 columns");
  EXPECT_EQ(csv_refusal("expert,rows\n\"x\",2\n"), csv_refusal("expert,rows\nx,2\n"));
  EXPECT_EQ(csv_refusal("expert,rows\n\"\",2\n"), csv_refusal("expert,rows\n,2\n"));
}
TEST(CsvTrace, MayLackTheLayerColumn) {
  EXPECT_EQ(read_csv("expert,rows\n0,2\n1,2\n", 0, 2).layers[0].name, "0");
  EXPECT_EQ(read_csv("token,slot,expert\n0,0,1\n1,0,0\n").layers[0].topk_ids, (Ints{1, 0}));
}
TEST(CsvTrace, TakesColumnsInAnyOrderAndMore) {
  EXPECT_EQ(read_csv("rows,note,expert,layer\n2,x,1,a\n1,y,0,a\n", 0, 1).layers[0].m_sizes, (Ints{1, 2}));
}
TEST(CsvTrace, TakesWindowsLinesBlanksAndCommentsBetween) {
  const Trace trace =
      read_csv("\r\n# recorded on a Monday\r\nexpert , rows\r\n 0 , 2 \r\n# experts=5\r\n1,2\r\n\r\n", 0, 2);
  EXPECT_EQ(trace.layers[0].m_sizes, (Ints{2, 2, 0, 0, 0}));
}
TEST(CsvTrace, TakesAByteOrderMark) {
  EXPECT_EQ(read_csv("\xef\xbb\xbflayer,expert,rows\n3,0,2\n4,1,1\n", 0, 1).layers.size(), 2u);
}
TEST(CsvTrace, TakesExpertsFromTheSweep) {
  EXPECT_EQ(read_csv("expert,rows\n0,1\n1,1\n", 8, 1).layers[0].m_sizes.size(), 8u);
}

TEST(CsvTrace, NamesTheLineOfAWrongValue) {
  EXPECT_EQ(csv_refusal("expert,rows\n0,2\n1,x\n"), "t.csv:3: rows: 'x' is not a whole number");
  EXPECT_EQ(csv_refusal("expert,rows\n0,-2\n"), "t.csv:2: rows: -2 is outside 0 to 268435456");
  EXPECT_EQ(csv_refusal("expert,rows\n70000,2\n"), "t.csv:2: expert: 70000 is outside 0 to 65535");
  EXPECT_EQ(csv_refusal("expert,rows\n0,2,3\n"), "t.csv:2: 3 values under 2 columns");
  EXPECT_EQ(csv_refusal("# tokens=many\nexpert,rows\n0,2\n"), "t.csv:1: tokens: 'many' is not a whole number");
}
TEST(CsvTrace, NamesAWrongHeader) {
  EXPECT_EQ(csv_refusal("layer,experts,rows\n0,0,1\n"), "t.csv:1: the header is 'layer,experts,rows'");
  EXPECT_EQ(csv_refusal("expert,rows,token,slot\n0,0,1,1\n"), "t.csv:1: the header is 'expert,rows,token,slot'");
  EXPECT_EQ(csv_refusal("0,1,2\n"), "t.csv:1: the header is '0,1,2'");
}
TEST(CsvTrace, NamesAnEmptyFile) {
  EXPECT_EQ(csv_refusal(""), "t.csv: the file is empty");
  EXPECT_EQ(csv_refusal("# tokens=3\n"), "t.csv: the file is empty");
  EXPECT_EQ(csv_refusal("expert,rows\n"), "t.csv: has a header but no lines");
}
TEST(CsvTrace, RefusesTwoLinesForOneThing) {
  EXPECT_EQ(csv_refusal("expert,rows\n0,2\n0,2\n", 0, 1), "t.csv: layer 0: expert 0 has two lines");
  EXPECT_EQ(csv_refusal("token,slot,expert\n0,0,1\n0,0,0\n0,1,1\n1,0,0\n"),
            "t.csv: layer 0: token 0 slot 0 has two lines");
}
TEST(CsvTrace, RefusesWrongSumsAndContradictions) {
  EXPECT_EQ(csv_refusal("# tokens=4, top_k=2\nexpert,rows\n0,4\n1,4\n2,1\n"),
            "t.csv: layer 0: rows sum to 9, but 4 tokens with top_k 2 make 8");
  EXPECT_EQ(csv_refusal("# top_k=2\nexpert,rows\n0,4\n1,4\n", 2, 4), "t.csv: top_k: the recording has 2, the layer 4");
  EXPECT_EQ(csv_refusal("# experts=2\nexpert,rows\n0,4\n2,4\n"),
            "t.csv: expert 2 is recorded, but the layer has 2 experts");
  EXPECT_EQ(csv_refusal("expert,rows\n0,4\n9,4\n", 8, 2), "t.csv: expert 9 is recorded, but the layer has 8 experts");
  EXPECT_EQ(csv_refusal("token,slot,expert\n0,0,1\n", 0, 2), "t.csv: top_k: the recording has 1, the layer 2");
  EXPECT_EQ(csv_refusal("# tokens=5\ntoken,slot,expert\n0,0,1\n"),
            "t.csv: the last token is 0, but a comment says 5 tokens");
}
TEST(CsvTrace, RefusesMissingLinesWithoutAllocatingThem) {
  EXPECT_EQ(csv_refusal("token,slot,expert\n0,0,1\n268435455,0,1\n"),
            "t.csv: layer 0: 2 lines, but 268435456 tokens with top_k 1 make 268435456");
  EXPECT_EQ(csv_refusal("token,slot,expert\n268435455,65535,1\n"),
            "t.csv: layer 0: 1 lines, but 268435456 tokens with top_k 65536 make 17592186044416");
}
TEST(CsvTrace, RefusesAnExpertTwiceInAToken) {
  EXPECT_EQ(csv_refusal("token,slot,expert\n0,0,1\n0,1,1\n"), "t.csv: layer 0: token 0 has expert 1 twice");
}
TEST(CsvTrace, RefusesTooManyLayers) {
  std::string text = "layer,expert,rows\n";
  for (int layer = 0; layer <= 1024; ++layer) text += std::to_string(layer) + ",0,1\n";
  EXPECT_EQ(csv_refusal(text, 0, 1), "t.csv:1026: more than 1024 layers");
}

}  // namespace
}  // namespace moetune
