// The seams of kernels, without a GPU: policies of this test alone stand in for an operand's type, what comes after a
// stage and the function of the result. Each compiles, and changes what is compiled.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "backend/cuda/compile/compiler.h"
#include "built_in.h"

namespace moetune {
namespace {

// Scales lie beside each stage, a float a row; they come from where the top-k weights are.
constexpr std::string_view kPolicies = R"(
struct ScaledRows {
  static constexpr bool at_end = false;
  static constexpr int stage_bytes(int rows, int) { return rows * 4; }
  template <class Block, int threads>
  struct Loader {
    const float* scales = nullptr;
    __forceinline__ void begin(const Block& block, const typename Block::Tile& tile, const auto&, const auto&) {
      scales = block.args.topk_weights + tile.row;
    }
    __forceinline__ void copy(const Block& block, const typename Block::Tile& tile, int stage, int) const {
      for (int i = threadIdx.x % threads; i < Block::block_m; i += threads)
        moetune::cp_async<4>(moetune::shared_address(block.x_scales(stage)) + i * 4, scales + i, i < tile.rows);
    }
  };
  static __forceinline__ float of(const moetune::Args& args, long long row, long long) {
    return args.topk_weights[row];
  }
};

struct NegatedElement {
  template <class Element>
  using Stage = Element;
  static __forceinline__ void before_stage(const auto& group, const auto&, int stage) {
    auto* bits = reinterpret_cast<unsigned*>(group.block.x()[stage]);
    bits[threadIdx.x] ^= 0x80008000u;
    moetune::fence_async_shared();
    moetune::warpgroup_sync();
  }
};

struct ProductOfColumns : moetune::Identity<moetune::bf16> {
  static constexpr int columns_per_output = 2;
  static __forceinline__ unsigned pair(const float* low, const float* high, unsigned) {
    return moetune::pack<Result>(low[0] * low[1], high[0] * high[1]);
  }
};
)";

// A line of a unit, what stands in its place, and the members of its problem that follow from that.
struct Line {
  std::string_view printed, in_its_place, problem = {};
};
constexpr std::string_view kPlainX =
    "using X = moetune::OperandType<moetune::bf16, moetune::NoScales, moetune::SameElement>;";
const Line kScales = {kPlainX, "using X = moetune::OperandType<moetune::bf16, ScaledRows, moetune::SameElement>;",
                      ".x_scale_bytes = knobs.block_m * 4"};
const Line kTransform = {kPlainX, "using X = moetune::OperandType<moetune::bf16, moetune::NoScales, NegatedElement>;"};
const Line kStages = {kPlainX,
                      "using X = moetune::OperandType<moetune::bf16, ScaledRows, moetune::SameElement>;\n"
                      "  using AfterStage = moetune::Promote;",
                      ".x_scale_bytes = knobs.block_m * 4, .promotes = true"};
const Line kJoined = {"using Function = moetune::Identity<moetune::bf16>;", "using Function = ProductOfColumns;",
                      ".columns_per_output = 2"};

Shape small_shape() {
  Shape shape;
  shape.layer = {.model = "custom", .experts = 8, .top_k = 2, .n = 512, .k = 768, .format = find_format("bf16")};
  return shape;
}

// `unit` with the policies behind its includes and the line replaced.
std::string with_policies(std::string unit, const Line& line) {
  const size_t at = unit.find(line.printed);
  if (at == std::string::npos) throw std::runtime_error("the unit lacks " + std::string(line.printed));
  unit.replace(at, line.printed.size(), line.in_its_place);
  // Members are initialised in their order: those of scales come before all that such a unit has.
  const size_t begin = unit.find('{', unit.find("problem = {")) + 1, end = unit.find('}', begin);
  const std::string own = unit.substr(begin, end - begin), more(line.problem), comma = own.empty() ? "" : ", ";
  if (!more.empty()) unit.replace(begin, end - begin, more[1] == 'x' ? more + comma + own : own + comma + more);
  return unit.insert(unit.find("struct Config"), kPolicies);
}

std::string wgmma(std::string_view loads, std::string_view swap) {
  return "wgmma block_m=64 block_n=64 block_k=64 stages=3 raster=m group=4 consumers=1 schedule=cooperative swap=" +
         std::string(swap) + " cluster=none in_flight=0 tma_x=" + std::string(loads) + " tma_w=" + std::string(loads) +
         " tma_store=no addressing=base tiles=static pace=own split=1 hold=0 gather=tiles mix=0";
}

// Whether a candidate's kernel has other instructions with the policies and the line replaced; all compile together.
TEST(Seams, TakePoliciesInPlaceOfALineOfTheUnit) {
  const std::string mma = "mma block_m=64 block_n=64 block_k=32 warps=4 stages=3 raster=m group=4 split=1";
  const std::tuple<std::string, Line, bool> cases[] = {{wgmma("yes", "no"), {kPlainX, kPlainX}, false},
                                                       {wgmma("yes", "no"), kScales, true},
                                                       {wgmma("no", "no"), kScales, true},
                                                       {wgmma("yes", "no"), kStages, true},
                                                       {wgmma("yes", "yes"), kStages, true},
                                                       {wgmma("no", "no"), kStages, true},
                                                       {wgmma("yes", "no"), kTransform, true},
                                                       {wgmma("yes", "no"), kJoined, true},
                                                       {mma, kJoined, true},
                                                       {"simt block_m=32 block_n=32 block_k=32", kScales, true}};
  std::vector<std::string> units;
  std::map<std::string, size_t> plain;  // the place of each candidate's own unit
  for (const auto& [candidate, line, changes] : cases) {
    const Candidate parsed = parse_candidate(candidate);
    const std::string unit = parsed.variant->unit(parsed, small_shape());
    if (plain.try_emplace(candidate, units.size()).second) units.push_back(unit);
    units.push_back(with_policies(unit, line));
  }
  const std::vector<CompiledUnit> compiled =
      compile_units(units, {.arch = "sm_90a", .sources = kernel_sources(), .cache = false});
  size_t at = 0;
  for (const auto& [candidate, line, changes] : cases) {
    const CompiledUnit& own = compiled[plain.at(candidate)];
    if (&compiled[at] == &own) ++at;
    const CompiledUnit& other = compiled[at++];
    EXPECT_EQ(own.result.status, Status::ok) << candidate << "\n" << own.log;
    EXPECT_EQ(other.result.status, Status::ok) << candidate << "\n" << line.in_its_place << "\n" << other.log;
    EXPECT_EQ(own.result.code != other.result.code, changes) << candidate << "\n" << line.in_its_place;
  }
}

// Times stay those of a kernel whose instructions stay, whatever else of its cubin changes.
TEST(Seams, CodeIsOfInstructionsAlone) {
  const Candidate candidate = parse_candidate("simt block_m=32 block_n=32 block_k=16");
  const std::string unit = candidate.variant->unit(candidate, small_shape());
  const std::vector<std::string> units = {unit, unit + "\n__device__ int unused;\n"};
  const std::vector<CompiledUnit> compiled =
      compile_units(units, {.arch = "sm_90a", .sources = kernel_sources(), .cache = false});
  EXPECT_EQ(compiled[0].result.code, compiled[1].result.code);
  EXPECT_EQ(compiled[0].result.code, code_of(compiled[0].cubin));
  EXPECT_TRUE(compiled[0].cubin != compiled[1].cubin);
  for (const size_t bytes : {10, 100}) EXPECT_THROW(code_of(compiled[0].cubin.substr(0, bytes)), std::runtime_error);
}

}  // namespace
}  // namespace moetune
