// What a problem multiplies: three operands, how they lie in memory, which rows belong to which expert, and where the
// fusions act. Whatever fills, multiplies, compares or counts reads this value.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/rows.h"
#include "workload/problem.h"

namespace moetune {

/// The matrices of a layer.
enum class LayerMatrix { x, w, y, dx, dw, dy, dweights, bias, h, dh, y_scales };
std::string_view name(LayerMatrix matrix);  // "X", "W", "Y", "dX", ..., "dweights", "bias", "H", "dH", "y_scales"

/// Axes of the product D_e[M, N] = sum over K of A_e[M, K] * B_e[N, K].
enum class Axis { m, n, k };

std::string_view name(RowOrder order);  // as the enumerator

/// A row-major matrix in memory; its columns are contiguous. It is either one matrix an expert, one after another, or
/// ragged: one matrix whose rows are divided among the experts.
struct Operand {
  LayerMatrix matrix = LayerMatrix::x;
  OperandType type = {};
  int64_t rows = 0;  // in memory, of all experts; may be more than experts own
  int64_t columns = 0;
  Axis row_axis = Axis::m;
  Axis column_axis = Axis::k;
  RowOrder order = RowOrder::in_place;
  bool operator==(const Operand&) const = default;
};

std::string_view name(Weighting weighting);  // as the enumerator

/// What makes a column of D of a gate and an up; the formulas stand at Fusion.
enum class Activation { none, silu, gelu, gpt_oss };
double activate(Activation activation, double gate, double up);
/// Its derivatives.
struct Slopes {
  double gate, up;
};
Slopes slopes(Activation activation, double gate, double up);

/// The gradients of gate and up, where D is dH [rows, 2 N]: of its sums, weighted, and H. X is a second result.
struct GateGradient {
  Operand h;  // [rows, 2 N]
  Operand x;  // [rows, N]: act(gate) * up of H
  bool operator==(const GateGradient&) const = default;
};

/// The gradient of the top-k weights, a second result of the sums that make D: row i of expert order gives
/// dweights[gather_indices[i]] = sum over N of its sums, before they are weighted or rounded, times its row of X.
/// With integer inputs these are whole numbers of about sqrt(N * K), exact in fp32 for the sides of any model.
struct WeightGradient {
  Operand x;         // [rows, N], as D lies; the gate gradient's, rounded, where there is one
  Operand dweights;  // [slots, 1] in fp32, by slot
  bool operator==(const WeightGradient&) const = default;
};

/// fwd  Y_e = X_e W_e^T     A = X, B = W, D = Y
/// dx   dX_e = dY_e W_e     A = dY, B = W, whose rows are steps along K, D = dX
/// dw   dW_e = dY_e^T X_e   A = dY, B = X, rows of both are steps along K, D = dW; zeros for experts without rows
///
/// N counts columns of the product; D has N / joined_columns.
struct Product {
  Operand a, b, d;
  int64_t m = 0, n = 0, k = 0;  // extents, the same for every expert; 0 for the ragged axis
  Axis ragged = Axis::m;        // its extent is an expert's number of rows
  Weighting weighting = Weighting::none;
  Sums sums = Sums::fp32;
  bool accumulates = false;  // d = round(d before + sum), in fp32; d of experts without rows stays
  std::optional<WeightGradient> weight_gradient = {};
  std::optional<GateGradient> gate_gradient = {};
  Activation activation = Activation::none;  // of columns of N, or of H's, by a gate gradient
  bool interleaved = false;                  // of these: gate and up by turns, not all gates first
  std::optional<Operand> bias = {};          // [experts, N], added to sums
  std::optional<Operand> h = {};             // [rows, N], a second result where gates are joined: the sums, rounded
  std::vector<int32_t> m_sizes = {};         // [experts] rows per expert
  std::vector<int64_t> first_rows = {};      // [experts + 1] prefix sums of m_sizes
  std::vector<int32_t> gather_indices = {};  // [rows] flat slot of each row in expert order
  int64_t top_k = 1;
  int64_t slots = 0;  // tokens * top_k: as many as there are top-k weights
  uint64_t seed = 0;  // of the operands' values
  bool operator==(const Product&) const = default;
};

Product product_of(const Problem& problem);
/// The product of a shape, without experts and rows: what a kernel is compiled for.
Product product_of(const Shape& shape);

/// Whether fwd of `down` reads as X what fwd of `up` writes as Y, of the same experts: one after the other they are a
/// layer. Of fp8 they are one if Y is fp8 too.
bool feeds(const Shape& up, const Shape& down);

/// Whether weights multiply rows of the result, rather than of an operand or none.
bool weights_result(const Product& product);
/// Whether rows of D are sums over the slots of a token: of the rows of slots, rounded as D without sums would be,
/// which are added in fp32, in slot order, and rounded again.
bool sums_slots(const Product& product);

/// Whether a gate and an up of the product make one column of D.
inline bool joins_gates(const Product& product) {
  return product.activation != Activation::none && !product.gate_gradient;
}
/// The result beside D that a launch stores in rows as D's: H, or X with the gradient of gates. Null if there is none.
inline const Operand* second_result(const Product& product) {
  return product.gate_gradient ? &product.gate_gradient->x : product.h ? &*product.h : nullptr;
}
/// Columns of the product that make one of D: more than one where the result's function joins them.
int64_t joined_columns(const Product& product);
/// The column of N of the gate of D's column, and of its up; both are `column` unless gates are joined.
struct JoinedColumns {
  int64_t gate, up;
};
JoinedColumns joined(const Product& product, int64_t column);
/// Columns of H, or of N, of `columns` pairs.
inline JoinedColumns pair_at(bool interleaved, int64_t columns, int64_t column) {
  return interleaved ? JoinedColumns{2 * column, 2 * column + 1} : JoinedColumns{column, column + columns};
}
/// Whether sums get a bias or an activation before they are weighted.
inline bool is_finished(const Product& product) { return product.bias || joins_gates(product); }
/// Whether rows of D are quantised: a scale is the largest magnitude of its elements (kLeastMost at least) / kMostFp8,
/// and these are act(gate) * up in fp32 divided by it, rounded once.
inline bool quantises(const Product& product) { return has_scales(product.d.type); }
constexpr float kMostFp8 = 448, kLeastMost = 1e-10F;
/// The scales of such a D, as an operand: [rows of D in memory, ceil(columns / 128)] in fp32.
Operand scales_of_result(const Product& product);
/// Whether results depend on an exponential, which isn't exact.
inline bool has_activation(const Product& product) { return product.activation != Activation::none; }
/// The same product without them: D has N columns, in bf16 if it was quantised.
Product without_finish(const Product& product);

/// Whether it is gathered, scattered or weighted by row: a plain GEMM needs its rows moved before or after.
bool is_moved(const Product& product, const Operand& operand);
/// The product of that plain GEMM: moved operands lie in expert order without padding, nothing is weighted, and D is
/// the only result. D is fp32 where sums are weighted before they are rounded, or become gradients of gates.
Product in_expert_order(const Product& product);

/// Whether a last pass makes the results: where it adds the rows of slots, or makes the weights' gradient and D of the
/// fp32 sums of all rows.
bool takes_another_pass(const Product& product);
/// The product before that pass: D lies in expert order and is the only result, with the rows of slots as they are
/// added, or in fp32 and unweighted. Any other product is returned as it is, and so are gradients of gates where the
/// kernel makes them.
Product before_last_pass(const Product& product, bool makes_gates = false);

int64_t experts(const Product& product);
/// Rows that the router gave to these experts.
int64_t routed_rows(const Product& product);
int64_t extent(const Product& product, int64_t expert, Axis axis);

/// Whether it is one matrix whose rows are divided among experts; else it is one matrix an expert.
bool is_ragged(const Product& product, const Operand& operand);
/// Whether K is contiguous in A or B; else M (of A) or N (of B) is.
bool is_k_major(const Operand& operand);

/// The first row of `expert` in expert order: rows that experts own, one expert after another. 0 <= expert <= experts.
int64_t first_row(const Product& product, const Operand& operand, int64_t expert);
/// How many they own in all: rows in memory less padding, rows of other ranks and the like.
int64_t owned_rows(const Product& product, const Operand& operand);
/// Where in memory row `row` of an expert lies, by the operand's own row axis.
int64_t memory_row(const Product& product, const Operand& operand, int64_t expert, int64_t row);
/// [owned_rows] memory_row of every row in expert order.
std::vector<int64_t> row_map(const Product& product, const Operand& operand);

struct Place {
  int64_t expert = 0;
  int64_t row = 0;  // in that expert
};
/// The expert that owns row `row` of expert order; 0 <= row < owned_rows.
Place place_of(const Product& product, const Operand& operand, int64_t row);

/// The values that fill an input: X, W or dY; or dW before a launch that accumulates, where no W is read.
ValueStream stream_of(LayerMatrix matrix);
/// The largest integer of an operand's integer values: 4, or 16 in fp8 whose sums are promoted. Tensor cores sum fp8
/// with 14 bits: products of such integers fit these over 128 of k, where their sums are about 1,000 (standard
/// deviation), but not over thousands, so that missing promotions show. Results in fp16 have no room for such sums.
int most_integer(const Product& product, const Operand& operand);
/// Element `index` of an input in memory, by itself. Random values of integers are spread over their range: times 32 in
/// int8, whose scales are 1/32 of others, and times 3 in 4 bits.
float stored_value(const Product& product, const Operand& operand, Values values, int64_t index);
/// Top-k weight of a flat slot: operand_value's, rounded up to quarters where has_exact_weights.
float topk_weight(const Product& product, Values values, int64_t slot);
/// True for integer inputs that are weighted before they are added: weights of few bits let sums stay exact in fp32.
bool has_exact_weights(const Product& product, Values values);

/// Whether every row in memory is written, with zeros where no expert has a row of it: D that sums slots, and dweights.
/// Of other results the rows that experts own are written.
bool is_filled(const Product& product, const Operand& result);

/// Rows that are written, in the order of references: those of filled results as they lie in memory, those of others in
/// expert order.
int64_t result_rows(const Product& product, const Operand& result);
/// [result_rows] where each lies in memory.
std::vector<int64_t> result_map(const Product& product, const Operand& result);
/// [result_rows] how many products add rounding errors to an element: K for every slot that is summed; K + N for
/// dweights, as each of its N terms has the error of a sum over K. 0 where there is nothing to sum.
std::vector<int64_t> result_terms(const Product& product, const Operand& result);

/// [slots] the row of expert order that has each slot, -1 where none has.
std::vector<int32_t> rows_of_slots(const Product& product);

/// Bytes of one row in memory, without scales.
int64_t row_bytes(const Operand& operand);

/// Scales beside an operand: [blocks of rows, blocks of columns], row-major. A channel is a block of one row, a tensor
/// of all.
int64_t scale_count(const Product& product, const Operand& operand);
int64_t scale_index(const Product& product, const Operand& operand, int64_t expert, int64_t row, int64_t column);
/// Scales from an expert to the next, from a row of blocks to the next and from a column of blocks to the next; 0 where
/// there is one.
struct ScaleStrides {
  int64_t expert = 0, row = 0, column = 0;
};
ScaleStrides scale_strides(const Product& product, const Operand& operand);
/// Zero points of uint4 lie as scales do, but those of two rows share a byte, that of the even row in its low bits:
/// [experts, rows / 2, blocks of columns]. Their values, less 8, are of the same stream as W's.
int64_t zero_index(const Product& product, const Operand& operand, int64_t expert, int64_t row, int64_t column);
/// Whether scales make elements of the stage.
inline bool scales_stage(const OperandType& type) {
  return type.stage != type.dtype && type.scales.kind == ScaleKind::block;
}
/// Zero point `index` of W, in nibbles as they lie in memory; see zero_index.
float zero_value(const Product& product, const Operand& operand, Values values, int64_t index);
/// An element of an input as it enters the product, but for top-k weights.
double entering_value(const Product& product, const Operand& operand, Values values, int64_t expert, int64_t row,
                      int64_t column);
/// The seed of an operand's scales.
uint64_t scale_seed(uint64_t seed, const Operand& operand);
/// Scale `index` of an input: 1/2, 1 or 2 for integer inputs, else in (0.5, 1.5).
float scale_value(const Product& product, const Operand& operand, Values values, int64_t index);

/// Rows of the result over computed rows: sum m / (sum ceil(m / block_m) * block_m), m an expert's; 1 for no rows.
double tile_occupancy(const Product& product, int64_t block_m);
/// 2 * M * N * K of each expert, real rows only; with the weights' gradient 2 * N a row more.
double flops(const Product& product);
/// Fewest bytes through memory: matrices of experts with rows (all of them where they are written; written and
/// read where they accumulate), rows used once each, results that are filled, scales, row counts, and an index or a
/// weight a row where the fusions read one. What a kernel writes and reads only itself does not count.
double bytes(const Product& product);

}  // namespace moetune
