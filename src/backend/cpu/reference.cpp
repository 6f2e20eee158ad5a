// The plain product in double, and where its sums go, with how many roundings. Shares nothing with the variant but how
// elements are read.
#include "backend/cpu/compare.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "workload/product/activate.h"
#include "workload/product/product_rows.h"

namespace moetune {
namespace {

// Of D and of K at a time. Loops over fewer columns would be unrolled before they could be vectorised.
constexpr int64_t kRows = 256, kColumns = 32, kDepth = 512;

/// Element (i, k) of the part goes to target[i * pitch + k * step].
void to_doubles(const Input& input, const Part& part, int64_t pitch, int64_t step, double* target) {
  const bool k_major = is_k_major(input.operand);
  const int64_t lines = k_major ? part.count : part.depth, length = k_major ? part.depth : part.count;
  const int64_t first_row = k_major ? part.first : part.from, column = k_major ? part.from : part.first;
  std::vector<float> line(static_cast<size_t>(length));
  for (int64_t i = 0; i < lines; ++i) {
    const bool scaled = scales_stage(input.operand.type);  // rounded, so that nothing is left to multiply
    if (scaled)
      input.unpack_scaled(part.expert, first_row + i, column, length, line.data());
    else
      input.unpack(part.expert, first_row + i, column, length, line.data());
    for (int64_t j = 0; j < length; ++j)
      target[k_major ? i * pitch + j * step : j * pitch + i * step] =
          static_cast<double>(line[static_cast<size_t>(j)]) *
          (scaled ? 1.0 : static_cast<double>(input.scale(part.expert, first_row + i, column + j)));
  }
}

/// sums [rows, kColumns] += A [rows, depth] * B [depth, kColumns], with `pitch` between rows of sums.
void add_products(int64_t rows, int64_t depth, const double* a, const double* b, double* sums, int64_t pitch) {
  for (int64_t row = 0; row < rows; ++row) {
    double sum[kColumns] = {};
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t column = 0; column < kColumns; ++column)
        sum[column] += a[row * depth + k] * b[k * kColumns + column];
    for (int64_t column = 0; column < kColumns; ++column) sums[row * pitch + column] += sum[column];
  }
}

/// finish(expert, row in the expert, row in expert order, its N sums) for every row of D, from many threads at once.
template <class Finish>
void for_rows(const Product& product, const Matrices& matrices, ThreadPool& pool, Finish&& finish) {
  const Input a = input_a(product, matrices), b = input_b(product, matrices);
  const int64_t panels = (product.n + kColumns - 1) / kColumns, pitch = panels * kColumns;
  std::vector<double> sums(static_cast<size_t>(kRows * pitch));
  for (int64_t expert = 0; expert < experts(product); ++expert) {
    const int64_t m = extent(product, expert, Axis::m), k = extent(product, expert, Axis::k);
    for (int64_t first = 0; first < m; first += kRows) {
      const int64_t rows = std::min(kRows, m - first);
      std::ranges::fill(sums, 0.0);
      for (int64_t from = 0; from < k; from += kDepth) {
        const int64_t depth = std::min(kDepth, k - from);
        std::vector<double> left(static_cast<size_t>(rows * depth));
        to_doubles(a, {expert, first, rows, from, depth}, depth, 1, left.data());
        pool.for_each(panels, [&](int, int64_t panel) {
          const int64_t column = panel * kColumns, columns = std::min(kColumns, product.n - column);
          std::vector<double> right(static_cast<size_t>(depth * kColumns));
          to_doubles(b, {expert, column, columns, from, depth}, 1, kColumns, right.data());
          add_products(rows, depth, left.data(), right.data(), &sums[static_cast<size_t>(column)], pitch);
        });
      }
      const int64_t in_order = first_row(product, product.d, expert) + first;
      pool.for_each(rows, [&](int, int64_t row) {
        finish(expert, first + row, in_order + row, &sums[static_cast<size_t>(row * pitch)]);
      });
    }
  }
}

// What the result's row is multiplied by.
float result_weight(const Product& product, const Matrices& matrices, int64_t expert, int64_t row) {
  if (!weights_result(product)) return 1;
  const float weight = weight_of_row(product, matrices.topk_weights, expert, row);
  return product.weighting == Weighting::rounded_result ? round_to(product.d.type.dtype, weight) : weight;
}

/// The row's element of dweights.
struct Dot {
  double sum = 0;
  double squares = 0;  // of its terms
};
Dot dot(const std::vector<float>& x, const double* sums) {
  Dot result;
  for (size_t column = 0; column < x.size(); ++column) {
    const double term = sums[column] * static_cast<double>(x[column]);
    result.sum += term;
    result.squares += term * term;
  }
  return result;
}

/// A gate and an up of H, and where they stand in their row.
struct GateValues {
  double gate, up;
  GatePair at;
};
std::vector<GateValues> gates_of(const Product& product, const Matrices& matrices, int64_t expert, int64_t row) {
  std::vector<float> h(static_cast<size_t>(2 * product.n));
  Input{product, product.gate_gradient->h, matrices.h}.unpack(expert, row, 0, 2 * product.n, h.data());
  std::vector<GateValues> gates;
  for (int64_t column = 0; column < product.n; ++column) {
    const GatePair at = pair_at(product.interleaved, product.n, column);
    const auto value = [&](int64_t of) { return static_cast<double>(h[static_cast<size_t>(of)]); };
    gates.push_back({value(at.gate), value(at.up), at});
  }
  return gates;
}

/// A reference whose D has elements of `dtype`: finish(sum, weight of its row, what is in D before) gives an element.
/// Rows that a D adds by token are rounded and weighted in any case.
template <class Finish>
Reference reference(const Product& product, const Matrices& matrices, Dtype dtype, ThreadPool& pool, Finish&& finish) {
  const int64_t n = product.d.columns, rows = result_rows(product, product.d);
  const auto& gate = product.gate_gradient;
  const Operand* const other = second_result(product);
  Reference result{.d = Buffer(rows * n * size_bytes(dtype)),
                   .d_scales = Buffer(quantises(product) ? rows * scales_of_result(product).columns * 4 : 0),
                   .second = Buffer(other ? rows * other->columns * size_bytes(dtype) : 0),
                   .dweights = Buffer(product.weight_gradient ? product.slots * 4 : 0)};
  // Writes the scales of a row; elements of D's own dtype are divided by them.
  const auto quantise = [&](int64_t row, std::vector<float>& values) {
    const int64_t width = product.d.type.scales.columns, blocks = (n + width - 1) / width;
    for (int64_t block = 0; block < blocks; ++block) {
      const std::span of(values.begin() + block * width, values.begin() + std::min(n, (block + 1) * width));
      float most = kMinLargest;
      for (const float value : of) most = std::max(most, std::abs(value));
      result.d_scales.as<float>()[row * blocks + block] = most / kMaxFp8;
      for (float& value : of) value = dtype == Dtype::fp32 ? value : value / (most / kMaxFp8);
    }
  };
  const auto put = [&](int64_t row, std::vector<float> values) {
    if (quantises(product)) quantise(row, values);
    from_floats(dtype, values.data(), n, result.d.data() + row * n * size_bytes(dtype));
  };
  const Buffer tokens(sums_slots(product) ? rows * n * static_cast<int64_t>(sizeof(double)) : 0);
  std::vector<double> dot_squares(product.weight_gradient ? product.gather_indices.size() : 0);
  for_rows(product, matrices, pool, [&](int64_t expert, int64_t row, int64_t in_order, const double* sums) {
    const auto slot = [&] { return product.gather_indices[static_cast<size_t>(in_order)]; };
    std::vector<float> x(static_cast<size_t>(product.n));
    std::vector<GateValues> gates;
    if (gate) {
      gates = gates_of(product, matrices, expert, row);
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(activate(product.activation, gates[i].gate, gates[i].up));
      from_floats(dtype, x.data(), product.n, result.second.data() + in_order * product.n * size_bytes(dtype));
      for (float& one : x) one = round_to(gate->x.type.dtype, one);
    } else if (product.weight_gradient) {
      Input{product, product.weight_gradient->x, matrices.x}.unpack(expert, row, 0, product.n, x.data());
    }
    if (product.weight_gradient) {
      const Dot one = dot(x, sums);
      result.dweights.as<float>()[slot()] = static_cast<float>(one.sum);
      dot_squares[static_cast<size_t>(in_order)] = one.squares;
    }
    if (sums_slots(product)) {  // an expert has one row of a token at most: no other thread adds to this one
      double* token = tokens.as<double>() + slot() / product.top_k * n;
      const float weight = result_weight(product, matrices, expert, row);
      for (int64_t column = 0; column < n; ++column)
        token[column] += static_cast<double>(
            round_to(product.d.type.dtype, round_to(product.d.type.dtype, static_cast<float>(sums[column])) * weight));
      return;
    }
    std::vector<float> values(static_cast<size_t>(n));
    if (product.accumulates) Input{product, product.d, matrices.d}.unpack(expert, row, 0, n, values.data());
    const float weight = result_weight(product, matrices, expert, row);
    const std::vector<float> bias = product.bias ? bias_of(product, matrices, expert) : std::vector<float>();
    const auto sum = [&](int64_t column) {
      return sums[column] + (bias.empty() ? 0.0 : static_cast<double>(bias[static_cast<size_t>(column)]));
    };
    if (product.h) {
      std::vector<float> h;
      for (int64_t column = 0; column < product.n; ++column) h.push_back(static_cast<float>(sum(column)));
      from_floats(dtype, h.data(), product.n, result.second.data() + in_order * product.n * size_bytes(dtype));
    }
    for (size_t i = 0; i < gates.size(); ++i) {
      const Slopes slope = slopes(product.activation, gates[i].gate, gates[i].up);
      values[static_cast<size_t>(gates[i].at.gate)] = finish(sums[i] * slope.gate, weight, 0);
      values[static_cast<size_t>(gates[i].at.up)] = finish(sums[i] * slope.up, weight, 0);
    }
    for (int64_t column = 0; !gate && column < n; ++column) {
      float& value = values[static_cast<size_t>(column)];
      const auto [first, second] = gate_pair(product, column);
      value = finish(
          product.activation == Activation::none ? sum(column) : activate(product.activation, sum(first), sum(second)),
          weight, value);
    }
    put(in_order, values);
  });
  result.dweights_rms = std::sqrt(std::accumulate(dot_squares.begin(), dot_squares.end(), 0.0) /
                                  static_cast<double>(std::max<size_t>(1, dot_squares.size())));
  if (sums_slots(product))
    pool.for_each(rows, [&](int, int64_t row) {
      const double* token = tokens.as<double>() + row * n;
      put(row, std::vector<float>(token, token + n));
    });
  return result;
}

}  // namespace

Reference rounded_reference(const Product& product, const Matrices& matrices, ThreadPool& pool) {
  const bool rounds_first = product.weighting == Weighting::rounded_result;
  return reference(product, matrices, product.d.type.dtype, pool, [&](double sum, float weight, float before) {
    const float value = static_cast<float>(sum) + before;
    return (rounds_first ? round_to(product.d.type.dtype, value) : value) * weight;
  });
}

Reference unrounded_reference(const Product& product, const Matrices& matrices, ThreadPool& pool) {
  return reference(product, matrices, Dtype::fp32, pool, [](double sum, float weight, float before) {
    return static_cast<float>(sum * static_cast<double>(weight) + static_cast<double>(before));
  });
}

}  // namespace moetune
