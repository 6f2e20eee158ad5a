// Recordings from JSON and built-in ones, scaling, and routings made of them.
#include "workload/routing/trace.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/system/file.h"
#include "check_routing.h"
#include "error_of.h"
#include "temporary_folder.h"
#include "workload/problem.h"
#include "workload/routing/routing.h"

namespace moetune {
namespace fs = std::filesystem;
namespace {

using Ints = std::vector<int32_t>;

Trace read(std::string_view text, int64_t experts = 0, int64_t top_k = 0) {
  const TemporaryFolder folder;
  return read_trace(folder.write("t.json", text), experts, top_k);
}

// The error without the folder's name.
Caught refusal(std::string_view text, int64_t experts = 0, int64_t top_k = 0) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("t.json", text);
  Caught error = error_of([&] { read_trace(path, experts, top_k); });
  const std::string prefix = folder.path().string() + "/";
  for (size_t at; (at = error.what.find(prefix)) != std::string::npos;) error.what.erase(at, prefix.size());
  return error;
}

// ---- rows per expert

TEST(JsonTrace, ReadsRowsByLayer) {
  const Trace trace = read(R"({"experts": 3, "top_k": 2, "tokens": 4, "layers": {"b": [4, 3, 1], "a": [4, 0, 4]}})");
  EXPECT_EQ(trace.experts, 3);
  EXPECT_EQ(trace.top_k, 2);
  ASSERT_EQ(trace.layers.size(), 2u);
  EXPECT_EQ(trace.layers[0].name, "b");  // the file's order
  EXPECT_EQ(trace.layers[0].tokens, 4);
  EXPECT_EQ(trace.layers[0].m_sizes, (Ints{4, 3, 1}));
  EXPECT_TRUE(trace.layers[0].topk_ids.empty());
}
TEST(JsonTrace, DeducesWhatIsMissing) {
  EXPECT_EQ(read(R"({"top_k": 2, "layers": {"0": [4, 3, 1]}})").layers[0].tokens, 4);
  EXPECT_EQ(read(R"({"tokens": 4, "layers": {"0": [4, 3, 1]}})").top_k, 2);
  EXPECT_EQ(read(R"({"layers": {"0": [4, 3, 1]}})", 3, 2).layers[0].tokens, 4);
  EXPECT_EQ(read(R"({"layers": {"0": [4, 3, 1]}})", 0, 2).experts, 3);
}
TEST(JsonTrace, NamesWhatCannotBeDeduced) {
  EXPECT_EQ(refusal(R"({"layers": {"0": [4, 3, 1]}})").what, "t.json: layers.0: neither tokens nor top_k is known");
}
TEST(JsonTrace, RefusesAWrongSum) {
  EXPECT_EQ(refusal(R"({"top_k": 2, "tokens": 4, "layers": {"0": [4, 3, 1], "1": [4, 3, 2]}})").what,
            "t.json: layers.1: rows sum to 9, but 4 tokens with top_k 2 make 8");
  EXPECT_EQ(refusal(R"({"top_k": 2, "layers": {"0": [4, 3, 2]}})").what,
            "t.json: layers.0: rows sum to 9, but that is not a multiple of top_k 2");
  EXPECT_EQ(refusal(R"({"tokens": 4, "layers": {"0": [4, 3, 2]}})").what,
            "t.json: layers.0: rows sum to 9, but that is not a multiple of 4 tokens");
}
TEST(JsonTrace, ReadsLessRowsThanTheTokensHaveWhereTheirNumberIsGiven) {
  const Trace trace = read(R"({"top_k": 2, "tokens": 8, "layers": {"0": [4, 3, 1], "1": [2.5, 0.25, 1.5]}})");
  EXPECT_EQ(trace.layers[0].m_sizes, (Ints{4, 3, 1}));
  EXPECT_EQ(trace.layers[1].m_sizes, (Ints{2, 0, 2}));  // 4.25 rows are 4
  EXPECT_EQ(refusal(R"({"top_k": 2, "layers": {"0": [2.5, 1.5]}})").what,
            "t.json: layers.0: has averages, which are not whole");
  EXPECT_EQ(refusal(R"({"top_k": 2, "layers": {"0": [4, 3, 2]}})").hint,
            "where rows were dropped, write their number of tokens: {\"tokens\": N, \"logical_count\": [...]}, or "
            "# tokens=N in CSV");
}
TEST(JsonTrace, ReadsSglangsCountsAndListsAlone) {
  for (const char* text : {R"({"logical_count": [[4, 3, 1], [2, 2, 4]]})", "[[4, 3, 1], [2, 2, 4]]"}) {
    const Trace trace = read(text, 3, 2);
    ASSERT_EQ(trace.layers.size(), 2u);
    EXPECT_EQ(trace.layers[1].name, "1");
    EXPECT_EQ(trace.layers[1].m_sizes, (Ints{2, 2, 4}));
  }
  EXPECT_EQ(read("[4, 3, 1]", 3, 2).layers[0].m_sizes, (Ints{4, 3, 1}));
  const Caught error = refusal("[[0, 1], [1, 2]]", 3, 2);
  EXPECT_EQ(error.what, "t.json: logical_count.0: has rows of 2 experts, expected 3");
  EXPECT_EQ(error.hint, R"(chosen experts are read as {"topk_ids": {"LAYER": [[...]]}})");
}
TEST(JsonTrace, RefusesAnExpertOverTheTokens) {
  const Caught error = refusal(R"({"top_k": 2, "tokens": 4, "layers": {"0": [5, 3, 0]}})");
  EXPECT_EQ(error.what, "t.json: layers.0: expert 0 has 5 rows, more than the 4 tokens");
  EXPECT_EQ(error.hint, "no token picks an expert twice");
}
TEST(JsonTrace, RefusesAContradictionNamingBoth) {
  const char* text = R"({"experts": 3, "top_k": 2, "tokens": 4, "layers": {"0": [4, 3, 1]}})";
  EXPECT_EQ(refusal(text, 128, 2).what, "t.json: experts: the recording has 3, the layer 128");
  EXPECT_EQ(refusal(text, 3, 8).what, "t.json: top_k: the recording has 2, the layer 8");
}
TEST(JsonTrace, RefusesLayersOfOtherSizes) {
  EXPECT_EQ(refusal(R"({"top_k": 1, "experts": 3, "layers": {"0": [1, 2]}})").what,
            "t.json: layers.0: has rows of 2 experts, expected 3");
  EXPECT_EQ(refusal(R"({"top_k": 1, "layers": {"0": [1, 2], "1": [1, 2, 3]}})").what,
            "t.json: layers.1: has rows of 3 experts, expected 2");
}
TEST(JsonTrace, RefusesNegativeFractionalAndHugeRows) {
  EXPECT_EQ(refusal(R"({"top_k": 1, "layers": {"0": [3, -1]}})").what,
            "t.json: layers.0[1]: must be at least 0, found -1");
  EXPECT_EQ(refusal(R"({"top_k": 1, "layers": {"0": [3, "1"]}})").what,
            "t.json: layers.0[1]: expected a number, found a string");
  EXPECT_EQ(refusal(R"({"top_k": 1, "layers": {"0": [3, 4294967296]}})").what,
            "t.json: layers.0[1]: 4294967296 is outside 0 to 268435456");
}
TEST(JsonTrace, RefusesNothingRecorded) {
  EXPECT_EQ(refusal(R"({"top_k": 1, "layers": {}})").what, "t.json: layers: is empty");
  EXPECT_EQ(refusal(R"({"top_k": 1, "layers": {"0": [0, 0]}})").what, "t.json: layers.0: records no rows");
  EXPECT_EQ(refusal(R"({"top_k": 1, "layers": {"0": []}})").what, "t.json: layers.0: is empty");
  EXPECT_EQ(
      refusal(R"({"a": 1})").what,
      "t.json: 'layers' is missing, or 'topk_ids' is missing, or 'loads' is missing, or 'logical_count' is missing");
  EXPECT_EQ(refusal(R"({"top_k": 1, "layers": {"0": [1]}, "loads": [{"name": "a", "counts": [1]}]})").what,
            "t.json: may have only one of 'layers', 'loads'");
  EXPECT_EQ(refusal("[1, 2]").exit, Exit::request);
  EXPECT_EQ(refusal("").exit, Exit::request);
}
TEST(JsonTrace, RefusesATopKOverTheExperts) {
  EXPECT_EQ(refusal(R"({"top_k": 3, "tokens": 1, "layers": {"0": [1, 2]}})").what,
            "t.json: layers.0: top_k 3 is more than the 2 experts");
}
TEST(JsonTrace, RefusesLayerNamesThatARoutingCannotSay) {
  EXPECT_EQ(refusal(R"({"top_k": 1, "layers": {"a#b": [1, 2]}})").what,
            "t.json: layers.a#b: a layer cannot be called 'a#b'");
  EXPECT_NE(refusal(R"({"top_k": 1, "layers": {"": [1, 2]}})").what, "");
  EXPECT_NE(
      refusal(R"({"top_k": 1, "layers": {"a\u001b[31m": [1, 2]}})").what.find("has characters that cannot be printed"),
      std::string::npos);
}
TEST(JsonTrace, ChecksItsSchemaWhereItHasOne) {
  EXPECT_EQ(refusal(R"({"schema": "moetune.table/1", "entries": []})").what,
            "t.json: its schema is 'moetune.table/1', expected 'moetune.routing/1'");
}

// ---- chosen experts

TEST(JsonTrace, ReadsChosenExperts) {
  const Trace trace = read(R"({"experts": 4, "top_k": 2, "tokens": 3, "topk_ids": {"5": [[0, 1], [3, 0], [1, 0]]}})");
  EXPECT_EQ(trace.layers[0].m_sizes, (Ints{3, 2, 0, 1}));
  EXPECT_EQ(trace.layers[0].topk_ids, (Ints{0, 1, 3, 0, 1, 0}));
  EXPECT_EQ(trace.layers[0].tokens, 3);
}
TEST(JsonTrace, RefusesWrongChoices) {
  EXPECT_EQ(refusal(R"({"experts": 4, "topk_ids": {"0": [[0, 1], [2, 2]]}})").what,
            "t.json: topk_ids.0: token 1 has expert 2 twice");
  EXPECT_EQ(refusal(R"({"experts": 4, "topk_ids": {"0": [[0, 1], [2, 4]]}})").what,
            "t.json: topk_ids.0[1][1]: 4 is outside 0 to 3");
  EXPECT_EQ(refusal(R"({"experts": 4, "topk_ids": {"0": [[0, 1], [2]]}})").what,
            "t.json: topk_ids.0[1]: has 1 choices, expected 2");
  EXPECT_EQ(refusal(R"({"experts": 4, "tokens": 3, "topk_ids": {"0": [[0, 1], [2, 3]]}})").what,
            "t.json: topk_ids.0: has 2 tokens, expected 3");
  EXPECT_EQ(refusal(R"({"experts": 4, "topk_ids": {"0": [[]]}})").what, "t.json: topk_ids.0[0]: is empty");
  EXPECT_EQ(refusal(R"({"experts": 4, "topk_ids": {"0": []}})").what, "t.json: topk_ids.0: is empty");
  EXPECT_EQ(refusal(R"({"topk_ids": {"0": [[0, 1]]}})").what, "t.json: topk_ids: 'experts' is missing");
}

// ---- lists of loads

TEST(JsonTrace, ReadsLoadsOfTheExpertsAskedFor) {
  const char* text = R"({"loads": [{"name": "x", "counts": [4, 2, 2]}, {"name": "y", "counts": [5, 5]},
                                   {"name": "z", "counts": [6, 6, 0]}]})";
  const Trace trace = read(text, 3, 2);
  ASSERT_EQ(trace.layers.size(), 2u);
  EXPECT_EQ(trace.layers[0].name, "x");
  EXPECT_EQ(trace.layers[0].tokens, 4);
  EXPECT_EQ(trace.layers[1].tokens, 6);
  EXPECT_EQ(refusal(text, 4, 2).what, "t.json: loads: these are loads of 2, 3 experts, the layer has 4");
  EXPECT_EQ(refusal(text, 0, 2).what, "t.json: loads: loads of 2, 3 experts are mixed");
}
TEST(JsonTrace, RefusesTwoLoadsOfOneName) {
  EXPECT_EQ(refusal(R"({"loads": [{"name": "x", "counts": [1, 2]}, {"name": "x", "counts": [1, 2]}]})", 2, 1).what,
            "t.json: loads[1]: there are two layers 'x'");
}

// ---- files

TEST(ReadTrace, SuggestsTheNearestFile) {
  const TemporaryFolder folder;
  folder.write("loads.json", "{}");
  const Caught error = error_of([&] { read_trace(folder.path() / "load.json"); });
  EXPECT_NE(error.what.find("No such file"), std::string::npos) << error.what;
  EXPECT_NE(error.hint.find("loads.json"), std::string::npos) << error.hint;
}
TEST(ReadTrace, KnowsNoOtherKindOfFile) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("loads.txt", "1 2 3");
  EXPECT_EQ(error_of([&] { read_trace(path); }).what,
            path.string() + ": the file name doesn't tell the kind of recording");
}
TEST(ReadTrace, ReadsTheBuiltInRecordingAnywhere) {
  const Trace trace = read_trace("gpt-oss-20b", 32, 4);
  ASSERT_EQ(trace.layers.size(), 11u);
  for (const TraceLayer& layer : trace.layers) {
    EXPECT_EQ(layer.tokens, 2012);
    EXPECT_EQ(std::accumulate(layer.m_sizes.begin(), layer.m_sizes.end(), 0), 8048);
  }
  EXPECT_EQ(*std::max_element(trace.layers[1].m_sizes.begin(), trace.layers[1].m_sizes.end()), 1803);
}
TEST(ReadTrace, PrefersAFileToTheBuiltInRecording) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  fs::create_directory("gpt-oss-20b");
  const size_t beside_a_folder = read_trace("gpt-oss-20b").layers.size();
  fs::remove("gpt-oss-20b");
  folder.write("gpt-oss-20b", "not a recording");
  const Caught beside_a_file = error_of([] { read_trace("gpt-oss-20b"); });
  fs::current_path(before);
  EXPECT_EQ(beside_a_folder, 11u);
  EXPECT_EQ(beside_a_file.what, "gpt-oss-20b: the file name doesn't tell the kind of recording");
}
TEST(ReadTrace, SuggestsTheNearestBuiltInRecording) {
  const Caught error = error_of([] { read_trace("gpt-oss-2b"); });
  EXPECT_EQ(error.what, "unknown recording 'gpt-oss-2b'");
  EXPECT_EQ(error.hint, "did you mean 'gpt-oss-20b'?");
}
TEST(ReadTrace, NamesTheBuiltInFileWhereItDoesNotFit) {
  EXPECT_EQ(error_of([] { read_trace("gpt-oss-20b", 128, 4); }).what,
            "configs/routings/gpt-oss-20b.json: experts: the recording has 32, the layer 128");
}

TEST(FindLayer, SuggestsTheNearest) {
  const Trace trace = read(R"({"top_k": 1, "layers": {"layer 10": [1, 2], "layer 20": [1, 2]}})");
  EXPECT_EQ(find_layer(trace, "layer 20", "t.json").name, "layer 20");
  const Caught error = error_of([&] { find_layer(trace, "layer10", "t.json"); });
  EXPECT_EQ(error.what, "t.json: unknown layer 'layer10'");
  EXPECT_EQ(error.hint, "did you mean 'layer 10'?");
}

// ---- scaling and generating

TEST(ScaleRows, KeepsTheRecordedCount) { EXPECT_EQ(scale_rows({4, 3, 1}, 4, 8), (Ints{4, 3, 1})); }
TEST(ScaleRows, ScalesByLargestRemainder) {
  EXPECT_EQ(scale_rows({4, 3, 1}, 8, 16), (Ints{8, 6, 2}));
  EXPECT_EQ(scale_rows({4, 3, 1}, 2, 4), (Ints{2, 2, 0}));  // 2, 1.5, 0.5: the first of equals
  EXPECT_EQ(scale_rows({0, 9, 1, 0}, 1000, 1000), (Ints{0, 900, 100, 0}));
}
TEST(ScaleRows, NeverGoesOverTheTokens) {
  EXPECT_EQ(scale_rows({4, 2, 2}, 1, 2), (Ints{1, 1, 0}));
  const Ints rows = scale_rows({1000, 10, 10, 10}, 7, 14);
  EXPECT_EQ(rows[0], 7);
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), 0), 14);
}

TEST(TraceRouting, ScalesDroppedRowsAndLeavesZeroExpertsOut) {
  const TemporaryFolder folder;
  const std::string counts =
      "trace:" + folder.write("t.json", R"({"top_k": 2, "tokens": 8, "logical_count": [[4, 3, 1]]})").string();
  EXPECT_EQ(generate_routing(parse_routing(counts), 16, 3, 2, 0).m_sizes, (Ints{8, 6, 2}));
  const std::string ids =
      "trace:" + folder.write("ids.json", R"({"experts": 4, "topk_ids": {"0": [[0, 2], [3, 1]]}})").string();
  Cell cell;
  cell.tokens = 2, cell.routing = parse_routing(ids);
  cell.shape.layer = {.model = "m", .experts = 2, .top_k = 2, .n = 8, .k = 8, .zero_experts = 2};
  const Problem problem = make_problem(cell);
  EXPECT_EQ(problem.routing.m_sizes, (Ints{1, 1}));
  EXPECT_EQ(problem.routing.gather_indices, (Ints{0, 3}));
  EXPECT_EQ(problem_from_json(JsonAt(to_json(problem), "p")), problem);
}

TEST(TraceRouting, HasTheRecordedRows) {
  const Routing routing = generate_routing(parse_routing("trace:gpt-oss-20b#3"), 2012, 32, 4, 0);
  check_routing(routing, 2012, 32, 4);
  EXPECT_EQ(routing.m_sizes[31], 1554);
  EXPECT_EQ(generate_routing(parse_routing("trace:gpt-oss-20b#3"), 2012, 32, 4, 99), routing);  // no seed in it
}
TEST(TraceRouting, ScalesToOtherTokens) {
  for (const int64_t tokens : {1, 16, 256, 4096, 50000}) {
    const Routing routing = generate_routing(parse_routing("trace:gpt-oss-20b#11"), tokens, 32, 4, 0);
    check_routing(routing, tokens, 32, 4);
  }
}
TEST(TraceRouting, UsesRecordedChoicesWhereTheCountIsTheirs) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("t.json", R"({"experts": 4, "topk_ids": {"0": [[3, 1], [3, 0], [1, 0]]}})").string();
  const RoutingSpec spec = parse_routing("trace:" + path);
  EXPECT_EQ(generate_routing(spec, 3, 4, 2, 0), routing_from_ids({3, 1, 3, 0, 1, 0}, 3, 2, 4));
  EXPECT_EQ(generate_routing(spec, 6, 4, 2, 0).m_sizes, (Ints{4, 4, 0, 4}));
}
TEST(TraceRouting, WantsALayerWhereThereAreMore) {
  const Caught error = error_of([] { generate_routing(parse_routing("trace:gpt-oss-20b"), 2012, 32, 4, 0); });
  EXPECT_EQ(error.what, "gpt-oss-20b: has 11 layers, but the routing names none");
  EXPECT_EQ(error.hint, "write trace:gpt-oss-20b#1");
}
TEST(TraceRouting, RefusesAnotherTopK) {
  EXPECT_EQ(error_of([] { generate_routing(parse_routing("trace:gpt-oss-20b#1"), 2012, 32, 2, 0); }).what,
            "configs/routings/gpt-oss-20b.json: top_k: the recording has 4, the layer 2");
}

TEST(Expand, MakesOneSpecALayer) {
  const std::vector<RoutingSpec> specs = expand(parse_routing("trace:gpt-oss-20b"), 32, 4);
  ASSERT_EQ(specs.size(), 11u);
  EXPECT_EQ(text(specs.front()), "trace:gpt-oss-20b#1");
  EXPECT_EQ(text(specs.back()), "trace:gpt-oss-20b#11");
}
TEST(Expand, LeavesOthersAlone) {
  for (const char* word : {"zipf:1", "trace:gpt-oss-20b#4"}) {
    const std::vector<RoutingSpec> specs = expand(parse_routing(word), 32, 4);
    ASSERT_EQ(specs.size(), 1u);
    EXPECT_EQ(specs[0], parse_routing(word));
  }
}
TEST(RecordedTokens, AreThoseOfTheTrace) {
  EXPECT_EQ(recorded_tokens(parse_routing("trace:gpt-oss-20b"), 32, 4), 2012);
  EXPECT_EQ(recorded_tokens(parse_routing("trace:gpt-oss-20b#2"), 32, 4), 2012);
  EXPECT_EQ(recorded_tokens(parse_routing("uniform"), 32, 4), 0);
}
TEST(RecordedTokens, WantALayerWhereTheyDiffer) {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.json", R"({"top_k": 1, "layers": {"0": [1, 2], "1": [4, 4]}})").string();
  EXPECT_EQ(recorded_tokens(parse_routing("trace:" + path + "#1"), 2, 1), 8);
  EXPECT_EQ(error_of([&] { recorded_tokens(parse_routing("trace:" + path), 2, 1); }).what,
            path + ": its layers were recorded with different numbers of tokens");
  EXPECT_EQ(error_of([&] { recorded_tokens(parse_routing("trace:" + path + "#2"), 2, 1); }).exit, Exit::request);
}

}  // namespace
}  // namespace moetune
