// Whether launches of a layer wait for one another: the check of verify() on a loaded layer. It knows no device.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "backend/backend.h"

namespace moetune {

/// What each part of a layer runs of a contender; nothing of a part that it leaves out.
struct LayerParts {
  std::optional<Contender> up, down;
};
LayerParts parts_of(const Contender& contender);

/// How a layer is launched: each enqueues, and `wait` waits for all.
struct Chain {
  std::function<void()> clear;  // fills what both parts write with bytes that no result has
  std::function<void()> up, down, wait;
  std::function<std::vector<std::byte>()> result;  // of down, after wait()
};

/// Whether launches back to back write the bytes that they write one by one, and down reads what up wrote. `elements`
/// counts bytes.
Verdict compare_chained(const Chain& chain);

}  // namespace moetune
