// The knobs of a variant whose values are the members of a struct: each is named once, beside its member, and a
// candidate's values are converted to the struct and back. A variant is made of its list and of rules that read the
// struct.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "variant/variant.h"

namespace moetune {

/// `Values` is a struct of ints, bools and enums whose values count from 0.
template <class Values>
class KnobList {
 public:
  explicit KnobList(std::string variant) : variant_(std::move(variant)) {}

  /// A number.
  KnobList& add(const char* name, int Values::*member, const char* help, int absent = kNeeded) {
    return add_any({.name = name, .help = help, .absent = absent}, member, {});
  }
  /// "no" or "yes".
  KnobList& add(const char* name, bool Values::*member, const char* help, int absent = kNeeded) {
    return add_any({.name = name, .help = help, .words = {"no", "yes"}, .absent = absent}, member, {});
  }
  /// The words of an enum, in the order of its values. `type` is the enum's name in the header that device code reads,
  /// such as "Raster"; its values are spelled there as the words are or, if given, as in `spelled`.
  template <class Enum>
  KnobList& add(const char* name, Enum Values::*member, const char* help, const char* type,
                std::initializer_list<const char*> words, int absent = kNeeded,
                std::initializer_list<const char*> spelled = {}) {
    add_any({.name = name, .help = help, .words = {words.begin(), words.end()}, .absent = absent}, member, type);
    const std::initializer_list<const char*>& names = spelled.size() > 0 ? spelled : words;
    fields_.back().spelled = {names.begin(), names.end()};
    return *this;
  }

  /// The values that a search tries of the knob added last, where these are not its words.
  KnobList& tries(std::vector<int> values) {
    fields_.back().knob.values = std::move(values);
    return *this;
  }

  /// The tile of a block, as every variant has it.
  KnobList& add_blocks(const std::vector<int>& m, const std::vector<int>& n, const std::vector<int>& k) {
    add("block_m", &Values::block_m, "rows of the result in a block's tile").tries(m);
    add("block_n", &Values::block_n, "columns of the result in a block's tile").tries(n);
    return add("block_k", &Values::block_k, "depth of one step along k").tries(k);
  }
  /// How a persistent block walks through tiles and loads them ahead.
  KnobList& add_walk(const std::vector<int>& stages) {
    add("stages", &Values::stages, "steps in flight between memory and the multiplier").tries(stages);
    add("raster", &Values::raster, "which tile index moves fastest", "Raster", {"n", "m"});
    return add("group", &Values::group, "tiles of the slow index walked together, for L2 reuse; 1 = plain order")
        .tries({1, 2, 4, 8, 16});
  }

  const std::string& variant() const { return variant_; }
  std::vector<Knob> knobs() const { return mapped(fields_, &Field::knob); }
  Values values(const Candidate& candidate) const {
    Values result;
    for (size_t i = 0; i < fields_.size(); ++i) fields_[i].set(result, candidate.values[i]);
    return result;
  }
  std::vector<int> numbers(const Values& values) const {
    return mapped(fields_, [&](const Field& field) { return field.get(values); });
  }
  /// As a C++ initialiser, for device code: "{.block_m = 128, .raster = moetune::Raster::m}".
  std::string initialiser(const Values& values) const {
    std::string result;
    for (const Field& field : fields_) {
      const int value = field.get(values);
      const std::string text =
          !field.type.empty() ? fmt::format("moetune::{}::{}", field.type, field.spelled.at(static_cast<size_t>(value)))
          : field.knob.words.empty() ? std::to_string(value)
          : value != 0               ? "true"
                                     : "false";
      result += fmt::format("{}.{} = {}", result.empty() ? "" : ", ", field.knob.name, text);
    }
    return "{" + result + "}";
  }

 private:
  struct Field {
    Knob knob;
    std::string type;                       // of an enum, as device code spells it
    std::vector<std::string> spelled = {};  // its values
    std::function<int(const Values&)> get;
    std::function<void(Values&, int)> set;
  };
  template <class Member>
  KnobList& add_any(Knob knob, Member Values::*member, std::string type) {
    for (int word = 0; word < static_cast<int>(knob.words.size()); ++word) knob.values.push_back(word);
    fields_.push_back({.knob = std::move(knob),
                       .type = std::move(type),
                       .get = [member](const Values& values) { return static_cast<int>(values.*member); },
                       .set = [member](Values& values, int value) { values.*member = static_cast<Member>(value); }});
    return *this;
  }

  std::string variant_;
  std::vector<Field> fields_;
};

/// The functions of a Variant, on values instead of a candidate.
template <class Values>
struct Rules {
  std::optional<std::string> (*illegal)(const Values&, const Shape&, const DeviceInfo&) = nullptr;
  LaunchPlan (*plan)(const Values&, const Shape&) = nullptr;
  std::string (*unit)(const Values&, const Shape&) = nullptr;
  std::function<Values(const Problem&, const DeviceInfo&)> fallback;
  std::function<double(const Values&, const Problem&, const DeviceInfo&)> seconds = nullptr;
  Values (*canonical)(const Values&, const Problem&) = nullptr;
};

/// Where no expert has two tiles along m, all walks through its tiles are the same: these values with the plain one.
/// dW's tiles don't depend on rows.
template <class Values>
Values with_plain_walk(Values values, const Problem& problem) {
  const std::vector<int32_t>& rows = problem.routing.m_sizes;
  const bool one_each = std::ranges::all_of(rows, [&](int32_t m) { return m <= values.block_m; });
  if (problem.shape.op != Op::dw && one_each) values.raster = {}, values.group = 1;
  return values;
}

/// `list` must outlive the variant. One without a plan and a unit runs on the cpu.
template <class Values>
Variant make_variant(const KnobList<Values>& list, std::string summary, const Rules<Values>& rules) {
  Variant variant;
  variant.name = list.variant(), variant.summary = std::move(summary), variant.knobs = list.knobs();
  variant.device = rules.unit == nullptr ? DeviceKind::cpu : DeviceKind::cuda;
  const auto of_values = [&list](auto rule) {
    return [&list, rule](const Candidate& c, const auto&... of) { return rule(list.values(c), of...); };
  };
  variant.illegal = of_values(rules.illegal);
  variant.fallback_values = [&list, rules](const Problem& problem, const DeviceInfo& device) {
    return list.numbers(rules.fallback(problem, device));
  };
  if (rules.seconds != nullptr) variant.seconds = of_values(rules.seconds);
  if (rules.canonical != nullptr)
    variant.canonical = [&list, rules](const Candidate& c, const Problem& problem) {
      return Candidate{.variant = c.variant, .values = list.numbers(rules.canonical(list.values(c), problem))};
    };
  if (rules.unit != nullptr) variant.plan = of_values(rules.plan), variant.unit = of_values(rules.unit);
  return variant;
}

}  // namespace moetune
