// Three loops that know the ops and fusions but nothing of how a product is described, and what they are compared with.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "backend/cpu/baseline.h"
#include "backend/cpu/compare.h"
#include "backend/cpu/operands.h"
#include "backend/cpu/reference.h"
#include "naive.h"
#include "workload/result.h"

namespace moetune::three_loops {

using naive::Setting;

constexpr Dtype kDtypes[] = {Dtype::bf16, Dtype::fp16, Dtype::fp32};
constexpr Fusion kSummed = {.permute_x = true, .sum_slots = true};
constexpr Fusion kWithGradient = {.permute_y = true, .topk_weights = true, .weight_gradient = true};
constexpr Fusion kFusions[] = {{}, {.permute_x = true}, {.permute_y = true}, {.permute_y = true, .topk_weights = true}};

/// What a test changes of a product, told again for the loops below.
struct Extras {
  int64_t capacity = 0;  // rows an expert of every ragged matrix; 0 = none
  int64_t more_rows = 0;
  std::optional<Dtype> result_dtype = {};
  Scales a_scale = {}, b_scale = {};
};

/// One element of a result: unrounded, and with all roundings.
struct Element {
  double exact = 0;
  float rounded = 0;
};

/// A result of the three loops, by row of memory.
struct Wanted {
  int64_t columns = 0;
  Dtype dtype = Dtype::fp32;
  std::vector<std::optional<Element>> elements;  // [rows in memory, columns]; nothing where nobody writes
  std::vector<double> dweights = {};             // [slots], with the weights' gradient

  Element& at(int64_t row, int64_t column) {
    auto& element = elements[static_cast<size_t>(row * columns + column)];
    if (!element) element.emplace();
    return *element;
  }
};

class Loops {
 public:
  Loops(const Problem& problem, Values values, const Extras& extras)
      : p_(problem), values_(values), extras_(extras), described_(product_of(problem)) {
    described_.a.type.scales = extras.a_scale, described_.b.type.scales = extras.b_scale;
    if (extras.capacity > 0) described_.a.rows = experts() * extras.capacity;
  }

  Wanted dx() {
    const auto& [n, k] = sides();
    if (p_.shape.fusion.sum_slots) return summed_dx();
    Wanted wanted = empty(p_.shape.fusion.permute_x ? naive::slots(p_) : ragged_rows(), k);
    if (p_.shape.fusion.weight_gradient) wanted.dweights.resize(static_cast<size_t>(naive::slots(p_)));
    for_rows([&](int64_t expert, int64_t row, int64_t in_order, int64_t slot) {
      const bool weighted = p_.shape.fusion.topk_weights;
      for (int64_t column = 0; column < k; ++column) {
        const double sum = dx_sum(expert, row, in_order, slot, column, n);
        if (p_.shape.fusion.weight_gradient)
          wanted.dweights[static_cast<size_t>(slot)] +=
              sum * value(kStreamX, in_memory(expert, row, in_order) * k + column);
        const float weight = weighted ? this->weight(slot) : 1;
        wanted.at(p_.shape.fusion.permute_x ? slot : in_memory(expert, row, in_order), column) = {
            sum * weight, round_to(wanted.dtype, static_cast<float>(sum) * weight)};
      }
    });
    return wanted;
  }

  // Slot after slot of a token: the row of expert order that has it is looked for.
  Wanted summed_dx() {
    const auto& [n, k] = sides();
    const int64_t top_k = p_.routing.top_k;
    Wanted wanted = empty(p_.routing.tokens, k);
    for (int64_t slot = 0; slot < naive::slots(p_); ++slot)
      for (int64_t column = 0; column < k; ++column) {
        Element& element = wanted.at(slot / top_k, column);
        for_rows([&](int64_t expert, int64_t row, int64_t in_order, int64_t its_slot) {
          if (its_slot != slot) return;
          const double sum = dx_sum(expert, row, in_order, slot, column, n);
          element.exact += sum;
          element.rounded += static_cast<float>(sum);
        });
        if (slot % top_k == top_k - 1) element.rounded = round_to(wanted.dtype, element.rounded);
      }
    return wanted;
  }

  Wanted dw() {
    const auto& [n, k] = sides();
    Wanted wanted = empty(experts() * n, k);
    for (int64_t row = 0; row < experts() * n; ++row)
      for (int64_t column = 0; column < k; ++column) wanted.at(row, column) = {};
    for_rows([&](int64_t expert, int64_t row, int64_t in_order, int64_t slot) {
      for (int64_t i = 0; i < n; ++i) {
        double left = value(kStreamDy, dy_row(expert, row, in_order, slot) * n + i);
        if (p_.shape.fusion.topk_weights)
          left = round_to(p_.shape.layer.dtype, static_cast<float>(left) * dw_weight(slot));
        if (has_scales(described_.a.type))
          left *= scale(described_.a, dy_row(expert, row, in_order, slot) / extras_.a_scale.rows, i, n);
        const int64_t x_row = p_.shape.fusion.permute_x ? slot / p_.routing.top_k : in_memory(expert, row, in_order);
        for (int64_t column = 0; column < k; ++column) {
          double right = value(kStreamX, x_row * k + column);
          if (has_scales(described_.b.type)) right *= scale(described_.b, x_row / extras_.b_scale.rows, column, k);
          wanted.at(expert * n + i, column).exact += left * right;
        }
      }
    });
    for (size_t i = 0; i < wanted.elements.size(); ++i) {
      Element& element = *wanted.elements[i];
      const float before = p_.shape.fusion.accumulate ? dw_before(wanted.dtype, i) : 0;
      element.rounded = round_to(wanted.dtype, static_cast<float>(element.exact) + before);
      element.exact += before;
    }
    return wanted;
  }

  /// Without fusions: those of the other forward tests.
  Wanted forward() {
    const auto& [n, k] = sides();
    Wanted wanted = empty(ragged_rows(), n);
    for_rows([&](int64_t expert, int64_t row, int64_t in_order, int64_t) {
      for (int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i)
          sum += a(expert, row, kStreamX, in_memory(expert, row, in_order), i, k) * w(expert, column, i);
        wanted.at(in_memory(expert, row, in_order), column) = {sum, round_to(wanted.dtype, static_cast<float>(sum))};
      }
    });
    return wanted;
  }

  Wanted result() { return p_.shape.op == Op::fwd ? forward() : p_.shape.op == Op::dx ? dx() : dw(); }

 private:
  int64_t experts() const { return static_cast<int64_t>(p_.routing.m_sizes.size()); }
  std::pair<int64_t, int64_t> sides() const { return {p_.shape.layer.n, p_.shape.layer.k}; }
  int64_t ragged_rows() const {
    return extras_.capacity > 0 ? experts() * extras_.capacity : p_.rows() + extras_.more_rows;
  }
  int64_t in_memory(int64_t expert, int64_t row, int64_t in_order) const {
    return extras_.capacity > 0 ? expert * extras_.capacity + row : in_order;
  }
  int64_t dy_row(int64_t expert, int64_t row, int64_t in_order, int64_t slot) const {
    return p_.shape.fusion.permute_y ? slot : in_memory(expert, row, in_order);
  }

  Wanted empty(int64_t rows, int64_t columns) const {
    const Dtype usual = p_.shape.fusion.fp32_dw ? Dtype::fp32 : p_.shape.layer.dtype;
    Wanted wanted{columns, extras_.result_dtype.value_or(usual), {}};
    wanted.elements.resize(static_cast<size_t>(rows * columns));
    return wanted;
  }
  // f(expert, row of the expert, row in expert order, flat slot).
  template <class F>
  void for_rows(F&& f) const {
    int64_t in_order = 0;
    for (int64_t expert = 0; expert < experts(); ++expert)
      for (int64_t row = 0; row < p_.routing.m_sizes[static_cast<size_t>(expert)]; ++row, ++in_order)
        f(expert, row, in_order, p_.routing.gather_indices[static_cast<size_t>(in_order)]);
  }

  double value(int stream, int64_t index) const {
    return round_to(p_.shape.layer.dtype, operand_value(values_, p_.seed, stream, static_cast<uint64_t>(index)));
  }
  double dx_sum(int64_t expert, int64_t row, int64_t in_order, int64_t slot, int64_t column, int64_t n) const {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i)
      sum += a(expert, row, kStreamDy, dy_row(expert, row, in_order, slot), i, n) * w(expert, i, column);
    return sum;
  }
  // A of a product whose A has rows of experts.
  double a(int64_t, int64_t, int stream, int64_t memory_row, int64_t column, int64_t columns) const {
    double result = value(stream, memory_row * columns + column);
    if (has_scales(described_.a.type))
      result *= scale(described_.a, memory_row / extras_.a_scale.rows, column, columns);
    return result;
  }
  double w(int64_t expert, int64_t row, int64_t column) const {
    const auto& [n, k] = sides();
    double result = value(kStreamW, (expert * n + row) * k + column);
    if (!has_scales(described_.b.type)) return result;
    const int64_t block_rows = (n + extras_.b_scale.rows - 1) / extras_.b_scale.rows;  // of an expert
    return result * scale(described_.b, expert * block_rows + row / extras_.b_scale.rows, column, k);
  }
  double scale(const Operand& operand, int64_t scale_row, int64_t column, int64_t columns) const {
    const int64_t width = operand.type.scales.columns;
    return scale_value(described_, operand, values_, scale_row * ((columns + width - 1) / width) + column / width);
  }
  float dw_before(Dtype dtype, size_t index) const {
    return round_to(dtype, operand_value(values_, p_.seed, kStreamW, index));
  }
  float weight(int64_t slot) const {
    return operand_value(values_, p_.seed, kStreamWeights, static_cast<uint64_t>(slot));
  }
  float dw_weight(int64_t slot) const {
    return values_ == Values::integer ? std::ceil(weight(slot) * 4) / 4 : weight(slot);
  }

  const Problem& p_;
  Values values_;
  Extras extras_;
  Product described_;  // for the values of scales alone
};

/// The product of a problem with extras, its operands and the results that it must have.
struct Multiplication {
  Product product;
  OperandSet set;
  std::vector<float> weights;
  Wanted wanted;
  ThreadPool pool{3};
  std::optional<OperandSet> fresh_ = {};

  Multiplication(const Problem& problem, Values values, const Extras& extras = {})
      : product(product_of(problem)), wanted(Loops(problem, values, extras).result()) {
    for (Operand* operand : {&product.a, &product.b, &product.d}) {
      if (!is_ragged(product, *operand) || operand->order != RowOrder::in_place) continue;
      operand->rows += extras.more_rows;
      if (extras.capacity > 0) operand->capacity = extras.capacity, operand->rows = experts(product) * extras.capacity;
    }
    product.d.type = plain_type(extras.result_dtype.value_or(product.d.type.dtype));
    product.a.type.scales = extras.a_scale, product.b.type.scales = extras.b_scale;
    set = make_set(product, values, pool);
    weights = make_topk_weights(product, values);
  }
  Matrices matrices() const { return matrices_of(set, weights); }
  void run_loop() {
    LoopWorkspace workspace;
    reset_output(product, set, pool);
    loop_baseline(product, matrices(), pool, workspace);
  }
  float element(int64_t row, int64_t column) const { return read(set.d.data(), row, column); }
  float read(const std::byte* rows, int64_t row, int64_t column) const {
    naive::Matrix one(product.d.type.dtype, 1);
    const auto size = static_cast<size_t>(size_bytes(product.d.type.dtype));
    std::memcpy(one.bytes.data(), rows + static_cast<size_t>(row * product.d.columns + column) * size, size);
    return one.get(0);
  }
  void put(int64_t row, int64_t column, float value) {
    naive::Matrix one(product.d.type.dtype, 1);
    one.set(0, value);
    const auto size = static_cast<size_t>(size_bytes(product.d.type.dtype));
    std::memcpy(set.d.data() + static_cast<size_t>(row * product.d.columns + column) * size, one.bytes.data(), size);
  }
  float dweight(int64_t slot) const { return reinterpret_cast<const float*>(set.dweights.data())[slot]; }
  void put_dweight(int64_t slot, float value) { reinterpret_cast<float*>(set.dweights.data())[slot] = value; }
  int64_t elements() const {
    return result_rows(product, product.d) * product.d.columns + static_cast<int64_t>(wanted.dweights.size());
  }
  /// The first element in memory that is not what the loops want, in words; "" where there is none.
  std::string difference() const {
    for (int64_t row = 0; row < product.d.rows; ++row)
      for (int64_t column = 0; column < product.d.columns; ++column) {
        const auto& want = wanted.elements[static_cast<size_t>(row * product.d.columns + column)];
        const float got = element(row, column);
        if (want ? got != want->rounded : !std::isnan(got))
          return "row " + std::to_string(row) + ", column " + std::to_string(column) + ": got " + std::to_string(got) +
                 (want ? ", wanted " + std::to_string(want->rounded) : ", wanted nothing");
      }
    for (size_t slot = 0; slot < wanted.dweights.size(); ++slot)
      if (const float got = dweight(static_cast<int64_t>(slot)); got != wanted.dweights[slot])
        return "slot " + std::to_string(slot) + ": got " + std::to_string(got) + ", wanted " +
               std::to_string(wanted.dweights[slot]);
    return "";
  }
  Reference rounded() { return rounded_reference(product, matrices_of(fresh(), weights), pool); }
  Reference unrounded() { return unrounded_reference(product, matrices_of(fresh(), weights), pool); }
  Verdict exact() { return compare_exact(product, set, rounded(), pool); }
  Verdict close() { return compare_close(product, set, unrounded(), pool); }
  /// The operands before any launch: where D accumulates, a reference reads it.
  const OperandSet& fresh() {
    if (!fresh_) fresh_ = make_set(product, set.values, pool);
    return *fresh_;
  }
};

struct NamedRouting {
  std::string name;
  std::function<Problem(const Setting&)> problem;
};

inline const std::vector<NamedRouting>& hard_routings() {
  const auto of_rows = [](std::vector<int32_t> rows, int64_t top_k) {
    return [=](const Setting& s) { return naive::problem_of_rows(rows, s, top_k); };
  };
  static const std::vector<NamedRouting> routings = {
      {"one_row", of_rows({0, 0, 1, 0}, 1)},
      {"all_rows_to_one_expert", of_rows({0, 77, 0}, 1)},
      {"empty_experts_around", of_rows({0, 0, 40, 0, 0, 40, 0}, 2)},
      {"few_and_many", of_rows({15, 16, 17, 48}, 2)},
      {"top_8", [](const Setting& s) { return naive::problem_of("zipf:1", 9, 16, 8, s); }},
      {"skewed", [](const Setting& s) { return naive::problem_of("zipf:1.5", 24, 8, 2, s); }},
      {"no_rows",
       [](Setting s) {
         s.ep = 4;
         return naive::problem_of("balanced", 1, 16, 1, s);
       }},
      {"one_rank_of_four",
       [](Setting s) {
         s.ep = 4;
         return naive::problem_of("uniform", 20, 16, 4, s);
       }},
      {"tokens_of_other_ranks",
       [](Setting s) {
         s.ep = 4;
         return naive::problem_of("uniform", 20, 16, 1, s);
       }},
  };
  return routings;
}

using Case = std::tuple<Op, Dtype, Fusion>;

/// dX and dW in every dtype and under every fusion.
inline std::vector<Case> gradients() {
  std::vector<Case> cases;
  for (const Dtype dtype : kDtypes)
    for (const Fusion& fusion : {kSummed, kWithGradient}) cases.emplace_back(Op::dx, dtype, fusion);
  for (const Dtype dtype : kDtypes)
    for (Fusion fusion : kFusions) {
      for (const Op op : {Op::dx, Op::dw}) cases.emplace_back(op, dtype, fusion);
      fusion.accumulate = true;
      cases.emplace_back(Op::dw, dtype, fusion);
      fusion.fp32_dw = true;
      if (dtype != Dtype::fp32) cases.emplace_back(Op::dw, dtype, fusion);
      fusion.accumulate = false;
      if (dtype != Dtype::fp32) cases.emplace_back(Op::dw, dtype, fusion);
    }
  return cases;
}

inline std::string label(const Case& one) {
  std::string words = std::string(name(std::get<Op>(one))) + "_" + std::string(name(std::get<Dtype>(one))) + "_" +
                      text(std::get<Fusion>(one));
  std::replace(words.begin(), words.end(), '+', '_');
  return words;
}

class EveryGradient : public testing::TestWithParam<Case> {
 protected:
  // f(problem) on every hard routing.
  template <class F>
  void on_routings(int64_t n, int64_t k, F&& f) const {
    const auto& [op, dtype, fusion] = GetParam();
    for (const NamedRouting& routing : hard_routings()) {
      SCOPED_TRACE(routing.name + ", n " + std::to_string(n) + ", k " + std::to_string(k));
      f(routing.problem({.dtype = dtype, .fusion = fusion, .n = n, .k = k, .op = op}));
    }
  }
};

inline Problem plain(Op op, Dtype dtype = Dtype::bf16, Fusion fusion = {}) {
  return naive::problem_of_rows({7, 0, 20, 21}, {.dtype = dtype, .fusion = fusion, .n = 40, .k = 56, .op = op}, 2);
}

}  // namespace moetune::three_loops
