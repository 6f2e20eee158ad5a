// Checks of operands, buffers and launches.
#include "variant/pack/launch_json.h"

#include <fmt/format.h>

#include <stdexcept>

namespace moetune {
namespace {

using moetune_kernels::Formula;
using moetune_kernels::Sizes;

void require_pointer(const JsonAt& json, const LaunchNames& names) {
  if (!names.pointers.contains(json.string()))
    json.fail(fmt::format("no operand or buffer is called '{}'", json.string()));
}

void require_map(const JsonAt& map, const LaunchNames& names) {
  const auto require = [&](const JsonAt& formula) { require_formula(formula, names.sizes); };
  require_pointer(map["pointer"], names);
  each(map["sizes"], require);
  each(map["strides"], require);
  if (map["strides"].size() + 1 != map["sizes"].size()) map["strides"].fail("expected one stride fewer than sizes");
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
    each(operand["shape"], [&](const JsonAt& side) { require_formula(side, names.sizes); });
  });
}

void require_buffers(const JsonAt& buffers, LaunchNames& names) {
  each(buffers, [&](const JsonAt& buffer) {
    add_name(buffer["name"], names);
    require_formula(buffer["bytes"], names.sizes);
  });
}

void require_argument(const JsonAt& argument, const LaunchNames& names) {
  if (!argument.has("struct")) {
    require_value(argument, names);
    return;
  }
  const JsonAt whole = argument["struct"];
  const int64_t size = whole["size"].integer();
  each(whole["fields"], [&](const JsonAt& field) {
    const int64_t width = require_value(field, names);
    field["offset"].integer(0, size - width);
  });
}

void require_grid_and_arguments(const JsonAt& launch, const LaunchNames& names) {
  require_formula(launch["grid"], names.sizes);
  each(launch["arguments"], [&](const JsonAt& argument) { require_argument(argument, names); });
}

void require_launch(const JsonAt& launch, const LaunchNames& names, const JsonAt& files) {
  if (launch.has("fill")) {
    const JsonAt fill = launch["fill"];
    require_pointer(fill["pointer"], names);
    return require_formula(fill["bytes"], names.sizes);
  }
  const JsonAt cubins = launch["cubin"];
  for (const auto& [arch, file] : cubins.value().items())
    if (!files.has(cubins[arch].string()))
      cubins[arch].fail(fmt::format("'{}' is not among files", cubins[arch].string()));
  require_grid_and_arguments(launch, names);
}

}  // namespace moetune
