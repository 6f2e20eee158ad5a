// `moetune check`: is anything slower than this baseline?
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/advice.h"
#include "cli/cells.h"
#include "cli/command.h"
#include "cli/device_options.h"
#include "cli/files.h"
#include "cli/findings.h"
#include "cli/output.h"
#include "cli/pick.h"
#include "cli/signals.h"
#include "cli/try_all.h"
#include "cli/wording.h"
#include "table/pretty.h"
#include "tune/judge.h"

namespace moetune {
namespace {

const std::vector<Format> kFormats = {Format::text, Format::markdown, Format::json};

struct CheckOptions {
  std::string baseline;
  CellOptions cells;
  DeviceOptions device;
  std::string threshold = "5%", rounds, patience, wait, time_budget, regime;
  std::string output, junit, markdown, format, inconclusive = "fail";
  bool quiet = false, verbose = false;
};

Undecided parse_undecided(const std::string& word) {
  if (word == "fail") return Undecided::fail;
  if (word == "pass") return Undecided::pass;
  throw unknown_word("--inconclusive", word, {"fail", "pass"});
}

// How long machines have been seen to stay slow for reasons of their own: virtual ones, after idling, for seconds.
constexpr double kCpuPatience = 30, kGpuPatience = 1;
// A cpu's caches are other ones in each look, and others come and go.
constexpr double kCpuWait = 30;
constexpr int kCpuRounds = 40, kGpuRounds = 15;

CheckRequest request_of(const CheckOptions& options, DeviceKind kind) {
  const bool cpu = kind == DeviceKind::cpu;
  CheckRequest request;
  request.rounds = cpu ? kCpuRounds : kGpuRounds;
  request.looks = cpu ? kCpuLooks : 1;
  request.wait = cpu ? kCpuWait : 0;
  request.patience = cpu ? kCpuPatience : kGpuPatience;
  request.threshold = parse_share(options.threshold, "--threshold");
  if (!options.rounds.empty())
    request.rounds = static_cast<int>(parse_integer(options.rounds, "--rounds", 5, kMostRounds));
  request.max_rounds = 4 * request.rounds;
  if (!options.patience.empty()) request.patience = parse_duration(options.patience, /*may_be_zero=*/true);
  if (!options.wait.empty()) request.wait = parse_duration(options.wait, /*may_be_zero=*/true);
  if (!options.time_budget.empty()) request.time_budget = parse_duration(options.time_budget);
  return request;
}

Json to_json(const CellFinding& finding) {
  Json json = {{"cell", to_json(finding.cell)}, {"finding", name(finding.finding)}, {"reason", finding.reason}};
  if (finding.rounds == 0) return json;
  json["control"] = finding.control;
  json["change"] = rounded(finding.change);
  json["change_low"] = rounded(finding.change_interval.low);
  json["change_high"] = rounded(finding.change_interval.high);
  json["time_change"] = rounded(finding.time_change);
  json["time_change_low"] = rounded(finding.time_change_interval.low);
  json["time_change_high"] = rounded(finding.time_change_interval.high);
  json["by_ratio"] = name(finding.by_ratio);
  json["by_time"] = name(finding.by_time);
  json["now"] = to_json(finding.now);
  json["before_us"] = rounded(finding.before_seconds * 1e6);
  json["control_now_us"] = rounded(finding.control_now_seconds * 1e6);
  json["control_before_us"] = rounded(finding.control_before_seconds * 1e6);
  json["rounds"] = finding.rounds;
  return json;
}

// A job summary is a courtesy: that it can't be written changes no verdict.
void append_step_summary(const std::string& text, const Terminal& terminal) {
  const char* path = std::getenv("GITHUB_STEP_SUMMARY");
  if (path == nullptr || *path == 0) return;
  std::ofstream file(path, std::ios::app);
  if (!(file << text << '\n' << std::flush))
    warn(terminal, fmt::format("{}: the step summary cannot be written", path));
}

// The cells that will be measured.
std::vector<Cell> cells_of(const TunedTable& table) {
  std::vector<Cell> cells;
  for (const Entry& entry : table.entries)
    if (entry.skipped.empty()) cells.push_back(entry.cell);
  return cells;
}

// What a signal took along of `cells`: empty where it came after the last verdict, or where none came.
std::string interruption(bool stopped, const std::vector<CellFinding>& findings, size_t cells) {
  if (!stopped) return "";
  if (findings.size() < cells) return fmt::format("interrupted: {} checked", cells_done(findings.size(), cells));
  return findings.back().finding == Finding::inconclusive ? "interrupted in the last cell" : "";
}

// The command that shows where a regression's time goes.
std::vector<std::string> bench_command_line(const CheckOptions& options, Regime regime) {
  std::vector<std::string> words = {"moetune", "bench", "--table", options.baseline};
  if (options.device.device != "auto") words.insert(words.end(), {"--device", options.device.device});
  if (regime != Regime::burst) words.insert(words.end(), {"--regime", std::string(name(regime))});
  if (!options.device.kernels.empty()) words.insert(words.end(), {"--kernels", options.device.kernels});
  return words;
}

// Times of one regime say nothing about those of the other.
void require_regime_of(const TunedTable& table, const CheckOptions& options) {
  if (options.regime.empty() || parse_regime(options.regime) == table.regime) return;
  throw machine_error(
      fmt::format("{}: its times are of the regime {}, not {}", options.baseline, name(table.regime), options.regime),
      fmt::format("leave --regime out, or tune a table with --regime {}", options.regime));
}

CheckRun begin_run(Undecided undecided) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {"unknown"};
  return {.timestamp = fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::gmtime(std::time(nullptr))),
          .hostname = host.data(),
          .undecided = undecided};
}

void write_named(const std::string& path, const std::string& text) {
  if (!path.empty()) write_atomic(path, text);
}

// Standard output first: it needs no disk. `fault` is what ended the run before its last cell, or empty.
void report(const std::vector<CellFinding>& findings, const std::string& fault, const CheckOptions& options,
            const CheckRequest& request, const CheckRun& run, const Invocation& invocation, const TunedTable& table,
            Backend& backend) {
  const Format format = parse_format(options.format, kFormats);
  const std::string summary = markdown(findings, request.threshold, fault);
  Json json = {{"schema", "moetune.check/1"},
               {"tool", tool_json(invocation.argv)},
               {"device", to_json(backend.device())},
               {"environment", backend.environment()},
               {"baseline", options.baseline},
               {"regime", name(table.regime)},
               {"threshold", rounded(request.threshold)},
               {"findings", Json::array()}};
  for (const CellFinding& finding : findings) json["findings"].push_back(to_json(finding));
  if (!fault.empty()) json["fault"] = fault;
  const std::string json_text = pretty_json(json), junit = junit_xml(findings, run, fault);
  std::string next;  // of a whole check: what is left of another one is nothing to judge
  if (fault.empty())
    next = advice(findings, request, invocation.argv, table.tool, bench_command_line(options, table.regime));
  if (!next.empty()) next = "\n" + next + "\n";
  try_all(
      {[&] {
         if (format == Format::json) print(json_text);
         if (format == Format::markdown) print(summary);
         if (format == Format::text)
           print(findings_text(findings, table, request.threshold, fault, invocation.terminal, options.verbose) + next);
       },
       [&] { write_named(options.output, json_text); }, [&] { write_named(options.junit, junit); },
       [&] { write_named(options.markdown, summary); }, [&] { append_step_summary(summary, invocation.terminal); }});
}

Files files_of(const CheckOptions& options, const std::vector<Cell>& cells) {
  Files files;
  add_inputs(files, options.cells, cells);
  add_input(files, "BASELINE", options.baseline);
  if (const char* summary = std::getenv("GITHUB_STEP_SUMMARY")) add_input(files, "GITHUB_STEP_SUMMARY", summary);
  add_output(files, "--output", options.output, Content::check);
  add_output(files, "--junit", options.junit, Content::junit);
  add_output(files, "--markdown", options.markdown, Content::summary);
  return files;
}

Exit run_check(const CheckOptions& options, const Invocation& invocation) {
  parse_format(options.format, kFormats);
  CheckRun run = begin_run(parse_undecided(options.inconclusive));
  const auto begin = std::chrono::steady_clock::now();
  request_of(options, DeviceKind::cpu);  // what can't be read ends the command here
  TunedTable table = read_table(options.baseline);
  require_regime_of(table, options);
  pick_entries(table, options.baseline, options.cells);
  const std::vector<Cell> cells = cells_of(table);
  require_problems(cells);
  require_outputs(files_of(options, cells));
  DeviceOptions device = options.device;
  if (device.device == "auto" && table.device.kind == DeviceKind::cpu) device.device = "cpu";
  const std::unique_ptr<Backend> backend = open_worker(device);
  require_comparable(table, backend->device());
  require_regime(table.regime, backend->device());
  CheckRequest request = request_of(options, backend->device().kind);
  request.sample.regime = table.regime;
  const DeviceLock held = lock(*backend, device, invocation);
  const std::atomic<bool>& stop = stop_on_signals();

  std::vector<CellFinding> findings;
  const auto listen = [&](const CellFinding& finding) {
    findings.push_back(finding);
    if (!options.quiet)
      tell(fmt::format("[{}/{}] {}: {}: {}\n", findings.size(), cells.size(), id(finding.cell), name(finding.finding),
                       finding.reason));
  };
  const auto report_so_far = [&](const std::string& fault) {
    run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    report(findings, fault, options, request, run, invocation, table, *backend);
  };
  try {
    check(table, *backend, request, listen, stop);
  } catch (const std::exception& error) {
    if (!findings.empty()) keep_in_spite(invocation.terminal, [&] { report_so_far(error.what()); });
    throw;
  }
  const std::string fault = interruption(stop, findings, cells.size());
  report_so_far(fault);
  return !fault.empty() ? Exit::interrupted : static_cast<Exit>(exit_code(findings, run.undecided));
}

Action declare_check(OptionSet& set) {
  const auto options = std::make_shared<CheckOptions>();
  set.argument("BASELINE", options->baseline, "A tuned table");
  declare(set, options->cells, "Cells to check: those that match all options");
  declare(set, options->device);
  set.value("--threshold", options->threshold, "RATIO", "The smallest slowdown that counts");
  set.value("--rounds", options->rounds, "N",
            "Interleaved rounds per cell [40 on a cpu, 15 on a GPU]; more while a cell is inconclusive");
  set.value("--patience", options->patience, "TIME",
            "How long a slowdown must last to be a regression [30s on a cpu, 1s on a GPU]");
  set.value("--wait", options->wait, "TIME",
            "How long a cell may wait for undisturbed processors [30s on a cpu, 0s on a GPU]");
  set.value("--inconclusive", options->inconclusive, "WORD",
            "How to count cells that cannot be judged: fail (exit 4) or pass (exit 0)", one_of({"fail", "pass"}));
  declare_regime(set, options->regime, "How a GPU is loaded while it is timed [as the table's was]");
  set.value("--time-budget", options->time_budget, "TIME", "Such as 90s or 5m");
  set.value("-o,--output", options->output, "FILE", "Write the findings as JSON; - is standard output");
  set.value("--junit", options->junit, "FILE", "Write them as JUnit XML");
  set.value("--markdown", options->markdown, "FILE", "Write them as Markdown");
  declare_format(set, options->format, kFormats);
  set.flag("-v,--verbose", options->verbose, "Print what changes are measured by, and all knobs of the winners");
  set.flag("-q,--quiet", options->quiet, "No progress");
  return [options](const Invocation& invocation) {
    output_to_standard_output(options->output, options->format);
    return run_check(*options, invocation);
  };
}

}  // namespace

Command check_command() {
  return {.name = "check",
          .summary = "Tell whether anything is slower than a tuned table says",
          .examples =
              "  moetune check moetune-table.json\n"
              "  moetune check moetune-table.json --threshold 3% --rounds 30 --junit check.xml",
          .declare = declare_check};
}

}  // namespace moetune
