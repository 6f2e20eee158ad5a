// Rules of shapes, tiles, the order of tiles, loads, sums over rows, stores, registers and shared memory.
#include "variant/wgmma_legal.h"

#include <fmt/format.h>

#include "variant/unit.h"
#include "variant/variant.h"
#include "workload/product.h"

namespace moetune {
namespace {

using Knobs = WgmmaKnobs;

constexpr int kMaxHold = 1024;
constexpr int kMaxMix = 16, kMaxMixed = 1024;
constexpr int64_t kMaxMapRows = 0x7fff0000;  // coordinates are signed 32-bit numbers, and a tile may end past it

bool in_cluster(const Knobs& c) { return c.cluster != Cluster::none; }
bool dynamic(const Knobs& c) { return c.tiles == TileOrder::dynamic; }
bool boxes_of_y(const Knobs& c) { return c.tma_store == TmaStore::boxes; }

bool fits_registers(const Knobs& c, const WgmmaRoles& roles) {
  return sums(c) <= max_sums(c, roles.looks_up_rows, roles.stores_sums);
}

std::optional<std::string> illegal_tile(const Knobs& c) {
  if (c.block_m < 16 || c.block_m > 256 || c.block_m % 16 != 0) return "block_m must be a multiple of 16 in 16 to 256";
  if (c.block_n < 16 || c.block_n > 256 || c.block_n % 16 != 0) return "block_n must be a multiple of 16 in 16 to 256";
  if (!one_of(c.block_k, {64, 128})) return "block_k must be 64 or 128";
  if (c.stages < 2 || c.stages > kMostWgmmaStages) return fmt::format("stages must lie in 2 to {}", kMostWgmmaStages);
  if (c.group < 1 || c.group > 64) return "group must lie in 1 to 64";
  if (!one_of(c.consumers, {1, 2, 3})) return "consumers must be 1, 2 or 3";
  if (!one_of(c.in_flight, {0, 1})) return "in_flight must be 0 or 1";
  if (pingpong(c) && c.consumers != 2) return "schedule=pingpong needs consumers=2";
  if (m_side(c) % (64 * warpgroups_a_tile(c)) != 0)
    return fmt::format("{} must be a multiple of 64 for each consumer that shares a tile",
                       c.swap ? "block_n, with swap=yes," : "block_m, with swap=no,");
  return std::nullopt;
}

// How blocks take tiles, and what goes with that.
std::optional<std::string> illegal_order(const Knobs& c, const Shape& shape, const DeviceInfo& device) {
  if (dynamic(c) && in_cluster(c)) return "tiles must be static in a cluster: its blocks walk through tiles together";
  if (dynamic(c) && c.pace == Pace::common)
    return "tiles must be static with pace=common: blocks can only begin the same number of tiles together";
  if (c.split > 1 && (in_cluster(c) || c.pace == Pace::common))
    return "split above 1 needs cluster=none and pace=own: each block takes pieces of tiles by itself";
  if (c.split == 0 && (in_cluster(c) || dynamic(c)))
    return "split=0 needs cluster=none and tiles=static: blocks share the last round by their numbers";
  if (auto reason = illegal_split(c.split, c.block_m, c.block_n, 0, 1, device)) return reason;
  if (c.mix == 1 || c.mix > kMaxMix) return fmt::format("mix must be 0 or lie in 2 to {}", kMaxMix);
  if (c.mix == 0) return std::nullopt;
  if (!dynamic(c) || c.split > 1) return "mix needs tiles=dynamic and split=1: blocks take whole tiles from a counter";
  if (by_pointers(c) || c.gather == Gather::first)
    return "mix needs addressing=base and gather=tiles: pointers and rows gathered first follow the order of experts";
  if (shape.layer.local_experts() > kMaxMixed)
    return fmt::format("mix must be 0 with more than {} experts: each block sorts them", kMaxMixed);
  return std::nullopt;
}

std::optional<std::string> illegal_loads(const Knobs& c, const Shape& shape, const WgmmaRoles& roles) {
  if (c.gather == Gather::first && !roles.permutes_x)
    return "gather must be tiles without permute_x: there are no rows to gather";
  if (c.gather == Gather::first && (copies_rows(c) || by_pointers(c)))
    return "gather=first needs tma_x=yes, tma_w=yes and addressing=base: tensor copies read the gathered rows";
  if (c.gather == Gather::tiles && c.tma_x && roles.permutes_x)
    return "tma_x must be no with permute_x and gather=tiles: tensor copies don't gather rows";
  if (!c.tma_x && c.cluster == Cluster::n)
    return "tma_x must be yes with cluster=n: only tensor copies load X for two blocks";
  if (!c.tma_w && c.cluster == Cluster::m)
    return "tma_w must be yes with cluster=m: only tensor copies load W for two blocks";
  if (!c.tma_x && !c.tma_w && c.consumers == 2 && !c.swap && c.block_m == 256 && c.block_k == 128)
    return "block_m must be below 256, or block_k 64, with tma_x=no and tma_w=no: a producer's addresses of rows must "
           "fit its registers";
  if (roles.w_across && !c.tma_w)
    return "tma_w must be yes for dx and dw: only tensor copies load W whose rows are steps along k";
  const int columns_a_copy = kSwizzleColumns * (c.cluster == Cluster::m && !roles.sums_rows ? 2 : 1);
  if (roles.w_across && c.block_n % columns_a_copy != 0)
    return fmt::format("block_n must be a multiple of {} for dx and dw{}: a tensor copy loads {} columns of W",
                       columns_a_copy, columns_a_copy > kSwizzleColumns ? " with cluster=m" : "", kSwizzleColumns);
  if (c.tma_w && !by_pointers(c) && !roles.w_across && shape.layer.local_experts() * roles.n > kMaxMapRows)
    return "tma_w must be no or addressing pointers: W of all experts has more rows than tensor copies can count";
  return std::nullopt;
}

// dW: what is summed over an expert's rows.
std::optional<std::string> illegal_sums(const Knobs& c, const Shape& shape, const WgmmaRoles& roles) {
  if (roles.permutes_x && c.gather != Gather::first)
    return "gather must be first for dw: tensor copies read rows that are in order";
  if (!c.tma_x || by_pointers(c))
    return "tma_x must be yes and addressing base for dw: one tensor map describes all experts' rows";
  if (c.block_m % kSwizzleColumns != 0)
    return fmt::format("block_m must be a multiple of {} for dw: a tensor copy loads so many columns of dY",
                       kSwizzleColumns);
  if (c.pace == Pace::common || c.split == 0)
    return "dw needs pace=own and split above 0: how long a tile takes depends on its expert's rows";
  if (c.hold > 0) return "hold must be 0 for dw: its tiles have enough rows to store on their own";
  if (shape.layer.local_experts() > kMaxMixed)
    return fmt::format("wgmma has no dw for more than {} experts: each block sorts them", kMaxMixed);
  if (shape.layer.local_experts() * roles.m > kMaxMapRows)
    return "dW of all experts has more rows than a tile can count";
  return std::nullopt;
}

std::optional<std::string> illegal_stores(const Knobs& c, const WgmmaRoles& roles) {
  if (by_pointers(c) && boxes_of_y(c))
    return "tma_store must be no or rows with addressing=pointers: boxes need one tensor map of Y for all experts";
  if (boxes_of_y(c) && roles.looks_up_rows)
    return "tma_store must be no or rows with permute_y: tensor copies don't scatter rows";
  if (boxes_of_y(c) && c.block_n % kSwizzleColumns != 0)
    return fmt::format("block_n must be a multiple of {0} with tma_store=yes: a box of Y has {0} columns",
                       kSwizzleColumns);
  if (roles.stores_sums && (c.tma_store != TmaStore::none || c.hold > 0))
    return "tma_store must be no and hold 0 for sums in fp32: threads store them from registers";
  if (c.hold > 0 && (!c.swap || c.tma_store != TmaStore::none))
    return "hold needs swap=yes and tma_store=no: threads store the held rows of swapped tiles";
  if (c.hold % kStoreRows != 0 || c.hold > kMaxHold)
    return fmt::format("hold must be a multiple of {} up to {}", kStoreRows, kMaxHold);
  if (c.hold > 0 && c.hold < c.block_m) return "hold must be 0 or at least block_m, the rows of a tile";
  return std::nullopt;
}

}  // namespace

WgmmaRoles wgmma_roles(const Shape& shape) {
  const Product p = before_last_pass(product_of(shape));
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .permutes_x = p.a.order != RowOrder::in_place || p.b.order != RowOrder::in_place,
          .scatters_y = p.d.order != RowOrder::in_place,
          .looks_up_rows = p.d.order != RowOrder::in_place || weights_result(p),
          .w_across = !is_k_major(p.b),
          .sums_rows = p.ragged == Axis::k,
          .stores_sums = p.d.dtype == Dtype::fp32,
          .weight_bytes = static_cast<int>(size_bytes(p.weighting == Weighting::result ? Dtype::fp32 : p.d.dtype))};
}

int wgmma_shared_bytes(const Knobs& c, const Shape& shape, const WgmmaRoles& roles) {
  return wgmma_layout(c, {.permutes_x = roles.permutes_x,
                          .looks_up_rows = roles.looks_up_rows,
                          .sums_rows = roles.sums_rows,
                          .stores_sums = roles.stores_sums,
                          .experts = static_cast<int>(shape.layer.local_experts()),
                          .element_bytes = static_cast<int>(size_bytes(shape.layer.dtype)),
                          .weight_bytes = roles.weight_bytes})
      .bytes;
}

std::optional<std::string> wgmma_illegal(const Knobs& c, const Shape& shape, const DeviceInfo& device) {
  if (auto reason = unsupported("wgmma", shape, {Dtype::bf16, Dtype::fp16}, {Op::fwd, Op::dx, Op::dw})) return reason;
  if (device.compute_capability != 90) return "wgmma needs sm_90a";
  if (shape.layer.k % 8 != 0 || shape.layer.n % 8 != 0) return "wgmma needs n and k in multiples of 8";
  const WgmmaRoles roles = wgmma_roles(shape);
  if (auto reason = illegal_tile(c)) return reason;
  if (roles.sums_rows)
    if (auto reason = illegal_sums(c, shape, roles)) return reason;
  if (auto reason = illegal_order(c, shape, device)) return reason;
  if (auto reason = illegal_loads(c, shape, roles)) return reason;
  if (auto reason = illegal_stores(c, roles)) return reason;
  if (!fits_registers(c, roles))
    return "block_m or block_n must be smaller: a tile's sums must fit the registers of its consumers";
  if (wgmma_shared_bytes(c, shape, roles) > device.shared_memory_per_block)
    return fmt::format("stages, block_m, block_n, block_k or hold must be smaller: shared memory over {} bytes",
                       device.shared_memory_per_block);
  return std::nullopt;
}

}  // namespace moetune
