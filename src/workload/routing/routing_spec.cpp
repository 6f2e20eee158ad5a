// Routings as text: kinds, their numbers and ranges, formatting and parsing.
#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/system/file.h"
#include "base/text/text.h"
#include "base/text/units.h"
#include "workload/routing/routing.h"
#include "workload/shape.h"

namespace moetune {
namespace {

struct Parameter {
  std::string_view name;
  double low, high, otherwise;
  bool whole = false;
};

struct Kind {
  std::string_view name;
  std::string_view description;
  std::vector<Parameter> parameters = {};
};

constexpr std::string_view kTrace = "trace:", kShared = "shared:";

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> list = {
      {"balanced", "equal rows for every expert"},
      {"uniform", "each token picks top_k experts, all equally likely"},
      {"zipf", "popularity rank^-a, in a random order of experts", {{"a", 0, 10, 1}}},
      {"powerlaw", "loads from a power law of exponent a on [1, 0.8 tokens]", {{"a", 0.01, 10, 1.2}}},
      {"lognormal", "log-normal loads of deviation s", {{"s", 0, 10, 1}}},
      {"dirichlet", "Dirichlet loads with experts / f effective experts, 10 % uniform mixed in", {{"f", 1, 1000, 2}}},
      {"maxmean", "log-normal loads whose max/mean is R, as near as the rows allow", {{"R", 1, 100000, 4}}},
      {"hot",
       "p of all choices from a pool of k experts, as far as a token may pick them",
       {{"k", 1, 65535, 4, true}, {"p", 0, 1, 0.9}}},
      {"grouped",
       "the best t of g groups of experts first, then experts in them (DeepSeek-V3)",
       {{"g", 1, 65536, 8, true}, {"t", 1, 65536, 4, true}}},
      {"single", "all rows to one expert (to the first top_k: no token picks an expert twice)"},
  };
  return list;
}

std::string usage(const Kind& kind) {
  std::string text(kind.name);
  for (const Parameter& parameter : kind.parameters) text += fmt::format(":{}", parameter.name);
  return text;
}

double parameter_value(const Parameter& parameter, const std::string& word, std::string_view whole_text) {
  const double value = parse_number(word, fmt::format("routing '{}': {}", whole_text, parameter.name));
  if (value < parameter.low || value > parameter.high)
    throw request_error(fmt::format("routing '{}': {} is {}, outside {} to {}", whole_text, parameter.name, value,
                                    parameter.low, parameter.high));
  if (parameter.whole && std::trunc(value) != value)
    throw request_error(
        fmt::format("routing '{}': {} is {}, expected a whole number", whole_text, parameter.name, value));
  return value == 0 ? 0 : value;  // turns -0 into 0, whose text is the same for equal values
}

bool looks_like_a_recording(const std::string& file) {
  return file.ends_with(".json") || file.ends_with(".csv") || file.ends_with(".npy");
}

// The last '#' begins the layer, unless the whole text names a file that exists.
RoutingSpec parse_trace(std::string_view text) {
  RoutingSpec spec{"trace", {}, std::string(text.substr(kTrace.size())), ""};
  if (!is_printable(spec.file))
    throw request_error(fmt::format("routing '{}': the name has characters that cannot be printed", text),
                        "rename the file or the layer: its name becomes a part of the cell's name");
  const size_t hash = spec.file.rfind('#');
  if (hash != std::string::npos && !is_file(spec.file)) {
    const std::string whole = spec.file;
    spec.layer = whole.substr(hash + 1);
    spec.file.resize(hash);
    // The whole text names a file that doesn't exist: its '#' begins no layer.
    if (looks_like_a_recording(spec.layer) && !looks_like_a_recording(spec.file))
      throw request_error(
          fmt::format("routing '{}': there is no file '{}', and what follows the last '#' names a layer", text, whole),
          fmt::format("for a file that isn't there yet write trace:{}#", whole));
  }
  if (spec.file.empty()) throw request_error(fmt::format("routing '{}' names no file", text), "write trace:FILE#LAYER");
  return spec;
}

}  // namespace

std::vector<RoutingKind> routing_kinds() {
  std::vector<RoutingKind> result;
  for (const Kind& kind : kinds()) {
    std::string description(kind.description);
    for (const auto& [word, low, high, otherwise, whole] : kind.parameters)
      description += fmt::format("; {} {} to {}, {} unless given", word, low, high, otherwise);
    result.push_back({std::string(kind.name), usage(kind), description});
  }
  result.push_back(
      {"trace", "trace:FILE[#LAYER]",
       "recorded rows or choices from a .json, .csv or .npy file or a built-in recording; one cell a layer"});
  result.push_back(
      {"shared", "shared:S:ROUTING",
       "every token picks the last S experts, as programs fuse shared experts, the others by ROUTING; 1 and uniform "
       "unless given"});
  return result;
}

RoutingSpec parse_routing(std::string_view text) {
  if (text.starts_with(kTrace)) return parse_trace(text);
  if (text == "trace") return parse_trace(kTrace);
  if (text == "shared") return parse_routing("shared:1:uniform");
  if (text.starts_with(kShared)) {
    const std::string_view rest = text.substr(kShared.size()), count = rest.substr(0, rest.find(':'));
    if (count.size() == rest.size() || rest.substr(count.size() + 1).starts_with(kShared))
      throw request_error(fmt::format("routing '{}' is not shared:S:ROUTING", text), "such as shared:1:uniform");
    RoutingSpec spec = parse_routing(rest.substr(count.size() + 1));
    spec.shared = parse_integer(count, fmt::format("routing '{}': S", text), 1, kMaxExperts);
    return spec;
  }
  const std::vector<std::string> words = split(text, ':');
  if (words.empty()) throw request_error("the routing is empty", "such as uniform, zipf:1 or trace:FILE");
  for (const Kind& kind : kinds()) {
    if (kind.name != words[0]) continue;
    if (words.size() - 1 > kind.parameters.size())
      throw request_error(fmt::format("routing '{}' has too many numbers", text), fmt::format("write {}", usage(kind)));
    RoutingSpec spec{words[0], {}, "", ""};
    for (size_t i = 0; i < kind.parameters.size(); ++i)
      spec.parameters.push_back(i + 1 < words.size() ? parameter_value(kind.parameters[i], words[i + 1], text)
                                                     : kind.parameters[i].otherwise);
    return spec;
  }
  throw unknown_word("routing", words[0], mapped(routing_kinds(), &RoutingKind::name));
}

std::string text(const RoutingSpec& spec) {
  if (spec.shared > 0) {
    RoutingSpec routed = spec;
    routed.shared = 0;
    return fmt::format("{}{}:{}", kShared, spec.shared, text(routed));
  }
  if (spec.name == "trace") {
    // A '#' in the file's name would be read as the beginning of the layer.
    const bool marked = !spec.layer.empty() || spec.file.find('#') != std::string::npos;
    return fmt::format("{}{}{}{}", kTrace, spec.file, marked ? "#" : "", spec.layer);
  }
  std::string result = spec.name;
  for (const double parameter : spec.parameters) result += fmt::format(":{}", parameter);
  return result;
}

}  // namespace moetune
