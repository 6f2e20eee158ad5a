// Rules of single parts.
#include "cli/files/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "backend/backend.h"
#include "base/error.h"
#include "base/placed.h"
#include "record/measurement.h"
#include "variant/device.h"
#include "workload/problem.h"

namespace moetune {
namespace {

void require_sums(const JsonAt& sums) {
  if (sums.size() == 0) sums.fail("has no sums");
  each(sums, [](const JsonAt& sum) {
    require_text(sum["contender"]);
    for (const char* key : {"sum_us", "low_us", "high_us", "speedup", "speedup_low", "speedup_high"})
      require_positive(sum[key]);
  });
}

void require_rival(const JsonAt& json) {
  require_text(json["name"]);
  if (json.has("candidate")) placed(json["candidate"], candidate_from_json);
  measurement_from_json(json["measurement"]);
  for (const char* key : {"ratio", "ratio_low", "ratio_high"}) require_positive(json[key]);
}

void require_winner(const JsonAt& json) {
  placed(json["candidate"], candidate_from_json);
  measurement_from_json(json["measurement"]);
  require_number(json["occupancy"]);
  require_derived(json["derived"]);
  require_verdict(json["verdict"]);
  each(json["rivals"], require_rival);
  each(json["ties"], [](const JsonAt& tie) { placed(tie, candidate_from_json); });
}

}  // namespace

void require_number(const JsonAt& json, double least) {
  if (const double value = json.number(); value < least) json.fail(fmt::format("{} is less than {}", value, least));
}

void require_number_or_null(const JsonAt& object, std::string_view key, double least) {
  if (object.value().is_object() && object.value().contains(key) && object.value()[std::string(key)].is_null()) return;
  require_number(object[key], least);
}

void require_positive(const JsonAt& json) {
  if (const double value = json.number(); value <= 0) json.fail(fmt::format("{} is not positive", value));
}

void require_text(const JsonAt& json) {
  if (json.string().empty()) json.fail("the text is empty");
}

void require_word(const JsonAt& json, const std::vector<std::string>& known) {
  placed(json, [&](const JsonAt& at) {
    const std::string word = at.string();
    if (std::ranges::find(known, word) == known.end()) throw unknown_word("word", word, known);
  });
}

void require_texts(const JsonAt& array) {
  for (size_t i = 0; i < array.size(); ++i) array[i].string();
}

void require_object(const JsonAt& json) {
  if (!json.value().is_object()) json.fail("expected an object");
}

void require_counts(const JsonAt& json) {
  require_object(json);
  for (const auto& item : json.value().items()) json[item.key()].integer(1);
}

void require_pattern(const JsonAt& json, const char* pattern, std::string_view wanted) {
  if (const std::string word = json.string(); !std::regex_match(word, std::regex(pattern)))
    json.fail(fmt::format("'{}' is not {}", word, wanted));
}

void require_tool(const JsonAt& tool) {
  if (tool["name"].string() != "moetune") tool["name"].fail("expected 'moetune'");
  require_text(tool["version"]);
  require_text(tool["commit"]);
  tool["dirty"].boolean();
  require_texts(tool["argv"]);
}

void require_derived(const JsonAt& derived) {
  require_number(derived["tflops"]);
  require_number(derived["tbps"]);
  require_number_or_null(derived, "percent_of_roof");
  const JsonAt speedup = derived["speedup"];
  require_object(speedup);
  for (const auto& item : speedup.value().items()) require_positive(speedup[item.key()]);
}

void with_open_top_k(const std::function<void(int64_t top_k)>& read) {
  try {
    read(0);
  } catch (const Error& error) {
    try {
      read(1);
    } catch (const Error&) {
      throw error;
    }
  }
}

void require_device(const JsonAt& json) {
  device_from_json(json);
  require_text(json["name"]);
  require_number(json["peak_flops"]);
  require_number(json["peak_bandwidth"]);
  if (!json.has("measured")) return;
  require_positive(json["measured"]["dense_flops"]);
  require_positive(json["measured"]["read_bandwidth"]);
}

void require_cell(const JsonAt& json) { placed(json, cell_from_json); }

void require_environment(const JsonAt& json) {
  require_device(json["device"]);
  require_object(json["environment"]);
}

void require_contender(const JsonAt& json) {
  placed(json, contender_from_json);
  if (json.has("baseline")) require_text(json["baseline"]);
  if (json.has("baseline") && json.has("candidate")) json.fail("it is both a candidate and a baseline");
}

void require_verdict(const JsonAt& json) {
  verdict_from_json(json);
  require_number_or_null(json, "normalised_error");
  require_number_or_null(json, "max_ulps");
}

void require_figures(const JsonAt& json) {
  for (const char* key : {"rows", "active_experts", "max_rows"}) json[key].integer(0);
  for (const char* key : {"max_over_mean", "cv", "effective_experts"}) require_number(json[key]);
}

void require_entry(const JsonAt& json) {
  require_text(json["id"]);
  require_cell(json["cell"]);
  each(json["m_sizes"], [](const JsonAt& rows) { rows.integer(0); });
  require_figures(json["figures"]);
  require_number(json["flops"]);
  require_number(json["bytes"]);
  if (json.has("skipped"))
    require_text(json["skipped"]);
  else
    require_winner(json);
  if (json.has("untrusted")) require_text(json["untrusted"]);
  for (const char* key : {"legal", "measured", "failed"}) json["candidates"][key].integer(0);
  json["complete"].boolean();
}

void require_steps(const JsonAt& json) {
  if (!json.has("training_steps")) return;
  if (json["training_steps"].size() == 0) json["training_steps"].fail("has no steps");
  each(json["training_steps"], [](const JsonAt& step) {
    if (step["cells"].size() != 6) step["cells"].fail("a training step has six cells");
    require_texts(step["cells"]);
    require_sums(step["sums"]);
  });
}

}  // namespace moetune
