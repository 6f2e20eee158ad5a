// Where the rows of operands lie, and how top-k weights are applied: words of the host and of kernels.
#pragma once

namespace moetune {

/// Where in memory row i of expert order lies.
enum class RowOrder {
  in_place,  // row i
  by_token,  // row gather_indices[i] / top_k; of D: rows of a token are added there, in slot order
  by_slot,   // row gather_indices[i]
};

/// How the top-k weight of a row is applied, w = weights[gather_indices[row of expert order]].
enum class Weighting {
  none,
  rounded_result,  // d = round(round(sum) * round(w)), all three to D's dtype
  result,          // d = round(sum * w): in fp32, one rounding to D's dtype
  a,               // a = round(a * w) before the product: in fp32, one rounding to A's dtype
};
/// Whether rows that are read along k, of X or of W where an expert's rows are summed, aren't in expert order.
constexpr bool gathers_rows(RowOrder x, RowOrder w, bool sums_rows) {
  return x != RowOrder::in_place || (sums_rows && w != RowOrder::in_place);
}
constexpr bool weighs_result(Weighting weighting) {
  return weighting == Weighting::rounded_result || weighting == Weighting::result;
}

}  // namespace moetune
