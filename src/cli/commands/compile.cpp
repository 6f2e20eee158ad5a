// `moetune compile`: cubins for an architecture, with registers, spills and shared memory. Needs no GPU.
#include <unordered_set>

#include "base/hash.h"
#include "cli/commands/command.h"
#include "variant/pack/pack.h"
#include "variant/space/space.h"
#ifdef MOETUNE_HAS_CUDA
#include "backend/cuda/compile/compiler.h"
#endif

namespace moetune {
namespace {

struct CompileOptions {
  CellOptions cells;
  SearchOptions search;
  std::vector<std::string> candidates, archs, packs;
  std::string kernels, output;
  OutputFormat format = OutputFormat::text;
  bool show_unit = false, no_cache = false, quiet = false, verbose = false;
};

struct ListedKernel {
  std::string target;
  Cell cell;
  Candidate candidate;
  std::string name = {};  // of the candidate in short
  LaunchPlan plan = {};
  std::string unit = {};
  CompileResult result = {};
  std::string file = {};
};

// Named candidates, a space's legal ones, or every CUDA variant's default.
std::vector<Candidate> candidates_of(const CompileOptions& options, const Problem& problem, const Cell& cell,
                                     const DeviceInfo& device, const Catalog& catalog, CandidateSource& source) {
  std::vector<Candidate> candidates = parse_candidates(options.candidates, catalog);
  for (Candidate& candidate : candidates) candidate = complete(candidate, problem, device);
  for (const Candidate& candidate : candidates)
    if (const auto reason = cannot_run(candidate, cell.shape, device))
      throw request_error(
          fmt::format("'{}' is illegal for {} on {}: {}", text(candidate), id(cell), device.name, *reason));
  if (options.search.names_space())
    for (const Candidate& candidate : source.candidates(cell.shape, cell.seed)->legal) candidates.push_back(candidate);
  if (!candidates.empty() || options.search.names_space()) return candidates;
  for (const VariantPtr& variant : catalog.variants())
    if (variant->device == DeviceKind::cuda)
      if (const Candidate fallback = variant->fallback(problem, device); !cannot_run(fallback, cell.shape, device))
        candidates.push_back(fallback);
  return candidates;
}

// One kernel for each different unit: cells of one shape share theirs.
std::vector<ListedKernel> kernels_of(const CompileOptions& options, const std::vector<Cell>& cells,
                                     const DeviceInfo& device, const Catalog& catalog) {
  std::vector<ListedKernel> kernels;
  std::unordered_set<std::string> seen;
  CandidateSource source(make_space(options.search, "quick", catalog), device, candidate_limit(options.search));
  require_knobs(options.search, source.space(), device);
  const SearchSpace usual = usual_space(catalog);
  for (const Cell& cell : cells) {
    const Problem problem = make_problem(cell);
    const Candidate fallback = default_candidate(usual, problem, device);
    for (const Candidate& candidate : candidates_of(options, problem, cell, device, catalog, source)) {
      const Variant& variant = *candidate.variant;
      ListedKernel kernel{.target = arch(device), .cell = cell, .candidate = candidate};
      const PackBinary* binary = variant.pack ? binary_of(*variant.pack, candidate.values, cell.shape) : nullptr;
      kernel.unit = binary ? fmt::format("// {} of the pack {}", binary->entry, text(candidate))
                           : variant.unit(candidate, cell.shape);
      if (!seen.insert(kernel.unit).second) continue;
      kernel.name = short_text(candidate, &fallback, problem, device);
      kernel.plan = binary ? LaunchPlan{.threads = binary->threads, .shared_bytes = binary->shared_bytes}
                           : variant.plan(candidate, cell.shape);
      kernels.push_back(std::move(kernel));
    }
  }
  if (kernels.empty()) {  // with the reason that prunes most of the named space
    const Grid pruned = options.search.names_space()
                            ? pruned_grid(source.candidates(cells.front().shape, cells.front().seed)->pruned)
                            : Grid();
    throw request_error(
        "no candidate is legal for these cells" + (pruned.rows.empty() ? "" : ": " + pruned.rows.front().front()),
        "try --space full, or other --set values");
  }
  return kernels;
}

#ifdef MOETUNE_HAS_CUDA
void compile_all(const CompileOptions& options, const std::string& target, std::vector<ListedKernel>& kernels) {
  std::vector<ListedKernel*> own;
  for (ListedKernel& kernel : kernels)
    if (const Pack* pack = kernel.candidate.variant->pack.get())
      kernel.result = stated_result(*pack, kernel.candidate, kernel.cell.shape, device_of_arch(target));
    else
      own.push_back(&kernel);
  const std::vector<CompiledUnit> compiled =
      compile_units(mapped(own, [](const ListedKernel* kernel) { return kernel->unit; }),
                    {.arch = target, .sources = kernel_sources(options.kernels), .cache = !options.no_cache});
  for (size_t i = 0; i < own.size(); ++i) {
    ListedKernel& kernel = *own[i];
    kernel.result = compiled[i].result;
    if (options.output.empty()) continue;
    const std::filesystem::path stem =
        std::filesystem::path(options.output) / target /
        fmt::format("{}-{}", kernel.candidate.variant->name, Hash().add(kernel.unit).hex().substr(0, 12));
    write_atomic(stem.string() + ".cu", kernel.unit);
    if (compiled[i].cubin.empty()) continue;
    kernel.file = stem.string() + ".cubin";
    write_atomic(kernel.file, compiled[i].cubin);
  }
}
#else
void kernel_sources(const std::string&) {}

void compile_all(const CompileOptions&, const std::string&, std::vector<ListedKernel>&) {
  throw machine_error("this build of moetune has no CUDA toolkit, so it cannot compile kernels",
                      "build moetune on a machine with the toolkit; --show-unit works without it");
}
#endif

// Finds faults of the request before anything is compiled.
void require_compilable(const CompileOptions& options, const std::vector<Cell>& cells,
                        const std::vector<std::string>& targets) {
  kernel_sources(options.kernels);
  if (options.output.empty()) return;
  Files files;
  add_inputs(files, options.cells, cells);
  add_inputs(files, options.search);
  for (const std::string& target : targets)
    add_output(files, "--output", (std::filesystem::path(options.output) / target / "kernel.cu").string(),
               content::kernel);
  require_outputs(files);
}

Json to_json(const ListedKernel& kernel) {
  Json json = {{"cell", to_json(kernel.cell)},
               {"candidate", to_json(kernel.candidate)},
               {"compile", to_json(kernel.result)},
               {"shared_bytes", kernel.plan.shared_bytes},
               {"threads", kernel.plan.threads}};
  if (!kernel.file.empty()) json["file"] = kernel.file;
  return json;
}

std::vector<std::string> row_of(const ListedKernel& kernel, bool verbose) {
  const CompileResult& result = kernel.result;
  const double shared = static_cast<double>(kernel.plan.shared_bytes + result.static_shared_bytes);
  return {verbose ? text(kernel.candidate) : kernel.name,
          std::string(name(result.status)),
          fmt::format("{}", result.registers),
          fmt::format("{} B", result.spill_bytes),
          format_bytes(shared),
          result.from_cache ? "cached" : format_time(result.seconds)};
}

// A table for each architecture and cell. Kernels of both follow each other.
std::string kernels_text(const std::vector<ListedKernel>& kernels, const Style& style) {
  std::vector<HeadedTable> tables;
  std::vector<std::string> reasons;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const ListedKernel& kernel = kernels[i];
    if (i == 0 || kernels[i - 1].target != kernel.target || kernels[i - 1].cell != kernel.cell) {
      std::vector<std::string> heading = cell_heading(kernel.cell);
      heading.back() = kernel.target + ", " + heading.back();
      tables.push_back({std::move(heading), titled("candidate|result|registers>|spills>|shared>|time>")});
    }
    tables.back().grid.rows.push_back(row_of(kernel, style.verbose));
    if (const CompileResult& result = kernel.result; result.status != Status::ok)
      reasons.push_back(fmt::format("{}, {}: {}: {}", kernel.target, kernel.name, name(result.status), result.reason));
  }
  return headed_tables_text(tables, style) + bullets(reasons, style);
}

Exit run_compile(const CompileOptions& options, const Invocation& invocation) {
  const std::vector<std::string> targets = arch_names(options.archs, {"sm_90a"});
  if (options.format == OutputFormat::json && targets.size() > 1)
    throw request_error("--format json takes one --arch at a time");
  const std::vector<Cell> cells = make_cells(options.cells);
  for (const std::string& text : model_notes(options.cells.request)) note(invocation.terminal, text);
  if (!options.show_unit) require_compilable(options, cells, targets);
  const Catalog catalog(options.packs);
  std::vector<ListedKernel> all;
  for (const std::string& target : targets) {
    std::vector<ListedKernel> kernels = kernels_of(options, cells, device_of_arch(target), catalog);
    if (options.show_unit) {
      for (const ListedKernel& kernel : kernels) print(fmt::format("// {}\n{}\n", text(kernel.candidate), kernel.unit));
      continue;
    }
    if (!options.quiet)
      print_to_stderr(fmt::format("compiling {} for {}\n", counted(kernels.size(), "kernel"), target));
    compile_all(options, target, kernels);
    std::ranges::move(kernels, std::back_inserter(all));
  }
  if (options.show_unit) return Exit::yes;
  const auto failed =
      std::ranges::count_if(all, [](const ListedKernel& kernel) { return kernel.result.status != Status::ok; });
  print_document(options.format,
                 document("compile", invocation.argv, {{"arch", targets[0]}, {"results", json_list(all)}}),
                 kernels_text(all, style_of(options.format, invocation.terminal, options.verbose)),
                 fmt::format("{} compiled{}.{}", counted(static_cast<int64_t>(all.size()) - failed, "kernel"),
                             failed > 0 ? fmt::format(", {} failed", failed) : "",
                             options.output.empty() ? "" : fmt::format(" They are under {}.", options.output)));
  return failed > 0 ? Exit::no : Exit::yes;
}

void declare_compile(OptionSet& set, CompileOptions& options) {
  declare(set, options.cells);
  declare(set, options.search);
  declare_packs(set, options.packs);
  set.group("Candidates");
  set.list("--candidate", options.candidates, "TEXT",
           "A candidate, such as \"mma block_m=128\"; other knobs have the default's values");
  set.group("Options");
  set.list("--arch", options.archs, "LIST", "Architectures, such as sm_80,sm_90a [sm_90a]");
  set.flag("--show-unit", options.show_unit, "Print the C++ text of each kernel and stop");
  set.value("--kernels", options.kernels, "DIR", "Read device code from here instead of from the binary");
  set.flag("--no-cache", options.no_cache, "Do not read or write the cache of compiled kernels");
  set.value("-o,--output", options.output, "DIR", "Write the cubins and their C++ text to this folder");
  declare_format(set, options.format);
  set.flag("-v,--verbose", options.verbose, "Print all knobs of candidates");
  set.flag("-q,--quiet", options.quiet, "No progress");
}

}  // namespace

Command compile_command() {
  return {.name = "compile",
          .summary = "Compile kernels for an architecture; needs no GPU",
          .examples =
              "  moetune compile --model qwen3-30b-a3b --arch sm_80,sm_90a\n"
              "  moetune compile --model qwen3-30b-a3b --variant mma --space quick --arch sm_90a -o cubins\n"
              "  moetune compile --model qwen3-30b-a3b --show-unit",
          .declare = with_options<CompileOptions, declare_compile, run_compile>};
}

}  // namespace moetune
