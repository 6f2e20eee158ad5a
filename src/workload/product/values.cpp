// Hashes of indices become values that operands can hold.
#include "workload/product/values.h"

#include "base/random.h"
#include "workload/product/product_rows.h"
#include "workload/product/scale_places.h"

namespace moetune {
namespace {

float stored_with(uint64_t seed, const Operand& operand, Values values, int64_t index, int most = 4) {
  const Dtype dtype = operand.type.dtype;
  const float spread = values == Values::integer                  ? 1
                       : dtype == Dtype::int8                     ? kSpreadOfInt8
                       : bits(dtype) == 4 && dtype != Dtype::e2m1 ? kSpreadOfNibbles
                                                                  : 1;
  return round_to(dtype,
                  spread * operand_value(values, seed, stream_of(operand.matrix), static_cast<uint64_t>(index), most));
}

}  // namespace

ValueStream stream_of(LayerMatrix matrix) {
  if (matrix == LayerMatrix::w || matrix == LayerMatrix::dw) return kStreamW;
  return matrix == LayerMatrix::x || matrix == LayerMatrix::h ? kStreamX : kStreamDy;
}

float topk_weight(const Product& product, Values values, int64_t slot) {
  return value_of(weight_filling(product, values), product.seed, kStreamWeights, static_cast<uint64_t>(slot));
}

Filling weight_filling(const Product& product, Values values) {
  const bool adds_weighted = product.weighting == Weighting::a || sums_slots(product);
  return adds_weighted && values == Values::integer ? Filling::quarters : Filling::weights;
}

int max_integer(const Product& product, const Operand& operand) {
  const bool wide =
      operand.type.dtype == Dtype::fp8 && product.sums != Sums::fast && product.d.type.dtype != Dtype::fp16;
  return wide ? 16 : 4;
}

float stored_value(const Product& product, const Operand& operand, Values values, int64_t index) {
  return stored_with(product.seed, operand, values, index, max_integer(product, operand));
}

float zero_value(const Product& product, const Operand& operand, Values values, int64_t index) {
  return stored_with(scale_seed(product.seed, operand), operand, values, index);
}

double entering_value(const Product& product, const Operand& operand, Values values, int64_t expert, int64_t row,
                      int64_t column) {
  const int64_t at = memory_row(product, operand, expert, row) * operand.columns + column;
  double value = static_cast<double>(stored_value(product, operand, values, at));
  if (operand.type.zero_points)
    value -=
        static_cast<double>(zero_value(product, operand, values, zero_index(product, operand, expert, row, column)));
  if (!has_scales(operand.type)) return value;
  value *=
      static_cast<double>(scale_value(product, operand, values, scale_index(product, operand, expert, row, column)));
  return scales_stage(operand.type) ? static_cast<double>(round_to(operand.type.stage, static_cast<float>(value)))
                                    : value;
}

uint64_t scale_seed(uint64_t seed, const Operand& operand) {
  return splitmix64(seed) + static_cast<uint64_t>(operand.matrix);
}

float scale_value(const Product& product, const Operand& operand, Values values, int64_t index) {
  return round_to(operand.type.scales.dtype, value_of(scale_filling(operand, values), scale_seed(product.seed, operand),
                                                      kStreamWeights, static_cast<uint64_t>(index)));
}

Filling scale_filling(const Operand& operand, Values values) {
  if (values == Values::integer) return Filling::integer_scales;
  return operand.type.dtype == Dtype::int8 ? Filling::int8_scales : Filling::scales;
}

}  // namespace moetune
