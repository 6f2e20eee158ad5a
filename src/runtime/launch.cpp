// Checks and evaluation of operands, buffers and launches.
#include "runtime/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace moetune {
namespace {

constexpr int kMapBytes = 128;  // of a CUtensorMap
constexpr int64_t kMaxBlocks = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxBytes = int64_t{1} << 46;  // more than any device has

// The name of an operand or a buffer, which must be among `names` where these are given.
std::string pointer_in(const JsonAt& value, const LaunchNames* names) {
  const JsonAt pointer = value["pointer"];
  if (names && !names->pointers.contains(pointer.string()))
    pointer.fail(fmt::format("no operand or buffer is called '{}'", pointer.string()));
  return pointer.string();
}

void add_name(const JsonAt& name, LaunchNames& names) {
  if (!names.pointers.emplace(name.string(), "").second) name.fail(fmt::format("'{}' appears twice", name.string()));
}

// Refuses a formula that is out of range for small sizes and for large ones.
void require_range(const JsonAt& formula, const LaunchNames& names, int64_t low, const std::string& high,
                   std::string_view what) {
  Sizes large = names.sizes;
  for (auto& [name, size] : large) size *= 4096;
  const auto legal = [&](const Sizes& sizes) {
    const int64_t value = evaluate(formula, sizes);
    return value >= low && value <= Formula::evaluate(high, sizes);
  };
  if (!legal(names.sizes) && !legal(large)) formula.fail(fmt::format("{} must be {} to {}", what, low, high));
}

// Appends or writes a scalar at `offset`.
template <typename T>
void put(const T& scalar, size_t offset, LaunchArgument& argument) {
  argument.bytes.resize(std::max(argument.bytes.size(), offset + sizeof scalar));
  std::memcpy(argument.bytes.data() + offset, &scalar, sizeof scalar);
}

MapShape map_of(const JsonAt& map, const Sizes& sizes, const LaunchNames* names) {
  if (map["strides"].size() + 1 != map["sizes"].size()) map["strides"].fail("expected one stride fewer than sizes");
  const auto all = [&](const char* key) {
    std::vector<uint64_t> values;
    each(map[key], [&](const JsonAt& formula) { values.push_back(static_cast<uint64_t>(evaluate(formula, sizes))); });
    return values;
  };
  const JsonAt box = map["box"];
  return {.pointer = pointer_in(map, names),
          .dtype = map["dtype"].string(),
          .sizes = all("sizes"),
          .strides = all("strides"),
          .box_columns = static_cast<int>(box[size_t{0}].integer()),
          .box_rows = static_cast<int>(box[size_t{1}].integer()),
          .l2_promotion = static_cast<int>(map["l2_promotion"].integer())};
}

void put_value(const JsonAt& value, size_t offset, const Sizes& sizes, const LaunchNames* names,
               LaunchArgument& argument) {
  if (value.has("pointer")) {
    argument.pointers.push_back({offset, pointer_in(value, names)});
    put(uint64_t{0}, offset, argument);
  } else if (value.has("int32")) {
    const int64_t number = evaluate(value["int32"], sizes);
    if (number != static_cast<int32_t>(number)) value["int32"].fail(fmt::format("is {}: over 32 bits", number));
    put(static_cast<int32_t>(number), offset, argument);
  } else if (value.has("int64")) {
    put(evaluate(value["int64"], sizes), offset, argument);
  } else {
    argument.maps.push_back({offset, map_of(value["tensor_map"], sizes, names)});
    put(std::array<unsigned char, kMapBytes>{}, offset, argument);
  }
}

int64_t bytes_of(const JsonAt& formula, const Sizes& sizes) {
  const int64_t bytes = evaluate(formula, sizes);
  if (bytes < 0 || bytes > kMaxBytes) formula.fail(fmt::format("is {} bytes: expected 0 to 2^46", bytes));
  return bytes;
}

}  // namespace

int closeness(std::string_view arch, int capability) {
  const bool exact = arch.ends_with('a');
  const std::string_view digits = arch.substr(std::min<size_t>(3, arch.size()), arch.size() - 3 - exact);
  int number = 0;
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (!arch.starts_with("sm_") || fault != std::errc() || end != digits.data() + digits.size()) return 0;
  const bool runs = exact ? number == capability : number / 10 == capability / 10 && number <= capability;
  return runs ? 2 * number + exact : 0;
}

Sizes any_sizes() {
  Sizes sizes;
  for (const char* name :
       {"m",       "n",           "k",      "experts", "top_k",      "tokens",     "slots",        "rows",
        "x_rows",  "w_rows",      "y_rows", "held",    "blocks",     "processors", "first_expert", "type",
        "sigmoid", "renormalize", "scale",  "groups",  "top_groups", "per_output", "interleaved"})
    sizes[name] = 1;
  for (const char* name : kScaleStrides) sizes[name] = 1;
  return sizes;
}

void require_operands(const JsonAt& operands, LaunchNames& names) {
  each(operands, [&](const JsonAt& operand) {
    add_name(operand["name"], names);
    each(operand["shape"], [&](const JsonAt& side) { evaluate(side, names.sizes); });
    if (!operand.has("strides")) return;
    each(operand["strides"], [](const JsonAt& stride) {
      if (!contains(kScaleStrides, stride.string()))
        stride.fail(fmt::format("'{}' is not a distance of scales", stride.string()),
                    fmt::format("these are {}; others lie row by row", fmt::join(kScaleStrides, ", ")));
    });
    if (operand["strides"].size() != operand["shape"].size()) operand["strides"].fail("expected one for each side");
  });
}

void require_buffers(const JsonAt& buffers, LaunchNames& names) {
  each(buffers, [&](const JsonAt& buffer) {
    add_name(buffer["name"], names);
    names.pointers[buffer["name"].string()] = buffer["bytes"].string();
    require_range(buffer["bytes"], names, 0, std::to_string(kMaxBytes), "bytes of a buffer");
  });
}

void require_grid_and_arguments(const JsonAt& launch, const LaunchNames& names) {
  require_range(launch["grid"], names, 1, std::to_string(kMaxBlocks), "blocks of a grid");
  if (launch["arguments"].size() == 0) launch["arguments"].fail("a kernel takes arguments");
  each(launch["arguments"], [&](const JsonAt& argument) { argument_of(argument, names.sizes, &names); });
}

void require_launch(const JsonAt& launch, const LaunchNames& names, const JsonAt& files) {
  if (launch.has("fill")) {
    const JsonAt fill = launch["fill"];
    const std::string& room = names.pointers.at(pointer_in(fill, &names));
    return require_range(fill["bytes"], names, 0, room.empty() ? std::to_string(kMaxBytes) : room, "bytes to fill");
  }
  const JsonAt cubins = launch["cubin"];
  for (const auto& [arch, file] : cubins.value().items())
    if (!files.has(cubins[arch].string()))
      cubins[arch].fail(fmt::format("'{}' is not among files", cubins[arch].string()));
  require_grid_and_arguments(launch, names);
}

int64_t evaluate(const JsonAt& formula, const Sizes& sizes) {
  try {
    return Formula::evaluate(formula.string(), sizes);
  } catch (const std::invalid_argument& error) {
    formula.fail(error.what());
  }
}

int64_t grid_of(const JsonAt& launch, const Sizes& sizes) {
  const int64_t grid = evaluate(launch["grid"], sizes);
  if (grid < 1 || grid > kMaxBlocks) launch["grid"].fail(fmt::format("is {} blocks: expected 1 to 2^31 - 1", grid));
  return grid;
}

LaunchArgument argument_of(const JsonAt& json, const Sizes& sizes, const LaunchNames* names) {
  LaunchArgument argument;
  if (!json.has("struct")) {
    put_value(json, 0, sizes, names, argument);
    return argument;
  }
  const JsonAt whole = json["struct"];
  const int64_t size = whole["size"].integer();
  argument.bytes.resize(static_cast<size_t>(size));
  each(whole["fields"], [&](const JsonAt& field) {
    const int64_t offset = field["offset"].integer(0, size);
    put_value(field, static_cast<size_t>(offset), sizes, names, argument);
    if (const int64_t end = std::ssize(argument.bytes); end > size) field["offset"].integer(0, size - (end - offset));
  });
  return argument;
}

std::vector<LaunchBuffer> buffers_of(const JsonAt& buffers, const Sizes& sizes) {
  std::vector<LaunchBuffer> list;
  each(buffers, [&](const JsonAt& buffer) {
    list.push_back({buffer["name"].string(), bytes_of(buffer["bytes"], sizes), buffer["zeroed"].boolean()});
  });
  return list;
}

LaunchFill fill_of(const JsonAt& fill, const Sizes& sizes, int64_t room) {
  const int64_t bytes = bytes_of(fill["bytes"], sizes);
  if (room >= 0 && bytes > room)
    fill["bytes"].fail(fmt::format("is {} bytes, and '{}' has {}", bytes, fill["pointer"].string(), room));
  return {fill["pointer"].string(), static_cast<int>(fill["byte"].integer()), bytes};
}

}  // namespace moetune
