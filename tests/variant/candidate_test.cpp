// Knobs and candidates: text, JSON, errors.
#include <gtest/gtest.h>

#include <set>

#include "built_in.h"
#include "error_of.h"
#include "variant/candidate.h"
#include "variant/knob_list.h"
#include "variant/variant.h"

namespace moetune {
namespace {

constexpr const char* kText = "mma block_m=128 block_n=256 block_k=64 warps=8 stages=3 raster=m group=8 split=1";

TEST(Candidate, TextRoundTrips) {
  const Candidate candidate = parse_candidate(kText);
  EXPECT_EQ(candidate.variant->name, "mma");
  EXPECT_EQ(find_value(candidate, "block_n"), 256);
  EXPECT_EQ(find_value(candidate, "raster"), 1);
  EXPECT_EQ(find_value(candidate, "threads"), std::nullopt);
  EXPECT_EQ(text(candidate), kText);
}

TEST(Candidate, ADifferenceNamesWhatIsOther) {
  const Candidate candidate = parse_candidate(kText);
  EXPECT_EQ(difference(candidate, candidate), "");
  EXPECT_EQ(difference(with_value(with_value(candidate, "stages", 4), "raster", 0), candidate), "stages=4 raster=n");
  EXPECT_EQ(difference(candidate, parse_candidate("simt block_m=16 block_n=16 block_k=16")), kText);
  EXPECT_EQ(text(parse_partial_candidate("mma warps=4")), "mma warps=4");
}

TEST(Candidate, CommasAndAnyOrderParse) {
  EXPECT_EQ(parse_candidate("mma,group=8, raster=m,stages=3,warps=8,block_k=64,block_n=256 block_m=128"),
            parse_candidate(kText));
}

TEST(Candidate, JsonRoundTripsInKnobOrder) {
  const Json json = to_json(parse_candidate(kText));
  EXPECT_EQ(
      json.dump(),
      R"({"variant":"mma","block_m":128,"block_n":256,"block_k":64,"warps":8,"stages":3,"raster":"m","group":8,"split":1})");
  EXPECT_EQ(candidate_from_json(JsonAt(json, "x"), built_in()), parse_candidate(kText));
}

TEST(Candidate, KnobsYoungerThanAFileHaveTheirOldValue) {
  const std::string old =
      "wgmma block_m=64 block_n=64 block_k=64 stages=3 raster=m group=4 consumers=1 schedule=cooperative swap=yes "
      "cluster=none in_flight=1 tma_x=yes tma_store=no tiles=static";
  EXPECT_EQ(parse_candidate(old), parse_candidate(old + " pace=own split=1 hold=0 gather=tiles mix=0"));
  Json json = to_json(parse_candidate(old + " pace=common"));
  EXPECT_EQ(find_value(candidate_from_json(JsonAt(json, "x"), built_in()), "pace"), 1);
  json.erase("pace");
  EXPECT_EQ(candidate_from_json(JsonAt(json, "x"), built_in()), parse_candidate(old));
}

TEST(Candidate, UnknownVariantNamesTheNearest) {
  const Caught error = error_of([] { parse_candidate("nma block_m=1"); });
  EXPECT_EQ(error.what, "unknown variant 'nma'");
  EXPECT_EQ(error.hint, "did you mean 'mma'?");
}

TEST(Candidate, UnknownKnobNamesTheNearest) {
  const Caught error = error_of([] { parse_candidate("mma blok_m=16"); });
  EXPECT_EQ(error.what, "unknown knob 'blok_m'");
  EXPECT_EQ(error.hint, "did you mean 'block_m'?");
}

TEST(Candidate, AKnobOfAnotherVariantIsRefused) {
  const Caught error = error_of([] { parse_candidate("mma threads=2"); });
  EXPECT_EQ(error.what, "variant 'mma' has no knob 'threads'");
  EXPECT_NE(error.hint.find("block_m, block_n"), std::string::npos);
}

TEST(Candidate, JsonNamesEveryKnobThatFilesAlwaysHad) {
  const Json json = {{"variant", "simt"}, {"block_m", 16}, {"block_n", 16}};
  EXPECT_EQ(error_of([&] { candidate_from_json(JsonAt(json, "x"), built_in()); }).what, "x: 'block_k' is missing");
}

TEST(Candidate, AValueMustBeANumberOrItsWord) {
  EXPECT_EQ(error_of([] { parse_candidate("simt block_m=1x block_n=16 block_k=8"); }).what,
            "block_m: '1x' is not a whole number");
  EXPECT_EQ(error_of([] { parse_candidate("mma raster=k"); }).what, "unknown value for raster 'k'");
  EXPECT_EQ(error_of([] { parse_candidate("simt block_m=-4 block_n=16 block_k=8"); }).what,
            "block_m: -4 is outside 0 to 1048576");
}

TEST(Candidate, AKnobHasOneValue) {
  EXPECT_EQ(error_of([] { parse_candidate("mma warps=4,warps=8"); }).what,
            "the candidate 'mma warps=4,warps=8' has two values for warps");
}

TEST(Candidate, EmptyTextIsRefused) {
  EXPECT_EQ(error_of([] { parse_candidate("  "); }).what, "the candidate is empty");
}

TEST(Candidate, JsonErrorsNameThePlace) {
  const Json json = {{"variant", "simt"}, {"block_m", 16}, {"block_n", "x"}, {"block_k", 8}};
  EXPECT_EQ(error_of([&] { candidate_from_json(JsonAt(json, "table.json"), built_in()); }).what,
            "table.json: block_n: expected an integer, found a string");
}

TEST(Candidate, KnobsOfAnotherVersionStay) {
  Json json = to_json(parse_candidate(kText));
  json["newknob"] = 3;
  json["order"] = "rows";
  const Candidate candidate = candidate_from_json(JsonAt(json, "x"), built_in());
  EXPECT_NE(candidate, parse_candidate(kText));
  EXPECT_EQ(to_json(candidate), json);
  EXPECT_TRUE(text(candidate).ends_with(" newknob=3 order=rows"));
  EXPECT_EQ(cannot_run(candidate, {}, device_of_arch("sm_90a")),
            "no kernel here has newknob=3 order=rows; tune this cell again");
  json["order"] = Json::array({1});
  EXPECT_EQ(error_of([&] { candidate_from_json(JsonAt(json, "x"), built_in()); }).what,
            "x: order: expected an integer, found an array");
}

TEST(Candidate, OfAPackThatIsNotLoadedIsNamedInItsReason) {
  const Json json = {
      {"variant", "triton_moe"}, {"pack", "0123456789ab"}, {"BLOCK_SIZE_M", 64}, {"order", "rows"}, {"num_warps", 4}};
  const Candidate candidate = candidate_from_json(JsonAt(json, "x"), built_in());
  EXPECT_EQ(to_json(candidate), json);
  EXPECT_EQ(text(candidate), "triton_moe BLOCK_SIZE_M=64 order=rows num_warps=4");
  EXPECT_EQ(find_value(candidate, "BLOCK_SIZE_M"), 64);
  EXPECT_EQ(find_value(candidate, "order"), std::nullopt);
  EXPECT_EQ(find_value(candidate, "block_m"), std::nullopt);
  Json other = json;
  other["num_warps"] = 8;
  const Candidate second = candidate_from_json(JsonAt(other, "x"), built_in());
  EXPECT_NE(second, candidate);
  EXPECT_EQ(difference(second, candidate), "num_warps=8");
  EXPECT_EQ(cannot_run(candidate, {}, device_of_arch("sm_90a")),
            "triton_moe is of a pack with the hash 0123456789ab, which is not loaded; name its folder with --pack");
  // What names no pack is a wrong word, as before.
  other.erase("pack");
  EXPECT_EQ(error_of([&] { candidate_from_json(JsonAt(other, "x"), built_in()); }).what,
            "x: unknown variant 'triton_moe'");
}

TEST(Candidate, APartialOneTakesTheRestFromTheDefault) {
  Cell cell;
  cell.shape.layer = {.model = "custom", .projection = Projection::up, .experts = 8, .top_k = 2, .n = 1536, .k = 2048};
  cell.tokens = 256;
  const Problem problem = make_problem(cell);
  const DeviceInfo device = device_of_arch("sm_80");
  const Candidate whole = find_variant("mma").fallback(problem, device);
  const Candidate partial = parse_partial_candidate("mma warps=4 group=2");
  EXPECT_EQ(find_value(partial, "block_m"), kUnset);
  EXPECT_EQ(complete(partial, problem, device), with_value(with_value(whole, "warps", 4), "group", 2));
  EXPECT_EQ(complete(parse_partial_candidate("mma"), problem, device), whole);
  EXPECT_EQ(complete(parse_candidate(kText), problem, device), parse_candidate(kText));
}

TEST(Candidate, InShortIsWhatDiffersFromTheDefault) {
  Cell cell;
  cell.shape.layer = {.model = "custom", .projection = Projection::up, .experts = 8, .top_k = 2, .n = 1536, .k = 2048};
  cell.tokens = 256;
  const Problem problem = make_problem(cell);
  const DeviceInfo device = device_of_arch("sm_90a");
  const auto default_of = [&](std::string_view variant) { return find_variant(variant).fallback(problem, device); };
  const Candidate wgmma = default_of("wgmma");
  const auto in_short = [&](const Candidate& candidate) { return short_text(candidate, &wgmma, problem, device); };
  EXPECT_EQ(in_short(wgmma), "wgmma, the default");
  EXPECT_EQ(in_short(with_value(wgmma, "stages", 2)), "wgmma stages=2");
  EXPECT_EQ(in_short(default_of("mma")), "mma");
  const Candidate mma = with_value(default_of("mma"), "group", 3);
  EXPECT_EQ(in_short(mma), "mma group=3");
  EXPECT_EQ(complete(parse_partial_candidate(in_short(mma)), problem, device), mma);  // fit for --candidate
  EXPECT_EQ(short_text(wgmma, nullptr, problem, device), "wgmma");
  // The default of a table from before stands for today's.
  const Candidate before = with_value(wgmma, "stages", 2);
  EXPECT_EQ(short_text(before, &before, problem, device), "wgmma, the default");
}

TEST(Knobs, EachVariantNamesEachOfItsKnobsOnce) {
  const std::vector<std::string> all = built_in().knob_names();
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
  for (const VariantPtr& variant : built_in().variants()) {
    std::set<std::string> names;
    for (const Knob& knob : variant->knobs) {
      EXPECT_TRUE(names.insert(knob.name).second) << variant->name << " " << knob.name;
      EXPECT_NE(std::find(all.begin(), all.end(), knob.name), all.end()) << knob.name;
      EXPECT_FALSE(knob.help.empty()) << knob.name;
    }
  }
}

enum class Side { left, right };
struct Some {
  int count = 0;
  bool fast = false;
  Side side = Side::left;
};

TEST(KnobList, ConvertsCandidatesToAStructAndBack) {
  const KnobList<Some> list = KnobList<Some>("some")
                                  .add("count", &Some::count, "how many")
                                  .add("fast", &Some::fast, "or slow")
                                  .add("side", &Some::side, "of two", "Side", {"left", "right"}, 1);
  const Some values = list.values({.values = {7, 1, 1}});
  EXPECT_EQ(values.count, 7);
  EXPECT_TRUE(values.fast);
  EXPECT_EQ(values.side, Side::right);
  EXPECT_EQ(list.numbers(values), (std::vector<int>{7, 1, 1}));
  EXPECT_EQ(list.initialiser(values), "{.count = 7, .fast = true, .side = moetune::Side::right}");
  const std::vector<Knob> knobs = list.knobs();
  ASSERT_EQ(knobs.size(), 3u);
  EXPECT_EQ(knobs[1].words, (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(knobs[0].absent, kNeeded);
  EXPECT_EQ(knobs[2].absent, 1);
}

TEST(Canonical, WalksAreTheSameWhereNoExpertHasTwoTilesAlongM) {
  const auto canonical = [](const std::string& words, int64_t tokens, Op op = Op::fwd) {
    Cell cell;
    cell.shape = {.layer = {.model = "custom", .experts = 4, .top_k = 1, .n = 512, .k = 256}, .op = op, .fusion = {}};
    cell.tokens = tokens;
    cell.routing = parse_routing("balanced");
    const Problem problem = make_problem(cell);
    const Candidate candidate = complete(parse_partial_candidate(words), problem, device_of_arch("sm_90a"));
    return text(candidate.variant->canonical(candidate, problem));
  };
  for (const std::string variant : {"wgmma", "mma"}) {
    const std::string other = variant + " block_m=64 raster=m group=4",
                      plain = variant + " block_m=64 raster=n group=1";
    EXPECT_EQ(canonical(other, 256), canonical(plain, 256)) << variant;              // 64 rows each
    EXPECT_NE(canonical(other, 260), canonical(plain, 260)) << variant;              // 65
    EXPECT_NE(canonical(other, 4, Op::dw), canonical(plain, 4, Op::dw)) << variant;  // whose tiles are of n and k
  }
  EXPECT_NE(canonical("wgmma block_m=64 cluster=m raster=m", 256),
            canonical("wgmma block_m=64 cluster=m raster=n", 256));
}

}  // namespace
}  // namespace moetune
