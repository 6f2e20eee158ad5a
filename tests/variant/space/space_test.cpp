// Spaces: reading, narrowing, enumerating; devices and outcomes.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "error_of.h"
#include "temporary_folder.h"
#include "variant/outcome.h"
#include "variant/space/small_space.h"

namespace moetune {
namespace {

SearchSpace space_of(const std::string& variants) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "space.json").string();
  std::ofstream(path) << R"({"schema": "moetune.space/1", "variants": )" << variants << "}";
  return load_space(path, built_in());
}

TEST(Space, TheBuiltInOnesLoadAndCoverEveryVariant) {
  EXPECT_FALSE(load_space("quick", built_in()).variants.empty());
  std::vector<std::string> names;
  for (const VariantSpace& variant : load_space("full", built_in()).variants) names.push_back(variant.variant->name);
  EXPECT_EQ(names, (std::vector<std::string>{"wgmma", "mma", "simt", "cpu"}));
}

TEST(Space, QuickLiesWithinFullOnAGpu) {
  SearchSpace quick = load_space("quick", built_in()), full = load_space("full", built_in());
  keep_variants(quick, {"mma"}, built_in());
  keep_variants(full, {"mma"}, built_in());
  const auto few = enumerate(quick, small_shape(), device_of_arch("sm_90a")).legal;
  const auto many = enumerate(full, small_shape(), device_of_arch("sm_90a")).legal;
  EXPECT_GT(few.size(), 100u);
  EXPECT_GT(many.size(), 5 * few.size());
  for (const Candidate& candidate : few)
    EXPECT_NE(std::find(many.begin(), many.end(), candidate), many.end()) << text(candidate);
}

// dX and dW of the six layers that other libraries are measured on, at few and at many rows an expert.
std::vector<Cell> gradients_of_large_layers() {
  struct Sizes {
    int64_t experts, top_k, n, k;
  };
  std::vector<Cell> cells;
  for (const Sizes& s : {Sizes{8, 2, 28672, 4096},
                         {8, 2, 4096, 14336},
                         {128, 8, 1536, 2048},
                         {128, 8, 2048, 768},
                         {32, 4, 5760, 2880},
                         {32, 8, 4096, 7168}})
    for (const Op op : {Op::dx, Op::dw})
      for (const auto& [fusion, tokens] :
           {std::pair<Fusion, int64_t>{{}, 1024}, {{.permute_x = true}, 16384}, {{.permute_y = true}, 1024}}) {
        Cell cell;
        cell.shape.layer = {.model = "custom", .experts = s.experts, .top_k = s.top_k, .n = s.n, .k = s.k};
        cell.shape.op = op, cell.shape.fusion = fusion;
        cell.tokens = tokens;
        cell.routing = parse_routing("uniform");
        cells.push_back(cell);
      }
  return cells;
}

// The tiles of dW's defaults, that is: clusters, walks and mixes of the fastest are chosen beyond the space.
TEST(Space, BackwardIsSmallAndHoldsTheTilesOfDwsDefaults) {
  const SearchSpace space = load_space("backward", built_in());
  const DeviceInfo device = device_of_arch("sm_90a");
  for (const Cell& cell : gradients_of_large_layers()) {
    const auto legal = enumerate(space, cell.shape, device).legal;
    EXPECT_GE(legal.size(), 100u) << id(cell);
    EXPECT_LE(legal.size(), 800u) << id(cell);
    if (cell.shape.op != Op::dw) continue;
    Candidate fallback = default_candidate(space, make_problem(cell), device);
    for (const auto& [knob, value] : {std::pair{"cluster", 0}, {"in_flight", 1}, {"group", 4}, {"mix", 0}})
      fallback = with_value(fallback, knob, value);
    EXPECT_NE(std::find(legal.begin(), legal.end(), fallback), legal.end()) << id(cell) << ": " << text(fallback);
  }
}

TEST(Space, UnknownNameHasTheNearest) {
  const Caught error = error_of([] { load_space("quik", built_in()); });
  EXPECT_EQ(error.what, "unknown space 'quik'");
  EXPECT_EQ(error.hint, "did you mean 'quick'?");
}

TEST(Space, ErrorsNameThePlace) {
  EXPECT_NE(std::string(error_of([] { space_of(R"({"simt": {"block_m": [16], "block_n": [16]}})"); }).what)
                .find("variants.simt: 'block_k' is missing"),
            std::string::npos);
  EXPECT_NE(
      std::string(error_of([] { space_of(R"({"simt": {"block_m": [16], "block_n": ["x"], "block_k": [8]}})"); }).what)
          .find("variants.simt.block_n[0]: 'x' is not a whole number"),
      std::string::npos);
  EXPECT_NE(
      std::string(error_of([] { space_of(R"({"simt": {"block_m": [], "block_n": [16], "block_k": [8]}})"); }).what)
          .find("variants.simt.block_m: is empty"),
      std::string::npos);
  EXPECT_NE(std::string(error_of([] {
                          space_of(R"({"simt": {"warps": [4], "block_m": [16], "block_n": [16], "block_k": [8]}})");
                        }).what)
                .find("variant 'simt' has no knob 'warps'"),
            std::string::npos);
  EXPECT_NE(std::string(error_of([] { space_of("{}"); }).what).find("variants: is empty"), std::string::npos);
}

TEST(Space, SetReplacesValues) {
  SearchSpace space = load_space("quick", built_in());
  keep_variants(space, {"mma"}, built_in());
  set_values(space, "block_m=64", built_in());
  set_values(space, "block_m=128", built_in(), /*more=*/true);
  set_values(space, "raster=n,m", built_in());
  for (const auto& [knob, values] : space.variants[0].values) {
    if (knob == "block_m") {
      EXPECT_EQ(values, (std::vector<int>{64, 128}));
    }
    if (knob == "raster") {
      EXPECT_EQ(values, (std::vector<int>{0, 1}));
    }
  }
}

TEST(Space, MostIsTheLargestLegalValueOfSeveralKnobs) {
  SearchSpace space =
      space_of(R"({"wgmma": {"block_m": [256], "block_n": [128, 192], "block_k": [64], "stages": ["most"],
    "raster": ["m"], "group": [1], "consumers": [2, 3], "schedule": ["cooperative"], "swap": ["yes"], "cluster": ["none"],
    "in_flight": [1], "tma_x": ["most"], "tma_store": ["no"], "tiles": ["static"]}})");
  Shape gathered = small_shape();
  gathered.fusion.permute_x = true;
  for (const auto& [s, tma] : {std::pair(small_shape(), 1), std::pair(gathered, 0)}) {
    const std::vector<Candidate> legal = enumerate(space, s, device_of_arch("sm_90a")).legal;
    ASSERT_EQ(legal.size(), 1u);
    EXPECT_EQ(find_value(legal[0], "stages"), 4);
    EXPECT_EQ(find_value(legal[0], "tma_x"), tma);
  }
  set_values(space, "stages=most", built_in());
  EXPECT_EQ(enumerate(space, small_shape(), device_of_arch("sm_90a")).legal.size(), 1u);
  EXPECT_TRUE(enumerate(space, small_shape(), device_of_arch("sm_80")).legal.empty());
}

// Unswapped tiles of Y in fp8 may spill with a stage in flight, which compiling them shows.
TEST(Space, FullHasQuantisedTilesWithAndWithoutAStageInFlight) {
  SearchSpace space = load_space("full", built_in());
  keep_variants(space, {"wgmma"}, built_in());
  for (const char* values : {"block_m=128", "block_n=256", "block_k=128", "raster=m", "group=1", "consumers=2",
                             "schedule=cooperative", "swap=no", "cluster=none", "tma_x=yes", "tma_store=no",
                             "tiles=static", "pace=own", "split=1", "hold=0", "gather=tiles", "mix=0", "stages=most"})
    set_values(space, values, built_in());
  Shape quantised = small_shape();
  quantised.layer.format = format_named("fp8-block-fp8");
  quantised.fusion.activation = Activation::silu;
  const std::vector<Candidate> legal = enumerate(space, quantised, device_of_arch("sm_90a")).legal;
  ASSERT_EQ(legal.size(), 2u);
  for (const int in_flight : {0, 1})
    EXPECT_EQ(find_value(legal[static_cast<size_t>(in_flight)], "in_flight"), in_flight);
}

TEST(Space, TheDefaultIsOfTheFirstVariantThatTakesTheProblem) {
  Cell cell;
  cell.shape = small_shape();
  cell.tokens = 64;
  cell.routing = parse_routing("uniform");
  SearchSpace space = load_space("quick", built_in());
  EXPECT_EQ(default_candidate(space, make_problem(cell), device_of_arch("sm_90a")).variant->name, "wgmma");
  EXPECT_EQ(default_candidate(space, make_problem(cell), device_of_arch("sm_80")).variant->name, "mma");
  cell.shape.layer.n = 250;  // no whole chunks
  EXPECT_EQ(default_candidate(space, make_problem(cell), device_of_arch("sm_90a")).variant->name, "mma");
  keep_variants(space, {"cpu"}, built_in());
  EXPECT_EQ(error_of([&] { default_candidate(space, make_problem(cell), device_of_arch("sm_80")); }).what,
            "no variant of the space 'quick' runs on a GPU");
}

TEST(Space, SetErrors) {
  SearchSpace space = load_space("quick", built_in());
  EXPECT_EQ(error_of([&] { set_values(space, "block_m", built_in()); }).what, "'block_m' must be knob=value,value");
  EXPECT_EQ(error_of([&] { set_values(space, "block_x=1", built_in()); }).what, "unknown knob 'block_x'");
  keep_variants(space, {"mma"}, built_in());
  EXPECT_EQ(error_of([&] { set_values(space, "threads=1", built_in()); }).what,
            "no variant of the space 'quick' has the knob 'threads'");
  EXPECT_EQ(error_of([&] { keep_variants(space, {"simd"}, built_in()); }).what, "unknown variant 'simd'");
}

TEST(Space, EnumerationCountsEveryReason) {
  SearchSpace space = load_space("full", built_in());
  keep_variants(space, {"mma"}, built_in());
  const Enumeration all = enumerate(space, small_shape(), device_of_arch("sm_90a"));
  int64_t pruned = 0;
  for (const auto& [reason, count] : all.pruned) {
    EXPECT_GT(count, 0) << reason;
    pruned += count;
  }
  EXPECT_EQ(all.total, pruned + static_cast<int64_t>(all.legal.size()));
  EXPECT_EQ(all.total, 5 * 4 * 3 * 2 * 5 * 2 * 4 * 2);
  EXPECT_TRUE(
      all.pruned.contains("stages, block_m, block_n or block_k must be smaller: shared memory over 232448 bytes"));
}

TEST(Space, AnotherDeviceKindIsNotCounted) {
  const SearchSpace space = space_of(R"({"simt": {"block_m": [16], "block_n": [64], "block_k": [8]}})");
  EXPECT_EQ(enumerate(space, small_shape(), device_of_arch("sm_80")).total, 1);
  EXPECT_EQ(enumerate(space, small_shape(), DeviceInfo()).total, 0);
}

TEST(Device, JsonRoundTrips) {
  DeviceInfo device = device_of_arch("sm_90a");
  device.name = "NVIDIA H200";
  device.processors = 132;
  device.peak_flops = 989e12;
  const Json json = to_json(device);
  EXPECT_EQ(device_from_json(JsonAt(json, "x")), device);
}

TEST(Device, ArchitecturesParse) {
  EXPECT_EQ(device_of_arch("sm_90").compute_capability, 90);
  EXPECT_EQ(arch(device_of_arch("sm_90")), "sm_90a");
  EXPECT_EQ(arch(device_of_arch("sm_86")), "sm_86");
  const Caught error = error_of([] { device_of_arch("sm_99a"); });
  EXPECT_EQ(error.what, "unknown architecture 'sm_99a'");
  EXPECT_TRUE(error.hint.starts_with("one of: sm_75, sm_80, ")) << error.hint;  // the nearest word is no remedy
}

TEST(Outcome, EveryStatusHasANameThatParses) {
  for (const Status status : {Status::ok, Status::illegal, Status::compile_error, Status::spills, Status::launch_error,
                              Status::wrong_result, Status::timeout, Status::crashed})
    EXPECT_EQ(parse_status(name(status)), status);
  EXPECT_EQ(error_of([] { parse_status("crash"); }).what, "unknown status 'crash'");
}

TEST(Outcome, AVerdictWithoutANumberRoundTrips) {
  const Verdict verdict{
      .ok = false, .reason = "NaN", .elements = 4, .mismatches = 1, .normalised_error = std::nan(""), .max_ulps = 0.5};
  const Json json = to_json(verdict);
  EXPECT_TRUE(json["normalised_error"].is_null());
  EXPECT_TRUE(std::isnan(verdict_from_json(JsonAt(json, "x")).normalised_error));
  EXPECT_EQ(verdict_from_json(JsonAt(json, "x")).mismatches, 1);
}

SearchSpace only(const std::string& variant) {
  SearchSpace space = load_space("full", built_in());
  keep_variants(space, {variant}, built_in());
  return space;
}

TEST(Space, ACandidateThatIsListedTwiceCountsOnce) {
  const Enumeration all = enumerate(space_of(R"({"mma": {
      "block_m": [64, 64], "block_n": [64], "block_k": [32], "warps": [4], "stages": [3, 6, "most"],
      "raster": ["m"], "group": [1], "split": [1]}})"),
                                    small_shape(), device_of_arch("sm_80"));
  ASSERT_EQ(all.legal.size(), 2u);
  EXPECT_EQ(find_value(all.legal[0], "stages"), 3);
  EXPECT_EQ(find_value(all.legal[1], "stages"), 6);
  EXPECT_EQ(all.total, 2);
}

TEST(Draw, IsDecidedByItsSeed) {
  const DeviceInfo hopper = device_of_arch("sm_90a");
  const auto once = draw(only("wgmma"), small_shape(), hopper, 50, 1).legal;
  EXPECT_EQ(once.size(), 50u);
  EXPECT_EQ(draw(only("wgmma"), small_shape(), hopper, 50, 1).legal, once);
  const auto other = draw(only("wgmma"), small_shape(), hopper, 50, 2).legal;
  EXPECT_LT(std::count_if(other.begin(), other.end(),
                          [&](const Candidate& c) { return std::find(once.begin(), once.end(), c) != once.end(); }),
            5);
}

TEST(Draw, TakesNoneTwiceAndOnlyLegalOnes) {
  const DeviceInfo hopper = device_of_arch("sm_90a");
  const auto drawn = draw(only("wgmma"), small_shape(), hopper, 500, 3).legal;
  EXPECT_EQ(std::set<Candidate>(drawn.begin(), drawn.end()).size(), 500u);
  for (const Candidate& candidate : drawn)
    EXPECT_EQ(find_variant("wgmma").illegal(candidate, small_shape(), hopper), std::nullopt) << text(candidate);
}

TEST(Draw, ReachesEveryValueOfEveryKnob) {
  Shape gathered = small_shape();
  gathered.fusion.permute_x = true;
  const SearchSpace wgmma = only("wgmma");
  std::vector<Candidate> drawn;
  for (const Shape& one : {small_shape(), gathered}) {
    const auto some = draw(wgmma, one, device_of_arch("sm_90a"), 1000, 4).legal;
    drawn.insert(drawn.end(), some.begin(), some.end());
  }
  for (const auto& [name, values] : wgmma.variants[0].values) {
    std::set<int> seen;
    for (const Candidate& candidate : drawn) seen.insert(find_value(candidate, name).value());
    for (const int value : values) EXPECT_TRUE(value == kLargestLegal || seen.contains(value)) << name << "=" << value;
  }
}

TEST(Draw, UsesASmallSpaceUpAsTheEnumerationDoes) {
  const DeviceInfo hopper = device_of_arch("sm_90a");
  const Enumeration drawn = draw(only("mma"), small_shape(), hopper, 1'000'000, 5);
  const Enumeration all = enumerate(only("mma"), small_shape(), hopper);
  EXPECT_EQ(drawn.total, all.total);
  EXPECT_EQ(drawn.pruned, all.pruned);
  EXPECT_GT(drawn.pruned.size(), 1u);
  EXPECT_EQ(std::set<Candidate>(drawn.legal.begin(), drawn.legal.end()),
            std::set<Candidate>(all.legal.begin(), all.legal.end()));
  EXPECT_NE(drawn.legal, all.legal);
}

TEST(Draw, OfNothingIsNothing) {
  SearchSpace none = only("cpu");
  const Enumeration drawn = draw(none, small_shape(), device_of_arch("sm_90a"), 10, 1);
  EXPECT_TRUE(drawn.legal.empty());
  EXPECT_EQ(drawn.total, 0);
}

TEST(Draw, KernelsOfOneShapeServeOthersThatAllowTheSame) {
  Shape other = small_shape();
  other.layer.n = 72, other.layer.k = 1000;
  const DeviceInfo hopper = device_of_arch("sm_90a");
  EXPECT_EQ(draw(only("wgmma"), small_shape(), hopper, 30, 6).legal, draw(only("wgmma"), other, hopper, 30, 6).legal);
}

}  // namespace
}  // namespace moetune
