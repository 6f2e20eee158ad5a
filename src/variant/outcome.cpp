// Names and JSON of outcomes.
#include "variant/outcome.h"

#include <array>

#include "base/error.h"

namespace moetune {
namespace {

constexpr std::array<std::string_view, 8> kStatusNames = {"ok",           "illegal",      "compile_error", "spills",
                                                          "launch_error", "wrong_result", "timeout",       "crashed"};
constexpr std::array<std::string_view, 2> kRegimeNames = {"burst", "sustained"};

}  // namespace

std::string_view name(Status status) { return kStatusNames[static_cast<size_t>(status)]; }

Status parse_status(std::string_view text) { return static_cast<Status>(place_of_word("status", text, kStatusNames)); }

std::string_view name(Regime regime) { return kRegimeNames[static_cast<size_t>(regime)]; }

Regime parse_regime(std::string_view text) { return static_cast<Regime>(place_of_word("regime", text, kRegimeNames)); }

Json to_json(const CompileResult& result) {
  Json json = {{"status", name(result.status)},
               {"reason", result.reason},
               {"registers", result.registers},
               {"spill_bytes", result.spill_bytes},
               {"static_shared_bytes", result.static_shared_bytes},
               {"from_cache", result.from_cache},
               {"seconds", rounded(result.seconds, 4)}};
  if (!result.code.empty()) json["code"] = result.code;
  return json;
}

CompileResult compile_result_from_json(const JsonAt& json) {
  return {.status = parse_status(json["status"].string()),
          .reason = json["reason"].string(),
          .registers = static_cast<int>(json["registers"].integer(0, 1 << 20)),
          .spill_bytes = static_cast<int>(json["spill_bytes"].integer(0, 1 << 30)),
          .static_shared_bytes = json["static_shared_bytes"].integer(0),
          .code = json.has("code") ? json["code"].string() : "",
          .from_cache = json["from_cache"].boolean(),
          .seconds = json["seconds"].number()};
}

Json to_json(const Verdict& verdict) {
  return {{"ok", verdict.ok},
          {"reason", verdict.reason},
          {"elements", verdict.elements},
          {"mismatches", verdict.mismatches},
          {"normalised_error", rounded(verdict.normalised_error, 4)},
          {"max_ulps", rounded(verdict.max_ulps, 4)}};
}

Verdict verdict_from_json(const JsonAt& json) {
  const auto number_or_nan = [&](std::string_view key) {  // NaN is written as null
    return json.has(key) ? json[key].number() : std::numeric_limits<double>::quiet_NaN();
  };
  return {.ok = json["ok"].boolean(),
          .reason = json["reason"].string(),
          .elements = json["elements"].integer(0),
          .mismatches = json["mismatches"].integer(0),
          .normalised_error = number_or_nan("normalised_error"),
          .max_ulps = number_or_nan("max_ulps")};
}

Json to_json(const Repetition& repetition) {
  return {{"launches", repetition.launches}, {"different", repetition.different}, {"reason", repetition.reason}};
}

Repetition repetition_from_json(const JsonAt& json) {
  return {.launches = json["launches"].integer(0),
          .different = json["different"].integer(0),
          .reason = json["reason"].string()};
}

}  // namespace moetune
