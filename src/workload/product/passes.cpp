// Takes from a product what another pass computes.
#include "workload/product/passes.h"

#include "workload/product/product_rows.h"

namespace moetune {

bool is_moved(const Product& product, const Operand& operand) {
  if (operand.order != RowOrder::in_place) return true;
  if (operand.matrix == product.a.matrix) return product.weighting == Weighting::a;
  return operand.matrix == product.d.matrix &&
         (weights_result(product) || is_finished(product) || product.gate_gradient.has_value());
}

Product in_expert_order(const Product& product) {
  Product plain = without_finish(product);
  const auto put_in_order = [&](const Operand& operand, Operand& ordered) {
    if (is_moved(product, operand)) ordered.order = RowOrder::in_place, ordered.rows = owned_rows(product, operand);
  };
  put_in_order(product.a, plain.a);
  put_in_order(product.b, plain.b);
  put_in_order(product.d, plain.d);
  if (product.weighting == Weighting::result || product.gate_gradient) plain.d.type = plain_type(Dtype::fp32);
  plain.weighting = Weighting::none;
  plain.weight_gradient.reset();
  return plain;
}

Product without_finish(const Product& product) {
  Product plain = product;
  plain.d.columns = product.n;
  if (quantises(product)) plain.d.type = plain_type(Dtype::bf16);
  plain.activation = Activation::none, plain.interleaved = false;
  plain.bias.reset(), plain.h.reset();
  plain.gate_gradient.reset();
  return plain;
}

bool takes_another_pass(const Product& product) {
  return sums_slots(product) || product.weight_gradient || product.gate_gradient;
}

Product before_last_pass(const Product& product, bool makes_gates) {
  if (!takes_another_pass(product) || (makes_gates && product.gate_gradient)) return product;
  Product first = without_finish(product);
  first.d.order = RowOrder::in_place;
  first.d.rows = routed_rows(product);
  if (sums_slots(product)) return first;
  first.d.type = plain_type(Dtype::fp32);
  first.weighting = Weighting::none;
  first.weight_gradient.reset();
  return first;
}

}  // namespace moetune
