// Items that belong together.
#pragma once
#include <algorithm>
#include <vector>

namespace moetune {

/// Items with equal keys, in the order of their first. Compares each with each group: for hundreds, not millions.
template <typename Item, typename KeyOf>
std::vector<std::vector<Item>> grouped_by(const std::vector<Item>& items, KeyOf key_of) {
  std::vector<std::vector<Item>> groups;
  for (const Item& item : items) {
    const auto found = std::ranges::find_if(groups, [&](const auto& one) { return key_of(one[0]) == key_of(item); });
    if (found == groups.end())
      groups.push_back({item});
    else
      found->push_back(item);
  }
  return groups;
}

}  // namespace moetune
