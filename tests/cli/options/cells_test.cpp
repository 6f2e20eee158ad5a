// From words to requests for cells, and back.
#include "cli/options/cells.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "cli/typed_cells.h"

namespace moetune {
namespace {

using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const Words kTiny = {"--experts", "4", "--top-k", "2", "--n", "64", "--k", "32"};
const Words kBoth = {"--model", "mixtral-8x7b", "--projection", "up,down"};

TEST(CellOptions, WordsAreRead) {
  const CellRequest request = typed({"--model",     "a, b",          "--model",     "c",
                                     "--op",        "fwd,dw",        "--tokens",    "1, 16",
                                     "--tokens",    "64-256*2",      "--routing",   "uniform,zipf:1.5",
                                     "--dtype",     "fp8",           "--scales",    "tensor",
                                     "--out-dtype", "fp16",          "--fast-sums", "--tp",
                                     "1,2",         "--ep",          "1-4",         "--experts",
                                     "8",           "--seed",        "0",           "--zero-experts",
                                     "0",           "--projection",  "up",          "--gated",
                                     "gelu",        "--interleaved", "--permute-x"})
                                  .request;
  CellRequest expected{.models = {"a", "b", "c"},
                       .experts = 8,
                       .zero_experts = 0,
                       .projections = {Projection::up},
                       .ops = {Op::fwd, Op::dw},
                       .tokens = {1, 16, 64, 128, 256},
                       .routings = {parse_routing("uniform"), parse_routing("zipf:1.5")},
                       .dtypes = {"fp8"},
                       .scales = {ScaleKind::tensor},
                       .out_dtypes = {Dtype::fp16},
                       .fast_sums = true,
                       .tp = {1, 2},
                       .ep = {1, 2, 3, 4},
                       .fusion = {.permute_x = true, .activation = Activation::gelu, .interleaved = true},
                       .seed = 0};
  EXPECT_EQ(request, expected);
  EXPECT_TRUE(typed({"--projection", "ffn"}).request.ffn);
}

TEST(CellOptions, ErrorsNameTheOption) {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--experts", "-4"}, "--experts: -4 is outside 1 to 65536"},
      {{"--n", "64x"}, "--n: '64x' is not a whole number"},
      {{"--k", "1e9"}, "--k: '1e9' is not a whole number"},
      {{"--top-k", "0"}, "--top-k: 0 is outside 1 to 65536"},
      {{"--n", "99999999999999999999"}, "--n: 99999999999999999999 is outside 1 to 16777216"},
      {{"--experts", "4294967297"}, "--experts: 4294967297 is outside 1 to 65536"},
      {{"--ep", "65537"}, "--ep: 65537 is outside 1 to 65536"},
      {{"--seed", "-1"}, "--seed: -1 is outside 0 to 9223372036854775807"},
      {{"--tokens", "0"}, "--tokens: 0 is outside 1 to 268435456"},
      {{"--tokens", "8,"}, "--tokens: the list '8,' has an empty word"},
      {{"--tokens", "1 16"}, "--tokens: '1 16' is not a whole number"},
      {{"--routing", "uniform,,zipf"}, "--routing: the list 'uniform,,zipf' has an empty word"},
      {{"--routing", ""}, "--routing: the value is empty"},
      {{"--gated", "relu"}, "unknown --gated 'relu'"},
      {{"--filter", "t[8"}, "--filter: 't[8' is not a regular expression: see column 2, '[8'"},
      {{"--experts", "4"}, "--top-k: the size is missing"},
      {kTiny + Words{"--tp", "3"}, "--tp: 3 does not divide n 64"},
      {kTiny + Words{"--hidden", "8"}, "--n: n and k exclude hidden and intermediate"},
      {kTiny + Words{"--model", "mixtral-8x7b"}, "--model: excludes n and k"},
      {kTiny + Words{"--sum-slots", "--op", "fwd,dw"}, "--sum-slots: needs permute_y or, for dx, permute_x"},
      {kTiny + Words{"--filter", "t8"}, "--filter: no cell's id holds 't8'"}};
  for (const auto& [words, error] : cases) EXPECT_EQ(cell_error(words), error);
}

// What `verify` prints for people to type again must be understood as the program itself understands it.
TEST(CellArguments, MakeTheCellAgain) {
  const Words weighted = {"--permute-y", "--topk-weights"};
  for (const Words& words :
       {kTiny + Words{"--seed", "7", "--tokens", "3,1000", "--dtype", "bf16,fp16,fp32", "--routing",
                      "uniform,zipf:1.25,hot:2:0.5,single"},
        kTiny + Words{"--permute-x"}, kTiny + weighted,
        kTiny + weighted + Words{"--op", "fwd,dx,dw", "--accumulate", "--fp32-dw"},
        kBoth + weighted + Words{"--permute-x", "--op", "fwd,dx,dw", "--sum-slots", "--weight-gradient"},
        kBoth + Words{"--gated", "gpt-oss", "--interleaved", "--bias"}, kBoth + Words{"--tp", "2,4", "--ep", "8"},
        Words{"--model", "gpt-oss-20b", "--dtype", "bf16", "--routing", "trace:gpt-oss-20b#3"}})
    for (Cell cell : make_cells(typed(words))) {
      const std::vector<Cell> again = make_cells(typed(cell_arguments(cell)));
      ASSERT_EQ(again.size(), 1u);
      cell.shape.layer.model = again[0].shape.layer.model;
      EXPECT_EQ(again[0], cell) << id(cell);
    }
}

}  // namespace
}  // namespace moetune
