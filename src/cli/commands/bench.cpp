// `moetune bench`: how fast are these candidates, a table's winners, the default and the baselines?
#include "cli/commands/command.h"
#include "cli/signals.h"
#include "cli/tables/bench_results.h"
#include "cli/tables/choosing.h"
#include "record/comparison.h"
#include "record/layer.h"
#include "tune/layers.h"
#include "workload/product/work.h"

namespace moetune {
namespace {

constexpr int64_t kRounds = 11;

struct BenchOptions {
  CellOptions cells;
  DeviceOptions device;
  ContenderOptions contenders;
  std::optional<int64_t> rounds;
  std::optional<Regime> regime;
  std::string peers, output;
  OutputFormat format = OutputFormat::text;
  bool hot = false, in_process = false, quiet = false, verbose = false;
};

// A failed launch ends the CUDA context of its process. A worker is then replaced; this process cannot be.
void require_context(const BenchOptions& options, Status status, const std::string& contender, const std::string& why) {
  if (options.in_process && status == Status::launch_error)
    throw machine_error(fmt::format("{} failed, and kernels cannot run in this process any more: {}", contender, why),
                        "leave it out, or run without --in-process");
}

// Compiles and verifies: a time counts only with a right result on that very problem.
void prove(EntrantResult& result, const Shape& shape, Backend& backend, const BenchOptions& options) {
  const Contender& contender = result.entrant.contender;
  if (contender.baseline.empty()) {
    if (const auto reason = cannot_run(contender.candidate, shape, backend.device()))
      return result.fail(Status::illegal, *reason);
    const CompileResult compiled = backend.compile(shape, std::span(&contender.candidate, 1)).at(0);
    if (compiled.status != Status::ok) return result.fail(compiled.status, compiled.reason);
  }
  try {
    result.verdict = backend.verify(contender);
    if (!result.verdict.ok) result.fail(Status::wrong_result, result.verdict.reason);
  } catch (const CandidateFault& fault) {
    require_context(options, fault.status, text(contender), fault.what());
    result.fail(fault.status, fault.what());
  } catch (const OutOfMemory& error) {  // a worker reports it as a fault
    result.fail(Status::launch_error, fmt::format("out of memory: {}", error.what()));
  }
}

// Times those that are right, in interleaved rounds, of which `stop` leaves some out; one that fails leaves, and the
// others begin again.
void time_results(std::vector<EntrantResult>& results, Backend& backend, int rounds, const SampleRequest& request,
                  const BenchOptions& options, const std::atomic<bool>& stop) {
  Quiet quiet{.early = {.stop = &stop}};
  for (;;) {
    std::vector<EntrantResult*> running;
    std::vector<Contender> contenders;
    for (EntrantResult& result : results)
      if (result.status == Status::ok) running.push_back(&result), contenders.push_back(result.entrant.contender);
    if (running.empty()) return;
    try {
      const Rounds measured = measure_rounds(backend, contenders, rounds, request, quiet);
      const auto is_baseline = [](const Contender& contender) { return !contender.baseline.empty(); };
      const auto baseline = static_cast<size_t>(std::ranges::find_if(contenders, is_baseline) - contenders.begin());
      const auto winner = std::ranges::find_if(
          running, [](const EntrantResult* result) { return has_role(result->entrant, "winner"); });
      for (size_t i = 0; i < running.size(); ++i) {
        running[i]->measurement = summarise(measured.blocks[i]);
        if (winner != running.end())
          running[i]->of_winner = paired_ratio(measured, i, static_cast<size_t>(winner - running.begin()));
        if (baseline < running.size()) running[i]->versus = paired_ratio(measured, baseline, i);
      }
      return;
    } catch (const ContenderFault& fault) {
      require_context(options, fault.status, text(contenders[fault.contender]), fault.what());
      running[fault.contender]->fail(fault.status, fault.what());
    }
  }
}

std::vector<EntrantResult> bench_cell(CellWork work, const SearchSpace& usual, Backend& backend, int rounds,
                                      const SampleRequest& request, const BenchOptions& options,
                                      const std::function<void(const std::string&)>& say,
                                      const std::atomic<bool>& stop) {
  const Problem problem = make_problem(work.cell);
  complete_entrants(work, problem, backend.device());
  add_entrant(work, "default", {.candidate = default_candidate(usual, problem, backend.device())});
  for (const std::string& baseline : backend.baselines(work.cell.shape.layer))
    add_entrant(work, "baseline", {.baseline = baseline});
  name_entrants(work, usual, problem, backend.device());
  const Product product = product_of(problem);
  std::vector<EntrantResult> results;
  for (const Entrant& entrant : work.entrants) {
    results.push_back({.cell = work.cell, .entrant = entrant, .m_sizes = problem.routing.m_sizes});
    results.back().flops = flops(product);
    results.back().bytes = bytes(product);
  }
  try {
    backend.load(problem);
  } catch (const OutOfMemory& error) {
    for (EntrantResult& result : results) result.fail(Status::launch_error, error.what()), result.no_memory = true;
    return results;
  }
  for (EntrantResult& result : results) prove(result, work.cell.shape, backend, options);
  std::erase_if(results, [&](const EntrantResult& result) {  // baselines that cannot multiply this problem
    const bool lacking = !result.entrant.contender.baseline.empty() && result.status == Status::illegal;
    if (lacking) say(fmt::format("the baseline {} is left out: {}", result.entrant.name, result.reason));
    return lacking;
  });
  time_results(results, backend, rounds, request, options, stop);
  return results;
}

// The cells as a table whose candidates are right here, with the layers to time: those that `tuned` has, and where
// `all`, others as pairs of its winners, or without a table of defaults.
TunedTable layers_to_time(const std::vector<EntrantResult>& results, const TunedTable& tuned, bool all,
                          const DeviceInfo& device) {
  TunedTable table;
  table.device = device;
  const auto right = [&](const Cell& cell, const Candidate& one) {
    return std::ranges::any_of(results, [&](const EntrantResult& result) {
      return result.status == Status::ok && result.cell == cell &&
             result.entrant.contender == Contender{.candidate = one};
    });
  };
  for (const EntrantResult& result : results) {
    const bool winner = has_role(result.entrant, "winner"), fallback = has_role(result.entrant, "default");
    if (result.status != Status::ok || (!winner && !fallback)) continue;
    if (table.entries.empty() || table.entries.back().cell != result.cell)
      table.entries.push_back({.cell = result.cell, .m_sizes = result.m_sizes, .skipped = "its winner failed"});
    Entry& entry = table.entries.back();
    const Candidate& candidate = result.entrant.contender.candidate;
    if (winner || tuned.entries.empty()) entry.candidate = candidate, entry.skipped.clear();
    if (fallback) entry.rivals = {{.name = "default", .candidate = candidate}};
  }
  for (const auto& [up, down] : layers_among(mapped(table.entries, &Entry::cell))) {
    const Entry &one = table.entries[up], &other = table.entries[down];
    const auto same = [&](const TunedLayer& layer) { return layer.up == one.cell && layer.down == other.cell; };
    const auto known = std::ranges::find_if(tuned.layers, same);
    TunedLayer layer;
    layer.up = one.cell, layer.up_candidate = one.candidate;
    layer.down = other.cell, layer.down_candidate = other.candidate;
    if (known != tuned.layers.end()) layer = *known;
    if ((all || known != tuned.layers.end()) && right(layer.up, layer.up_candidate) &&
        right(layer.down, layer.down_candidate))
      table.layers.push_back(layer);
  }
  return table;
}

// The times of other libraries in this cell. They are of another run: no rounds pair with ours.
void add_peers(const Peers& peers, std::vector<EntrantResult>& results) {
  if (results.empty()) return;
  double baseline = 0;
  for (const EntrantResult& result : results)
    if (baseline <= 0 && result.entrant.role == "baseline" && result.status == Status::ok)
      baseline = result.measurement.time.value;
  for (const PeerTime& peer : peers.of(id(results.front().cell))) {
    EntrantResult result = results.front();
    result.entrant.role = "peer", result.entrant.contender.baseline = peer.peer;
    result.entrant.name = peer.peer + " (peer)";
    result.status = Status::ok;
    result.measurement = peer.measurement, result.of_winner = {};
    const double ratio = baseline / peer.measurement.time.value;
    result.versus = {ratio, ratio, ratio};
    results.push_back(std::move(result));
  }
}

// Standard output first: it needs no disk. `fault` is what ended the run before its last cell, or empty.
void report(const std::vector<EntrantResult>& results, const TunedTable& layers, const std::string& cells,
            const std::string& fault, const BenchOptions& options, const Catalog& catalog, const Invocation& invocation,
            Backend& backend) {
  Json json = document("bench", invocation.argv,
                       {{"device", to_json(backend.device())},
                        {"environment", environment_with_packs(backend, catalog)},
                        {"hot", options.hot},
                        {"regime", name(options.regime.value_or(Regime::burst))},
                        {"points", json_list(results)}});
  if (!layers.layers.empty()) json["layers"] = json_list(layers.layers);
  if (Json steps = steps_json(cell_times(results)); !steps.empty()) json["training_steps"] = std::move(steps);
  for (const Comparison& one : comparisons(results)) json["comparisons"].push_back(to_json(one));
  if (!fault.empty()) json["fault"] = fault;
  const int64_t failed = failures(results);
  std::string written;
  write_outputs({[&] {
                   if (options.format == OutputFormat::json) print(pretty_json(json));
                   if (options.format == OutputFormat::csv) print(bench_csv(results));
                   if (options.format == OutputFormat::text || options.format == OutputFormat::markdown)
                     print(bench_text(results, style_of(options.format, invocation.terminal, options.verbose), layers));
                   if (options.format == OutputFormat::markdown) print(cut_short(fault));
                 },
                 [&] {
                   if (options.output.empty()) return;
                   write_atomic(options.output, pretty_json(json));
                   written = " Written to " + options.output + ".";
                 },
                 [&] {
                   if (options.format != OutputFormat::text) return;
                   const std::string wrong = wrong_results_text(verified_candidates(results), options.device,
                                                                style_of(options.format, invocation.terminal));
                   print((wrong.empty() ? "" : "\n" + wrong) +
                         fmt::format("\n{} measured in {}{}{}.{}\n",
                                     counted(static_cast<int64_t>(results.size()) - failed, "contender"), cells,
                                     layers.layers.empty() ? "" : " and " + counted(layers.layers.size(), "layer"),
                                     failed > 0 ? fmt::format(", {} failed", failed) : "", written));
                 }});
}

Exit run_bench(BenchOptions options, const Invocation& invocation) {
  output_to_standard_output(options.output, options.format);
  const Catalog catalog(options.device.packs);
  note_packs(catalog, invocation.terminal);
  const Regime regime = options.regime.value_or(Regime::burst);
  const auto rounds = static_cast<int>(options.rounds.value_or(kRounds));
  if (options.hot && !options.peers.empty())
    throw request_error("--peers and --hot exclude each other: peers are measured with cold operands");
  if (asks_layers(options.cells) && !options.contenders.candidates.empty())
    throw request_error("--candidate is of one launch, and --projection ffn times two",
                        "name the cell with --projection up or down and --gated, --permute-x, ...");
  const Peers peers = options.peers.empty() ? Peers{} : read_peers(options.peers);
  TunedTable tuned, layers;
  if (options.contenders.table.empty() && options.contenders.candidates.empty())
    choose_weight_order(options.cells, options.device, {}, invocation.terminal);
  const std::vector<CellWork> work = make_work(options.cells, options.contenders, catalog, invocation.terminal, &tuned);
  const std::vector<Cell> cells = mapped(work, &CellWork::cell);
  require_problems(cells);
  Files files;
  add_inputs(files, options.cells, cells);
  add_input(files, "--table", options.contenders.table);
  add_input(files, "--peers", options.peers);
  add_output(files, "--output", options.output, content::bench);
  require_outputs(files);
  const std::unique_ptr<Backend> backend =
      options.in_process ? (*invocation.factory)(options.device.device, worker_options(options.device).backend)
                         : open_worker(options.device);
  require_effect(invocation.given, invocation.terminal, &backend->device());
  require_kind(tuned, options.contenders, backend->device());
  require_regime(regime, backend->device());
  if (!options.peers.empty()) require_comparable(peers, backend->device().name, regime, "--peers", "those of this run");
  const DeviceLock held = lock(*backend, options.device, invocation);
  const std::atomic<bool>& stop = stop_on_signals();

  const SampleRequest sample{.hot = options.hot, .regime = regime};
  const SearchSpace usual = usual_space(catalog);
  std::vector<EntrantResult> results;
  size_t done = 0, wanted = 0;
  const auto report_so_far = [&](const std::string& fault) {
    report(results, layers, cells_done(done, work.size()), fault, options, catalog, invocation, *backend);
  };
  const auto say = [&](const std::string& sentence) {
    if (!options.quiet) note(invocation.terminal, sentence);
  };
  try {
    for (; done < work.size() && !stop; ++done) {
      if (!options.quiet) print_to_stderr(fmt::format("[{}/{}] {}\n", done + 1, work.size(), id(work[done].cell)));
      std::vector<EntrantResult> measured = bench_cell(work[done], usual, *backend, rounds, sample, options, say, stop);
      add_peers(peers, measured);
      for (EntrantResult& result : measured) results.push_back(std::move(result));
    }
    TunedTable all = layers_to_time(results, tuned, asks_layers(options.cells), backend->device());
    wanted = all.layers.size();
    contest_on({backend.get()}, "layer", options.quiet, invocation.terminal,
               [&](Backend& device, const ContestListener& listener) {
                 all.layers = measure_layers(all, device, {.rounds = rounds, .sample = sample}, listener, stop);
               });
    layers = std::move(all);
  } catch (const std::exception& error) {
    if (done > 0) keep_in_spite(invocation.terminal, [&] { report_so_far(error.what()); });
    throw;
  }
  const bool cut =
      stop && std::ranges::any_of(results, [&](const EntrantResult& result) {  // in the midst of its rounds
        return result.status == Status::ok && result.entrant.role != "peer" && result.measurement.time.samples < rounds;
      });
  done -= cut ? 1 : 0;
  const bool lacks_layers = layers.layers.size() < wanted, whole = done == work.size() && !(lacks_layers && stop);
  report_so_far(whole ? "" : fmt::format("interrupted: {} measured", cells_done(done, work.size())));
  if (!whole) return Exit::interrupted;
  if (lacks_layers) return Exit::no;
  if (failures(results) == 0) return Exit::yes;
  // A problem that this machine can't hold says nothing about its contenders.
  const auto failed = [](const EntrantResult& result) { return result.status != Status::ok && !result.no_memory; };
  return std::ranges::any_of(results, failed) ? Exit::no : Exit::machine;
}

void declare_bench(OptionSet& set, BenchOptions& options) {
  declare(set, options.cells, "Cells: lists to multiply, or to pick from --table");
  declare(set, options.device);
  declare(set, options.contenders);
  set.number("--rounds", options.rounds, 1, 100000,
             fmt::format("Interleaved rounds, one block of launches each [{}]", kRounds));
  declare_regime(set, options.regime);
  set.value("--peers", options.peers, "FILE", "Show other libraries' times beside ours (scripts/peers.py)");
  set.flag("--hot", options.hot, "Leave operands in the cache instead of rotating them");
  set.flag("--in-process", options.in_process,
           "Run kernels in this process, where ncu and compute-sanitizer see them; a kernel that crashes ends it");
  set.value("-o,--output", options.output, "FILE", "Write the results as JSON; - is standard output");
  declare_format(set, options.format, /*has_csv=*/true);
  set.flag("-v,--verbose", options.verbose, "Print all knobs of candidates, roles and rates");
  set.flag("-q,--quiet", options.quiet, "No progress");
}

}  // namespace

Command bench_command() {
  return {.name = "bench",
          .summary = "Time candidates, a table's winners and the baselines",
          .examples =
              "  moetune bench moetune-table.json\n"
              "  moetune bench --table moetune-table.json --projection ffn --tokens 4096\n"
              "  moetune bench --model qwen3-30b-a3b --tokens 256 --candidate \"simt\"\n"
              "  moetune bench --device cpu --experts 8 --top-k 2 --n 256 --k 128 --tokens 64 -o bench.json",
          .declare = with_options<BenchOptions, declare_bench, run_bench>};
}

}  // namespace moetune
