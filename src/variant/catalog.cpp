// The list of all variants: one line each.
#include "variant/catalog.h"

#include <fmt/format.h>

#include "base/error.h"
#include "variant/cost.h"
#include "variant/pack/pack.h"

namespace moetune {

Catalog::Catalog(const std::vector<std::string>& packs) {
  for (const Variant& variant : {simt_variant(), mma_variant(built_in_constants("mma")),
                                 wgmma_variant(built_in_constants("wgmma")), cpu_variant()})
    add(variant);
  for (const std::string& folder : packs)
    for (Pack& pack : load_packs(folder, left_out_)) add(pack_variant(std::make_shared<const Pack>(std::move(pack))));
}

void Catalog::add(Variant variant) {
  for (const VariantPtr& other : variants_) {
    if (other->name != variant.name) continue;
    if (other->pack && variant.pack && other->pack->hash == variant.pack->hash) return;
    throw request_error(fmt::format("{} has the variant '{}', whose name is taken by {}",
                                    variant.pack ? variant.pack->folder.string() : "a pack", variant.name,
                                    other->pack ? other->pack->folder.string() : "a variant that is built in"),
                        "name one of the two packs, or change the name in its pack.json");
  }
  variants_.push_back(std::make_shared<const Variant>(std::move(variant)));
}

const VariantPtr& Catalog::find(std::string_view name) const {
  return variants_[place_of_word("variant", name, mapped(variants_, [](const auto& one) { return one->name; }))];
}

size_t Catalog::knob_place(const Variant& variant, std::string_view name) const {
  const std::vector<std::string> names = mapped(variant.knobs, &Knob::name), all = knob_names();
  if (!contains(names, name) && contains(all, name))
    throw request_error(fmt::format("variant '{}' has no knob '{}'", variant.name, name),
                        fmt::format("its knobs: {}", fmt::join(names, ", ")));
  return place_of_word("knob", name, names);
}

std::vector<std::string> Catalog::knob_names() const {
  std::vector<std::string> names;
  for (const VariantPtr& variant : variants_)
    for (const Knob& knob : variant->knobs) add_once(names, knob.name);
  return names;
}

std::string Catalog::pack_names() const {
  std::string names;
  for (const VariantPtr& variant : variants_)
    if (variant->pack) names += fmt::format("{}{} {}", names.empty() ? "" : ", ", variant->name, variant->pack->hash);
  return names;
}

Candidate complete(Candidate partial, const Problem& problem, const DeviceInfo& device) {
  if (!contains(partial.values, kUnset)) return partial;
  const Candidate otherwise = partial.variant->fallback(problem, device);
  for (size_t i = 0; i < partial.values.size(); ++i)
    if (partial.values[i] == kUnset) partial.values[i] = otherwise.values[i];
  return partial;
}

std::string short_text(const Candidate& candidate, const Candidate* fallback, const Problem& problem,
                       const DeviceInfo& device) {
  if (!candidate.foreign.empty()) return text(candidate);
  const Variant& variant = *candidate.variant;
  const bool beside = fallback != nullptr && same_variant(*fallback, candidate) && fallback->foreign.empty();
  const std::string words = difference(candidate, beside ? *fallback : variant.fallback(problem, device));
  if (!words.empty()) return fmt::format("{} {}", variant.name, words);
  return beside ? variant.name + ", the default" : variant.name;
}

std::optional<std::string> no_kernel_of(const Candidate& candidate) {
  if (!candidate.foreign.empty())
    return fmt::format("{} is of a pack with the hash {}, which is not loaded; name its folder with --pack",
                       candidate.variant->name, candidate.foreign.front().second);
  if (!candidate.unknown_knobs.empty())
    return fmt::format("no kernel here has {}; tune this cell again", candidate.unknown_knobs);
  return std::nullopt;
}

std::optional<std::string> cannot_run(const Candidate& candidate, const Shape& shape, const DeviceInfo& device) {
  if (auto reason = no_kernel_of(candidate)) return reason;
  const Variant& variant = *candidate.variant;
  if (variant.device != device.kind)
    return fmt::format("{} runs on {} only", variant.name, variant.device == DeviceKind::cuda ? "GPUs" : "cpus");
  return variant.illegal(candidate, shape, device);
}

}  // namespace moetune
