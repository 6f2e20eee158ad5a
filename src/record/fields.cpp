// Names and values of a cell's parts.
#include "record/fields.h"

#include <fmt/format.h>

namespace moetune {

Fields fields_of(const Cell& cell) {
  Fields fields;
  const Layer& layer = cell.shape.layer;
  const auto add = [&](std::string_view column, auto value) { fields.emplace_back(column, fmt::format("{}", value)); };
  add("id", id(cell));
  add("model", layer.model);
  add("projection", name(layer.projection));
  add("op", name(cell.shape.op));
  add("dtype", name(layer.dtype));
  add("scales", name(layer.scales));
  add("out_dtype", name(result_dtype(layer)));
  add("fast_sums", layer.fast_sums);
  add("experts", layer.experts);
  add("top_k", layer.top_k);
  add("n", layer.n);
  add("k", layer.k);
  add("tp", layer.tp);
  add("ep", layer.ep);
  add("zero_experts", layer.zero_experts);
  for (const FusionPart& part : kFusionParts) add(part.name, cell.shape.fusion.*part.on);
  add("tokens", cell.tokens);
  add("routing", text(cell.routing));
  add("seed", cell.seed);
  return fields;
}

}  // namespace moetune
