// What `tune --for` adds to a run: the plan before it, the contenders of its choice, the files after it.
#include "cli/commands/tune_for.h"

#include <set>
#include <thread>

#include "base/text/text.h"
#include "export/exporter.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kGemms = 2;                                                   // both GEMMs
constexpr double kKernelSeconds = 0.6, kCellSeconds = 1, kChoiceSeconds = 0.6;  // of one core; of an H100
constexpr double kTuningShare = 0.6;                                            // of a time budget

// The cells' options as the server runs a layer: both projections by slot, its own token counts, even and uneven rows.
void fill_cells(CellOptions& options, Server server, const ServedOptions& served) {
  CellRequest& cells = options.request;
  cells.projections = {Projection::up, Projection::down};
  cells.fusion.permute_x = cells.fusion.by_slot = cells.fusion.topk_weights = true;
  CellOptions probe = options;
  probe.request.tokens = {1}, probe.request.routings = {parse_routing("uniform")};
  const std::vector<Cell> one = make_cells(probe);
  const Layer& first = one[0].shape.layer;
  for (const Cell& cell : one) {
    const Layer& layer = cell.shape.layer;
    if (layer.top_k != first.top_k || layer.format != first.format)
      throw request_error(fmt::format("--for {} compiles the kernel for one top_k and format, and {} differs from {}",
                                      served.program, title(cell.shape), title(one[0].shape)),
                          "tune one kind after the other into the same folder: --model NAME#1, then --model NAME#2");
    if (layer.format.x.dtype == Dtype::fp32) throw request_error("--for: the server's kernel has no fp32");
  }
  cells.fast_sums = multiplies_fp8(first.format) && first.format.scales != ScaleKind::block;
  if (cells.tokens.empty()) {
    std::vector<int64_t> counts = serving_token_counts();
    const int64_t most = counts.back();
    std::erase_if(counts, [&](int64_t count) {
      return count < most && runs_other_kernel(server, count, first.local_experts(), serving_format(first));
    });
    cells.tokens = std::move(counts);
  }
  if (cells.routings.empty()) cells.routings = {parse_routing("uniform"), parse_routing("zipf:1")};
  if (served.shared_experts.empty()) return;
  if (server != Server::sglang) throw request_error("--shared-experts is for --for sglang, which fuses them");
  const int64_t shared = parse_integer(served.shared_experts, "--shared-experts", 1, kMaxExperts);
  if (std::ranges::any_of(one, [&](const Cell& cell) { return cell.shape.layer.experts != first.experts; }) ||
      first.ep > 1)
    throw request_error("--shared-experts is for one model without --ep");
  cells.experts = first.experts + shared, cells.top_k = first.top_k + shared;
  for (RoutingSpec& routing : cells.routings)
    routing = parse_routing(fmt::format("shared:{}:{}", shared, text(routing)));
}

// "3_6_0" of "configs/triton_3_6_0" as numbers.
std::vector<int64_t> version_of(const fs::path& folder) {
  std::vector<int64_t> numbers;
  for (const std::string& word : split(folder.filename().string(), '_'))
    if (!word.empty() && word.find_first_not_of("0123456789") == std::string::npos) numbers.push_back(std::stoll(word));
  return numbers;
}

// Folders of files that the installed program bundles, in the order in which it looks into them.
std::vector<fs::path> bundled(Server server, const fs::path& kernel, const std::string& triton) {
  std::error_code error;
  std::vector<fs::path> roots;
  fs::path parent = kernel.parent_path();
  for (int up = 0; up < 7 && parent.has_relative_path(); ++up, parent = parent.parent_path()) {
    roots.push_back(up == 0 ? parent / "configs" : parent / "srt/layers/moe/fused_moe_triton/configs");
    if (server == Server::vllm) break;
  }
  std::vector<fs::path> folders;
  for (const fs::path& root : roots) {
    if (!fs::is_directory(root, error)) continue;
    if (server == Server::vllm) return {root};
    for (const auto& one : fs::directory_iterator(root, error))
      if (one.path().filename().string().starts_with("triton_")) folders.push_back(one.path());
    const std::vector<int64_t> own = version_of("triton_" + replaced(triton, ".", {"_"}));
    std::ranges::sort(folders, std::ranges::greater(),
                      [&](const fs::path& one) { return std::pair(version_of(one) == own, version_of(one)); });
    if (!folders.empty()) return folders;
  }
  return folders;
}

// The layers of the cells, with names and the server's own files.
std::vector<ServedLayer> layers_of(const ServedRun& run) {
  std::vector<ServedLayer> layers;
  for (const Cell& cell : run.cells) {
    const Layer& layer = cell.shape.layer;
    if (layer.projection != Projection::down) continue;
    auto place = std::ranges::find_if(
        layers, [&](const ServedLayer& one) { return key_of_layer(one.layer) == key_of_layer(layer); });
    if (place == layers.end()) {
      ServedLayer one{.layer = layer, .format = serving_format(layer), .file = {}};
      if (run.server == Server::vllm && one.format.type.scales == ScaleKind::block && layer.k % 128 != 0)
        throw request_error(
            fmt::format("--for vllm: vLLM splits blocks of 128 for experts of width {}, which moetune does not cover",
                        layer.k),
            "take a --tp for which 128 divides the width");
      const auto named = [&](bool down) {
        return serving_file_name(run.server, layer.local_experts(), padded_width(run.server, layer.model, layer.k),
                                 run.device.name, one.format, down);
      };
      one.file = named(false), one.base = base_rows(run.bases, one.file);
      if (run.server == Server::sglang)
        one.down_file = named(true), one.down_base = base_rows(run.bases, one.down_file);
      place = layers.insert(layers.end(), std::move(one));
    }
    add_once(place->tokens, cell.tokens);
  }
  for (ServedLayer& one : layers) std::ranges::sort(one.tokens);
  return layers;
}

// The rows to compile: those worth trying, and the server's own.
void add_rows(ServedRun& run, const SearchOptions& options) {
  RowSearch search{.server = run.server, .format = run.layers[0].format, .mean_rows = {}};
  search.full = options.space == "full";
  search.shared_memory = run.device.shared_memory_per_block;
  for (const std::string& setting : options.settings) {
    const size_t equals = std::min(setting.find('='), setting.size());
    const std::string knob = setting.substr(0, equals);
    static const std::vector<std::string> knobs = {kBlockM, kBlockN, kBlockK, kGroupM, kWarps, kStages};
    static_cast<void>(place_of_word("knob of the server's kernel", knob, knobs));
    search.values[knob] =
        parse_integers(setting.substr(std::min(equals + 1, setting.size())), "--set " + knob, 1, kMaxSide);
  }
  for (const Cell& cell : run.cells) {
    const Problem problem = make_problem(cell);
    double& mean = search.mean_rows[cell.tokens];
    mean = std::max(mean, static_cast<double>(problem.routing.rows()) /
                              static_cast<double>(std::max<int64_t>(problem.active_experts(), 1)));
  }
  run.rows = rows_to_try(search);
  RowSearch all = search;
  all.full = true, all.values.clear(), all.shared_memory = 0;
  run.of_rows = std::ssize(rows_to_try(all));
  for (const ServedLayer& layer : run.layers)
    for (const int64_t tokens : layer.tokens) {
      const RowPair own = layer.own(run.server, tokens);
      for (ServingRow row : {own.first, own.second}) {
        if (row.use_tma == true) continue;  // which packs have not
        row.use_tma = {};
        auto place = std::ranges::find(run.rows, row, &TriedRow::row);
        if (place == run.rows.end()) place = run.rows.insert(place, {row, {}});
        add_once(place->tokens, tokens);
      }
    }
  // vLLM has a kernel of its own where each slot is a block.
  const Layer& layer = run.layers[0].layer;
  for (const TriedRow& row : run.rows) {
    const auto few = std::ranges::count_if(row.tokens, [&](int64_t tokens) {
      return run.server == Server::vllm && !has_groups(run.layers[0].format) &&
             4 * tokens * layer.top_k <= layer.local_experts();
    });
    run.kernels += kGemms * ((few > 0) + (few < std::ssize(row.tokens)));
  }
}

std::string row_text(const ServingRow& row) {
  return fmt::format("{} {} {} {} {} {}{}", row.block_m, row.block_n, row.block_k, row.group_m, row.warps, row.stages,
                     row.use_tma == true ? " TMA" : "");
}

std::string file_of(const ServedRun& run, const std::string& name) {
  return (run.folder / (run.prefix + name)).string();
}

// Whether the rows of a layer and token count were chosen, for both projections.
bool is_chosen(const TunedTable& table, const Layer& layer, int64_t tokens) {
  return std::ranges::count_if(table.choices, [&](const RobustChoice& choice) {
           return key_of_layer(choice.shape().layer) == key_of_layer(layer) && choice.cells[0].tokens == tokens;
         }) >= 2;
}

// The table without token counts that the time budget left unfinished.
TunedTable finished(const TunedTable& table) {
  TunedTable kept = table;
  std::erase_if(kept.entries,
                [&](const Entry& one) { return !is_chosen(table, one.cell.shape.layer, one.cell.tokens); });
  std::erase_if(kept.choices,
                [&](const RobustChoice& one) { return !is_chosen(table, one.shape().layer, one.cells[0].tokens); });
  return kept;
}

struct Gains {
  Grid grid;
  std::vector<double> ratios;  // of the counts and routings
  int64_t faster = 0, counts = 0;
};

// A row of the grid for each token count: the server's own row, the file's, and how much faster that is.
Gains gains_of(const ServedRun& run, const TunedTable& table, const ServedLayer& layer, const ServingRows& file,
               const ServingRows& down_file) {
  const ServingTimes times(table, {});
  const bool two = run.server == Server::sglang;
  std::vector<std::string> routings;
  for (const Cell& cell : run.cells) add_once(routings, text(cell.routing));
  Gains gains;
  gains.grid.columns = {{"tokens", true}, {fmt::format("{}'s own", name(run.server))}, {"in the file"}};
  for (const std::string& word : routings) gains.grid.columns.push_back({word, true});
  for (const int64_t tokens : layer.tokens) {
    if (!is_chosen(table, layer.layer, tokens)) continue;
    const RowPair own = layer.own(run.server, tokens);
    RowPair ours = own;
    if (!file.empty()) ours = own_rows(run.server, file, down_file, tokens, layer.layer.local_experts(), layer.format);
    ours = {launched(ours.first, layer.format), launched(ours.second, layer.format)};
    const bool same = ours.first == own.first && (!two || ours.second == own.second);
    const auto shown = [&](const RowPair& pair) {
      return row_text(pair.first) +
             (two && row_text(pair.second) != row_text(pair.first) ? " / " + row_text(pair.second) : "");
    };
    std::vector<std::string> row = {std::to_string(tokens), shown(own), same ? "the same" : shown(ours)};
    bool all_timed = true;
    gains.faster += !same, ++gains.counts;
    for (const std::string& word : routings) {
      Estimate before, after;
      bool timed = true;
      for (const Entry& entry : table.entries) {
        const Layer& other = entry.cell.shape.layer;
        if (entry.cell.tokens != tokens || text(entry.cell.routing) != word ||
            key_of_layer(other) != key_of_layer(layer.layer))
          continue;
        const bool second = two && other.projection == Projection::down;
        const auto old = times.find(entry.cell, second ? own.second : own.first),
                   now = times.find(entry.cell, second ? ours.second : ours.first);
        timed = timed && old && now;
        if (old && now) before += *old, after += *now;
      }
      timed = timed && after.value > 0;
      row.push_back(same || !timed ? "" : ratio_text(before / after));
      if (timed) gains.ratios.push_back(before.value / after.value);
      all_timed = all_timed && timed;
    }
    if (!all_timed) row[2] += " (not timed)";
    gains.grid.rows.push_back(std::move(row));
  }
  return gains;
}

}  // namespace

RowPair ServedLayer::own(Server server, int64_t count) const {
  const RowPair pair = own_rows(server, base, down_base, count, layer.local_experts(), format);
  return {launched(pair.first, format), launched(pair.second, format)};
}

void declare(OptionSet& set, ServedOptions& options) {
  set.group("A server's file");
  set.value(
      "--for", options.program, "vllm|sglang",
      "Tune the kernel of this program, as it is installed, at its token counts, and write the file that it looks "
      "up: one command from a model to a file",
      one_of({"vllm", "sglang"}));
  set.value("--kernel-file", options.kernel_file, "FILE.py",
            "With --for: the program's file with fused_moe_kernel, where it is not installed for python3");
  set.list("--base", options.bases, "FILE",
           "With --for: the file that the program has for the layer, or its folder [beside the kernel's file]");
  set.value("--shared-experts", options.shared_experts, "S",
            "With --for: S more experts that every token picks, as SGLang fuses shared experts");
}

ServedRun plan_for(TuneOptions& options, const Invocation&) {
  ServedRun run;
  const std::vector<std::string> programs = {"vllm", "sglang"};
  run.server = place_of_word("program", options.served.program, programs) == 0 ? Server::vllm : Server::sglang;
  if (!options.search.space.empty() && options.search.space != "full")
    throw request_error(
        fmt::format("--space {}: --for tries rows that may win, or with --space full all", options.search.space));
  fill_cells(options.cells, run.server, options.served);
  run.cells = make_cells(options.cells);
  for (const Cell& cell : run.cells)
    if (const Layer& layer = cell.shape.layer;
        runs_other_kernel(run.server, cell.tokens, layer.local_experts(), serving_format(layer)))
      throw request_error(
          fmt::format("--tokens {}: vLLM runs its CUDA kernel moe_wna16 for so few tokens of 4 bits, and "
                      "no file changes that",
                      cell.tokens),
          "give more than 6 rows an expert");
  require_problems(run.cells);
  const Layer& first = run.cells[0].shape.layer;
  run.format = multiplies_fp8(first.format) ? fmt::format("fp8-{}", name(first.format.scales)) : std::string(first.format.word);
  DeviceOptions device = options.device;
  if (is_all_gpus(device)) device.device = "cuda";
  run.device = open_worker(device)->device();
  if (run.device.kind != DeviceKind::cuda)
    throw machine_error(fmt::format("--for {} needs a GPU, and this machine has none", options.served.program),
                        "plan for one with --dry-run --device h200");
  run.kernel = options.served.kernel_file;
  if (!run.kernel.empty() && !fs::is_regular_file(run.kernel))
    throw request_error(fmt::format("--kernel-file {}: no such file", run.kernel.string()));
  try {
    const FoundKernel found = find_kernel(options.served.program, run.format, options.served.kernel_file);
    run.kernel = found.file, run.triton = found.triton;
  } catch (const Error& error) {
    if (!options.dry_run) throw;
    run.missing = error.what() + (error.hint().empty() ? "" : ": " + error.hint());
  }
  run.bases = base_files(options.served.bases);
  if (run.bases.empty() && !run.kernel.empty()) run.bases = bundled(run.server, fs::absolute(run.kernel), run.triton);
  if (run.server == Server::sglang)
    run.prefix = fmt::format("configs/triton_{}/", run.triton.empty() ? "X_Y_Z" : replaced(run.triton, ".", {"_"}));
  run.folder = options.output.empty() ? fmt::format("{}-configs", options.served.program) : options.output;
  run.layers = layers_of(run);
  for (const std::string& base : options.served.bases)
    if (!fs::is_directory(base) && std::ranges::none_of(run.layers, [&](const ServedLayer& one) {
          return fs::path(base).filename() == one.file || fs::path(base).filename() == one.down_file;
        }))
      throw request_error(fmt::format("--base {}: the program does not look it up for this layer", base),
                          fmt::format("it looks for {}", run.layers[0].file));
  add_rows(run, options.search);
  options.output = (run.folder / "moetune-table.json").string();
  options.search.space.clear(), options.search.settings.clear();
  options.search.variants = {fmt::format("{}_moe", options.served.program)};
  return run;
}

std::string served_plan_text(const ServedRun& run, const TuneOptions& options) {
  const auto cores = std::max<size_t>(std::thread::hardware_concurrency(), 1);
  const double compiling = static_cast<double>(run.kernels) * kKernelSeconds / static_cast<double>(cores);
  const double tuning = kCellSeconds * static_cast<double>(run.cells.size()),
               choosing = kChoiceSeconds * static_cast<double>(run.cells.size());
  std::vector<std::string> files, bases;
  for (const ServedLayer& layer : run.layers)
    for (const auto& [file, base] : {std::pair(layer.file, &layer.base), {layer.down_file, &layer.down_base}}) {
      if (file.empty()) continue;
      files.push_back(file_of(run, file));
      if (!base->empty()) bases.push_back(file);
    }
  std::set<int64_t> counts;
  std::set<std::string> routings;
  for (const Cell& cell : run.cells) counts.insert(cell.tokens), routings.insert(text(cell.routing));
  if (options.format == "json")
    return pretty_json(
        {{"files", files},
         {"base", bases},
         {"cells", json_list(run.cells, id)},
         {"rows", run.rows.size()},
         {"rows_of_its_tuner", run.of_rows},
         {"kernels", run.kernels},
         {"kernel_file", run.kernel.string()},
         {"seconds", {{"compiling", rounded(compiling, 3)}, {"tuning", tuning}, {"choosing", rounded(choosing, 3)}}}});
  std::string result;
  const auto say = [&](const std::string& sentence) { result += paragraph(sentence, {.columns = 80}); };
  say(fmt::format("{} looks for:", name(run.server)));
  for (const std::string& file : files) result += file + "\n";
  say(bases.empty()
          ? "No such file was found beside its kernel or in --base: it runs its default rows."
          : fmt::format("It has {} of these files: their rows stay where ours are not faster.", bases.size()));
  result += "\n";
  say(fmt::format("{}: up and down of {}, {} token counts, routings {}.", counted(run.cells.size(), "cell"),
                  counted(run.layers.size(), "layer"), counts.size(), fmt::join(routings, ", ")));
  say(fmt::format(
      "{} of the {} configurations of its tuner are tried, each verified; the others have tiles larger than an "
      "expert's rows, need more shared memory than there is, or win nowhere in its files (--space full tries "
      "all).",
      run.rows.size(), run.of_rows));
  if (has_groups(run.layers[0].format))
    say(
        fmt::format("{} runs this kernel with --quantization moe_wna16; without it, it may run Marlin, which reads no "
                    "file.",
                    name(run.server)));
  if (!run.missing.empty()) say(fmt::format("The kernel cannot be compiled here: {}.", run.missing));
  result += "\n";
  say(
      fmt::format("Would take about {}: {} kernels are compiled on {} in {} (once: they are kept), cells are tuned in "
                  "{}, rows are chosen in {}.",
                  format_time(compiling + tuning + choosing), run.kernels, counted(cores, "core"),
                  format_time(compiling), format_time(tuning), format_time(choosing)));
  return result;
}

void make_pack(const ServedRun& run, TuneOptions& options, const Invocation& invocation) {
  if (!options.quiet)
    note(invocation.terminal, fmt::format("{} of the {} rows of {}'s own tuner are tried; --space full tries all",
                                          run.rows.size(), run.of_rows, name(run.server)));
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
  return [=, &run, &table](const Entries& pool) {
    const Cell& cell = pool[0]->cell;
    const auto key = key_of_layer(cell.shape.layer);
    const auto layer =
        std::ranges::find_if(run.layers, [&](const ServedLayer& one) { return key_of_layer(one.layer) == key; });
    Entries both;
    for (const Entry& entry : table.entries)
      if (entry.skipped.empty() && entry.cell.tokens == cell.tokens && key_of_layer(entry.cell.shape.layer) == key)
        both.push_back(&entry);
    std::vector<Candidate> own;
    if (layer != run.layers.end()) {
      const RowPair rows = layer->own(run.server, cell.tokens);
      own.push_back(candidate_of(variant, rows.first));
      if (run.server == Server::sglang && rows.second.use_tma != true && candidate_of(variant, rows.second) != own[0])
        own.push_back(candidate_of(variant, rows.second));
    }
    return serving_contenders(both, *journal, shared_knobs(run.server), std::move(own));
  };
}

Exit write_served(const ServedRun& run, const TunedTable& whole, const TuneOptions& options,
                  const Invocation& invocation) {
  const OutputFormat format = parse_format(options.format, kFormatsButCsv);
  const TunedTable table = finished(whole);
  if (table.choices.empty())
    throw Error(Exit::no, "the time budget ended before the rows of a token count were chosen",
                "run again with --resume and a larger --time-budget");
  Export written;
  std::optional<Error> nothing;
  try {
    written = export_serving(run.server, table, {.measured = nullptr, .bases = run.bases, .folder = run.prefix});
  } catch (const Error& error) {
    if (error.exit() != Exit::no) throw;
    nothing = error;
  }
  for (const ExportedFile& file : written.files) {
    const fs::path path = run.folder / file.name;
    fs::create_directories(path.parent_path());
    write_kept(path, file.text, invocation.terminal);
    tell(fmt::format("wrote {}\n", path.string()));
  }
  for (const std::string& sentence : written.notes)  // the table shows what most of them say
    if (options.verbose || (!options.quiet && &sentence == &written.notes.back())) note(invocation.terminal, sentence);
  std::vector<HeadedTable> tables;
  std::vector<double> ratios;
  int64_t faster = 0, counts = 0, asked = 0;
  for (const ServedLayer& layer : run.layers) {
    asked += std::ssize(layer.tokens);
    const auto read = [&](const std::string& name) {
      const bool there = contains(written.files, run.prefix + name, &ExportedFile::name);
      return there ? read_serving(file_of(run, name)) : ServingRows{};
    };
    const Gains gains = gains_of(run, table, layer, read(layer.file), read(layer.down_file));
    tables.push_back(
        {{layer.file, fmt::format("Rows: BLOCK_SIZE_M N K, GROUP_SIZE_M, num_warps, num_stages. {}'s own are {}. Then "
                                  "how much faster the file's are, for each routing.",
                                  name(run.server), layer.base.empty() ? "its default rule" : "those of its file")},
         gains.grid});
    ratios.insert(ratios.end(), gains.ratios.begin(), gains.ratios.end());
    faster += gains.faster, counts += gains.counts;
  }
  const Style style = style_of(format, invocation.terminal, options.verbose);
  if (format == OutputFormat::json)
    print(pretty_json(to_json(table)));
  else
    print(headed_tables_text(tables, style));
  if (nothing)
    throw Error(Exit::no,
                options.verbose ? nothing->what()
                                : fmt::format("no row is known to be faster than {}'s own by more than the noise in "
                                              "all routings: no file is written",
                                              name(run.server)),
                fmt::format("{} needs no file for this layer", name(run.server)));
  std::string last = fmt::format(
      "{} of {} rows are faster than {}'s own by more than the noise, in all routings; the others stay its own. "
      "Over all, the file is {:.1f} % faster (geometric mean). The table is {}.",
      faster, counts, name(run.server), 100 * (geometric_mean(ratios) - 1), options.output);
  if (counts < asked)
    last += fmt::format(" {} token counts were not reached within the time: --resume goes on.", asked - counts);
  const std::string flags = has_groups(run.layers[0].format) ? "--quantization moe_wna16 ..." : "...";
  last = wrong_text(options, table, style) + paragraph(last, style) +
         fmt::format("Next: {}={} {} {}\n",
                     run.server == Server::vllm ? "VLLM_TUNED_CONFIG_FOLDER" : "SGLANG_MOE_CONFIG_DIR",
                     shell_quoted(run.folder.string()),
                     run.server == Server::vllm ? "vllm serve" : "python3 -m sglang.launch_server", flags);
  if (format == OutputFormat::text)
    print("\n" + last);
  else if (!options.quiet)
    tell(last);
  return Exit::yes;
}

}  // namespace moetune
