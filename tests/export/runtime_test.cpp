// The compact table for programs that pick kernels.
#include "base/json.h"
#include "built_in.h"
#include "export/exporter.h"
#include "export/kernels/kernel_manifest.h"
#include "record/chosen.h"
#include "variant/variant.h"

namespace moetune {
namespace {

Json runtime_of(const TunedTable& table) { return parse_json(export_runtime(table).files.at(0).text, "runtime"); }

std::string refusal(const Json& json) {
  return error_of([&] { require_runtime({json, "f.json"}); }).what;
}

TEST(Runtime, IsTheGoldenText) {
  TunedTable table = sample::chosen_table();
  table.entries.push_back(sample::entry(sample::cell(sample::qwen_down(), 4096), sample::mma(128, 256, 64, 8), 812.5));
  const Export result = export_runtime(sample::toys(table));
  ASSERT_EQ(result.files.size(), 1u);
  EXPECT_EQ(result.files[0].name, "");
  EXPECT_TRUE(result.notes.empty());
  sample::expect_golden("runtime.json", result.files[0].text);
  require_runtime({runtime_of(table), "f.json"});
}

TEST(Runtime, NamesCellsWithoutAWinner) {
  const Export result = export_runtime(sample::small_table());
  ASSERT_EQ(result.notes.size(), 1u);
  EXPECT_TRUE(holds(result.notes[0], "has no winner: out of memory"));
  EXPECT_EQ(runtime_of(sample::small_table())["cells"].size(), 2u);
  EXPECT_TRUE(export_runtime(sample::table()).files.empty());
}

TEST(Runtime, ACandidateThatNoKernelTakesAnyMoreHasNoFile) {
  TunedTable table = sample::small_table();
  table.entries[0].candidate.unknown_knobs = "old=1";
  const Json json = runtime_of(table);
  EXPECT_TRUE(json["cells"].begin().value()["file"].is_null());
  EXPECT_TRUE(json["cells"][id(table.entries[1].cell)]["file"].is_string());
}

TEST(Runtime, AKernelOfPointersIsServedByThatOfOneAddress) {
  TunedTable table = sample::small_table();
  const Entry& entry = table.entries[1];
  const Candidate pointers = parse_partial_candidate("wgmma addressing=pointers");
  table.entries[1].candidate = complete(pointers, make_problem(entry.cell), table.device);
  const Json cell = runtime_of(table)["cells"][id(entry.cell)];
  EXPECT_EQ(cell["knobs"]["addressing"], "base");
  const Candidate base = with_value(table.entries[1].candidate, "addressing", 0);
  EXPECT_EQ(cell["file"], cubin_name(kernel_name(base, entry.cell.shape), arch(table.device)));
}

TEST(Runtime, WrongFilesNameTheirPlace) {
  const Json right = runtime_of(sample::chosen_table());
  const std::string first = right["cells"].begin().key();
  Json json = right;
  json["cells"][first]["time_us"] = 0;
  EXPECT_EQ(refusal(json), "f.json: cells." + first + ".time_us: must be more than 0, found 0");
  json = right;
  json["cells"][first].erase("file");
  EXPECT_TRUE(holds(refusal(json), "'file' is missing"));
  json = right;
  json["ranges"][1]["tokens"]["to"] = 3;
  EXPECT_TRUE(holds(refusal(json), "ranges[1].tokens.to: 3 is outside"));
  json = right;
  json["cells"] = Json::object();
  EXPECT_EQ(refusal(json), "f.json: cells: is empty");
}

}  // namespace
}  // namespace moetune
