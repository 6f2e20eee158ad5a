// Picks elements at random and sums them on the host.
#include "backend/cuda/verify/verifier.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "workload/product/activate.h"
#include "workload/product/passes.h"
#include "workload/product/product_rows.h"
#include "workload/product/values.h"

namespace moetune {
namespace {

constexpr int kSamples = 64;
constexpr int64_t kGateElements = 1 << 20;
constexpr double kTolerance = 1e-4;
constexpr double kOfFp32 = 1e-6;  // an activation in fp32 is this near to the exact one, times gate * (1 + up)
constexpr uint64_t kSums = 77, kSlots = 78, kGradients = 79;  // streams of random numbers

// An input's element as it enters the product, weighted: `index` of M or N and `k` of an expert.
double weighted_value(const Product& p, const Operand& operand, Values values, int64_t expert, int64_t index,
                      int64_t k) {
  const bool k_major = is_k_major(operand);
  const int64_t row = k_major ? index : k, column = k_major ? k : index;
  const double value = entering_value(p, operand, values, expert, row, column);
  if (operand.matrix != p.a.matrix || p.weighting != Weighting::a) return value;
  const auto in_order = static_cast<size_t>(first_row(p, operand, expert) + row);
  return round_to(operand.type.dtype, static_cast<float>(value) * topk_weight(p, values, p.gather_indices[in_order]));
}

std::vector<float> floats_at(const float* place, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  require(cudaMemcpy(values.data(), place, values.size() * sizeof(float), cudaMemcpyDeviceToHost),
          "cannot read the reference");
  return values;
}

float float_at(const float* place) { return floats_at(place, 1)[0]; }

// Of H, that column of X's comes from.
struct GateAndUp {
  double gate, up;
};
GateAndUp gate_and_up(const Product& p, Values values, int64_t row, int64_t column) {
  const Operand& h = p.gate_gradient->h;
  const auto [gate, up] = pair_at(p.interleaved, p.n, column);
  return {static_cast<double>(stored_value(p, h, values, row * h.columns + gate)),
          static_cast<double>(stored_value(p, h, values, row * h.columns + up))};
}

int64_t drawn(Random& random, int64_t end) { return static_cast<int64_t>(random.below(static_cast<uint64_t>(end))); }

// `place` gives words for where it is.
template <class Place>
void require_close(Values values, float got, double sum, double squares, const Place& place) {
  const double tolerance = values == Values::integer ? 0 : kTolerance * std::sqrt(squares);
  if (!(std::abs(got - sum) <= tolerance))
    throw machine_error(fmt::format("the reference is wrong at {}: {} instead of {}", place(), got, sum),
                        "nothing on this machine can be verified; see moetune doctor");
}

}  // namespace

void check_sums(const Product& p, Values values, const float* sums) {
  const Product first = before_last_pass(p);
  const int64_t rows = owned_rows(first, first.d), columns = without_finish(p).d.columns;
  if (rows == 0) return;
  Random random(p.seed, kSums);
  for (int i = 0; i < kSamples; ++i) {
    const auto row = drawn(random, rows);
    const auto column = drawn(random, columns);
    const Place place = place_of(first, first.d, row);
    double sum = p.accumulates ? static_cast<double>(stored_value(p, p.d, values, row * p.d.columns + column)) : 0;
    double squares = sum * sum;
    for (int64_t k = 0; k < extent(p, place.expert, Axis::k); ++k) {
      const double term = weighted_value(p, p.a, values, place.expert, place.row, k) *
                          weighted_value(p, p.b, values, place.expert, column, k);
      sum += term;
      squares += term * term;
    }
    const float got = float_at(sums + row * columns + column);
    require_close(values, got, sum, squares,
                  [&] { return fmt::format("expert {}, row {}, column {}", place.expert, place.row, column); });
  }
}

void check_slot_sums(const Product& p, Values values, const float* sums, const float* result) {
  const std::vector<int32_t> rows = rows_of_slots(p);
  Random random(p.seed, kSlots);
  for (int i = 0; i < kSamples && p.slots > 0; ++i) {
    const int64_t token = drawn(random, p.slots) / p.top_k, column = drawn(random, p.n);
    double sum = 0, squares = 0;
    for (int64_t slot = token * p.top_k; slot < (token + 1) * p.top_k; ++slot) {
      const int64_t row = rows[static_cast<size_t>(slot)];
      if (row < 0) continue;
      float term = round_to(p.d.type.dtype, float_at(sums + row * p.n + column));
      if (weights_result(p))
        term = round_to(p.d.type.dtype, term * round_to(p.d.type.dtype, topk_weight(p, values, slot)));
      sum += static_cast<double>(term), squares += static_cast<double>(term) * static_cast<double>(term);
    }
    require_close(values, float_at(result + token * p.n + column), sum, squares,
                  [&] { return fmt::format("token {}, column {}", token, column); });
  }
}

void check_finished(const Product& p, Values values, const float* sums, const float* result, const float* h) {
  const int64_t rows = routed_rows(p);
  Random random(p.seed, kSlots);
  for (int i = 0; i < kSamples && rows > 0; ++i) {
    const int64_t row = drawn(random, rows), column = drawn(random, p.d.columns);
    const Place place = place_of(p, p.d, row);
    const auto sum = [&](int64_t of) {
      const float bias = p.bias ? stored_value(p, *p.bias, values, place.expert * p.n + of) : 0;
      return static_cast<double>(float_at(sums + row * p.n + of)) + static_cast<double>(bias);
    };
    const auto [gate, up] = gate_pair(p, column);
    const bool gated = p.activation != Activation::none;
    const double wanted = gated ? activate(p.activation, sum(gate), sum(up)) : sum(column);
    const double terms = std::max(1.0, std::abs(gated ? sum(gate) * sum(up) : wanted));
    const auto where = [&] { return fmt::format("expert {}, row {}, column {}", place.expert, place.row, column); };
    require_close(gated ? Values::random : values, float_at(result + row * p.d.columns + column), wanted, terms * terms,
                  where);
    for (const int64_t of : h ? std::vector{gate, up} : std::vector<int64_t>())
      require_close(values, float_at(h + row * p.n + of), sum(of), 1 + sum(of) * sum(of), where);
  }
}

void check_scales(const Product& p, const float* result, const float* scales) {
  const int64_t rows = routed_rows(p), width = p.d.type.scales.columns, blocks = scales_of_result(p).columns;
  Random random(p.seed, kSlots);
  for (int i = 0; i < kSamples && rows > 0; ++i) {
    const int64_t row = drawn(random, rows), block = drawn(random, blocks), first = block * width;
    double most = kMinLargest;
    for (const float value : floats_at(result + row * p.d.columns + first, std::min(width, p.d.columns - first)))
      most = std::max(most, std::abs(static_cast<double>(value)));
    const double wanted = most / kMaxFp8;
    require_close(Values::random, float_at(scales + row * blocks + block), wanted, wanted * wanted,
                  [&] { return fmt::format("row {}, block {} of {}", row, block, name(LayerMatrix::y_scales)); });
  }
}

void check_gate_gradient(const Product& p, Values values, const float* sums, const float* dh, const float* x) {
  const int64_t rows = routed_rows(p),
                checked = std::min(rows, std::clamp<int64_t>(kGateElements / p.n, kSamples, 1024));
  Random random(p.seed, kSlots);
  for (int64_t i = 0; i < checked; ++i) {
    const int64_t row = checked == rows ? i : drawn(random, rows);
    const std::vector<float> of_sums = floats_at(sums + row * p.n, p.n), of_dh = floats_at(dh + row * 2 * p.n, 2 * p.n),
                             of_x = floats_at(x + row * p.n, p.n);
    const float weight = weights_result(p) ? topk_weight(p, values, p.gather_indices[static_cast<size_t>(row)]) : 1;
    for (int64_t column = 0; column < p.n; ++column) {
      const auto [first, second] = pair_at(p.interleaved, p.n, column);
      const auto [gate, up] = gate_and_up(p, values, row, column);
      const Slopes slope = slopes(p.activation, gate, up);
      const double sum = static_cast<double>(of_sums[static_cast<size_t>(column)]) * static_cast<double>(weight);
      const double most = sum * (std::abs(gate) + std::abs(up));  // terms of a derivative may cancel out
      const auto require_dh = [&](int64_t at, double wanted) {
        require_close(Values::random, of_dh[static_cast<size_t>(at)], wanted, 1 + most * most,
                      [&] { return fmt::format("row {}, column {} of dH", row, at); });
      };
      require_dh(first, sum * slope.gate);
      require_dh(second, sum * slope.up);
      const double again = activate(p.activation, gate, up);
      require_close(Values::random, of_x[static_cast<size_t>(column)], again, 1 + again * again,
                    [&] { return fmt::format("row {}, column {} of X", row, column); });
    }
  }
}

void check_dweights(const Product& p, Values values, const float* sums, const float* dweights) {
  const std::vector<int32_t> rows = rows_of_slots(p);
  const Operand& x = p.weight_gradient->x;
  Random random(p.seed, kGradients);
  for (int i = 0; i < kSamples && p.slots > 0; ++i) {
    const int64_t slot = drawn(random, p.slots), row = rows[static_cast<size_t>(slot)];
    double sum = 0, squares = 0, beside_ties = 0;  // the last: of X that an exponential rounds either way
    const std::vector<float> of_row = row < 0 ? std::vector<float>() : floats_at(sums + row * p.n, p.n);
    for (size_t j = 0; j < of_row.size(); ++j) {
      const auto column = static_cast<int64_t>(j);
      const auto rounded = [&](double value) {
        return static_cast<double>(round_to(x.type.dtype, static_cast<float>(value)));
      };
      double factor = 0;
      if (p.gate_gradient) {
        const auto [gate, up] = gate_and_up(p, values, row, column);
        const double exact = activate(p.activation, gate, up);
        factor = rounded(exact);
        const double near = kOfFp32 * std::abs(gate) * (1 + std::abs(up));
        beside_ties += std::abs(static_cast<double>(of_row[j]) * (rounded(exact + near) - rounded(exact - near)));
      } else {
        factor = static_cast<double>(stored_value(p, x, values, row * p.n + column));
      }
      const double term = static_cast<double>(of_row[j]) * factor;
      sum += term, squares += term * term;
    }
    const double tolerated = std::sqrt(squares) + beside_ties / kTolerance;
    require_close(p.gate_gradient ? Values::random : values, float_at(dweights + slot), sum, tolerated * tolerated,
                  [&] { return fmt::format("slot {} of {}", slot, name(LayerMatrix::dweights)); });
  }
}

}  // namespace moetune
