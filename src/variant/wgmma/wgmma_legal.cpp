// What the rules of the kernel say to a user, and those that depend on the device or on sizes.
#include "variant/wgmma/wgmma.h"

#include <fmt/format.h>

#include "variant/unit.h"
#include "variant/variant.h"
#include "workload/product.h"

namespace moetune {
namespace {

using Knobs = WgmmaKnobs;

// The fusion by which rows of the product's X are gathered: dx and dw have dY there, dw gathers rows of the layer's X
// too.
std::string gathering(Op op) {
  return op == Op::fwd ? "permute_x" : op == Op::dx ? "permute_y" : "permute_x and permute_y";
}

// Why each row that is stored is looked up, and what tensor copies can't do with it therefore.
std::string no_boxes(const Shape& shape) {
  const Fusion& fusion = shape.fusion;
  if (shape.op == Op::dx && !fusion.permute_x)
    return "tma_store must be no or rows with topk_weights: tensor copies don't weight rows";
  return fmt::format("tma_store must be no or rows with {}: tensor copies don't scatter rows",
                     shape.op == Op::dx ? "permute_x" : "permute_y");
}

std::string text(WgmmaRule rule, const Knobs& c, const WgmmaProblem& p, const Shape& shape) {
  switch (rule) {
    case WgmmaRule::none:
      break;
    case WgmmaRule::block_m:
      return "block_m must be a multiple of 16 in 16 to 256";
    case WgmmaRule::block_n:
      return "block_n must be a multiple of 16 in 16 to 256";
    case WgmmaRule::block_k:
      return "block_k must be 64 or 128";
    case WgmmaRule::stages:
      return fmt::format("stages must lie in 2 to {}", kMostWgmmaStages);
    case WgmmaRule::group:
      return fmt::format("group must lie in 1 to {}", kMostGroup);
    case WgmmaRule::consumers:
      return "consumers must be 1, 2 or 3";
    case WgmmaRule::in_flight:
      return "in_flight must be 0 or 1";
    case WgmmaRule::pingpong:
      return "schedule=pingpong needs consumers=2";
    case WgmmaRule::groups:
      return c.swap ? "block_n, with swap=yes, must be a multiple of 64 for each consumer that shares a tile"
                    : "block_m, with swap=no, must be a multiple of 64 for each consumer that shares a tile";
    case WgmmaRule::sums_gather:
      return "gather must be first for dw: tensor copies read rows that are in order";
    case WgmmaRule::sums_map:
      return "tma_x must be yes and addressing base for dw: one tensor map describes all experts' rows";
    case WgmmaRule::sums_planes:
      return fmt::format("block_m must be a multiple of {} for dw: a tensor copy loads so many columns of dY",
                         kSwizzleColumns);
    case WgmmaRule::sums_order:
      return "dw needs pace=own and split above 0: how long a tile takes depends on its expert's rows";
    case WgmmaRule::sums_hold:
      return "hold must be 0 for dw: its tiles have enough rows to store on their own";
    case WgmmaRule::sums_experts:
      return fmt::format("wgmma has no dw for more than {} experts: each block sorts them", kMostSortedExperts);
    case WgmmaRule::dynamic_cluster:
      return "tiles must be static in a cluster: its blocks walk through tiles together";
    case WgmmaRule::dynamic_pace:
      return "tiles must be static with pace=common: blocks can only begin the same number of tiles together";
    case WgmmaRule::pieces:
      return "split above 1 needs cluster=none and pace=own: each block takes pieces of tiles by itself";
    case WgmmaRule::shared_round:
      return "split=0 needs cluster=none and tiles=static: blocks share the last round by their numbers";
    case WgmmaRule::mix:
      return fmt::format("mix must be 0 or lie in 2 to {}", kMostMix);
    case WgmmaRule::mix_order:
      return "mix needs tiles=dynamic and split=1: blocks take whole tiles from a counter";
    case WgmmaRule::mix_loads:
      return "mix needs addressing=base and gather=tiles: pointers and rows gathered first follow the order of experts";
    case WgmmaRule::mix_experts:
      return fmt::format("mix must be 0 with more than {} experts: each block sorts them", kMostSortedExperts);
    case WgmmaRule::gather_rows:
      return fmt::format("gather must be tiles without {}: there are no rows to gather", gathering(shape.op));
    case WgmmaRule::gather_map:
      return "gather=first needs tma_x=yes, tma_w=yes and addressing=base: tensor copies read the gathered rows";
    case WgmmaRule::gather_copies:
      return fmt::format("tma_x must be no with {} and gather=tiles: tensor copies don't gather rows",
                         gathering(shape.op));
    case WgmmaRule::cluster_x:
      return "tma_x must be yes with cluster=n: only tensor copies load X for two blocks";
    case WgmmaRule::cluster_w:
      return "tma_w must be yes with cluster=m: only tensor copies load W for two blocks";
    case WgmmaRule::producer:
      return "block_m must be below 256, or block_k 64, with tma_x=no and tma_w=no: a producer's addresses of rows "
             "must fit its registers";
    case WgmmaRule::across_copies:
      return "tma_w must be yes for dx and dw: only tensor copies load W whose rows are steps along k";
    case WgmmaRule::across_planes:
      return fmt::format("block_n must be a multiple of {} for dx and dw{}: a tensor copy loads {} columns of W",
                         across_columns(c, p), across_columns(c, p) > kSwizzleColumns ? " with cluster=m" : "",
                         kSwizzleColumns);
    case WgmmaRule::boxes_pointers:
      return "tma_store must be no or rows with addressing=pointers: boxes need one tensor map of Y for all experts";
    case WgmmaRule::boxes_rows:
      return no_boxes(shape);
    case WgmmaRule::boxes_columns:
      return fmt::format("block_n must be a multiple of {0} with tma_store=yes: a box of Y has {0} columns",
                         kSwizzleColumns);
    case WgmmaRule::fp32_stores:
      return "tma_store must be no and hold 0 for sums in fp32: threads store them from registers";
    case WgmmaRule::hold_stores:
      return "hold needs swap=yes and tma_store=no: threads store the held rows of swapped tiles";
    case WgmmaRule::hold_rows:
      return fmt::format("hold must be a multiple of {} up to {}", kStoreRows, kMostHold);
    case WgmmaRule::hold_tile:
      return "hold must be 0 or at least block_m, the rows of a tile";
    case WgmmaRule::registers:
      return "block_m or block_n must be smaller: a tile's sums must fit the registers of its consumers";
  }
  return {};
}

// Rows that tensor copies and tiles count in 32 bits.
std::optional<std::string> too_many_rows(const Knobs& c, const Shape& shape, const WgmmaProblem& p) {
  const Product product = before_last_pass(product_of(shape));
  if (p.sums_rows && p.experts * product.m > kMostMapRows)
    return "dW of all experts has more rows than a tile can count";
  if (c.tma_w && !by_pointers(c) && !p.w_across && p.experts * product.n > kMostMapRows)
    return "tma_w must be no or addressing pointers: W of all experts has more rows than tensor copies can count";
  return std::nullopt;
}

// Whether the sums begin with D's values, which are of 16 bits.
bool begins_with_result(const Product& p) { return p.accumulates && p.d.type.dtype != Dtype::fp32; }

// The most sums a thread for which ptxas (CUDA 13.0) doesn't spill where they begin with D's values; see max_sums.
int most_begun_sums(const Knobs& c, const Product& p) {
  if (c.split > 1 && !c.swap) {
    if (c.split > 4 && c.consumers == 3) return 24;
    return c.tma_store == TmaStore::boxes ? 48 : 64;
  }
  if (p.d.type.dtype == Dtype::fp16 && c.consumers == 3 && c.tma_store == TmaStore::none && c.swap) return 64;
  return 176;
}

// ptxas (CUDA 13.0) waits after each wgmma of such kernels (C7515).
bool serialises(const Knobs& c, const Product& p) {
  return p.accumulates && p.d.type.dtype == Dtype::fp16 && c.tma_store == TmaStore::boxes && c.in_flight > 0;
}

}  // namespace

WgmmaProblem wgmma_problem(const Shape& shape) {
  const Product p = before_last_pass(product_of(shape));
  const bool sums_rows = p.ragged == Axis::k;
  return {.permutes_x = gathers_rows(p.a.order, p.b.order, sums_rows),
          .looks_up_rows = p.d.order != RowOrder::in_place || weights_result(p),
          .w_across = !is_k_major(p.b),
          .sums_rows = sums_rows,
          .stores_sums = p.d.type.dtype == Dtype::fp32,
          .experts = static_cast<int>(shape.layer.local_experts()),
          .element_bytes = static_cast<int>(size_bytes(p.a.type.stage)),
          .weight_bytes = p.weighting == Weighting::result ? 4 : 2};
}

std::optional<std::string> wgmma_illegal(const Knobs& c, const Shape& shape, const DeviceInfo& device) {
  if (auto reason = unsupported("wgmma", shape, {Dtype::bf16, Dtype::fp16}, {Op::fwd, Op::dx, Op::dw})) return reason;
  if (device.compute_capability != 90) return "wgmma needs sm_90a";
  if (shape.layer.k % 8 != 0 || shape.layer.n % 8 != 0) return "wgmma needs n and k in multiples of 8";
  const WgmmaProblem problem = wgmma_problem(shape);
  if (auto reason = illegal_split(c.split, c.block_m, c.block_n, 0, 1, device)) return reason;
  if (const WgmmaRule rule = broken_rule(c, problem); rule != WgmmaRule::none) return text(rule, c, problem, shape);
  const Product product = product_of(shape);
  if (begins_with_result(product) && sums(c) > most_begun_sums(c, product))
    return text(WgmmaRule::registers, c, problem, shape);
  if (auto reason = too_many_rows(c, shape, problem)) return reason;
  if (serialises(c, product)) return "in_flight must be 0 where tensor copies store an accumulated fp16 dW";
  if (wgmma_layout(c, problem).bytes > device.shared_memory_per_block)
    return fmt::format("stages, block_m, block_n, block_k or hold must be smaller: shared memory over {} bytes",
                       device.shared_memory_per_block);
  return std::nullopt;
}

}  // namespace moetune
