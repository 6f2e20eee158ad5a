// Lookups as vLLM and SGLang do them, written anew: they find the files of an export under their names, and in these,
// for every token count, the winner that was proven there or the row that they would run without the file.
#include <map>

#include "export/exporter.h"
#include "export/serving/serving_rows.h"
#include "record/sample.h"
#include "workload/model.h"

namespace moetune {
namespace {

using Row = std::vector<int64_t>;  // M, N, K, group, warps, stages

Row row_of(const ServingRow& row) {
  return {row.block_m, row.block_n, row.block_k, row.group_m, row.warps, row.stages};
}

// vLLM 0.33: get_config_file_name, get_moe_configs and get_default_config of fused_moe.py.
struct Vllm {
  static constexpr const Server* kServer = &kVllm;
  static std::string file(int64_t experts, int64_t n, const std::string& dtype, bool block, bool, bool) {
    return fmt::format("E={},N={},device_name=NVIDIA_H200{}{}.json", experts, n, dtype.empty() ? "" : ",dtype=" + dtype,
                       block ? ",block_shape=[128,128]" : "");
  }
  static Row fallback(int64_t m, int64_t experts, const std::string& dtype, bool block) {
    if (block) return {m <= 64 ? 16 : 64, m <= 8 ? 64 : 128, 128, m <= 16 ? 1 : 32, 4, m <= 4 ? 4 : 3};
    const int64_t block_m = m <= 32 ? 16 : m <= 96 ? 32 : m <= 512 ? 64 : 128;
    return {block_m,          m <= 64 ? 64 : 128, m <= 64 || !dtype.empty() ? 128 : 64, m / experts > 128 ? 16 : 1,
            m <= 128 ? 4 : 8, m <= 32 ? 4 : 3};
  }
};

// SGLang 0.5.23: the same of fused_moe_triton_config.py.
struct Sglang {
  static constexpr const Server* kServer = &kSglang;
  static std::string file(int64_t experts, int64_t n, const std::string& dtype, bool block, bool channel, bool down) {
    return fmt::format("E={},N={},device_name=NVIDIA_H200{}{}{}{}.json", experts, n,
                       dtype.empty() ? "" : ",dtype=" + dtype, block ? ",block_shape=[128, 128]" : "",
                       channel ? ",per_channel_quant=True" : "", down ? "_down" : "");
  }
  static Row fallback(int64_t m, int64_t experts, const std::string& dtype, bool block) {
    if (block) return {64, 128, 128, 32, 4, 3};
    if (dtype == "fp8_w8a8") return m <= experts ? Row{64, 128, 128, 1, 4, 4} : Row{128, 256, 128, 32, 8, 4};
    return m <= experts ? Row{16, 32, 64, 1, 4, 3} : Row{64, 64, 32, 8, 4, 3};
  }
};

// min(configs, key=lambda key: abs(key - m)), with the keys in the order of the file.
const Row& nearest(const std::vector<std::pair<int64_t, Row>>& rows, int64_t m) {
  size_t best = 0;
  for (size_t i = 1; i < rows.size(); ++i)
    if (std::abs(rows[i].first - m) < std::abs(rows[best].first - m)) best = i;
  return rows[best].second;
}

// Winners that no default is, each 1.2x as fast as both servers' defaults.
const std::vector<int64_t> kTuned = {1, 16, 256, 4096};
Candidate winner(int64_t tokens) { return sample::triton(16, 64, 64, 4, 2, tokens == 1 ? 1 : 4); }

Entry entry_of(const Layer& layer, int64_t tokens, const std::string& dtype) {
  Entry entry = sample::entry(sample::cell(layer, tokens, "balanced"), winner(tokens), 100);
  entry.rivals.clear();
  const bool block = layer.format.scales == ScaleKind::block;
  for (const Row& row :
       {Vllm::fallback(tokens, layer.experts, dtype, block), Sglang::fallback(tokens, layer.experts, dtype, block)}) {
    const auto at = [&](size_t i) { return static_cast<int>(row[i]); };
    // SGLang gives down the BLOCK_SIZE_M of up.
    entry.rivals.push_back(
        sample::rival("its own", 120, 1 / 1.2, sample::triton(at(0), at(1), at(2), at(4), at(5), at(3))));
  }
  return entry;
}

template <typename Program>
void expect_found(const Export& exported, const Model& model, int64_t tp, ScaleKind scales) {
  const bool block = scales == ScaleKind::block, channel = scales == ScaleKind::channel;
  const std::string dtype = scales == ScaleKind::none ? "" : "fp8_w8a8";
  int64_t n = model.intermediate / tp;
  if (model.name == "kimi-k3" && tp == 16 && Program::kServer == &kVllm) n = 256;
  const Row first = row_of(*serving_row(winner(1))), others = row_of(*serving_row(winner(16)));
  for (const bool down : {false, true}) {
    if (down && Program::kServer == &kVllm) continue;
    const std::string name = Program::file(model.experts, n, dtype, block, channel, down);
    const auto file = std::ranges::find(exported.files, name, &ExportedFile::name);
    const bool refined = Program::kServer == &kVllm && block && n % 128 != 0;  // with blocks of another size
    ASSERT_EQ(file != exported.files.end(), !refined) << name;
    if (refined) continue;
    std::vector<std::pair<int64_t, Row>> rows;
    const Json json = parse_json(file->text, name);
    for (const auto& [key, row] : json.items()) {
      rows.emplace_back(std::stoll(key), Row{row["BLOCK_SIZE_M"], row["BLOCK_SIZE_N"], row["BLOCK_SIZE_K"],
                                             row["GROUP_SIZE_M"], row["num_warps"], row["num_stages"]});
      if (down) {
        EXPECT_EQ(row["USE_TMA"], false);
      }
    }
    for (int64_t m = 1; m <= 8192; ++m) {
      // Tuned counts reach to the middle of the way to the next counts of the servers' tuners.
      const bool tuned = m == 1 || (m > 12 && m <= 20) || (m > 192 && m <= 384) || m > 3584;
      const Row own = tuned ? Row() : Program::fallback(m, model.experts, dtype, block);
      const Row& expected = m == 1 ? first : tuned ? others : own;
      if (nearest(rows, m) == expected) continue;
      ASSERT_EQ(nearest(rows, m), expected) << name << " for " << m;
    }
  }
}

class ServersFind : public testing::TestWithParam<ScaleKind> {};
TEST_P(ServersFind, TheFilesOfTwentyModelsAndTheirRowsForEveryTokenCount) {
  const ScaleKind scales = GetParam();
  size_t models = 0;
  for (const Model& model : model_presets()) {
    if (++models > 20 && model.name != "nemotron-3-nano-30b") continue;
    for (const int64_t tp : {1, 2, 4, 8, 16}) {
      if (model.intermediate % tp != 0 || (tp == 16 && model.name != "kimi-k3")) continue;
      std::vector<Entry> entries;
      for (const Projection projection : {Projection::up, Projection::down}) {
        const Format& format = find_format(scales == ScaleKind::none ? "bf16" : "fp8", scales);
        const Layer layer = make_layer(model, projection, format, tp, 1);
        for (const int64_t tokens : kTuned)
          entries.push_back(entry_of(layer, tokens, scales == ScaleKind::none ? "" : "fp8_w8a8"));
      }
      const TunedTable table = sample::table(entries);
      SCOPED_TRACE(fmt::format("{} tp {}", model.name, tp));
      if (!(scales == ScaleKind::block && model.intermediate / tp % 128 != 0))
        expect_found<Vllm>(export_serving(kVllm, table, {}), model, tp, scales);
      else
        EXPECT_TRUE(holds(error_of([&] { export_serving(kVllm, table, {}); }).what, "vLLM splits blocks of 128"));
      expect_found<Sglang>(export_serving(kSglang, table, {}), model, tp, scales);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, ServersFind,
                         testing::Values(ScaleKind::none, ScaleKind::block, ScaleKind::channel, ScaleKind::tensor));

}  // namespace
}  // namespace moetune
