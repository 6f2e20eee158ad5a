// Recorded router loads from JSON, CSV and NumPy files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "workload/routing/routing.h"

namespace moetune {

/// One recorded layer: rows per expert, or the chosen experts themselves (then m_sizes is counted from them).
struct TraceLayer {
  std::string name;               // "1"
  int64_t tokens = 0;             // recorded; m_sizes sum to tokens * top_k, or less if rows had no expert
  std::vector<int32_t> m_sizes;   // [experts]
  std::vector<int32_t> topk_ids;  // [tokens * top_k], or empty where only rows are known
};

struct Trace {
  int64_t experts = 0;
  int64_t top_k = 0;
  std::vector<TraceLayer> layers;
};

/// Reads a trace; the kind follows the extension.
///   .json  {"experts", "top_k", "tokens", "layers": {name: rows per expert}} or {..., "topk_ids": {name: [[id]]}};
///          {"loads": [{"name", "counts"}]} is read too where tokens and top_k are given or deducible, and SGLang's
///          {"logical_count": [layers][experts]}, also as a list alone. With tokens, rows may be averages, and less
///   .csv   a header `layer,expert,rows` (rows per expert) or `layer,token,slot,expert` (chosen experts); the layer
///          column may be absent. A comment line `# tokens=..., top_k=..., experts=...` gives what can't be deduced
///   .npy   int16/int32/int64/uint8.. [tokens, layers, top_k] or [tokens, top_k] chosen experts, C or Fortran order,
///          little endian; experts = the largest id + 1 unless `experts` says more. Fewer tokens than layers are
///          refused: layers may come first
/// `experts` and `top_k` (0 = unknown) are what the layer of the sweep has; a contradiction is an error, as are a sum
/// over tokens * top_k, an expert with more rows than tokens, an id out of range or twice in a token. Errors
/// name file and place.
Trace read_trace(const std::filesystem::path& path, int64_t experts = 0, int64_t top_k = 0);

/// The file that a trace spec is read from: as it names it, or in its folder. It may be missing or a built-in name.
std::filesystem::path trace_file(const RoutingSpec& spec);

/// The layer called `name`; an error names the nearest.
const TraceLayer& find_layer(const Trace& trace, const std::string& name, const std::filesystem::path& path);

/// Rows per expert scaled to a sum of `rows` (largest remainder), none over `tokens`.
std::vector<int32_t> scale_rows(const std::vector<int32_t>& m_sizes, int64_t tokens, int64_t rows);

}  // namespace moetune
