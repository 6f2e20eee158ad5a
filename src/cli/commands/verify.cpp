// `moetune verify`: are these candidates right?
#include <map>
#include <span>
#include <utility>

#include "cli/commands/command.h"
#include "cli/signals.h"
#include "variant/space/space.h"

namespace moetune {
namespace {

constexpr const char* kOfSpace = "space";  // the role of candidates that nobody named
constexpr const char* kRepeatFor = "1m";
constexpr size_t kCompileBatch = 64;  // kernels at a time: each batch has a time limit
constexpr size_t kFew = 20;           // findings that are listed one by one even where all are right

struct VerifyOptions {
  CellOptions cells;
  DeviceOptions device;
  ContenderOptions contenders;
  SearchOptions search;
  std::string output;
  std::optional<double> repeat_for;
  OutputFormat format = OutputFormat::text;
  bool quiet = false, verbose = false;
};

struct Verdicts {
  std::vector<EntrantResult> findings;
  std::map<std::string, int64_t> pruned;  // reason -> candidates of the spaces that were never run
  size_t cells = 0;                       // done
  size_t asked = 0;                       // cells to do
  std::string fault = {};                 // what ended the run before its last cell was done; empty for a signal

  bool whole() const { return cells == asked; }
};

// A candidate of a space whose registers spill is pruned like an illegal one: no search would take it.
bool is_pruned(const EntrantResult& finding) {
  return finding.entrant.role == kOfSpace && finding.status == Status::spills;
}
bool is_failed(const EntrantResult& finding) { return finding.status != Status::ok && !is_pruned(finding); }

CandidateSource source_of(const VerifyOptions& options, const DeviceInfo& device, const Catalog& catalog) {
  return CandidateSource(make_space(options.search, "quick", catalog), device, candidate_limit(options.search));
}

// One compiled candidate; after a good verdict it is launched again for `seconds`.
void verify_one(EntrantResult& finding, double seconds, Backend& backend) {
  const Contender& contender = finding.entrant.contender;
  try {
    finding.verdict = backend.verify(contender);
    if (!finding.verdict.ok) finding.fail(Status::wrong_result, finding.verdict.reason);
    if (finding.status != Status::ok || seconds <= 0) return;
    finding.repetition = Repetition{};
    finding.repetition = backend.repeat(contender, seconds);
    if (const Repetition& r = *finding.repetition; r.different > 0)
      finding.fail(Status::wrong_result, fmt::format("{} of {} launches gave another result than the first: {}",
                                                     r.different, r.launches, r.reason));
  } catch (const CandidateFault& fault) {
    finding.fail(fault.status, fault.what());
  }
}

// Adds what was found about each entrant of a cell, one by one; `failed` hears of failures as they come. Launches are
// repeated for `seconds` in all. False where a signal left some out.
bool verify_cell(const CellWork& work, const Problem& problem, Backend& backend, double seconds,
                 const std::atomic<bool>& stop, const std::function<void(const EntrantResult&)>& failed,
                 Verdicts& verdicts) {
  const auto add = [&](EntrantResult finding) {
    if (is_failed(finding)) failed(finding);
    if (is_pruned(finding)) ++verdicts.pruned[finding.reason.substr(0, finding.reason.find(':'))];
    verdicts.findings.push_back(std::move(finding));
  };
  std::vector<EntrantResult> compilable;
  for (const Entrant& entrant : work.entrants) {
    EntrantResult finding{.cell = work.cell, .entrant = entrant};
    if (const auto reason = cannot_run(entrant.contender.candidate, problem.shape, backend.device())) {
      finding.fail(Status::illegal, *reason);
      add(std::move(finding));
    } else {
      compilable.push_back(std::move(finding));
    }
  }
  size_t done = 0;
  for (size_t begin = 0; begin < compilable.size() && !stop; begin += kCompileBatch) {
    const std::span<EntrantResult> batch =
        std::span(compilable).subspan(begin, std::min(kCompileBatch, compilable.size() - begin));
    const auto candidate_of = [](const EntrantResult& finding) { return finding.entrant.contender.candidate; };
    const std::vector<CompileResult> compiled = backend.compile(problem.shape, mapped(batch, candidate_of));
    for (size_t i = 0; i < batch.size() && !stop; ++i) {
      EntrantResult& finding = batch[i];
      finding.status = compiled[i].status, finding.reason = compiled[i].reason;
      if (finding.status == Status::ok) verify_one(finding, seconds / static_cast<double>(compilable.size()), backend);
      add(std::move(finding));
      ++done;
    }
  }
  return done == compilable.size();
}

void add_candidates(CellWork& work, const VerifyOptions& options, const Problem& problem, const DeviceInfo& device,
                    CandidateSource& source, std::shared_ptr<const Enumeration>& before, Verdicts& verdicts) {
  if (options.search.names_space()) {
    const auto found = source.candidates(work.cell.shape, work.cell.seed);
    if (std::exchange(before, found) != found)
      for (const auto& [reason, times] : found->pruned) verdicts.pruned[reason] += times;
    for (const Candidate& candidate : found->legal) add_entrant(work, kOfSpace, {.candidate = candidate});
  }
  if (work.entrants.empty())
    add_entrant(work, "default", {.candidate = default_candidate(source.space(), problem, device)});
}

// "10 of 12 candidates right in 3 cells, 1 pruned; failed: 1 wrong_result; interrupted."
std::string answer(const Verdicts& verdicts, const std::vector<EntrantResult>& failed) {
  const int64_t pruned = std::ranges::count_if(verdicts.findings, is_pruned);
  const int64_t ran = static_cast<int64_t>(verdicts.findings.size()) - pruned;
  std::string sentence = fmt::format("{} of {} right in {}", ran - static_cast<int64_t>(failed.size()),
                                     counted(ran, "candidate"), cells_done(verdicts.cells, verdicts.asked));
  if (pruned > 0) sentence += fmt::format(", {} pruned when compiled", pruned);
  int64_t launches = 0, same = 0;
  for (const EntrantResult& finding : verdicts.findings)
    if (const auto& r = finding.repetition) launches += r->launches, same += r->launches - r->different;
  if (launches > 0) sentence += fmt::format(", {} of {} more launches gave the same bits", same, launches);
  std::map<Status, int64_t> by_status;
  for (const EntrantResult& finding : failed) ++by_status[finding.status];
  const auto count_text = [](const auto& one) { return fmt::format("{} {}", one.second, name(one.first)); };
  if (!failed.empty()) sentence += fmt::format("; failed: {}", fmt::join(mapped(by_status, count_text), ", "));
  if (!verdicts.whole()) sentence += verdicts.fault.empty() ? "; interrupted" : "; cut short: " + verdicts.fault;
  return sentence + ".";
}

std::vector<std::string> verdict_row(const EntrantResult& finding, bool verbose) {
  const Verdict& verdict = finding.verdict;
  const bool ran = verdict.elements > 0;
  return {verbose ? text(finding.entrant.contender.candidate) : finding.entrant.name,
          finding.status == Status::ok ? "right" : std::string(name(finding.status)),
          ran ? fmt::format("{}", verdict.elements) : "",
          ran ? fmt::format("{:.1e}", verdict.normalised_error) : "",
          ran ? fmt::format("{:.2g}", verdict.max_ulps) : "",
          finding.repetition ? fmt::format("{}", finding.repetition->launches) : ""};
}

// A table a cell. Findings of a cell follow each other.
std::vector<HeadedTable> tables_of(const std::vector<EntrantResult>& findings, bool verbose) {
  const bool repeated = std::ranges::any_of(findings, [](const EntrantResult& f) { return f.repetition.has_value(); });
  Grid empty{{{"candidate"}, {"result"}, {"elements", true}, {"error", true}, {"ulps", true}}, {}};
  if (repeated) empty.columns.push_back({"launches", true});
  std::vector<HeadedTable> tables;
  for (size_t i = 0; i < findings.size(); ++i) {
    if (i == 0 || findings[i - 1].cell != findings[i].cell) tables.push_back({cell_heading(findings[i].cell), empty});
    std::vector<std::vector<std::string>>& rows = tables.back().grid.rows;
    rows.push_back(verdict_row(findings[i], verbose));
    rows.back().resize(empty.columns.size());
  }
  return tables;
}

// What ended the run before its end, a signal included; empty where nothing did.
std::string fault_of(const Verdicts& verdicts) {
  if (verdicts.whole()) return "";
  return verdicts.fault.empty() ? fmt::format("interrupted: {} verified", cells_done(verdicts.cells, verdicts.asked))
                                : verdicts.fault;
}

std::string again(const EntrantResult& finding, const DeviceOptions& device) {
  std::vector<std::string> argv = verify_arguments(finding.cell, finding.entrant.contender.candidate, device);
  if (finding.repetition) argv.insert(argv.end(), {"--repeat-for", kRepeatFor});
  return shell_line(argv);
}

Json to_json(const EntrantResult& finding, const DeviceOptions& device) {
  Json json = {{"cell", to_json(finding.cell)},
               {"contender", to_json(finding.entrant.contender)},
               {"status", name(finding.status)}};
  if (finding.status != Status::ok) json["reason"] = finding.reason;
  if (finding.status == Status::ok || finding.verdict.elements > 0) json["verdict"] = to_json(finding.verdict);
  if (finding.repetition) json["repetition"] = to_json(*finding.repetition);
  if (is_failed(finding)) json["again"] = again(finding, device);
  return json;
}

// For people: everything where there is little, else what failed; what was pruned and why; the reasons of failures and
// how to repeat them; the answer in a sentence, last.
std::string summary(const Verdicts& verdicts, const DeviceOptions& device, const Style& style) {
  const std::vector<EntrantResult> failed = filtered(verdicts.findings, is_failed);
  std::string text = headed_tables_text(
      tables_of(verdicts.findings.size() <= kFew ? verdicts.findings : failed, style.verbose), style);
  if (!verdicts.pruned.empty()) text += (text.empty() ? "" : "\n") + grid_text(pruned_grid(verdicts.pruned), style);
  for (const EntrantResult& finding : failed)
    text += bullets({reason_of(finding)}, style) + "Again: " + again(finding, device) + "\n";
  return text + (text.empty() ? "" : "\n") + paragraph(answer(verdicts, failed), style);
}

std::string markdown(const Verdicts& verdicts, const Style& style) {
  return headed_tables_text(tables_of(verdicts.findings, style.verbose), style) +
         bullets(mapped(filtered(verdicts.findings, is_failed), reason_of), style) + cut_short(fault_of(verdicts));
}

// Standard output first: it needs no disk.
void report(const Verdicts& verdicts, const VerifyOptions& options, const Invocation& invocation, Backend& backend) {
  const auto point = [&](const EntrantResult& finding) { return to_json(finding, options.device); };
  Json json = document("verify", invocation.argv,
                       {{"device", to_json(backend.device())},
                        {"environment", backend.environment()},
                        {"pruned", Json(verdicts.pruned)},
                        {"points", json_list(verdicts.findings, point)}});
  if (!verdicts.whole()) json["fault"] = fault_of(verdicts);
  const Style style = style_of(options.format, invocation.terminal, options.verbose);
  write_outputs({[&] {
                   print(options.format == OutputFormat::json   ? pretty_json(json)
                         : options.format == OutputFormat::text ? summary(verdicts, options.device, style)
                                                                : markdown(verdicts, style));
                 },
                 [&] {
                   if (!options.output.empty()) write_atomic(options.output, pretty_json(json));
                 }});
}

Exit run_verify(VerifyOptions options, const Invocation& invocation) {
  output_to_standard_output(options.output, options.format);
  const Catalog catalog(options.device.packs);
  const Filter filter = options.cells.filter;
  if (options.contenders.table.empty()) options.cells.filter = {};  // candidates may hold it where ids do not
  TunedTable tuned;
  if (options.contenders.table.empty() && options.contenders.candidates.empty())
    choose_weight_order(options.cells, options.device, options.search.variants, invocation.terminal);
  std::vector<CellWork> work = make_work(options.cells, options.contenders, catalog, invocation.terminal, &tuned);
  const double repeat_for = options.repeat_for.value_or(0);
  static_cast<void>(source_of(options, {}, catalog));  // wrong words end the command before a device is opened
  Files files;
  add_inputs(files, options.cells, mapped(work, &CellWork::cell));
  add_inputs(files, options.search);
  add_input(files, "--table", options.contenders.table);
  add_output(files, "--output", options.output, content::verify);
  require_outputs(files);
  const std::unique_ptr<Backend> backend = open_worker(options.device);
  require_effect(invocation.given, invocation.terminal, &backend->device());
  require_kind(tuned, options.contenders, backend->device());
  const DeviceLock held = lock(*backend, options.device, invocation);  // a tuner's times would suffer
  const std::atomic<bool>& stop = stop_on_signals();

  const SearchSpace usual = usual_space(catalog);
  CandidateSource source = source_of(options, backend->device(), catalog);
  require_knobs(options.search, source.space(), backend->device());
  std::shared_ptr<const Enumeration> before;  // the verdicts have its pruned candidates
  Verdicts verdicts;
  verdicts.asked = work.size();
  const auto failed = [&](const EntrantResult& finding) {
    if (!options.quiet)
      warn(invocation.terminal,
           fmt::format("{}: {}: {}", name(finding.status), finding.reason, again(finding, options.device)));
  };
  try {
    while (!verdicts.whole() && !stop) {
      CellWork& one = work[verdicts.cells];
      const Problem problem = make_problem(one.cell);
      complete_entrants(one, problem, backend->device());
      add_candidates(one, options, problem, backend->device(), source, before, verdicts);
      std::erase_if(one.entrants, [&](const Entrant& entrant) {
        return !filter.takes(fmt::format("{} {}", id(one.cell), text(entrant.contender.candidate)));
      });
      name_entrants(one, usual, problem, backend->device());
      if (!options.quiet)
        print_to_stderr(fmt::format("[{}/{}] {}: {}\n", verdicts.cells + 1, work.size(), id(one.cell),
                                    counted(one.entrants.size(), "candidate")));
      try {
        backend->load(problem);
        if (!verify_cell(one, problem, *backend, repeat_for / static_cast<double>(work.size()), stop, failed, verdicts))
          break;
      } catch (const OutOfMemory& error) {
        for (const Entrant& entrant : one.entrants)
          verdicts.findings.push_back({one.cell, entrant, Status::launch_error, error.what(), true});
      }
      ++verdicts.cells;
    }
  } catch (const std::exception& error) {
    verdicts.fault = error.what();
    if (!verdicts.findings.empty())
      keep_in_spite(invocation.terminal, [&] { report(verdicts, options, invocation, *backend); });
    throw;
  }
  if (verdicts.findings.empty() && verdicts.whole() && !work.empty())
    throw Error(Exit::no, "--filter: no cell and candidate hold it");
  report(verdicts, options, invocation, *backend);
  if (!verdicts.whole()) return Exit::interrupted;
  // A problem that this machine can't hold says nothing about what is right.
  const auto wrong = [](const EntrantResult& finding) { return is_failed(finding) && !finding.no_memory; };
  if (std::ranges::any_of(verdicts.findings, wrong)) return Exit::no;
  return std::ranges::any_of(verdicts.findings, &EntrantResult::no_memory) ? Exit::machine : Exit::yes;
}

void declare_verify(OptionSet& set, VerifyOptions& options) {
  declare(set, options.cells, "Cells: lists to multiply, or to pick from --table");
  declare(set, options.device);
  declare(set, options.search);
  declare(set, options.contenders);
  set.duration("--repeat-for", options.repeat_for,
               "Launch correct candidates again for TIME in total; every result must equal the first bit for bit");
  set.value("-o,--output", options.output, "FILE", "Write the verdicts as JSON; - is standard output");
  declare_format(set, options.format);
  set.flag("-v,--verbose", options.verbose, "Print all knobs of candidates");
  set.flag("-q,--quiet", options.quiet, "No progress");
}

}  // namespace

Command verify_command() {
  return {.name = "verify",
          .summary = "Compare candidates' results with the reference",
          .examples =
              "  moetune verify --model qwen3-30b-a3b --tokens 256 --routing zipf:1.0\n"
              "  moetune verify --device cpu --experts 8 --top-k 2 --n 65 --k 33 --tokens 17 --space quick\n"
              "  moetune verify --suite hard --seed 1 --space full --max-candidates 24\n"
              "  moetune verify moetune-table.json --repeat-for 5m",
          .declare = with_options<VerifyOptions, declare_verify, run_verify>};
}

}  // namespace moetune
