// Checks of operands, buffers and launches.
#include "variant/pack/launch_json.h"

#include <fmt/format.h>

#include <stdexcept>

namespace moetune {
namespace {

using moetune_kernels::Formula;
using moetune_kernels::Sizes;

template <typename Read>
void each(const JsonAt& array, Read read) {
  for (size_t i = 0; i < array.size(); ++i) read(array[i]);
}

void require_pointer(const JsonAt& json, const LaunchNames& names) {
  if (!names.pointers.contains(json.string()))
    json.fail(fmt::format("no operand or buffer is called '{}'", json.string()));
}

void require_map(const JsonAt& map, const LaunchNames& names) {
  const auto require = [&](const JsonAt& formula) { require_formula(formula, names.sizes); };
  require_pointer(map["pointer"], names);
  if (map["dtype"].string() != "bf16" && map["dtype"].string() != "fp16") map["dtype"].fail("expected bf16 or fp16");
  each(map["sizes"], require);
  each(map["strides"], require);
  const size_t rank = map["sizes"].size();
  if (rank < 2 || rank > 5) map["sizes"].fail("expected 2 to 5 sizes");
  if (map["strides"].size() + 1 != rank) map["strides"].fail("expected one stride fewer than sizes");
  if (map["box"].size() != 2) map["box"].fail("expected two sides");
  each(map["box"], [](const JsonAt& side) { side.integer(1, 256); });
  map["swizzle"].integer(128, 128);
  if (map["l2_promotion"].integer() != 0) map["l2_promotion"].integer(128, 128);
}

int64_t require_value(const JsonAt& value, const LaunchNames& names) {
  if (value.has("pointer")) return require_pointer(value["pointer"], names), 8;
  if (value.has("int32")) return require_formula(value["int32"], names.sizes), 4;
  if (value.has("int64")) return require_formula(value["int64"], names.sizes), 8;
  require_map(value["tensor_map"], names);
  return 128;
}

void add_name(const JsonAt& name, LaunchNames& names) {
  if (!names.pointers.insert(name.string()).second) name.fail(fmt::format("'{}' appears twice", name.string()));
}

}  // namespace

Sizes any_sizes() {
  Sizes sizes;
  for (const char* name : {"m", "n", "k", "experts", "top_k", "tokens", "slots", "rows", "x_rows", "w_rows", "y_rows",
                           "held", "blocks", "processors", "first_expert"})
    sizes[name] = 1;
  return sizes;
}

void require_formula(const JsonAt& json, const Sizes& sizes) {
  try {
    Formula::evaluate(json.string(), sizes);
  } catch (const std::invalid_argument& error) {
    json.fail(error.what());
  }
}

void require_operands(const JsonAt& operands, LaunchNames& names) {
  each(operands, [&](const JsonAt& operand) {
    add_name(operand["name"], names);
    operand["dtype"].string();
    each(operand["shape"], [&](const JsonAt& side) { require_formula(side, names.sizes); });
    operand["access"].string();
  });
}

void require_buffers(const JsonAt& buffers, LaunchNames& names) {
  each(buffers, [&](const JsonAt& buffer) {
    add_name(buffer["name"], names);
    require_formula(buffer["bytes"], names.sizes);
    buffer["zeroed"].boolean();
  });
}

void require_argument(const JsonAt& argument, const LaunchNames& names) {
  if (!argument.has("struct")) {
    require_value(argument, names);
    return;
  }
  const JsonAt whole = argument["struct"];
  const int64_t size = whole["size"].integer(1, 4096);
  whole["alignment"].integer(1, 64);
  each(whole["fields"], [&](const JsonAt& field) {
    field["name"].string();
    const int64_t width = require_value(field, names);
    field["offset"].integer(0, size - width);
  });
}

void require_grid_and_arguments(const JsonAt& launch, const LaunchNames& names) {
  launch["cooperative"].boolean();
  require_formula(launch["grid"], names.sizes);
  each(launch["arguments"], [&](const JsonAt& argument) { require_argument(argument, names); });
}

void require_launch(const JsonAt& launch, const LaunchNames& names, const JsonAt& files) {
  if (launch.has("fill")) {
    const JsonAt fill = launch["fill"];
    require_pointer(fill["pointer"], names);
    fill["byte"].integer(0, 255);
    return require_formula(fill["bytes"], names.sizes);
  }
  const JsonAt cubins = launch["cubin"];
  if (!cubins.value().is_object()) cubins.fail("expected an object: a file for each architecture");
  for (const auto& [arch, file] : cubins.value().items())
    if (!files.has(cubins[arch].string()))
      cubins[arch].fail(fmt::format("'{}' is not among files", cubins[arch].string()));
  launch["entry"].string();
  launch["threads"].integer(1, 1024);
  launch["shared_bytes"].integer(0);
  launch["cluster"].integer(1, 16);
  if (launch.has("most_per_processor")) launch["most_per_processor"].integer(1);
  require_grid_and_arguments(launch, names);
}

}  // namespace moetune
