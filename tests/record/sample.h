// Small tables, journals and folders for the tests of this room.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/system/file.h"
#include "built_in.h"
#include "error_of.h"
#include "golden.h"
#include "record/journal/journal.h"
#include "record/table/table.h"
#include "record/toy.h"
#include "workload/product/work.h"

namespace moetune::sample {

/// A folder of one test, gone with it.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "moetune-table-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline DeviceInfo h200() {
  return {.kind = DeviceKind::cuda,
          .name = "NVIDIA H200",
          .id = "GPU-1234",
          .compute_capability = 90,
          .processors = 132,
          .shared_memory_per_block = 232448,
          .shared_memory_per_sm = 233472,
          .registers_per_sm = 65536,
          .cache_bytes = 62914560,
          .memory_bytes = 150754820096,
          .peak_flops = 989e12,
          .peak_bandwidth = 4.8e12};
}

inline Layer layer(const std::string& model, Projection projection, int64_t experts, int64_t top_k, int64_t n,
                   int64_t k) {
  return {.model = model,
          .projection = projection,
          .experts = experts,
          .top_k = top_k,
          .n = n,
          .k = k,
          .format = find_format("bf16"),
          .tp = 1,
          .ep = 1};
}

inline Layer small_up() { return layer("custom", Projection::up, 4, 2, 64, 32); }
inline Layer qwen_up() { return layer("qwen3-30b-a3b", Projection::up, 128, 8, 1536, 2048); }
inline Layer qwen_down() { return layer("qwen3-30b-a3b", Projection::down, 128, 8, 2048, 768); }

inline Cell cell(const Layer& of, int64_t tokens, const std::string& routing = "uniform", uint64_t seed = 0) {
  return {.shape = {.layer = of, .op = Op::fwd, .fusion = {}},
          .tokens = tokens,
          .routing = parse_routing(routing),
          .seed = seed};
}

inline Candidate mma(int block_m, int block_n = 128, int block_k = 64, int warps = 4, int stages = 3) {
  return parse_candidate(fmt::format("mma block_m={} block_n={} block_k={} warps={} stages={} raster=n group=1",
                                     block_m, block_n, block_k, warps, stages));
}

/// A candidate of a pack of the servers' kernel, which isn't in the catalog.
inline Candidate triton(int block_m, int block_n = 128, int block_k = 64, int warps = 4, int stages = 3,
                        int group = 1) {
  const auto variant = std::make_shared<Variant>();
  variant->name = "triton_moe";
  Candidate candidate{.variant = variant, .values = {}};
  candidate.foreign = {{"pack", "0123456789ab"},
                       {"BLOCK_SIZE_M", std::to_string(block_m)},
                       {"BLOCK_SIZE_N", std::to_string(block_n)},
                       {"BLOCK_SIZE_K", std::to_string(block_k)},
                       {"GROUP_SIZE_M", std::to_string(group)},
                       {"num_warps", std::to_string(warps)},
                       {"num_stages", std::to_string(stages)}};
  return candidate;
}

inline Measurement measurement(double us, int samples = 11) {
  return {
      .time = {us * 1e-6, 0.99 * us * 1e-6, 1.02 * us * 1e-6, samples}, .launches = 20 * samples, .clock_mhz = 1965};
}

inline Verdict right() {
  return {.ok = true, .reason = "", .elements = 4096, .mismatches = 0, .normalised_error = 0.00171, .max_ulps = 0.75};
}

inline Rival rival(const std::string& name, double us, double ratio, const Candidate& candidate = {}) {
  return {.name = name,
          .candidate = candidate,
          .measurement = measurement(us),
          .ratio = {ratio, 0.98 * ratio, 1.01 * ratio}};
}

inline Entry entry(const Cell& of, const Candidate& winner, double us) {
  const Problem problem = make_problem(of);
  Entry result;
  result.cell = of;
  result.m_sizes = problem.routing.m_sizes;
  result.figures = figures(problem.routing);
  result.flops = flops(product_of(problem));
  result.bytes = bytes(product_of(problem));
  result.candidate = winner;
  result.occupancy = tile_occupancy(product_of(problem), block_m_of(winner).value());
  result.measurement = measurement(us);
  result.verdict = right();
  result.rivals = {rival("default", 1.25 * us, 0.8, mma(64)), rival("cublas-loop", 2 * us, 0.5)};
  result.legal = 100;
  result.measured = 90;
  result.failed = 2;
  return result;
}

inline Entry skipped_entry(const Cell& of, const std::string& reason) {
  Entry result = entry(of, mma(64), 1);
  result.candidate = {};
  result.measurement = {};
  result.verdict = {};
  result.rivals.clear();
  result.occupancy = 0;
  result.measured = result.failed = 0;
  result.skipped = reason;
  result.complete = false;
  return result;
}

inline TunedTable table(std::vector<Entry> entries = {}) {
  return {.tool = {{"name", "moetune"},
                   {"version", "0.1.0"},
                   {"commit", "0123456789ab"},
                   {"dirty", false},
                   {"argv", {"moetune", "tune", "--model", "qwen3-30b-a3b"}}},
          .device = h200(),
          .environment = {{"identity", {{"driver", "580.1"}, {"kernels", "f00d"}}}, {"host", "node1"}},
          .regime = Regime::burst,
          .entries = std::move(entries)};
}

/// Three entries of a layer of four experts: a winner with ties and rivals, one stopped early, one without a winner.
inline TunedTable small_table() {
  Entry first = entry(cell(small_up(), 16), mma(16), 12.3456789);
  first.ties = {mma(32), mma(16, 64)};
  Entry second = entry(cell(small_up(), 64, "zipf:1", 3), mma(32, 64), 20.5);
  second.complete = false;
  second.rivals.pop_back();
  return table(
      {first, second, skipped_entry(cell(small_up(), 256, "single"), "out of memory: it needs 12 GB, 8 GB are free")});
}

inline JournalHeader header(std::vector<Cell> cells = {cell(small_up(), 16), cell(small_up(), 64, "zipf:1")}) {
  return {.cells = std::move(cells),
          .device = h200(),
          .environment = {{"identity", {{"driver", "580.1"}, {"kernels", "f00d"}}}, {"host", "node1"}},
          .space = "quick",
          .strategy = "exhaustive",
          .seed = 7};
}

inline Trial trial(const Candidate& candidate, double us) {
  Trial result;
  result.candidate = candidate;
  result.measurement = measurement(us, 5);
  result.verdict = right();
  result.compile = {.status = Status::ok,
                    .reason = "",
                    .registers = 128,
                    .spill_bytes = 0,
                    .static_shared_bytes = 512,
                    .from_cache = false,
                    .seconds = 0.21};
  return result;
}

inline Trial failed_trial(const Candidate& candidate, Status status, const std::string& reason) {
  Trial result;
  result.candidate = candidate;
  result.status = status;
  result.reason = reason;
  return result;
}

/// A change to a JSON document, and what its reader says then.
struct Damage {
  const char* pointer;
  const char* value;  // "" removes it
  const char* said;
};

/// Each damage alone: read(document at the place `where`) must refuse the request with these words.
template <typename Read>
void expect_refused(const Json& whole, const std::string& where, const std::vector<Damage>& damages, Read read) {
  for (const Damage& damage : damages) {
    Json json = whole;
    const Json::json_pointer pointer(damage.pointer);
    if (*damage.value == '\0')
      json.at(pointer.parent_pointer()).erase(pointer.back());
    else
      json[pointer] = Json::parse(damage.value);
    const Caught fault = error_of([&] { read(JsonAt(json, where)); });
    EXPECT_EQ(fault.exit, Exit::request) << damage.pointer;
    EXPECT_EQ(fault.what, damage.said);
  }
}

/// expect_golden of tests/record/golden/<name>.
inline void expect_golden(const std::string& name, const std::string& text) {
  moetune::expect_golden("record/golden/" + name, text);
}

}  // namespace moetune::sample
