// Layers: two launches, the second of which reads what the first wrote; and the check that it waits for it.
#include <gtest/gtest.h>

#include "backend/chain.h"
#include "backend/cpu/machine.h"
#include "error_of.h"
#include "three_loops.h"

namespace moetune {
namespace {

using namespace three_loops;

// A device in words: up writes 1 to 3 and down adds 10 to each, when the queue is run.
struct Imaginary {
  std::vector<std::byte> y = std::vector<std::byte>(3), result = y;
  std::vector<std::function<void()>> queue = {};
  bool overtakes = false;  // down reads before up wrote, unless the host waits in between
  bool reads_y = true;

  Chain chain() {
    const auto fill = [](std::vector<std::byte>& bytes) { std::ranges::fill(bytes, std::byte{0xff}); };
    return {.clear = [=, this] { fill(y), fill(result); },
            .up =
                [this] {
                  queue.push_back([this] {
                    for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<std::byte>(i + 1);
                  });
                },
            .down =
                [this] {
                  queue.insert(overtakes ? queue.begin() : queue.end(), [this] {
                    for (size_t i = 0; i < y.size(); ++i)
                      result[i] = static_cast<std::byte>((reads_y ? std::to_integer<int>(y[i]) : 5) + 10);
                  });
                },
            .wait =
                [this] {
                  for (const auto& launch : queue) launch();
                  queue.clear();
                },
            .result = [this] { return result; }};
  }
};

TEST(CompareChained, PassesLaunchesThatWaitForEachOther) {
  Imaginary device;
  const Verdict verdict = compare_chained(device.chain());
  EXPECT_TRUE(verdict.ok) << verdict.reason;
  EXPECT_EQ(verdict.elements, 3);
}

TEST(CompareChained, FindsALaunchThatDoesNotWait) {
  Imaginary device{.overtakes = true};
  const Verdict verdict = compare_chained(device.chain());
  EXPECT_FALSE(verdict.ok);
  EXPECT_EQ(verdict.mismatches, 3);
  EXPECT_EQ(verdict.reason,
            "back to back, 3 of 3 bytes differ from those of up and then down, from byte 0 on: down does not wait for "
            "up");
}

TEST(CompareChained, FindsALaunchThatReadsSomethingElse) {
  Imaginary device{.reads_y = false};
  const Verdict verdict = compare_chained(device.chain());
  EXPECT_FALSE(verdict.ok);
  EXPECT_EQ(verdict.reason, "down does not read what up writes");
}

TEST(CompareChained, NothingToComputeIsRight) {
  Imaginary device;
  Chain chain = device.chain();
  chain.up = chain.down = [] {};
  EXPECT_TRUE(compare_chained(chain).ok);
}

// hidden 120, intermediate 96.
struct Parts {
  Problem up, down;
};
Parts parts(Dtype dtype, Fusion of_up, Fusion of_down, const std::string& routing = "zipf:1") {
  const Setting wide{.dtype = dtype, .fusion = of_up, .n = 192, .k = 120};
  const Setting narrow{.dtype = dtype, .fusion = of_down, .n = 120, .k = 96, .projection = Projection::down};
  return {problem_of(routing, 64, 8, 2, wide), problem_of(routing, 64, 8, 2, narrow)};
}

const Fusion kUp = {.permute_x = true, .activation = Activation::silu};
const Fusion kUpBySlot = {.permute_x = true, .by_slot = true, .activation = Activation::gelu};
const Fusion kDownBySlot = {.topk_weights = true, .by_slot = true};

Contender pair_of(const Candidate& up, const Candidate& down) {
  return {.baseline = "", .candidate = up, .down = down};
}

TEST(Feeds, OnlyDownThatReadsYOfUp) {
  const auto [up, down] = parts(Dtype::bf16, kUp, kWeighted);
  EXPECT_TRUE(feeds(up.shape, down.shape));
  EXPECT_FALSE(feeds(down.shape, up.shape));
  const auto with = [&](const auto& change) {
    Shape other = down.shape;
    change(other);
    return feeds(up.shape, other);
  };
  EXPECT_FALSE(with([](Shape& s) { s.layer.k = 192; }));
  EXPECT_FALSE(with([](Shape& s) { s.layer.n = 128; }));
  EXPECT_FALSE(with([](Shape& s) { s.layer.top_k = 1; }));
  EXPECT_FALSE(with([](Shape& s) { s.fusion = kDownBySlot; }));
  EXPECT_FALSE(with([](Shape& s) { s.op = Op::dx; }));
  const auto [plain, after] = parts(Dtype::bf16, {.permute_x = true}, kWeighted);
  EXPECT_FALSE(feeds(plain.shape, after.shape)) << "without an activation Y is twice as wide";
  auto [wide, narrow] = parts(Dtype::bf16, kUp, kWeighted);
  for (Shape* shape : {&wide.shape, &narrow.shape}) shape->layer.format = find_format("fp8", ScaleKind::block);
  EXPECT_FALSE(feeds(wide.shape, narrow.shape)) << "Y of fp8 is bf16";
}

class CpuLayer : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend = make_cpu_backend();
};

TEST_F(CpuLayer, RunsBothPartsOrOne) {
  for (const Dtype dtype : kDtypes)
    for (const auto& [of_up, of_down] : {std::pair(kUp, kWeighted), std::pair(kUpBySlot, kDownBySlot)}) {
      const auto [up, down] = parts(dtype, of_up, of_down);
      backend->load_layer(up, down);
      const Contender contenders[] = {{.baseline = "loop", .candidate = {}},
                                      pair_of(candidate(8, 32, 16, 1), candidate(24, 64, 32, 2))};
      for (const Contender& contender : contenders) {
        const Verdict verdict = backend->verify(contender);
        EXPECT_TRUE(verdict.ok) << name(dtype) << " " << text(contender) << ": " << verdict.reason;
        EXPECT_EQ(verdict.elements, 64 * 2 * 120 * size_bytes(dtype));
        EXPECT_EQ(backend->sample(contender, {.blocks = 2, .block_seconds = 1e-4}).size(), 2u);
      }
      for (const Contender& part : {Contender{.baseline = "", .candidate = candidate(8, 32, 16, 1)},
                                    Contender{.baseline = "", .candidate = {}, .down = candidate(8, 32, 16, 1)}})
        EXPECT_EQ(backend->sample(part, {.blocks = 1, .block_seconds = 1e-4}).size(), 1u);
    }
}

TEST_F(CpuLayer, WithoutRowsItIsRight) {
  auto [up, down] = parts(Dtype::bf16, kUp, kWeighted);  // of a rank whose experts nobody picked
  for (Problem* part : {&up, &down}) {
    std::ranges::fill(part->routing.m_sizes, 0);
    part->routing.gather_indices.clear();
  }
  backend->load_layer(up, down);
  EXPECT_TRUE(backend->verify({.baseline = "loop", .candidate = {}}).ok);
}

TEST_F(CpuLayer, APartThatCannotRunIsIllegal) {
  const auto [up, down] = parts(Dtype::bf16, kUp, kWeighted);
  backend->load_layer(up, down);
  const Candidate right = candidate(8, 32, 16, 1), wrong = candidate(8, 32, 16, 1 << 20);
  for (const Contender& contender : {pair_of(right, wrong), pair_of(wrong, right)})
    EXPECT_THROW(backend->sample(contender, {}), CandidateFault) << text(contender);
}

TEST(LayerContender, ItsTextNamesBothParts) {
  const Candidate one = candidate(8, 32, 16, 1), other = candidate(24, 64, 32, 2);
  EXPECT_EQ(text(pair_of(one, other)), text(one) + ", then " + text(other));
  EXPECT_EQ(text(Contender{.baseline = "", .candidate = {}, .down = other}), "then " + text(other));
}

}  // namespace
}  // namespace moetune
