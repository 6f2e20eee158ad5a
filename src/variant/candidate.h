// A candidate: a variant and a value for each of its knobs. Every knob is named once, in candidate.cpp's list.
#pragma once
#include <compare>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace moetune {

/// Values of all knobs of all variants; a variant reads those that it lists, the others stay 0.
struct Candidate {
  std::string variant;
  int block_m = 0;
  int block_n = 0;
  int block_k = 0;
  int warps = 0;
  int stages = 0;
  int raster = 0;
  int group = 0;
  int threads = 0;
  int consumers = 0;
  int schedule = 0;
  int swap = 0;
  int cluster = 0;
  int in_flight = 0;
  int tma_x = 0;
  int tma_w = 0;
  int tiles = 0;
  int tma_store = 0;
  int addressing = 0;
  int pace = 0;
  int split = 0;
  int l2_promotion = 0;
  int hold = 0;
  int gather = 0;
  int mix = 0;

  auto operator<=>(const Candidate&) const = default;  // NOLINT(modernize-use-nullptr): of the comparison's zero
};

/// A knob without which a candidate is incomplete.
constexpr int kNeeded = -1;

struct Knob {
  std::string_view name;
  int Candidate::*value;
  std::string_view help;
  std::vector<std::string_view> labels = {};  // words for the values 0, 1, ...; empty for plain numbers
  int absent = kNeeded;  // its value in texts and files that don't name it: those from before the knob was there
};

/// The list that text, JSON, CSV, space files, kernel units and the search all loop over, in their order.
const std::vector<Knob>& knobs();

/// Exit::request with the nearest name for an unknown one.
const Knob& find_knob(std::string_view name);

/// A knob's value as text ("128", "m") and back; errors tell the words.
std::string knob_text(const Knob& knob, int value);
int parse_knob(const Knob& knob, std::string_view text);

/// "mma block_m=128 block_n=256 ...": the knobs of its variant in list order; and back, from spaces or commas.
std::string text(const Candidate& candidate);
Candidate parse_candidate(std::string_view text);

Json to_json(const Candidate& candidate);
Candidate candidate_from_json(const JsonAt& json);

}  // namespace moetune
