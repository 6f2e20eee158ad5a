// What the router did: rows per expert, and where each row comes from.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace moetune {

/// How tokens are spread over experts: a name and its numbers, or a recording.
struct RoutingSpec {
  std::string name = "uniform";    // see routing_kinds()
  std::vector<double> parameters;  // zipf:1.0 has one, hot:4:0.9 two
  std::string file;                // trace only
  std::string layer;               // trace only: one recorded layer; empty = all, one cell a layer
  std::string folder = {};         // trace only: searched where `file` isn't found; not compared or written
  int64_t shared = 0;              // the last experts, which every token picks beside those of the router

  bool operator==(const RoutingSpec& other) const {
    return name == other.name && parameters == other.parameters && file == other.file && layer == other.layer &&
           shared == other.shared;
  }
};

struct RoutingKind {
  std::string name;         // "zipf"
  std::string usage;        // "zipf:a"
  std::string description;  // one line, with the parameter's range and default
};
std::vector<RoutingKind> routing_kinds();

/// "zipf:1.0", "hot:4:0.9", "trace:loads.json#3", "shared:1:zipf:1.0". Wrong words, counts and ranges are Exit::request
/// errors.
RoutingSpec parse_routing(std::string_view text);

/// The shortest text that parses back to the same spec: "zipf:1".
std::string text(const RoutingSpec& spec);

/// One realised routing of `tokens` tokens. Flat slot = token * top_k + slot.
struct Routing {
  int64_t tokens = 0;
  int64_t top_k = 0;
  std::vector<int32_t> m_sizes;              // [experts of the rank] rows per expert; zeros are legal
  std::vector<int32_t> gather_indices = {};  // [rows] flat slot of each row in expert order (stable argsort by expert)

  int64_t rows() const { return static_cast<int64_t>(gather_indices.size()); }
  bool operator==(const Routing&) const = default;
};

/// The most rows (tokens * top_k) of a routing.
inline constexpr int64_t kMaxRows = int64_t{1} << 28;

/// Throws Exit::request for sizes that no routing has: any below 1, top_k > experts, experts > kMaxExperts, more than
/// kMaxRows rows.
void require_sizes(int64_t tokens, int64_t experts, int64_t top_k);

/// A pure function of its arguments: the same bits on every machine. No token gets an expert twice.
/// experts, top_k and tokens as in the whole model. Errors: top_k > experts, tokens < 1 (Exit::request), a trace that
/// does not fit.
Routing generate_routing(const RoutingSpec& spec, int64_t tokens, int64_t experts, int64_t top_k, uint64_t seed);

/// A trace that names no layer -> one spec a recorded layer, in the file's order; any other spec -> itself.
/// experts and top_k are those of the layer of the sweep. Errors: the trace cannot be read or does not fit.
std::vector<RoutingSpec> expand(const RoutingSpec& spec, int64_t experts, int64_t top_k);

/// Tokens that a trace's layer was recorded with; 0 for any other kind. Errors as for expand; also where the spec names
/// no layer and the layers differ.
int64_t recorded_tokens(const RoutingSpec& spec, int64_t experts, int64_t top_k);

/// Figures of realised rows that decide which kernel wins.
struct RoutingFigures {
  int64_t rows = 0;
  int64_t active_experts = 0;  // with at least one row
  int64_t max_rows = 0;
  double max_over_mean = 0;      // mean over all experts of the rank
  double cv = 0;                 // standard deviation over mean
  double effective_experts = 0;  // inverse Simpson: (sum m)^2 / sum m^2
};
RoutingFigures figures(const Routing& routing);
Json to_json(const RoutingFigures& figures);

/// Rows per expert -> a routing. Rows are given to consecutive tokens, expert after expert, so that no token gets an
/// expert twice. m_sizes must sum to at most tokens * top_k with no value over tokens.
Routing routing_from_rows(const std::vector<int32_t>& m_sizes, int64_t tokens, int64_t top_k);

/// Chosen experts -> a routing. topk_ids [tokens * top_k], each in [0, experts), no expert twice in a token.
Routing routing_from_ids(const std::vector<int32_t>& topk_ids, int64_t tokens, int64_t top_k, int64_t experts);

/// The part of a routing that falls on experts [0, experts).
Routing first_experts(const Routing& routing, int64_t experts);

Json to_json(const Routing& routing);
Routing routing_from_json(const JsonAt& json);

}  // namespace moetune
