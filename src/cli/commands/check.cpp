// `moetune check`: is anything slower than this table says?
#include <fmt/chrono.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>

#include "base/system/lock.h"
#include "check/check.h"
#include "check/check_peers.h"
#include "check/outputs/check_history.h"
#include "check/two_packs.h"
#include "check/update_table.h"
#include "cli/commands/command.h"
#include "cli/options/against.h"
#include "cli/signals.h"
#include "cli/tables/check_output.h"
#include "tune/rounds.h"
#include "variant/pack/pack.h"

namespace moetune {
namespace {

struct CheckOptions {
  std::string table;
  CellOptions cells;
  DeviceOptions device;
  double threshold = 0.05;
  std::optional<int64_t> rounds;
  std::optional<double> patience, wait, time_budget;
  std::optional<Regime> regime;
  Undecided inconclusive = Undecided::fail;
  std::string against, peers, reason, history, commit;
  CheckOutputs outputs;
  bool update = false, quiet = false;
};

const std::vector<std::string> kUndecided = {"fail", "pass"};  // as the enum has them

// Longer than a virtual machine stays slow after it was idle.
constexpr double kCpuPatience = 30, kGpuPatience = 1;
// On a cpu, caches differ from look to look, and other programs come and go.
constexpr double kCpuWait = 30;
constexpr int kCpuRounds = 40, kGpuRounds = 15;
// Two processes have their operands at other addresses: looks with operands made anew show how much that matters.
constexpr int kPairLooks = 5;

CheckRequest request_of(const CheckOptions& options, DeviceKind kind) {
  const bool cpu = kind == DeviceKind::cpu;
  CheckRequest request;
  request.rounds = static_cast<int>(options.rounds.value_or(cpu ? kCpuRounds : kGpuRounds));
  request.looks = cpu ? kCpuLooks : options.against.empty() ? 1 : kPairLooks;
  request.wait = options.wait.value_or(cpu ? kCpuWait : 0);
  request.patience = options.patience.value_or(cpu ? kCpuPatience : kGpuPatience);
  request.threshold = options.threshold;
  request.max_rounds = 4 * request.rounds;
  request.all_rivals = options.update;
  request.time_budget = options.time_budget.value_or(request.time_budget);
  return request;
}

// The fault of a check that a signal interrupted; empty if no signal came, or only after the last verdict.
std::string interruption(bool stopped, const std::vector<CellFinding>& findings, size_t cells) {
  if (!stopped) return "";
  if (findings.size() < cells) return fmt::format("interrupted: {} checked", cells_done(findings.size(), cells));
  return contains(findings, Finding::inconclusive, &CellFinding::finding)
             ? "interrupted while cells were measured again"
             : "";
}

// The commands that show where a regression's time goes, and which elements are wrong.
TableCommands commands_for(const CheckOptions& options, Regime regime) {
  const auto command = [&](const std::string& verb) {
    std::vector<std::string> words = {"moetune", verb, "--table", options.table};
    std::ranges::move(device_arguments(options.device), std::back_inserter(words));
    return words;
  };
  TableCommands commands{.bench = command("bench"), .verify = command("verify")};
  if (regime != Regime::burst) commands.bench.insert(commands.bench.end(), {"--regime", std::string(name(regime))});
  return commands;
}

// How many winners are wrong and what they have in common; the advice repeats one. Empty where all are right.
std::string wrong_winners(const CheckResult& result, const TunedTable& table, const Style& style) {
  std::vector<VerifiedCandidate> verified;
  for (const CellFinding& finding : result.findings)
    for (const Entry& entry : table.entries)
      if (entry.cell == finding.cell && text(entry.candidate) == finding.candidate &&
          (finding.verdict.ok || finding.finding == Finding::wrong_result))
        verified.push_back({entry.cell, entry.candidate, finding.verdict.reason});
  const std::optional<WrongResults> wrong = wrong_results(verified);
  return wrong ? paragraph(sentence(*wrong), style) : "";
}

// Times of one regime say nothing about those of the other.
void require_regime_of(const TunedTable& table, const CheckOptions& options) {
  if (options.regime.value_or(table.regime) == table.regime) return;
  throw machine_error(fmt::format("{}: its times are of the regime {}, not {}", options.table, name(table.regime),
                                  name(*options.regime)),
                      fmt::format("leave --regime out, or tune a table with --regime {}", name(*options.regime)));
}

CheckRun begin_run(Undecided undecided) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {"unknown"};
  return {.timestamp = fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::gmtime(std::time(nullptr))),
          .hostname = host.data(),
          .undecided = undecided};
}

Files files_of(const CheckOptions& options, const std::vector<Cell>& cells) {
  Files files;
  add_inputs(files, options.cells, cells);
  if (options.update)
    add_output(files, "TABLE", options.table, content::table);
  else
    add_input(files, "TABLE", options.table);
  add_input(files, "--against", options.against);
  if (const char* summary = std::getenv("GITHUB_STEP_SUMMARY")) add_input(files, "GITHUB_STEP_SUMMARY", summary);
  add_output(files, "--output", options.outputs.output, content::check);
  add_output(files, "--junit", options.outputs.junit, content::junit);
  add_output(files, "--markdown", options.outputs.markdown, content::summary);
  add_output(files, "--benchmark", options.outputs.benchmark, content::benchmark);
  add_output(files, "--history", options.history, content::history);
  return files;
}

// Whether both sides are packs or exports.
bool races_packs(const CheckOptions& options) {
  return !options.device.packs.empty() && !options.against.empty() && holds_packs(options.against);
}

std::string packs_text(const CheckOptions& options) { return fmt::format("{}", fmt::join(options.device.packs, ", ")); }

void require_options(const CheckOptions& options) {
  if (!options.against.empty() && options.peers.empty()) require_other(options.against);
  if (options.device.packs.empty() && options.peers.empty() && !options.against.empty() && holds_packs(options.against))
    throw request_error(fmt::format("--against: {} holds packs, and this side has none", options.against),
                        "name this side's with --pack NEW");
  if (options.table.empty() && !races_packs(options))
    throw request_error("TABLE is required",
                        "only two sides of packs need none: --pack NEW --against OLD and options of cells");
  if (options.update && !options.against.empty())
    throw request_error("--update keeps times of the rivals in the table, which --against does not measure",
                        "leave one of them out");
  if (options.update && options.reason.empty())
    throw request_error("--update needs a reason, which the table keeps", "add --reason 'why the times changed'");
}

// The two sides, and how to compare them.
struct Sides {
  std::unique_ptr<Backend> here, there;  // there: with --against
  CheckRequest request;
};

Sides open_sides(const CheckOptions& options, const TunedTable& table) {
  DeviceOptions device = options.device;
  if (device.device == "auto" && table.device.kind == DeviceKind::cpu) device.device = "cpu";
  Sides sides;
  sides.here = open_worker(device);
  if (options.table.empty() && sides.here->device().kind == DeviceKind::cpu)
    throw machine_error("packs are of GPU kernels: this machine has no GPU, or --device cpu was given",
                        "run this on one that has; 'moetune compile --pack' needs none");
  // Another program is measured here and now: a table of another model of GPU will do.
  if (options.against.empty() || sides.here->device().kind != table.device.kind)
    require_comparable(table, sides.here->device());
  require_regime(table.regime, sides.here->device());
  sides.request = request_of(options, sides.here->device().kind);
  sides.request.sample.regime = table.regime;
  if (options.against.empty()) return sides;
  sides.there = open_other(options.against, device, *sides.here);
  sides.request.against = Against{sides.there.get(), options.against};
  return sides;
}

// Matches the kernels of both sides, in entries of the table or in new ones for its cells. Returns the cells, one an
// entry.
std::vector<Cell> race_packs(const CheckOptions& options, const Catalog& catalog, TunedTable& table, Sides& sides,
                             const Invocation& invocation) {
  const Catalog other({options.against});
  note_left_out(catalog, packs_text(options), invocation.terminal);
  note_left_out(other, options.against, invocation.terminal);
  std::erase_if(table.entries, [](const Entry& entry) { return !entry.skipped.empty(); });
  const std::string ours = packs_text(options);
  if (options.table.empty())
    table = table_of_packs(mapped(table.entries, &Entry::cell), catalog, other, sides.here->device(), table.regime);
  if (options.table.empty()) pick_entries(table, ours, {.filter = options.cells.filter});
  match_packs(table, catalog, ours, other, *sides.request.against);
  for (const std::string& alone : {only_in(catalog, ours, other), only_in(other, options.against, catalog)})
    if (!alone.empty()) note(invocation.terminal, alone);
  return mapped(table.entries, &Entry::cell);
}

// --history: read before anything is measured. Lines that are damaged are named, and stay in the file.
History read_past(const CheckOptions& options, const Terminal& terminal) {
  if (options.history.empty() || !is_there(options.history)) return {};
  History past = read_history(options.history);
  for (const Error& line : past.damaged)
    warn(terminal, fmt::format("this line of the history is left out: {}", line.what()));
  return past;
}

// Appends the run, and names what changed a short time ago.
void keep_history(const CheckOptions& options, History past, const CheckResult& result, CheckRun run,
                  const std::string& device, Regime regime, const Terminal& terminal) {
  const std::string& file = options.history;
  if (file.empty()) return;
  run.device = device, run.regime = name(regime), run.commit = options.commit;
  past.runs.push_back(history_run(result, run));
  const OutputLock ours(file);
  append_history(file, past.runs.back());
  for (const std::string& change : recent_changes(past.runs)) note(terminal, fmt::format("{}: {}", file, change));
}

// --update: writes `whole`, the table in the file, with the times of `result`, and warns about cells that keep theirs.
// Exit::no where a winner is wrong or fails, inconclusive where others keep their times (yes where that may pass).
Exit write_updated_table(const CheckOptions& options, const TunedTable& whole, const CheckResult& result,
                         const CheckRun& run, const Json& environment, const Invocation& invocation) {
  KeptFile file(options.table);
  file.take_over();
  const UpdatedTable updated =
      update_table(whole, result, environment,
                   {.date = run.timestamp, .reason = options.reason, .tool = tool_json(invocation.argv), .cells = {}});
  for (const std::string& kept : updated.kept) warn(invocation.terminal, "times are not updated: " + kept);
  for (const std::string& layer : updated.dropped_choices)
    warn(invocation.terminal, fmt::format("the robust choices of {} are dropped, because they use older times: make "
                                          "them again with tune --append --choose",
                                          layer));
  const size_t cells = result.findings.size() - updated.kept.size();
  if (cells > 0) write_table(file, updated.table);
  note(invocation.terminal, fmt::format("{}: {} updated", options.table, cells_done(cells, result.findings.size())));
  for (const CellFinding& finding : result.findings)
    if (finding.finding == Finding::wrong_result || finding.finding == Finding::failed) return Exit::no;
  return updated.kept.empty() || run.undecided == Undecided::pass ? Exit::yes : Exit::inconclusive;
}

// The times of --peers: a file, or what a command writes to the file that it finds in place of {}.
Peers measured_peers(const std::string& peers) {
  if (is_there(peers) || peers.find("{}") == std::string::npos) return read_peers(peers);
  const std::string file =
      (std::filesystem::temp_directory_path() / fmt::format("moetune-peers-{}.json", getpid())).string();
  std::string command = peers;
  command.replace(command.find("{}"), 2, shell_quoted(file));
  const int status = std::system(fmt::format("({}) >&2", command).c_str());  // NOLINT: the user's own command
  if (status != 0) throw machine_error(fmt::format("--peers: '{}' failed", command), "its messages are above");
  if (!is_there(file))
    throw request_error(fmt::format("--peers: '{}' wrote no file", command),
                        "it must write to the file in place of {}");
  const RemovedAtTheEnd removed{{file}};
  return read_peers(file);
}

// Leaves the cells that the options pick.
void pick_peers(Peers& peers, const CheckOptions& options) {
  TunedTable cells;
  for (const auto& [id, cell] : peers.cells) cells.entries.emplace_back().cell = cell;
  CellOptions picked = options.cells;
  picked.filter = {};
  pick_entries(cells, options.against, picked);
  std::erase_if(peers.cells, [&](const auto& item) { return !find_entry(cells, item.second); });
  const Filter& filter = options.cells.filter;
  for (auto& [id, times] : peers.times)
    std::erase_if(times, [&, &cell = id](const PeerTime& one) { return !filter.takes(cell + " " + one.peer); });
  if (std::ranges::all_of(peers.cells, [&](const auto& item) { return peers.of(item.first).empty(); }))
    throw request_error(fmt::format("--filter {}: no cell and peer of {} hold it", filter.pattern(), options.against));
}

// --peers: no device is opened here, the times are another program's.
Exit check_peers_of(const CheckOptions& options, const Invocation& invocation) {
  if (!options.table.empty())
    throw request_error(fmt::format("--peers checks other libraries' times, and takes no TABLE: {}", options.table));
  if (options.against.empty())
    throw request_error("--peers needs --against FILE, the times before",
                        "make it with scripts/peers.py TABLE -o FILE");
  CheckRun run = begin_run(options.inconclusive);
  require_outputs(files_of(options, {}));
  const History past = read_past(options, invocation.terminal);
  Peers before = read_peers(options.against);
  pick_peers(before, options);
  const Peers now = measured_peers(options.peers);
  require_comparable(before, now.device, now.regime, "--against " + options.against, "those of --peers");
  CheckResult result = check_peers(before, now, nullptr, options.against, options.threshold);
  const bool repeatable = options.peers.find("{}") != std::string::npos;
  if (repeatable && exit_code(result) == static_cast<int>(Exit::no)) {
    const Peers again = measured_peers(options.peers);
    result = check_peers(before, now, &again, options.against, options.threshold);
  }
  for (const auto& [name, version] : now.environment.items())
    if (const Json earlier = before.environment.value(name, Json()); earlier != version)
      note(invocation.terminal, fmt::format("{}: {} now, {} before", name, version.dump(), earlier.dump()));
  const CheckContext context{.argv = invocation.argv,
                             .table_file = options.peers,
                             .regime = now.regime,
                             .device = DeviceInfo{.name = now.device},
                             .environment = {{"identity", now.environment}},
                             .other_environment = {{"identity", before.environment}},
                             .next = {}};
  report(result, run, context, options.outputs, invocation.terminal);
  keep_history(options, past, result, run, now.device, now.regime, invocation.terminal);
  return static_cast<Exit>(exit_code(result, run.undecided));
}

Exit run_check(CheckOptions options, const Invocation& invocation) {
  output_to_standard_output(options.outputs.output, options.outputs.format);
  if (!options.peers.empty()) return check_peers_of(options, invocation);
  const Catalog catalog(options.device.packs);
  CheckRun run = begin_run(options.inconclusive);
  const Clock::time_point begin = Clock::now();
  require_options(options);
  std::optional<OutputLock> ours;  // before the table is read, until it is replaced
  if (options.update) ours.emplace(options.table);
  TunedTable table;
  if (options.table.empty()) {
    table.device.kind = DeviceKind::cuda;  // that packs run on
    table.regime = options.regime.value_or(table.regime);
    CellOptions cells = options.cells;
    cells.filter = {};  // kernels may hold it where ids do not
    for (const Cell& cell : make_cells(cells)) table.entries.emplace_back().cell = cell;
  } else {
    table = read_table(options.table, catalog);
    require_regime_of(table, options);
    pick_entries(table, options.table, options.cells);
  }
  std::vector<Cell> cells;  // that will be measured
  for (const Entry& entry : table.entries)
    if (entry.skipped.empty()) cells.push_back(entry.cell);
  require_problems(cells);
  require_outputs(files_of(options, cells));
  const History past = read_past(options, invocation.terminal);
  Sides sides = open_sides(options, table);
  if (races_packs(options)) cells = race_packs(options, catalog, table, sides, invocation);
  require_effect(invocation.given, invocation.terminal, &sides.here->device());
  const DeviceLock held = lock(*sides.here, options.device, invocation);
  if (sides.there && !options.quiet)
    note(invocation.terminal, about_both(options.against, *sides.here, *sides.there, cells));
  const std::atomic<bool>& stop = stop_on_signals();

  std::vector<CellFinding> found;  // so far: for the report after an error
  const auto listen = [&](const CellFinding& finding) {
    found.push_back(finding);
    if (!options.quiet)
      print_to_stderr(
          fmt::format("[{}/{}] {}: {}\n", found.size(), cells.size(), finding_id(finding), name(finding.finding)));
  };
  const auto report_all = [&](const CheckResult& result) {
    run.seconds = seconds_since(begin);
    CheckContext context{.argv = invocation.argv,
                         .table_file = options.table.empty() ? packs_text(options) : options.table,
                         .regime = table.regime,
                         .device = sides.here->device(),
                         .environment = sides.here->environment(),
                         .other_environment = sides.there ? sides.there->environment() : Json(),
                         .next = {}};
    // A check that was cut short gives no advice; a table's commands know nothing of two packs.
    const bool of_packs = races_packs(options) && exit_code(result) == static_cast<int>(Exit::no);
    if (result.fault.empty() && !options.update && !of_packs)
      context.next = wrong_winners(result, table, style_of(OutputFormat::text, invocation.terminal)) +
                     advice(result, sides.request, invocation.argv, table.tool, commands_for(options, table.regime));
    report(result, run, context, options.outputs, invocation.terminal);
  };
  CheckResult result;
  try {
    result = check(table, *sides.here, sides.request, listen, stop);
  } catch (const std::exception& error) {
    const CheckResult rest{
        .findings = found, .threshold = sides.request.threshold, .against = options.against, .fault = error.what()};
    if (!rest.findings.empty()) keep_in_spite(invocation.terminal, [&] { report_all(rest); });
    throw;
  }
  result.fault = interruption(stop, result.findings, cells.size());
  report_all(result);
  if (!result.fault.empty()) return Exit::interrupted;
  keep_history(options, past, result, run, sides.here->device().name, table.regime, invocation.terminal);
  if (options.update)
    return write_updated_table(options, read_table(options.table, catalog), result, run, sides.here->environment(),
                               invocation);
  return static_cast<Exit>(exit_code(result, run.undecided));
}

void declare_check(OptionSet& set, CheckOptions& options) {
  set.argument("TABLE", options.table, "A tuned table; not needed with --pack NEW --against OLD and options of cells",
               {},
               /*required=*/false);
  declare(set, options.cells, "Cells to check: those that match all options");
  declare(set, options.device);
  set.value(
      "--against", options.against, "PATH",
      "Compare with another moetune binary, a folder of kernels or, beside --pack, a folder of packs or an export: "
      "both sides run the table's winners in the same rounds, and the table's times are not used. Operands take twice "
      "the memory");
  set.value("--peers", options.peers, "FILE|COMMAND",
            "Check other libraries' times (scripts/peers.py) instead of kernels of moetune, beside those in --against "
            "FILE. A "
            "command writes them to the file that stands in place of {}; a regression is then measured again");
  set.value(
      "--threshold",
      [&](const std::string& word, const std::string& option) { options.threshold = parse_share(word, option); },
      "RATIO", "The smallest slowdown that counts as a regression [5%]");
  set.number(
      "--rounds", options.rounds, kFewest, kMaxRounds,
      "Interleaved rounds per cell [40 on a cpu, 15 on a GPU]; more while a cell is inconclusive, fewer if it is "
      "clearly equivalent");
  set.duration("--patience", options.patience,
               "How long a slowdown must last to be a regression [30s on a cpu, 1s on a GPU]", /*may_be_zero=*/true);
  set.duration("--wait", options.wait,
               "How long a cell may wait while other programs use the processors [30s on a cpu, 0s on a GPU]",
               /*may_be_zero=*/true);
  set.value(
      "--inconclusive",
      [&](const std::string& word, const std::string& option) {
        options.inconclusive = static_cast<Undecided>(place_of_word(option, word, kUndecided));
      },
      "WORD", "How to count cells that cannot be judged: fail (exit 4) or pass (exit 0) [fail]", one_of(kUndecided));
  declare_regime(set, options.regime, "that of the table");
  set.duration("--time-budget", options.time_budget, "Stop measuring after this time, such as 90s or 5m");
  set.value("-o,--output", options.outputs.output, "FILE", "Write the findings as JSON; - is standard output");
  set.value("--junit", options.outputs.junit, "FILE", "Write them as JUnit XML");
  set.value("--markdown", options.outputs.markdown, "FILE", "Write them as Markdown");
  set.value("--benchmark", options.outputs.benchmark, "FILE",
            "Write the times as JSON for github-action-benchmark (customSmallerIsBetter)");
  set.value("--history", options.history, "FILE",
            "Append this run as a JSON line, and name changes of the times in it: see report --history");
  set.value("--commit", options.commit, "TEXT", "What was checked: --history keeps it");
  set.flag("--annotate", options.outputs.annotate,
           "Print ::error and ::warning lines on standard error [if GITHUB_ACTIONS is true]");
  set.flag("--update", options.update, "Rewrite TABLE with the times measured now; its winners stay. Needs --reason");
  set.value("--reason", options.reason, "TEXT", "Why the times changed: the table keeps it with the date and the tool");
  declare_format(set, options.outputs.format);
  set.flag("-v,--verbose", options.outputs.verbose, "Print the control of each cell and all knobs of the winners");
  set.flag("-q,--quiet", options.quiet, "No progress");
}

}  // namespace

Command check_command() {
  return {.name = "check",
          .summary = "Check for slowdowns against a tuned table or another program",
          .examples =
              "  moetune check moetune-table.json\n"
              "  moetune check moetune-table.json --threshold 3% --rounds 30 --junit check.xml\n"
              "  moetune check moetune-table.json --against ../main/build/release/moetune --threshold 2%\n"
              "  moetune check --pack new/pack --against old/pack --model qwen3-30b-a3b --tokens 16,256,4096\n"
              "  moetune check moetune-table.json --update --reason 'driver 580'",
          .declare = with_options<CheckOptions, declare_check, run_check>};
}

}  // namespace moetune
