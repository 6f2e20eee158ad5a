// Checks of recorded layers of every file format.
#include "workload/routing/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text/text.h"
#include "workload/routing/routing.h"
#include "workload/shape.h"

namespace moetune {
namespace {

// top_k from tokens or tokens from top_k: whichever is missing.
void deduce(const std::string& where, int64_t sum, int64_t experts, int64_t& tokens, int64_t& top_k) {
  if (tokens == 0 && top_k == 0)
    throw request_error(fmt::format("{}: neither tokens nor top_k is known", where), "write them into the recording");
  const bool both = tokens != 0 && top_k != 0;
  const std::string given = both ? fmt::format("{} tokens with top_k {} make {}", tokens, top_k, tokens * top_k)
                            : tokens != 0 ? fmt::format("that is not a multiple of {} tokens", tokens)
                                          : fmt::format("that is not a multiple of top_k {}", top_k);
  if (tokens == 0) tokens = sum / top_k;
  if (top_k == 0) top_k = sum / tokens;
  if (both ? sum > tokens * top_k : sum != tokens * top_k)
    throw request_error(
        fmt::format("{}: rows sum to {}, but {}", where, sum, given),
        both ? ""
             : "where rows were dropped, write their number of tokens: {\"tokens\": N, \"logical_count\": [...]}, or "
               "# tokens=N in CSV");
  if (sum == 0) throw request_error(fmt::format("{}: records no rows", where));
  if (top_k > experts)
    throw request_error(fmt::format("{}: top_k {} is more than the {} experts", where, top_k, experts));
}

}  // namespace

int64_t agreed(const std::string& where, std::string_view what, int64_t recorded, int64_t wanted) {
  if (recorded != 0 && wanted != 0 && recorded != wanted)
    throw request_error(fmt::format("{}: {}: the recording has {}, the layer {}", where, what, recorded, wanted),
                        "a recording fits layers of its own model only");
  return recorded != 0 ? recorded : wanted;
}

void require_known(const std::string& where, int64_t seen, int64_t experts) {
  if (seen > experts)
    throw request_error(
        fmt::format("{}: expert {} is recorded, but the layer has {} experts", where, seen - 1, experts),
        fmt::format(
            "a recording fits layers of its own model only; if those from {} on compute nothing, as in LongCat, "
            "add --zero-experts {}",
            experts, seen - experts));
}

TraceLayer layer_from_rows(const std::string& where, std::string name, std::vector<int32_t> m_sizes, int64_t tokens,
                           int64_t& top_k) {
  const auto sum = std::accumulate(m_sizes.begin(), m_sizes.end(), int64_t{0});
  deduce(where, sum, static_cast<int64_t>(m_sizes.size()), tokens, top_k);
  const auto most = std::ranges::max_element(m_sizes);
  if (*most > tokens)
    throw request_error(
        fmt::format("{}: expert {} has {} rows, more than the {} tokens", where, most - m_sizes.begin(), *most, tokens),
        "no token picks an expert twice");
  return {std::move(name), tokens, std::move(m_sizes), {}};
}

TraceLayer layer_from_ids(const std::string& where, std::string name, std::vector<int32_t> ids, int64_t top_k,
                          int64_t experts) {
  const int64_t tokens = static_cast<int64_t>(ids.size()) / top_k;
  try {
    Routing routing = routing_from_ids(ids, tokens, top_k, experts);
    return {std::move(name), tokens, std::move(routing.m_sizes), std::move(ids)};
  } catch (const Error& error) {
    throw request_error(fmt::format("{}: {}", where, error.what()), error.hint());
  }
}

void add_layer(Trace& trace, TraceLayer layer, const std::string& where) {
  if (layer.name.empty() || layer.name.find('#') != std::string::npos)
    throw request_error(fmt::format("{}: a layer cannot be called '{}'", where, layer.name));
  if (!is_printable(layer.name))
    throw request_error(fmt::format("{}: the layer name '{}' has characters that cannot be printed", where, layer.name),
                        "rename the layer: its name becomes a part of the cell's name");
  for (const TraceLayer& other : trace.layers)
    if (other.name == layer.name) throw request_error(fmt::format("{}: there are two layers '{}'", where, layer.name));
  if (trace.layers.size() == kMaxTraceLayers)
    throw request_error(fmt::format("{}: more than {} layers", where, kMaxTraceLayers));
  trace.layers.push_back(std::move(layer));
}

}  // namespace moetune
