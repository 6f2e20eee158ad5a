// `moetune tune`: which candidate is best for these cells?
#include "tune/tuner.h"

#include <fmt/chrono.h>

#include <cstdlib>
#include <ctime>
#include <map>

#include "cli/commands/tune_for.h"
#include "cli/signals.h"
#include "cli/tables/check_output.h"
#include "cli/tables/choosing.h"
#include "cli/tables/plan.h"
#include "cli/tables/winners.h"
#include "cli/text/progress.h"
#include "export/exporter.h"
#include "record/layer.h"
#include "record/table/append.h"
#include "tune/final.h"
#include "tune/layers.h"
#include "tune/rounds.h"
#include "tune/search/strategy.h"
#include "workload/product/work.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxAtOnce = 8;
constexpr int64_t kUsualAtOnce = 3;

TuneRequest request_of(const TuneOptions& options, const Invocation& invocation) {
  TuneRequest request;
  request.cells = make_cells(options.cells);
  request.strategy = options.strategy;
  require_strategy(request.strategy);
  request.space = make_space(options.search, lists_candidates(request.strategy) ? "quick" : "all", options.catalog);
  request.max_candidates = options.max_candidates.value_or(request.max_candidates);
  request.time_budget = options.time_budget.value_or(request.time_budget);
  request.final_rounds = static_cast<int>(options.rounds.value_or(request.final_rounds));
  request.final_stretch = !options.rounds;
  request.final_wait = options.wait;
  if (!options.warm_start.empty()) request.warm_start = read_table(options.warm_start, options.catalog).entries;
  if (!options.warm_start.empty() && request.strategy != "auto")
    throw request_error(
        "--warm-start is for the strategy auto: " + request.strategy + " does not begin with winners of other cells",
        "leave out --warm-start or --strategy");
  request.seed = options.cells.request.seed.value_or(0);
  request.regime = options.regime.value_or(Regime::burst);
  request.tool = tool_json(invocation.argv);
  request.tool["date"] = fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::gmtime(std::time(nullptr)));
  return request;
}

// Notes that --warm-start has no winner with an operation, an element size and a variant of this run.
void note_useless_warm_start(const TuneRequest& request, const Terminal& terminal) {
  const auto helps = [&](const Entry& entry) {
    if (!entry.skipped.empty()) return false;
    const bool runs = std::ranges::any_of(request.space.variants, [&](const VariantSpace& part) {
      return part.variant->name == entry.candidate.variant->name;
    });
    return runs && std::ranges::any_of(request.cells, [&](const Cell& cell) {
             return cell.shape.op == entry.cell.shape.op &&
                    bits(cell.shape.layer.format.w.dtype) == bits(entry.cell.shape.layer.format.w.dtype);
           });
  };
  if (!request.warm_start.empty() && std::ranges::none_of(request.warm_start, helps))
    note(terminal, "no winner of --warm-start is of this run's operations, types and variants: it helps no cell");
}

// Notes variants without a cost model, which --strategy model needs.
void note_missing_models(const TuneRequest& request, const DeviceInfo& device, const Terminal& terminal) {
  if (request.strategy != "model") return;
  std::vector<std::string> without;
  for (const VariantSpace& space : request.space.variants) {
    const Variant& variant = *space.variant;
    const bool takes_part = std::ranges::any_of(request.cells, [&](const Cell& cell) {
      return !cannot_run(variant.fallback(make_problem(cell), device), cell.shape, device);
    });
    if (!variant.seconds && takes_part) without.push_back(variant.name);
  }
  if (without.empty()) return;
  note(terminal, fmt::format("there is no cost model for {}: --strategy model tries its default alone",
                             fmt::join(without, ", ")));
}

// Keeps only the cells of this shard in the request, and puts its number into the file names.
void take_shard(TuneOptions& options, TuneRequest& request, Whole& whole, const Terminal& terminal) {
  const Shard shard = choose_shard(options.shard, [](const char* name) { return std::getenv(name); });
  options.part = shard;
  options.whole_output = options.output;
  if (shard.count > 1) {
    for (const Cell& cell : request.cells) whole.sweep.push_back(id(cell));
    request.cells = cells_of(shard, request.cells);
    options.output = shard_file(shard, options.output).string();
    if (!options.journal.empty()) options.journal = shard_file(shard, options.journal).string();
    if (!options.quiet)
      note(terminal,
           fmt::format("shard {}{}: {} of {} cells, written to {}", text(shard),
                       shard.source.empty() ? "" : fmt::format(" by {} (--shard 1/1 for all cells)", shard.source),
                       request.cells.size(), whole.sweep.size(), options.output));
  }
  if (options.journal.empty()) options.journal = options.output + ".journal.jsonl";
  whole.asked = request.cells;
}

// --append: leaves the cells that the table lacks.
void append_to(const TuneOptions& options, TuneRequest& request, Whole& whole, Backend& backend,
               const std::function<void(const std::string&)>& say) {
  const std::string& file = options.output;
  if (!is_there(file)) return say(fmt::format("{} does not exist: --append begins a new table", file));
  try {
    request.cells = lacking_cells(whole, read_table(file, options.catalog),
                                  {backend.device(), backend.environment(), request.regime});
  } catch (const Error& error) {
    if (error.exit() != Exit::machine) throw;
    throw Error(error.exit(), fmt::format("--append: cells of this run cannot be added to {}: {}", file, error.what()),
                "name another table with -o, or tune all cells again without --append");
  }
  const size_t cells = whole.asked.size(), lacking = request.cells.size();
  if (lacking == 0)
    say(fmt::format("{} holds all these cells already: nothing is tuned", file));
  else if (lacking < cells)
    say(fmt::format("{} holds {} of {} cells already: --append tunes the others", file, cells - lacking, cells));
}

// Finds faults of the request before the run puts an older journal aside. With --append, keeps only the cells that the
// table lacks.
void prepare(const TuneOptions& options, TuneRequest& request, Whole& whole, std::optional<ContestRequest>& choosing,
             Backend& backend, const Invocation& invocation) {
  const DeviceInfo& device = backend.device();
  const auto say = [&](const std::string& text) { return options.quiet ? void() : note(invocation.terminal, text); };
  require_effect(invocation.given, invocation.terminal, &device);
  if (device.kind == DeviceKind::cpu) {  // whose finals have several looks
    if (request.final_stretch) request.final_rounds = 5 * kCpuLooks;
    request.final_looks = std::clamp(request.final_rounds / kFewestOfALook, 1, kCpuLooks);
  }
  if (!options.quiet) note_useless_warm_start(request, invocation.terminal);
  require_regime(request.regime, device);
  if (options.append) append_to(options, request, whole, backend, say);
  if (whole.before)
    request.warm_start.insert(request.warm_start.end(), whole.before->entries.begin(), whole.before->entries.end());
  if (choosing) require_choice(*choosing, cells_to_choose_for(whole)), measure_as_finals(*choosing, request);
  if (choosing && choosing->rule == Rule::layer) leave_to_choice(request);
  require_knobs(options.search, request.space, device);
  if (!options.dry_run)  // which shows first what is pruned
    require_candidates(request.cells, request.space, device, "--dry-run shows what is pruned and why");
  if (lists_candidates(request.strategy) && drawn_candidates(request) == 0) require_listable(request.space, device);
  if (!options.quiet) note_missing_models(request, device, invocation.terminal);
}

Files files_of(const TuneOptions& options, const std::vector<Cell>& cells) {
  Files files;
  add_inputs(files, options.cells, cells);
  add_inputs(files, options.search);
  add_input(files, "--warm-start", options.warm_start);
  add_output(files, "--output", options.output, content::table);
  add_output(files, "--journal", options.journal, content::journal);
  return files;
}

// A resumed run goes on with its own table, and keeps the robust choices in it.
void go_on_with_table(const fs::path& output, const Catalog& catalog, const JournalContents& journal, Whole& whole,
                      KeptFile& file) {
  std::error_code error;
  if (whole.before || journal.decided.empty() || !fs::exists(output, error)) return;
  try {
    TunedTable table = read_table(output, catalog);
    const bool has_others = std::ranges::any_of(table.entries, [&](const Entry& entry) {
      return entry.skipped.empty() && !journal.decided.contains(id(entry.cell));
    });
    if (has_others) return;
    file.take_over();
    if (!table.choices.empty() || !table.layers.empty()) whole.before = std::move(table);
  } catch (const Error&) {  // it gets another name
  }
}

// The journal of this run: continued where asked and there is one; else new, with an older one put aside. It is locked
// before anything is read or moved, because a tuner on another device may be writing there.
Journal open_journal(const TuneOptions& options, const JournalHeader& header, JournalContents& before,
                     const Terminal& terminal) {
  const fs::path path = options.journal;
  Journal journal = Journal::claim(path);
  if (options.resume && !journal.empty()) {
    before = read_journal(path, options.catalog);
    JournalHeader now = header;
    // Any of the GPUs goes on with what any of them has done.
    if (is_all_gpus(options.device) && same_model(before.header.device, now.device))
      now.device.id = before.header.device.id;
    require_resumable(before.header, now);
    journal.go_on();
    return journal;
  }
  if (options.resume && !options.quiet)
    note(terminal, fmt::format("{} has nothing to continue: the run starts from the beginning", path.string()));
  if (!journal.empty()) {
    const fs::path aside = journal.keep_copy();
    if (!options.quiet) note(terminal, fmt::format("the journal of an earlier run is kept as {}", aside.string()));
  }
  journal.begin(header);
  return journal;
}

// A shard that came from the environment is written out, so that the command does the same in another shell. A table of
// noise alone is tuned again.
std::string next_command(const TuneOptions& options, const Invocation& invocation, bool complete, bool trusted = true) {
  if (complete && options.part.count > 1) {  // a pattern for the shell: quoted up to its star
    const std::string whole = shell_quoted(options.whole_output);
    const fs::path path = options.whole_output;
    return fmt::format("moetune merge {}.*-of-{}{} -o {}", shell_quoted((path.parent_path() / path.stem()).string()),
                       options.part.count, path.has_extension() ? shell_quoted(path.extension().string()) : "", whole);
  }
  if (complete && trusted) {
    std::vector<std::string> check = {"moetune", "check", options.output};
    for (const std::string& pack : options.device.packs) check.insert(check.end(), {"--pack", pack});
    return shell_line(check);
  }
  std::vector<std::string> argv = invocation.argv;
  if (complete)
    std::erase(argv, "--resume");
  else if (!options.resume)
    argv.push_back("--resume");
  if (!options.part.source.empty()) argv.insert(argv.end(), {"--shard", text(options.part)});
  return shell_line(argv);
}

// `chosen` holds the robust choices and the cells from which they were made.
void print_results(const TuneOptions& options, const Invocation& invocation, const TunedTable& table,
                   const TunedTable& chosen, size_t cells, bool complete) {
  const auto won = [](const Entry& entry) { return entry.skipped.empty(); };
  const auto trusted = [](const Entry& entry) { return entry.skipped.empty() && distrust(entry).empty(); };
  const bool any_won = std::ranges::any_of(table.entries, won),
             any_trusted = options.append || std::ranges::any_of(table.entries, trusted);  // the table has other cells
  std::string last = answer(table, cells);
  for (const std::string& more : {choices_sentence(chosen), layers_sentence(table)})
    if (!more.empty()) last += " " + more;
  last += fmt::format(" The table is {}.", options.output);
  const Style style = style_of(options.format, invocation.terminal, options.verbose);
  last = wrong_text(options, table, style) + paragraph(last, style);
  if (any_won || !complete) last += "Next: " + next_command(options, invocation, complete, any_trusted) + "\n";
  if (options.format == OutputFormat::json) print(pretty_json(to_json(table)));
  if (options.format == OutputFormat::csv) print(export_csv(table).files.at(0).text);
  if (options.format == OutputFormat::markdown || options.format == OutputFormat::text) {
    print(results_text(table, style));
    if (const std::vector<HeadedTable> choices = choice_tables(chosen, options.verbose); !choices.empty())
      print("\n" + headed_tables_text(choices, style));
  }
  if (options.format == OutputFormat::text)
    print("\n" + last);
  else if (!options.quiet)
    print_to_stderr(last);
  else if (const std::string noise = noise_sentence(table); !noise.empty())
    warn(invocation.terminal, noise);
}

Exit run_dry(const TuneOptions& options, TuneRequest request, Whole whole, std::optional<ContestRequest> choosing,
             const Invocation& invocation) {
  const std::vector<std::unique_ptr<Backend>> backends = open_workers(options.device);
  Backend* backend = backends.front().get();
  prepare(options, request, whole, choosing, *backend, invocation);
  CandidateSource source(request.space, backend->device(), drawn_candidates(request));
  Plan plan = make_plan(request.cells, source, backend->device(), request.seed);
  plan.output = options.output;
  plan.journal = options.journal;
  print(options.format == OutputFormat::json  ? pretty_json(plan_json(plan, request.tool))
        : options.format == OutputFormat::csv ? plan_csv(plan)
                                              : plan_text(plan, style_of(options.format, invocation.terminal)));
  require_candidates(request.cells, request.space, backend->device(), "");  // as the run would
  return Exit::yes;
}

// The run itself, with its journal; the table so far reaches the disk after each cell.
TunedTable tune_all(const TuneOptions& options, const Invocation& invocation, const TuneRequest& request, Whole& whole,
                    const std::vector<Backend*>& devices, const std::atomic<bool>& stop) {
  Backend& backend = *devices.at(0);
  const JournalHeader header{whole.asked,      backend.device(), backend.environment(), request.space.name,
                             request.strategy, request.seed,     whole.sweep,           request.regime};
  JournalContents before;
  Journal journal = open_journal(options, header, before, invocation.terminal);
  Progress progress(invocation.terminal, backend.device(), options.quiet, request.time_budget);
  KeptFile file(options.output);
  if (whole.before) file.take_over();
  go_on_with_table(options.output, options.catalog, before, whole, file);
  if (const auto kept = std::ranges::count_if(
          request.cells, [&](const Cell& cell) { return decided_entry(request, before, cell) != nullptr; });
      kept > 0 && !options.quiet)
    note(invocation.terminal,
         fmt::format("the journal has decided {} of {} cells, which are kept", kept, request.cells.size()));
  const auto write = [&](const TunedTable& so_far) {
    const fs::path old = write_table(file, whole_table(whole, so_far));
    if (old.empty() || options.quiet) return;
    progress.clear();
    note(invocation.terminal, fmt::format("the older {} is kept as {}", options.output, old.string()));
  };
  const std::string kept = "what was measured is kept: continue with " + next_command(options, invocation, false);
  try {
    TunedTable table = tune(
        request, devices, journal, before, [&](const Event& event) { progress.on(event); }, stop, write);
    if (!table.entries.empty() || request.cells.empty()) write(table);  // else an older table stays as it is
    return entries_of(whole_table(whole, table), whole.asked);
  } catch (const Error& error) {
    throw Error(error.exit(), error.what(), error.hint().empty() ? kept : error.hint());
  } catch (const CandidateFault& fault) {
    throw machine_error(fmt::format("the device's worker failed: {}", fault.what()), kept);
  }
}

// Measures more of the cells in `table`, such as robust choices, and writes all with it.
TunedTable add_to_table(const TuneOptions& options, const Invocation& invocation, const Whole& whole, TunedTable table,
                        const std::string& next, const std::function<void(TunedTable&)>& measure) {
  try {
    measure(table);
  } catch (const Error& error) {
    throw Error(
        error.exit(), error.what(),
        fmt::format("the winners are kept; {} with {}", next, next_command(options, invocation, /*complete=*/false)));
  }
  KeptFile file(options.output);
  file.take_over();
  write_table(file, whole_table(whole, table));
  return table;
}

// A shard without cells: there are more shards than cells.
Exit finish_empty(const TuneOptions& options, const TunedTable& table, const Terminal& terminal) {
  if (options.format == OutputFormat::json) print(pretty_json(to_json(table)));
  const std::string sentence =
      fmt::format("Shard {} has no cells: there are fewer cells than shards. The table {} is empty.",
                  text(options.part), options.output);
  return options.format == OutputFormat::text ? print(sentence + "\n") : note(terminal, sentence), Exit::yes;
}

// How many cells are tuned on a GPU at a time, and how large they are.
Sharing sharing_of(const TuneOptions& options, const std::vector<Cell>& cells) {
  Sharing sharing{.at_once = std::clamp<int64_t>(std::ssize(cells), 1, options.at_once.value_or(kUsualAtOnce))};
  for (const Cell& cell : cells)
    sharing.problem_bytes = std::max(sharing.problem_bytes, bytes(product_of(make_problem(cell))));
  return sharing;
}

Exit run_tune(TuneOptions options, const Invocation& invocation) {
  if (options.format == OutputFormat::csv && !options.served.program.empty())
    throw request_error("--format csv is for cells and their winners, without --for", "use json or text");
  for (const std::string& text : model_notes(options.cells.request)) note(invocation.terminal, text);
  std::optional<ServedRun> served;
  if (!options.served.program.empty()) {
    served = plan_for(options, invocation);
    require_outputs(files_of(options, served->plan.cells), options.dry_run);
    if (options.dry_run) return print(served_plan_text(*served, options)), Exit::yes;
    make_pack(*served, options, invocation);
  }
  if (!served) choose_weight_order(options.cells, options.device, options.search.variants, invocation.terminal);
  if (options.output.empty()) options.output = "moetune-table.json";
  options.catalog = Catalog(options.device.packs);
  note_packs(options.catalog, invocation.terminal);
  TuneRequest request = request_of(options, invocation);
  Whole whole;
  take_shard(options, request, whole, invocation.terminal);
  std::optional<ContestRequest> choosing = choose_request(options.choosing, options.part);
  if (options.part.count > 1 && asks_layers(options.cells))
    throw request_error(
        "--projection ffn: a shard may hold up of a layer and not its down",
        "tune --projection up,down with --gated, --permute-x, --permute-y and --topk-weights in shards, "
        "merge them, then add --projection ffn --append --shard 1/1");
  if (served) choosing = ContestRequest{.rule = Rule::layer};
  if (choosing && !options.append) require_choice(*choosing, request.cells);
  require_outputs(files_of(options, request.cells), options.dry_run);
  require_problems(request.cells);
  if (options.dry_run) return run_dry(options, request, whole, choosing, invocation);
  const Sharing sharing = sharing_of(options, request.cells);

  const OutputLock ours(options.output);  // one tuner per table and per journal, before a device is opened
  if (std::error_code error; fs::exists(options.journal, error)) static_cast<void>(Journal::claim(options.journal));
  const std::vector<std::unique_ptr<Backend>> backends = open_workers(options.device, sharing);
  std::vector<Backend*> devices;
  std::map<std::string, DeviceLock> held;  // by the device's id
  for (const std::unique_ptr<Backend>& one : backends) {
    devices.push_back(one.get());
    if (const std::string& id = one->device().id; !held.contains(id))
      held.emplace(id, lock(*one, options.device, invocation));
  }
  if (options.device.device == "auto" && !options.quiet && devices[0]->device().kind == DeviceKind::cpu)
    note(invocation.terminal, "there is no GPU here ('moetune doctor' says why): the cpu's kernel is tuned");
  prepare(options, request, whole, choosing, *devices[0], invocation);
  const std::atomic<bool>& stop = stop_on_signals();
  const Clock::time_point end = end_of_budget(request.time_budget);
  const bool known = whole.before && request.cells.empty();
  const TunedTable table =
      known ? entries_of(*whole.before, whole.asked) : tune_all(options, invocation, request, whole, devices, stop);
  if (whole.asked.empty()) return finish_empty(options, table, invocation.terminal);
  if (table.entries.empty()) {
    print_to_stderr(
        fmt::format("Stopped before anything was measured.\nNext: {}\n", next_command(options, invocation, false)));
    return Exit::interrupted;
  }
  bool complete = table.entries.size() == whole.asked.size(), all_won = true, all_fit = true;
  for (const Entry& entry : table.entries) {
    complete = complete && entry.complete;
    all_won = all_won && (entry.skipped.empty() || lacks_memory(entry));
    all_fit = all_fit && !lacks_memory(entry);
  }
  const bool chooses = choosing && !stop;
  if (!chooses && !options.quiet && whole.before)
    for (const std::string& layer : merge({*whole.before, table}, "last").dropped_choices)
      note(invocation.terminal,
           fmt::format("the robust choices of {} are dropped, because winners of its cells changed: "
                       "make them again with --append --choose",
                       layer));
  if (served && chooses) choosing->contenders = served_contenders(*served, table, options);
  const auto contest = [&](const char* what, const auto& measure) {
    contest_on(devices, what, options.quiet, invocation.terminal, measure);
  };
  TunedTable chosen = table;
  if (chooses)
    chosen = add_to_table(options, invocation, whole, entries_of(whole_table(whole, table), cells_to_choose_for(whole)),
                          "make the choices", [&](TunedTable& all) {
                            contest("choosing", [&](Backend& device, const ContestListener& listener) {
                              all.choices = measure_choices(all, device, *choosing, listener, stop);
                            });
                            if (served) choose_together(all.choices, shared_knobs(*served->plan.server));
                          });
  if (asks_layers(options.cells) && !stop)
    chosen = add_to_table(options, invocation, whole, std::move(chosen), "tune the layers", [&](TunedTable& all) {
      const JournalContents journal = read_journal(options.journal, options.catalog);
      ContestRequest pairing;
      measure_as_finals(pairing, request);
      pairing.end = end;
      pairing.contenders = [&](const Entries& entries) { return fastest_candidates(*entries[0], journal); };
      contest("pairing", [&](Backend& device, const ContestListener& listener) {
        all.layers = measure_layers(all, device, pairing, listener, stop);
      });
    });
  complete = complete && !((choosing || asks_layers(options.cells)) && stop);
  if (served && !stop) return write_served(*served, chosen, options, invocation);
  print_results(options, invocation, entries_of(chosen, whole.asked), chosen, whole.asked.size(), complete);
  if (stop && !complete) return Exit::interrupted;
  if (!all_won) return Exit::no;
  if (!all_fit) return Exit::machine;
  return options.require_quiet && !noise_sentence(table).empty() ? Exit::inconclusive : Exit::yes;
}

void declare_tune(OptionSet& set, TuneOptions& options) {
  declare(set, options.cells);
  declare(set, options.device);
  declare(set, options.search, "all; quick for strategies that go through a list");
  set.group("Device");
  set.number("--at-once", options.at_once, 1, kMaxAtOnce,
             "Tune N cells of a GPU at a time: one is measured while the kernels of the others compile [3]");
  set.group("Search");
  set.value("--strategy", options.strategy, "NAME", "The order of trials (moetune list strategies)", strategy_names);
  set.value("--warm-start", options.warm_start, "TABLE",
            "Begin each search with the winners of this table, which may be of other layers or another GPU");
  set.number("--max-candidates", options.max_candidates, 1, INT64_MAX,
             "At most N trials per cell; --strategy random draws them from a space of any size");
  set.duration("--time-budget", options.time_budget,
               "Stop after this time, such as 90s or 1h30m; the cell in progress is finished");
  set.number("--rounds", options.rounds, kFewest, kMaxRounds,
             "Measure the fastest candidates of each cell again in at most N rounds [11 on a GPU, 40 on a cpu, and up "
             "to three times as many while the winner's ratio is uncertain]");
  set.duration(
      "--wait", options.wait,
      "How long a cell may wait while other programs use the processors [as long as its search took, at most 20s]",
      /*may_be_zero=*/true);
  declare_regime(set, options.regime);
  set.flag("--require-quiet", options.require_quiet, "Exit with 4 if a winner's times are too noisy to trust");
  set.value(
      "--shard", options.shard, "i/n",
      "Tune the i-th of n parts of the cells, and put i-of-n into the files' names; 1/1 for all [by Slurm or MPI]");
  declare(set, options.choosing);
  declare(set, options.served);
  set.group("Files");
  set.value("-o,--output", options.output, "PATH",
            "The table; an existing one is kept as PATH.old [moetune-table.json]. With --for the folder of the files "
            "[SERVER-configs]");
  set.value("--journal", options.journal, "FILE", "Write each trial here when it ends [beside the table]");
  set.flag("--append", options.append, "Add cells to the table; cells that it already has are not tuned again");
  set.flag("--resume", options.resume, "Continue the journal: no finished trial is repeated");
  set.group("Options");
  set.flag("--dry-run", options.dry_run,
           "Print the cells, their candidates, why others are pruned, and the expected duration; then stop");
  declare_format(set, options.format, /*has_csv=*/true);
  set.flag("-v,--verbose", options.verbose, "Print all knobs of the winners, all baselines and rates");
  set.flag("-q,--quiet", options.quiet, "No progress and no notes");
}

}  // namespace

std::string wrong_text(const TuneOptions& options, const TunedTable& table, const Style& style) {
  if (std::ranges::none_of(table.entries, [](const Entry& entry) { return entry.failed > 0; })) return "";
  const JournalContents journal = read_journal(options.journal, options.catalog);
  return wrong_results_text(verified_candidates(table, journal), options.device, style);
}

Command tune_command() {
  return {.name = "tune",
          .summary = "Find the fastest correct candidate for each cell",
          .examples =
              "  moetune tune --model qwen3-30b-a3b --tokens 16,256,4096 --routing uniform,zipf:1.0\n"
              "  moetune tune --model mixtral-8x7b --projection up,down --space full --strategy random "
              "--max-candidates 2000 "
              "--time-budget 30m --resume\n"
              "  moetune tune --model qwen3-30b-a3b --tokens 16-4096*4 --routing uniform,zipf:1.0 --choose worst "
              "--bucket-loss 2%\n"
              "  moetune tune --for vllm --model config.json --tp 2 -o vllm-configs\n"
              "  moetune tune --device cpu --experts 8 --top-k 2 --n 256 --k 128 --tokens 64 --dry-run",
          .declare = with_options<TuneOptions, declare_tune, run_tune>};
}

}  // namespace moetune
