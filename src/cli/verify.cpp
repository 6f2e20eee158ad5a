// `moetune verify`: are these candidates right?
#include <fmt/format.h>

#include <memory>

#include "base/file.h"
#include "base/grid.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/contenders.h"
#include "cli/device_options.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/wording.h"
#include "table/pretty.h"

namespace moetune {
namespace {

constexpr const char* kSpace = "quick";
const std::vector<Format> kFormats = {Format::text, Format::markdown, Format::json, Format::csv};

struct VerifyOptions {
  CellOptions cells;
  DeviceOptions device;
  ContenderOptions contenders;
  SearchOptions search;
  std::string output, format;
  bool quiet = false;

  bool names_space() const { return !search.space.empty() || !search.variants.empty() || !search.settings.empty(); }
};

struct Point {
  Cell cell;
  Candidate candidate;
  Status status = Status::ok;
  std::string reason;
  Verdict verdict;
};

// The candidates of a cell that can be compiled; what can't is a point already.
std::vector<Point> verify_cell(const CellWork& work, const Problem& problem, Backend& backend,
                               const std::atomic<bool>& stop) {
  std::vector<Point> points;
  std::vector<Candidate> candidates;
  for (const Entrant& entrant : work.entrants) {
    const Candidate& candidate = entrant.contender.candidate;
    if (const auto reason = cannot_run(candidate, problem.shape, backend.device()))
      points.push_back({work.cell, candidate, Status::illegal, *reason, {}});
    else
      candidates.push_back(candidate);
  }
  if (candidates.empty()) return points;
  const std::vector<CompileResult> compiled = backend.compile(problem.shape, candidates);
  for (size_t i = 0; i < candidates.size() && !stop; ++i) {
    Point point{work.cell, candidates[i], compiled[i].status, compiled[i].reason, {}};
    try {
      if (point.status == Status::ok) point.verdict = backend.verify({.baseline = "", .candidate = candidates[i]});
      if (point.status == Status::ok && !point.verdict.ok)
        point.status = Status::wrong_result, point.reason = point.verdict.reason;
    } catch (const CandidateFault& fault) {
      point.status = fault.status, point.reason = fault.what();
    }
    points.push_back(std::move(point));
  }
  return points;
}

void add_candidates(CellWork& work, const VerifyOptions& options, const Problem& problem, const DeviceInfo& device) {
  const auto add = [&](const std::string& role, const Candidate& candidate) {
    add_entrant(work, role, {.baseline = "", .candidate = candidate});
  };
  const SearchSpace space = make_space(options.search, kSpace);
  if (options.names_space())
    for (const Candidate& candidate : enumerate(space, problem.shape, device).legal) add("candidate", candidate);
  if (work.entrants.empty()) add("default", default_candidate(space, problem, device));
}

Json to_json(const Point& point) {
  Json json = {{"cell", to_json(point.cell)},
               {"contender", to_json(Contender{.baseline = "", .candidate = point.candidate})},
               {"status", name(point.status)}};
  if (point.status != Status::ok) json["reason"] = point.reason;
  if (point.verdict.elements > 0) json["verdict"] = to_json(point.verdict);
  return json;
}

Grid grid_of(const std::vector<Point>& points) {
  Grid grid{{{"cell"}, {"candidate"}, {"result"}, {"elements", true}, {"error", true}, {"ulps", true}}, {}};
  for (const Point& point : points) {
    const bool ran = point.verdict.elements > 0;
    grid.rows.push_back({id(point.cell), text(point.candidate),
                         point.status == Status::ok ? "right" : fmt::format("{}: {}", name(point.status), point.reason),
                         ran ? fmt::format("{}", point.verdict.elements) : "",
                         ran ? fmt::format("{:.1e}", point.verdict.normalised_error) : "",
                         ran ? fmt::format("{:.2g}", point.verdict.max_ulps) : ""});
  }
  return grid;
}

// Long lists of what is right help nobody: on standard output they are counted where there is more than one a cell.
Grid shown(const std::vector<Point>& points) {
  if (points.size() <= 20) return grid_of(points);
  std::vector<Point> wrong;
  for (const Point& point : points)
    if (point.status != Status::ok) wrong.push_back(point);
  return grid_of(wrong);
}

Exit run_verify(const VerifyOptions& options, const Invocation& invocation) {
  const Format format = parse_format(options.format, kFormats);
  std::vector<std::string> told;
  std::vector<CellWork> work = make_work(options.cells, options.contenders, told);
  if (options.names_space()) make_space(options.search, kSpace);
  if (!options.output.empty()) require_output(options.output);
  for (const std::string& sentence : told) warn(invocation.terminal, sentence);
  const std::unique_ptr<Backend> backend = open_worker(options.device);
  const std::atomic<bool>& stop = stop_on_signals();

  std::vector<Point> points;
  size_t done = 0;
  for (; done < work.size() && !stop; ++done) {
    const Problem problem = make_problem(work[done].cell);
    add_candidates(work[done], options, problem, backend->device());
    if (!options.quiet)
      tell(fmt::format("[{}/{}] {}: {}\n", done + 1, work.size(), id(work[done].cell),
                       counted(static_cast<int64_t>(work[done].entrants.size()), "candidate", "candidates")));
    try {
      backend->load(problem);
      for (Point& point : verify_cell(work[done], problem, *backend, stop)) points.push_back(std::move(point));
    } catch (const OutOfMemory& error) {
      for (const Entrant& entrant : work[done].entrants)
        points.push_back({work[done].cell, entrant.contender.candidate, Status::launch_error, error.what(), {}});
    }
  }
  Json json = {{"schema", "moetune.verify/1"},
               {"tool", tool_json(invocation.argv)},
               {"device", to_json(backend->device())},
               {"environment", backend->environment()},
               {"points", Json::array()}};
  int64_t wrong = 0;
  for (const Point& point : points) json["points"].push_back(to_json(point)), wrong += point.status != Status::ok;
  if (!options.output.empty()) write_atomic(options.output, pretty_json(json));
  if (format == Format::json) print(pretty_json(json));
  if (format == Format::csv) print(csv(grid_of(points)));
  if (format == Format::markdown) print(markdown(grid_of(points)));
  if (format == Format::text) {
    const Grid grid = shown(points);
    if (!grid.rows.empty()) print(markdown(grid) + "\n");
    const int64_t all = static_cast<int64_t>(points.size());
    print(fmt::format("{} of {} right in {}.\n", all - wrong, counted(all, "candidate", "candidates"),
                      counted(static_cast<int64_t>(done), "cell", "cells")));
  }
  if (stop) return Exit::interrupted;
  return wrong > 0 ? Exit::no : Exit::yes;
}

Action declare_verify(OptionSet& set) {
  const auto options = std::make_shared<VerifyOptions>();
  declare(set, options->cells);
  declare(set, options->device);
  declare(set, options->search, "");
  declare(set, options->contenders);
  set.value("-o,--output", options->output, "FILE", "Write the verdicts as JSON");
  declare_format(set, options->format, kFormats);
  set.flag("-q,--quiet", options->quiet, "No progress");
  return [options](const Invocation& invocation) { return run_verify(*options, invocation); };
}

}  // namespace

Command verify_command() {
  return {.name = "verify",
          .summary = "Compare candidates' results with the reference",
          .examples =
              "  moetune verify --model qwen3-30b-a3b --tokens 256 --routing zipf:1.0\n"
              "  moetune verify --device cpu --experts 8 --top-k 2 --n 65 --k 33 --tokens 17 --space quick\n"
              "  moetune verify --table moetune-table.json",
          .declare = declare_verify};
}

}  // namespace moetune
