// The list of knobs, and all that loops over it. To add a knob: one line in the struct, one line here.
#include "variant/candidate.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "variant/variant.h"

namespace moetune {
namespace {

constexpr int kMaxKnobValue = 1 << 20;

std::vector<std::string> names(const std::vector<Knob>& list) {
  std::vector<std::string> result;
  for (const Knob& knob : list) result.emplace_back(knob.name);
  return result;
}

// A knob of this very variant, so that a candidate never carries a value that nothing reads.
const Knob& knob_of(const Variant& variant, std::string_view name) {
  const Knob& knob = find_knob(name);
  if (std::find(variant.knobs.begin(), variant.knobs.end(), name) == variant.knobs.end())
    throw request_error(fmt::format("variant '{}' has no knob '{}'", variant.name, name),
                        fmt::format("its knobs: {}", fmt::join(variant.knobs, ", ")));
  return knob;
}

void complete(Candidate& candidate, const Variant& variant, const std::vector<std::string_view>& set) {
  for (const Knob& knob : knobs_of(variant)) {
    if (std::find(set.begin(), set.end(), knob.name) != set.end()) continue;
    if (knob.absent == kNeeded)
      throw request_error(fmt::format("candidate of '{}' lacks a value for '{}'", candidate.variant, knob.name));
    candidate.*knob.value = knob.absent;
  }
}

}  // namespace

const std::vector<Knob>& knobs() {
  static const std::vector<Knob> list = {
      {"block_m", &Candidate::block_m, "rows of X in a block's tile"},
      {"block_n", &Candidate::block_n, "columns of Y in a block's tile"},
      {"block_k", &Candidate::block_k, "depth of one step along k"},
      {"warps", &Candidate::warps, "warps in a block"},
      {"stages", &Candidate::stages, "tiles in flight between memory and the multiplier"},
      {"raster", &Candidate::raster, "which tile index moves fastest", {"n", "m"}},
      {"group", &Candidate::group, "tiles of the slow index walked together, for L2 reuse; 1 = plain order"},
      {"threads", &Candidate::threads, "threads of the cpu backend"},
      {"consumers", &Candidate::consumers, "warpgroups that multiply, beside the one that loads"},
      {"schedule", &Candidate::schedule, "consumers share a tile, or take turns", {"cooperative", "pingpong"}},
      {"swap", &Candidate::swap, "rows of X on the N side of the multiplier, in steps of 8", {"no", "yes"}},
      {"cluster", &Candidate::cluster, "two blocks share W (neighbours along m) or X (along n)", {"none", "m", "n"}},
      {"in_flight", &Candidate::in_flight, "stages of wgmma under way when the next is issued"},
      {"tma_x", &Candidate::tma_x, "X by tensor copies, or by cp.async", {"no", "yes"}},
      {"tma_w", &Candidate::tma_w, "W by tensor copies, or by cp.async", {"no", "yes"}, 1},
      {"tma_store",
       &Candidate::tma_store,
       "Y by tensor copies, by copies of rows, or by 16-byte stores",
       {"no", "yes", "rows"}},
      {"addressing",
       &Candidate::addressing,
       "experts by offsets from one base, or by arrays of pointers",
       {"base", "pointers"},
       0},
      {"tiles", &Candidate::tiles, "blocks take tiles by their number, or as they have time", {"static", "dynamic"}},
      {"pace", &Candidate::pace, "blocks begin each tile on their own, or all together", {"own", "common"}, 0},
      {"split",
       &Candidate::split,
       "pieces along k that each of the last tiles is cut into; 1 = whole, 0 = as all blocks can share them",
       {},
       1},
      {"l2_promotion",
       &Candidate::l2_promotion,
       "bytes that a tensor copy's miss brings into L2; 0 = as asked",
       {},
       128},
      {"hold", &Candidate::hold, "rows of Y kept until so many can be stored together; 0 = none", {}, 0},
      {"gather",
       &Candidate::gather,
       "rows of X put in order with each tile that reads them, or once, ahead of the tiles",
       {"tiles", "first"},
       0},
      {"mix", &Candidate::mix, "one block in so many takes the experts of fewest rows first; 0 = all in order", {}, 0},
  };
  return list;
}

const Knob& find_knob(std::string_view name) {
  for (const Knob& knob : knobs())
    if (knob.name == name) return knob;
  throw unknown_word("knob", name, names(knobs()));
}

std::string knob_text(const Knob& knob, int value) {
  if (value >= 0 && value < static_cast<int>(knob.labels.size()))
    return std::string(knob.labels[static_cast<size_t>(value)]);
  return std::to_string(value);
}

int parse_knob(const Knob& knob, std::string_view text) {
  if (knob.labels.empty()) return static_cast<int>(parse_integer(text, knob.name, 0, kMaxKnobValue));
  const auto found = std::find(knob.labels.begin(), knob.labels.end(), text);
  if (found != knob.labels.end()) return static_cast<int>(found - knob.labels.begin());
  throw unknown_word(fmt::format("value for {}", knob.name), text, {knob.labels.begin(), knob.labels.end()});
}

std::string text(const Candidate& candidate) {
  std::string result = candidate.variant;
  for (const Knob& knob : knobs_of(find_variant(candidate.variant)))
    result += fmt::format(" {}={}", knob.name, knob_text(knob, candidate.*knob.value));
  return result;
}

Candidate parse_candidate(std::string_view text) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), ',', ' ');
  std::vector<std::string> words = split(spaced, ' ');
  std::erase(words, "");
  if (words.empty()) throw request_error("the candidate is empty", "write it as 'mma block_m=128 block_n=128 ...'");
  const Variant& variant = find_variant(words[0]);
  Candidate candidate{.variant = words[0]};
  std::vector<std::string_view> set;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos) throw request_error(fmt::format("'{}' in a candidate is no knob=value", words[i]));
    const Knob& knob = knob_of(variant, std::string_view(words[i]).substr(0, equals));
    candidate.*knob.value = parse_knob(knob, std::string_view(words[i]).substr(equals + 1));
    set.push_back(knob.name);
  }
  complete(candidate, variant, set);
  return candidate;
}

Json to_json(const Candidate& candidate) {
  Json json = {{"variant", candidate.variant}};
  for (const Knob& knob : knobs_of(find_variant(candidate.variant))) {
    const int value = candidate.*knob.value;
    if (knob.labels.empty())
      json[std::string(knob.name)] = value;
    else
      json[std::string(knob.name)] = knob_text(knob, value);
  }
  return json;
}

Candidate candidate_from_json(const JsonAt& json) {
  Candidate candidate{.variant = json["variant"].string()};
  for (const Knob& knob : knobs_of(find_variant(candidate.variant))) {
    if (knob.absent != kNeeded && !json.has(knob.name)) {
      candidate.*knob.value = knob.absent;
      continue;
    }
    const JsonAt value = json[knob.name];
    candidate.*knob.value =
        knob.labels.empty() ? static_cast<int>(value.integer(0, kMaxKnobValue)) : parse_knob(knob, value.string());
  }
  return candidate;
}

}  // namespace moetune
