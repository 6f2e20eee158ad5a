// Formulas of a manifest, evaluated.
#include "variant/pack/pack_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "base/error.h"
#include "kernels/args.h"

namespace moetune {
namespace {

using moetune_kernels::Formula;

int64_t evaluate(const Json& formula, const Sizes& sizes) {
  return Formula::evaluate(formula.get_ref<const std::string&>(), sizes);
}

int64_t bytes_of(const Json& formula, const Sizes& sizes, const std::string& what) {
  const int64_t bytes = evaluate(formula, sizes);
  if (bytes < 0) throw std::invalid_argument(fmt::format("'{}' has {} bytes: they must be 0 or more", what, bytes));
  return bytes;
}

std::vector<uint64_t> evaluate_all(const Json& formulas, const Sizes& sizes) {
  std::vector<uint64_t> values;
  for (const Json& formula : formulas) values.push_back(static_cast<uint64_t>(evaluate(formula, sizes)));
  return values;
}

MapShape map_shape(const Json& map, const Sizes& sizes) {
  return {.field = {},
          .pointer = map["pointer"],
          .dtype = parse_dtype(map["dtype"].get<std::string>()),
          .sizes = evaluate_all(map["sizes"], sizes),
          .strides = evaluate_all(map["strides"], sizes),
          .box_columns = map["box"][0],
          .box_rows = map["box"][1],
          .l2_promotion = map["l2_promotion"]};
}

// Writes a value at `offset` and returns its bytes.
size_t put(const Json& value, size_t offset, const Sizes& sizes, PackArgument& argument) {
  const auto copy = [&](const auto& scalar) {
    argument.bytes.resize(std::max(argument.bytes.size(), offset + sizeof scalar));
    std::memcpy(argument.bytes.data() + offset, &scalar, sizeof scalar);
    return sizeof scalar;
  };
  if (value.contains("pointer")) {
    argument.pointers.push_back({offset, value["pointer"]});
    return copy(uint64_t{0});
  }
  if (value.contains("int32")) return copy(static_cast<int32_t>(evaluate(value["int32"], sizes)));
  if (value.contains("int64")) return copy(evaluate(value["int64"], sizes));
  argument.maps.push_back({offset, map_shape(value["tensor_map"], sizes)});
  return copy(TensorMap{});
}

PackArgument argument_of(const Json& json, const Sizes& sizes) {
  PackArgument argument;
  if (!json.contains("struct")) {
    put(json, 0, sizes, argument);
    return argument;
  }
  const Json& whole = json["struct"];
  argument.bytes.resize(whole["size"]);
  for (const Json& field : whole["fields"]) put(field, field["offset"], sizes, argument);
  return argument;
}

// The candidate's launch takes from its binary what other launches say themselves.
PackStep kernel_of(const Json& launch, const Pack& pack, const PackBinary& binary, int capability) {
  PackStep step{.cooperative = launch["cooperative"]};
  std::map<std::string, std::string> files = binary.files;
  if (launch["cubin"].is_string()) {
    step.entry = binary.entry, step.threads = binary.threads, step.cluster = binary.cluster;
    step.shared_bytes = binary.shared_bytes;
  } else {
    files = launch["cubin"].get<std::map<std::string, std::string>>();
    step.entry = launch["entry"], step.threads = launch["threads"], step.cluster = launch["cluster"];
    step.shared_bytes = launch["shared_bytes"];
    if (launch.contains("most_per_processor") && !launch["most_per_processor"].is_null())
      step.most_per_processor = launch["most_per_processor"];
  }
  const std::string* file = file_for(pack, files, capability);
  if (!file)
    throw std::invalid_argument(fmt::format("the pack has no file with '{}' for compute capability {}.{}", step.entry,
                                            capability / 10, capability % 10));
  step.file = *file;
  return step;
}

PackStep fill_of(const Json& fill, const Sizes& sizes) {
  const std::string name = fill["pointer"];
  return {.filled = name, .byte = fill["byte"], .fill_bytes = bytes_of(fill["bytes"], sizes, name)};
}

int64_t grid_of(const Json& launch, const Sizes& sizes, const std::string& entry) {
  const int64_t grid = evaluate(launch["grid"], sizes);
  if (grid < 1 || grid > std::numeric_limits<int32_t>::max())
    throw std::invalid_argument(fmt::format("'{}' has a grid of {} blocks: it must have 1 to 2^31 - 1", entry, grid));
  return grid;
}

}  // namespace

PackLaunch pack_launch(const Pack& pack, const Candidate& candidate, Sizes sizes, int capability,
                       const HeldBlocks& held) {
  const PackBinary* binary = binary_of(pack, candidate.values);
  if (!binary) throw std::invalid_argument("the pack has no kernel that was compiled for these knobs");
  for (size_t i = 0; i < pack.knobs.size(); ++i) sizes[pack.knobs[i].name] = candidate.values[i];
  sizes["threads"] = binary->threads, sizes["shared_bytes"] = binary->shared_bytes;
  sizes["scratch_bytes"] = binary->scratch_bytes;
  PackLaunch result;
  for (const Json& launch : pack.launches) {
    if (launch.contains("fill")) {
      result.steps.push_back(fill_of(launch["fill"], sizes));
      continue;
    }
    PackStep step = kernel_of(launch, pack, *binary, capability);
    Sizes own = sizes;
    own["held"] = held(step);
    step.grid = grid_of(launch, own, step.entry);
    own["blocks"] = step.grid;
    for (const Json& argument : launch["arguments"]) step.arguments.push_back(argument_of(argument, own));
    if (launch["cubin"].is_string()) {
      for (const Json& argument : binary->trailing) step.arguments.push_back(argument_of(argument, own));
      for (const Json& buffer : pack.buffers) {
        const std::string name = buffer["name"];
        result.buffers.push_back({name, bytes_of(buffer["bytes"], own, name), buffer["zeroed"]});
      }
    }
    result.steps.push_back(std::move(step));
  }
  return result;
}

}  // namespace moetune
