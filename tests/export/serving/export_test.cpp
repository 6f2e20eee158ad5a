// Tables in vLLM's and SGLang's formats: which entry becomes which row, and what is said about it.
#include "export/exporter.h"

#include "export/serving/serving_rows.h"
#include "record/sample.h"

namespace moetune {
namespace {

using sample::cell;
using sample::entry;
using sample::qwen_down;
using sample::qwen_up;
using sample::triton;

Export export_to(std::string_view format, const TunedTable& table, ServingRequest request = {.unproven = true}) {
  return export_serving(find_server(format), table, request);
}

TunedTable qwen_table() {
  return sample::table({entry(cell(qwen_up(), 16), triton(16, 64, 128, 4, 5), 30),
                        entry(cell(qwen_up(), 4096), triton(128, 128, 64, 8, 4), 900),
                        entry(cell(qwen_down(), 16), triton(16, 128, 64, 4, 5), 20),
                        entry(cell(qwen_down(), 4096), triton(64, 256, 64, 8, 3), 500)});
}

TEST(Servers, AreFoundByName) {
  EXPECT_EQ(server_words(), (std::vector<std::string>{"vllm", "sglang"}));
  const auto fault = error_of([] { find_server("vlm"); });
  EXPECT_EQ(fault.what, "unknown program 'vlm'");
  EXPECT_EQ(fault.hint, "did you mean 'vllm'?");
}

/// A row a line in the golden file; a line a value in the text.
void expect_golden_rows(const std::string& golden, const std::string& text) {
  const Json json = parse_json(text, golden);
  EXPECT_EQ(text, json.dump(4) + "\n");
  sample::expect_golden(golden, pretty_json(json));
}

TEST(Vllm, IsOneFileALayerUnderItsName) {
  const Export result = export_to("vllm", qwen_table());
  ASSERT_EQ(result.files.size(), 1u);
  EXPECT_EQ(result.files[0].name, "E=128,N=768,device_name=NVIDIA_H200.json");
  expect_golden_rows("vllm.json", result.files[0].text);
}

TEST(Vllm, SaysWhatTheKnobsMeanOverThere) {
  const Export result = export_to("vllm", qwen_table());
  EXPECT_TRUE(holds(result.notes.front(), "the knobs of the pack triton_moe are written as they were measured"));
  EXPECT_TRUE(noted(result, "tuned for 16, 4096 tokens; the other rows are vLLM's default"));
  EXPECT_TRUE(noted(result, "vLLM runs both projections with one row, these are up's winners"));
  EXPECT_TRUE(holds(install_advice(kVllm, false), "VLLM_TUNED_CONFIG_FOLDER"));
}

TEST(Servers, GetNoKnobsOfOtherKernelsAndTheWayToTheirOwn) {
  for (const std::string format : {"vllm", "sglang"}) {
    const auto fault =
        error_of([&] { export_to(format, sample::table({entry(cell(qwen_up(), 16), sample::mma(16), 1)})); });
    EXPECT_EQ(fault.exit, Exit::no);
    EXPECT_TRUE(holds(fault.what, "knobs of other kernels make it slower")) << fault.what;
    EXPECT_TRUE(holds(fault.what, "winners of mma are of another kernel than the server's")) << fault.what;
    EXPECT_TRUE(holds(fault.hint, "moetune tune --for " + format)) << fault.hint;
    EXPECT_EQ(error_of([&] { export_to(format, sample::table()); }).exit, Exit::no);
  }
}

TEST(Servers, GetNothingOfBackwardEntriesAlone) {
  Cell backward = cell(qwen_up(), 16);
  backward.shape.op = Op::dx;
  const auto fault = error_of([&] { export_to("vllm", sample::table({entry(backward, triton(16), 1)})); });
  EXPECT_TRUE(holds(fault.what, "1 entries left out: serving has no dx and dw")) << fault.what;
}

TEST(Servers, RefuseACpuTable) {
  TunedTable table = qwen_table();
  table.device = {.kind = DeviceKind::cpu, .name = "AMD EPYC", .id = "cpu"};
  const auto fault = error_of([&] { export_to("vllm", table); });
  EXPECT_EQ(fault.what, "the table was tuned on a cpu (AMD EPYC), vLLM's kernel runs on GPUs");
}

TEST(Vllm, OtherTokenCountsAreAddedInOrder) {
  const Export result = export_to("vllm", sample::table({entry(cell(qwen_up(), 20), triton(32), 1)}));
  const ServingRows rows = rows_of(result.files[0].text);
  for (size_t i = 1; i < rows.size(); ++i) EXPECT_LT(rows[i - 1].first, rows[i].first);
  EXPECT_EQ(row_of(result.files[0], 20).block_m, 32);
  for (int64_t tokens = 1; tokens <= 20000; ++tokens)  // beside the winner each has the row that it has without a file
    if (tokens < 19 || tokens > 22) {
      ASSERT_EQ(row_for(rows, tokens), default_row(kVllm, tokens, 128)) << tokens;
    }
}

TEST(Vllm, CountsOfDownAloneGetNoRow) {
  const Export result = export_to(
      "vllm", sample::table({entry(cell(qwen_up(), 16), triton(16), 1), entry(cell(qwen_down(), 20), triton(32), 1)}));
  for (const auto& [key, row] : rows_of(result.files[0].text)) EXPECT_NE(key, 20);
}

TEST(Vllm, AFusedEntryThenUniformRoutingThenBalancedIsPreferred) {
  Cell fused = cell(qwen_up(), 16);
  fused.shape.fusion.permute_x = true;
  const TunedTable both = sample::table({entry(cell(qwen_up(), 16), triton(16), 1), entry(fused, triton(32), 1)});
  EXPECT_EQ(row_of(export_to("vllm", both).files[0], 16).block_m, 32);
  const Export result = export_to(
      "vllm",
      sample::table(
          {entry(cell(qwen_up(), 16, "zipf:1"), triton(32), 1), entry(cell(qwen_up(), 16, "balanced"), triton(64), 1),
           entry(cell(qwen_up(), 16), triton(16), 1), entry(cell(qwen_up(), 64, "zipf:1"), triton(32), 1),
           entry(cell(qwen_up(), 64, "balanced"), triton(64), 1), entry(cell(qwen_up(), 256, "zipf:1"), triton(32), 1),
           entry(cell(qwen_up(), 256, "zipf:1.5"), triton(64), 1)}));
  EXPECT_EQ(row_of(result.files[0], 16).block_m, 16);
  EXPECT_EQ(row_of(result.files[0], 64).block_m, 64);
  EXPECT_EQ(row_of(result.files[0], 256).block_m, 32);
  EXPECT_TRUE(noted(result, "E=128,N=768: of several entries for 16 tokens the one with uniform routing was taken"));
  EXPECT_TRUE(noted(result, "for 64 tokens the one with balanced routing was taken"));
  EXPECT_TRUE(noted(result, "for 256 tokens the one with zipf:1 routing was taken"));
}

TEST(Vllm, FilesAreNamedByWhatOneRankHoldsAndByTheGate) {
  Layer sharded = qwen_up();
  sharded.n = 1536 / 2, sharded.tp = 2, sharded.ep = 4;
  const auto names = [](const std::vector<Layer>& layers) {
    std::vector<Entry> entries;
    for (const Layer& layer : layers) entries.push_back(entry(cell(layer, 16), triton(16), 1));
    std::vector<std::string> stems;
    for (const ExportedFile& file : export_to("vllm", sample::table(entries)).files)
      stems.push_back(file.name.substr(0, file.name.find(",device_name=NVIDIA_H200.json")));
    return stems;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({sharded}), Names{"E=32,N=384"});
  EXPECT_EQ(names({sample::layer("nemotron-3-nano-30b", Projection::up, 128, 6, 1856, 2688)}), Names{"E=128,N=1856"});
  EXPECT_EQ(names({sample::layer("mine", Projection::up, 8, 2, 512, 256),
                   sample::layer("mine", Projection::down, 8, 2, 256, 512)}),
            Names{"E=8,N=512"})
      << "down shows that there is no gate";
  EXPECT_EQ(names({qwen_up(), sample::layer("mixtral-8x7b", Projection::up, 8, 2, 28672, 4096)}),
            (Names{"E=128,N=768", "E=8,N=14336"}));
}

TEST(Vllm, AnUnknownModelIsTakenForGatedAndSaidSo) {
  const Layer up = sample::layer("mine", Projection::up, 8, 2, 512, 256);
  const Export result =
      export_to("vllm", sample::table({entry(cell(up, 16), triton(16), 1), entry(cell(up, 32), triton(16), 1)}));
  EXPECT_EQ(result.files[0].name, "E=8,N=256,device_name=NVIDIA_H200.json");
  int times = 0;
  for (const std::string& note : result.notes)
    times += holds(note, "mine is not a preset: its experts are assumed gated, so N = n / 2 = 256");
  EXPECT_EQ(times, 1);
}

TEST(Vllm, DownAloneIsTakenAndSaidSo) {
  const Export result = export_to("vllm", sample::table({entry(cell(qwen_down(), 16), triton(16, 64), 1)}));
  EXPECT_EQ(result.files[0].name, "E=128,N=768,device_name=NVIDIA_H200.json");
  EXPECT_EQ(row_of(result.files[0], 16).block_n, 64);
  EXPECT_TRUE(noted(result, "the table has no up projection, these are down's winners"));
}

TEST(Vllm, BackwardAndWinnerlessEntriesAreLeftOut) {
  Cell backward = cell(qwen_up(), 16);
  backward.shape.op = Op::dx;
  const Export result = export_to("vllm", sample::table({entry(backward, triton(64), 1),
                                                         sample::skipped_entry(cell(qwen_up(), 32), "out of memory"),
                                                         entry(cell(qwen_up(), 16), triton(16), 1)}));
  EXPECT_EQ(row_of(result.files[0], 16).block_m, 16);
  EXPECT_TRUE(noted(result, "1 entries left out: serving has no dx and dw"));
  EXPECT_TRUE(noted(result, "1 entries left out: they have no winner"));
}

TEST(Vllm, TwoLayersOfOneFileNameKeepTheFirst) {
  Layer fp16 = qwen_up();
  fp16.format = find_format("fp16");
  const Export result = export_to(
      "vllm", sample::table({entry(cell(qwen_up(), 16), triton(16), 1), entry(cell(fp16, 16), triton(64), 1)}));
  ASSERT_EQ(result.files.size(), 1u);
  EXPECT_EQ(row_of(result.files[0], 16).block_m, 16);
  EXPECT_TRUE(noted(result, "left out, because the file name is the same: qwen3-30b-a3b (fp16, top 8, hidden 2048)"));
}

// qwen_table with the times of rows that the servers run by themselves: 1.2x those of the winners.
TunedTable timed_table(double factor = 1.2) {
  TunedTable table = qwen_table();
  for (Entry& one : table.entries) {
    const double us = 1e6 * one.measurement.time.value;
    const bool few = one.cell.tokens == 16, down = one.cell.shape.layer.projection == Projection::down;
    one.rivals = {sample::rival("default", factor * us, 1 / factor,
                                few ? triton(16, 64, 128, 4, 4) : triton(128, 128, 64, 8, 3))};
    if (down) one.rivals.push_back(sample::rival("up's", us, 1, table.entries[few ? 0 : 1].candidate));
  }
  return table;
}

TEST(Servers, GetOnlyRowsThatAreFasterThanTheirOwn) {
  EXPECT_TRUE(noted(export_to("vllm", timed_table(), {}), "tuned for 16, 4096 tokens"));
  for (const auto& [table, reason] :
       {std::pair{timed_table(1.02), "it is not faster by more than the noise for all routings"},
        std::pair{qwen_table(), "the times of both rows are not known for all routings"}}) {
    const Caught error = error_of([&] { export_to("vllm", table, {}); });
    EXPECT_EQ(error.exit, Exit::no);
    EXPECT_TRUE(holds(error.what, fmt::format("2 winners are replaced by vLLM's default: {}", reason))) << error.what;
    EXPECT_EQ(holds(error.hint, "--unproven"), reason[0] == 't') << error.hint;
  }
  TunedTable skewed = timed_table();  // with zipf:1 the row of 16 tokens is not known to be faster
  skewed.entries.push_back(entry(cell(qwen_up(), 16, "zipf:1"), triton(32, 64, 128, 4, 5), 20));
  EXPECT_TRUE(noted(export_to("vllm", skewed, {}), "tuned for 4096 tokens"));
}

TEST(Servers, KeepTheRowsOfABaseWhereNoWinnerIsFaster) {
  const sample::Folder folder;
  const std::string name = "E=128,N=768,device_name=NVIDIA_H200.json";
  const ServingRow tuned{.block_m = 16, .block_n = 64, .block_k = 128, .warps = 4, .stages = 4, .use_tma = {}},
      other{.block_m = 64, .block_n = 256, .block_k = 64, .group_m = 32, .warps = 8, .stages = 3, .use_tma = {}};
  write_atomic(folder / name, "{\"triton_version\": \"3.6.0\"," + serving_text({{16, tuned}, {700, other}}).substr(1));
  for (const auto& base : {folder / name, folder / "."}) {
    const Export result = export_to("vllm", timed_table(), {.places = look_up_below(kVllm, {base}, "")});
    const ServingRows rows = rows_of(result.files[0].text);
    EXPECT_TRUE(noted(result, "tuned for 16 tokens; the other rows are rows of " + (folder / "").string()));
    for (int64_t tokens = 1; tokens <= 8192; ++tokens)
      if (tokens < 12 || tokens > 20) {
        ASSERT_EQ(row_for(rows, tokens), tokens <= 358 ? tuned : other) << tokens;
      }
    EXPECT_EQ(row_for(rows, 16).stages, 5);
  }
  write_atomic(folder / name, "{\"16\": {\"BLOCK_SIZE_M\": 16}}");
  EXPECT_TRUE(holds(error_of([&] { export_to("vllm", timed_table(), {.places = {.places = {folder / name}}}); }).what,
                    name + ": 16: 'BLOCK_SIZE_N' is missing"));
}

TEST(Servers, GetBlockFp8UnderItsNamesWithinItsBlocks) {
  Layer layer = qwen_up();
  layer.format = find_format("fp8", ScaleKind::block);
  const TunedTable table = sample::table(
      {entry(cell(layer, 16), triton(16, 64, 64, 4, 5), 1), entry(cell(layer, 64), triton(16, 64, 256, 4, 5), 1)});
  const Export vllm = export_to("vllm", table), sglang = export_to("sglang", table);
  EXPECT_EQ(vllm.files[0].name, "E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json");
  EXPECT_EQ(sglang.files[0].name, "E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json");
  EXPECT_EQ(row_of(vllm.files[0], 16).stages, 5);
  EXPECT_TRUE(
      noted(vllm, "1 winner is replaced by vLLM's default: over blocks of 128 a BLOCK_SIZE_K must be 64 or 128"));
  EXPECT_EQ(row_of(vllm.files[0], 64), default_row(kVllm, 64, 128, format_of("fp8", ScaleKind::block)));
}

TEST(Vllm, WidthsThatItPadsAndTheGateOfTheCellNameTheFile) {
  Layer layer = sample::layer("kimi-k3", Projection::up, 896, 16, 384, 3584);
  layer.tp = 16;
  EXPECT_TRUE(export_to("vllm", sample::table({entry(cell(layer, 16), triton(16, 64, 64), 1)}))
                  .files[0]
                  .name.starts_with("E=896,N=256,"));
  layer = sample::layer("mine", Projection::up, 8, 2, 512, 256);
  layer.gate.gated = false;
  EXPECT_TRUE(export_to("vllm", sample::table({entry(cell(layer, 16), triton(16, 64, 64), 1)}))
                  .files[0]
                  .name.starts_with("E=8,N=512,"));
}

TEST(Sglang, HasASecondFileForDown) {
  const Export result = export_to("sglang", qwen_table());
  ASSERT_EQ(result.files.size(), 2u);
  EXPECT_EQ(result.files[0].name, "E=128,N=768,device_name=NVIDIA_H200.json");
  EXPECT_EQ(result.files[1].name, "E=128,N=768,device_name=NVIDIA_H200_down.json");
  expect_golden_rows("sglang.json", result.files[0].text);
  expect_golden_rows("sglang_down.json", result.files[1].text);
  EXPECT_TRUE(holds(install_advice(kSglang, true),
                    "beside those that SGLang bundles, in sglang/srt/layers/moe/moe_runner/triton_utils: "
                    "SGLANG_MOE_CONFIG_DIR replaces that folder for all layers"));
  EXPECT_FALSE(holds(result.files[0].text, "USE_TMA"));
  for (const auto& [tokens, row] : rows_of(result.files[1].text)) EXPECT_EQ(row.use_tma, false) << tokens;
  const Export up = export_to("sglang", sample::table({entry(cell(qwen_up(), 16), triton(16), 1)}));
  ASSERT_EQ(up.files.size(), 1u);
  EXPECT_EQ(row_of(up.files[0], 64), default_row(kSglang, 64, 128));
}

TEST(Sglang, BothFilesAgreeOnBlockMForEveryTokenCount) {
  const Export result = export_to("sglang", qwen_table());
  const ServingRows up = rows_of(result.files[0].text);
  const ServingRows down = rows_of(result.files[1].text);
  for (int64_t tokens = 1; tokens <= 8192; ++tokens)
    ASSERT_EQ(row_for(up, tokens).block_m, row_for(down, tokens).block_m) << tokens;
}

TEST(Sglang, ADownWinnerWithUpsBlockMIsTakenWhole) {
  const ServingRow row = row_of(export_to("sglang", qwen_table()).files[1], 16);
  EXPECT_EQ(row.block_n, 128);
  EXPECT_EQ(row.stages, 5);
}

TEST(Sglang, ATieWithUpsBlockMIsBetterThanAReplacedOne) {
  TunedTable table = qwen_table();
  table.entries[3].ties = {triton(32), triton(128, 64, 64, 8, 4)};
  const Export result = export_to("sglang", table);
  const ServingRow row = row_of(result.files[1], 4096);
  EXPECT_EQ(row.block_m, 128);
  EXPECT_EQ(row.block_n, 64);
  for (const std::string& note : result.notes) EXPECT_FALSE(holds(note, "another BLOCK_SIZE_M")) << note;
}

TEST(Sglang, ADownWinnerOfAnotherBlockMGivesWayToTheDefaultWithUps) {
  const Export result = export_to("sglang", qwen_table());
  ServingRow row = default_row(kSglang, 4096, 128);
  row.block_m = 128;
  row.use_tma = false;
  EXPECT_EQ(row_of(result.files[1], 4096), row);
  EXPECT_TRUE(noted(result, "1 winner is replaced by SGLang's default: it has another BLOCK_SIZE_M than up"));
}

TEST(Sglang, DownAloneStillNeedsAnUpFileOfDefaults) {
  const Export result = export_to("sglang", sample::table({entry(cell(qwen_down(), 16), triton(16, 256), 1)}));
  ASSERT_EQ(result.files.size(), 2u);
  EXPECT_EQ(row_of(result.files[0], 16), default_row(kSglang, 16, 128));
  EXPECT_EQ(row_of(result.files[1], 16).block_n, 256);
}

}  // namespace
}  // namespace moetune
