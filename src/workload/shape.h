// What is computed, except the rows: layer, op and fusions.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "kernels/formulas.h"
#include "workload/format.h"

namespace moetune {

/// up: n = 2 * intermediate where gated (else intermediate), k = hidden. down: n = hidden, k = intermediate.
enum class Projection { up, down };
/// fwd: Y_e = X_e W_e^T. dx: dX_e = dY_e W_e. dw: dW_e = dY_e^T X_e.
enum class Op { fwd, dx, dw };

std::string_view name(Projection projection);
std::string_view name(Op op);
Projection parse_projection(std::string_view text);
Op parse_op(std::string_view text);

/// Activations as models and --gated name them, in the order of the enum, after none.
inline constexpr std::string_view kActivationWords[] = {"silu", "gelu", "gpt-oss"};
std::string_view name(Activation activation);                               // one of these; empty for none
Activation parse_activation(std::string_view what, std::string_view text);  // Exit::request with the nearest

/// Whether up has gate and up fused, where that is known. It only names files: cells with and without it are equal.
struct Gate {
  std::optional<bool> gated;
  bool operator==(const Gate&) const { return true; }
};

/// One projection of an MoE layer, as one rank has it.
struct Layer {
  std::string model;  // "qwen3-30b-a3b", or "custom"
  Projection projection = Projection::up;
  int64_t experts = 0;  // of the whole model; a rank has experts / ep
  int64_t top_k = 0;
  int64_t n = 0;  // after tensor parallelism
  int64_t k = 0;
  Format format = formats().front();  // bf16
  int64_t tp = 1;
  int64_t ep = 1;            // rank 0 is the one measured: experts [0, experts / ep)
  int64_t zero_experts = 0;  // numbered after `experts`: a router picks among both, no rank has rows of these
  Gate gate = {};

  int64_t local_experts() const { return experts / ep; }
  bool operator==(const Layer&) const = default;
};

/// Row permutations and scaling inside the kernel, after Unsloth's grouped GEMM. gather[i] is the flat slot
/// (token * top_k + slot) of row i in expert order, w[i] its top-k weight, read by that slot.
///
///               fwd                              dx                             dw
/// permute_x     load X[gather[i] / top_k]        store dX[gather[i]]            load X[gather[i] / top_k]
/// permute_y     store Y[gather[i]]               load dY[gather[i]]             load dY[gather[i]]
/// topk_weights  y = round(round(sum) * round(w)) dx = round(sum * w), one       dY rows: round(dy * w) to the
///                                                rounding, w in fp32            dtype, then multiplied
/// accumulate    -                                -                              dW = round(dW before + sum)
/// fp32_dw       -                                -                              dW in fp32
/// sum_slots     Y[token] = round(sum of its      permute_x: dX[token] =         permute_y: load
///               slots as they are without), in   round(sum of its slots as      dY[gather[i] / top_k]
///               slot order, fp32                 they are without); permute_y:
///                                                load dY[gather[i] / top_k]
/// weight_       -                                dweights[gather[i]] = sum of   -
/// gradient                                       the row dY W times row X, fp32
///
/// by_slot       load X[gather[i]], or            -                              -
///               X[gather[i] / top_k] with
///               permute_x; store Y[gather[i]]
///
/// silu, gelu, Y = act(gate) * up of   dH = the gradients of gate     -
/// gpt_oss      both sums, in fp32     and up, of H and dX, in fp32;
///              before one rounding    X = act(gate) * up of H again
/// interleaved  rows of W: gate and    -                              -
///              up alternate, not all
///              gates first
/// store_h      H too: both sums,      -                              -
///              each rounded
/// bias         sum + bias[expert, n]  -                              -
///
/// kernels/formulas.h has the formulas of activations. Y then has n / 2 columns. A bias is of the dtype of Y, in the
/// order of W's rows, and added before all else. Of dx, which is down's, H [rows, 2 k] is the product of up that became
/// X [rows, k]; dH lies as H does, and dX is not stored.
///
/// X that is gathered is [tokens, k]; what is in slot order has tokens * top_k rows. Nothing is summed over top_k,
/// except with sum_slots, which belongs to a layer that sums its slots: its Y and dY are [tokens, n], its dX [tokens,
/// k]. Rows of slots are rounded before they are added, as by programs that add them apart, and rows of tokens without
/// a local expert are zeros. dweights is [tokens * top_k] in fp32, of sums that are neither weighted nor rounded; slots
/// without a local expert are zeros. The first three combine for every op in the same way; the others belong to the op
/// of their column.
struct Fusion {
  bool permute_x = false;
  bool permute_y = false;                    // excludes permute_x and by_slot
  bool topk_weights = false;                 // only with permute_y or by_slot
  bool accumulate = false;                   // only of dw: experts without rows are left alone
  bool fp32_dw = false;                      // only of dw in bf16 and fp16
  bool sum_slots = false;                    // only with permute_y, or of dx with permute_x; not with a bias
  bool weight_gradient = false;              // only of dx with topk_weights
  bool by_slot = false;                      // only of fwd: as servers' Triton kernels read and store
  Activation activation = Activation::none;  // of fwd of up, without topk_weights, or dx of down
  bool interleaved = false;                  // only with an activation
  bool store_h = false;                      // only of fwd with an activation, not by_slot
  bool bias = false;                         // only of fwd

  bool operator==(const Fusion&) const = default;
};

/// The members of Fusion by their names in text, JSON and columns: a flag, or one of the activations.
struct FusionPart {
  const char* name;
  bool Fusion::*flag = nullptr;
  std::optional<Op> only = {};  // the op that it belongs to
  bool seldom = false;          // written only where it is on, as in files from before
  Activation activation = Activation::none;

  bool is_on(const Fusion& fusion) const { return flag ? fusion.*flag : fusion.activation == activation; }
  void turn_on(Fusion& fusion) const { flag ? void(fusion.*flag = true) : void(fusion.activation = activation); }
  void turn_off(Fusion& fusion) const {
    if (flag)
      fusion.*flag = false;
    else if (is_on(fusion))
      fusion.activation = Activation::none;
  }
};
inline constexpr FusionPart kFusionParts[] = {
    {"permute_x", &Fusion::permute_x},
    {"permute_y", &Fusion::permute_y},
    {"by_slot", &Fusion::by_slot, Op::fwd, true},
    {"topk_weights", &Fusion::topk_weights},
    {"accumulate", &Fusion::accumulate, Op::dw},
    {"fp32_dw", &Fusion::fp32_dw, Op::dw},
    {"sum_slots", &Fusion::sum_slots, {}, true},
    {"weight_gradient", &Fusion::weight_gradient, Op::dx},
    {.name = "silu", .seldom = true, .activation = Activation::silu},
    {.name = "gelu", .seldom = true, .activation = Activation::gelu},
    {.name = "gpt_oss", .seldom = true, .activation = Activation::gpt_oss},
    {"interleaved", &Fusion::interleaved, {}, true},
    {"store_h", &Fusion::store_h, Op::fwd, true},
    {"bias", &Fusion::bias, Op::fwd, true},
};
/// Whether gate and up become one column of Y.
inline bool is_gated(const Fusion& fusion) { return fusion.activation != Activation::none; }

/// Everything that a kernel is compiled for, beside its knobs.
struct Shape {
  Layer layer;
  Op op = Op::fwd;
  Fusion fusion;
  bool operator==(const Shape&) const = default;
};

/// Whether its kernel combines columns of gates and ups.
inline bool combines_gates(const Shape& shape) { return is_gated(shape.fusion) && shape.op == Op::fwd; }

/// The most experts that a layer or a recording may have.
inline constexpr int64_t kMaxExperts = int64_t{1} << 16;

/// The largest n, k, tp, and hidden or intermediate width of a model.
inline constexpr int64_t kMaxSide = int64_t{1} << 24;

/// Whether a matrix of the shape lies by token where its layer sums slots: Y, dY or dX.
bool may_sum_slots(const Shape& shape);

/// Throws Exit::request with a sentence for sizes that contradict each other or overflow: top_k > experts, sizes < 1,
/// experts not divisible by ep, permute_y with permute_x or by_slot, topk_weights without either (for every op),
/// by_slot without fwd, accumulate without dw, fp32_dw without dw in bf16 or fp16, sum_slots without permute_y, dx and
/// permute_x apart, or with a bias or gates of fwd, weight_gradient without dx and topk_weights, an activation of other
/// than fwd of up and dx of down, of a model that isn't gated, with another or with topk_weights, interleaved without
/// one, store_h without one of fwd, by_slot or of quantised formats, bias without fwd, quantised formats with another
/// op than fwd, Y in fp8 without an activation or with a bias, groups that don't divide k, zero points with an odd n,
/// experts over kMaxExperts, n or k over kMaxSide, E*n*k over 2^46, a model name that is empty, contains '/' or is not
/// printable.
void require_valid(const Shape& shape);

/// "permute_x", "permute_y+topk_weights", or "plain".
std::string text(const Fusion& fusion);

/// For people: "qwen3-30b-a3b up, fwd bf16: 128 experts, top 8, n 1536, k 2048", then sharding and fusions where there
/// are any.
std::string title(const Shape& shape);

Json to_json(const Shape& shape);
Shape shape_from_json(const JsonAt& json);

}  // namespace moetune
