// Checks a manifest of exported kernels: what loaders will ask of it, without launching.
#include <fmt/format.h>

#include <set>
#include <stdexcept>

#include "loader/moetune/formula.h"
#include "table/kernel_manifest.h"
#include "workload/shape.h"

namespace moetune {
namespace {

using moetune_kernels::Formula;
using moetune_kernels::Sizes;

// Every name that a formula may use, with a value by which none divides by zero unless it must.
Sizes any_sizes() {
  Sizes sizes;
  for (const char* name : {"m", "n", "k", "experts", "top_k", "tokens", "slots", "rows", "x_rows", "w_rows", "y_rows",
                           "held", "blocks", "processors", "first_expert"})
    sizes[name] = 1;
  return sizes;
}

void require_formula(const JsonAt& json) {
  try {
    Formula::evaluate(json.string(), any_sizes());
  } catch (const std::invalid_argument& error) {
    json.fail(error.what());
  }
}

template <typename Read>
void each(const JsonAt& array, Read read) {
  for (size_t i = 0; i < array.size(); ++i) read(array[i]);
}

// The pointers that a launch may name.
using Names = std::set<std::string>;
void require_pointer(const JsonAt& json, const Names& names) {
  if (!names.contains(json.string())) json.fail(fmt::format("no operand or buffer is called '{}'", json.string()));
}

void require_map(const JsonAt& map, const Names& names) {
  require_pointer(map["pointer"], names);
  if (map["dtype"].string() != "bf16" && map["dtype"].string() != "fp16") map["dtype"].fail("expected bf16 or fp16");
  each(map["sizes"], require_formula);
  each(map["strides"], require_formula);
  const size_t rank = map["sizes"].size();
  if (rank < 2 || rank > 5) map["sizes"].fail("expected 2 to 5 sizes");
  if (map["strides"].size() + 1 != rank) map["strides"].fail("expected one stride fewer than sizes");
  if (map["box"].size() != 2) map["box"].fail("expected two sides");
  each(map["box"], [](const JsonAt& side) { side.integer(1, 256); });
  map["swizzle"].integer(128, 128);
  if (map["l2_promotion"].integer() != 0) map["l2_promotion"].integer(128, 128);
}

int64_t require_value(const JsonAt& value, const Names& names) {
  if (value.has("pointer")) return require_pointer(value["pointer"], names), 8;
  if (value.has("int32")) return require_formula(value["int32"]), 4;
  if (value.has("int64")) return require_formula(value["int64"]), 8;
  require_map(value["tensor_map"], names);
  return 128;
}

void require_argument(const JsonAt& argument, const Names& names) {
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

void require_launch(const JsonAt& launch, const Names& names, const JsonAt& files) {
  if (launch.has("fill")) {
    const JsonAt fill = launch["fill"];
    require_pointer(fill["pointer"], names);
    fill["byte"].integer(0, 255);
    return require_formula(fill["bytes"]);
  }
  const JsonAt cubins = launch["cubin"];
  for (const auto& [arch, file] : cubins.value().items())
    if (!files.has(cubins[arch].string()))
      cubins[arch].fail(fmt::format("'{}' is not among files", cubins[arch].string()));
  launch["entry"].string();
  launch["threads"].integer(1, 1024);
  launch["shared_bytes"].integer(0);
  launch["cluster"].integer(1, 16);
  if (launch.has("most_per_processor")) launch["most_per_processor"].integer(1);
  launch["cooperative"].boolean();
  require_formula(launch["grid"]);
  each(launch["arguments"], [&](const JsonAt& argument) { require_argument(argument, names); });
}

std::string require_kernel(const JsonAt& kernel, const JsonAt& files) {
  for (const char* text : {"dtype", "fusion", "source"}) kernel[text].string();
  parse_op(kernel["op"].string());
  kernel["experts"].integer(1);
  for (const char* rows : {"x_rows", "w_rows", "y_rows"}) require_formula(kernel["sizes"][rows]);
  candidate_from_json(kernel["candidate"]);
  Names names;
  each(kernel["operands"], [&](const JsonAt& operand) {
    names.insert(operand["name"].string());
    operand["dtype"].string();
    each(operand["shape"], require_formula);
    operand["access"].string();
  });
  each(kernel["buffers"], [&](const JsonAt& buffer) {
    names.insert(buffer["name"].string());
    require_formula(buffer["bytes"]);
    buffer["zeroed"].boolean();
  });
  const JsonAt launches = kernel["launches"];
  if (launches.size() == 0 || launches[size_t{0}].has("fill")) launches.fail("expected a kernel first");
  each(launches, [&](const JsonAt& launch) { require_launch(launch, names, files); });
  return kernel["name"].string();
}

void require_served(const JsonAt& served, const std::set<std::string>& kernels) {
  served["arch"].string();
  if (!kernels.contains(served["kernel"].string()))
    served["kernel"].fail(fmt::format("no kernel is called '{}'", served["kernel"].string()));
  const JsonAt asked = served["asked"];
  parse_op(asked["op"].string());
  for (const char* text : {"dtype", "fusion"}) asked[text].string();
  for (const char* size : {"experts", "top_k", "n", "k"}) asked[size].integer(1);
  for (const char* extent : {"m", "n", "k"}) served["extents"][extent].integer(0);
}

}  // namespace

void require_kernel_manifest(const JsonAt& json) {
  require_schema(json, "kernels");
  json["abi"].integer(kKernelAbi, kKernelAbi);
  json["device"]["name"].string();
  json["device"]["arch"].string();
  regime_from_json(json["regime"]);
  const JsonAt files = json["files"];
  for (const auto& [name, value] : files.value().items()) {
    files[name]["arch"].string();
    files[name]["bytes"].integer(1);
    if (files[name]["sha256"].string().size() != 64) files[name]["sha256"].fail("expected 64 digits");
  }
  for (const char* ids : {"int32", "int64"})
    require_launch(json["route"][ids], {"m_sizes", "gather_indices", "topk_ids"}, files);
  std::set<std::string> kernels;
  each(json["kernels"], [&](const JsonAt& kernel) { kernels.insert(require_kernel(kernel, files)); });
  if (json["cells"].size() == 0) json["cells"].fail("expected at least one cell");
  each(json["cells"], [&](const JsonAt& cell) {
    require_served(cell, kernels);
    cell["id"].string();
    cell["tokens"].integer(1);
    if (!(cell["skew"].number() >= 0)) cell["skew"].fail("expected 0 or more");
    if (cell["tuned"].boolean() && !(cell["time_us"].number() > 0)) cell["time_us"].fail("expected a time");
  });
  each(json["ranges"], [&](const JsonAt& range) {
    require_served(range, kernels);
    const int64_t from = range["tokens"]["from"].integer(1);
    if (range["tokens"].has("to")) range["tokens"]["to"].integer(from);
    range["worst_regret"].number();
  });
}

}  // namespace moetune
