// Arrays of integers in NumPy's .npy format, and the recordings in them: chosen experts [tokens, layers, top_k] or
// [tokens, top_k].
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "workload/routing/recording.h"
#include "workload/routing/routing.h"
#include "workload/shape.h"

namespace moetune {
namespace {

struct Sizes {
  int64_t tokens, layers, top_k;
};

Sizes sizes_of(const NpyArray& array) {
  const std::vector<int64_t>& shape = array.shape;
  const bool flat = shape.size() == 2;
  if (!flat && shape.size() != 3)
    throw request_error(fmt::format("has {} dimensions", shape.size()),
                        "expected [tokens, layers, top_k] or [tokens, top_k]");
  const Sizes sizes{shape[0], flat ? 1 : shape[1], shape.back()};
  if (std::ranges::count(shape, 0) > 0)
    throw request_error(fmt::format("a shape of ({}) records nothing", fmt::join(shape, ", ")));
  if (sizes.tokens < sizes.layers)
    throw request_error(
        fmt::format("a shape of ({}) may be [layers, tokens, top_k] or [tokens, layers, top_k]",
                    fmt::join(shape, ", ")),
        "if layers come first, save array.transpose(1, 0, 2); if tokens do, save array[:, LAYER] for a layer, which is "
        "[tokens, top_k]");
  if (sizes.layers > static_cast<int64_t>(kMaxTraceLayers))
    throw request_error(fmt::format("{} layers, moetune takes at most {}", sizes.layers, kMaxTraceLayers));
  if (sizes.top_k > kMaxExperts || sizes.tokens > kMaxRows / sizes.top_k)
    throw request_error(
        fmt::format("{} tokens with top_k {} are more than {} rows", sizes.tokens, sizes.top_k, kMaxRows));
  return sizes;
}

std::vector<int32_t> ids_of(const NpyArray& array, const std::string& bytes, const Sizes& sizes, int64_t layer) {
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(sizes.tokens * sizes.top_k));
  for (int64_t token = 0; token < sizes.tokens; ++token)
    for (int64_t slot = 0; slot < sizes.top_k; ++slot) {
      const int64_t id = element(array, bytes, (token * sizes.layers + layer) * sizes.top_k + slot);
      if (id < 0 || id >= kMaxExperts)
        throw request_error(fmt::format("token {}, layer {}, slot {}: {} is not an expert", token, layer, slot, id),
                            id == -1 ? "-1 often pads: leave those tokens out" : "");
      ids.push_back(static_cast<int32_t>(id));
    }
  return ids;
}

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxDimensions = 8;

// Bytes of `bytes` from `offset`, least significant first. The caller has checked the length.
uint64_t little_endian(const std::string& bytes, size_t offset, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= uint64_t{static_cast<unsigned char>(bytes[offset + i])} << (8 * i);
  return value;
}

// What follows "'key':" in the header, a Python dict literal, without white space before it.
std::string_view value_of(std::string_view header, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = fmt::format("{}{}{}", quote, key, quote);
    const size_t at = header.find(quoted);
    if (at == std::string_view::npos) continue;
    size_t begin = header.find_first_not_of(" \t", at + quoted.size());
    if (begin == std::string_view::npos || header[begin] != ':') continue;
    begin = header.find_first_not_of(" \t", begin + 1);
    if (begin != std::string_view::npos) return header.substr(begin);
  }
  throw request_error(fmt::format("the .npy header has no '{}'", key));
}

void read_descr(std::string_view header, NpyArray& array) {
  std::string_view value = value_of(header, "descr");
  const size_t end = value.find(value.front(), 1);
  // A '[' begins a record type: numbers of several fields.
  const std::string_view descr = (value.front() == '\'' || value.front() == '"') && end != std::string_view::npos
                                     ? value.substr(1, end - 1)
                                     : value.substr(0, 16);
  constexpr std::string_view kKnown[] = {"|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8"};
  if (!contains(kKnown, descr))
    throw request_error(fmt::format("elements of type '{}' are not whole numbers that moetune reads", descr),
                        "save it with array.astype('<i4')");
  array.is_signed = descr[1] == 'i';
  array.item_bytes = static_cast<size_t>(descr[2] - '0');
}

std::vector<int64_t> read_shape(std::string_view header) {
  const Error wrong = request_error("the shape in the .npy header cannot be read");
  std::string_view rest = value_of(header, "shape");
  if (rest.front() != '(') throw wrong;
  rest = rest.substr(1, rest.find(')') - 1);
  std::vector<int64_t> shape;
  while ((rest = rest.substr(std::min(rest.find_first_not_of(" \t,"), rest.size()))) != "") {
    int64_t size = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), size);
    if (error != std::errc() || size < 0 || shape.size() == kMaxDimensions) throw wrong;
    shape.push_back(size);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  }
  return shape;
}

// Elements of the shape; nothing where the number does not fit.
std::optional<int64_t> element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size > 0 && count > std::numeric_limits<int64_t>::max() / 8 / size) return std::nullopt;
    count *= size;
  }
  return count;
}

NpyArray array_of(const std::string& bytes) {
  if (!std::string_view(bytes).starts_with(kMagic) || bytes.size() < 12) throw request_error("expected a .npy file");
  const int version = static_cast<unsigned char>(bytes[6]);
  if (version < 1 || version > 3) throw request_error(fmt::format(".npy format version {} is unknown", version));
  const size_t length_bytes = version == 1 ? 2 : 4;
  const uint64_t length = little_endian(bytes, 8, length_bytes);
  NpyArray array;
  if (length > bytes.size() - 8 - length_bytes)
    throw request_error("the file ends within its header", "it may have been cut off");
  array.data = 8 + length_bytes + length;
  const std::string_view header = std::string_view(bytes).substr(8 + length_bytes, length);
  read_descr(header, array);
  array.shape = read_shape(header);
  if (!value_of(header, "fortran_order").starts_with("False"))
    throw request_error("the array is in Fortran order", "save it with numpy.ascontiguousarray(array)");
  const std::optional<int64_t> count = element_count(array.shape);
  const uint64_t found = bytes.size() - array.data;
  if (!count || static_cast<uint64_t>(*count) * array.item_bytes != found)
    throw request_error(
        fmt::format("a shape of ({}) asks for {} bytes of data, the file has {}", fmt::join(array.shape, ", "),
                    count ? std::to_string(static_cast<uint64_t>(*count) * array.item_bytes) : "too many", found),
        count && static_cast<uint64_t>(*count) * array.item_bytes < found ? "" : "it may have been cut off");
  return array;
}

Trace trace_of(const std::string& bytes, int64_t experts, int64_t top_k) {
  const NpyArray array = array_of(bytes);
  const Sizes sizes = sizes_of(array);
  Trace trace;
  trace.top_k = agreed("top_k", sizes.top_k, top_k);
  std::vector<std::vector<int32_t>> ids;
  int64_t seen = 0;
  for (int64_t layer = 0; layer < sizes.layers; ++layer) {
    ids.push_back(ids_of(array, bytes, sizes, layer));
    seen = std::max<int64_t>(seen, *std::ranges::max_element(ids.back()) + 1);
  }
  trace.experts = experts == 0 ? seen : experts;
  require_known(seen, trace.experts);
  for (size_t layer = 0; layer < ids.size(); ++layer) {
    const std::string name = std::to_string(layer);
    with_place(Where::of_option("layer " + name),
               [&] { add_layer(trace, layer_from_ids(name, std::move(ids[layer]), trace.top_k, trace.experts)); });
  }
  return trace;
}

}  // namespace

Trace trace_from_npy(const std::string& bytes, const Where& where, int64_t experts, int64_t top_k) {
  return with_place(where, [&] { return trace_of(bytes, experts, top_k); });
}

NpyArray read_npy(const std::string& bytes, const Where& where) {
  return with_place(where, [&] { return array_of(bytes); });
}

int64_t element(const NpyArray& array, const std::string& bytes, int64_t index) {
  const uint64_t value =
      little_endian(bytes, array.data + static_cast<size_t>(index) * array.item_bytes, array.item_bytes);
  // Two's complement of fewer bits: move the sign to the top and back.
  const int unused = static_cast<int>(64 - 8 * array.item_bytes);
  return array.is_signed ? static_cast<int64_t>(value << unused) >> unused : static_cast<int64_t>(value);
}

}  // namespace moetune
