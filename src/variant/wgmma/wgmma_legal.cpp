// Which knobs of wgmma go together, with a problem and on a device, and why not.
#include "variant/wgmma/wgmma.h"

#include <fmt/format.h>

#include "kernels/scales.h"
#include "variant/unit.h"
#include "variant/variant.h"
#include "workload/product/passes.h"

namespace moetune {
namespace {

using Knobs = WgmmaKnobs;

constexpr int kMaxGroup = 64, kMaxHold = 1024, kMaxMix = 16;
constexpr int kMaxSortedExperts = 1024;  // by one block

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

using Reason = std::optional<std::string>;

Reason illegal_tile(const Knobs& k, const KernelProblem& p) {
  if (k.block_m < 16 || k.block_m > 256 || k.block_m % 16 != 0) return "block_m must be a multiple of 16 in 16 to 256";
  if (k.block_n < 16 || k.block_n > 256 || k.block_n % 16 != 0) return "block_n must be a multiple of 16 in 16 to 256";
  const int columns = swizzle_columns(p);
  if (k.block_k != columns && k.block_k != 2 * columns && !(p.w_in_registers() && k.block_k == 4 * columns))
    return fmt::format("block_k must be {} or {}", columns, 2 * columns);
  if (p.w_in_registers()) {
    if (!k.swap || !k.tma_w) return "swap and tma_w must be yes for a reordered W: registers are wgmma's M side";
    if (k.in_flight != 1) return "in_flight must be 1 for a reordered W: it is widened while wgmma works";
    if (k.cluster == Cluster::m) return "cluster must be none or n for a reordered W: each block copies its own";
  }
  if (k.stages < 2 || k.stages > kMaxWgmmaStages) return fmt::format("stages must lie in 2 to {}", kMaxWgmmaStages);
  if (k.group < 1 || k.group > kMaxGroup) return fmt::format("group must lie in 1 to {}", kMaxGroup);
  if (k.consumers < 1 || k.consumers > (p.w_in_registers() ? 4 : 3))
    return p.w_in_registers() ? "consumers must lie in 1 to 4" : "consumers must be 1, 2 or 3";
  if (k.in_flight < 0 || k.in_flight > 1) return "in_flight must be 0 or 1";
  if (pingpong(k) && k.consumers != 2) return "schedule=pingpong needs consumers=2";
  if (m_side(k) % (kGroupRows * warpgroups_a_tile(k)) != 0)
    return fmt::format("{} must be a multiple of 64 for each consumer that shares a tile",
                       k.swap ? "block_n, with swap=yes," : "block_m, with swap=no,");
  return std::nullopt;
}

// Of sums over rows.
Reason illegal_dw(const Knobs& k, const KernelProblem& p) {
  if (p.permutes_x() && k.gather != Gather::first)
    return "gather must be first for dw: tensor copies read rows that are in order";
  if (!k.tma_x || by_pointers(k))
    return "tma_x must be yes and addressing base for dw: one tensor map describes all experts' rows";
  if (k.block_m % swizzle_columns(p) != 0)
    return fmt::format("block_m must be a multiple of {} for dw: a tensor copy loads so many columns of dY",
                       kSwizzleColumns);
  if (k.pace == Pace::common || shares_last_round(k))
    return "dw needs pace=own and split above 0: how long a tile takes depends on its expert's rows";
  if (k.hold > 0) return "hold must be 0 for dw: its tiles have enough rows to store on their own";
  return std::nullopt;
}

Reason illegal_order(const Knobs& k, const KernelProblem& p) {
  const bool in_cluster = k.cluster != Cluster::none, common = k.pace == Pace::common;
  const bool dynamic = k.tiles == TileOrder::dynamic;
  if (dynamic && in_cluster) return "tiles must be static in a cluster: its blocks walk through tiles together";
  if (dynamic && common)
    return "tiles must be static with pace=common: blocks can only begin the same number of tiles together";
  if (k.split > 1 && (in_cluster || common))
    return "split above 1 needs cluster=none and pace=own: each block takes pieces of tiles by itself";
  if (shares_last_round(k) && (in_cluster || dynamic))
    return "split=0 needs cluster=none and tiles=static: blocks share the last round by their numbers";
  if (k.mix == 1 || k.mix > kMaxMix) return fmt::format("mix must be 0 or lie in 2 to {}", kMaxMix);
  if (k.mix == 0) return std::nullopt;
  if (!dynamic || k.split > 1) return "mix needs tiles=dynamic and split=1: blocks take whole tiles from a counter";
  if (by_pointers(k) || k.gather == Gather::first)
    return "mix needs addressing=base and gather=tiles: pointers and rows gathered first follow the order of experts";
  if (p.experts > kMaxSortedExperts)
    return fmt::format("mix must be 0 with more than {} experts: each block sorts them", kMaxSortedExperts);
  return std::nullopt;
}

Reason illegal_loads(const Knobs& k, const KernelProblem& p, const Shape& shape) {
  const bool first = k.gather == Gather::first;
  if (first && !p.permutes_x())
    return fmt::format("gather must be tiles without {}: there are no rows to gather", gathering(shape));
  if (first && (copies_rows(k) || by_pointers(k)))
    return "gather=first needs tma_x=yes, tma_w=yes and addressing=base: tensor copies read the gathered rows";
  if (!first && k.tma_x && p.permutes_x())
    return fmt::format("tma_x must be no with {} and gather=tiles: tensor copies don't gather rows", gathering(shape));
  if (first && p.x_scale_bytes > 0 && p.looks_up_rows())
    return "gather must be tiles where rows of fp8 are scattered too: no warp of the producer is left to gather them "
           "before";
  if (!k.tma_x && k.cluster == Cluster::n)
    return "tma_x must be yes with cluster=n: only tensor copies load X for two blocks";
  if (!k.tma_w && k.cluster == Cluster::m)
    return "tma_w must be yes with cluster=m: only tensor copies load W for two blocks";
  if (p.columns_per_output > 1 && by_pointers(k))
    return "addressing must be base for gates: one tensor map describes the gates and ups of W";
  if (p.columns_per_output > 1 && k.cluster == Cluster::m && k.block_n % 32 != 0)
    return "block_n must be a multiple of 32 with cluster=m for gates: each block loads half of W";
  if (!p.w_mn_major) return std::nullopt;
  if (!k.tma_w) return "tma_w must be yes for dx and dw: only tensor copies load W whose rows are steps along k";
  const bool in_pairs = k.cluster == Cluster::m && !p.sums_rows();  // each block of a cluster loads half
  if (const int columns = swizzle_columns(p) * (in_pairs ? 2 : 1); k.block_n % columns != 0)
    return fmt::format("block_n must be a multiple of {} for dx and dw{}: a tensor copy loads {} columns of W", columns,
                       in_pairs ? " with cluster=m" : "", kSwizzleColumns);
  return std::nullopt;
}

Reason illegal_stores(const Knobs& k, const KernelProblem& p, const Shape& shape) {
  const bool boxes = k.tma_store == TmaStore::boxes, from_registers = k.tma_store == TmaStore::none && k.hold == 0;
  if (boxes && by_pointers(k))
    return "tma_store must be no or rows with addressing=pointers: boxes need one tensor map of Y for all experts";
  if (boxes && p.looks_up_rows()) return fmt::format("tma_store must be no or rows with {}", looked_up(shape));
  const int staged = k.swap ? groups(k) * kGroupRows : k.block_n;  // columns of the product, of a box
  if (const int columns = kSwizzleColumns * p.columns_per_output; boxes && staged % columns != 0)
    return fmt::format("block_n must be a multiple of {} with tma_store=yes: a box of Y has {} columns", columns,
                       kSwizzleColumns);
  if (p.stores_sums() && !from_registers)
    return "tma_store must be no and hold 0 for sums in fp32, which dW or another pass takes: threads store them from "
           "registers";
  if (p.makes_gates && !from_registers)
    return "tma_store must be no and hold 0 for gradients of gates: threads make them of their sums";
  if (k.hold > 0 && (!k.swap || k.tma_store != TmaStore::none))
    return "hold needs swap=yes and tma_store=no: threads store the held rows of swapped tiles";
  if (k.hold % kStoreRows != 0 || k.hold > kMaxHold)
    return fmt::format("hold must be a multiple of {} up to {}", kStoreRows, kMaxHold);
  if (k.hold > 0 && k.hold < k.block_m) return "hold must be 0 or at least block_m, the rows of a tile";
  if (const int columns = kScaleBlock * p.columns_per_output; p.quantises() && k.block_n != columns)
    return fmt::format("block_n must be {} for Y in fp8: a tile has the gates and ups of each scale", columns);
  if (p.quantises() && (!from_registers || k.split != 1))
    return "tma_store must be no, hold 0 and split 1 for Y in fp8: warps find the largest of a row and store it "
           "themselves";
  if (sums(k, p.promotes, p.quantises()) > max_sums(k, p))
    return "block_m or block_n must be smaller: a tile's sums must fit the registers of its consumers";
  return std::nullopt;
}

// Rows that tensor copies and tiles count in 32 bits.
std::optional<std::string> too_many_rows(const Knobs& c, const Shape& shape, const KernelProblem& p) {
  const Product product = before_last_pass(product_of(shape), true);
  if (p.sums_rows() && p.experts * product.m > kMaxMapRows)
    return "dW of all experts has more rows than a tile can count";
  if (c.tma_w && !by_pointers(c) && !p.w_mn_major && p.experts * product.n > kMaxMapRows && p.columns_per_output == 1)
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
  if (auto reason =
          unsupported("wgmma", shape, {Dtype::bf16, Dtype::fp16, Dtype::fp8, Dtype::int4, Dtype::uint4, Dtype::e2m1},
                      {Op::fwd, Op::dx, Op::dw}))
    return reason;
  if (device.compute_capability != 90) return "wgmma needs sm_90a";
  if (bits(shape.layer.format.w.dtype) == 4 && !shape.layer.format.w.reordered)
    return "wgmma reads 4 bits of a reordered W: --weights reordered";
  const int64_t k_step = multiplies_fp8(shape.layer.format) ? 16 : 8;
  if (shape.layer.k % k_step != 0 || shape.layer.n % 8 != 0)
    return k_step == 8 ? "wgmma needs n and k in multiples of 8"
                       : "wgmma needs n in multiples of 8 and k of 16 for fp8";
  const KernelProblem problem = wgmma_problem(c, shape);
  if (problem.quantises() && (shape.fusion.interleaved || shape.layer.n % (2 * kScaleBlock) != 0))
    return "wgmma gives Y in fp8 only of all gates before all ups, with n in multiples of 256";
  if (auto reason = illegal_gates(c.block_n, shape)) return reason;
  if (auto reason = illegal_split(c.split, c.block_m, c.block_n, 0, 1, device)) return reason;
  if (problem.sums_rows() && problem.experts > kMaxSortedExperts)
    return fmt::format("wgmma has no dw for more than {} experts: each block sorts them", kMaxSortedExperts);
  if (auto reason = illegal_tile(c, problem)) return reason;
  if (problem.sums_rows())
    if (auto reason = illegal_dw(c, problem)) return reason;
  if (auto reason = illegal_order(c, problem)) return reason;
  if (auto reason = illegal_loads(c, problem, shape)) return reason;
  if (auto reason = illegal_stores(c, problem, shape)) return reason;
  if (auto reason = too_many_rows(c, shape, problem)) return reason;
  if (wgmma_layout(c, problem).bytes > device.shared_memory_per_block)
    return fmt::format("stages, block_m, block_n, block_k or hold must be smaller: shared memory over {} bytes",
                       device.shared_memory_per_block);
  return std::nullopt;
}

}  // namespace moetune
