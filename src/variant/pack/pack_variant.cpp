// A pack as a variant: what is legal, and its default candidate.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <ranges>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "runtime/formula.h"
#include "variant/pack/pack.h"

namespace moetune {
namespace {

bool computes(const PackComputation& one, const Shape& shape) {
  return one.op == shape.op && one.format == shape.layer.format.word && one.fusion == text(shape.fusion);
}

std::string computation_text(const PackComputation& one) {
  return fmt::format("{} {} {}", name(one.op), one.format, one.fusion);
}

// What is known of a launch from its shape.
Sizes sizes_of(const Pack& pack, const std::vector<int>& values, const Shape& shape) {
  const Product product = product_of(shape);
  Sizes sizes = {{"m", product.m},
                 {"n", product.n},
                 {"k", product.k},
                 {"experts", shape.layer.local_experts()},
                 {"top_k", shape.layer.top_k}};
  for (size_t i = 0; i < pack.knobs.size(); ++i) sizes[pack.knobs[i].name] = values[i];
  return sizes;
}

bool may_apply(const PackComputation& one, const Sizes& sizes) {
  try {
    return one.when.empty() || Formula::evaluate(one.when, sizes) != 0;
  } catch (const std::invalid_argument&) {
    return true;  // it depends on sizes that are not known yet
  }
}

std::optional<std::string> broken_rule(const Pack& pack, const std::vector<int>& values, const Shape& shape) {
  const Sizes sizes = sizes_of(pack, values, shape);
  for (const PackRule& rule : pack.rules) try {
      if (Formula::evaluate(rule.zero, sizes) != 0) return rule.reason;
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  return std::nullopt;
}

// In words, each once.
std::vector<std::string> computations_of(const Pack& pack) {
  std::vector<std::string> words = mapped(pack.computes, computation_text);
  words.erase(std::ranges::unique(words).begin(), words.end());
  return words;
}

std::optional<std::string> illegal(const Pack& pack, const std::vector<int>& values, const Shape& shape,
                                   const DeviceInfo& device) {
  if (std::ranges::none_of(pack.computes, [&](const PackComputation& one) { return computes(one, shape); }))
    return fmt::format("{} computes {}, and this is {}", pack.variant, fmt::join(computations_of(pack), ", "),
                       computation_text({shape.op, std::string(shape.layer.format.word), text(shape.fusion)}));
  if (auto reason = broken_rule(pack, values, shape)) return reason;
  const PackBinary* binary = binary_of(pack, values, shape);
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
  for (const PackComputation& one : pack.computes)
    if (computes(one, shape)) return one.weighting;
  throw Error(Exit::bug, fmt::format("{} was asked for what it does not compute", pack.variant));
}

const PackBinary* binary_of(const Pack& pack, const std::vector<int>& values, const Shape& shape, const Sizes& sizes) {
  const auto candidate = pack.candidates.find(values);
  if (candidate == pack.candidates.end()) return nullptr;
  Sizes known = sizes_of(pack, values, shape);
  known.insert(sizes.begin(), sizes.end());
  for (size_t i = 0; i < pack.computes.size(); ++i)
    if (const size_t binary = candidate->second[i];
        binary != kNoBinary && computes(pack.computes[i], shape) && may_apply(pack.computes[i], known))
      return &pack.binaries[binary];
  return nullptr;
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
