// Sizes, allocation and filling of operands.
#include "backend/cuda/operands.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/backend.h"
#include "base/units.h"

namespace moetune {
namespace {

constexpr int64_t kAlign = 256;  // of every set: what cudaMalloc gives
constexpr int64_t kMaxSets = 1024;
constexpr int64_t kSpareBytes = int64_t{768} << 20;  // for kernels, graphs, cuBLAS and the driver
constexpr int kColdFactor = 3;

// Never nothing: an operand without rows still has an address.
int64_t aligned(int64_t bytes) { return std::max(kAlign, (bytes + kAlign - 1) / kAlign * kAlign); }

template <class T>
DeviceBuffer upload(const std::vector<T>& values) {
  DeviceBuffer buffer(std::max<int64_t>(1, static_cast<int64_t>(values.size() * sizeof(T))));
  if (!values.empty())
    require(cudaMemcpy(buffer.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
            "cannot copy to the device");
  return buffer;
}

// Where each expert's X, W and Y begin, set by set. Null for what the router mixes: gathered X, scattered Y.
std::vector<const char*> expert_pointers(const Operands& o) {
  const Shape& shape = o.problem.shape;
  const int64_t element = size_bytes(shape.layer.dtype), n = shape.layer.n, k = shape.layer.k;
  std::vector<const char*> pointers;
  for (int set = 0; set < o.sets; ++set) {
    const auto append = [&](const char* base, bool mixed, auto bytes_of) {
      for (const int32_t rows : o.problem.routing.m_sizes) {
        pointers.push_back(mixed ? nullptr : base);
        base += bytes_of(rows) * element;
      }
    };
    append(o.x.data() + set * o.x_stride, shape.fusion.permute_x, [&](int64_t rows) { return rows * k; });
    append(o.w.data() + set * o.w_stride, false, [&](int64_t) { return n * k; });
    append(o.y_of(set), shape.fusion.permute_y, [&](int64_t rows) { return rows * n; });
  }
  return pointers;
}

int64_t slots(const Problem& p) { return p.routing.tokens * p.routing.top_k; }

}  // namespace

Operands make_operands(const Problem& p, const DeviceInfo& device, const Service& service, cudaStream_t stream) {
  const Layer& layer = p.shape.layer;
  const int64_t element = size_bytes(layer.dtype);
  Operands o;
  o.problem = p;
  o.x_stride = aligned(p.x_rows() * layer.k * element);
  o.w_stride = aligned(layer.local_experts() * layer.n * layer.k * element);
  o.y_stride = aligned(p.y_rows() * layer.n * element + kGuardBytes);
  const bool fused = p.shape.fusion.permute_x || p.shape.fusion.permute_y;
  const int64_t sorted_x = p.shape.fusion.permute_x ? aligned(p.rows() * layer.k * element) : 0;
  const int64_t sorted_y = fused ? aligned(p.rows() * layer.n * element) : 0;
  const int64_t references = 2 * aligned(p.rows() * layer.n * 4);

  const auto touched = static_cast<int64_t>(p.bytes());
  const int64_t set_bytes = o.x_stride + o.w_stride + o.y_stride;
  const int64_t cold = kColdFactor * device.cache_bytes;
  int64_t sets = p.rows() == 0 ? 2 : std::clamp<int64_t>((cold + touched - 1) / touched, 2, kMaxSets);
  size_t available = 0, total = 0;
  require(cudaMemGetInfo(&available, &total), "cannot read the free memory");
  const auto needed = [&](int64_t count) {
    return count * set_bytes + 2 * sorted_x + sorted_y + references + kSpareBytes;
  };
  if (needed(sets) > static_cast<int64_t>(available) && touched >= cold) sets = 1;
  if (needed(sets) > static_cast<int64_t>(available))
    throw OutOfMemory(
        fmt::format("needs {} of device memory, {} are free", format_bytes(static_cast<double>(needed(sets))),
                    format_bytes(static_cast<double>(available))),
        needed(sets));
  o.sets = static_cast<int>(sets);
  o.x = DeviceBuffer(sets * o.x_stride);
  o.w = DeviceBuffer(sets * o.w_stride);
  o.y = DeviceBuffer(kGuardBytes + sets * o.y_stride);
  o.m_sizes = upload(p.routing.m_sizes);
  o.gather_indices = upload(p.routing.gather_indices);
  o.pointers = upload(expert_pointers(o));
  const int64_t arrivals = first_arrival + int64_t{arrivals_per_sm} * device.processors;
  o.counters = upload(std::vector<int32_t>(static_cast<size_t>(arrivals + p.rows() / gathered_together + 1)));
  o.gathered_offset = arrivals;
  o.weights = DeviceBuffer(aligned(slots(p) * 4));
  service.fill(o.weights.data(), slots(p), Values::random, p.seed, kStreamWeights, stream);
  if (sorted_x > 0) o.x_sorted = DeviceBuffer(sorted_x), o.x_gathered = DeviceBuffer(sorted_x);
  if (sorted_y > 0) o.y_sorted = DeviceBuffer(sorted_y);
  for (int set = 0; set < o.sets; ++set) o.fill(service, Values::random, set, stream);
  return o;
}

void Operands::fill(const Service& service, Values values, int set, cudaStream_t stream) const {
  const Layer& layer = problem.shape.layer;
  const uint64_t seed = problem.seed + static_cast<uint64_t>(set);
  service.fill(x.data() + set * x_stride, problem.x_rows() * layer.k, values, seed, kStreamX, stream);
  service.fill(w.data() + set * w_stride, layer.local_experts() * layer.n * layer.k, values, seed, kStreamW, stream);
}

char* Operands::y_of(int set) const { return y.data() + kGuardBytes + set * y_stride; }

const float* Operands::weights_or_null() const {
  return problem.shape.fusion.topk_weights ? weights.as<float>() : nullptr;
}

Args Operands::args(int set) const {
  const Layer& layer = problem.shape.layer;
  const int64_t arrays = set * 3 * layer.local_experts();
  const auto* const of = pointers.as<const void*>() + arrays;
  return {.x = x.data() + set * x_stride,
          .w = w.data() + set * w_stride,
          .y = y_of(set),
          .m_sizes = m_sizes.as<int>(),
          .gather_indices = gather_indices.as<int>(),
          .topk_weights = weights.as<float>(),
          .n = layer.n,
          .k = layer.k,
          .experts = static_cast<int>(layer.local_experts()),
          .top_k = static_cast<int>(layer.top_k),
          .counters = counters.as<unsigned>(),
          .gathered_x = x_gathered.data(),
          .gathered = counters.as<unsigned>() + gathered_offset,
          .x_of = of,
          .w_of = of + layer.local_experts(),
          .y_of = pointers.as<void*>() + arrays + 2 * layer.local_experts()};
}

GroupedGemm Operands::gemm(int set) const {
  const Layer& layer = problem.shape.layer;
  const Fusion& fusion = problem.shape.fusion;
  return {.x = fusion.permute_x ? x_sorted.data() : x.data() + set * x_stride,
          .w = w.data() + set * w_stride,
          .y = fusion.permute_y ? y_sorted.data() : y_of(set),
          .m_sizes = &problem.routing.m_sizes,
          .n = layer.n,
          .k = layer.k,
          .dtype = layer.dtype,
          .result_dtype = layer.dtype};
}

}  // namespace moetune
