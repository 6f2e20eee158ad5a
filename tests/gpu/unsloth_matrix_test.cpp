// The cases that Unsloth tests its grouped GEMM with, in forward, dX and dW on a GPU, and what it leaves out: weights
// in the backward, skewed routing and experts without rows. Results are judged by our verifier; beside it stands the
// torch.allclose of Unsloth's tests.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>

#include "backend/cuda/compile/compiler.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/verify/verifier.h"
#include "built_in.h"
#include "gpu/allclose.h"
#include "gpu/gpu_test.h"
#include "unsloth_matrix.h"
#include "workload/product/product_rows.h"

namespace moetune {
namespace {

using unsloth::FusedProjection;
using unsloth::Tma;

/// Models that share kernels, which are compiled for a number of experts.
struct Group {
  std::string name;
  std::vector<Model> models;
};
std::vector<Group> groups() {
  std::vector<Group> result = {{"small_e4", {}}, {"small_e16", {}}};
  for (const Model& model : unsloth::small_models()) result[model.experts == 4 ? 0 : 1].models.push_back(model);
  for (const Model& model : unsloth::whole_models())
    result.push_back({model.experts == 16 ? "llama4_scout" : "qwen3_30b_a3b", {model}});
  return result;
}
void PrintTo(const Group& group, std::ostream* out) { *out << group.name; }

struct ModelsProblem {
  Model model;
  Problem problem;
};

/// What was run with an op.
struct Tally {
  int64_t cases = 0;                     // of Unsloth's
  int64_t outside = 0, unexplained = 0;  // elements: of its allclose; of those, more than an ulp off
};

class UnslothMatrix : public GpuTest, public testing::WithParamInterface<Group> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    device_ = cuda_device(0);
    options_ = {.arch = arch(device_), .sources = kernel_sources(), .cache = true, .threads = 0};
    services_ = std::make_unique<Services>(options_);
    stream_ = std::make_unique<Stream>();
    cublas_ = std::make_unique<Cublas>(stream_->stream);
    const std::string unit = kAllclose;
    const CompiledUnit compiled = compile_units({&unit, 1}, options_).front();
    ASSERT_FALSE(compiled.cubin.empty()) << compiled.log;
    allclose_ = std::make_unique<Module>(compiled.cubin);
  }

  /// The candidate that a setting of TMA stands for: wgmma's default with those ways to load, where that is legal; else
  /// mma's default, which loads without TMA.
  Candidate candidate_of(const Problem& problem, const Tma& tma) const {
    const Candidate fallback = find_variant("wgmma").fallback(problem, device_);
    Candidate asked = with_value(with_value(fallback, "tma_x", tma.first), "tma_w", tma.second);
    // Rows that are gathered ahead of the tiles come by TMA: without it tiles gather them.
    if (!tma.first) asked = with_value(asked, "gather", 0);
    for (const Candidate& candidate : {asked, find_variant("mma").fallback(problem, device_)})
      if (!cannot_run(candidate, problem.shape, device_)) return candidate;
    ADD_FAILURE() << "no variant takes " << text(problem.shape.fusion);
    return fallback;
  }

  /// The defaults of all variants that take the problem, and the candidates of all settings of TMA.
  std::set<Candidate> candidates_of(const Problem& problem) const {
    std::set<Candidate> candidates;
    for (const std::string variant : {"simt", "mma", "wgmma"}) {
      const Candidate fallback = find_variant(variant).fallback(problem, device_);
      if (!cannot_run(fallback, problem.shape, device_)) candidates.insert(fallback);
    }
    for (const Tma& tma : unsloth::tma_settings(problem.shape.op, problem.shape.fusion))
      candidates.insert(candidate_of(problem, tma));
    return candidates;
  }

  /// Every problem of the group with a routing.
  std::vector<ModelsProblem> problems_of(const std::string& routing) const {
    std::vector<ModelsProblem> problems;
    for (const Model& model : GetParam().models)
      for (const Op op : unsloth::kOps)
        for (const FusedProjection& fused : unsloth::kFused)
          for (const int64_t tokens : unsloth::kSequences)
            problems.push_back(
                {model, unsloth::problem_of(unsloth::shape_of(model, fused, op), model, routing, tokens)});
    return problems;
  }

  /// Compiles what the problems need, all at once: many share their kernels.
  void compile(const std::vector<ModelsProblem>& problems) {
    std::set<std::string> missing;
    for (const auto& [model, problem] : problems)
      for (const Candidate& candidate : candidates_of(problem)) {
        const std::string unit = candidate.variant->unit(candidate, problem.shape);
        if (!cubins_.contains(unit)) missing.insert(unit);
      }
    const std::vector<std::string> units(missing.begin(), missing.end());
    const std::vector<CompiledUnit> compiled = compile_units(units, options_);
    for (size_t i = 0; i < units.size(); ++i) {
      ASSERT_EQ(compiled[i].result.status, Status::ok) << compiled[i].result.reason << "\n" << units[i];
      cubins_[units[i]] = compiled[i].cubin;
    }
  }

  RunOnce run_of(const Candidate& candidate, const Problem& problem, const Operands& operands) {
    const Variant& variant = *candidate.variant;
    const LaunchPlan plan = variant.plan(candidate, problem.shape);
    if (plan.workspace > 0 && workspace_.size() == 0) workspace_ = DeviceBuffer(kMaxWorkspace);
    const auto kernel = make_kernel(cubins_.at(variant.unit(candidate, problem.shape)), plan, operands, *services_,
                                    workspace_.as<float>(), device_);
    return [this, kernel] {
      kernel->clear(stream_->stream);
      kernel->enqueue(0, stream_->stream);
    };
  }

  /// The fp32 product of random inputs in expert order, which lie in set 0 after a verification.
  DeviceBuffer reference_of(const Operands& operands) {
    const Product& p = operands.product;
    DeviceBuffer reference(owned_rows(p, p.d) * p.d.columns * int64_t{sizeof(float)});
    operands.sort_inputs(*services_, 0, stream_->stream);
    Product plain = operands.plain;
    plain.d.type = plain_type(Dtype::fp32);
    const GroupedGemm gemm = operands.gemm(0);
    cublas_->loop({.product = plain, .a = gemm.a, .b = gemm.b, .d = reference.data()}, true);
    return reference;
  }

  /// Counts the elements of the result in set 0 that Unsloth's allclose would refuse.
  void add_outside(const Operands& operands, const DeviceBuffer& reference, Op op, Tally& tally) {
    const Product& p = operands.product;
    unsigned long long counts[2] = {0, 0};
    const DeviceBuffer device_counts(sizeof counts);
    require(cudaMemcpyAsync(device_counts.data(), counts, sizeof counts, cudaMemcpyHostToDevice, stream_->stream),
            "cannot clear counters");
    const auto rows = static_cast<long long>(owned_rows(p, p.d));
    launch(allclose_->kernel("allclose"), 1024, 256, stream_->stream, operands.d.of(0), reference.as<float>(),
           operands.d_rows.as<int>(), rows, static_cast<long long>(p.d.columns), absolute_tolerance(op), kTolerance,
           device_counts.as<unsigned long long>());
    require(cudaMemcpyAsync(counts, device_counts.data(), sizeof counts, cudaMemcpyDeviceToHost, stream_->stream),
            "cannot read counters");
    require(cudaStreamSynchronize(stream_->stream), "the comparison failed");
    tally.outside += static_cast<int64_t>(counts[0]);
    tally.unexplained += static_cast<int64_t>(counts[1]);
  }

  /// Verifies all candidates of a problem, on integer and on random inputs. `tally`: where its cases are Unsloth's.
  void verify(const Problem& problem, Tally* tally) {
    const Operands operands = make_operands(product_of(problem), device_, *services_, stream_->stream);
    const Verifier verifier(operands, *services_, *cublas_, *stream_);
    const int64_t elements = owned_rows(operands.product, operands.product.d) * operands.product.d.columns;
    DeviceBuffer reference;
    for (const Candidate& candidate : candidates_of(problem)) {
      const Verdict verdict = verifier.verify(run_of(candidate, problem, operands));
      EXPECT_TRUE(verdict.ok) << text(candidate) << ": " << verdict.reason;
      EXPECT_EQ(verdict.elements, 2 * elements);
      if (!tally || !verdict.ok) continue;
      if (reference.size() == 0) reference = reference_of(operands);
      add_outside(operands, reference, problem.shape.op, *tally);
    }
  }

  /// All problems of the group with a routing, and the tallies of those that are Unsloth's but for the routing.
  std::map<Op, Tally> verify_all(const std::string& routing) {
    const std::vector<ModelsProblem> problems = problems_of(routing);
    std::map<Op, Tally> tallies;
    compile(problems);
    if (HasFatalFailure()) return tallies;
    for (const auto& [model, problem] : problems) {
      const Shape& shape = problem.shape;
      SCOPED_TRACE(title(shape) + ", " + routing + ", " + std::to_string(problem.routing.tokens) + " tokens");
      const bool counts = !shape.fusion.topk_weights && unsloth::is_tested_there(shape.op, model);
      Tally& tally = tallies[shape.op];
      verify(problem, counts ? &tally : nullptr);
      if (counts) tally.cases += static_cast<int64_t>(unsloth::tma_settings(shape.op, shape.fusion).size());
    }
    return tallies;
  }

  DeviceInfo device_;
  CompilerOptions options_;
  std::unique_ptr<Services> services_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Cublas> cublas_;
  std::unique_ptr<Module> allclose_;
  std::map<std::string, std::string> cubins_;  // by unit
  DeviceBuffer workspace_;
};

INSTANTIATE_TEST_SUITE_P(Matrix, UnslothMatrix, testing::ValuesIn(groups()),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(UnslothMatrix, IsRight) {
  for (const auto& [op, tally] : verify_all("uniform")) {
    int64_t cases = 0;
    for (const Model& model : GetParam().models) cases += unsloth::cases_of(op, model);
    EXPECT_EQ(tally.cases, cases);
    EXPECT_EQ(tally.unexplained, 0) << "elements outside Unsloth's allclose that are more than an ulp off";
    std::cout << name(op) << ": " << cases << " cases of Unsloth's; " << tally.outside
              << " elements outside its allclose, all but " << tally.unexplained << " within an ulp\n";
  }
}

// The check beside our own can fail: elements that are far off are outside, and no ulp explains them.
TEST_P(UnslothMatrix, CountsElementsThatAreOff) {
  const auto [model, problem] = problems_of("uniform").front();
  const Operands operands = make_operands(product_of(problem), device_, *services_, stream_->stream);
  operands.fill(*services_, Values::random, 0, stream_->stream);
  const DeviceBuffer reference = reference_of(operands);
  operands.sort_inputs(*services_, 0, stream_->stream);
  cublas_->loop(operands.gemm(0), true);
  Tally right, wrong;
  add_outside(operands, reference, Op::fwd, right);
  EXPECT_EQ(right.unexplained, 0);
  for (const int64_t element : {3, 70})
    require(cudaMemsetAsync(operands.d.of(0) + 2 * element, 0x47, 2, stream_->stream), "cannot spoil");
  add_outside(operands, reference, Op::fwd, wrong);
  EXPECT_EQ(wrong.outside, right.outside + 2);
  EXPECT_EQ(wrong.unexplained, 2);
}

// In one test: a model of whole size takes a part of the memory, and tests may run side by side.
TEST_P(UnslothMatrix, IsRightOnRoutingsThatUnslothLacks) {
  for (const std::string routing : {"zipf:1.5", "empty", "single"})
    for (const auto& [op, tally] : verify_all(routing))
      EXPECT_EQ(tally.unexplained, 0) << routing << ", " << name(op) << ": " << tally.outside << " outside allclose";
}

}  // namespace
}  // namespace moetune
