// A pack as a variant: what is legal, and its default candidate.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <ranges>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/text/units.h"
#include "runtime/formula.h"
#include "variant/pack/pack.h"

namespace moetune {
namespace {

const PackComputation* computation_of(const Pack& pack, const Shape& shape) {
  const auto found = std::ranges::find_if(pack.computes, [&](const PackComputation& one) {
    return one.op == shape.op && one.dtype == shape.layer.dtype && one.fusion == text(shape.fusion);
  });
  return found == pack.computes.end() ? nullptr : &*found;
}

std::string computation_text(const PackComputation& one) {
  return fmt::format("{} {} {}", name(one.op), name(one.dtype), one.fusion);
}

std::optional<std::string> broken_rule(const Pack& pack, const std::vector<int>& values, const Shape& shape) {
  const Product product = product_of(shape);
  Sizes sizes = {{"m", product.m},
                 {"n", product.n},
                 {"k", product.k},
                 {"experts", shape.layer.local_experts()},
                 {"top_k", shape.layer.top_k}};
  for (size_t i = 0; i < pack.knobs.size(); ++i) sizes[pack.knobs[i].name] = values[i];
  for (const PackRule& rule : pack.rules) try {
      if (Formula::evaluate(rule.zero, sizes) != 0) return rule.reason;
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  return std::nullopt;
}

std::optional<std::string> illegal(const Pack& pack, const std::vector<int>& values, const Shape& shape,
                                   const DeviceInfo& device) {
  if (!computation_of(pack, shape))
    return fmt::format("{} computes {}, and this is {}", pack.variant,
                       fmt::join(mapped(pack.computes, computation_text), ", "),
                       computation_text({shape.op, shape.layer.dtype, text(shape.fusion)}));
  if (auto reason = broken_rule(pack, values, shape)) return reason;
  const PackBinary* binary = binary_of(pack, values);
  if (!binary) return "the pack has no kernel that was compiled for these knobs";
  if (!file_for(pack, binary->files, device.compute_capability))
    return fmt::format("the pack has no kernel for {}: it was compiled for {}", arch(device),
                       fmt::join(std::views::keys(binary->files), ", "));
  if (binary->shared_bytes > device.shared_memory_per_block)
    return fmt::format("the kernel needs more than the {} bytes of shared memory that a block may have",
                       device.shared_memory_per_block);
  return std::nullopt;
}

int64_t steps_from_default(const Pack& pack, const std::vector<int>& values) {
  int64_t steps = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::vector<int>& list = pack.knobs[i].values;
    const auto place = [&](int value) { return std::ranges::find(list, value) - list.begin(); };
    steps += std::abs(place(values[i]) - place(pack.fallback[i]));
  }
  return steps;
}

// The manifest's default, or what is legal and nearest to it.
std::vector<int> fallback(const Pack& pack, const Problem& problem, const DeviceInfo& device) {
  if (!illegal(pack, pack.fallback, problem.shape, device)) return pack.fallback;
  std::vector<int> result = pack.fallback;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& [values, binary] : pack.candidates) {
    const int64_t steps = steps_from_default(pack, values);
    if (steps < least && !illegal(pack, values, problem.shape, device)) result = values, least = steps;
  }
  return result;
}

}  // namespace

Weighting weighting_of(const Pack& pack, const Shape& shape) {
  const PackComputation* computation = computation_of(pack, shape);
  if (!computation) throw Error(Exit::bug, fmt::format("{} was asked for what it does not compute", pack.variant));
  return computation->weighting;
}

Variant pack_variant(std::shared_ptr<const Pack> pack) {
  Variant variant;
  variant.name = pack->variant, variant.summary = pack->summary, variant.knobs = pack->knobs;
  variant.illegal = [pack](const Candidate& candidate, const Shape& shape, const DeviceInfo& device) {
    return illegal(*pack, candidate.values, shape, device);
  };
  variant.fallback_values = [pack](const Problem& problem, const DeviceInfo& device) {
    return fallback(*pack, problem, device);
  };
  variant.pack = std::move(pack);
  return variant;
}

}  // namespace moetune
