// The cases that Unsloth tests its grouped GEMM with, for the tests on a cpu and on a GPU: models, sequences, and what
// is legal of projection, permutations and TMA. And what its tests leave out: weights in the backward, empty experts.
#pragma once
#include <algorithm>
#include <cstdint>
#include <ostream>
#include <vector>

#include "find_model.h"
#include "workload/problem.h"

namespace moetune {
inline void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }
}  // namespace moetune

namespace moetune::unsloth {

constexpr Op kOps[] = {Op::fwd, Op::dx, Op::dw};
constexpr int64_t kSequences[] = {128, 1024};

/// A projection and its fusions: permute_x belongs to the first GEMM, permute_y and the weights to the second.
struct FusedProjection {
  Projection projection;
  Fusion fusion;
  bool tested_there = true;  // weights are for forward alone there, and no test has them
};
constexpr FusedProjection kFused[] = {
    {Projection::up, {}},
    {Projection::up, {.permute_x = true}},
    {Projection::down, {}},
    {Projection::down, {.permute_y = true}},
    {Projection::down, {.permute_y = true, .topk_weights = true}, false},
};

/// Whether TMA loads the two operands: X and W of fwd, dY and W of dx, dY and X of dw.
struct Tma {
  bool first = false, second = false;
};

/// The settings of TMA that are legal there: it gathers no rows. (It stores too, but no test there lets it.)
inline std::vector<Tma> tma_settings(Op op, const Fusion& fusion) {
  const bool first_gathered = op == Op::fwd ? fusion.permute_x : fusion.permute_y;
  const bool second_gathered = op == Op::dw && fusion.permute_x;
  std::vector<Tma> settings;
  for (const bool first : {false, true})
    for (const bool second : {false, true})
      if (!(first && first_gathered) && !(second && second_gathered)) settings.push_back({first, second});
  return settings;
}

/// top_k, experts and both widths.
inline Model small_model(int64_t top_k, int64_t experts, int64_t width) {
  Model model;
  model.name = "small";
  model.top_k = top_k;
  model.experts = experts;
  model.hidden = model.intermediate = width;
  return model;
}
inline std::vector<Model> small_models() {
  std::vector<Model> models;
  for (const int64_t top_k : {1, 4})
    for (const int64_t experts : {4, 16})
      for (const int64_t width : {32, 128, 512}) models.push_back(small_model(top_k, experts, width));
  return models;
}
/// Of whole size. Their dX is cut down to widths of 1024 there, and isn't here.
inline std::vector<Model> whole_models() { return {find_model("llama4-scout"), find_model("qwen3-30b-a3b")}; }
inline std::vector<Model> all_models() {
  std::vector<Model> models = small_models();
  for (const Model& model : whole_models()) models.push_back(model);
  return models;
}

/// dX is tested there with the first of the small models alone, and the whole ones.
inline bool is_tested_there(Op op, const Model& model) {
  return op != Op::dx || model == small_models()[0] || model.name != "small";
}

/// How many cases a model has there with an op: sequences by fused projections by settings of TMA.
inline int64_t cases_of(Op op, const Model& model) {
  int64_t count = 0;
  for (const FusedProjection& fused : kFused)
    if (fused.tested_there && is_tested_there(op, model))
      count += static_cast<int64_t>(std::size(kSequences) * tma_settings(op, fused.fusion).size());
  return count;
}

inline Shape shape_of(const Model& model, const FusedProjection& fused, Op op) {
  Shape shape;
  shape.layer = make_layer(model, fused.projection, find_format("bf16"), 1, 1);
  shape.op = op;
  shape.fusion = fused.fusion;
  return shape;
}

/// Every second expert has no rows, as far as top_k lets it.
inline Routing with_empty_experts(const Model& model, int64_t tokens) {
  std::vector<int32_t> rows(static_cast<size_t>(model.experts));
  const int64_t active = std::max(model.experts / 2, model.top_k);
  for (int64_t i = 0; i < active; ++i)
    rows[static_cast<size_t>(i * model.experts / active)] = static_cast<int32_t>(tokens * model.top_k / active);
  return routing_from_rows(rows, tokens, model.top_k);
}

/// `routing` is that of a cell, or "empty" for experts without rows.
inline Problem problem_of(const Shape& shape, const Model& model, const std::string& routing, int64_t tokens) {
  if (routing == "empty") return {.shape = shape, .routing = with_empty_experts(model, tokens)};
  Cell cell;
  cell.shape = shape;
  cell.tokens = tokens;
  cell.routing = parse_routing(routing);
  return make_problem(cell);
}

}  // namespace moetune::unsloth
