// Which knobs of wgmma go together: the host refuses a candidate that breaks a rule, with words of its own, and the
// kernel doesn't compile.
#pragma once
#include "wgmma/wgmma_plan.h"

namespace moetune {

constexpr int kMostWgmmaStages = 16, kMostGroup = 64, kMostHold = 1024, kMostMix = 16;
constexpr int kMostSortedExperts = 1024;  // by one block

/// What a rule is about.
enum class WgmmaRule {
  none,
  // Of tiles.
  block_m,
  block_n,
  block_k,
  stages,
  group,
  consumers,
  in_flight,
  elements,
  pingpong,
  groups,  // of kGroupRows on wgmma's M side, for each consumer
  // Of sums over rows.
  sums_gather,
  sums_map,
  sums_planes,
  sums_order,
  sums_hold,
  sums_experts,
  // Of the order of tiles.
  dynamic_cluster,
  dynamic_pace,
  pieces,
  shared_round,
  mix,
  mix_order,
  mix_loads,
  mix_experts,
  // Of loads.
  gather_rows,
  gather_map,
  gather_copies,
  gather_warps,
  cluster_x,
  cluster_w,
  joined_loads,
  joined_columns,
  across_copies,
  across_planes,
  // Of stores.
  boxes_pointers,
  boxes_rows,
  boxes_columns,
  fp32_stores,
  gates_stores,
  hold_stores,
  hold_rows,
  hold_tile,
  quantised_tile,
  quantised_stores,
  registers,
};

constexpr WgmmaRule broken_tile(const WgmmaKnobs& k, const KernelProblem& p) {
  if (k.block_m < 16 || k.block_m > 256 || k.block_m % 16 != 0) return WgmmaRule::block_m;
  if (k.block_n < 16 || k.block_n > 256 || k.block_n % 16 != 0) return WgmmaRule::block_n;
  if (k.block_k != swizzle_columns(p) && k.block_k != 2 * swizzle_columns(p)) return WgmmaRule::block_k;
  if (p.x_memory_bits != p.x_stage_bits || p.w_memory_bits != p.w_stage_bits) return WgmmaRule::elements;
  if (k.stages < 2 || k.stages > kMostWgmmaStages) return WgmmaRule::stages;
  if (k.group < 1 || k.group > kMostGroup) return WgmmaRule::group;
  if (k.consumers < 1 || k.consumers > 3) return WgmmaRule::consumers;
  if (k.in_flight < 0 || k.in_flight > 1) return WgmmaRule::in_flight;
  if (pingpong(k) && k.consumers != 2) return WgmmaRule::pingpong;
  if (m_side(k) % (kGroupRows * warpgroups_a_tile(k)) != 0) return WgmmaRule::groups;
  return WgmmaRule::none;
}

constexpr WgmmaRule broken_sums(const WgmmaKnobs& k, const KernelProblem& p) {
  if (!p.sums_rows()) return WgmmaRule::none;
  if (p.permutes_x() && k.gather != Gather::first) return WgmmaRule::sums_gather;
  if (!k.tma_x || by_pointers(k)) return WgmmaRule::sums_map;
  if (k.block_m % swizzle_columns(p) != 0) return WgmmaRule::sums_planes;
  if (k.pace == Pace::common || shares_last_round(k)) return WgmmaRule::sums_order;
  if (k.hold > 0) return WgmmaRule::sums_hold;
  return WgmmaRule::none;
}

constexpr WgmmaRule broken_order(const WgmmaKnobs& k, const KernelProblem& p) {
  const bool in_cluster = k.cluster != Cluster::none, common = k.pace == Pace::common;
  const bool dynamic = k.tiles == TileOrder::dynamic;
  if (dynamic && in_cluster) return WgmmaRule::dynamic_cluster;
  if (dynamic && common) return WgmmaRule::dynamic_pace;
  if (k.split > 1 && (in_cluster || common)) return WgmmaRule::pieces;
  if (shares_last_round(k) && (in_cluster || dynamic)) return WgmmaRule::shared_round;
  if (k.mix == 1 || k.mix > kMostMix) return WgmmaRule::mix;
  if (k.mix == 0) return WgmmaRule::none;
  if (!dynamic || k.split > 1) return WgmmaRule::mix_order;
  if (by_pointers(k) || k.gather == Gather::first) return WgmmaRule::mix_loads;
  if (p.experts > kMostSortedExperts) return WgmmaRule::mix_experts;
  return WgmmaRule::none;
}

/// Columns of W whose rows are steps along k in the copies of a tile, or in those of each block of a cluster.
constexpr int across_columns(const WgmmaKnobs& k, const KernelProblem& p) {
  return swizzle_columns(p) * (k.cluster == Cluster::m && !p.sums_rows() ? 2 : 1);
}

constexpr WgmmaRule broken_loads(const WgmmaKnobs& k, const KernelProblem& p) {
  if (k.gather == Gather::first && !p.permutes_x()) return WgmmaRule::gather_rows;
  if (k.gather == Gather::first && (copies_rows(k) || by_pointers(k))) return WgmmaRule::gather_map;
  if (k.gather == Gather::tiles && k.tma_x && p.permutes_x()) return WgmmaRule::gather_copies;
  if (k.gather == Gather::first && p.x_scale_bytes > 0 && p.looks_up_rows()) return WgmmaRule::gather_warps;
  if (!k.tma_x && k.cluster == Cluster::n) return WgmmaRule::cluster_x;
  if (!k.tma_w && k.cluster == Cluster::m) return WgmmaRule::cluster_w;
  if (p.columns_per_output > 1 && by_pointers(k)) return WgmmaRule::joined_loads;
  if (p.columns_per_output > 1 && k.block_n % (k.cluster == Cluster::m ? 32 : 16) != 0)
    return WgmmaRule::joined_columns;
  if (p.w_mn_major && !k.tma_w) return WgmmaRule::across_copies;
  if (p.w_mn_major && k.block_n % across_columns(k, p) != 0) return WgmmaRule::across_planes;
  return WgmmaRule::none;
}

constexpr WgmmaRule broken_stores(const WgmmaKnobs& k, const KernelProblem& p) {
  const bool boxes = k.tma_store == TmaStore::boxes, threads = k.tma_store == TmaStore::none;
  if (boxes && by_pointers(k)) return WgmmaRule::boxes_pointers;
  if (boxes && p.looks_up_rows()) return WgmmaRule::boxes_rows;
  const int staged = k.swap ? groups(k) * kGroupRows : k.block_n;  // columns of the product, of a box
  if (boxes && staged % (kSwizzleColumns * p.columns_per_output) != 0) return WgmmaRule::boxes_columns;
  if (p.stores_sums() && (!threads || k.hold > 0)) return WgmmaRule::fp32_stores;
  if (p.makes_gates && (!threads || k.hold > 0)) return WgmmaRule::gates_stores;
  if (k.hold > 0 && (!k.swap || !threads)) return WgmmaRule::hold_stores;
  if (k.hold % kStoreRows != 0 || k.hold > kMostHold) return WgmmaRule::hold_rows;
  if (k.hold > 0 && k.hold < k.block_m) return WgmmaRule::hold_tile;
  if (p.quantises() && k.block_n != kScaleBlock * p.columns_per_output) return WgmmaRule::quantised_tile;
  if (p.quantises() && (!threads || k.hold > 0 || k.split != 1)) return WgmmaRule::quantised_stores;
  if (sums(k, p.promotes, p.quantises()) > max_sums(k, p)) return WgmmaRule::registers;
  return WgmmaRule::none;
}

/// The first rule that is broken.
constexpr WgmmaRule broken_rule(const WgmmaKnobs& k, const KernelProblem& p) {
  if (p.sums_rows() && p.experts > kMostSortedExperts) return WgmmaRule::sums_experts;  // no knob mends it
  if (const WgmmaRule rule = broken_tile(k, p); rule != WgmmaRule::none) return rule;
  if (const WgmmaRule rule = broken_sums(k, p); rule != WgmmaRule::none) return rule;
  if (const WgmmaRule rule = broken_order(k, p); rule != WgmmaRule::none) return rule;
  if (const WgmmaRule rule = broken_loads(k, p); rule != WgmmaRule::none) return rule;
  return broken_stores(k, p);
}

}  // namespace moetune
