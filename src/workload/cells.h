// What cells are asked for, and the cells that this makes: the product of lists.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "workload/problem.h"

namespace moetune {

/// Layers, ops, routings and token counts to multiply. An empty list, a size of 0 or nothing means: not given.
struct CellRequest {
  std::vector<std::string> models = {};  // as find_models takes them; without any, the sizes are of one layer
  int64_t experts = 0, top_k = 0, hidden = 0, intermediate = 0;  // of a layer, or in place of the models' own
  int64_t n = 0, k = 0;                                          // in place of hidden and intermediate, without models
  std::optional<int64_t> zero_experts = {};
  std::vector<Projection> projections = {};
  bool ffn = false;  // up, activation and down, tuned as one: in place of projections
  std::vector<Op> ops = {};
  std::vector<int64_t> tokens = {};
  std::vector<RoutingSpec> routings = {};
  std::vector<std::string> dtypes = {};  // of formats: "bf16", "fp8", "int4"
  std::vector<ScaleKind> scales = {};
  std::vector<Dtype> out_dtypes = {};
  bool fast_sums = false;
  std::vector<WeightOrder> weights = {};  // of 4 bits; others lie in rows
  std::vector<int64_t> tp = {}, ep = {};
  Fusion fusion = {};
  std::optional<uint64_t> seed = {};

  bool operator==(const CellRequest&) const = default;
};

/// A request that contradicts itself, or that no layer can have. `field` is the member of CellRequest at fault, or of
/// Fusion.
class CellRequestError : public Error {
 public:
  CellRequestError(std::string field, const std::string& what, const std::string& hint = {})
      : Error(Exit::request, what, hint), field_(std::move(field)) {}
  const std::string& field() const { return field_; }

 private:
  std::string field_;
};

/// The product, in the order model, tp, ep, projection, op, dtype, scales, dtype of Y, routing, tokens; duplicates
/// dropped. A trace that names no layer becomes one cell per recorded layer, and without token counts has its recorded
/// count. Without dtypes, cells have the format of the model's checkpoint, and bf16 for gradients. With both
/// projections, permute_x goes to up, permute_y, topk_weights and weight_gradient to down; with several ops, bias and
/// by_slot go to fwd, accumulate and fp32_dw to dw, weight_gradient to dx; sum_slots goes to cells that may_sum_slots;
/// gates go to fwd of up or, where dx is listed, to dx of down. An ffn is fwd of up with permute_x and an activation
/// (the model's if no gate is given), and of down with permute_y (with by_slot neither stores in expert order) and
/// topk_weights. Throws CellRequestError, or an Error of a model, a trace or a shape.
std::vector<Cell> make_cells(const CellRequest& request);

/// Sentences on what models' files leave open, and on checkpoints of another format than the dtypes that are given.
std::vector<std::string> model_notes(const CellRequest& request);

/// Realises every routing once, so that a cell that cannot be made ends the command before hours of work.
void require_problems(const std::vector<Cell>& cells);

}  // namespace moetune
