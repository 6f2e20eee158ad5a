// The readers of recorded routings, one for each file format, and the checks that they have in common.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "workload/routing/trace.h"

namespace moetune {

/// The most layers that a recording may have.
inline constexpr size_t kMaxTraceLayers = 1024;

/// The readers: `where` is the file's name for errors; experts and top_k are those of the sweep, 0 = unknown.
Trace trace_from_json(const JsonAt& json, int64_t experts, int64_t top_k);
Trace trace_from_csv(std::string_view text, const Where& where, int64_t experts, int64_t top_k);
Trace trace_from_npy(const std::string& bytes, const Where& where, int64_t experts, int64_t top_k);

/// Whichever number is known (0 = unknown); Exit::request where both are and differ: "experts: the recording has
/// 32, the layer 128".
int64_t agreed(std::string_view what, int64_t recorded, int64_t wanted);

/// Exit::request for a recorded expert that the layer lacks: `seen` is the largest number + 1.
void require_known(int64_t seen, int64_t experts);

/// A layer from rows per expert. tokens and top_k may be 0 = unknown; one is deduced from the other and the sum, and
/// top_k is set. Errors (Exit::request): a sum over tokens * top_k (rows that no expert computed may be
/// missing), or not a multiple of the one that is known, an expert with more rows than tokens.
TraceLayer layer_from_rows(std::string name, std::vector<int32_t> m_sizes, int64_t tokens, int64_t& top_k);

/// A layer from chosen experts [tokens * top_k], each < experts. Errors: an id out of range or twice in a token.
TraceLayer layer_from_ids(std::string name, std::vector<int32_t> ids, int64_t top_k, int64_t experts);

/// Appends the layer. Errors: a name that a routing's text cannot contain (empty, with '#', or not printable), a name
/// twice, too many layers.
void add_layer(Trace& trace, TraceLayer layer);

/// An array as it lies in the file: elements are decoded one by one.
struct NpyArray {
  std::vector<int64_t> shape;
  size_t data = 0;        // offset of the first element
  size_t item_bytes = 0;  // 1, 2, 4 or 8, little endian
  bool is_signed = false;
};

/// Reads the header of `bytes` (format versions 1 to 3; numpy.lib.format) and checks that the data are all there.
/// Takes |u1 |i1 <u2 <i2 <u4 <i4 <u8 <i8 in C order. Errors (Exit::request) name `where`.
NpyArray read_npy(const std::string& bytes, const Where& where);

/// The element at `index` in C order, within the shape. Unsigned values over 2^63 come out negative.
int64_t element(const NpyArray& array, const std::string& bytes, int64_t index);

}  // namespace moetune
