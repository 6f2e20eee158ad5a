// Findings as JSON and as text of 80 columns, every output of them, and command lines that others can paste.
#include "cli/tables/check_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/system/file.h"
#include "base/text/text.h"
#include "base/text/units.h"
#include "check/outputs/sentences.h"
#include "cli/files/files.h"

namespace moetune {
namespace {

Json to_json(const CellFinding& finding, bool paired) {
  Json json = {{"cell", to_json(finding.cell)}};
  if (!finding.kernel.empty()) json["kernel"] = finding.kernel;
  json["finding"] = name(finding.finding), json["reason"] = finding.reason;
  if (finding.rounds == 0) return json;
  json["control"] = finding.control;
  json.update(estimate_json("change", finding.change));
  json["detectable"] = rounded(finding.detectable);
  if (!paired) {
    json.update(estimate_json("time_change", finding.time_change));
    json["by_ratio"] = name(finding.by_ratio);
    json["by_time"] = name(finding.by_time);
  }
  if (!finding.metric_changes.empty())
    json["metric_changes"] =
        metrics_json(finding.metric_changes, [](const Estimate& one) { return estimate_json("change", one); });
  json["now"] = to_json(finding.now);
  json["before_us"] = rounded(finding.before_seconds * 1e6);
  json["control_now_us"] = rounded(finding.control_now_seconds * 1e6);
  json["control_before_us"] = rounded(finding.control_before_seconds * 1e6);
  json["rounds"] = finding.rounds;
  return json;
}

Json to_json(const MeanFinding& mean) {
  Json json = {{"finding", name(mean.finding)}};
  json.update(estimate_json("change", mean.change));
  json.update({{"detectable", rounded(mean.detectable)}, {"cells", mean.cells}});
  return json;
}

Json to_json(const CheckResult& result, const CheckContext& context) {
  Json json = document(
      "check", context.argv,
      {{"device", to_json(context.device)}, {"environment", context.environment}, {"baseline", context.table_file}});
  if (!result.against.empty()) json["against"] = {{"path", result.against}, {"environment", context.other_environment}};
  json["regime"] = name(context.regime);
  json["threshold"] = rounded(result.threshold);
  json["findings"] =
      json_list(result.findings, [&](const CellFinding& finding) { return to_json(finding, !result.against.empty()); });
  if (result.mean) json["mean"] = to_json(*result.mean);
  if (!result.fault.empty()) json["fault"] = result.fault;
  return json;
}

void write_named(const std::string& path, const std::string& text) {
  if (!path.empty()) write_atomic(path, text);
}

// Of a job summary, which may have several checks.
std::string heading(const CheckResult& result, const CheckContext& context) {
  const std::string against = result.against.empty() ? "" : " against " + result.against;
  return fmt::format("# moetune check {}\n\n", markdown_text(context.table_file + against)) +
         markdown_text(fmt::format("{}, threshold {:g} %", context.device.name, 100 * result.threshold)) + ".\n\n";
}

// A job summary is optional: a failure to write it changes no verdict.
void append_step_summary(const std::string& text, const Terminal& terminal) {
  const char* path = std::getenv("GITHUB_STEP_SUMMARY");
  if (path == nullptr || *path == 0) return;
  std::ofstream file(path, std::ios::app);
  if (!(file << text << '\n' << std::flush))
    warn(terminal, fmt::format("{}: the step summary cannot be written", path));
}

std::vector<std::string> row_of(const CellFinding& finding, const CheckResult& result, bool named,
                                const std::vector<Metric>& metrics, bool verbose) {
  const double before = compared_seconds(finding, result);
  std::vector<std::string> row = {before > 0 ? format_time(before) : "",
                                  finding.rounds > 0 ? format_time(finding.now.time.value) : "", change_text(finding),
                                  detectable_text(finding)};
  for (const Metric metric : metrics) {
    const auto change = finding.metric_changes.find(metric);
    row.push_back(change == finding.metric_changes.end() ? "" : percent_text(change->second));
  }
  if (named) row.insert(row.begin(), finding.kernel);
  if (verbose) row.push_back(judged_by(finding, result));
  row.push_back(fmt::format("{}{}", name(finding.finding), judged_by_time(finding) ? ", by time" : ""));
  if (verbose) row.push_back(finding.candidate);
  return row;
}

// "Before is the table's time, scaled by how much longer loop takes now, in the same rounds."
std::string legend(const CheckResult& result) {
  const std::vector<CellFinding>& findings = result.findings;
  if (std::ranges::all_of(findings, [](const CellFinding& finding) { return finding.rounds == 0; })) return "";
  const std::string found = " A slowdown of the size under 'finds' would have been found with a chance of 95 %.";
  if (!result.against.empty())
    return fmt::format("Before is the time with {}, measured {}.", result.against,
                       result.same_rounds ? "in the same rounds" : "then") +
           found;
  std::vector<std::string> controls;
  for (const CellFinding& finding : findings)
    if (finding.rounds > 0 && !judged_by_time(finding) && !contains(controls, finding.control))
      controls.push_back(finding.control);
  if (controls.empty()) return found.substr(1);
  return fmt::format("Before is the table's time, scaled by how much longer {} takes now, in the same rounds.",
                     fmt::join(controls, " or ")) +
         found;
}

std::string with_rounds(std::vector<std::string> words, int rounds) {
  const auto given = std::ranges::find_if(words, [](const auto& word) { return word.starts_with("--rounds"); });
  if (given != words.end()) words.erase(given, given + (*given == "--rounds" ? 2 : 1));
  words.insert(std::find(words.begin() + 1, words.end(), "check") + 1, {"--rounds", std::to_string(rounds)});
  return shell_line(words);
}

// The command for one of several cells.
std::vector<std::string> narrowed(std::vector<std::string> command, const CellFinding& finding,
                                  const CheckResult& result) {
  if (result.findings.size() == 1) return command;
  const Cell& cell = finding.cell;
  command.insert(command.end(), {"--projection", std::string(name(cell.shape.layer.projection)), "--op",
                                 std::string(name(cell.shape.op)), "--tokens", std::to_string(cell.tokens), "--routing",
                                 text(cell.routing)});
  if (const std::string& model = cell.shape.layer.model; model != "custom" && !model.empty())
    command.insert(command.end(), {"--model", cell.shape.layer.model});
  return command;
}

// The command that made the table, where it is known.
std::string tune_again(const Json& tool) {
  std::vector<std::string> words;
  if (tool.contains("argv") && tool["argv"].is_array())
    for (const Json& word : tool["argv"])
      if (word.is_string() && word != "--resume") words.push_back(word);
  const bool tuned = contains(words, "tune");
  return tuned ? "Next, tune again: " + shell_line(words) : "Next: tune again";
}

}  // namespace

std::string findings_text(const CheckResult& result, const Style& style) {
  const bool markdown = style.format == OutputFormat::markdown;
  std::vector<CellFinding> ordered = result.findings;
  std::ranges::stable_partition(ordered, is_no, &CellFinding::finding);
  const bool named = std::ranges::any_of(result.findings, [](const auto& one) { return !one.kernel.empty(); });
  std::vector<Metric> metrics;  // that both had
  for (const CellFinding& finding : result.findings)
    for (const auto& [metric, change] : finding.metric_changes) add_once(metrics, metric);
  std::vector<HeadedTable> tables;
  for (const auto& layer : by_layer(ordered)) {
    std::vector<Column> columns = {{"before", true}, {"now", true}, {"change", true}, {"finds", true}};
    for (const Metric metric : metrics) columns.push_back({std::string(info(metric).name), true});
    if (named) columns.insert(columns.begin(), {"kernel"});
    Grid grid = cell_grid(columns);
    if (style.verbose) grid.columns.push_back({"by"});
    grid.columns.push_back({"verdict"});
    if (style.verbose) grid.columns.push_back({"winner"});
    for (const CellFinding* one : layer) add_row(grid, one->cell, row_of(*one, result, named, metrics, style.verbose));
    grid.bold = static_cast<size_t>(std::ranges::count_if(layer, [](const auto* one) { return is_no(one->finding); }));
    tables.push_back({{title(layer[0]->cell.shape)}, std::move(grid)});
  }
  std::string out = headed_tables_text(tables, style);
  out += bullets(reasons(result), style);
  if (!out.empty()) out += "\n";
  for (const std::string& words : {legend(result), mean_text(result), sentence(result)})
    if (!words.empty()) out += paragraph(markdown ? markdown_text(words) : words, style);
  return out + cut_short(result.fault, markdown ? markdown_text : one_line);
}

void report(const CheckResult& result, const CheckRun& run, const CheckContext& context, const CheckOutputs& outputs,
            const Terminal& terminal) {
  const char* github = std::getenv("GITHUB_ACTIONS");
  const bool annotate = outputs.annotate || (github && std::string_view(github) == "true");
  const std::string summary = heading(result, context) + findings_text(result, {.format = OutputFormat::markdown}),
                    json = pretty_json(to_json(result, context));
  write_outputs({[&] {
                   if (outputs.format == OutputFormat::json) print(json);
                   if (outputs.format == OutputFormat::markdown) print(summary);
                   if (outputs.format == OutputFormat::text)
                     print(findings_text(result, style_of(OutputFormat::text, terminal, outputs.verbose)) +
                           (context.next.empty() ? "" : "\n" + context.next + "\n"));
                   if (annotate) write_all(STDERR_FILENO, printable(annotations(result)));  // commands
                 },
                 [&] { write_named(outputs.output, json); },
                 [&] { write_named(outputs.junit, junit_xml(result, run)); },
                 [&] { write_named(outputs.markdown, summary); },
                 [&] { write_named(outputs.benchmark, pretty_json(benchmark_json(result))); },
                 [&] { append_step_summary(summary, terminal); }});
}

std::string advice(const CheckResult& result, const CheckRequest& request, const std::vector<std::string>& argv,
                   const Json& tool, const TableCommands& commands) {
  const auto wrong = std::ranges::find(result.findings, Finding::wrong_result, &CellFinding::finding);
  if (wrong != result.findings.end()) return "Next: " + shell_line(narrowed(commands.verify, *wrong, result));
  const auto bad = std::ranges::find_if(result.findings, is_no, &CellFinding::finding);
  if (bad != result.findings.end()) return "Next: " + shell_line(narrowed(commands.bench, *bad, result));
  if (exit_code(result) == static_cast<int>(Exit::no)) return "Next: " + shell_line(commands.bench);
  const auto any = [&](Remedy remedy) {
    return std::ranges::any_of(result.findings, [&](const CellFinding& finding) { return finding.remedy == remedy; });
  };
  const int more = std::min(request.max_rounds, kMaxRounds);
  if (any(Remedy::rounds) && more > request.rounds) return "Next: " + with_rounds(argv, more);
  if (any(Remedy::tune)) return tune_again(tool);
  if (any(Remedy::rounds) || any(Remedy::again)) return "Next, when this machine is quiet: " + shell_line(argv);
  return "";
}

}  // namespace moetune
