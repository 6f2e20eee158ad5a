// What a table answers for cells that it has, and for those that it doesn't.
#include <fmt/format.h>

#include <functional>

#include "built_in.h"
#include "record/sample.h"

namespace moetune {
namespace {

using sample::cell;
using sample::entry;
using sample::h200;
using sample::mma;
using sample::qwen_down;
using sample::qwen_up;
using sample::small_up;

// uniform at 16 and 256 tokens, zipf:1 at 64 and 4096.
TunedTable spread() {
  return sample::table({entry(cell(small_up(), 16), mma(16), 1), entry(cell(small_up(), 256), mma(64), 2),
                        entry(cell(small_up(), 64, "zipf:1"), mma(32), 3),
                        entry(cell(small_up(), 4096, "zipf:1"), mma(128), 4)});
}

Answer ask(const TunedTable& table, const Cell& wanted) {
  const DeviceInfo device = h200();
  return lookup(table, wanted, &device);
}

TEST(Lookup, TheCellItselfIsExact) {
  const TunedTable table = spread();
  const Answer answer = ask(table, cell(small_up(), 256));
  EXPECT_EQ(answer.match, Match::exact);
  EXPECT_EQ(answer.entry, &table.entries[1]);
  EXPECT_DOUBLE_EQ(answer.distance->total(), 0);
  EXPECT_EQ(answer.explanation, "tuned for this very cell on NVIDIA H200");
  EXPECT_EQ(lookup(table, cell(small_up(), 16), nullptr).match, Match::exact) << "no device is compared";
  DeviceInfo other = h200();
  other.id = "GPU-9999";
  EXPECT_EQ(lookup(table, cell(small_up(), 16), &other).match, Match::exact) << "another card of the model";
  TunedTable stopped = table;
  stopped.entries[0].complete = false;
  EXPECT_TRUE(holds(ask(stopped, cell(small_up(), 16)).explanation, "; its tuning was stopped early"));
}

TEST(Lookup, TheSeedAskedForIsPreferred) {
  const TunedTable table = sample::table(
      {entry(cell(small_up(), 16, "uniform", 1), mma(16), 1), entry(cell(small_up(), 16, "uniform", 2), mma(32), 1)});
  EXPECT_EQ(ask(table, cell(small_up(), 16, "uniform", 2)).entry, &table.entries[1]);
  const Answer answer = ask(table, cell(small_up(), 16, "uniform", 3));
  EXPECT_EQ(answer.match, Match::exact);
  EXPECT_EQ(answer.entry, &table.entries[0]);
  EXPECT_EQ(answer.explanation, "tuned for this very cell on NVIDIA H200, with rows drawn from seed 1");
}

TEST(Lookup, NamesTheOtherLayerOfTheSameSizes) {
  Layer renamed = small_up();
  renamed.model = "mine";
  renamed.projection = Projection::down;
  renamed.tp = 2;
  const TunedTable table = spread();
  const Answer answer = ask(table, cell(renamed, 16));
  EXPECT_EQ(answer.match, Match::exact);
  EXPECT_EQ(answer.explanation,
            "tuned for this very cell on NVIDIA H200; there the layer of these sizes is called custom up");
}

TEST(Lookup, TheNameAskedForIsPreferredAmongTheSameSizes) {
  Layer renamed = small_up();
  renamed.model = "mine";
  const TunedTable table =
      sample::table({entry(cell(small_up(), 16), mma(16), 1), entry(cell(renamed, 16), mma(32), 1)});
  EXPECT_EQ(ask(table, cell(renamed, 16)).entry, &table.entries[1]);
}

// balanced rows at 16 and 256 tokens: their skew is 1, so that tokens alone make the distance between such cells.
TunedTable balanced() {
  return sample::table(
      {entry(cell(small_up(), 16, "balanced"), mma(16), 1), entry(cell(small_up(), 256, "balanced"), mma(64), 2)});
}

TEST(Lookup, NearestIsMeasuredInTheLogarithmOfTokens) {
  const TunedTable table = balanced();
  // 60 is 3.75x over 16 and 4.27x under 256; 70 is 4.38x over 16 and 3.66x under 256, though 16 is closer in tokens.
  EXPECT_EQ(ask(table, cell(small_up(), 60, "balanced")).entry, &table.entries[0]);
  const Answer answer = ask(table, cell(small_up(), 70, "balanced"));
  EXPECT_EQ(answer.match, Match::nearest);
  EXPECT_EQ(answer.entry, &table.entries[1]);
  EXPECT_NEAR(answer.distance->tokens, std::log2(256.0 / 70), 1e-12);
  EXPECT_NEAR(answer.distance->skew, 0, 1e-12);
  EXPECT_EQ(
      answer.explanation,
      "tuned for 256 tokens, 3.7x more than the 70 asked, with balanced routing; distance 1.87 (tokens 1.87, skew "
      "0.00)");
}

TEST(Lookup, EquallyNearGoesToTheFewerTokens) {
  const TunedTable table = balanced();
  const Answer answer = ask(table, cell(small_up(), 64, "balanced"));
  EXPECT_EQ(answer.entry, &table.entries[0]);
  EXPECT_DOUBLE_EQ(answer.distance->total(), 2);
}

TEST(Lookup, EquallyNearGoesToTheRoutingAskedFor) {
  Entry other = entry(cell(small_up(), 16, "balanced"), mma(16), 1);
  other.cell.routing = parse_routing("hot:1:0.25");  // the same rows by another name
  const TunedTable table = sample::table({other, entry(cell(small_up(), 256, "balanced"), mma(32), 1)});
  EXPECT_EQ(ask(table, cell(small_up(), 64, "balanced")).entry, &table.entries[1]);
}

TEST(Lookup, SkewCountsAsTokensDo) {
  // One expert of four has all the tokens that it can: twice the mean. Balanced rows of twice the tokens give the
  // largest expert as many.
  const TunedTable table = sample::table(
      {entry(cell(small_up(), 64, "hot:1:0.5"), mma(16), 1), entry(cell(small_up(), 32, "balanced"), mma(32), 1)});
  const Answer answer = ask(table, cell(small_up(), 128, "balanced"));
  EXPECT_EQ(answer.entry, &table.entries[0]);
  EXPECT_NEAR(answer.distance->tokens, 1, 1e-12);
  EXPECT_NEAR(answer.distance->skew, 1, 0.01);
  EXPECT_NEAR(answer.distance->total(), std::sqrt(2), 0.01);
  EXPECT_EQ(answer.match, Match::other_routing);
}

TEST(Lookup, NamesAnotherRouting) {
  const TunedTable table = balanced();
  const Answer answer = ask(table, cell(small_up(), 256, "hot:1:0.5"));
  EXPECT_EQ(answer.match, Match::other_routing);
  EXPECT_EQ(answer.entry, &table.entries[1]);
  EXPECT_EQ(answer.explanation,
            "tuned for 256 tokens as asked, with balanced routing, not hot:1:0.5; distance 1.00 (tokens 0.00, skew "
            "1.00)");
}

// The table of an H200 that lies in the repository, without the entries that `drop` names.
TunedTable hopper_peers(const std::function<bool(const Cell&)>& drop) {
  TunedTable table =
      read_table(std::filesystem::path(MOETUNE_SOURCE_DIR) / "configs/tuned/nvidia-h200-hopper-peers.json", built_in());
  std::erase_if(table.entries, [&](const Entry& one) { return drop(one.cell); });
  return table;
}

TEST(Lookup, PrefersNearTokensToTheSameRouting) {
  const TunedTable table =
      hopper_peers([](const Cell& one) { return one.routing.name == "zipf" && one.tokens < 4096; });
  const Answer answer = ask(table, cell(qwen_up(), 16, "zipf:1"));
  ASSERT_NE(answer.entry, nullptr);
  EXPECT_EQ(answer.match, Match::other_routing);
  EXPECT_EQ(answer.entry->cell.tokens, 16);
  EXPECT_LT(answer.distance->total(), 2);
}

TEST(Lookup, FindsTheNearestSkew) {
  const TunedTable table = hopper_peers([](const Cell&) { return false; });
  for (const int64_t tokens : {16, 256, 4096}) {
    const Answer answer = ask(table, cell(qwen_up(), tokens, "zipf:1.3"));
    ASSERT_NE(answer.entry, nullptr);
    EXPECT_EQ(text(answer.entry->cell.routing), "zipf:1") << tokens;
    EXPECT_EQ(answer.entry->cell.tokens, tokens);
    EXPECT_EQ(ask(table, cell(qwen_up(), tokens, "zipf:0.1")).entry->cell.routing.name, "uniform") << tokens;
  }
}

TEST(Lookup, GivesTheDistanceOfAnEntryThatIsTooFar) {
  const TunedTable table = balanced();
  const DeviceInfo device = h200();
  const Cell wanted = cell(small_up(), 64, "balanced");
  EXPECT_EQ(lookup(table, wanted, &device, 2).entry, &table.entries[0]);
  const Answer answer = lookup(table, wanted, &device, 1.5);
  EXPECT_EQ(answer.match, Match::none);
  EXPECT_EQ(answer.entry, nullptr);
  EXPECT_DOUBLE_EQ(answer.distance->total(), 2);
  EXPECT_EQ(answer.explanation, fmt::format("the nearest entry, {}, is at distance 2.00 (tokens 2.00, skew 0.00), over "
                                            "the 1.5 allowed",
                                            id(table.entries[0].cell)));
  EXPECT_EQ(lookup(table, cell(small_up(), 256, "balanced"), &device, 0).match, Match::exact);
}

TEST(Lookup, NamesAnotherDevice) {
  const TunedTable table = spread();
  DeviceInfo h100 = h200();
  h100.name = "NVIDIA H100 80GB HBM3";
  const Answer answer = lookup(table, cell(small_up(), 16), &h100);
  EXPECT_EQ(answer.match, Match::other_device);
  EXPECT_EQ(answer.entry, &table.entries[0]);
  EXPECT_EQ(
      answer.explanation,
      "tuned on NVIDIA H200, not on NVIDIA H100 80GB HBM3: take it as a first guess; for 16 tokens as asked, with "
      "uniform routing");
}

TEST(Lookup, ADeviceThatCannotRunTheWinnersGetsNoAnswer) {
  const TunedTable table = spread();
  const DeviceInfo cpu{.kind = DeviceKind::cpu, .name = "AMD EPYC", .id = "cpu", .processors = 8};
  const Answer answer = lookup(table, cell(small_up(), 16), &cpu);
  EXPECT_EQ(answer.match, Match::none);
  EXPECT_EQ(answer.entry, nullptr);
  EXPECT_EQ(answer.explanation, "tuned on NVIDIA H200; AMD EPYC cannot run what won there: mma runs on GPUs only");
}

TEST(Lookup, AnOlderGpuGetsNoKernelThatItCannotRun) {
  const Candidate wgmma = parse_candidate(
      "wgmma block_m=64 block_n=128 block_k=64 stages=4 raster=n group=1 consumers=2 schedule=cooperative swap=yes "
      "cluster=none in_flight=1 tma_x=yes tma_store=no tiles=static");
  const TunedTable table =
      sample::table({entry(cell(qwen_up(), 16), wgmma, 1), entry(cell(qwen_up(), 64), mma(64), 1)});
  DeviceInfo a100 = h200();
  a100.name = "NVIDIA A100";
  a100.compute_capability = 80;
  const Answer answer = lookup(table, cell(qwen_up(), 16), &a100);
  EXPECT_EQ(answer.match, Match::other_device);
  EXPECT_EQ(answer.entry, &table.entries[1]);
}

TEST(Lookup, GivesTheDifferenceOfNearTokens) {
  const TunedTable table = balanced();
  const auto words = [&](int64_t tokens) { return ask(table, cell(small_up(), tokens, "balanced")).explanation; };
  EXPECT_TRUE(words(255).starts_with("tuned for 256 tokens, 1 more than the 255 asked, with balanced routing;"));
  EXPECT_TRUE(words(270).starts_with("tuned for 256 tokens, 14 fewer than the 270 asked, with balanced routing;"));
  EXPECT_TRUE(words(230).starts_with("tuned for 256 tokens, 1.1x more than the 230 asked, with balanced routing;"));
}

TEST(Lookup, EveryFactOfTheShapeMustAgree) {
  const TunedTable table = spread();
  const Cell base = cell(small_up(), 16);
  std::vector<Cell> others(8, base);
  others[0].shape.layer.n = 128;
  others[1].shape.layer.k = 64;
  others[2].shape.layer.top_k = 1;
  others[3].shape.layer.experts = 8;
  others[4].shape.layer.format = find_format("fp16");
  others[5].shape.op = Op::dx;
  others[6].shape.fusion.permute_x = true;
  others[7].shape.layer.ep = 2;
  for (size_t i = 0; i < others.size(); ++i) {
    const Answer answer = ask(table, others[i]);
    EXPECT_EQ(answer.match, Match::none) << i;
    EXPECT_EQ(answer.entry, nullptr) << i;
  }
}

TEST(Lookup, WithoutAMatchNamesTheClosestEntry) {
  const TunedTable table =
      sample::table({entry(cell(qwen_down(), 16), mma(16), 1), entry(cell(qwen_up(), 64), mma(16), 1)});
  Cell wanted = cell(qwen_up(), 16);
  wanted.shape.layer.format = find_format("fp16");
  EXPECT_EQ(
      ask(table, wanted).explanation,
      "no entry has this layer, op and fusion; the closest, qwen3-30b-a3b/up/fwd/bf16/t64/uniform, has dtype bf16 "
      "(asked: fp16)");
}

TEST(Lookup, RanksCloseEntriesByOpThenFusions) {
  const auto with = [](Op op, const Fusion& fusion, int64_t tokens = 64) {
    Cell made = cell(qwen_up(), tokens);
    made.shape.op = op, made.shape.fusion = fusion;
    return made;
  };
  const auto closest = [&](const std::vector<Cell>& cells, const Cell& wanted) {
    std::vector<Entry> entries;
    for (const Cell& one : cells) entries.push_back(entry(one, mma(16), 1));
    const std::string words = ask(sample::table(entries), wanted).explanation;
    for (const Cell& one : cells)
      if (words.find(id(one) + ", has") != std::string::npos) return id(one);
    return words;
  };
  const Cell wanted = with(Op::dw, {.permute_x = true});
  const Cell fwd = with(Op::fwd, {.permute_x = true}), far = with(Op::dw, {.permute_y = true, .accumulate = true});
  const Cell near = with(Op::dw, {.permute_x = true, .accumulate = true, .fp32_dw = true});
  const Cell nearer = with(Op::dw, {.permute_x = true, .accumulate = true, .fp32_dw = true}, 16);
  EXPECT_EQ(closest({fwd, far, near}, wanted), id(near));
  EXPECT_EQ(closest({fwd, far}, wanted), id(far));
  EXPECT_EQ(closest({near, nearer}, with(Op::dw, {.permute_x = true}, 8)), id(nearer));
  Cell elsewhere = with(Op::dw, {.permute_x = true});
  elsewhere.shape.layer = qwen_down();
  EXPECT_EQ(closest({elsewhere, near}, wanted), id(near));
}

TEST(Lookup, AnEntryWithoutAWinnerIsNoAnswer) {
  const TunedTable table = sample::table({sample::skipped_entry(cell(small_up(), 16), "out of memory")});
  const Answer answer = ask(table, cell(small_up(), 16));
  EXPECT_EQ(answer.match, Match::none);
  EXPECT_EQ(answer.explanation, "this layer has no winner in the table: out of memory");
  EXPECT_EQ(ask(sample::table(), cell(small_up(), 16)).explanation, "the table has no winners");
}

TEST(Lookup, AWinnerElsewhereBeatsACellWithoutOne) {
  const TunedTable table = sample::table(
      {sample::skipped_entry(cell(small_up(), 16), "out of memory"), entry(cell(small_up(), 32), mma(16), 1)});
  const Answer answer = ask(table, cell(small_up(), 16));
  EXPECT_EQ(answer.match, Match::nearest);
  EXPECT_EQ(answer.entry, &table.entries[1]);
}

}  // namespace
}  // namespace moetune
