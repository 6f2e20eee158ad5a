// Lists made from lists: mapped, filtered, grouped. And look-ups in lists and maps.
#pragma once
#include <algorithm>
#include <functional>
#include <iterator>
#include <type_traits>
#include <vector>

namespace moetune {

/// What make(item), a function or a member, gives for each item, converted to `To` if that is given.
template <typename To = void, typename Items, typename Make>
auto mapped(const Items& items, Make make) {
  using Made = std::remove_cvref_t<std::invoke_result_t<Make, decltype(*std::begin(items))>>;
  std::vector<std::conditional_t<std::is_void_v<To>, Made, To>> list;
  for (const auto& item : items) list.emplace_back(std::invoke(make, item));
  return list;
}

/// The items for which `holds`, a function or a member, is true, in their order.
template <typename Items, typename Holds>
auto filtered(const Items& items, Holds holds) {
  std::vector<std::ranges::range_value_t<Items>> list;
  std::ranges::copy_if(items, std::back_inserter(list), holds);
  return list;
}

/// Whether a list has an item that equals `value`, or whose projection does.
template <typename Items, typename Value, typename Projection = std::identity>
bool contains(const Items& items, const Value& value, Projection projection = {}) {
  return std::ranges::find(items, value, projection) != std::ranges::end(items);
}

/// Adds an item that the list does not have yet.
template <typename Item>
void add_once(std::vector<Item>& items, const Item& item) {
  if (!contains(items, item)) items.push_back(item);
}

/// The value of a key, or an empty one if the map lacks the key.
template <typename Map, typename Key>
const typename Map::mapped_type& value_in(const Map& map, const Key& key) {
  static const typename Map::mapped_type none{};
  const auto found = map.find(key);
  return found == map.end() ? none : found->second;
}

/// The items must outlive it.
template <typename Item>
std::vector<const Item*> pointers_to(const std::vector<Item>& items) {
  return mapped(items, [](const Item& item) { return &item; });
}

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
