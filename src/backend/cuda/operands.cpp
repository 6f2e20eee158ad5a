// Sizes, allocation and filling of operands.
#include "backend/cuda/operands.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/backend.h"
#include "base/text/units.h"
#include "workload/product/passes.h"
#include "workload/product/product_rows.h"
#include "workload/product/scale_places.h"
#include "workload/product/values.h"
#include "workload/product/work.h"

namespace moetune {
namespace {

constexpr int64_t kAlign = 256;  // of every set: what cudaMalloc gives
constexpr int64_t kMaxSets = 1024;
constexpr int64_t kSpareBytes = int64_t{768} << 20;  // for kernels, graphs, cuBLAS and the driver
constexpr int kColdFactor = 3;
constexpr int64_t kReadPastRows = 512;  // by servers' kernels, which multiply it by zeros

// At least one byte, so that an operand without rows has an address.
int64_t aligned(int64_t bytes) { return std::max(kAlign, (bytes + kAlign - 1) / kAlign * kAlign); }

template <class T>
DeviceBuffer upload(const std::vector<T>& values) {
  DeviceBuffer buffer(std::max<int64_t>(1, static_cast<int64_t>(values.size() * sizeof(T))));
  copy_to_device(buffer.data(), values.data(), values.size() * sizeof(T));
  return buffer;
}

int64_t bytes_of(const Operand& operand) { return operand.rows * row_bytes(operand); }

// Where each expert's A, B and D begin, set by set. Null for what the router mixes: rows gathered or scattered.
std::vector<const char*> expert_pointers(const Operands& o) {
  std::vector<const char*> pointers;
  for (int set = 0; set < o.sets; ++set) {
    const auto append = [&](const Operand& operand, const char* base) {
      for (int64_t expert = 0; expert < experts(o.product); ++expert)
        pointers.push_back(operand.order != RowOrder::in_place
                               ? nullptr
                               : base + memory_row(o.product, operand, expert, 0) * row_bytes(operand));
    };
    append(o.product.a, o.a.of(set));
    if (const char* const w = o.b_reordered.of(set))
      for (int64_t expert = 0; expert < experts(o.product); ++expert)
        pointers.push_back(w + expert * (reordered_w_bytes(o.product) / experts(o.product)));
    else
      append(o.product.b, o.b.of(set));
    append(o.first.d, takes_another_pass(o.product) ? o.d_sorted.data() : o.d.of(set));
  }
  return pointers;
}

// Nothing for operands in place, whose rows need no map.
DeviceBuffer upload_map(const Product& product, const Operand& operand) {
  if (operand.order == RowOrder::in_place) return {};
  std::vector<int32_t> rows;
  for (const int64_t row : row_map(product, operand)) rows.push_back(static_cast<int32_t>(row));
  return upload(rows);
}

// Bytes of the sorted copy of an operand, 0 where it needs none.
int64_t sorted_bytes(const Product& product, const Operand& operand, const Operand& sorted) {
  return is_moved(product, operand) ? aligned(bytes_of(sorted)) : 0;
}

void make(SetBuffer& buffer, int64_t sets) {
  if (buffer.stride > 0) buffer.memory = DeviceBuffer(buffer.guard + sets * buffer.stride);
}

// Room for the scales of cuBLASLt and of packs, where these don't lie as they read them.
void make_other_scales(Operands& o) {
  const Product& p = o.product;
  const ScalesForCublasLt places(p);
  const ScaleKind kind = p.a.type.scales.kind;
  if (kind == ScaleKind::block || (kind == ScaleKind::channel && is_moved(p, p.a))) {
    std::vector<int64_t> of_rows;
    for (int64_t expert = 0; expert < experts(p); ++expert)
      for (int64_t row = 0; row < extent(p, expert, Axis::m); ++row)
        of_rows.insert(of_rows.end(),
                       {places.a_first[static_cast<size_t>(expert)] + row, places.a_step(extent(p, expert, Axis::m))});
    o.a_lt_places = upload(of_rows);
    o.a_lt_scales.stride = aligned(places.a_first.back() * 4);
  }
  if (kind == ScaleKind::block) {
    const int64_t column = (p.a.rows + 3) / 4 * 4;
    std::vector<int64_t> of_memory;
    for (int64_t row = 0; row < p.a.rows; ++row) of_memory.insert(of_memory.end(), {row, column});
    o.a_mn_places = upload(of_memory);
    o.a_mn_scales.stride = aligned(places.a_columns * column * 4);
    std::vector<int64_t> of_rows;
    for (int64_t row = 0; row < experts(p) * places.b_rows; ++row)
      of_rows.insert(of_rows.end(), {row * places.b_columns, 1});
    o.b_lt_places = upload(of_rows);
    o.b_lt_scales.stride = aligned(places.b_first(experts(p)) * 4);
  }
  for (SetBuffer* buffer : {&o.a_lt_scales, &o.a_mn_scales, &o.b_lt_scales}) make(*buffer, o.sets);
}

}  // namespace

Operands make_operands(Product product, const DeviceInfo& device, Services& services, cudaStream_t stream,
                       const Operands* before) {
  Operands o;
  o.plain = in_expert_order(product);
  o.first = before_last_pass(product);
  o.product = std::move(product);
  const Product& p = o.product;
  const bool fp8 = p.a.type.dtype == Dtype::fp8;
  const int64_t spare = fp8 ? CublasLt::kSpareRows * row_bytes(p.a) : 0;
  const auto result = [](SetBuffer& buffer, int64_t bytes) {
    buffer.stride = aligned(bytes + kGuardBytes), buffer.guard = kGuardBytes;
  };
  o.a.stride = before ? before->d.stride : aligned(bytes_of(p.a) + spare);
  o.b.stride = aligned(bytes_of(p.b) + (p.b.type.stage != p.b.type.dtype ? kReadPastRows : 0));
  // Down may read a quantised result as it reads X.
  result(o.d, bytes_of(p.d) + (quantises(p) ? CublasLt::kSpareRows * row_bytes(p.d) : 0));
  if (quantises(p)) result(o.d_scales, bytes_of(scales_of_result(p)));
  if (has_scales(p.a.type))
    o.a_scales.stride = before ? before->d_scales.stride : aligned((scale_count(p, p.a) + CublasLt::kSpareRows) * 4);
  if (has_scales(p.b.type)) o.b_scales.stride = aligned(scale_count(p, p.b) * size_bytes(p.b.type.scales.dtype));
  if (p.b.type.reordered) o.b_reordered.stride = aligned(reordered_w_bytes(p));
  if (p.b.type.zero_points) o.b_zeros.stride = aligned(scale_count(p, p.b) / 2);
  const int64_t sorted_a = is_moved(p, p.a) ? sorted_bytes(p, p.a, o.plain.a) + aligned(spare) : 0;
  const int64_t sorted_b = sorted_bytes(p, p.b, o.plain.b);
  const int64_t sorted_d = sorted_bytes(p, p.d, o.plain.d);
  const int64_t references = 2 * aligned(result_rows(p, p.d) * p.d.columns * 4);
  if (p.gate_gradient) {
    result(o.x, bytes_of(p.gate_gradient->x));
    o.h.stride = aligned(bytes_of(p.gate_gradient->h));
  }
  if (p.weight_gradient) {
    if (!p.gate_gradient) o.x.stride = aligned(bytes_of(p.weight_gradient->x));
    result(o.dweights, bytes_of(p.weight_gradient->dweights));
  }
  if (p.bias) o.bias.stride = aligned(bytes_of(*p.bias));
  if (p.h) result(o.h, bytes_of(*p.h));
  const auto touched = static_cast<int64_t>(bytes(p));
  std::vector<SetBuffer*> own = {&o.b,           &o.d, &o.b_scales, &o.d_scales, &o.b_zeros,
                                 &o.b_reordered, &o.x, &o.dweights, &o.bias,     &o.h};
  if (!before) own.insert(own.end(), {&o.a, &o.a_scales});
  int64_t set_bytes = 0;
  for (const SetBuffer* buffer : own) set_bytes += buffer->stride;
  const int64_t cold = kColdFactor * device.cache_bytes;
  int64_t sets = routed_rows(p) == 0 ? 2 : std::clamp<int64_t>((cold + touched - 1) / touched, 2, kMaxSets);
  size_t available = 0, total = 0;
  require(cudaMemGetInfo(&available, &total), "cannot read the free memory");
  const auto needed = [&](int64_t count) {
    return count * set_bytes + sorted_a + sorted_b + std::max(sorted_a, sorted_b) + sorted_d + references + kSpareBytes;
  };
  if (needed(sets) > static_cast<int64_t>(available) && touched >= cold) sets = 1;
  if (before) sets = before->sets;
  if (needed(sets) > static_cast<int64_t>(available))
    throw OutOfMemory(
        fmt::format("needs {} of device memory, {} are free", format_bytes(static_cast<double>(needed(sets))),
                    format_bytes(static_cast<double>(available))),
        needed(sets));
  o.sets = static_cast<int>(sets);
  for (SetBuffer* buffer : own) make(*buffer, sets);
  if (before) {
    o.a.memory = DeviceBuffer(before->d.of(0), sets * o.a.stride);
    if (o.a_scales.stride > 0) o.a_scales.memory = DeviceBuffer(before->d_scales.of(0), sets * o.a_scales.stride);
  }
  if (fp8) make_other_scales(o);
  if (sums_slots(p)) o.row_of = DeviceBuffer(aligned(p.slots * 4));
  if (sorted_d > 0) o.d_sorted = DeviceBuffer(sorted_d);
  o.m_sizes = upload(p.m_sizes);
  o.gather_indices = upload(p.gather_indices);
  o.first_rows = upload(std::vector<int32_t>(p.first_rows.begin(), p.first_rows.end()));
  o.pointers = upload(expert_pointers(o));
  o.a_rows = upload_map(p, p.a), o.b_rows = upload_map(p, p.b),
  o.d_rows = is_filled(p, p.d) ? DeviceBuffer() : upload_map(p, p.d);
  const int64_t arrivals = first_arrival + int64_t{arrivals_per_sm} * device.processors;
  const int64_t counts = std::max(routed_rows(p) / gathered_together + 1, experts(p));  // of rows gathered first
  o.counters = upload(std::vector<int32_t>(static_cast<size_t>(arrivals + counts)));
  o.gathered_offset = arrivals;
  o.weights = DeviceBuffer(aligned(p.slots * 4));
  if (sorted_a > 0) o.a_sorted = DeviceBuffer(sorted_a);
  if (sorted_b > 0) o.b_sorted = DeviceBuffer(sorted_b);
  if (sorted_a + sorted_b > 0) o.gathered = DeviceBuffer(std::max(sorted_a, sorted_b));
  for (int set = 0; set < o.sets; ++set) {
    o.fill(services, Values::random, set, stream);
    o.fill_before(services, Values::random, set, stream);
  }
  return o;
}

void Operands::fill(Services& services, Values values, int set, cudaStream_t stream) const {
  fill_operand(services, product.a, values, set, a, stream);
  fill_operand(services, product.b, values, set, b, stream);
  if (product.gate_gradient)
    fill_operand(services, product.gate_gradient->h, values, set, h, stream);
  else if (product.weight_gradient)
    fill_operand(services, product.weight_gradient->x, values, set, x, stream);
  if (product.bias) fill_operand(services, *product.bias, values, set, bias, stream);
  const uint64_t seed = product.seed + static_cast<uint64_t>(set);
  const auto fill_scales = [&](const Operand& operand, char* scales) {
    if (scales)
      services.of(operand.type.scales.dtype)
          .fill_scales(scales, scale_count(product, operand), scale_filling(operand, values), scale_seed(seed, operand),
                       stream);
  };
  fill_scales(product.a, a_scales.of(set));
  fill_scales(product.b, b_scales.of(set));
  if (char* const zeros = b_zeros.of(set))
    services.of(product.b.type.dtype)
        .fill(zeros, scale_count(product, product.b), values, scale_seed(seed, product.b), stream_of(product.b.matrix),
              stream);
  if (char* const out = b_reordered.of(set))
    services.reorder(product.b.type,
                     {.out = out,
                      .elements = b.of(set),
                      .scales = b_scales.of(set),
                      .zeros = b_zeros.of(set),
                      .experts = experts(product),
                      .n = product.n,
                      .k = product.k,
                      .combines_gates = combines_gates(product),
                      .interleaved = product.interleaved},
                     stream);
  const auto place = [&](const Operand& operand, const SetBuffer& scales, const SetBuffer& to,
                         const DeviceBuffer& places, const int* from) {
    if (to.stride == 0) return;
    const ScaleStrides strides = scale_strides(product, operand);
    const int64_t block = std::max<int64_t>(1, operand.type.scales.columns);
    services.of(Dtype::fp32)
        .place_scales({.out = to.floats(set),
                       .scales = scales.floats(set),
                       .places = places.as<long long>(),
                       .from = from,
                       .rows = places.size() / 16,
                       .columns = strides.column == 0 ? 1 : (operand.columns + block - 1) / block,
                       .row_stride = strides.row,
                       .column_stride = strides.column},
                      stream);
  };
  place(product.a, a_scales, a_lt_scales, a_lt_places, a_rows.as<int>());
  place(product.a, a_scales, a_mn_scales, a_mn_places, nullptr);
  place(product.b, b_scales, b_lt_scales, b_lt_places, nullptr);
  services.of(product.d.type.dtype)
      .fill_weights(weights.as<float>(), product.slots, weight_filling(product, values), product.seed, stream);
}

void Operands::fill_before(Services& services, Values values, int set, cudaStream_t stream) const {
  if (product.accumulates) fill_operand(services, product.d, values, set, d, stream);
}

void Operands::fill_operand(Services& services, const Operand& operand, Values values, int set, const SetBuffer& buffer,
                            cudaStream_t stream) const {
  services.of(operand.type.dtype)
      .fill(buffer.of(set), operand.rows * operand.columns, values, product.seed + static_cast<uint64_t>(set),
            stream_of(operand.matrix), stream, max_integer(product, operand));
}

void Operands::add_slots(Services& services, const float* slot_weights, int set, cudaStream_t stream) const {
  const Service& service = services.of(product.d.type.dtype);
  const int64_t rows = routed_rows(product);
  if (rows != product.slots) set_in_order(row_of.data(), 0xff, product.slots * 4, stream);  // those without a row
  service.invert(row_of.as<int>(), gather_indices.as<int>(), rows, stream);
  service.sum_slots({.out = d.of(set),
                     .rows = d_sorted.data(),
                     .row_of = row_of.as<int>(),
                     .weights = slot_weights,
                     .tokens = product.d.rows,
                     .top_k = product.top_k,
                     .width = product.d.columns},
                    stream);
}

void Operands::finish(Services& services, int set, cudaStream_t stream, int parts) const {
  const Service& service = services.of(product.d.type.dtype);
  const auto* const sums = d_sorted.as<float>();
  if (sums_slots(product)) return add_slots(services, nullptr, set, stream);
  if (product.weight_gradient && routed_rows(product) != product.slots)  // slots without a row stay so
    set_in_order(dweights.of(set), 0, product.slots * 4, stream);
  if (parts > 0 && product.weight_gradient)
    service.add_parts(dweights.floats(set), sums, gather_indices.as<int>(), routed_rows(product), parts, stream);
  if (parts > 0) return;
  if (product.gate_gradient) return service.gate_gradient(gate_rows(sums, set), stream);
  if (product.weight_gradient) {
    service.weigh_rows({.out = d.of(set),
                        .gradient = dweights.floats(set),
                        .sums = sums,
                        .x = x.of(set),
                        .slots = gather_indices.as<int>(),
                        .weights = weights.as<float>(),
                        .rows = routed_rows(product),
                        .width = product.d.columns},
                       stream);
  }
}

FinishedRows Operands::finished_rows(int set) const {
  return {.bias = bias.of(set),
          .first_rows = first_rows.as<int>(),
          .experts = experts(product),
          .activation = product.activation,
          .interleaved = product.interleaved,
          .rows = routed_rows(product),
          .n = product.n};
}

GateRows Operands::gate_rows(const float* sums, int set) const {
  return {.dh = d.of(set),
          .x = x.of(set),
          .gradient = dweights.floats(set),
          .sums = sums,
          .h = h.of(set),
          .slots = gather_indices.as<int>(),
          .weights = weights_result(product) ? weights.as<float>() : nullptr,
          .activation = product.activation,
          .interleaved = product.interleaved,
          .rows = routed_rows(product),
          .width = product.n};
}

RowWeights Operands::result_weights() const {
  if (!weights_result(product) || product.gate_gradient) return {};
  return {.weights = weights.as<float>(),
          .slots = gather_indices.as<int>(),
          .rounded = product.weighting == Weighting::rounded_result};
}

Args Operands::args(int set) const {
  const int64_t arrays = set * 3 * experts(product);
  const auto* const of = pointers.as<const void*>() + arrays;
  const ScaleStrides x_scales = scale_strides(product, product.a), w_scales = scale_strides(product, product.b),
                     y_scales = scale_strides(product, product.d);
  return {.x = a.of(set),
          .w = product.b.type.reordered ? b_reordered.of(set) : b.of(set),
          .y = takes_another_pass(product) ? d_sorted.data() : d.of(set),
          .m_sizes = m_sizes.as<int>(),
          .gather_indices = gather_indices.as<int>(),
          .topk_weights = weights.as<float>(),
          .n = product.n,
          .k = product.k,
          .experts = static_cast<int>(experts(product)),
          .top_k = static_cast<int>(product.top_k),
          .counters = counters.as<unsigned>(),
          .gathered_rows = gathered.data(),
          .gathered = counters.as<unsigned>() + gathered_offset,
          .x_of = of,
          .w_of = of + experts(product),
          .y_of = pointers.as<void*>() + arrays + 2 * experts(product),
          .m = product.m,
          .x_scales = a_scales.floats(set),
          .w_scales = b_scales.of(set),
          .x_scale_row = x_scales.row,
          .x_scale_step = x_scales.column,
          .w_scale_expert = w_scales.expert,
          .w_scale_row = w_scales.row,
          .w_scale_step = w_scales.column,
          .bias = bias.of(set),
          .y_scales = d_scales.floats(set),
          .y_scale_row = y_scales.row,
          .y_scale_step = y_scales.column,
          .h = h.of(set),
          .x_again = product.gate_gradient ? x.of(set) : nullptr,
          .parts = product.gate_gradient ? d_sorted.as<float>() : nullptr,
          .w_zeros = b_zeros.of(set)};
}

GroupedGemm Operands::gemm(int set) const {
  return {.product = plain,
          .a = is_moved(product, product.a) ? a_sorted.data() : a.of(set),
          .b = is_moved(product, product.b) ? b_sorted.data() : b.of(set),
          .d = product.h && !product.bias     ? h.of(set)
               : is_moved(product, product.d) ? d_sorted.data()
                                              : d.of(set)};
}

ScaledGemm Operands::scaled_gemm(int set) const {
  return {.gemm = gemm(set),
          .a_scales = (a_lt_scales.stride > 0 ? a_lt_scales : a_scales).floats(set),
          .b_scales = (b_lt_scales.stride > 0 ? b_lt_scales : b_scales).floats(set)};
}

void Operands::sort_inputs(Services& services, int set, cudaStream_t stream) const {
  const auto sort = [&](const Operand& operand, const char* memory, const DeviceBuffer& rows, char* sorted,
                        const RowWeights& row_weights) {
    services.of(operand.type.dtype)
        .move_rows({.out = sorted,
                    .in = memory,
                    .from = rows.as<int>(),
                    .weights = row_weights,
                    .rows = routed_rows(product),
                    .width = operand.columns},
                   stream);
  };
  RowWeights a_weights;
  if (product.weighting == Weighting::a)
    a_weights = {.weights = weights.as<float>(), .slots = gather_indices.as<int>(), .rounded = false};
  if (is_moved(product, product.a)) sort(product.a, a.of(set), a_rows, a_sorted.data(), a_weights);
  if (is_moved(product, product.b)) sort(product.b, b.of(set), b_rows, b_sorted.data(), {});
}

void Operands::unsort_result(Services& services, int set, cudaStream_t stream) const {
  if (!is_moved(product, product.d)) return;
  if (sums_slots(product))
    return add_slots(services, weights_result(product) ? weights.as<float>() : nullptr, set, stream);
  if (takes_another_pass(product)) return finish(services, set, stream);
  if (is_finished(product)) {
    FinishedRows rows = finished_rows(set);
    rows.out = d.of(set), rows.sums = gemm(set).d, rows.from_fp32 = plain.d.type.dtype == Dtype::fp32;
    if (product.h && product.bias) rows.h = h.of(set);
    rows.to = d_rows.as<int>(), rows.weights = result_weights();
    rows.scales = d_scales.floats(set);
    return services.of(rows.scales ? plain.d.type.dtype : product.d.type.dtype).finish_rows(rows, stream);
  }
  services.of(product.d.type.dtype)
      .move_rows({.out = d.of(set),
                  .in = d_sorted.data(),
                  .from_fp32 = plain.d.type.dtype == Dtype::fp32,
                  .to = d_rows.as<int>(),
                  .weights = result_weights(),
                  .rows = routed_rows(product),
                  .width = product.d.columns},
                 stream);
}

}  // namespace moetune
