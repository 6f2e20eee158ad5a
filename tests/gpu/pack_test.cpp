// Packs on a real GPU: their kernels are verified and timed as moetune's own are.
#include <gtest/gtest.h>

#include <functional>

#include "gpu/gpu_test.h"
#include "simt_pack.h"

namespace moetune {
namespace {

class PackOnGpu : public GpuTest {
 protected:
  // The backend keeps kernels by the text of their candidates, so that each pack has another name.
  VariantPtr pack(const std::string& name, const Shape& shape, const std::string& weighting) {
    write_simt_pack(folder_, shape, arch(backend().device()), weighting);
    return changed(name, [](Json&) {});
  }
  VariantPtr changed(const std::string& name, const std::function<void(Json&)>& change) {
    Json manifest = read_json(folder_.path() / "pack.json");
    manifest["variant"] = name;
    change(manifest);
    folder_.write("pack.json", manifest.dump(1));
    return Catalog({folder_.path().string()}).find(name);
  }
  static Contender contender(const VariantPtr& variant, int block_m, int spread = 1) {
    return {.baseline = {}, .candidate = {.variant = variant, .values = {block_m, spread}}};
  }

  TemporaryFolder folder_;
  const GpuCase case_{"small", 6, 2, 96, 72, 40, "zipf:1.0"};
};

TEST_F(PackOnGpu, IsVerifiedAndTimed) {
  const Problem problem = problem_of(case_, Dtype::bf16, {.permute_x = true});
  const VariantPtr plain = pack("packed_plain", problem.shape, "none");
  backend().load(problem);
  for (const auto& [block_m, spread] : {std::pair{16, 1}, std::pair{16, 2}, std::pair{32, 1}}) {
    const Contender one = contender(plain, block_m, spread);
    const Verdict verdict = backend().verify(one);
    EXPECT_TRUE(verdict.ok) << verdict.reason;
    const std::vector<Block> blocks = backend().sample(one, {.blocks = 2, .block_seconds = 1e-3});
    ASSERT_EQ(blocks.size(), 2u);
    EXPECT_GT(blocks[0].seconds, 0);
    EXPECT_EQ(backend().repeat(one, 0.05).different, 0);
  }
}

TEST_F(PackOnGpu, WeightsAreRoundedWhereTheManifestSays) {
  const Problem problem = problem_of(case_, Dtype::bf16, {.permute_y = true, .topk_weights = true});
  const VariantPtr weighted = pack("packed_weighted", problem.shape, "rounded_result");
  backend().load(problem);
  const Verdict right = backend().verify(contender(weighted, 16));
  EXPECT_TRUE(right.ok) << right.reason;
  // Which the kernel does not do.
  const VariantPtr elsewhere = pack("packed_elsewhere", problem.shape, "result");
  const Verdict wrong = backend().verify(contender(elsewhere, 16));
  EXPECT_FALSE(wrong.ok);
  EXPECT_GT(wrong.mismatches, 0);
}

TEST_F(PackOnGpu, ScalesOfXMayBeMnMajor) {
  for (const Fusion fusion : {Fusion{}, Fusion{.permute_x = true}}) {  // 82 rows, and 41 of tokens
    const Problem problem = fp8_problem_of({"small", 6, 2, 96, 384, 41, "zipf:1.0"}, ScaleKind::block, fusion);
    const std::string name = fusion.permute_x ? "packed_scaled_gathered" : "packed_scaled";
    const VariantPtr right = pack(name, problem.shape, "none");
    const VariantPtr wrong = changed(name + "_wrong", [](Json& manifest) {
      Json& fields = manifest["launches"][2]["arguments"][0]["struct"]["fields"];
      for (Json& field : fields)
        if (field["name"] == "x_scale_step") field["int64"] = "x_rows + 1";
    });
    backend().load(problem);
    const Verdict verdict = backend().verify(contender(right, 16));
    EXPECT_TRUE(verdict.ok) << verdict.reason;
    EXPECT_GT(backend().verify(contender(wrong, 16)).mismatches, 0);
  }
}

TEST_F(PackOnGpu, AStepThatIsMissingIsCaught) {
  const Problem problem = problem_of(case_);
  const VariantPtr whole = pack("packed_whole", problem.shape, "none");
  const VariantPtr half = changed("packed_half", [](Json& manifest) {
    manifest["launches"].erase(1);  // the row counts stay zero, so that nothing is written
  });
  backend().load(problem);
  EXPECT_TRUE(backend().verify(contender(whole, 16)).ok);
  const Verdict verdict = backend().verify(contender(half, 16));
  EXPECT_FALSE(verdict.ok);
  EXPECT_NE(verdict.reason.find("were not written"), std::string::npos) << verdict.reason;
}

TEST_F(PackOnGpu, ABufferThatIsNotLeftZeroIsCaught) {
  const Problem problem = problem_of(case_);
  pack("packed_clean", problem.shape, "none");
  const VariantPtr dirty = changed("packed_dirty", [](Json& manifest) {
    manifest["buffers"][0]["zeroed"] = true;  // the row counts stay there
  });
  backend().load(problem);
  const Verdict verdict = backend().verify(contender(dirty, 16));
  EXPECT_FALSE(verdict.ok);
  EXPECT_EQ(verdict.reason, "the kernel left 'sizes' not zero, but the next launch needs zeros");
}

}  // namespace
}  // namespace moetune
