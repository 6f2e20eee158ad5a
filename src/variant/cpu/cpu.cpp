// What is legal for the cpu variant, and what is good without tuning.
#include "variant/cpu/cpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "variant/catalog.h"
#include "variant/knob_list.h"
#include "variant/unit.h"

namespace moetune {
namespace {

// One, and powers of two up to the threads of this machine, and all of them.
std::vector<int> thread_counts() {
  const int most = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<int> counts;
  for (int count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

const KnobList<CpuKnobs>& list() {
  static const KnobList<CpuKnobs> knobs =
      KnobList<CpuKnobs>("cpu")
          .add_blocks({12, 24, 48, 96, 128, 192}, {32, 64, 128, 256, 512}, {64, 128, 256, 512, 1024})
          .add("threads", &CpuKnobs::threads, "threads of the cpu backend")
          .tries(thread_counts());
  return knobs;
}

constexpr int kMaxBlock = 4096;

std::optional<std::string> illegal_block(std::string_view knob, int value, int step) {
  if (value >= step && value <= kMaxBlock && value % step == 0) return std::nullopt;
  return fmt::format("{} must be a multiple of {} in {} to {}", knob, step, step, kMaxBlock);
}

std::optional<std::string> illegal(const CpuKnobs& c, const Shape& shape, const DeviceInfo& device) {
  const std::vector<Dtype> dtypes = {Dtype::bf16, Dtype::fp16, Dtype::fp32,  Dtype::fp8,
                                     Dtype::int8, Dtype::int4, Dtype::uint4, Dtype::e2m1};
  if (auto reason = unsupported("cpu", shape, dtypes, {Op::fwd, Op::dx, Op::dw})) return reason;
  if (shape.layer.format.w.reordered) return "cpu reads W in rows, --weights as-is: wgmma reads it reordered";
  if (device.kind != DeviceKind::cpu) return "the cpu variant runs on a cpu only";
  if (auto reason = illegal_block("block_m", c.block_m, kCpuTileRows)) return reason;
  if (auto reason = illegal_block("block_n", c.block_n, kCpuTileColumns)) return reason;
  if (auto reason = illegal_block("block_k", c.block_k, kCpuDepthStep)) return reason;
  if (c.threads < 1 || c.threads > device.processors)
    return fmt::format("threads must lie in 1 to {}, the threads of this machine", device.processors);
  if (cpu_scratch_bytes(c) > kCpuScratchLimit)
    return fmt::format("block_m, block_n or block_k must be smaller: packed blocks need over {} MiB a thread",
                       kCpuScratchLimit >> 20);
  return std::nullopt;
}

// Large blocks keep the multipliers busy and packed B in use, whatever the routing; an expert with fewer rows than
// block_m costs no more for it. Narrow problems need smaller blocks to give all threads work.
CpuKnobs fallback(const Problem& problem, const DeviceInfo& device) {
  CpuKnobs c{.block_m = 128, .block_n = 256, .block_k = 256, .threads = device.processors};
  while (c.block_n > 64 && tiles_of(c.block_m, c.block_n, problem) < int64_t{4} * c.threads) c.block_n /= 2;
  while (c.block_m > 32 && tiles_of(c.block_m, c.block_n, problem) < int64_t{4} * c.threads) c.block_m /= 2;
  return c;
}

}  // namespace

int64_t cpu_scratch_bytes(const CpuKnobs& c) {
  const int64_t m = c.block_m, n = c.block_n, k = c.block_k;
  return (m * k + n * k + m * n) * static_cast<int64_t>(sizeof(float));
}

CpuKnobs cpu_knobs(const Candidate& candidate) { return list().values(candidate); }

Variant cpu_variant() {
  return make_variant<CpuKnobs>(list(), "blocked, packed, threaded and vectorised on the host; fp32 sums",
                                {.illegal = illegal, .fallback = fallback});
}

}  // namespace moetune
