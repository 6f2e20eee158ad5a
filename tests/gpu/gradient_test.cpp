// The cuBLAS baselines on dX and dW, on hard routings and under every fusion; faults planted into their results.
#include <gtest/gtest.h>

#include <functional>

#include "backend/cuda/verify/verifier.h"
#include "base/error.h"
#include "built_in.h"
#include "gpu/gpu_test.h"
#include "variant/space/space.h"
#include "workload/product/product_rows.h"

namespace moetune {
namespace {

constexpr Op kGradients[] = {Op::dx, Op::dw};
// Of dw each also accumulates, in its own dtype and in fp32; of dx some take another pass.
std::vector<Fusion> fusions(Op op, Dtype dtype) {
  std::vector<Fusion> result;
  for (const Fusion& fusion :
       {Fusion{}, {.permute_x = true}, {.permute_y = true}, {.permute_y = true, .topk_weights = true}})
    for (const bool accumulate : {false, true})
      for (const bool fp32_dw : {false, true}) {
        if ((op != Op::dw && (accumulate || fp32_dw)) || (dtype == Dtype::fp32 && fp32_dw)) continue;
        result.push_back(fusion);
        result.back().accumulate = accumulate, result.back().fp32_dw = fp32_dw;
      }
  result.push_back({.permute_y = true, .topk_weights = true, .sum_slots = true});
  if (op == Op::dx)
    for (const Fusion& fusion : {Fusion{.permute_x = true, .sum_slots = true},
                                 Fusion{.permute_y = true, .topk_weights = true, .weight_gradient = true}})
      result.push_back(fusion);
  return result;
}

const GpuCase kGradientCases[] = {
    {"zipf", 16, 4, 256, 192, 100, "zipf:1"},
    {"one_row", 16, 1, 128, 128, 1, "uniform"},
    {"all_rows_to_one_expert", 16, 1, 128, 192, 300, "single"},
    {"more_experts_than_rows", 128, 2, 64, 64, 3, "uniform"},
    {"odd", 5, 2, 77, 51, 33, "uniform"},
    {"one_by_one", 2, 1, 1, 1, 3, "uniform"},
    {"long_sums", 2, 1, 64, 64, 20000, "balanced"},
    {"one_rank_of_four", 16, 4, 128, 128, 100, "zipf:1", 4},
    {"no_rows", 16, 1, 64, 64, 1, "balanced", 4},
};

class Gradients : public GpuTest, public testing::WithParamInterface<GpuCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, Gradients, testing::ValuesIn(kGradientCases),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(Gradients, OfTheBaselinesAreRight) {
  for (const Op op : kGradients)
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::fp32})
      for (const Fusion& fusion : fusions(op, dtype)) {
        const Problem problem = problem_of(GetParam(), dtype, fusion, op);
        const Product product = product_of(problem);
        backend().load(problem);
        const Verdict verdict = backend().verify({.baseline = "cublas-loop", .candidate = {}});
        EXPECT_TRUE(verdict.ok) << name(op) << " " << name(dtype) << " " << text(fusion) << ": " << verdict.reason;
        int64_t elements = result_rows(product, product.d) * product.d.columns;
        if (product.weight_gradient) elements += product.slots;
        EXPECT_EQ(verdict.elements, 2 * elements);
        EXPECT_EQ(verdict.mismatches, 0);
      }
}

TEST_P(Gradients, AreNoWorkOfCublasGrouped) {
  const Contender grouped{.baseline = "cublas-grouped", .candidate = {}};
  for (const Op op : kGradients) {
    backend().load(problem_of(GetParam(), Dtype::bf16, {}, op));
    try {
      backend().verify(grouped);
      FAIL() << name(op);
    } catch (const CandidateFault& fault) {
      EXPECT_EQ(fault.status, Status::illegal);
      EXPECT_EQ(std::string(fault.what()), "cuBLAS has no grouped GEMM for the operands of " + std::string(name(op)));
    }
    EXPECT_THROW(backend().sample(grouped, {}), CandidateFault);
  }
}

TEST_P(Gradients, OfTheBaselinesAreTheSameAgain) {
  for (const Op op : kGradients) {
    backend().load(problem_of(GetParam(), Dtype::bf16, {.permute_y = true, .topk_weights = true}, op));
    const Repetition repetition = backend().repeat({.baseline = "cublas-loop", .candidate = {}}, 0.02);
    EXPECT_GT(repetition.launches, 1);
    EXPECT_EQ(repetition.different, 0) << repetition.reason;
  }
}

// The default and candidates that are drawn, of each variant that takes the problem.
TEST_P(Gradients, OfTheVariantsAreRight) {
  for (const Op op : kGradients)
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16})
      for (const Fusion& fusion : fusions(op, dtype)) {
        const Problem problem = problem_of(GetParam(), dtype, fusion, op);
        backend().load(problem);
        std::vector<Candidate> candidates;  // of all variants: they compile at the same time
        for (const std::string variant : {"simt", "mma", "wgmma"}) {
          const Candidate fallback = find_variant(variant).fallback(problem, backend().device());
          if (cannot_run(fallback, problem.shape, backend().device())) continue;  // sizes that wgmma doesn't take
          candidates.push_back(fallback);
          SearchSpace space = load_space("full", built_in());
          keep_variants(space, {variant}, built_in());
          for (const Candidate& drawn : draw(space, problem.shape, backend().device(), 2, problem.seed).legal)
            candidates.push_back(drawn);
        }
        backend().compile(problem.shape, candidates);
        for (const Candidate& candidate : candidates) {
          const Verdict verdict = backend().verify({.baseline = {}, .candidate = candidate});
          EXPECT_TRUE(verdict.ok) << text(candidate) << " " << name(op) << " " << name(dtype) << " " << text(fusion)
                                  << ": " << verdict.reason;
          EXPECT_EQ(verdict.mismatches, 0);
        }
      }
}

TEST_P(Gradients, OfTheVariantsAreTheSameAgain) {
  for (const auto& [op, fusion] : {std::pair<Op, Fusion>{Op::dx, {.permute_y = true, .topk_weights = true}},
                                   {Op::dx, {.permute_x = true, .sum_slots = true}},
                                   {Op::dx, {.permute_y = true, .topk_weights = true, .weight_gradient = true}},
                                   {Op::dw, {.permute_y = true, .topk_weights = true}},
                                   {Op::fwd, {.permute_y = true, .topk_weights = true, .sum_slots = true}},
                                   {Op::dw, {.accumulate = true}},
                                   {Op::dw, {.accumulate = true, .fp32_dw = true}}}) {
    const Problem problem = problem_of(GetParam(), Dtype::bf16, fusion, op);
    backend().load(problem);
    for (const std::string variant : {"simt", "mma", "wgmma"}) {
      const Candidate candidate = find_variant(variant).fallback(problem, backend().device());
      if (cannot_run(candidate, problem.shape, backend().device())) continue;
      const Repetition repetition = backend().repeat({.baseline = {}, .candidate = candidate}, 0.02);
      EXPECT_GT(repetition.launches, 1);
      EXPECT_EQ(repetition.different, 0) << variant << ": " << repetition.reason;
    }
  }
}

// Below the backend: products that no option asks for yet, and results with faults in them.
class Faults : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    device_ = cuda_device(0);
    options_ = {.arch = arch(device_), .sources = kernel_sources(), .cache = true, .threads = 0};
    services_ = std::make_unique<Services>(options_);
    stream_ = std::make_unique<Stream>();
    cublas_ = std::make_unique<Cublas>(stream_->stream);
  }
  // The verdict on cuBLAS's result after spoil(D of set 0, stream).
  template <class Spoil>
  Verdict verdict_of(const Product& product, Spoil spoil) {
    const Operands operands = make_operands(product, device_, *services_, stream_->stream);
    const Verifier verifier(operands, *services_, *cublas_, *stream_);
    const auto run = [&] {
      operands.sort_inputs(*services_, 0, stream_->stream);
      cublas_->loop(operands.gemm(0), true);
      operands.unsort_result(*services_, 0, stream_->stream);
      spoil(operands.d.of(0), stream_->stream);
    };
    return verifier.verify(run, product.accumulates && product.d.type.dtype != Dtype::fp32);
  }
  Verdict verdict_of(const Product& product) {
    return verdict_of(product, [](char*, cudaStream_t) {});
  }
  static Product product(Op op, Dtype dtype = Dtype::bf16, Fusion fusion = {}) {
    Problem problem;
    problem.shape.layer = {
        .model = "custom", .experts = 4, .top_k = 2, .n = 40, .k = 56, .format = find_format(name(dtype))};
    problem.shape.op = op;
    problem.shape.fusion = fusion;
    problem.routing = routing_from_rows({7, 0, 20, 21}, 24, 2);
    problem.seed = 5;
    return product_of(problem);
  }

  DeviceInfo device_;
  CompilerOptions options_;
  std::unique_ptr<Services> services_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Cublas> cublas_;
};

bool says(const Verdict& verdict, const std::string& words) { return verdict.reason.find(words) != std::string::npos; }

TEST_F(Faults, AreNoneInRightResults) {
  for (const Op op : {Op::fwd, Op::dx, Op::dw})
    for (const Fusion& fusion : fusions(op, Dtype::bf16)) {
      const Verdict verdict = verdict_of(product(op, Dtype::bf16, fusion));
      EXPECT_TRUE(verdict.ok) << name(op) << " " << text(fusion) << ": " << verdict.reason;
    }
}
TEST_F(Faults, OfDweightsAreNamedBySlot) {
  const Fusion fusion = {.permute_y = true, .topk_weights = true, .weight_gradient = true};
  const Operands operands = make_operands(product(Op::dx, Dtype::bf16, fusion), device_, *services_, stream_->stream);
  const Verifier verifier(operands, *services_, *cublas_, *stream_);
  constexpr int kSlot = 3, kByte = 0x41;
  const auto verdict_after = [&](auto spoil) {
    return verifier.verify([&] {
      operands.sort_inputs(*services_, 0, stream_->stream);
      cublas_->loop(operands.gemm(0), true);
      operands.unsort_result(*services_, 0, stream_->stream);
      spoil();
    });
  };
  EXPECT_TRUE(verdict_after([] {}).ok);
  const Verdict wrong = verdict_after(
      [&] { cudaMemsetAsync(operands.dweights.floats(0) + kSlot, kByte, sizeof(float), stream_->stream); });
  EXPECT_TRUE(says(wrong, "the first at slot 3 of dweights")) << wrong.reason;
  const Verdict missing = verdict_after(
      [&] { cudaMemsetAsync(operands.dweights.floats(0) + kSlot, 0xff, sizeof(float), stream_->stream); });
  EXPECT_TRUE(says(missing, "1 elements of dweights were not written")) << missing.reason;
}
TEST_F(Faults, AreNoneInResultsOfADtypeOfTheirOwn) {
  for (const Op op : {Op::fwd, Op::dx, Op::dw}) {
    Product wide = product(op);
    wide.d.type = plain_type(Dtype::fp32);
    const Verdict verdict = verdict_of(wide);
    EXPECT_TRUE(verdict.ok) << name(op) << ": " << verdict.reason;
  }
}
TEST_F(Faults, OfOneElementAreNamedByExpertRowAndColumn) {
  // Element 33 of row 9: the third of expert 2 in dX; row 85 of dW is row 5 of expert 2, of 40 each.
  const auto clear = [](int64_t row) {
    return [=](char* d, cudaStream_t stream) { cudaMemsetAsync(d + (row * 56 + 33) * 2, 0x42, 2, stream); };
  };
  const Verdict dx = verdict_of(product(Op::dx), clear(9)), dw = verdict_of(product(Op::dw), clear(85));
  EXPECT_FALSE(dx.ok);
  EXPECT_TRUE(says(dx, "1 of 2688 elements differ")) << dx.reason;
  EXPECT_TRUE(says(dx, "expert 2, row 2, column 33")) << dx.reason;
  EXPECT_FALSE(dw.ok);
  EXPECT_TRUE(says(dw, "1 of 8960 elements differ")) << dw.reason;
  EXPECT_TRUE(says(dw, "expert 2, row 5, column 33")) << dw.reason;
}
TEST_F(Faults, OfUnwrittenZerosAreSeen) {
  constexpr int64_t kBytes = int64_t{40} * 56 * 2;
  const Verdict verdict = verdict_of(
      product(Op::dw), [](char* d, cudaStream_t stream) { cudaMemsetAsync(d + kBytes, 0xff, kBytes, stream); });
  EXPECT_FALSE(verdict.ok);
  EXPECT_TRUE(says(verdict, "2240 elements were not written")) << verdict.reason;
  EXPECT_TRUE(says(verdict, "expert 1, row 0, column 0")) << verdict.reason;
}
TEST_F(Faults, OfAWrittenRowOfPaddingAreSeen) {
  for (const Op op : {Op::fwd, Op::dx}) {
    Product padded = product(op);
    padded.d.rows += 2;
    const Verdict right = verdict_of(padded);
    EXPECT_TRUE(right.ok) << right.reason;
    const int64_t behind = owned_rows(padded, padded.d) * padded.d.columns * 2;
    const Verdict wrong =
        verdict_of(padded, [&](char* d, cudaStream_t stream) { cudaMemsetAsync(d + behind, 0, 2, stream); });
    EXPECT_FALSE(wrong.ok);
    EXPECT_TRUE(says(wrong, "1 elements of rows that are padding were written")) << wrong.reason;
  }
}
TEST_F(Faults, OfMissingWeightsAreSeen) {
  for (const Op op : kGradients) {
    const Product weighted = product(op, Dtype::bf16, {.permute_y = true, .topk_weights = true});
    const Operands operands = make_operands(weighted, device_, *services_, stream_->stream);
    Product plain = weighted;
    plain.weighting = Weighting::none;
    const Operands unweighted = make_operands(plain, device_, *services_, stream_->stream);
    const Verifier verifier(operands, *services_, *cublas_, *stream_);
    const Verdict verdict = verifier.verify([&] {
      unweighted.fill(*services_, Values::integer, 0, stream_->stream);
      unweighted.sort_inputs(*services_, 0, stream_->stream);
      cublas_->loop(
          {.product = unweighted.plain, .a = unweighted.gemm(0).a, .b = unweighted.gemm(0).b, .d = operands.d.of(0)},
          true);
    });
    EXPECT_FALSE(verdict.ok);
    EXPECT_GT(verdict.mismatches, 100) << name(op);
  }
}

}  // namespace
}  // namespace moetune
