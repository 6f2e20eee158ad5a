// Knobs and candidates: text, JSON, errors.
#include <gtest/gtest.h>

#include <set>

#include "error_of.h"
#include "variant/candidate.h"
#include "variant/variant.h"

namespace moetune {
namespace {

constexpr const char* kText = "mma block_m=128 block_n=256 block_k=64 warps=8 stages=3 raster=m group=8 split=1";

TEST(Candidate, TextRoundTrips) {
  const Candidate candidate = parse_candidate(kText);
  EXPECT_EQ(candidate.variant, "mma");
  EXPECT_EQ(candidate.block_n, 256);
  EXPECT_EQ(candidate.raster, 1);
  EXPECT_EQ(candidate.threads, 0);
  EXPECT_EQ(text(candidate), kText);
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
  EXPECT_EQ(candidate_from_json(JsonAt(json, "x")), parse_candidate(kText));
}

TEST(Candidate, KnobsYoungerThanAFileHaveTheirOldValue) {
  const std::string old =
      "wgmma block_m=64 block_n=64 block_k=64 stages=3 raster=m group=4 consumers=1 schedule=cooperative swap=yes "
      "cluster=none in_flight=1 tma_x=yes tma_store=no tiles=static";
  EXPECT_EQ(parse_candidate(old),
            parse_candidate(old + " pace=own split=1 l2_promotion=128 hold=0 gather=tiles mix=0"));
  Json json = to_json(parse_candidate(old + " pace=common"));
  EXPECT_EQ(candidate_from_json(JsonAt(json, "x")).pace, 1);
  json.erase("pace");
  EXPECT_EQ(candidate_from_json(JsonAt(json, "x")), parse_candidate(old));
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

TEST(Candidate, EveryKnobMustBeSet) {
  EXPECT_EQ(error_of([] { parse_candidate("simt block_m=16 block_n=16"); }).what,
            "candidate of 'simt' lacks a value for 'block_k'");
}

TEST(Candidate, AValueMustBeANumberOrItsWord) {
  EXPECT_EQ(error_of([] { parse_candidate("simt block_m=1x block_n=16 block_k=8"); }).what,
            "block_m: '1x' is not a whole number");
  EXPECT_EQ(error_of([] { parse_candidate("mma raster=k"); }).what, "unknown value for raster 'k'");
  EXPECT_EQ(error_of([] { parse_candidate("simt block_m=-4 block_n=16 block_k=8"); }).what,
            "block_m: -4 is outside 0 to 1048576");
}

TEST(Candidate, EmptyTextIsRefused) {
  EXPECT_EQ(error_of([] { parse_candidate("  "); }).what, "the candidate is empty");
}

TEST(Candidate, JsonErrorsNameThePlace) {
  const Json json = {{"variant", "simt"}, {"block_m", 16}, {"block_n", "x"}, {"block_k", 8}};
  EXPECT_EQ(error_of([&] { candidate_from_json(JsonAt(json, "table.json: entries[3].candidate")); }).what,
            "table.json: entries[3].candidate.block_n: expected an integer, found a string");
}

TEST(Knobs, NamesAreUniqueAndEveryVariantListsKnownOnesInOrder) {
  std::set<std::string_view> names;
  for (const Knob& knob : knobs()) EXPECT_TRUE(names.insert(knob.name).second) << knob.name;
  for (const Variant& variant : variants()) {
    std::vector<std::string_view> in_order;
    for (const Knob& knob : knobs_of(variant)) in_order.push_back(knob.name);
    EXPECT_EQ(in_order, variant.knobs) << variant.name;
  }
}

TEST(Knobs, NoTwoShareAMember) {
  Candidate candidate;
  for (const Knob& knob : knobs()) {
    EXPECT_EQ(candidate.*knob.value, 0) << knob.name;
    candidate.*knob.value = 1;
  }
}

}  // namespace
}  // namespace moetune
