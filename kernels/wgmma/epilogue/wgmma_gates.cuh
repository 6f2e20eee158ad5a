// Makes the gradients of gates and ups from sums and H, and X again, all from registers.
#pragma once
#include "producer/targets.cuh"
#include "result_gated.cuh"
#include "tma_ptx.cuh"
#include "wgmma/epilogue/wgmma_sums.cuh"

namespace moetune {

// Eight neighbouring gates and their ups, in words of two.
struct EightGates {
  unsigned gates[4], ups[4];
};

// H is loaded `most` turns before it is used: a turn takes less time than a load.
template <int turns, int most>
struct Ahead {
  static constexpr int depth = turns < most ? turns : most;
  EightGates next[depth];

  template <class Fetch>
  __forceinline__ explicit Ahead(const Fetch& fetch) {
#pragma unroll
    for (int i = 0; i < depth; ++i) next[i] = fetch(i);
  }
  // Called with 0, 1, ...
  template <class Fetch>
  __forceinline__ EightGates take(int turn, const Fetch& fetch) {
    const EightGates taken = next[turn % depth];
    if (turn + depth < turns) next[turn % depth] = fetch(turn + depth);
    return taken;
  }
};

template <class Block>
struct WgmmaGates {
  using Tile = Block::Tile;
  using Group = WgmmaWarpgroup<Block>;
  using Result = Block::Result;
  using Function = Block::Function;
  using Targets = RowTargets<Block>;
  static constexpr int vectors = Block::width / 8, turns = vectors / 4;
  static constexpr int turns_ahead = Block::consumers == 3 ? 1 : 3;  // as registers allow
  // Parts of a row's product with X in a tile: a warp has 16 columns of a swapped tile, or all.
  static constexpr int parts = gate_parts(Block::knobs);

  template <class Sum>
  static __forceinline__ void store(const Group& group, const Tile& tile, const Targets& targets, const Sum& sum) {
    sum.with([&](const auto& four) {
      if constexpr (Block::swapped) {
        store_columns(group, tile, targets, four);
      } else {
#pragma unroll
        for (int g = 0; g < Block::groups; ++g)
          store_rows(group.block.args, tile, targets, (group.first_group + g) * kGroupRows,
                     [&](int v) { return four(g, v); });
      }
    });
  }
  static __forceinline__ void finish() {}

 private:
  // A gate of column `column` of X, in H or dH.
  static __forceinline__ Result* place(const Args& args, void* h, long long row, long long column) {
    return static_cast<Result*>(h) + row * 2 * args.n + (Block::problem.interleaved ? 2 * column : column);
  }
  static __forceinline__ float weight_of(const Targets& targets, const Tile& tile, int row) {
    if constexpr (Block::weighs) return targets.weight[min(row, tile.rows - 1)].value;
    return 1;
  }
  static __forceinline__ void add_part(const Args& args, const Tile& tile, int row, int part, float dot) {
    if (tile.column >= args.n) return;  // the second of a cluster's pair, where tiles are odd
    const long long a_row = (args.n + Block::block_n - 1) / Block::block_n * parts;
    args.parts[(tile.row + row) * a_row + tile.column / Block::block_n * parts + part] = dot;
  }

  static __forceinline__ EightGates load(const Args& args, long long row, long long column) {
    const auto* const from = reinterpret_cast<const uint4*>(place(args, args.h, row, column));
    const uint4 first = __ldg(from), second = __ldg(from + (Block::problem.interleaved ? 1 : args.n / 8));
    if constexpr (!Block::problem.interleaved)
      return {{first.x, first.y, first.z, first.w}, {second.x, second.y, second.z, second.w}};
    const auto gates = [](unsigned low, unsigned high) { return __byte_perm(low, high, 0x5410); };
    const auto ups = [](unsigned low, unsigned high) { return __byte_perm(low, high, 0x7632); };
    return {{gates(first.x, first.y), gates(first.z, first.w), gates(second.x, second.y), gates(second.z, second.w)},
            {ups(first.x, first.y), ups(first.z, first.w), ups(second.x, second.y), ups(second.z, second.w)}};
  }
  static __forceinline__ void put(const Args& args, long long row, long long column, const EightGates& dh,
                                  const unsigned (&x)[4]) {
    auto* const to = reinterpret_cast<uint4*>(place(args, args.y, row, column));
    if constexpr (Block::problem.interleaved) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto pair = [&](int j, unsigned order) {
          return __byte_perm(dh.gates[2 * i + j], dh.ups[2 * i + j], order);
        };
        to[i] = {pair(0, 0x5410), pair(0, 0x7632), pair(1, 0x5410), pair(1, 0x7632)};
      }
    } else {
      to[0] = {dh.gates[0], dh.gates[1], dh.gates[2], dh.gates[3]};
      to[args.n / 8] = {dh.ups[0], dh.ups[1], dh.ups[2], dh.ups[3]};
    }
    *reinterpret_cast<uint4*>(static_cast<Result*>(args.x_again) + row * args.n + column) = {x[0], x[1], x[2], x[3]};
  }

  // Two neighbours in a row or a column, with their weights. Adds to `dots` what each gives.
  static __forceinline__ void make(unsigned& gates, unsigned& ups, unsigned& x, float2 sums, float2 weights,
                                   float2& dots) {
    const auto low = [](unsigned word) { return to_float(Result{static_cast<unsigned short>(word)}); };
    const auto high = [](unsigned word) { return to_float(Result{static_cast<unsigned short>(word >> 16)}); };
    const float2 gate = {low(gates), high(gates)}, up = {low(ups), high(ups)};
    const Activated first = activated<true>(Function::activation, gate.x, up.x),
                    second = activated<true>(Function::activation, gate.y, up.y);
    x = pack<Result>(first.value, second.value);
    dots.x += sums.x * low(x), dots.y += sums.y * high(x);
    sums.x *= weights.x, sums.y *= weights.y;
    gates = pack<Result>(sums.x * first.of_gate, sums.y * second.of_gate);
    ups = pack<Result>(sums.x * first.of_up, sums.y * second.of_up);
  }

  // Four lanes exchange words: before, each has eight neighbours of a row, and again after it; make_word(i) is called
  // with word i of each.
  template <class MakeWord>
  static __forceinline__ void make_eight(EightGates& h, unsigned (&x)[4], const MakeWord& make_word) {
    transpose_words(h.gates);
    transpose_words(h.ups);
#pragma unroll
    for (int i = 0; i < 4; ++i) make_word(i);
    transpose_words(h.gates);
    transpose_words(h.ups);
    transpose_words(x);
  }

  // A warp's 16 rows. Four lanes have a row.
  template <class Four>
  static __forceinline__ void store_rows(const Args& args, const Tile& tile, const Targets& targets, int first,
                                         const Four& four) {
    const int lane = threadIdx.x % 32, m = first + threadIdx.x % 128 / 32 * 16;
    if (__all_sync(~0u, m >= tile.rows)) return;
    const auto row = [&](int half) { return m + lane / 4 + half * 8; };
    const auto column = [&](int turn) { return tile.column + (turn % turns * 4 + lane % 4) * 8LL; };
    const auto stores = [&](int turn) { return row(turn / turns) < tile.rows && column(turn) < args.n; };
    const auto fetch = [&](int turn) {
      return stores(turn) ? load(args, tile.row + row(turn / turns), column(turn)) : EightGates{};
    };
    Ahead<2 * turns, turns_ahead> ahead(fetch);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float weight = weight_of(targets, tile, row(half));
      float2 dots = {};
#pragma unroll
      for (int turn = half * turns; turn < (half + 1) * turns; ++turn) {
        EightGates h = ahead.take(turn, fetch);
        unsigned x[4];
        make_eight(h, x, [&](int i) {
          const float4 d = four(turn % turns * 4 + i);
          const float2 sums = half == 0 ? make_float2(d.x, d.y) : make_float2(d.z, d.w);
          make(h.gates[i], h.ups[i], x[i], sums, {weight, weight}, dots);
        });
        if (stores(turn)) put(args, tile.row + row(half), column(turn), h, x);
      }
      if constexpr (Function::dots) {
        float dot = dots.x + dots.y;
        for (int step = 1; step < 4; step *= 2) dot += __shfl_xor_sync(~0u, dot, step);
        if (row(half) < tile.rows && lane % 4 == 0) add_part(args, tile, row(half), 0, dot);
      }
    }
  }

  // A warp's 16 columns of each group, 16 rows at a time. A thread has two rows of a column, and of the transposed 8 x
  // 8 two columns of a row; again four lanes exchange words, of two such rows.
  template <class Four>
  static __forceinline__ void store_columns(const Group& group, const Tile& tile, const Targets& targets,
                                            const Four& four) {
    const Args& args = group.block.args;
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    constexpr int groups = Block::groups;
    const auto row = [&](int turn) { return (turn / groups * 2 + lane % 4 / 2) * 8 + lane / 4; };
    const auto column = [&](int turn) {
      return tile.column + (group.first_group + turn % groups) * kGroupRows + warp * 16LL + lane % 2 * 8;
    };
    const auto stores = [&](int turn) { return row(turn) < tile.rows && column(turn) < args.n; };
    const auto fetch = [&](int turn) {
      return stores(turn) ? load(args, tile.row + row(turn), column(turn)) : EightGates{};
    };
    Ahead<vectors / 2 * groups, turns_ahead> ahead(fetch);
#pragma unroll
    for (int v = 0; v < vectors; v += 2) {
      if (v * 8 >= tile.rows) break;
      const int pair = v * 8 + lane % 4 * 2;
      float2 weights[2], dots[2] = {};
#pragma unroll
      for (int i = 0; i < 2; ++i)
        weights[i] = {weight_of(targets, tile, pair + i * 8), weight_of(targets, tile, pair + i * 8 + 1)};
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        const int turn = v / 2 * groups + g;
        const float4 d[2] = {four(g, v), four(g, v + 1)};
        EightGates h = ahead.take(turn, fetch);
        unsigned x[4];
        make_eight(h, x, [&](int i) {
          const float4& of = d[i / 2];
          unsigned gates = transposed_8x8(h.gates[i]), ups = transposed_8x8(h.ups[i]), again;
          make(gates, ups, again, i % 2 == 0 ? make_float2(of.x, of.y) : make_float2(of.z, of.w), weights[i / 2],
               dots[i / 2]);
          h.gates[i] = transposed_8x8(gates), h.ups[i] = transposed_8x8(ups), x[i] = transposed_8x8(again);
        });
        if (stores(turn)) put(args, tile.row + row(turn), column(turn), h, x);
      }
      if constexpr (Function::dots) {
        const int part = group.first_group / Block::groups * 4 + warp;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          for (int step = 4; step < 32; step *= 2) {
            dots[i].x += __shfl_xor_sync(~0u, dots[i].x, step);
            dots[i].y += __shfl_xor_sync(~0u, dots[i].y, step);
          }
          const int row = pair + i * 8;
          if (lane < 4 && row < tile.rows) add_part(args, tile, row, part, dots[i].x);
          if (lane < 4 && row + 1 < tile.rows) add_part(args, tile, row + 1, part, dots[i].y);
        }
      }
    }
  }
};

}  // namespace moetune
