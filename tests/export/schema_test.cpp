// What this room writes satisfies configs/schema, and a missing or misnamed field doesn't. Needs python3 with
// jsonschema.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "built_in.h"
#include "record/chosen.h"
#include "record/open_journal.h"
#include "record/sample.h"

namespace moetune {
namespace {

struct Outcome {
  int exit = -1;
  std::string output;
};

Outcome run(const std::string& command) {
  Outcome result;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return result;
  std::array<char, 4096> buffer;
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) result.output.append(buffer.data(), got);
  const int status = ::pclose(pipe);
  result.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

class Schema : public testing::Test {
 protected:
  void SetUp() override {
    if (run("python3 -c 'import jsonschema'").exit != 0) GTEST_SKIP() << "needs python3 with jsonschema";
  }

  Outcome validate(const std::string& kind, const std::string& text) {
    std::ofstream(folder_ / "file", std::ios::binary | std::ios::trunc) << text;
    return run(fmt::format("python3 '{}/tests/cli/validate.py' {} '{}'", MOETUNE_SOURCE_DIR, kind,
                           (folder_ / "file").string()));
  }

  // Each damage in a file of its own, all in one run: starting Python costs most.
  void expect_refused(const std::string& kind, const std::vector<std::pair<std::string, std::string>>& texts) {
    std::string command = fmt::format("python3 '{}/tests/cli/validate.py' {}", MOETUNE_SOURCE_DIR, kind);
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string file = (folder_ / fmt::format("damage{}", i)).string();
      std::ofstream(file, std::ios::binary) << texts[i].first;
      command += fmt::format(" '{}'", file);
    }
    const Outcome result = run(command);
    EXPECT_EQ(result.exit, 1);
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string wanted = fmt::format("{}{}", (folder_ / fmt::format("damage{}", i)).string(), texts[i].second);
      EXPECT_TRUE(holds(result.output, wanted)) << wanted << "\nis not in\n" << result.output;
    }
  }

  sample::Folder folder_;
};

std::string damaged(Json json, const std::string& pointer, const char* value) {
  const Json::json_pointer place(pointer);
  if (*value == '\0')
    json.at(place.parent_pointer()).erase(place.back());
  else
    json[place] = Json::parse(value);
  return json.dump();
}

TEST_F(Schema, ATableWithChoicesIsValid) {
  TunedTable table = sample::chosen_table();
  table.choices[0].left_out.push_back({sample::mma(128), id(table.entries[0].cell), "timeout"});
  const Json json = to_json(table);
  const Outcome result = validate("table", pretty_json(json));
  EXPECT_EQ(result.exit, 0) << result.output;
  expect_refused("table",
                 {{damaged(json, "/choices/0/rule", "\"best\""), ": choices[0].rule: 'best' is not one of"},
                  {damaged(json, "/choices/0/tokens/to", ""), ": choices[0].tokens: 'to' is a required property"},
                  {damaged(json, "/choices/0/cells", "[]"), ": choices[0].cells: [] "},
                  {damaged(json, "/choices/0/contenders/0/regrets/0", "-0.1"),
                   ": choices[0].contenders[0].regrets[0]: -0.1 is less than the minimum of 0"},
                  {damaged(json, "/choices/0/candidate", ""), ": choices[0]: 'candidate' is a required property"}});
}

TEST_F(Schema, TablesOfAGpuAndOfACpuAreValid) {
  TunedTable table = sample::small_table();
  table.device = {.kind = DeviceKind::cpu, .name = "AMD EPYC", .id = "cpu", .processors = 2};
  table.entries[0].candidate = candidate_of("cpu", {32, 64, 64, 2});
  for (const TunedTable& each : {sample::small_table(), table}) {
    const Outcome result = validate("table", pretty_json(to_json(each)));
    EXPECT_EQ(result.exit, 0) << result.output;
  }
}

TEST_F(Schema, JournalsAreValid) {
  {
    Journal journal = create_journal(folder_ / "j", sample::header());
    const std::string cell = id(sample::header().cells[0]);
    journal.started(cell, sample::mma(64));
    journal.finished(cell, sample::trial(sample::mma(64), 10));
    journal.finished(cell, sample::failed_trial(sample::mma(32), Status::timeout, "no answer for 20 s"));
  }
  const Outcome result = validate("journal", read_text(folder_ / "j"));
  EXPECT_EQ(result.exit, 0) << result.output;
}

TEST_F(Schema, TheOtherKindsTakeAGoodFileAndRefuseAPoorOne) {
  const Json tool = sample::table().tool, device = to_json(sample::h200());
  const Json cell = to_json(sample::cell(sample::small_up(), 16));
  const Json entry = to_json(sample::small_table())["entries"][0];
  const Json environment = Json::object(), contender = {{"candidate", to_json(sample::mma(64))}};
  const Json point = {{"cell", cell},
                      {"contender", contender},
                      {"status", "ok"},
                      {"measurement", to_json(sample::measurement(3))},
                      {"verdict", to_json(sample::right())}};
  const auto file = [&](const std::string& kind, const Json& fields) {
    Json json = {{"schema", fmt::format("moetune.{}/1", kind)}, {"tool", tool}};
    json.update(fields);
    return json;
  };
  const Json run_on = {{"device", device}, {"environment", environment}};
  std::vector<std::tuple<std::string, Json, std::string>> files;  // kind, file, a place that must be there
  const auto add = [&](const std::string& kind, Json fields, const std::string& place, bool measured) {
    if (measured) fields.update(run_on);
    files.emplace_back(kind, file(kind, fields), place);
  };
  Json baseline = point;
  baseline["contender"] = {{"baseline", "cublas-loop"}};
  add("bench", {{"points", {point, baseline}}}, "/points/1/contender/baseline", true);
  add("verify", {{"points", {point}}}, "/points/0/verdict", true);
  const Json finding = {
      {"cell", cell},   {"finding", "equivalent"}, {"reason", "inside 5 %"}, {"control", "default"},
      {"change", 0.01}, {"change_low", -0.01},     {"change_high", 0.02},    {"now", to_json(sample::measurement(3))},
      {"before_us", 3}, {"control_now_us", 4},     {"control_before_us", 4}, {"rounds", 15}};
  add("check", {{"baseline", "t.json"}, {"threshold", 0.05}, {"findings", {finding}}}, "/findings/0/change_high", true);
  add("lookup",
      {{"table", "t.json"},
       {"answers",
        {{{"cell", cell},
          {"match", "nearest"},
          {"explanation", "x"},
          {"distance", 1},
          {"log_tokens_distance", 1},
          {"log_skew_distance", 0},
          {"entry", entry}}}}},
      "/answers/0/entry", false);
  add("list", {{"what", "models"}, {"items", {{{"name", "x"}}}}}, "/items/0/name", false);
  const Json compiled = to_json(sample::trial(sample::mma(64), 1).compile);
  add("compile",
      {{"arch", "sm_90a"},
       {"results", {{{"cell", cell}, {"candidate", to_json(sample::mma(64))}, {"compile", compiled}}}}},
      "/results/0/compile/registers", false);
  const Json ceilings = {
      {"read_tbps", 4e12}, {"dense_burst_tflops", 7e14}, {"dense_sustained_tflops", 6e14}, {"noise", 0.001}};
  add("doctor",
      {{"devices", {{{"word", "cuda:0"}, {"device", device}, {"environment", environment}, {"ceilings", ceilings}}}},
       {"notes", Json::array()}},
      "/devices/0/ceilings/noise", false);
  add("plan",
      {{"device", device},
       {"cells",
        {{{"cell", cell},
          {"figures", entry["figures"]},
          {"total", 10},
          {"legal", 8},
          {"pruned", {{"too many registers", 2}}}}}},
       {"files", {{"output", "t.json"}, {"journal", "t.journal.jsonl"}}}},
      "/files/journal", false);
  for (const auto& [kind, json, place] : files) {
    const Outcome good = validate(kind, pretty_json(json));
    EXPECT_EQ(good.exit, 0) << kind << "\n" << good.output;
    const Outcome poor = validate(kind, damaged(json, place, ""));
    EXPECT_EQ(poor.exit, 1) << kind << " without " << place << "\n" << poor.output;
    EXPECT_TRUE(holds(poor.output, "is a required property")) << poor.output;
  }
}

struct CommittedFiles {
  const char *kind, *folder;
  size_t at_least;
};
void PrintTo(const CommittedFiles& files, std::ostream* out) { *out << files.folder; }

class CommittedSchema : public Schema, public testing::WithParamInterface<CommittedFiles> {};

TEST_P(CommittedSchema, AllFilesAreValid) {
  std::string command = fmt::format("python3 '{}/tests/cli/validate.py' {}", MOETUNE_SOURCE_DIR, GetParam().kind);
  size_t files = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(
           fmt::format("{}/configs/{}", MOETUNE_SOURCE_DIR, GetParam().folder))) {
    if (file.path().extension() != ".json" || file.path().string().find("/tuned/served/") != std::string::npos)
      continue;
    command += fmt::format(" '{}'", file.path().string());
    ++files;
  }
  EXPECT_GE(files, GetParam().at_least);
  const Outcome result = run(command);
  EXPECT_EQ(result.exit, 0) << result.output;
}

INSTANTIATE_TEST_SUITE_P(Repository, CommittedSchema,
                         testing::Values(CommittedFiles{"space", "spaces", 6}, CommittedFiles{"model", "models", 31},
                                         CommittedFiles{"routing", "routings", 1}, CommittedFiles{"suite", "suites", 4},
                                         CommittedFiles{"table", "tuned", 4}));

TEST_F(Schema, EveryKindOfRecordingIsValid) {
  std::string command = fmt::format("python3 '{}/tests/cli/validate.py' routing", MOETUNE_SOURCE_DIR);
  int files = 0;
  for (const char* recording : {R"({"experts": 4, "top_k": 2, "layers": {"0": [3, 0, 1, 2]}})",
                                R"({"experts": 4, "top_k": 2, "topk_ids": {"0": [[0, 3], [0, 2], [3, 0]]}})",
                                R"({"loads": [{"name": "a", "tokens": 3, "top_k": 2, "counts": [3, 0, 1, 2]}]})"}) {
    const std::string file = (folder_ / fmt::format("recording{}", ++files)).string();
    std::ofstream(file, std::ios::binary) << recording;
    command += fmt::format(" '{}'", file);
  }
  const Outcome result = run(command);
  EXPECT_EQ(result.exit, 0) << result.output;
}

TEST_F(Schema, WrongUsageNamesTheKinds) {
  const Outcome result = validate("tables", "{}");
  EXPECT_EQ(result.exit, 2);
  EXPECT_TRUE(holds(result.output, "KIND is one of: bench, check, ")) << result.output;
}

}  // namespace
}  // namespace moetune
