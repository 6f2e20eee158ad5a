// What the rules of the kernel say to a user, and those that depend on the device or on sizes.
#include "variant/wgmma/wgmma.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/scales.h"
#include "variant/unit.h"
#include "variant/variant.h"
#include "workload/product.h"

namespace moetune {
namespace {

using Knobs = WgmmaKnobs;

// The fusion by which rows of the product's X are gathered: dx and dw have dY there, dw gathers rows of the layer's X
// too.
std::string gathering(const Shape& shape) {
  if (shape.op == Op::fwd) return shape.fusion.by_slot ? "by_slot" : "permute_x";
  return shape.op == Op::dx ? "permute_y" : "permute_x and permute_y";
}

// Why each row that is stored is looked up, and what tensor copies can't do with it therefore.
std::string looked_up(const Shape& shape) {
  if (shape.op == Op::dx ? !shape.fusion.permute_x : shape.fusion.sum_slots)
    return "topk_weights: tensor copies don't weight rows";
  return fmt::format("{}: tensor copies don't scatter rows", shape.op == Op::dx     ? "permute_x"
                                                             : shape.fusion.by_slot ? "by_slot"
                                                                                    : "permute_y");
}

// Why a rule is broken, with names in braces for what depends on the knobs, the problem and the shape.
constexpr std::pair<WgmmaRule, const char*> kSentences[] = {
    {WgmmaRule::block_m, "block_m must be a multiple of 16 in 16 to 256"},
    {WgmmaRule::block_n, "block_n must be a multiple of 16 in 16 to 256"},
    {WgmmaRule::block_k, "block_k must be {columns} or {twice}"},
    {WgmmaRule::stages, "stages must lie in 2 to {stages}"},
    {WgmmaRule::group, "group must lie in 1 to {group}"},
    {WgmmaRule::consumers, "consumers must be 1, 2 or 3"},
    {WgmmaRule::in_flight, "in_flight must be 0 or 1"},
    {WgmmaRule::elements, "wgmma reads X and W as they lie in memory; another variant may widen them"},
    {WgmmaRule::pingpong, "schedule=pingpong needs consumers=2"},
    {WgmmaRule::groups, "{m_side} must be a multiple of 64 for each consumer that shares a tile"},
    {WgmmaRule::sums_gather, "gather must be first for dw: tensor copies read rows that are in order"},
    {WgmmaRule::sums_map, "tma_x must be yes and addressing base for dw: one tensor map describes all experts' rows"},
    {WgmmaRule::sums_planes,
     "block_m must be a multiple of {swizzle} for dw: a tensor copy loads so many columns of dY"},
    {WgmmaRule::sums_order, "dw needs pace=own and split above 0: how long a tile takes depends on its expert's rows"},
    {WgmmaRule::sums_hold, "hold must be 0 for dw: its tiles have enough rows to store on their own"},
    {WgmmaRule::sums_experts, "wgmma has no dw for more than {experts} experts: each block sorts them"},
    {WgmmaRule::dynamic_cluster, "tiles must be static in a cluster: its blocks walk through tiles together"},
    {WgmmaRule::dynamic_pace,
     "tiles must be static with pace=common: blocks can only begin the same number of tiles together"},
    {WgmmaRule::pieces, "split above 1 needs cluster=none and pace=own: each block takes pieces of tiles by itself"},
    {WgmmaRule::shared_round,
     "split=0 needs cluster=none and tiles=static: blocks share the last round by their numbers"},
    {WgmmaRule::mix, "mix must be 0 or lie in 2 to {mix}"},
    {WgmmaRule::mix_order, "mix needs tiles=dynamic and split=1: blocks take whole tiles from a counter"},
    {WgmmaRule::mix_loads,
     "mix needs addressing=base and gather=tiles: pointers and rows gathered first follow the order of experts"},
    {WgmmaRule::mix_experts, "mix must be 0 with more than {experts} experts: each block sorts them"},
    {WgmmaRule::gather_rows, "gather must be tiles without {gathering}: there are no rows to gather"},
    {WgmmaRule::gather_map,
     "gather=first needs tma_x=yes, tma_w=yes and addressing=base: tensor copies read the gathered rows"},
    {WgmmaRule::gather_copies, "tma_x must be no with {gathering} and gather=tiles: tensor copies don't gather rows"},
    {WgmmaRule::gather_warps,
     "gather must be tiles where rows of fp8 are scattered too: no warp of the producer is left to gather them before"},
    {WgmmaRule::cluster_x, "tma_x must be yes with cluster=n: only tensor copies load X for two blocks"},
    {WgmmaRule::cluster_w, "tma_w must be yes with cluster=m: only tensor copies load W for two blocks"},
    {WgmmaRule::joined_loads, "addressing must be base for gates: one tensor map describes the gates and ups of W"},
    {WgmmaRule::joined_columns,
     "block_n must be a multiple of 32 with cluster=m for gates: each block loads half of W"},
    {WgmmaRule::across_copies,
     "tma_w must be yes for dx and dw: only tensor copies load W whose rows are steps along k"},
    {WgmmaRule::across_planes,
     "block_n must be a multiple of {across} for dx and dw{in_pairs}: a tensor copy loads {swizzle} columns of W"},
    {WgmmaRule::boxes_pointers,
     "tma_store must be no or rows with addressing=pointers: boxes need one tensor map of Y for all experts"},
    {WgmmaRule::boxes_rows, "tma_store must be no or rows with {looked_up}"},
    {WgmmaRule::boxes_columns,
     "block_n must be a multiple of {box} with tma_store=yes: a box of Y has {swizzle} columns"},
    {WgmmaRule::fp32_stores,
     "tma_store must be no and hold 0 for sums in fp32, which dW or another pass takes: threads store them from "
     "registers"},
    {WgmmaRule::gates_stores,
     "tma_store must be no and hold 0 for gradients of gates: threads make them of their sums"},
    {WgmmaRule::hold_stores, "hold needs swap=yes and tma_store=no: threads store the held rows of swapped tiles"},
    {WgmmaRule::hold_rows, "hold must be a multiple of {store_rows} up to {hold}"},
    {WgmmaRule::hold_tile, "hold must be 0 or at least block_m, the rows of a tile"},
    {WgmmaRule::quantised_tile, "block_n must be {quantised} for Y in fp8: a tile has the gates and ups of each scale"},
    {WgmmaRule::quantised_stores,
     "tma_store must be no, hold 0 and split 1 for Y in fp8: warps find the largest of a row and store it themselves"},
    {WgmmaRule::registers, "block_m or block_n must be smaller: a tile's sums must fit the registers of its consumers"},
};
static_assert(std::size(kSentences) == static_cast<size_t>(WgmmaRule::registers));

std::string text(WgmmaRule rule, const Knobs& c, const KernelProblem& p, const Shape& shape) {
  const auto found = std::ranges::find(kSentences, rule, [](const auto& one) { return one.first; });
  using fmt::arg;
  return fmt::format(fmt::runtime(found->second), arg("stages", kMostWgmmaStages), arg("group", kMostGroup),
                     arg("mix", kMostMix), arg("hold", kMostHold), arg("store_rows", kStoreRows),
                     arg("experts", kMostSortedExperts), arg("swizzle", kSwizzleColumns),
                     arg("box", kSwizzleColumns * p.columns_per_output), arg("columns", swizzle_columns(p)),
                     arg("twice", 2 * swizzle_columns(p)), arg("quantised", kScaleBlock * p.columns_per_output),
                     arg("m_side", c.swap ? "block_n, with swap=yes," : "block_m, with swap=no,"),
                     arg("across", across_columns(c, p)),
                     arg("in_pairs", across_columns(c, p) > kSwizzleColumns ? " with cluster=m" : ""),
                     arg("gathering", gathering(shape)), arg("looked_up", looked_up(shape)));
}

// Rows that tensor copies and tiles count in 32 bits.
std::optional<std::string> too_many_rows(const Knobs& c, const Shape& shape, const KernelProblem& p) {
  const Product product = before_last_pass(product_of(shape), true);
  if (p.sums_rows() && p.experts * product.m > kMostMapRows)
    return "dW of all experts has more rows than a tile can count";
  if (c.tma_w && !by_pointers(c) && !p.w_mn_major && p.experts * product.n > kMostMapRows && p.columns_per_output == 1)
    return "tma_w must be no or addressing pointers: W of all experts has more rows than tensor copies can count";
  return std::nullopt;
}

}  // namespace

KernelProblem wgmma_problem(const Knobs& c, const Shape& shape) {
  KernelProblem p = kernel_problem(shape, /*makes_gates=*/true);
  p.experts = static_cast<int>(shape.layer.local_experts());
  if (p.scales_at_end) {
    p.x_scale_bytes = row_scale_bytes(c.block_m), p.w_scale_bytes = row_scale_bytes(c.block_n);
  } else if (shape.layer.format.scales == ScaleKind::block) {
    p.x_scale_bytes = x_block_scale_bytes(c.block_m, c.block_k);
    p.w_scale_bytes = w_block_scale_bytes(c.block_n, c.block_k, p.columns_per_output);
  }
  return p;
}

std::optional<std::string> wgmma_illegal(const Knobs& c, const Shape& shape, const DeviceInfo& device) {
  if (auto reason = unsupported("wgmma", shape, {Dtype::bf16, Dtype::fp16, Dtype::fp8}, {Op::fwd, Op::dx, Op::dw}))
    return reason;
  if (device.compute_capability != 90) return "wgmma needs sm_90a";
  const int64_t k_step = multiplies_fp8(shape.layer.format) ? 16 : 8;
  if (shape.layer.k % k_step != 0 || shape.layer.n % 8 != 0)
    return k_step == 8 ? "wgmma needs n and k in multiples of 8"
                       : "wgmma needs n in multiples of 8 and k of 16 for fp8";
  const KernelProblem problem = wgmma_problem(c, shape);
  if (problem.quantises() && (shape.fusion.interleaved || shape.layer.n % (2 * kScaleBlock) != 0))
    return "wgmma gives Y in fp8 only of all gates before all ups, with n in multiples of 256";
  if (auto reason = illegal_gates(c.block_n, shape)) return reason;
  if (auto reason = illegal_split(c.split, c.block_m, c.block_n, 0, 1, device)) return reason;
  if (const WgmmaRule rule = broken_rule(c, problem); rule != WgmmaRule::none) return text(rule, c, problem, shape);
  if (auto reason = too_many_rows(c, shape, problem)) return reason;
  if (wgmma_layout(c, problem).bytes > device.shared_memory_per_block)
    return fmt::format("stages, block_m, block_n, block_k or hold must be smaller: shared memory over {} bytes",
                       device.shared_memory_per_block);
  return std::nullopt;
}

}  // namespace moetune
