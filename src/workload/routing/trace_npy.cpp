// Recordings in .npy: chosen experts [tokens, layers, top_k] or [tokens, top_k].
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "workload/routing/npy.h"
#include "workload/routing/recording.h"
#include "workload/routing/routing.h"
#include "workload/shape.h"

namespace moetune {
namespace {

struct Sizes {
  int64_t tokens, layers, top_k;
  bool flat;  // two dimensions: no layers
};

Sizes sizes_of(const NpyArray& array, const std::string& where) {
  const std::vector<int64_t>& shape = array.shape;
  const bool flat = shape.size() == 2;
  if (!flat && shape.size() != 3)
    throw request_error(fmt::format("{}: has {} dimensions", where, shape.size()),
                        "expected [tokens, layers, top_k] or [tokens, top_k]");
  const Sizes sizes{shape[0], flat ? 1 : shape[1], shape.back(), flat};
  if (std::count(shape.begin(), shape.end(), 0) > 0)
    throw request_error(fmt::format("{}: a shape of ({}) records nothing", where, fmt::join(shape, ", ")));
  if (sizes.layers > static_cast<int64_t>(kMaxTraceLayers))
    throw request_error(fmt::format("{}: {} layers, moetune takes at most {}", where, sizes.layers, kMaxTraceLayers));
  if (sizes.top_k > kMaxExperts || sizes.tokens > kMaxRows / sizes.top_k)
    throw request_error(
        fmt::format("{}: {} tokens with top_k {} are more than {} rows", where, sizes.tokens, sizes.top_k, kMaxRows));
  return sizes;
}

std::vector<int32_t> ids_of(const NpyArray& array, const std::string& bytes, const Sizes& sizes, int64_t layer,
                            const std::string& where) {
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(sizes.tokens * sizes.top_k));
  for (int64_t token = 0; token < sizes.tokens; ++token)
    for (int64_t slot = 0; slot < sizes.top_k; ++slot) {
      const int64_t flat_index[] = {token, slot}, index[] = {token, layer, slot};
      const int64_t id = element(array, bytes, sizes.flat ? std::span<const int64_t>(flat_index) : index);
      if (id < 0 || id >= kMaxExperts)
        throw request_error(
            fmt::format("{}: token {}, layer {}, slot {}: {} is not an expert", where, token, layer, slot, id),
            id == -1 ? "-1 often pads: leave those tokens out" : "");
      ids.push_back(static_cast<int32_t>(id));
    }
  return ids;
}

}  // namespace

Trace trace_from_npy(const std::string& bytes, const std::string& where, int64_t experts, int64_t top_k) {
  const NpyArray array = read_npy(bytes, where);
  const Sizes sizes = sizes_of(array, where);
  Trace trace;
  trace.top_k = agreed(where, "top_k", sizes.top_k, top_k);
  std::vector<std::vector<int32_t>> ids;
  int64_t seen = 0;
  for (int64_t layer = 0; layer < sizes.layers; ++layer) {
    ids.push_back(ids_of(array, bytes, sizes, layer, where));
    seen = std::max<int64_t>(seen, *std::max_element(ids.back().begin(), ids.back().end()) + 1);
  }
  trace.experts = experts == 0 ? seen : experts;
  if (seen > trace.experts)
    throw request_error(
        fmt::format("{}: expert {} is recorded, but the layer has {} experts", where, seen - 1, experts),
        "a recording fits layers of its own model only");
  for (size_t layer = 0; layer < ids.size(); ++layer) {
    const std::string name = std::to_string(layer);
    const std::string place = fmt::format("{}: layer {}", where, name);
    add_layer(trace, layer_from_ids(place, name, std::move(ids[layer]), trace.top_k, trace.experts), place);
  }
  return trace;
}

}  // namespace moetune
