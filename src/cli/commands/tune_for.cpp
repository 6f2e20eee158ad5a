// What `tune --for` adds to a run, in words: its options, the plan before it, the files after it.
#include "cli/commands/tune_for.h"

#include <cstdlib>
#include <set>
#include <thread>

#include "base/text/text.h"
#include "export/exporter.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

constexpr double kKernelSeconds = 0.6, kCellSeconds = 1, kChoiceSeconds = 0.6;  // of one core; of an H100
constexpr double kTuningShare = 0.6;                                            // of a time budget

std::map<std::string, std::vector<int64_t>> knob_values(const std::vector<std::string>& settings) {
  static const std::vector<std::string> knobs = {kBlockM, kBlockN, kBlockK, kGroupM, kWarps, kStages};
  std::map<std::string, std::vector<int64_t>> values;
  for (const std::string& setting : settings) {
    const size_t equals = std::min(setting.find('='), setting.size());
    const std::string knob = setting.substr(0, equals);
    static_cast<void>(place_of_word("knob of the server's kernel", knob, knobs));
    values[knob] = parse_integers(setting.substr(std::min(equals + 1, setting.size())), "--set " + knob, 1, kMaxSide);
  }
  return values;
}

// The server's own files: those of --base, else those that it would find.
LookUp places_of(const Server& server, const std::vector<std::string>& bases, const FoundKernel& kernel) {
  const char* variable = std::getenv(std::string(server.variable).c_str());
  const fs::path file = kernel.file.empty() ? fs::path() : fs::absolute(kernel.file);
  LookUp found = look_up(server, file, kernel.version(), variable ? variable : "");
  if (bases.empty()) return found;
  LookUp given = look_up_below(server, base_files(bases), kernel.version());
  given.bundled = found.bundled;
  return given;
}

std::string row_text(const ServingRow& row) {
  return fmt::format("{} {} {} {} {} {}{}", row.block_m, row.block_n, row.block_k, row.group_m, row.warps, row.stages,
                     row.use_tma == true ? " TMA" : "");
}

std::string pair_text(const RowPair& pair) {
  const std::string first = row_text(pair.first), second = row_text(pair.second);
  return first + (second == first ? "" : " / " + second);
}

// A row for each token count: the server's own row, the file's, and how much faster that is.
Grid gains_grid(const ServedRun& run, const std::vector<RowGain>& gains) {
  Grid grid{{{"tokens", true}, {fmt::format("{}'s own", run.plan.server->title)}, {"in the file"}}, {}};
  for (const std::string& routing : routings_of(run.plan)) grid.columns.push_back({routing, true});
  for (const RowGain& gain : gains) {
    const bool same = gain.written == gain.own;
    std::vector<std::string> row = {std::to_string(gain.tokens), pair_text(gain.own),
                                    same ? "the same" : pair_text(gain.written)};
    if (!gain.timed()) row[2] += " (not timed)";
    for (const std::optional<Estimate>& ratio : gain.by_routing)
      row.push_back(same || !ratio ? "" : ratio_text(*ratio));
    grid.rows.push_back(std::move(row));
  }
  return grid;
}

// Sentences on the layers that have a file already: the server's own, and those that come with moetune.
std::vector<std::string> ready_notes(const ServedRun& run) {
  std::vector<std::string> notes;
  for (const ReadyFile& ready : ready_files())
    for (const PlannedLayer& layer : run.plan.layers)
      if (ready.server == run.plan.server && ready.name() == layer.file.name)
        notes.push_back(
            fmt::format("a tuned file for this layer is in {} of moetune: moetune list served --show {} "
                        "prints it",
                        ready.path, shell_quoted(fs::path(ready.name()).stem().string())));
  return notes;
}

// Fills the folder with the server's other files where its variable hides those that it bundles. Returns whether the
// variable can name the folder.
bool copy_bundled(const ServedRun& run, const TuneOptions& options, const Terminal& terminal) {
  const Server& server = *run.plan.server;
  if (!server.variable_hides_bundled) return true;
  if (run.plan.places.bundled.empty()) return false;
  const auto files = files_to_copy(run.plan, run.folder);
  for (const auto& [from, to] : files) {
    fs::create_directories(to.parent_path());
    write_atomic(to, read_text(from));
  }
  if (!files.empty() && !options.quiet)
    note(terminal, fmt::format("{} files were copied from {}, because {} replaces that folder: copy them again when {} "
                               "is updated",
                               files.size(), run.plan.places.bundled.string(), server.variable, server.title));
  return true;
}

// How to serve with the files.
std::string next_step(const ServedRun& run, bool by_variable) {
  const Server& server = *run.plan.server;
  const bool groups = run.plan.layers[0].file.format.groups();
  const std::string serve =
      fmt::format("{}{}{} ...", server.command, groups ? " " : "", groups ? server.groups_arguments : "");
  if (by_variable) return fmt::format("{}={} {}", server.variable, shell_quoted(run.folder.string()), serve);
  return fmt::format(
      "cp {}*.json {}/{}/{}, in the folder where {} is installed ({} would hide its other files), then {}",
      shell_quoted((run.folder / run.plan.prefix).string()), server.word, fs::path(server.bundled[0]).string(),
      fs::path(run.plan.prefix).parent_path().filename().string(), server.title, server.variable, serve);
}

}  // namespace

void declare(OptionSet& set, ServedOptions& options) {
  const std::vector<std::string> words = server_words();
  set.group("A server's file");
  set.value(
      "--for", options.program, fmt::format("{}", fmt::join(words, "|")),
      "Tune the kernel of this program, as it is installed, at its token counts, and write the file that it looks "
      "up: one command from a model to a file",
      one_of(words));
  set.value("--kernel-file", options.kernel_file, "FILE.py",
            "With --for: the program's file with fused_moe_kernel, where it is not installed for python3");
  set.list("--base", options.bases, "FILE",
           "With --for: the file that the program has for the layer, or a folder above it [where the program looks]");
  set.value("--shared-experts", options.shared_experts, "S",
            "With --for: S more experts that every token picks, as SGLang fuses shared experts");
}

ServedRun plan_for(TuneOptions& options, const Invocation&) {
  ServedRun run;
  const ServedOptions& asked = options.served;
  const Server& server = find_server(asked.program);
  if (!options.search.space.empty() && options.search.space != "full")
    throw request_error(
        fmt::format("--space {}: --for tries rows that may win, or with --space full all", options.search.space));
  const int64_t shared =
      asked.shared_experts.empty() ? 0 : parse_integer(asked.shared_experts, "--shared-experts", 1, kMaxExperts);
  options.cells.request = served_request(server, options.cells.request, shared, [&](const CellRequest& request) {
    CellOptions probe = options.cells;
    probe.request = request;
    return make_cells(probe);
  });
  const std::vector<Cell> cells = make_cells(options.cells);
  require_problems(cells);
  DeviceOptions device = options.device;
  if (is_all_gpus(device)) device.device = "cuda";
  run.device = open_worker(device)->device();
  if (run.device.kind != DeviceKind::cuda)
    throw machine_error(fmt::format("--for {} needs a GPU, and this machine has none", server.word),
                        "plan for one with --dry-run --device h200");
  run.kernel.file = asked.kernel_file;
  if (!run.kernel.file.empty() && !fs::is_regular_file(run.kernel.file))
    throw request_error(fmt::format("--kernel-file {}: no such file", asked.kernel_file));
  try {
    run.kernel = find_kernel(server, serving_format(cells[0].shape.layer).word, asked.kernel_file);
    require_triton(server, run.kernel);
  } catch (const Error& error) {
    if (!options.dry_run) throw;
    run.missing = error.what() + (error.hint().empty() ? "" : ": " + error.hint());
  }
  run.plan =
      make_served_plan(server, cells, run.device, places_of(server, asked.bases, run.kernel), run.kernel.version(),
                       knob_values(options.search.settings), options.search.space == "full");
  for (const std::string& base : asked.bases)
    if (!fs::is_directory(base) && std::ranges::none_of(run.plan.layers, [&](const PlannedLayer& one) {
          return fs::path(base).filename() == one.file.name || fs::path(base).filename() == one.file.down_name;
        }))
      throw request_error(fmt::format("--base {}: the program does not look it up for this layer", base),
                          fmt::format("it looks for {}", run.plan.layers[0].file.name));
  run.folder = options.output.empty() ? fmt::format("{}-configs", server.word) : options.output;
  options.output = (run.folder / "moetune-table.json").string();
  options.search.space.clear(), options.search.settings.clear();
  options.search.variants = {fmt::format("{}_moe", server.word)};
  return run;
}

std::string served_plan_text(const ServedRun& run, const TuneOptions& options) {
  const ServedPlan& plan = run.plan;
  const auto cores = std::max<size_t>(std::thread::hardware_concurrency(), 1);
  const double compiling = static_cast<double>(plan.kernels) * kKernelSeconds / static_cast<double>(cores);
  const double tuning = kCellSeconds * static_cast<double>(plan.cells.size()),
               choosing = kChoiceSeconds * static_cast<double>(plan.cells.size());
  std::vector<std::string> files, bases;
  for (const PlannedLayer& layer : plan.layers)
    for (const auto& [file, source] :
         {std::pair(layer.file.name, layer.file.source), {layer.file.down_name, layer.file.down_source}}) {
      if (!file.empty()) files.push_back((run.folder / (plan.prefix + file)).string());
      if (!source.empty()) bases.push_back(source.string());
    }
  std::set<int64_t> counts;
  for (const Cell& cell : plan.cells) counts.insert(cell.tokens);
  if (options.format == OutputFormat::json)
    return pretty_json(
        {{"files", files},
         {"base", bases},
         {"cells", json_list(plan.cells, id)},
         {"rows", plan.rows.size()},
         {"rows_of_its_tuner", plan.of_rows},
         {"kernels", plan.kernels},
         {"kernel_file", run.kernel.file.string()},
         {"seconds", {{"compiling", rounded(compiling, 3)}, {"tuning", tuning}, {"choosing", rounded(choosing, 3)}}}});
  std::string result;
  const auto say = [&](const std::string& sentence) { result += paragraph(sentence, {.columns = 80}); };
  const std::string_view title = plan.server->title;
  say(fmt::format("{} looks for:", title));
  for (const std::string& file : files) result += file + "\n";
  if (!bases.empty()) {
    say(fmt::format("It has {} of these files: their rows stay where ours are not faster.", bases.size()));
    for (const std::string& base : bases) result += base + "\n";
  } else if (plan.places.known) {
    say("It has none of these files: it runs its default rows.");
  } else {
    say(
        fmt::format("Whether it has such files is unknown, because {} was not found here: rows are compared with its "
                    "default rule. Name its files, or a folder above them, with --base.",
                    title));
  }
  for (const std::string& sentence : ready_notes(run)) say("A" + sentence.substr(1) + ".");
  result += "\n";
  say(fmt::format("{}: up and down of {}, {} token counts, routings {}.", counted(plan.cells.size(), "cell"),
                  counted(plan.layers.size(), "layer"), counts.size(), fmt::join(routings_of(plan), ", ")));
  say(fmt::format(
      "{} of the {} configurations of its tuner are tried, each verified; the others have tiles larger than an "
      "expert's rows, need more shared memory than there is, or win nowhere in its files (--space full tries "
      "all).",
      plan.rows.size(), plan.of_rows));
  if (plan.layers[0].file.format.groups())
    say(fmt::format("{} runs this kernel with {}; without it, it may run Marlin, which reads no file.", title,
                    plan.server->groups_arguments));
  if (!run.missing.empty()) say(fmt::format("The kernel cannot be compiled here: {}.", run.missing));
  result += "\n";
  say(
      fmt::format("Would take about {}: {} kernels are compiled on {} in {} (once: they are kept), cells are tuned in "
                  "{}, rows are chosen in {}.",
                  format_time(compiling + tuning + choosing), plan.kernels, counted(cores, "core"),
                  format_time(compiling), format_time(tuning), format_time(choosing)));
  return result;
}

void make_pack(const ServedRun& run, TuneOptions& options, const Invocation& invocation) {
  const Server& server = *run.plan.server;
  const auto say = [&](const std::string& sentence) {
    if (!options.quiet) note(invocation.terminal, sentence);
  };
  for (const std::string& sentence : ready_notes(run)) say(sentence);
  if (!run.plan.places.known)
    say(fmt::format(
        "whether {} has a file for this layer is unknown, because it was not found here: name its files, or "
        "a folder above them, with --base",
        server.title));
  if (run.kernel.triton != run.kernel.version())
    say(
        fmt::format("the kernels are compiled by Triton {}, and {} runs {}: their times may differ; pip install "
                    "triton=={}",
                    run.kernel.triton, server.title, run.kernel.version(), run.kernel.version()));
  say(fmt::format("{} of the {} rows of {}'s own tuner are tried; --space full tries all", run.plan.rows.size(),
                  run.plan.of_rows, server.title));
  options.device.packs = {packed(run, options.device.no_cache, invocation.terminal, options.quiet).string()};
}

void leave_to_choice(TuneRequest& request) {
  request.final_rounds = 5, request.final_stretch = false;
  request.time_budget *= kTuningShare;
}

std::function<std::vector<Candidate>(const Entries&)> served_contenders(const ServedRun& run, const TunedTable& table,
                                                                        const TuneOptions& options) {
  const auto journal = std::make_shared<JournalContents>(read_journal(options.journal, options.catalog));
  const VariantPtr variant = options.catalog.find(options.search.variants[0]);
  return
      [=, &run, &table](const Entries& pool) { return planned_contenders(run.plan, table, pool, *journal, variant); };
}

Exit write_served(const ServedRun& run, const TunedTable& whole, const TuneOptions& options,
                  const Invocation& invocation) {
  const Server& server = *run.plan.server;
  const TunedTable table = finished(whole);
  if (table.choices.empty())
    throw Error(Exit::no, "the time budget ended before the rows of a token count were chosen",
                "run again with --resume and a larger --time-budget");
  Export written;
  std::optional<Error> nothing;
  try {
    written = export_serving(server, table, {.places = run.plan.places, .prefix = run.plan.prefix});
  } catch (const Error& error) {
    if (error.exit() != Exit::no) throw;
    nothing = error;
  }
  for (const ExportedFile& file : written.files) {
    const fs::path path = run.folder / file.name;
    fs::create_directories(path.parent_path());
    write_kept(path, file.text, invocation.terminal);
    print_to_stderr(fmt::format("wrote {}\n", path.string()));
  }
  for (const std::string& sentence : written.notes)  // the table shows what most of them say
    if (options.verbose) note(invocation.terminal, sentence);
  std::vector<HeadedTable> tables;
  std::vector<double> ratios;  // of all counts and routings
  int64_t faster = 0, counts = 0, asked = 0;
  for (const PlannedLayer& layer : run.plan.layers) {
    const std::vector<RowGain> gains = gains_of(run.plan, layer, table, written);
    tables.push_back(
        {{layer.file.name,
          fmt::format("Rows: BLOCK_SIZE_M N K, GROUP_SIZE_M, num_warps, num_stages. {}'s own are {}. Then how much "
                      "faster the file's are, for each routing.",
                      server.title,
                      layer.file.rows.empty() ? "its default rule" : "those of " + layer.file.source.string())},
         gains_grid(run, gains)});
    asked += std::ssize(layer.tokens), counts += std::ssize(gains);
    for (const RowGain& gain : gains) {
      faster += gain.written != gain.own;
      for (const std::optional<Estimate>& ratio : gain.by_routing)
        if (ratio) ratios.push_back(ratio->value);
    }
  }
  const Style style = style_of(options.format, invocation.terminal, options.verbose);
  if (options.format == OutputFormat::json)
    print(pretty_json(to_json(table)));
  else
    print(headed_tables_text(tables, style));
  if (nothing)
    throw Error(Exit::no,
                options.verbose ? nothing->what()
                                : fmt::format("no row is known to be faster than {}'s own by more than the noise in "
                                              "all routings: no file is written",
                                              server.title),
                fmt::format("{} needs no file for this layer", server.title));
  std::string last = fmt::format(
      "{} of {} rows are faster than {}'s own by more than the noise, in all routings; the others stay its own. "
      "Over all, the file is {:.1f} % faster (geometric mean). The table is {}.",
      faster, counts, server.title, 100 * (geometric_mean(ratios) - 1), options.output);
  if (counts < asked)
    last += fmt::format(" {} token counts were not reached within the time: --resume goes on.", asked - counts);
  last = wrong_text(options, table, style) + paragraph(last, style) +
         fmt::format("Next: {}\n", next_step(run, copy_bundled(run, options, invocation.terminal)));
  if (options.format == OutputFormat::text)
    print("\n" + last);
  else if (!options.quiet)
    print_to_stderr(last);
  return Exit::yes;
}

}  // namespace moetune
