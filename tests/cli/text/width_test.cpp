// What commands print of real kernels fits in 80 columns; with --verbose it has all knobs.
#include <gtest/gtest.h>

#include "base/text/units.h"
#include "built_in.h"
#include "cli/tables/bench_results.h"
#include "cli/text/output.h"

namespace moetune {
namespace {

void expect_narrow(const std::string& text) {
  for (const std::string& line : split(text, '\n')) EXPECT_LE(display_width(line), 80) << line;
}

bool holds(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

Cell cell_of(int64_t tokens) {
  Cell cell;
  cell.shape.layer = {.model = "nemotron-3-super-120b", .experts = 512, .top_k = 22, .n = 2688, .k = 1024};
  cell.shape.fusion = {.permute_y = true, .topk_weights = true};
  cell.tokens = tokens;
  cell.routing = parse_routing("zipf:1.25");
  return cell;
}

// The default of a Hopper GPU, one that differs in nearly every knob, and another variant; with their names.
CellWork work_of(int64_t tokens) {
  const DeviceInfo device = device_of_arch("sm_90a");
  CellWork work{cell_of(tokens), {}};
  const Problem problem = make_problem(work.cell);
  const SearchSpace usual = usual_space(built_in());
  add_entrant(
      work, "winner",
      {.baseline = "",
       .candidate = parse_candidate(
           "wgmma block_m=256 block_n=64 block_k=64 stages=5 raster=n group=16 consumers=3 schedule=pingpong swap=no "
           "cluster=m in_flight=0 tma_x=no tma_w=no tma_store=rows addressing=pointers tiles=static pace=common "
           "split=0 "
           "hold=512 gather=first mix=8")});
  add_entrant(work, "default", {.baseline = "", .candidate = default_candidate(usual, problem, device)});
  add_entrant(work, "candidate",
              {.baseline = "", .candidate = complete(parse_partial_candidate("mma group=3"), problem, device)});
  add_entrant(work, "baseline", {.baseline = "cublas-grouped", .candidate = {}});
  name_entrants(work, usual, problem, device);
  return work;
}

Measurement noisy_time() {
  Measurement time;
  time.time = {250e-6, 120e-6, 880e-6, 11};
  return time;
}

TEST(Width, OfBench) {
  std::vector<EntrantResult> results;
  for (const int64_t tokens : {64, 1024})
    for (const Entrant& entrant : work_of(tokens).entrants)
      results.push_back({.cell = cell_of(tokens),
                         .entrant = entrant,
                         .measurement = noisy_time(),
                         .versus = {4, 0.52, 31.48},
                         .flops = 1.234e11,
                         .bytes = 1e9});
  results.back().status = Status::launch_error;
  results.back().reason = "cuBLAS: grouped gemm: the requested functionality is not supported on this device";
  const std::string shown = bench_text(results, {.columns = 80});
  expect_narrow(shown);
  for (const std::string words : {"wgmma, the default ", "| winner: wgmma block_m=256 ", "| mma group=3 ",
                                  "64 tokens, ", "1024 tokens, ", "vs cublas-grouped", "launch_error"})
    EXPECT_TRUE(holds(shown, words)) << words << "\n" << shown;
  const std::string all = bench_text(results, {.verbose = true});
  for (const EntrantResult& result : results) EXPECT_TRUE(holds(all, text(result.entrant.contender))) << all;
  for (const std::string& line : split(bench_text(results, {.format = OutputFormat::markdown}), '\n'))
    EXPECT_TRUE(line.empty() || line[0] == '|' || line[0] == '#' || line.starts_with("- ")) << line;
}

TEST(Width, OfATrainingStep) {
  std::vector<EntrantResult> results;
  for (const Projection projection : {Projection::up, Projection::down})
    for (const Op op : {Op::fwd, Op::dx, Op::dw})
      for (const std::string role : {"winner", "default", "baseline", "peer"}) {
        Cell cell = cell_of(1024);
        Layer& layer = cell.shape.layer;
        layer.projection = projection;
        if (projection == Projection::down) layer.n = 1024, layer.k = 2688;
        cell.shape.fusion = projection == Projection::up ? Fusion{.permute_x = true} : cell.shape.fusion;
        cell.shape.op = op;
        results.push_back({.cell = cell,
                           .entrant = {role,
                                       {.baseline = "cublas-loop", .candidate = {}},
                                       role == "peer" ? "torch-grouped-mm (peer)" : "x"},
                           .measurement = noisy_time(),
                           .versus = {4, 0.52, 31.48},
                           .flops = 1e11,
                           .bytes = 1e9});
      }
  const std::string shown = bench_text(results, {.columns = 80});
  expect_narrow(shown);
  for (const std::string words : {"nemotron-3-super-120b training step, bf16: 512 experts, top 22, hidden 1024,",
                                  "speedup of winners", "torch-grouped-mm (peer)", "720 µs to 5.28 ms"})
    EXPECT_TRUE(holds(shown, words)) << words << "\n" << shown;
}

TEST(HeadedTables, PrintAHeadingOnceAndNestItInMarkdown) {
  const Grid grid{{{"a"}}, {{"1"}}};
  const std::vector<HeadedTable> tables = {{{"layer", "8 tokens"}, grid}, {{"layer", "16 tokens"}, grid}};
  EXPECT_EQ(headed_tables_text(tables, {.columns = 80}),
            "layer\n8 tokens\n\n| a   |\n| --- |\n| 1   |\n\n16 tokens\n\n| a   |\n| --- |\n| 1   |\n");
  EXPECT_TRUE(
      headed_tables_text(tables, {.format = OutputFormat::markdown}).starts_with("## layer\n### 8 tokens\n\n| a"));
  EXPECT_EQ(bullets({"some words", "b|c"}, {.columns = 8}), "\n- some\n  words\n- b\\|c\n");
  EXPECT_EQ(bullets({"a <b>"}, {.format = OutputFormat::markdown}), "\n- a &lt;b&gt;\n");
}

}  // namespace
}  // namespace moetune
