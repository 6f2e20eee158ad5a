// Small problems, and three loops that know the ops and fusions but nothing of how a product is described: what
// everything in this room is held against.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "backend/cpu/compare.h"
#include "backend/cpu/grouped_gemm.h"
#include "backend/cpu/operands.h"
#include "built_in.h"
#include "variant/cpu/cpu.h"
#include "workload/problem.h"
#include "workload/product/product_rows.h"
#include "workload/product/values.h"

namespace moetune::three_loops {

constexpr Dtype kDtypes[] = {Dtype::bf16, Dtype::fp16, Dtype::fp32};
constexpr Fusion kWeighted = {.permute_y = true, .topk_weights = true};
constexpr Fusion kSummed = {.permute_x = true, .sum_slots = true};
constexpr Fusion kByToken = {.permute_y = true, .topk_weights = true, .sum_slots = true};
constexpr Fusion kWithGradient = {.permute_y = true, .topk_weights = true, .weight_gradient = true};
constexpr Fusion kBySlot[] = {{.permute_x = true, .by_slot = true}, {.topk_weights = true, .by_slot = true}};
constexpr Fusion kGateGradients[] = {{.activation = Activation::silu},
                                     {.permute_y = true,
                                      .topk_weights = true,
                                      .weight_gradient = true,
                                      .activation = Activation::gelu,
                                      .interleaved = true},
                                     {.permute_y = true, .topk_weights = true, .activation = Activation::gpt_oss}};
constexpr Fusion kFinished[] = {{.permute_x = true, .activation = Activation::silu},
                                {.permute_x = true, .activation = Activation::silu, .store_h = true},
                                {.activation = Activation::gelu, .interleaved = true, .bias = true},
                                {.by_slot = true, .activation = Activation::gpt_oss, .bias = true},
                                {.permute_y = true, .topk_weights = true, .bias = true}};
constexpr Fusion kFusions[] = {{}, {.permute_x = true}, {.permute_y = true}, kWeighted};

struct Setting {
  Dtype dtype = Dtype::fp32;
  Fusion fusion = {};
  int64_t n = 32;
  int64_t k = 32;
  int64_t ep = 1;
  uint64_t seed = 5;
  Op op = Op::fwd;
  Projection projection = Projection::up;
};

/// tokens and top_k as the rows need them: the expert with most rows bounds the tokens from below.
inline Problem problem_of_rows(const std::vector<int32_t>& m_sizes, const Setting& s, int64_t top_k) {
  const int64_t rows = std::accumulate(m_sizes.begin(), m_sizes.end(), int64_t{0});
  Problem problem;
  problem.shape.layer = {.model = "custom",
                         .projection = s.projection,
                         .experts = static_cast<int64_t>(m_sizes.size()),
                         .top_k = top_k,
                         .n = s.n,
                         .k = s.k,
                         .format = find_format(name(s.dtype))};
  problem.shape.op = s.op;
  problem.shape.fusion = s.fusion;
  problem.routing = routing_from_rows(m_sizes, rows / top_k, top_k);
  problem.seed = s.seed;
  return problem;
}

inline Problem problem_of(const std::string& routing, int64_t tokens, int64_t experts, int64_t top_k,
                          const Setting& s) {
  Cell cell;
  cell.shape.layer = {.model = "custom",
                      .projection = s.projection,
                      .experts = experts,
                      .top_k = top_k,
                      .n = s.n,
                      .k = s.k,
                      .format = find_format(name(s.dtype)),
                      .ep = s.ep};
  cell.shape.op = s.op;
  cell.shape.fusion = s.fusion;
  cell.tokens = tokens;
  cell.routing = parse_routing(routing);
  cell.seed = s.seed;
  return make_problem(cell);
}

inline int64_t slots(const Problem& p) { return p.routing.tokens * p.routing.top_k; }

inline Problem plain(Op op, Dtype dtype = Dtype::bf16, Fusion fusion = {}) {
  return problem_of_rows({7, 0, 20, 21}, {.dtype = dtype, .fusion = fusion, .n = 40, .k = 56, .op = op}, 2);
}

inline Candidate candidate(int block_m, int block_n, int block_k, int threads) {
  return candidate_of("cpu", {block_m, block_n, block_k, threads});
}

inline DeviceInfo device(int processors) {
  DeviceInfo info;
  info.kind = DeviceKind::cpu;
  info.processors = processors;
  info.cache_bytes = int64_t{32} << 20;
  return info;
}

/// What a test changes of a product, as the loops below read it.
struct Extras {
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

  std::vector<double> x = {};  // [rows in order, k], with the gradient of gates

  Element& at(int64_t row, int64_t column) {
    auto& element = elements[static_cast<size_t>(row * columns + column)];
    if (!element) element.emplace();
    return *element;
  }
};

class Loops {
 public:
  Loops(const Problem& problem, Values values, const Extras& extras)
      : p_(problem), fusion_(problem.shape.fusion), values_(values), extras_(extras), described_(product_of(problem)) {
    described_.a.type.scales = extras.a_scale, described_.b.type.scales = extras.b_scale;
    const auto experts = static_cast<int64_t>(p_.routing.m_sizes.size());
    int64_t in_order = 0;
    for (int64_t expert = 0; expert < experts; ++expert)
      for (int64_t row = 0; row < p_.routing.m_sizes[static_cast<size_t>(expert)]; ++row, ++in_order)
        rows_.push_back({expert, in_order, p_.routing.gather_indices[static_cast<size_t>(in_order)]});
  }

  Wanted result() const {
    const int64_t n = p_.shape.layer.n, k = p_.shape.layer.k, top_k = p_.routing.top_k;
    const int64_t experts = p_.shape.layer.local_experts();
    const int64_t ragged = p_.rows() + extras_.more_rows;
    if (p_.shape.op == Op::dw) return dw(empty(experts * n, k));
    const bool fwd = p_.shape.op == Op::fwd, sums = fusion_.sum_slots && (fwd || fusion_.permute_x),
               by_slot = fwd ? fusion_.permute_y || fusion_.by_slot : fusion_.permute_x;
    const bool gated = is_gated(fusion_);
    Wanted wanted = empty(sums      ? p_.routing.tokens
                          : by_slot ? slots(p_)
                                    : ragged,
                          gated && fwd ? n / 2
                          : fwd        ? n
                          : gated      ? 2 * k
                                       : k);
    if (sums) std::fill(wanted.elements.begin(), wanted.elements.end(), Element());
    if (fusion_.weight_gradient) wanted.dweights.resize(static_cast<size_t>(slots(p_)));
    if (gated && !fwd) return gate_gradient(std::move(wanted));
    for (const Row& r : rows_)
      for (int64_t column = 0; column < wanted.columns; ++column) {
        const auto sum_of = [&](int64_t of) {
          double total = fusion_.bias ? value(kStreamDy, r.expert * n + of) : 0;
          for (int64_t i = 0; i < (fwd ? k : n); ++i)
            total += fwd ? x(r, i) * w(r.expert, of, i) : dy(r, i) * w(r.expert, i, of);
          return total;
        };
        const int64_t first = gated && fusion_.interleaved ? 2 * column : column;
        double sum = sum_of(first);
        if (gated) sum = gate(sum, sum_of(fusion_.interleaved ? first + 1 : first + n / 2));
        if (fusion_.weight_gradient) wanted.dweights[static_cast<size_t>(r.slot)] += sum * x(r, column);
        // Y is rounded before it is weighted, and so is its weight; dX is rounded once.
        const auto once = fwd ? round_to(wanted.dtype, static_cast<float>(sum)) : static_cast<float>(sum);
        const float topk_weight = sums && values_ == Values::integer ? std::ceil(topk(r) * 4) / 4 : topk(r);
        const float weight = !fusion_.topk_weights ? 1 : fwd ? round_to(wanted.dtype, topk_weight) : topk_weight;
        if (sums) {  // quarters of whole numbers, where the fp32 sum is looked at: in any order
          const float row = round_to(wanted.dtype, once * weight);
          Element& element = wanted.at(r.slot / top_k, column);
          element = {element.exact + static_cast<double>(row), element.rounded + row};
          continue;
        }
        wanted.at(by_slot ? r.slot : r.place, column) = {sum * weight, round_to(wanted.dtype, once * weight)};
      }
    for (auto& element : wanted.elements)
      if (element) element->rounded = round_to(wanted.dtype, element->rounded);
    return wanted;
  }

 private:
  struct Row {
    int64_t expert, place, slot;  // place: row in memory, where it is not moved
  };

  Wanted dw(Wanted wanted) const {
    const int64_t n = p_.shape.layer.n, k = wanted.columns;
    std::fill(wanted.elements.begin(), wanted.elements.end(), Element());
    for (const Row& r : rows_)
      for (int64_t i = 0; i < n; ++i) {
        const double left = dy(r, i);
        for (int64_t column = 0; column < k; ++column) wanted.at(r.expert * n + i, column).exact += left * x(r, column);
      }
    for (size_t i = 0; i < wanted.elements.size(); ++i) {
      Element& element = *wanted.elements[i];
      const float before =
          fusion_.accumulate ? round_to(wanted.dtype, operand_value(values_, p_.seed, kStreamW, i)) : 0;
      element.rounded = round_to(wanted.dtype, static_cast<float>(element.exact) + before);
      element.exact += before;
    }
    return wanted;
  }

  // By differences of `gate`, which is smooth but for the limits of gpt_oss.
  Wanted gate_gradient(Wanted wanted) const {
    const int64_t n = p_.shape.layer.n, k = p_.shape.layer.k;
    for (const Row& r : rows_)
      for (int64_t column = 0; column < k; ++column) {
        double sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += dy(r, i) * w(r.expert, i, column);
        const int64_t first = fusion_.interleaved ? 2 * column : column;
        const int64_t second = fusion_.interleaved ? first + 1 : first + k;
        const double g = value(kStreamX, r.place * 2 * k + first), u = value(kStreamX, r.place * 2 * k + second);
        const double step = 1e-4, weighted = sum * (fusion_.topk_weights ? static_cast<double>(topk(r)) : 1.0);
        const double of_gate = (gate(g + step, u) - gate(g - step, u)) / (2 * step);
        const double of_up = (gate(g, u + step) - gate(g, u - step)) / (2 * step);
        for (const auto& [at, slope] : {std::pair(first, of_gate), {second, of_up}})
          wanted.at(r.place, at) = {weighted * slope, round_to(wanted.dtype, static_cast<float>(weighted * slope))};
        wanted.x.push_back(gate(g, u));
        if (fusion_.weight_gradient)
          wanted.dweights[static_cast<size_t>(r.slot)] += sum * round_to(wanted.dtype, static_cast<float>(gate(g, u)));
      }
    return wanted;
  }

  double gate(double g, double u) const {
    if (fusion_.activation == Activation::silu) return g / (1 + std::exp(-g)) * u;
    if (fusion_.activation == Activation::gelu) return 0.5 * g * (1 + std::erf(g * std::sqrt(0.5))) * u;
    g = g > 7 ? 7 : g, u = u > 7 ? 7 : u < -7 ? -7 : u;
    return g / (1 + std::exp(-1.702 * g)) * (u + 1);
  }

  Wanted empty(int64_t rows, int64_t columns) const {
    const Dtype usual = fusion_.fp32_dw ? Dtype::fp32 : p_.shape.layer.format.x.dtype;
    Wanted wanted{columns, extras_.result_dtype.value_or(usual), {}};
    wanted.elements.resize(static_cast<size_t>(rows * columns));
    return wanted;
  }

  float value(int stream, int64_t index) const {
    const Dtype dtype = p_.shape.layer.format.x.dtype;
    const int most = dtype == Dtype::fp8 && extras_.result_dtype != Dtype::fp16 ? 16 : 4;
    return round_to(dtype, operand_value(values_, p_.seed, stream, static_cast<uint64_t>(index), most));
  }
  float topk(const Row& r) const {
    return operand_value(values_, p_.seed, kStreamWeights, static_cast<uint64_t>(r.slot));
  }
  double x(const Row& r, int64_t column) const {
    const int64_t row = fusion_.permute_x ? r.slot / p_.routing.top_k : fusion_.by_slot ? r.slot : r.place;
    const int64_t k = p_.shape.layer.k;
    if (p_.shape.op == Op::dx) return value(kStreamX, row * k + column);
    return value(kStreamX, row * k + column) * scale(p_.shape.op == Op::fwd, row, column, k);
  }
  double dy(const Row& r, int64_t column) const {
    const int64_t slots = fusion_.sum_slots ? p_.routing.top_k : 1, n = p_.shape.layer.n;
    const int64_t row = fusion_.permute_y ? r.slot / slots : r.place;
    float one = value(kStreamDy, row * n + column);
    if (p_.shape.op == Op::dw && fusion_.topk_weights)  // quarters keep sums of whole numbers exact
      one = round_to(p_.shape.layer.format.x.dtype,
                     one * (values_ == Values::integer ? std::ceil(topk(r) * 4) / 4 : topk(r)));
    return one * scale(true, row, column, n);
  }
  double w(int64_t expert, int64_t row, int64_t column) const {
    const int64_t n = p_.shape.layer.n, k = p_.shape.layer.k, height = std::max<int64_t>(1, extras_.b_scale.rows);
    const int64_t block_rows = (n + height - 1) / height * height;  // of an expert
    return value(kStreamW, (expert * n + row) * k + column) * scale(false, expert * block_rows + row, column, k);
  }
  double scale(bool of_a, int64_t row, int64_t column, int64_t columns) const {
    const Operand& operand = of_a ? described_.a : described_.b;
    const int64_t height = operand.type.scales.rows, width = operand.type.scales.columns;
    if (width == 0) return 1;
    return scale_value(described_, operand, values_, row / height * ((columns + width - 1) / width) + column / width);
  }

  const Problem& p_;
  const Fusion& fusion_;
  Values values_;
  Extras extras_;
  Product described_;  // for the values of scales alone
  std::vector<Row> rows_;
};

/// The product of a problem with extras, its operands and the results that it must have.
struct Multiplication {
  Product product;
  OperandSet set;
  std::vector<float> weights;
  Wanted wanted;
  ThreadPool pool{3};
  Workspace workspace;
  std::optional<OperandSet> fresh_ = {};

  Multiplication(const Problem& problem, Values values, const Extras& extras = {})
      : product(product_of(problem)), wanted(Loops(problem, values, extras).result()) {
    for (Operand* operand : {&product.a, &product.b, &product.d}) {
      if (!is_ragged(product, *operand) || operand->order != RowOrder::in_place) continue;
      operand->rows += extras.more_rows;
    }
    if (!quantises(product)) product.d.type = plain_type(extras.result_dtype.value_or(product.d.type.dtype));
    product.a.type.scales = extras.a_scale, product.b.type.scales = extras.b_scale;
    set = make_set(product, values, pool);
    weights = make_topk_weights(product, values);
  }
  Matrices matrices() const { return matrices_of(set, weights); }
  /// Over results as they must be before a launch.
  void run(const Candidate& c) {
    reset_output(product, set, pool);
    launch(c);
  }
  void launch(const Candidate& c) { grouped_gemm(product, matrices(), cpu_knobs(c), pool, workspace); }
  float element(int64_t row, int64_t column) const { return read(set.d.data(), row, column); }
  float read(const std::byte* rows, int64_t row, int64_t column) const {
    float value = 0;
    const int64_t index = (row * product.d.columns + column) * size_bytes(product.d.type.dtype);
    to_floats(product.d.type.dtype, rows + index, 1, &value);
    return value;
  }
  std::byte* at(int64_t row, int64_t column) const {
    return set.d.data() + (row * product.d.columns + column) * size_bytes(product.d.type.dtype);
  }
  void put(int64_t row, int64_t column, float value) { from_floats(product.d.type.dtype, &value, 1, at(row, column)); }
  float dweight(int64_t slot) const { return reinterpret_cast<const float*>(set.dweights.data())[slot]; }
  void put_dweight(int64_t slot, float value) { reinterpret_cast<float*>(set.dweights.data())[slot] = value; }
  int64_t elements() const {
    return result_rows(product, product.d) * product.d.columns + static_cast<int64_t>(wanted.dweights.size()) +
           static_cast<int64_t>(wanted.x.size()) +
           (product.h ? result_rows(product, *product.h) * product.h->columns : 0);
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

/// Either rows of each expert, or a routing to generate.
struct HardRouting {
  std::string name;
  int64_t top_k = 1;
  std::vector<int32_t> m_sizes = {};
  std::string routing = {};
  int64_t tokens = 0, experts = 0, ep = 1;

  Problem problem(Setting s) const {
    s.ep = ep;
    return routing.empty() ? problem_of_rows(m_sizes, s, top_k) : problem_of(routing, tokens, experts, top_k, s);
  }
};

inline std::vector<HardRouting> hard_routings() {
  return {{.name = "one row", .m_sizes = {0, 0, 1, 0}},
          {.name = "all rows to one expert", .m_sizes = {0, 77, 0}},
          {.name = "empty experts around", .top_k = 2, .m_sizes = {0, 0, 40, 0, 0, 40, 0}},
          {.name = "a block and one row more or less", .top_k = 2, .m_sizes = {23, 24, 25, 48}},
          {.name = "more experts than rows", .top_k = 2, .routing = "uniform", .tokens = 3, .experts = 40},
          {.name = "top 8", .top_k = 8, .routing = "zipf:1", .tokens = 9, .experts = 16},
          {.name = "skewed", .top_k = 2, .routing = "zipf:1.5", .tokens = 24, .experts = 8},
          {.name = "no rows", .routing = "balanced", .tokens = 1, .experts = 16, .ep = 4},
          {.name = "one rank of four", .top_k = 4, .routing = "uniform", .tokens = 20, .experts = 16, .ep = 4},
          {.name = "tokens of other ranks", .routing = "uniform", .tokens = 20, .experts = 16, .ep = 4}};
}

using Case = std::tuple<Op, Dtype, Fusion>;

/// Every op in every dtype and under every fusion.
inline std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Dtype dtype : kDtypes) {
    for (const Fusion& fusion : kBySlot) cases.emplace_back(Op::fwd, dtype, fusion);
    for (const Fusion& fusion : kFinished) cases.emplace_back(Op::fwd, dtype, fusion);
    for (const Fusion& fusion : {kSummed, kWithGradient}) cases.emplace_back(Op::dx, dtype, fusion);
    for (const Op op : {Op::fwd, Op::dx, Op::dw}) cases.emplace_back(op, dtype, kByToken);
    for (Fusion fusion : kFusions) {
      for (const Op op : {Op::fwd, Op::dx, Op::dw}) cases.emplace_back(op, dtype, fusion);
      fusion.accumulate = true;
      cases.emplace_back(Op::dw, dtype, fusion);
      fusion.fp32_dw = true;
      if (dtype != Dtype::fp32) cases.emplace_back(Op::dw, dtype, fusion);
      fusion.accumulate = false;
      if (dtype != Dtype::fp32) cases.emplace_back(Op::dw, dtype, fusion);
    }
  }
  return cases;
}

inline std::string label(const Case& one) {
  std::string words = std::string(name(std::get<Op>(one))) + "_" + std::string(name(std::get<Dtype>(one))) + "_" +
                      text(std::get<Fusion>(one));
  std::replace(words.begin(), words.end(), '+', '_');
  return words;
}

}  // namespace moetune::three_loops
