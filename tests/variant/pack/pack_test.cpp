// Packs: read, refused with the place where they are damaged, legal, launched on sizes without a device.
#include "variant/pack/pack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <stdexcept>

#include "built_in.h"
#include "error_of.h"
#include "pack_folder.h"
#include "variant/pack/pack_launch.h"
#include "variant/space/domain.h"
#include "variant/space/space.h"

namespace moetune {
namespace {

Shape shape_of(int64_t n = 256, int64_t k = 512) {
  Shape shape;
  shape.layer = {.model = "custom", .experts = 6, .top_k = 2, .n = n, .k = k};
  return shape;
}

class PackTest : public testing::Test {
 protected:
  Pack load(const Json& manifest = toy_manifest()) const {
    write_toy_pack(folder_, manifest);
    return load_pack(folder_.path());
  }
  std::string refused(const Json& manifest) const {
    const Caught caught = error_of([&] { load(manifest); });
    EXPECT_EQ(caught.exit, Exit::request);
    const std::string place = (folder_.path() / "pack.json").string() + ": ";
    return caught.what.starts_with(place) ? caught.what.substr(place.size()) : caught.what;
  }
  std::string refused(const char* place, const Json& value) const {
    Json manifest = toy_manifest();
    manifest[Json::json_pointer(place)] = value;
    return refused(manifest);
  }
  Catalog catalog() const { return Catalog({folder_.path().string()}); }

  TemporaryFolder folder_;
};

// Equal to candidates of the pack: they are compared by the variant's name.
Candidate toy(int block_m, int fast) {
  const auto variant = std::make_shared<Variant>();
  variant->name = "toy";
  return {.variant = variant, .values = {block_m, fast}};
}

TEST_F(PackTest, IsReadWithItsKnobsFilesAndCandidates) {
  const Pack pack = load();
  EXPECT_EQ(pack.variant, "toy");
  ASSERT_EQ(pack.knobs.size(), 2u);
  EXPECT_EQ(pack.knobs[0].values, (std::vector<int>{16, 32, 64}));
  EXPECT_EQ(pack.knobs[1].words, (std::vector<std::string>{"no", "yes"}));
  EXPECT_EQ(pack.fallback, (std::vector<int>{32, 1}));
  EXPECT_EQ(pack.candidates.size(), 5u);
  EXPECT_EQ(pack.hash.size(), 12u);
  EXPECT_EQ(binary_of(pack, {16, 0}, shape_of())->entry, "slow");
  EXPECT_EQ(binary_of(pack, {64, 1}, shape_of()), nullptr);
  EXPECT_EQ(read_pack_file(pack, "slow.cubin"), "the bytes of slow.cubin");
}

TEST_F(PackTest, AnotherManifestHasAnotherHash) {
  const std::string hash = load().hash;
  EXPECT_EQ(load().hash, hash);
  Json manifest = toy_manifest();
  manifest["summary"] = "others";
  EXPECT_NE(load(manifest).hash, hash);
}

TEST_F(PackTest, ADamagedManifestIsRefusedWithThePlace) {
  EXPECT_EQ(refused("/schema", "moetune.kernels/1"), "its schema is 'moetune.kernels/1', expected 'moetune.pack/1'");
  EXPECT_EQ(refused("/variant", "a b"), "variant: 'a b' does not match ^[A-Za-z_][A-Za-z0-9_]*$");
  EXPECT_EQ(refused("/knobs/0/name", "rows"), "knobs[0].name: 'rows' has another meaning in packs");
  EXPECT_EQ(refused("/knobs/1/name", "block_m"), "knobs[1].name: 'block_m' has another meaning in packs");
  EXPECT_EQ(refused("/knobs/0/values/1", 16), "knobs[0].values: has 16 twice");
  EXPECT_EQ(refused("/knobs/1/default", "maybe"), "knobs[1].default: unknown value for fast 'maybe'");
  EXPECT_EQ(refused("/computes/0/fusion", "permute"), "computes[0].fusion: 'permute' is not a fusion");
  EXPECT_EQ(refused("/computes/0/weighting", "result"),
            "computes[0].weighting: 'result' is not a weighting of fwd plain");
  EXPECT_EQ(refused("/rules/0/zero", "k % rows"), "rules[0].zero: formula 'k % rows', column 5: unknown name 'rows'");
  EXPECT_EQ(refused("/binaries/0/files/sm_90a", "none.cubin"),
            "binaries[0].files.sm_90a: 'none.cubin' is not among files");
  EXPECT_EQ(refused("/binaries/1/trailing/0/pointer", "room"),
            "binaries[1].trailing[0].pointer: no operand or buffer is called 'room'");
  EXPECT_EQ(refused("/candidates/1", Json({16, "no", 0})), "candidates[1]: appears twice");
  EXPECT_EQ(refused("/candidates/1", Json({16, "no"})), "candidates[1]: expected 3 values");
  EXPECT_EQ(refused("/candidates/1/0", 24), "candidates[1][0]: 24 is not among the values of block_m");
  EXPECT_TRUE(refused("/candidates/1/2", 2).starts_with("candidates[1][2]: "));
  EXPECT_EQ(refused("/operands/0/dtype", "fp16"), "operands[0].dtype: the dtype of 'x' must be bf16");
  EXPECT_EQ(refused("/operands/0/name", "dy"), "operands[0].name: fwd has no operand 'dy'");
  EXPECT_EQ(refused("/operands/1/name", "x"), "operands[1].name: 'x' appears twice");
  EXPECT_EQ(refused("/launches/2/cubin", "other"), "launches[2].cubin: expected \"candidate\", found \"other\"");
  EXPECT_EQ(refused("/launches/2/grid", "tiles"), "launches[2].grid: formula 'tiles', column 1: unknown name 'tiles'");
  Json none = toy_manifest();
  none["launches"].erase(2);
  EXPECT_EQ(refused(none), "launches: expected one launch whose cubin is 'candidate'");
  EXPECT_EQ(refused("/files/..%slow.cubin", 1),
            R"(files...%slow.cubin: '..%slow.cubin' does not match ^[^./\\][^/\\]*$)");
}

TEST_F(PackTest, AFileThatWasChangedOrIsMissingIsRefused) {
  load();
  folder_.write("fast.cubin", "the bytes of slow.cubin");
  const std::string place = (folder_.path() / "fast.cubin").string() + ": ";
  EXPECT_EQ(error_of([&] { load_pack(folder_.path()); }).what, place + "its SHA-256 differs from the one in pack.json");
  folder_.write("fast.cubin", "the bytes");
  EXPECT_EQ(error_of([&] { load_pack(folder_.path()); }).what, place + "has 9 bytes, but pack.json says 23");
  std::filesystem::remove(folder_.path() / "fast.cubin");
  EXPECT_EQ(error_of([&] { load_pack(folder_.path()); }).exit, Exit::request);
  EXPECT_TRUE(holds(error_of([&] { load_pack(folder_.path() / "none"); }).what, "is not a folder"));
}

TEST_F(PackTest, SaysWhatIsLegalAndWhyNot) {
  write_toy_pack(folder_);
  const VariantPtr variant = catalog().find("toy");
  const auto reason = [&](const Candidate& c, const Shape& shape, const char* arch = "sm_90a") {
    return variant->illegal(c, shape, device_of_arch(arch)).value_or("");
  };
  EXPECT_EQ(reason(toy(32, 1), shape_of()), "");
  EXPECT_EQ(reason(toy(32, 1), shape_of(256, 100)), "k must be a multiple of 8");
  EXPECT_EQ(reason(toy(32, 1), shape_of(16)), "n must be at least block_m");
  EXPECT_EQ(reason(toy(16, 1), shape_of(16)), "");
  EXPECT_EQ(reason(toy(64, 1), shape_of()), "the pack has no kernel that was compiled for these knobs");
  EXPECT_EQ(reason(toy(32, 0), shape_of(), "sm_80"), "the pack has no kernel for sm_80: it was compiled for sm_90a");
  EXPECT_EQ(reason(toy(32, 1), shape_of(), "sm_80"),
            "the kernel needs more than the 166912 bytes of shared memory that a block may have");
  Shape dx = shape_of();
  dx.op = Op::dx;
  EXPECT_EQ(reason(toy(32, 1), dx), "toy computes fwd bf16 plain, and this is dx bf16 plain");
}

TEST_F(PackTest, PtxRunsOnWhatIsNewerAndACubinStandsBeforeIt) {
  const Pack pack = load();
  const auto file = [&](int capability) {
    const std::string* found = file_for(pack, pack.binaries[1].files, capability);
    return found ? *found : "";
  };
  EXPECT_EQ(file(90), "fast.cubin");
  EXPECT_EQ(file(80), "fast.ptx");
  EXPECT_EQ(file(100), "fast.ptx");
  EXPECT_EQ(file(75), "");
}

TEST_F(PackTest, OfFilesThatRunTheOneForTheNewestArchitectureIsTaken) {
  Pack pack = load();
  const std::map<std::string, std::string> files = {{"sm_100", "100.ptx"},
                                                    {"sm_80", "80.cubin"},
                                                    {"sm_86", "86.cubin"},
                                                    {"sm_90", "90.cubin"},
                                                    {"sm_90a", "90a.cubin"}};
  const std::map<std::string, std::string> texts = {{"sm_80", "80.ptx"}, {"sm_90", "90.ptx"}, {"sm_100", "100.ptx"}};
  for (const auto* table : {&files, &texts})
    for (const auto& [arch, name] : *table) pack.files[name].arch = arch;
  EXPECT_EQ(*file_for(pack, files, 80), "80.cubin");
  EXPECT_EQ(*file_for(pack, files, 86), "86.cubin");
  EXPECT_EQ(*file_for(pack, files, 90), "90a.cubin");
  EXPECT_EQ(*file_for(pack, files, 120), "100.ptx");
  EXPECT_EQ(*file_for(pack, texts, 89), "80.ptx");
  EXPECT_EQ(*file_for(pack, texts, 100), "100.ptx");
}

TEST_F(PackTest, TheDefaultIsTheManifestsOrTheNearestThatIsLegal) {
  write_toy_pack(folder_);
  const VariantPtr variant = catalog().find("toy");
  Cell cell{.shape = shape_of(), .tokens = 8, .routing = parse_routing("uniform")};
  EXPECT_EQ(variant->fallback(make_problem(cell), device_of_arch("sm_90a")), toy(32, 1));
  cell.shape.layer.n = 16;  // rules out block_m=32
  EXPECT_EQ(variant->fallback(make_problem(cell), device_of_arch("sm_90a")), toy(16, 1));
}

// As much as a step holds: 7 blocks of the step that prepares, 300 of the candidate.
int64_t held(const PackStep& step) { return step.entry == "put_in_order" ? 7 : 300; }

Sizes sizes() {
  const Cell cell{.shape = shape_of(), .tokens = 40, .routing = parse_routing("uniform"), .seed = 3};
  Sizes sizes = sizes_of(product_of(make_problem(cell)));
  sizes["processors"] = 132;
  return sizes;
}

template <typename T>
T value_at(const LaunchArgument& argument, size_t offset) {
  T value;
  std::memcpy(&value, argument.bytes.data() + offset, sizeof value);
  return value;
}

TEST_F(PackTest, ALaunchHasGridsArgumentsAndBuffersOfTheSizesAndKnobs) {
  const Pack pack = load();
  const PackLaunch launch = pack_launch(pack, toy(32, 1), shape_of(), sizes(), 90, held);
  ASSERT_EQ(launch.steps.size(), 3u);
  EXPECT_EQ(launch.steps[0].fill.pointer, "order");
  EXPECT_EQ(launch.steps[0].fill.byte, 255);
  EXPECT_EQ(launch.steps[0].fill.bytes, (80 + 6 * 32) * 4);
  const PackStep &order = launch.steps[1], &own = launch.steps[2];
  EXPECT_EQ(order.file, "order.cubin");
  EXPECT_EQ(order.entry, "put_in_order");
  EXPECT_EQ(order.grid[0], 6);
  ASSERT_EQ(order.arguments.size(), 3u);
  EXPECT_EQ(order.arguments[2].bytes.size(), 4u);
  EXPECT_EQ(value_at<int32_t>(order.arguments[2], 0), 32);
  EXPECT_EQ(own.file, "fast.cubin");
  EXPECT_EQ(own.entry, "fast");
  EXPECT_EQ(own.threads, 128);
  EXPECT_EQ(own.shared_bytes, 200000);
  EXPECT_EQ(own.grid[0], (80 / 32 + 6) * 4);
  ASSERT_EQ(own.arguments.size(), 5u);
  const LaunchArgument& whole = own.arguments[0];
  EXPECT_EQ(whole.bytes.size(), 48u);
  ASSERT_EQ(whole.pointers.size(), 3u);
  EXPECT_EQ(whole.pointers[1].name, "w");
  EXPECT_EQ(whole.pointers[1].offset, 8u);
  EXPECT_EQ(value_at<int64_t>(whole, 24), 256);
  EXPECT_EQ(value_at<int32_t>(whole, 32), 1);
  EXPECT_EQ(value_at<int32_t>(whole, 36), 300);
  EXPECT_EQ(own.arguments[3].pointers.at(0).name, "scratch");
  EXPECT_EQ(own.arguments[4].pointers.at(0).name, "null");
  std::map<std::string, int64_t> buffers;
  for (const LaunchBuffer& buffer : launch.buffers) buffers[buffer.name] = buffer.bytes;
  EXPECT_EQ(buffers, (std::map<std::string, int64_t>{{"order", 272 * 4}, {"scratch", 32 * 512}, {"done", 4}}));
  EXPECT_TRUE(launch.buffers[2].zeroed);
}

TEST_F(PackTest, AStructOfAnotherCandidateHasItsKnobs) {
  const PackLaunch launch = pack_launch(load(), toy(64, 0), shape_of(), sizes(), 90, held);
  EXPECT_EQ(launch.steps[2].entry, "slow");
  EXPECT_EQ(launch.steps[2].grid[0], (80 / 64 + 6) * 4);
  EXPECT_EQ(launch.steps[2].arguments.size(), 3u);  // its binary has none behind them
  EXPECT_EQ(value_at<int32_t>(launch.steps[2].arguments[0], 32), 0);
}

TEST_F(PackTest, ATensorMapHasTheFormulasOfItsRule) {
  Json manifest = toy_manifest();
  manifest["launches"][2]["arguments"].push_back(Json::parse(R"({"tensor_map": {"pointer": "x", "dtype": "bf16",
    "sizes": ["k", "rows"], "strides": ["k * 2"], "box": [64, 128], "swizzle": 128, "l2_promotion": 128}})"));
  const PackLaunch launch = pack_launch(load(manifest), toy(16, 0), shape_of(), sizes(), 90, held);
  const LaunchArgument& argument = launch.steps[2].arguments[3];
  EXPECT_EQ(argument.bytes.size(), 128u);
  ASSERT_EQ(argument.maps.size(), 1u);
  EXPECT_EQ(argument.maps[0].shape.pointer, "x");
  EXPECT_EQ(argument.maps[0].shape.box_rows, 128);
  EXPECT_EQ(argument.maps[0].shape.strides[0], 1024u);
}

TEST_F(PackTest, TheBinaryIsThatOfTheFirstComputationThatApplies) {
  Json manifest = toy_manifest();
  const Json plain = manifest["computes"][0];
  const auto when = [&](const char* formula) {
    Json one = plain;
    one["when"] = formula;
    return one;
  };
  Json scattered = plain;
  scattered["fusion"] = "permute_x+by_slot";
  manifest["computes"] = {when("max(41 - tokens, 0)"), when("k / 1024"), plain, scattered};
  manifest["candidates"] = Json::parse(R"([[16, "no", 0, 1, 1, null], [32, "no", null, 1, null, 0]])");
  const Pack pack = load(manifest);
  const auto entry = [&](int block_m, int64_t k, const Sizes& more = {}) {
    const PackBinary* binary = binary_of(pack, {block_m, 0}, shape_of(256, k), more);
    return binary ? binary->entry : "none";
  };
  EXPECT_EQ(entry(16, 512), "slow");  // it depends on tokens, which are not known yet
  EXPECT_EQ(entry(16, 512, {{"tokens", 40}}), "slow");
  EXPECT_EQ(entry(16, 512, {{"tokens", 41}}), "fast");
  EXPECT_EQ(entry(32, 512), "none");
  EXPECT_EQ(entry(32, 1024), "fast");
  Shape by_slot = shape_of();
  by_slot.fusion = {.permute_x = true, .by_slot = true};
  EXPECT_EQ(binary_of(pack, {16, 0}, by_slot), nullptr);
  EXPECT_EQ(binary_of(pack, {32, 0}, by_slot)->entry, "slow");
  manifest["candidates"] = Json::parse(R"([[16, "no", 0, 1]])");
  EXPECT_EQ(refused(manifest), "candidates[0]: expected 3 values, or 6: a binary for each of computes");
}

TEST_F(PackTest, OperandsOfFp8HaveScales) {
  Json manifest = toy_manifest();
  manifest["computes"][0]["dtype"] = "fp8-channel-fast";
  for (const int matrix : {0, 1}) manifest["operands"][matrix]["dtype"] = "fp8";
  manifest["operands"].push_back({{"name", "x_scales"},
                                  {"dtype", "fp32"},
                                  {"shape", {"x_rows"}},
                                  {"access", "read"},
                                  {"strides", {"x_scale_row"}}});
  EXPECT_EQ(load(manifest).computes[0].format, "fp8-channel-fast");
  manifest["operands"][4]["strides"] = {"1"};
  EXPECT_EQ(refused(manifest), "operands[4].strides[0]: '1' is not a distance of scales");
  manifest["operands"][4].erase("strides");
  manifest["operands"][4]["name"] = "x_scales_mn_major";
  EXPECT_EQ(refused(manifest), "operands[4].name: fwd has no operand 'x_scales_mn_major'");
  manifest["computes"][0]["dtype"] = "fp8-block";
  EXPECT_EQ(load(manifest).computes[0].format, "fp8-block");
  EXPECT_EQ(refused("/operands/0/dtype", "fp8"), "operands[0].dtype: the dtype of 'x' must be bf16");
}

TEST_F(PackTest, AGridHasUpToThreeSidesAndAStepMayBeUntimed) {
  Json manifest = toy_manifest();
  manifest["launches"][1]["timed"] = false;
  manifest["launches"][2]["grid_y"] = "experts", manifest["launches"][2]["grid_z"] = "2";
  const PackLaunch launch = pack_launch(load(manifest), toy(32, 1), shape_of(), sizes(), 90, held);
  EXPECT_FALSE(launch.steps[1].timed);
  EXPECT_TRUE(launch.steps[0].timed && launch.steps[2].timed);
  EXPECT_EQ(launch.steps[2].grid[1] * launch.steps[2].grid[2], 12);
  EXPECT_EQ(launch.buffers[1].bytes, 32 * 12 * 512);  // scratch of all blocks
  manifest["launches"][1]["arguments"][1]["pointer"] = "x";
  EXPECT_EQ(refused(manifest), "launches[1].arguments[1].pointer: a launch that is not timed cannot take 'x'");
}

TEST_F(PackTest, ALaunchThatCannotBeIsRefused) {
  const auto why = [&](const char* place, const Json& value) -> std::string {
    Json manifest = toy_manifest();
    manifest[Json::json_pointer(place)] = value;
    const Pack pack = load(manifest);
    try {
      pack_launch(pack, toy(32, 1), shape_of(), sizes(), 90, held);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(why("/launches/2/grid", "rows - 80"), "the pack: launches[2].grid: is 0 blocks: expected 1 to 2^31 - 1");
  EXPECT_EQ(why("/buffers/1/bytes", "rows - 81"), "the pack: buffers[1].bytes: is -1 bytes: expected 0 to 2^46");
  EXPECT_EQ(why("/launches/0/fill/bytes", "rows - 81"),
            "the pack: launches[0].fill.bytes: is -1 bytes: expected 0 to 2^46");
  EXPECT_EQ(why("/launches/0/fill/bytes", "rows * rows"), "a launch fills 6400 bytes of 'order', which has 1088");
  EXPECT_EQ(why("/launches/2/grid", "n / (k - 512)"),
            "the pack: launches[2].grid: formula 'n / (k - 512)', column 14: division by zero");
  EXPECT_EQ(why("/launches/2/grid", "n / (k - 511)"), "");
}

TEST_F(PackTest, JoinsTheCatalogAndTheSpaces) {
  write_toy_pack(folder_);
  const std::string folder = folder_.path().string();
  const Catalog catalog({folder, folder});  // the second time changes nothing
  EXPECT_EQ(catalog.variants().size(), 5u);
  EXPECT_EQ(catalog.variants().back()->name, "toy");
  EXPECT_EQ(catalog.pack_names(), "toy " + load_pack(folder).hash);
  EXPECT_EQ(Catalog().variants().size(), 4u);  // of its own
  EXPECT_EQ(text(parse_candidate("toy block_m=16 fast=no", catalog)), "toy block_m=16 fast=no");
  for (const char* name : {"all", "quick"}) {
    const SearchSpace space = load_space(name, catalog);
    EXPECT_EQ(space.variants.back().variant->name, "toy") << name;
    EXPECT_EQ(space.variants.back().values.size(), 2u) << name;
  }
  SearchSpace space = load_space("quick", catalog);
  keep_variants(space, {"toy"}, catalog);
  const Enumeration all = enumerate(space, shape_of(), device_of_arch("sm_90a"));
  EXPECT_EQ(all.total, 6);
  EXPECT_EQ(all.legal.size(), 5u);
  EXPECT_EQ(all.pruned.at("the pack has no kernel that was compiled for these knobs"), 1);
}

TEST_F(PackTest, ANameThatIsTakenIsRefused) {
  write_toy_pack(folder_);
  const TemporaryFolder other;
  Json manifest = toy_manifest();
  manifest["summary"] = "others";
  write_toy_pack(other, manifest);
  const auto refused = [&] {
    return error_of([&] { Catalog({folder_.path().string(), other.path().string()}); }).what;
  };
  EXPECT_TRUE(holds(refused(), "whose name is taken by")) << refused();
  manifest["variant"] = "mma";
  write_toy_pack(other, manifest);
  EXPECT_TRUE(holds(refused(), "has the variant 'mma', whose name is taken by a variant that is built in"));
}

TEST_F(PackTest, ACandidateNamesItsPackInJson) {
  write_toy_pack(folder_);
  const Catalog here = catalog();
  const Candidate candidate{.variant = here.find("toy"), .values = {16, 0}};
  const Json json = to_json(candidate);
  EXPECT_EQ(json,
            Json({{"variant", "toy"}, {"pack", load_pack(folder_.path()).hash}, {"block_m", 16}, {"fast", "no"}}));
  EXPECT_EQ(candidate_from_json(JsonAt(json, "x"), here), candidate);
  Json other = json;
  other["pack"] = "0123456789ab";
  const Candidate foreign = candidate_from_json(JsonAt(other, "x"), here);
  EXPECT_FALSE(foreign.foreign.empty());
  EXPECT_EQ(difference(foreign, with_value(candidate, "block_m", 32)), "block_m=16");
  EXPECT_EQ(cannot_run(foreign, shape_of(), device_of_arch("sm_90a")),
            "toy is of a pack with the hash 0123456789ab, which is not loaded; name its folder with --pack");
}

// A table of another build of the pack, for a warm start.
TEST_F(PackTest, CandidatesOfAnotherBuildHaveNoPlaceInADomain) {
  write_toy_pack(folder_);
  const Catalog here = catalog();
  SearchSpace space = load_space("all", here);
  keep_variants(space, {"toy"}, here);
  const Domain domain(space, shape_of(), device_of_arch("sm_90a"));
  const Candidate own{.variant = here.find("toy"), .values = {16, 0}};
  Candidate foreign = own;
  foreign.values = {};
  foreign.foreign = {{"pack", "0123456789ab"}, {"block_m", "16"}, {"fast", "no"}};
  EXPECT_FALSE(domain.has(foreign));
  EXPECT_EQ(domain.nearest(foreign), std::nullopt);
  EXPECT_TRUE(domain.neighbours(foreign).empty());
  EXPECT_TRUE(domain.has(own));
  EXPECT_EQ(domain.nearest({}), std::nullopt);  // no candidate at all
}

}  // namespace
}  // namespace moetune
