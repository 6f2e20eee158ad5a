// The list of all variants: one line each.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "variant/cpu.h"
#include "variant/mma.h"
#include "variant/simt.h"
#include "variant/variant.h"
#include "variant/wgmma.h"

namespace moetune {

const std::vector<Variant>& variants() {
  static const std::vector<Variant> list = {simt_variant(), mma_variant(), wgmma_variant(), cpu_variant()};
  return list;
}

const Variant& find_variant(std::string_view name) {
  std::vector<std::string> names;
  for (const Variant& variant : variants()) {
    if (variant.name == name) return variant;
    names.emplace_back(variant.name);
  }
  throw unknown_word("variant", name, names);
}

std::optional<std::string> cannot_run(const Candidate& candidate, const Shape& shape, const DeviceInfo& device) {
  const Variant& variant = find_variant(candidate.variant);
  if (variant.device != device.kind)
    return fmt::format("{} runs on {} only", variant.name, variant.device == DeviceKind::cuda ? "GPUs" : "cpus");
  return variant.illegal(candidate, shape, device);
}

std::vector<Knob> knobs_of(const Variant& variant) {
  std::vector<Knob> result;
  for (const Knob& knob : knobs())
    if (std::find(variant.knobs.begin(), variant.knobs.end(), knob.name) != variant.knobs.end()) result.push_back(knob);
  return result;
}

}  // namespace moetune
