// A toy variant for golden files: kernels get knobs and lose them, and no golden file should change for that.
#pragma once
#include <memory>
#include <string>

#include "record/journal/journal.h"
#include "variant/variant.h"

namespace moetune::sample {

/// A candidate of a variant that the catalog lacks, with the tile of `candidate` and no other knob.
inline Candidate toy(const Candidate& candidate) {
  const auto variant = std::make_shared<Variant>();
  variant->name = "toy";
  Candidate result{.variant = variant, .values = {}};
  result.foreign = {{"pack", "0123456789ab"}};
  for (const char* knob : {"block_m", "block_n", "block_k"})
    if (const auto value = find_value(candidate, knob)) result.foreign.emplace_back(knob, std::to_string(*value));
  return result;
}

/// The same table, of toys.
inline TunedTable toys(TunedTable table) {
  const auto replace = [](Candidate& candidate) {
    if (candidate.variant) candidate = toy(candidate);
  };
  for (Entry& entry : table.entries) {
    replace(entry.candidate);
    for (Rival& rival : entry.rivals) replace(rival.candidate);
    for (Candidate& tie : entry.ties) replace(tie);
  }
  for (RobustChoice& choice : table.choices)
    for (Standing& one : choice.contenders) replace(one.candidate);
  return table;
}

}  // namespace moetune::sample
