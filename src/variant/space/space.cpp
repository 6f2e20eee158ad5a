// Reading spaces and enumerating their legal candidates.
#include "variant/space/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/embedded.h"
#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "base/system/file.h"
#include "base/text/units.h"

namespace moetune {
namespace {

constexpr int64_t kMaxCandidates = 5'000'000;   // to look at
constexpr int64_t kMaxSize = int64_t{1} << 40;  // to draw from

constexpr std::string_view kAllVariants = "all";
constexpr std::string_view kFolder = "configs/spaces/";

constexpr std::string_view kLargestLegalWord = "most", kSmallestLegalWord = "least";
constexpr int kLargestTried = 16;
constexpr int kSmallestLegal = -3;  // a value of a space beside kLargestLegal

int knob_value(const Knob& knob, const JsonAt& json) {
  if (json.value() == kLargestLegalWord) return kLargestLegal;
  if (json.value() == kSmallestLegalWord && knob.words.empty()) return kSmallestLegal;
  return with_place(json, [&](const JsonAt& at) {
    return at.value().is_string() ? parse_knob(knob, at.string()) : knob_from_json(knob, at);
  });
}

// The values of one knob, or the one that it has where the space doesn't name it.
std::vector<int> knob_values(const Knob& knob, const JsonAt& json) {
  if (knob.absent != kNeeded && !json.has(knob.name)) return {knob.absent};
  return list_at(json[knob.name], [&](const JsonAt& value) { return knob_value(knob, value); });
}

VariantSpace variant_space(const std::string& name, const JsonAt& json, const Catalog& catalog) {
  VariantSpace space{.variant = with_place(json, [&](const JsonAt&) { return catalog.find(name); })};
  for (const auto& item : json.value().items())
    with_place(json, [&](const JsonAt&) { return catalog.knob_place(*space.variant, item.key()); });
  for (const Knob& knob : space.variant->knobs) space.values.emplace_back(knob.name, knob_values(knob, json));
  return space;
}

// How many candidates a part has; nothing for more than `most`.
std::optional<int64_t> points(const VariantSpace& space, int64_t most) {
  int64_t product = 1;
  for (const auto& [knob, values] : space.values) {
    product *= std::ssize(values);
    if (product > most) return std::nullopt;
  }
  return product;
}

int64_t size(const VariantSpace& space, int64_t most) {
  if (const auto found = points(space, most)) return *found;
  throw request_error(fmt::format("the space of '{}' has over {} candidates", space.variant->name, most),
                      "draw some with --max-candidates N (tune: and --strategy random), name a smaller --space, or "
                      "give fewer values with --set");
}

bool try_downwards(Candidate& candidate, std::vector<size_t> open, const Shape& shape, const DeviceInfo& device) {
  const Variant& variant = *candidate.variant;
  if (open.empty()) return !variant.illegal(candidate, shape, device);
  const size_t place = open.back();
  open.pop_back();
  const Knob& knob = variant.knobs[place];
  const bool counts = knob.words.empty() && contains(knob.values, kLargestLegal);
  const auto legal_with = [&](int value) {
    candidate.values[place] = value;
    return try_downwards(candidate, open, shape, device);
  };
  // Numbers that are illegal when small are illegal when large.
  if (counts && !legal_with(2) && !legal_with(1)) return false;
  const int highest = counts ? kLargestTried : *std::ranges::max_element(knob.values);
  for (int value = highest; value >= (counts ? 1 : 0); --value)
    if (legal_with(value)) return true;
  return false;
}

Candidate candidate_at(const VariantSpace& space, int64_t index) {
  Candidate candidate{.variant = space.variant, .values = std::vector<int>(space.values.size())};
  for (size_t i = space.values.size(); i-- > 0;) {
    const std::vector<int>& values = space.values[i].second;
    const auto count = static_cast<int64_t>(values.size());
    candidate.values[i] = values[static_cast<size_t>(index % count)];
    index /= count;
  }
  return candidate;
}

// The parts of a space that a device can run.
std::vector<const VariantSpace*> parts_for(const SearchSpace& space, const DeviceInfo& device) {
  return filtered(pointers_to(space.variants),
                  [&](const VariantSpace* part) { return part->variant->device == device.kind; });
}

// The candidate of that number. It counts once: "most" may come to a value that the list has anyway.
void add(Enumeration& result, std::set<Candidate>& known, const VariantSpace& part, int64_t index, const Shape& shape,
         const DeviceInfo& device) {
  Candidate candidate = candidate_at(part, index);
  if (std::ranges::min(candidate.values) < 0)
    set_legal_values(candidate, shape, device);  // stays illegal where nothing is legal
  const auto reason = candidate.variant->illegal(candidate, shape, device);
  if (!reason && !known.insert(candidate).second) return;
  ++result.total;
  if (reason)
    ++result.pruned[*reason];
  else
    result.legal.push_back(std::move(candidate));
}

// The numbers 0 to size - 1 in a random order, as Fisher and Yates shuffle them; only what was swapped is stored.
class Shuffle {
 public:
  Shuffle(int64_t size, uint64_t seed) : left_(size), random_(seed, kStream) {}

  std::optional<int64_t> next() {
    if (left_ == 0) return std::nullopt;
    const auto at = static_cast<int64_t>(random_.below(static_cast<uint64_t>(left_--)));
    const int64_t taken = number_at(at);
    swapped_[at] = number_at(left_);
    return taken;
  }

 private:
  static constexpr uint64_t kStream = 0x5bace;  // other than those of routings with the same seed
  int64_t number_at(int64_t place) const {
    const auto found = swapped_.find(place);
    return found == swapped_.end() ? place : found->second;
  }

  int64_t left_;
  Random random_;
  std::unordered_map<int64_t, int64_t> swapped_;
};

std::vector<int> values_from_text(const Knob& knob, std::string_view list) {
  if (list == kLargestLegalWord) return {kLargestLegal};
  if (knob.words.empty()) return mapped<int>(parse_integers(list, knob.name, 0, 1 << 20), std::identity());
  const std::vector<std::string> words = split(list, ',');
  if (words.empty()) throw request_error(fmt::format("{}: the list is empty", knob.name));
  return mapped(words, [&](const std::string& word) { return parse_knob(knob, word); });
}

Error knob_missing(const SearchSpace& space, const std::string& name, const Catalog& catalog) {
  std::vector<std::string> owners;
  for (const VariantPtr& variant : catalog.variants())
    for (const Knob& knob : variant->knobs)
      if (knob.name == name) owners.push_back(variant->name);
  if (owners.empty()) return unknown_word("knob", name, catalog.knob_names());
  return request_error(fmt::format("no variant of the space '{}' has the knob '{}'", space.name, name),
                       fmt::format("variants that have it: {}", fmt::join(owners, ", ")));
}

VariantSpace whole(const VariantPtr& variant) {
  VariantSpace part{.variant = variant};
  for (const Knob& knob : variant->knobs) part.values.emplace_back(knob.name, knob.values);
  return part;
}

void add_packs(SearchSpace& space, const Catalog& catalog) {
  for (const VariantPtr& variant : catalog.variants())
    if (variant->pack) space.variants.push_back(whole(variant));
}

}  // namespace

SearchSpace whole_space(const Catalog& catalog) {
  SearchSpace space{.name = std::string(kAllVariants)};
  for (const VariantPtr& variant : catalog.variants())  // in reverse: the default is of the first that can run
    if (!variant->pack) space.variants.insert(space.variants.begin(), whole(variant));
  add_packs(space, catalog);
  return space;
}

SearchSpace space_from_json(const JsonAt& json, const Catalog& catalog) {
  require_schema(json, "space");
  const JsonAt list = json["variants"];
  SearchSpace space;
  for (const auto& item : list.value().items())
    space.variants.push_back(variant_space(item.key(), list[item.key()], catalog));
  return space;
}

SearchSpace load_space(const std::string& name_or_file, const Catalog& catalog) {
  if (name_or_file == kAllVariants) return whole_space(catalog);
  const std::string path = fmt::format("{}{}.json", kFolder, name_or_file);
  Json json;
  const auto text = embedded_file(path);
  if (text) {
    json = parse_json(*text, path);
  } else if (name_or_file.ends_with(".json") || is_there(name_or_file)) {
    json = read_json(name_or_file);
  } else {
    std::vector<std::string> names = embedded_names(kFolder);
    names.emplace(names.begin(), kAllVariants);
    throw unknown_word("space", name_or_file, names);
  }
  SearchSpace space = space_from_json(JsonAt(json, name_or_file), catalog);
  space.name = name_or_file;
  if (text) add_packs(space, catalog);
  return space;
}

void keep_variants(SearchSpace& space, const std::vector<std::string>& names, const Catalog& catalog) {
  const auto name_of = [](const VariantSpace& part) { return part.variant->name; };
  for (const std::string& name : names)
    if (!contains(space.variants, name, name_of)) space.variants.push_back(whole(catalog.find(name)));
  std::erase_if(space.variants, [&](const VariantSpace& part) { return !contains(names, part.variant->name); });
}

void set_values(SearchSpace& space, const std::string& assignment, const Catalog& catalog, bool more) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos)
    throw request_error(fmt::format("'{}' must be knob=value,value", assignment), "for instance block_m=64,128");
  const std::string name = assignment.substr(0, equals);
  const std::string_view list = std::string_view(assignment).substr(equals + 1);
  bool found = false;
  for (VariantSpace& part : space.variants)
    for (size_t i = 0; i < part.values.size(); ++i) {
      if (part.values[i].first != name) continue;
      const std::vector<int> given = values_from_text(part.variant->knobs[i], list);
      std::vector<int>& values = part.values[i].second;
      values.erase(more ? values.end() : values.begin(), values.end());
      values.insert(values.end(), given.begin(), given.end());
      found = true;
    }
  if (!found) throw knob_missing(space, name, catalog);
}

bool set_legal_values(Candidate& candidate, const Shape& shape, const DeviceInfo& device) {
  if (const auto at = std::ranges::find(candidate.values, kSmallestLegal); at != candidate.values.end()) {
    const auto place = static_cast<size_t>(at - candidate.values.begin());
    const Candidate open_candidate = candidate;
    for (const int value : candidate.variant->knobs[place].values) {
      candidate = open_candidate;
      candidate.values[place] = value;
      if (set_legal_values(candidate, shape, device)) return true;
    }
    return false;
  }
  std::vector<size_t> open;
  for (size_t i = 0; i < candidate.values.size(); ++i)
    if (candidate.values[i] == kLargestLegal) open.push_back(i);
  return try_downwards(candidate, std::move(open), shape, device);
}

void require_variant(const SearchSpace& space, const DeviceInfo& device) {
  if (!parts_for(space, device).empty()) return;
  if (device.kind == DeviceKind::cuda)
    throw request_error(fmt::format("no variant of the space '{}' runs on a GPU", space.name),
                        "see 'moetune list variants', or choose another --device");
  throw request_error(
      fmt::format("this machine has no GPU, or --device cpu was given; no variant of the space '{}' runs on a cpu",
                  space.name),
      "plan for a GPU with tune --dry-run --device h200, compile for one with compile, or use --variant cpu");
}

Candidate default_candidate(const SearchSpace& space, const Problem& problem, const DeviceInfo& device) {
  require_variant(space, device);
  std::optional<Candidate> first;
  for (const VariantSpace* part : parts_for(space, device)) {
    const Variant& variant = *part->variant;
    Candidate candidate = variant.fallback(problem, device);
    if (!variant.illegal(candidate, problem.shape, device)) return candidate;
    if (!first) first = candidate;
  }
  return *first;
}

Enumeration enumerate(const SearchSpace& space, const Shape& shape, const DeviceInfo& device) {
  Enumeration result;
  std::set<Candidate> known;
  for (const VariantSpace* part : parts_for(space, device)) {
    const int64_t count = size(*part, kMaxCandidates);
    for (int64_t i = 0; i < count; ++i) add(result, known, *part, i, shape, device);
  }
  return result;
}

bool is_listable(const SearchSpace& space, const DeviceInfo& device, std::optional<int64_t> most) {
  int64_t total = 0;
  for (const VariantSpace* part : parts_for(space, device)) {
    const auto count = points(*part, kMaxCandidates);
    if (!count) return false;
    total += *count;
  }
  return total <= most.value_or(total);
}

void require_listable(const SearchSpace& space, const DeviceInfo& device) {
  for (const VariantSpace* part : parts_for(space, device)) size(*part, kMaxCandidates);
}

Enumeration draw(const SearchSpace& space, const Shape& shape, const DeviceInfo& device, int64_t count, uint64_t seed) {
  const std::vector<const VariantSpace*> parts = parts_for(space, device);
  int64_t total = 0;
  for (const VariantSpace* part : parts) total += size(*part, kMaxSize);
  Enumeration result;
  std::set<Candidate> known;
  Shuffle shuffle(total, seed);
  for (int64_t looked = 0; looked < kMaxCandidates && std::ssize(result.legal) < count; ++looked) {
    std::optional<int64_t> index = shuffle.next();
    if (!index) break;
    auto part = parts.begin();
    for (; *index >= size(**part, kMaxSize); ++part) *index -= size(**part, kMaxSize);
    add(result, known, **part, *index, shape, device);
  }
  return result;
}

CandidateSource::CandidateSource(SearchSpace space, DeviceInfo device, int64_t drawn)
    : space_(std::move(space)), device_(std::move(device)), drawn_(drawn) {}

std::shared_ptr<const Enumeration> CandidateSource::candidates(const Shape& shape, uint64_t seed) {
  if (!found_ || *shape_ != shape || (drawn_ > 0 && seed_ != seed)) {
    found_ = std::make_shared<const Enumeration>(drawn_ > 0 ? draw(space_, shape, device_, drawn_, seed)
                                                            : enumerate(space_, shape, device_));
    shape_ = shape, seed_ = seed;
  }
  return found_;
}

}  // namespace moetune
