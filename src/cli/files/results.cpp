// One function a kind of result.
#include "cli/files/results.h"

#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "base/placed.h"
#include "cli/commands/list.h"
#include "cli/files/parts.h"
#include "check/differences.h"
#include "record/measurement.h"
#include "record/table/table.h"
#include "check/judge.h"
#include "variant/device.h"
#include "workload/problem.h"

namespace moetune {
namespace {

void require_fault(const JsonAt& json) {
  if (json.has("fault")) json["fault"].string();
}

// Cell, contender, status, and what a good or a bad status needs.
void require_point(const JsonAt& point, std::string_view needed) {
  require_cell(point["cell"]);
  require_contender(point["contender"]);
  const Status status = placed(point["status"], [](const JsonAt& at) { return parse_status(at.string()); });
  if (status == Status::ok)
    point[needed];
  else
    point["reason"].string();
  if (point.has("measurement")) measurement_from_json(point["measurement"]);
  if (point.has("verdict")) require_verdict(point["verdict"]);
  if (point.has("repetition")) repetition_from_json(point["repetition"]);
}

std::vector<std::string> finding_names() {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(Finding::untrusted); ++i) names.emplace_back(name(static_cast<Finding>(i)));
  return names;
}

void require_finding(const JsonAt& json) {
  require_cell(json["cell"]);
  require_word(json["finding"], finding_names());
  json["reason"].string();
  const std::string word = json["finding"].string();
  const bool judged =
      word == name(Finding::equivalent) || word == name(Finding::improved) || word == name(Finding::regressed);
  if (!judged && !json.has("rounds")) return;
  for (const char* key : {"change", "change_low", "change_high"}) require_number_or_null(json, key, -1);
  for (const char* key : {"before_us", "control_now_us", "control_before_us"}) require_number(json[key]);
  json["control"].string();
  measurement_from_json(json["now"]);
  json["rounds"].integer(0);
  for (const char* key : {"time_change", "time_change_low", "time_change_high"})
    if (json.value().contains(key)) require_number_or_null(json, key, -1);
  if (json.value().contains("detectable")) require_number_or_null(json, "detectable");
  for (const char* key : {"by_ratio", "by_time"})
    if (json.has(key)) require_word(json[key], {"equivalent", "improved", "regressed", "inconclusive"});
}

void require_mean(const JsonAt& json) {
  require_word(json["finding"], {"equivalent", "improved", "regressed", "inconclusive"});
  for (const char* key : {"change", "change_low", "change_high"}) require_number(json[key], -1);
  require_number(json["detectable"]);
  json["cells"].integer(2);
}

void require_answer(const JsonAt& json) {
  require_cell(json["cell"]);
  require_word(json["match"], {"none", "other_device", "other_routing", "nearest", "choice", "exact"});
  require_text(json["explanation"]);
  const bool none = json["match"].string() == "none";
  if (none && json.has("entry")) json.fail("the match is none, and yet it has an entry");
  for (const char* key : {"distance", "log_tokens_distance", "log_skew_distance"})
    if (!none || json.has(key)) require_number(json[key]);
  if (none) return;
  if (json["match"].string() == "choice") {
    if (json.has("entry")) json.fail("the match is a choice, and yet it has an entry");
    return require_object(json["choice"]);
  }
  require_entry(json["entry"]);
}

void require_estimate(const JsonAt& json) {
  json["trials"].integer(0);
  require_number(json["seconds"]);
  require_word(json["by"], {"journal", "guess"});
}

void require_rehearsal(const JsonAt& json) {
  require_text(json["id"]);
  json["recorded"].integer(1);
  placed(json["best"], candidate_from_json);
  require_positive(json["best_us"]);
  if (json.has("default_loss")) require_number(json["default_loss"]);
  each(json["losses"], [](const JsonAt& loss) { require_number(loss); });
  each(json["candidates"], [](const JsonAt& count) { count.integer(1); });
  each(json["blocks"], [](const JsonAt& count) { count.integer(0); });
}

void require_side(const JsonAt& side) {
  require_text(side["file"]);
  require_device(side["device"]);
  side["cells"].integer(0);
}

void require_timed_winner(const JsonAt& json) {
  if (json.has("skipped")) return require_text(json["skipped"]);
  placed(json["candidate"], candidate_from_json);
  measurement_from_json(json["measurement"]);
}

void require_difference(const JsonAt& json) {
  require_text(json["id"]);
  require_cell(json["cell"]);
  json["differs"].boolean();
  json["winner_changed"].boolean();
  const std::string only = json.has("only_in") ? json["only_in"].string() : "";
  if (!only.empty()) require_word(json["only_in"], {"old", "new"});
  if (only != "new") require_timed_winner(json["old"]);
  if (only != "old") require_timed_winner(json["new"]);
  if (!json.has("time")) return;
  require_word(json["time"], time_change_names());
  for (const char* key : {"ratio", "ratio_low", "ratio_high"}) require_positive(json[key]);
}

void require_comparison(const JsonAt& json) {
  parse_op(json["op"].string());
  for (const char* text : {"other", "least_cell"}) require_text(json[text]);
  for (const char* factor : {"geometric_mean", "least", "most"}) require_positive(json[factor]);
  json["cells"].integer(1);
}

}  // namespace

void read_bench(const JsonAt& json) {
  require_schema(json, "bench");
  require_tool(json["tool"]);
  require_environment(json);
  require_steps(json);
  if (json.has("comparisons")) each(json["comparisons"], require_comparison);
  require_fault(json);
  each(json["points"], [](const JsonAt& point) { require_point(point, "measurement"); });
}

void read_check(const JsonAt& json) {
  require_schema(json, "check");
  require_tool(json["tool"]);
  require_environment(json);
  json["baseline"].string();
  require_positive(json["threshold"]);
  require_fault(json);
  if (json.has("against")) {
    require_text(json["against"]["path"]);
    require_object(json["against"]["environment"]);
  }
  if (json.has("mean")) require_mean(json["mean"]);
  each(json["findings"], require_finding);
}

void read_compile(const JsonAt& json) {
  require_schema(json, "compile");
  require_tool(json["tool"]);
  require_pattern(json["arch"], "sm_[0-9]+[af]?", "an architecture");
  each(json["results"], [](const JsonAt& result) {
    require_cell(result["cell"]);
    placed(result["candidate"], candidate_from_json);
    placed(result["compile"], compile_result_from_json);
    require_number(result["compile"]["seconds"]);
    if (result.has("shared_bytes")) result["shared_bytes"].integer(0);
    if (result.has("threads")) result["threads"].integer(1);
    if (result.has("file")) result["file"].string();
  });
}

void read_diff(const JsonAt& json) {
  require_schema(json, "diff");
  require_tool(json["tool"]);
  require_side(json["old"]);
  require_side(json["new"]);
  json["times_compared"].boolean();
  require_texts(json["origin"]);
  each(json["cells"], require_difference);
}

void read_doctor(const JsonAt& json) {
  require_schema(json, "doctor");
  require_tool(json["tool"]);
  if (json["devices"].size() == 0) json["devices"].fail("has no devices");
  each(json["devices"], [](const JsonAt& device) {
    require_pattern(device["word"], "cpu|cuda:[0-9]+", "cpu or cuda:N");
    require_environment(device);
    if (!device.has("ceilings")) return;
    ceilings_from_json(device["ceilings"]);
    for (const auto& item : device["ceilings"].value().items()) require_number(device["ceilings"][item.key()]);
  });
  require_texts(json["notes"]);
}

void read_list(const JsonAt& json) {
  require_schema(json, "list");
  require_tool(json["tool"]);
  require_word(json["what"], list_topics());
  each(json["items"], [](const JsonAt& item) { require_text(item["name"]); });
}

void read_lookup(const JsonAt& json) {
  require_schema(json, "lookup");
  require_tool(json["tool"]);
  json["table"].string();
  each(json["answers"], require_answer);
}

void read_plan(const JsonAt& json) {
  require_schema(json, "plan");
  require_tool(json["tool"]);
  require_device(json["device"]);
  each(json["cells"], [](const JsonAt& item) {
    require_cell(item["cell"]);
    require_figures(item["figures"]);
    if (item.has("total")) item["total"].integer(0);
    if (item.has("legal")) item["legal"].integer(0, item["total"].integer());
    if (item.has("pruned")) require_counts(item["pruned"]);
    if (item.has("estimate")) require_estimate(item["estimate"]);
  });
  if (json.has("estimate")) require_estimate(json["estimate"]);
  json["files"]["output"].string();
  json["files"]["journal"].string();
}

void read_replay(const JsonAt& json) {
  require_schema(json, "replay");
  require_tool(json["tool"]);
  json["strategy"].string();
  json["runs"].integer(1);
  require_number(json["mean_loss"]);
  require_number(json["worst_loss"]);
  json["most_candidates"].integer(0);
  each(json["cells"], require_rehearsal);
}

void read_validate(const JsonAt& json) {
  require_schema(json, "validate");
  require_tool(json["tool"]);
  each(json["files"], [](const JsonAt& file) {
    require_text(file["file"]);
    require_word(file["result"], {"valid", "invalid", "unreadable"});
    const bool valid = file["result"].string() == "valid";
    if (!valid) require_text(file["fault"]);
    if (valid && file.has("fault")) file.fail("it is valid, and yet it has a fault");
    if (file.has("version")) file["version"].integer(1);
  });
}

void read_verify(const JsonAt& json) {
  require_schema(json, "verify");
  require_tool(json["tool"]);
  require_environment(json);
  require_fault(json);
  if (json.has("pruned")) require_counts(json["pruned"]);
  each(json["points"], [](const JsonAt& point) { require_point(point, "verdict"); });
}

}  // namespace moetune
