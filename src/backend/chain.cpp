// Launches back to back against the same launches one by one.
#include "backend/chain.h"

#include <fmt/format.h>

#include <algorithm>

namespace moetune {
namespace {

constexpr int kTries = 2;  // a race need not show at once

}  // namespace

LayerParts parts_of(const Contender& contender) {
  if (!contender.baseline.empty()) return {contender, contender};
  const auto part = [](const Candidate& candidate) {
    return candidate.variant ? std::optional(Contender{.candidate = candidate}) : std::nullopt;
  };
  return {part(contender.candidate), part(contender.down)};
}

Verdict compare_chained(const Chain& chain) {
  const auto after = [&](const std::vector<const std::function<void()>*>& steps) {
    chain.clear();
    for (const std::function<void()>* step : steps) (*step)();
    chain.wait();
    return chain.result();
  };
  const std::vector<std::byte> expected = after({&chain.up, &chain.wait, &chain.down});
  Verdict verdict{.ok = true, .elements = static_cast<int64_t>(expected.size())};
  if (after({&chain.down}) == expected && after({}) != expected)
    return {.ok = false, .reason = "down does not read what up writes", .elements = verdict.elements};
  for (int i = 0; i < kTries && verdict.ok; ++i) {
    const std::vector<std::byte> chained = after({&chain.up, &chain.down});
    for (size_t at = 0; at < expected.size(); ++at) verdict.mismatches += chained[at] != expected[at];
    if (verdict.mismatches == 0) continue;
    const auto first = std::ranges::mismatch(chained, expected).in2 - expected.begin();
    verdict.ok = false;
    verdict.reason = fmt::format(
        "back to back, {} of {} bytes differ from those of up and then down, from byte {} on: down does not wait for "
        "up",
        verdict.mismatches, expected.size(), first);
  }
  return verdict;
}

}  // namespace moetune
