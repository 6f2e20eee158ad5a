// The catalog: the variants that a run knows. A command makes it once and hands it to whatever reads candidates.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "variant/variant.h"

namespace moetune {

/// Those that are built in, with the constants of their cost models (variant/cost.h).
Variant simt_variant();
Variant mma_variant(const std::map<std::string, double>& constants);
Variant wgmma_variant(const std::map<std::string, double>& constants);
Variant cpu_variant();

/// A value. Candidates share its variants, and may outlive it.
class Catalog {
 public:
  /// What is built in, then the packs of these folders. A pack whose variant is there with the same hash is left out.
  /// Exit::request where a name is taken otherwise, and as of load_pack.
  explicit Catalog(const std::vector<std::string>& packs = {});

  /// In the order of `moetune list variants`.
  const std::vector<VariantPtr>& variants() const { return variants_; }

  /// Exit::request with the nearest name.
  const VariantPtr& find(std::string_view name) const;

  /// A knob's index in the variant's list. Exit::request with the nearest name, or with the variant's knobs where only
  /// other variants have it.
  size_t knob_place(const Variant& variant, std::string_view name) const;

  /// Names of all knobs of all variants, each once.
  std::vector<std::string> knob_names() const;

  /// Name and hash of each pack, "triton_moe 1a2b3c4d5e6f, ..."; empty where there is none.
  std::string pack_names() const;

  /// Names of the kernels of exports that are not there: see load_packs.
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  void add(Variant variant);

  std::vector<std::string> left_out_;
  std::vector<VariantPtr> variants_;
};

}  // namespace moetune
