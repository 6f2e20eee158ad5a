// Deliberately wrong kernels: what a sentence of kernels/ is replaced by, variant by variant. What must be said of them
// on a GPU stands in verify_test.cpp; that each still compiles, in backend/cuda/compile_test.cpp.
#pragma once
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "base/system/file.h"
#include "built_in.h"
#include "variant/variant.h"
#include "workload/problem.h"

namespace moetune {

struct Plant {
  std::string fault, variant, file, from, to;
  bool of_copies = false;  // of what tensor copies store
};

inline const Plant kPlants[] = {
    {"none", "mma", "result.cuh", "return pack<Result>(low[0], high[0]);", "return pack<Result>(low[0], high[0]);"},
    {"none", "wgmma", "result.cuh", "return pack<Result>(low[0], high[0]);", "return pack<Result>(low[0], high[0]);"},
    // The last bit of an element of each tile's first row.
    {"one ulp", "mma", "mma/mma.cuh", "Result* target = y +",
     "if (row == 0 && column == 8) staging[r * staging_pitch + c].bits ^= 1;\n          Result* target = y +"},
    {"one ulp", "wgmma", "wgmma/epilogue/wgmma_store.cuh", "if (leaves(r + i))",
     "if ((row + r + i == 0 && column + c == 8 ? const_cast<Element*>(staging + place(r + i, c))->bits ^= 1 "
     ": 0),\n"
     "            leaves(r + i))"},
    // The same of the first row of Y, in some launches only: what a race would do.
    {"unsteady", "mma", "mma/mma.cuh", "Result* target = y +",
     "if (tile.row + row == 0 && column == 8 && clock64() / 16 % 2 == 0) staging[r * staging_pitch + c].bits ^= 1;\n"
     "          Result* target = y +"},
    {"unsteady", "wgmma", "wgmma/epilogue/wgmma_store.cuh", "if (leaves(r + i))",
     "if ((tile.row + row + r + i == 0 && column + c == 8 && clock64() / 16 % 2 == 0\n"
     "                 ? const_cast<Element*>(staging + place(r + i, c))->bits ^= 1 : 0),\n"
     "            leaves(r + i))"},
    // Of the ring's stages each must be taken: wgmma passes over a part of every one instead of over the last.
    {"skipped step", "mma", "mma/mma.cuh", "k < args.k; k += block_k", "k < args.k - block_k; k += block_k"},
    {"skipped step", "wgmma", "wgmma/wgmma_ptx.cuh", "MOETUNE_NEXT step);", ");"},
    {"unwritten row", "mma", "mma/mma.cuh", "row < tile.rows && column", "row < tile.rows - 1 && column"},
    {"unwritten row", "wgmma", "wgmma/epilogue/wgmma_store.cuh", "row + r < tile.rows; }",
     "row + r < tile.rows - 1; }"},
    {"rows too many", "mma", "mma/mma.cuh", "if (row < tile.rows && column < y_columns<Config>(args)) {",
     "if (column < y_columns<Config>(args)) {"},
    {"rows too many", "wgmma", "wgmma/epilogue/wgmma_store.cuh", "if (leaves(r + i))", "if (row + r + i >= 0)"},
    {"row unwritten by copies", "wgmma", "wgmma/epilogue/wgmma_store.cuh", "min(box, tile.rows - row - first);",
     "min(box, tile.rows - row - first) - 1;", true},
    {"rows too many by copies", "wgmma", "wgmma/epilogue/wgmma_store.cuh", "min(box, tile.rows - row - first);", "box;",
     true},
};

/// Faults of fp8 and of combined columns, with a candidate that runs through them: `deep` along k with scales of
/// channels, else with blocks'.
struct Fp8Plant {
  Plant plant;
  std::string candidate;
  Fusion fusion = {};
  bool deep = false;
  Dtype result = Dtype::bf16;
};
inline const std::string kFp8Tail =
    " block_k=128 stages=3 raster=m group=1 consumers=2 schedule=cooperative swap=no cluster=none in_flight=0 "
    "tma_w=yes tma_store=no tiles=static";
inline const std::string kMmaOfFp8 = "mma block_m=32 block_n=256 block_k=64 warps=8 stages=3 raster=m group=1 split=1";
inline const Fp8Plant kFp8Plants[] = {
    {{"scale of the next block of k", "wgmma", "producer/stage_scales.cuh", "x[r][number * parts + p]",
      "x[r][(number * parts + p + 1) % depth]"},
     "wgmma block_m=128 block_n=128 tma_x=yes" + kFp8Tail},
    {{"scale of the next row", "wgmma", "wgmma/wgmma_promote.cuh", "row(WgmmaPlaces<Block>::m_row(group, 0))",
      "row(WgmmaPlaces<Block>::m_row(group, 0) ^ 1)"},
     "wgmma block_m=128 block_n=128 tma_x=yes" + kFp8Tail},
    {{"one scale for a tile across two blocks", "wgmma", "wgmma/wgmma_promote.cuh", "w = scales.w[blocks > 1];",
      "w = scales.w[0];"},
     "wgmma block_m=128 block_n=96 tma_x=yes" + kFp8Tail},
    {{"scales of rows that are not gathered", "wgmma", "producer/row_loader.cuh",
      "return Block::gathers ? gathered(block, turn)[r] : tile.row + r;", "return tile.row / 4 + r;"},
     "wgmma block_m=128 block_n=128 tma_x=no" + kFp8Tail,
     {.permute_x = true}},
    {{"gates for ups", "wgmma", "result_gated.cuh", "Of::of(low[0], low[1])", "Of::of(low[1], low[0])"},
     "wgmma block_m=128 block_n=128 tma_x=yes" + kFp8Tail,
     {.activation = Activation::silu}},
    {{"scales of gates for ups", "wgmma", "wgmma/wgmma_promote.cuh", "w = scales.w[v % 2];", "w = scales.w[0];"},
     "wgmma block_m=128 block_n=128 tma_x=yes" + kFp8Tail,
     {.activation = Activation::silu}},
    {{"bias of another expert", "wgmma", "epilogue.cuh", "args.bias)[expert * args.n",
      "args.bias)[(expert + 1) % args.experts * args.n"},
     "wgmma block_m=128 block_n=128 tma_x=yes" + kFp8Tail,
     {.bias = true}},
    {{"promoted every 256 of k", "wgmma", "wgmma/wgmma_promote.cuh", "add<unit, 0>(scales);",
      "if (stage % 2 == 1) add<unit, 0>(scales);"},
     "wgmma block_m=128 block_n=128 tma_x=yes" + kFp8Tail},
    {{"never promoted", "wgmma", "config.cuh", "struct Promote {\n  static constexpr bool restarts = true,",
      "struct Promote {\n  static constexpr bool restarts = false,"},
     "wgmma block_m=128 block_n=128 tma_x=yes" + kFp8Tail,
     {},
     true},
    {{"quantised by half of the lanes that have a row", "wgmma", "wgmma/epilogue/wgmma_quantise.cuh",
      "step < 4; step *= 2", "step < 2; step *= 2"},
     "wgmma block_m=128 block_n=256 tma_x=yes" + kFp8Tail,
     {.activation = Activation::silu},
     false,
     Dtype::fp8},
    {{"scale of a neighbour's row", "wgmma", "quantise.cuh", "args.y_scales[row * args.y_scale_row",
      "args.y_scales[(row ^ 1) * args.y_scale_row"},
     "wgmma block_m=128 block_n=256 tma_x=yes" + kFp8Tail,
     {.activation = Activation::silu},
     false,
     Dtype::fp8},
    {{"words in the wrong lanes", "wgmma", "wgmma/epilogue/wgmma_quantise.cuh", "          transpose_words(word);\n",
      ""},
     "wgmma block_m=128 block_n=256 tma_x=yes" + kFp8Tail,
     {.activation = Activation::silu},
     false,
     Dtype::fp8},
    {{"quantised by half of the warps that have a row", "wgmma", "quantise.cuh", "room.most[w][r]",
      "room.most[w / 2][r]"},
     "wgmma block_m=32 block_n=256 block_k=128 stages=3 raster=m group=1 consumers=2 schedule=cooperative swap=yes "
     "cluster=none in_flight=0 tma_x=yes tma_w=yes tma_store=no tiles=static",
     {.activation = Activation::silu},
     false,
     Dtype::fp8},
    {{"quantised by half of the lanes that have a row", "mma", "mma/mma_quantise.cuh", "step < 4; step *= 2",
      "step < 2; step *= 2"},
     kMmaOfFp8,
     {.activation = Activation::silu},
     false,
     Dtype::fp8},
    {{"scales of a tile's first blocks for all of its columns", "mma", "mma/mma_scales.cuh",
      "column + number / 2 * (Operand::block / parts)", "column"},
     kMmaOfFp8,
     {.activation = Activation::silu, .interleaved = true},
     false,
     Dtype::fp8},
    {{"quantised by one of the two warps that have a row", "simt", "simt/simt.cuh",
      "most[warp % 2][first + i] = largest", "most[0][first + i] = most[1][first + i] = largest"},
     "simt block_m=16 block_n=256 block_k=32",
     {.activation = Activation::silu},
     false,
     Dtype::fp8},
};

/// Faults of W of 4 bits, in registers or in the pass that reorders it.
struct WidenedPlant {
  Plant plant;
  std::string format;
  Fusion fusion = {};
};
inline const std::string kWidened =
    "wgmma block_m=32 block_n=128 block_k=128 stages=3 raster=m group=1 consumers=2 schedule=cooperative swap=yes "
    "cluster=none in_flight=1 tma_x=yes tma_store=no tiles=static";
inline const WidenedPlant kWidenedPlants[] = {
    {{"elements of the columns before", "wgmma", "reordered.cuh", "take<Stage, 2>(word", "take<Stage, 0>(word"},
     "mxfp4-reordered"},
    {{"signs of every other column", "wgmma", "reordered.cuh", "(word) & 0x80008000u", "(word) & 0x80000000u"},
     "mxfp4-reordered"},
    {{"scales of the next row", "wgmma", "reordered.cuh", "scales_at + pair * scale_words",
      "scales_at + (pair ^ 1) * scale_words"},
     "int4-group64-reordered"},
    {{"scales of the next row in half of a tile", "wgmma", "reordered.cuh", "const int pair = reordered_pair(thread);",
      "const int pair = reordered_pair(thread) ^ thread / 64;"},
     "mxfp4-reordered"},
    {{"the zero point of another group", "wgmma", "reordered.cuh", "bytes_of_rows<groups>(packed.zeros, group)",
      "bytes_of_rows<groups>(packed.zeros, group ^ 1)"},
     "uint4-group32-reordered"},
    {{"the scale of another group", "wgmma", "reordered.cuh", "ScaleBits::template take<groups>(packed.scales, group)",
      "ScaleBits::template take<groups>(packed.scales, group ^ 1)"},
     "mxfp4-reordered"},
    {{"ups for gates", "wgmma", "service/reorder.cuh", "y + up * (n / 2)", "y + (1 - up) * (n / 2)"},
     "mxfp4-reordered",
     {.activation = Activation::silu}},
    {{"the nibbles of a byte swapped", "wgmma", "service/reorder.cuh", "elements[index / 2] >> index % 2 * 4",
      "elements[index / 2] >> (1 - index % 2) * 4"},
     "int4-group128-reordered"},
};

/// Faults of the gradients of gates, and of the H that they need. Those that the reference shares, whose pass is the
/// same code, must be found there.
struct GatePlant {
  Plant plant;
  Fusion fusion;
  bool of_reference = true;
};
inline const Fusion kSiluSteps = {
    .permute_y = true, .topk_weights = true, .weight_gradient = true, .activation = Activation::silu};
inline const GatePlant kGatePlants[] = {
    {{"gates for ups", "simt", "service/finish.cuh",
      "gate = to_float(pairs[at / count].of[at % count]),\n                    up = to_float(pairs[next / count]",
      "up = to_float(pairs[at / count].of[at % count]),\n                    gate = to_float(pairs[next / count]"},
     kSiluSteps},
    {{"a derivative without its second term", "simt", "activation.cuh", "of_gate = (s + slope * gs * (1 - s)) * u;",
      "of_gate = s * u;"},
     {.permute_y = true, .topk_weights = true, .activation = Activation::gpt_oss}},
    {{"the density left out", "simt", "activation.cuh", "(below + gate * expf(-gate * gate / 2) * density)", "below"},
     {.activation = Activation::gelu, .interleaved = true}},
    {{"gradients of weights from ups", "simt", "service/finish.cuh", "to_float(round_to<Element>(made.value));",
      "to_float(round_to<Element>(up));"},
     kSiluSteps},
    {{"neighbours of gates for their ups", "simt", "service/finish.cuh",
      "d[next / count].of[next % count] =", "d[1].of[i] ="},
     {.activation = Activation::gelu, .interleaved = true},
     false},
    {{"the first row's weight for all", "wgmma", "wgmma/epilogue/wgmma_gates.cuh",
      "targets.weight[min(row, tile.rows - 1)].value", "targets.weight[0].value"},
     kSiluSteps,
     false},
    {{"a row's product for its neighbour's", "wgmma", "wgmma/epilogue/wgmma_gates.cuh",
      "add_part(args, tile, row + 1, part, dots[i].y);", "add_part(args, tile, row + 1, part, dots[i].x);"},
     kSiluSteps,
     false},
    {{"gates of neighbouring columns", "wgmma", "wgmma/epilogue/wgmma_gates.cuh",
      "reinterpret_cast<uint4*>(place(args, args.y, row, column));",
      "reinterpret_cast<uint4*>(place(args, args.y, row, column ^ 8));"},
     {.activation = Activation::gpt_oss, .interleaved = true},
     false},
    {{"gates for ups in H", "simt", "simt/simt.cuh", "e.store(h[up_after_gate<Config>(args)], sum[i][j]);",
      "e.store(h[up_after_gate<Config>(args)], sum[i][j - 1]);"},
     {.activation = Activation::silu, .store_h = true},
     false},
    {{"one gate for its neighbours in H", "simt", "service/finish.cuh", "round_to<Out>(values[i]);",
      "round_to<Out>(values[0]);"},
     {.activation = Activation::silu, .store_h = true}},
};

inline const Plant& find_plant(const std::string& fault, const std::string& variant) {
  for (const Plant& plant : kPlants)
    if (plant.fault == fault && plant.variant == variant) return plant;
  throw std::runtime_error("there is no plant '" + fault + "' of " + variant);
}

/// `source` with the plant's sentence replaced. Throws where that isn't there once exactly.
inline std::string with_plant(std::string source, const Plant& plant) {
  const size_t at = source.find(plant.from);
  if (at == std::string::npos) throw std::runtime_error("the sentence to replace is gone from " + plant.file);
  if (source.find(plant.from, at + 1) != std::string::npos)
    throw std::runtime_error("the sentence to replace stands in " + plant.file + " more than once");
  return source.replace(at, plant.from.size(), plant.to);
}

/// Makes `folder` a copy of kernels/ with the plant in it.
inline void plant_kernels(const Plant& plant, const std::string& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::copy(MOETUNE_SOURCE_DIR "/kernels", folder, std::filesystem::copy_options::recursive);
  const std::string planted = with_plant(read_text(folder + "/" + plant.file), plant);
  std::ofstream(folder + "/" + plant.file) << planted;
}

/// The default but for knobs that lead through the place where the plant stands.
inline Candidate planted_candidate(const Plant& plant, const Problem& problem, const DeviceInfo& device) {
  const std::string path = plant.variant == "mma" ? " split=1"
                           : plant.of_copies      ? " tma_store=yes stages=2"
                                                  : " tma_store=no";
  return complete(parse_partial_candidate(plant.variant + path), problem, device);
}

/// What planted kernels are run on: rows of experts end in the middle of tiles.
inline Problem planted_problem() {
  Cell cell;
  cell.shape.layer = {.model = "custom", .experts = 16, .top_k = 4, .n = 256, .k = 256};
  cell.tokens = 200;
  cell.routing = parse_routing("zipf:1");
  cell.seed = 7;
  return make_problem(cell);
}

}  // namespace moetune
