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
void deduce(int64_t sum, int64_t experts, int64_t& tokens, int64_t& top_k) {
  if (tokens == 0 && top_k == 0)
    throw request_error("neither tokens nor top_k is known", "write them into the recording");
  const bool both = tokens != 0 && top_k != 0;
  const std::string given = both ? fmt::format("{} tokens with top_k {} make {}", tokens, top_k, tokens * top_k)
                            : tokens != 0 ? fmt::format("that is not a multiple of {} tokens", tokens)
                                          : fmt::format("that is not a multiple of top_k {}", top_k);
  if (tokens == 0) tokens = sum / top_k;
  if (top_k == 0) top_k = sum / tokens;
  if (both ? sum > tokens * top_k : sum != tokens * top_k)
    throw request_error(
        fmt::format("rows sum to {}, but {}", sum, given),
        both ? ""
             : "where rows were dropped, write their number of tokens: {\"tokens\": N, \"logical_count\": [...]}, or "
               "# tokens=N in CSV");
  if (sum == 0) throw request_error("records no rows");
  if (top_k > experts) throw request_error(fmt::format("top_k {} is more than the {} experts", top_k, experts));
}

}  // namespace

int64_t agreed(std::string_view what, int64_t recorded, int64_t wanted) {
  if (recorded != 0 && wanted != 0 && recorded != wanted)
    throw request_error(fmt::format("the recording has {}, the layer {}", recorded, wanted),
                        "a recording fits only layers of the model that it was made from")
        .at(Where::of_option(what));
  return recorded != 0 ? recorded : wanted;
}

void require_known(int64_t seen, int64_t experts) {
  if (seen > experts)
    throw request_error(fmt::format("expert {} is recorded, but the layer has {} experts", seen - 1, experts),
                        fmt::format("a recording fits only layers of the model that it was made from; if those from {} "
                                    "on compute nothing, as in LongCat, "
                                    "add --zero-experts {}",
                                    experts, seen - experts));
}

TraceLayer layer_from_rows(std::string name, std::vector<int32_t> m_sizes, int64_t tokens, int64_t& top_k) {
  const auto sum = std::accumulate(m_sizes.begin(), m_sizes.end(), int64_t{0});
  deduce(sum, static_cast<int64_t>(m_sizes.size()), tokens, top_k);
  const auto most = std::ranges::max_element(m_sizes);
  if (*most > tokens)
    throw request_error(
        fmt::format("expert {} has {} rows, more than the {} tokens", most - m_sizes.begin(), *most, tokens),
        "no token picks an expert twice");
  return {std::move(name), tokens, std::move(m_sizes), {}};
}

TraceLayer layer_from_ids(std::string name, std::vector<int32_t> ids, int64_t top_k, int64_t experts) {
  const int64_t tokens = static_cast<int64_t>(ids.size()) / top_k;
  Routing routing = routing_from_ids(ids, tokens, top_k, experts);
  return {std::move(name), tokens, std::move(routing.m_sizes), std::move(ids)};
}

void add_layer(Trace& trace, TraceLayer layer) {
  if (layer.name.empty() || layer.name.find('#') != std::string::npos)
    throw request_error(fmt::format("a layer cannot be called '{}'", layer.name));
  if (!is_printable(layer.name))
    throw request_error(fmt::format("the layer name '{}' has characters that cannot be printed", layer.name),
                        "rename the layer: its name becomes a part of the cell's name");
  for (const TraceLayer& other : trace.layers)
    if (other.name == layer.name) throw request_error(fmt::format("there are two layers '{}'", layer.name));
  if (trace.layers.size() == kMaxTraceLayers) throw request_error(fmt::format("more than {} layers", kMaxTraceLayers));
  trace.layers.push_back(std::move(layer));
}

}  // namespace moetune
