// Tables: their JSON, the checks of its reader, files on disk and derived figures.
#include "record/table/table.h"

#include <fstream>

#include "base/random.h"
#include "built_in.h"
#include "record/chosen.h"
#include "record/sample.h"
#include "variant/variant.h"

namespace moetune {
namespace {

using sample::Folder;
using sample::small_table;

std::filesystem::path write(const std::filesystem::path& path, const TunedTable& table) {
  KeptFile file(path);
  return write_table(file, table);
}

TunedTable reread(const TunedTable& table) {
  const Json json = Json::parse(pretty_json(to_json(table)));
  return table_from_json(JsonAt(json, "t.json"), built_in());
}

TEST(TableJson, IsTheGoldenTextAndReadAndWrittenTheSame) {
  sample::expect_golden("table.json", pretty_json(to_json(sample::toys(small_table()))));
  EXPECT_EQ(pretty_json(to_json(reread(small_table()))), pretty_json(to_json(small_table())));
  EXPECT_TRUE(reread(sample::table()).entries.empty());
  const Folder folder;
  write(folder / "t.json", small_table());
  EXPECT_EQ(to_json(read_table(folder / "t.json", built_in())), to_json(small_table()));
}

TEST(TableJson, DerivedFiguresOfManyTimesAreStable) {
  for (int i = 1; i < 400; ++i) {
    TunedTable table =
        sample::table({sample::entry(sample::cell(sample::small_up(), 16), sample::mma(16), 0.9173 * i * i + 1.0 / i)});
    table.entries[0].flops = 123456789.0 * i;
    table.entries[0].bytes = 98765432.1 * i;
    table.entries[0].rivals[0].ratio = {0.5 + i / 777.0, 0.5, 2};
    ASSERT_EQ(pretty_json(to_json(reread(table))), pretty_json(to_json(table))) << i;
  }
}

TEST(TableJson, AnUnknownRoofIsNull) {
  TunedTable table = small_table();
  table.device.peak_flops = 0;
  EXPECT_TRUE(to_json(table)["entries"][0]["derived"]["percent_of_roof"].is_null());
  EXPECT_NO_THROW(reread(table));
}

TEST(TableJson, UnknownFieldsAreIgnored) {
  Json json = to_json(small_table());
  json["written"] = "today";
  json["entries"][0]["power"] = {{"watts", 412}};
  json["entries"][0]["cell"]["colour"] = "blue";
  json["entries"][0]["measurement"]["mean_us"] = -1;
  json["entries"][0]["derived"]["watts"] = "gone";
  EXPECT_EQ(table_from_json(JsonAt(json, "t"), built_in()).entries.size(), 3u);
}

TEST(TableJson, WidensABootstrapIntervalThatMissesItsMedian) {
  TunedTable table = small_table();
  table.entries[0].rivals[0].ratio = {0.9, 0.9001, 0.95};
  EXPECT_DOUBLE_EQ(reread(table).entries[0].rivals[0].ratio.low, 0.9);
}

TEST(TableJson, AShardHoldsItsOwnExpertsOnly) {
  Layer layer = sample::small_up();
  layer.experts = 8;
  layer.ep = 2;
  const TunedTable table =
      sample::table({sample::entry(sample::cell(layer, 16, "uniform", UINT64_MAX), sample::mma(16), 5)});
  EXPECT_EQ(reread(table).entries[0].cell.seed, UINT64_MAX) << "all 64 bits";
  EXPECT_EQ(table.entries[0].m_sizes.size(), 4u);
  EXPECT_EQ(reread(table).entries[0].m_sizes, table.entries[0].m_sizes);
}

// What contradicts itself; tests/cli/test_validate.py damages what the schema describes.
TEST(TableJson, DamageIsRefusedWithThePlace) {
  const auto read = [](const JsonAt& json) { table_from_json(json, built_in()); };
  sample::expect_refused(
      to_json(small_table()), "t.json",
      {{"/schema", "", "t.json: expected a table file, but \"schema\" is missing"},
       {"/schema", "\"moetune.bench/1\"", "t.json: its schema is 'moetune.bench/1', expected 'moetune.table/1'"},
       {"/schema", "\"moetune.table/2\"", "t.json: its schema is 'moetune.table/2', expected 'moetune.table/1'"},
       {"/regime", "\"calm\"", "t.json: regime: unknown regime 'calm'"},
       {"/entries/0/cell/top_k", "5", "t.json: entries[0].cell: top_k 5 is more than the 4 experts"},
       {"/entries/0/m_sizes", "[8, 8, 8]", "t.json: entries[0].m_sizes: has 3 experts, the layer 4"},
       {"/entries/0/m_sizes", "[8, 8, 8, 9]",
        "t.json: entries[0].m_sizes: the rows sum to 33, but 16 tokens with top_k 2 make 32"},
       {"/entries/0/m_sizes/2", "17", "t.json: entries[0].m_sizes[2]: 17 rows are more than the 16 tokens"},
       {"/entries/0/figures/rows", "31", "t.json: entries[0].figures.rows: 31 contradicts m_sizes: expected 32"},
       {"/entries/0/figures/active_experts", "1",
        "t.json: entries[0].figures.active_experts: 1 contradicts m_sizes: expected 4"},
       {"/entries/0/figures/max_over_mean", "3",
        "t.json: entries[0].figures.max_over_mean: 3 contradicts m_sizes: expected 1.25"},
       {"/entries/0/id", "\"custom/up/fwd/bf16/t17/uniform/e4/top2/n64/k32\"",
        "t.json: entries[0].id: \"custom/up/fwd/bf16/t17/uniform/e4/top2/n64/k32\" contradicts the cell: expected "
        "\"custom/up/fwd/bf16/t16/uniform/e4/top2/n64/k32\""},
       {"/entries/0/derived/tflops", "1",
        "t.json: entries[0].derived.tflops: 1 contradicts the times, ratios, flops and bytes: expected 0.01062"},
       {"/entries/0/derived/speedup/default", "31.48",
        "t.json: entries[0].derived.speedup.default: 31.48 contradicts the times, ratios, flops and bytes: "
        "expected 1.25"},
       {"/entries/0/rivals/1/measurement",
        R"({"median_us": 54, "low_us": 53, "high_us": 55, "samples": 11, "launches": 220, "clock_mhz": 0})",
        "t.json: entries[0].rivals[1].ratio: 0.5 contradicts the times 12.3457 and 54 us: expected "
        "0.2286"},
       {"/entries/0/candidate/block_m", "17",
        "t.json: entries[0].candidate: the table's own device cannot run it: block_m must be a multiple of 16 in "
        "16 to 256"},
       {"/entries/0/rivals/0/candidate/warps", "64",
        "t.json: entries[0].rivals[0]: the table's own device cannot run it: warps must be 4 or 8"},
       {"/entries/0/candidate/block_m", "", "t.json: entries[0].candidate: 'block_m' is missing"},
       {"/entries/0/verdict/ok", "false", "t.json: entries[0].verdict: the winner's result is wrong"},
       {"/entries/0/rivals/1/name", "\"default\"", "t.json: entries[0].rivals[1]: 'default' is in the list twice"},
       {"/entries/0/rivals/0/ratio_high", "0.75",
        "t.json: entries[0].rivals[0]: the ratio 0.8 lies outside its interval 0.784 to 0.75"},
       {"/entries/0/rivals/0/candidate/warps", "\"four\"",
        "t.json: entries[0].rivals[0].candidate.warps: expected an integer, found a string"},
       {"/entries/0/ties/1/stages", "null",
        "t.json: entries[0].ties[1].stages: expected an integer or a string, found null"},
       {"/entries/0/candidates/failed", "91", "t.json: entries[0].candidates.failed: 91 is outside 0 to 90"},
       {"/entries/2/candidate", "{}", "t.json: entries[2].candidate: 'variant' is missing"}},
      read);
}

TEST(TableJson, AnUnknownVariantNamesThePlaceAndTheNearest) {
  Json json = to_json(small_table());
  json["entries"][0]["candidate"]["variant"] = "nma";
  const auto fault = error_of([&] { table_from_json(JsonAt(json, "t.json"), built_in()); });
  EXPECT_TRUE(holds(fault.what, "t.json: entries[0].candidate")) << fault.what;
  EXPECT_EQ(fault.hint, "did you mean 'mma'?");
}

TEST(TableJson, TheSameCellTwiceIsAContradiction) {
  Json json = to_json(small_table());
  json["entries"].push_back(json["entries"][1]);
  EXPECT_EQ(error_of([&] { table_from_json(JsonAt(json, "t.json"), built_in()); }).what,
            "t.json: entries[3]: the same cell as entries[1]: custom/up/fwd/bf16/t64/zipf:1/e4/top2/n64/k32/seed3");
}

TEST(TableJson, AnUntrustedEntryMayHaveARatioThatContradictsItsTimes) {
  TunedTable table = small_table();
  Rival& loop = table.entries[0].rivals[1];
  loop.ratio = {0.2, 0.198, 0.202};
  const Json json = to_json(table);
  EXPECT_EQ(json["entries"][0]["untrusted"], "its ratio to cublas-loop, 0.2, contradicts their times");
  EXPECT_EQ(reread(table).entries[0].rivals[1].ratio.value, 0.2);
  Json unmarked = json;
  unmarked["entries"][0].erase("untrusted");
  EXPECT_EQ(error_of([&] { table_from_json(JsonAt(unmarked, "t.json"), built_in()); }).what,
            "t.json: entries[0].rivals[1].ratio: 0.2 contradicts the times 12.3457 and 24.6914 us: expected "
            "0.5");
}

TEST(TableJson, ACandidateOfKernelsFromBeforeIsLeftToCheck) {
  TunedTable table = small_table();
  table.entries[0].candidate.unknown_knobs = "stream_k=yes";
  EXPECT_TRUE(cannot_run(table.entries[0].candidate, table.entries[0].cell.shape, table.device).has_value());
  const Json json = to_json(table);
  EXPECT_EQ(json["entries"][0]["candidate"]["stream_k"], "yes");
  EXPECT_EQ(reread(table).entries[0].candidate.unknown_knobs, "stream_k=yes");
}

TEST(TableFile, EveryTableOfTheRepositoryIsRead) {
  int tables = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::string(MOETUNE_SOURCE_DIR) + "/configs/tuned")) {
    if (file.path().extension() != ".json") continue;
    ++tables;
    const TunedTable table = read_table(file.path(), built_in());
    for (const Entry& entry : table.entries) EXPECT_EQ(distrust(entry), "") << file.path() << " " << id(entry.cell);
  }
  EXPECT_GE(tables, 4);
}

TEST(TableFile, TheTableBeforeIsKept) {
  const Folder folder;
  TunedTable other = small_table();
  other.entries.pop_back();
  write(folder / "t.json", small_table());
  EXPECT_EQ(write(folder / "t.json", small_table()), "");  // the same
  EXPECT_EQ(write(folder / "t.json", other), folder / "t.json.old");
  EXPECT_EQ(read_table(folder / "t.json.old", built_in()).entries.size(), 3u);
}

TEST(TableFile, OneCutAnywhereIsAnErrorThatNamesTheFile) {
  const Folder folder;
  write(folder / "t.json", small_table());
  const std::string text = read_text(folder / "t.json");
  for (size_t length = 0; length + 2 < text.size(); length += 97) {
    std::ofstream(folder / "cut.json", std::ios::binary | std::ios::trunc) << text.substr(0, length);
    const auto fault = error_of([&] { read_table(folder / "cut.json", built_in()); });
    ASSERT_EQ(fault.exit, Exit::request);
    ASSERT_TRUE(holds(fault.what, (folder / "cut.json").string())) << fault.what;
  }
}

TEST(TableFile, ChangedBytesAreReadOrRefused) {
  Random random(1);
  for (const TunedTable& whole : {small_table(), sample::chosen_table()}) {
    const std::string text = pretty_json(to_json(whole));
    int refused = 0;
    for (int i = 0; i < 1500; ++i) {
      std::string changed = text;
      for (uint64_t changes = 1 + random.below(3); changes > 0; --changes)
        changed[random.below(changed.size())] =
            static_cast<char>(random.below(2) ? '0' + random.below(10) : random.below(256));
      try {
        const Json json = parse_json(changed, "t.json");
        const TunedTable table = table_from_json(JsonAt(json, "t.json"), built_in());
        ASSERT_EQ(table.entries.size(), whole.entries.size());
        to_json(table);
      } catch (const Error& error) {
        ASSERT_EQ(error.exit(), Exit::request) << error.what();
        ASSERT_TRUE(holds(error.what(), "t.json")) << error.what();
        ++refused;
      }
    }
    EXPECT_GT(refused, 500);
  }
}

TEST(ToolJson, HasTheProgramAndItsArguments) {
  const Json tool = tool_json({"moetune", "tune", "--device", "cpu"});
  EXPECT_EQ(tool["name"], "moetune");
  EXPECT_FALSE(tool["version"].get<std::string>().empty());
  EXPECT_FALSE(tool["commit"].get<std::string>().empty());
  EXPECT_TRUE(tool["dirty"].is_boolean());
  EXPECT_EQ(tool["argv"].dump(), R"(["moetune","tune","--device","cpu"])");
}

TEST(Derived, SpeedsAreOnRealRows) {
  Entry entry;
  entry.flops = 2e12;
  entry.bytes = 3e9;
  entry.measurement.time.value = 1e-3;
  EXPECT_DOUBLE_EQ(tflops(entry), 2000);
  EXPECT_DOUBLE_EQ(terabytes_per_second(entry), 3);
  EXPECT_DOUBLE_EQ(tflops({}), 0);
  EXPECT_DOUBLE_EQ(terabytes_per_second({}), 0);
}

TEST(Derived, TheRoofIsTheSlowerOfArithmeticAndMemory) {
  Entry entry;
  entry.flops = 989e9;
  entry.bytes = 4.8e6;
  EXPECT_DOUBLE_EQ(roof_seconds(entry, sample::h200()), 1e-3);
  entry.bytes = 9.6e9;
  EXPECT_DOUBLE_EQ(roof_seconds(entry, sample::h200()), 2e-3);
  EXPECT_DOUBLE_EQ(roof_seconds(entry, {}), 0);
}

TEST(Derived, RivalsAreFoundByName) {
  const TunedTable table = small_table();
  EXPECT_EQ(find_rival(table.entries[0], "cublas-loop"), &table.entries[0].rivals[1]);
  EXPECT_EQ(find_rival(table.entries[0], "cublas"), nullptr);
}

TEST(LossToBalanced, ComparesWithBalancedRowsOfTheSameNumber) {
  const auto entry = [](const Layer& layer, int64_t tokens, const std::string& routing, double us) {
    return sample::entry(sample::cell(layer, tokens, routing), sample::mma(16), us);
  };
  const TunedTable table =
      sample::table({entry(sample::qwen_up(), 64, "zipf:1", 115), entry(sample::qwen_up(), 64, "balanced", 100),
                     entry(sample::qwen_up(), 16, "zipf:1", 50), entry(sample::qwen_down(), 64, "zipf:1", 60),
                     entry(sample::qwen_up(), 64, "uniform", 90)});
  EXPECT_EQ(loss_to_balanced(table, table.entries[0]), "+15.0 %");
  EXPECT_EQ(loss_to_balanced(table, table.entries[4]), "-10.0 %");
  for (const size_t lonely : {1, 2, 3}) EXPECT_EQ(loss_to_balanced(table, table.entries[lonely]), "") << lonely;
}

TEST(LossToBalanced, IsNoFactWhereOneOfTheTwoIsUntrusted) {
  for (const size_t noisy : {0, 1}) {
    TunedTable table =
        sample::table({sample::entry(sample::cell(sample::qwen_up(), 64, "zipf:1"), sample::mma(16), 150),
                       sample::entry(sample::cell(sample::qwen_up(), 64, "balanced"), sample::mma(16), 100)});
    table.entries[noisy].measurement.waited = 0.5;
    EXPECT_EQ(loss_to_balanced(table, table.entries[0]), "noisy");
  }
}

TEST(LossToBalanced, NeedsTwoWinners) {
  const auto skipped = [](const std::string& routing) {
    return sample::skipped_entry(sample::cell(sample::small_up(), 64, routing), "out of memory");
  };
  const auto won = [](const std::string& routing) {
    return sample::entry(sample::cell(sample::small_up(), 64, routing), sample::mma(16), 9);
  };
  TunedTable table = sample::table({won("single"), skipped("balanced")});
  EXPECT_EQ(loss_to_balanced(table, table.entries[0]), "");
  table = sample::table({skipped("single"), won("balanced")});
  EXPECT_EQ(loss_to_balanced(table, table.entries[0]), "");
}

}  // namespace
}  // namespace moetune
