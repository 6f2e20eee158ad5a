// What a problem multiplies: three operands, how they lie in memory, and where the fusions act. Whatever fills,
// multiplies, compares or counts reads this value; the headers beside it say what follows from it.
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

inline int64_t ceil_divide(int64_t value, int64_t by) { return (value + by - 1) / by; }

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
/// N counts columns of the product; D has N / columns_per_output.
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
  bool interleaved = false;                  // gate and up alternate, in place of all gates first
  std::optional<Operand> bias = {};          // [experts, N], added to sums
  std::optional<Operand> h = {};             // [rows, N], a second result where gates are combined: the sums, rounded
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
inline bool combines_gates(const Product& product) {
  return product.activation != Activation::none && !product.gate_gradient;
}
/// The result beside D that a launch stores in rows as D's: H, or X with the gradient of gates. Null if there is none.
inline const Operand* second_result(const Product& product) {
  return product.gate_gradient ? &product.gate_gradient->x : product.h ? &*product.h : nullptr;
}
/// Columns of the product that make one of D: more than one where the result's function combines them.
int64_t columns_per_output(const Product& product);
/// The column of N of the gate of D's column, and of its up; both are `column` unless gates are combined.
struct GatePair {
  int64_t gate, up;
};
GatePair gate_pair(const Product& product, int64_t column);
/// Columns of H, or of N, of `columns` pairs.
inline GatePair pair_at(bool interleaved, int64_t columns, int64_t column) {
  return interleaved ? GatePair{2 * column, 2 * column + 1} : GatePair{column, column + columns};
}
/// Whether sums get a bias or an activation before they are weighted.
inline bool is_finished(const Product& product) { return product.bias || combines_gates(product); }
/// Whether rows of D are quantised: a scale is the largest magnitude of its elements (kMinLargest at least) / kMaxFp8,
/// and these are act(gate) * up in fp32 divided by it, rounded once.
inline bool quantises(const Product& product) { return has_scales(product.d.type); }
/// The scales of such a D, as an operand: [rows of D in memory, ceil(columns / 128)] in fp32.
Operand scales_of_result(const Product& product);
/// Whether results depend on an exponential, which isn't exact.
inline bool has_activation(const Product& product) { return product.activation != Activation::none; }

/// Bytes of one row in memory, without scales.
inline int64_t row_bytes(const Operand& operand) { return operand.columns * bits(operand.type.dtype) / 8; }

/// Whether scales make elements of the stage.
inline bool scales_stage(const OperandType& type) {
  return type.stage != type.dtype && type.scales.kind == ScaleKind::block;
}

}  // namespace moetune
