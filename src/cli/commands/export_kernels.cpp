// Which kernels an export holds, and compiling them.
#include "cli/commands/export_kernels.h"

#include <map>
#include <set>

#include "base/embedded.h"
#include "base/system/lock.h"
#include "export/kernels/kernel_folder.h"
#include "export/kernels/kernel_manifest.h"
#include "export/kernels/runtime_files.h"
#include "runtime/manifest.h"
#include "variant/variant.h"
#include "workload/product/passes.h"
#ifdef MOETUNE_HAS_CUDA
#include "backend/cuda/compile/compiler.h"
#include "backend/cuda/verify/service.h"
#endif

namespace moetune {
namespace {

namespace fs = std::filesystem;

#ifdef MOETUNE_HAS_CUDA

std::string of_pack(const Candidate& candidate) {
  return fmt::format("its kernel is in the folder of the pack {}", candidate.variant->name);
}

// What is collected before anything is compiled.
class Collection {
 public:
  Collection(const TunedTable& table, const KernelExportOptions& options, const Catalog& catalog)
      : table_(table), usual_(usual_space(catalog)) {
    targets_.push_back(table.device);
    for (const std::string& word : options.archs) {
      const DeviceInfo device = device_of_arch(word);
      if (arch(device) != arch(table.device)) targets_.push_back(device);
    }
    for (const Entry& entry : table.entries) add(entry);
    for (const RobustChoice& choice : table.choices) add(choice);
  }

  KernelExport exported;
  std::map<std::string, std::set<std::string>> archs;  // by the kernel's name
  std::map<std::string, std::string> codes;            // of the kernels that were timed, as Entry has them
  std::vector<std::string> notes;

  std::vector<std::string> target_names() const { return mapped(targets_, arch); }

 private:
  void add(const Entry& entry) {
    if (!entry.skipped.empty()) return left_out(id(entry.cell), entry.skipped);
    if (!entry.candidate.foreign.empty()) return left_out(id(entry.cell), of_pack(entry.candidate));
    const Candidate winner = launchable(entry.candidate);
    for (const DeviceInfo& device : targets_) {
      const bool own = &device == &targets_.front();
      std::optional<Candidate> candidate = winner;
      if (const auto reason = cannot_run(*candidate, entry.cell.shape, device)) {
        if (own) return left_out(id(entry.cell), *reason);
        candidate = default_of(entry.cell, device, *reason);
        if (!candidate) continue;
      }
      if (own) note_addressing(id(entry.cell), winner, entry.candidate);
      const std::string name = kernel(*candidate, entry.cell.shape, device);
      if (own && *candidate == entry.candidate) codes[name] = entry.code;
      exported.cells.push_back({.cell = entry.cell,
                                .skew = entry.figures.max_over_mean,
                                .arch = arch(device),
                                .kernel = name,
                                .seconds = own && *candidate == entry.candidate ? entry.measurement.time.value : 0});
    }
  }

  void add(const RobustChoice& choice) {
    const std::string what = fmt::format("the choice for {} tokens of {}", text(choice.tokens), title(choice.shape()));
    if (!choice.candidate().foreign.empty()) return left_out(what, of_pack(choice.candidate()));
    const Candidate chosen = launchable(choice.candidate());
    if (const auto reason = cannot_run(chosen, choice.shape(), table_.device)) return left_out(what, *reason);
    note_addressing(what, chosen, choice.candidate());
    exported.ranges.push_back({.shape = choice.shape(),
                               .tokens = choice.tokens,
                               .arch = arch(table_.device),
                               .kernel = kernel(chosen, choice.shape(), table_.device),
                               .worst_regret = worst_regret(choice, choice.chosen)});
  }

  void left_out(const std::string& what, const std::string& reason) {
    notes.push_back(fmt::format("{} is left out: {}", what, reason));
  }

  void note_addressing(const std::string& what, const Candidate& launched, const Candidate& winner) {
    if (launched == winner) return;
    notes.push_back(fmt::format(
        "{} gets its winner with addressing=base, which was not timed: libmoetune makes no arrays of pointers", what));
  }

  // The default of a device that a table's winner cannot run on, for this reason.
  std::optional<Candidate> default_of(const Cell& cell, const DeviceInfo& device, const std::string& reason) {
    const Candidate candidate = default_candidate(usual_, make_problem(cell), device);
    if (cannot_run(candidate, cell.shape, device)) {
      left_out(fmt::format("{} for {}", id(cell), arch(device)), reason);
      return std::nullopt;
    }
    notes.push_back(fmt::format("{} for {} gets its default, {}: the winner cannot run there", id(cell), arch(device),
                                text(candidate)));
    return candidate;
  }

  std::string kernel(const Candidate& candidate, const Shape& shape, const DeviceInfo& device) {
    const Variant& variant = *candidate.variant;
    std::string name = kernel_name(candidate, shape);
    if (archs[name].empty())
      exported.kernels.push_back({.name = name,
                                  .shape = shape,
                                  .candidate = candidate,
                                  .plan = variant.plan(candidate, shape),
                                  .unit = variant.unit(candidate, shape)});
    archs[name].insert(arch(device));
    return name;
  }

  const TunedTable& table_;
  SearchSpace usual_;
  std::vector<DeviceInfo> targets_;
};

std::vector<CompiledUnit> compiled_for(const std::string& target, const std::vector<std::string>& units, bool cache) {
  std::vector<CompiledUnit> compiled =
      compile_units(units, {.arch = target, .sources = kernel_sources(), .cache = cache});
  for (const CompiledUnit& unit : compiled)
    if (unit.cubin.empty()) throw Error(Exit::no, fmt::format("a kernel does not compile: {}", unit.result.reason));
  return compiled;
}

CubinFile file_of(const std::string& stem, const std::string& target, CompiledUnit unit) {
  return {.arch = target,
          .name = cubin_name(stem, target),
          .bytes = std::move(unit.cubin),
          .registers = unit.result.registers};
}

void compile_all(Collection& collection, bool cache) {
  KernelExport& exported = collection.exported;
  std::set<Dtype> finished;
  for (const ExportedKernel& kernel : exported.kernels)
    if (const Product p = product_of(kernel.shape); takes_another_pass(p)) finished.insert(p.d.type.dtype);
  for (const std::string& target : collection.target_names()) {
    std::vector<std::string> units = {route_unit()};
    for (const Dtype dtype : finished) units.push_back(finish_unit(dtype));
    std::vector<ExportedKernel*> kernels;
    for (ExportedKernel& kernel : exported.kernels)
      if (collection.archs[kernel.name].contains(target)) kernels.push_back(&kernel), units.push_back(kernel.unit);
    std::vector<CompiledUnit> compiled = compiled_for(target, units, cache);
    auto next = compiled.begin();
    exported.services.route.push_back(file_of("route", target, std::move(*next++)));
    for (const Dtype dtype : finished)
      exported.services.finish.emplace_back(dtype,
                                            file_of(fmt::format("finish-{}", name(dtype)), target, std::move(*next++)));
    for (ExportedKernel* kernel : kernels) kernel->cubins.push_back(file_of(kernel->name, target, std::move(*next++)));
  }
}

// The page about launching, with what is of this export.
std::string readme(std::string_view page, const KernelExport& exported, const TunedTable& table) {
  return fmt::format(
      "# {} for {}\n\n"
      "Tuned by moetune. `manifest.json` says how each kernel is launched and which sizes it is for.\n"
      "`sha256sum -c manifest.sha256` and `moetune validate manifest.json` check that the files are those that were\n"
      "written. Every `.cu` is the text of a kernel. To compile it again, give it to NVRTC (nvcc has no\n"
      "`-default-device`) with these options, and read the cubin:\n\n"
      "```\n{} -arch={} -I kernels\n```\n\n{}",
      counted(exported.kernels.size(), "grouped-GEMM kernel"), table.device.name, nvrtc_options(), arch(table.device),
      page);
}

// The files of the folder by their names there.
std::vector<std::pair<std::string, std::string>> files_of(KernelExport& exported, const TunedTable& table) {
  const std::string manifest = pretty_json(kernel_manifest(exported, table));
  std::vector<std::pair<std::string, std::string>> files = {{"manifest.json", manifest},
                                                            {"manifest.sha256", digests(manifest)}};
  const auto add = [&](CubinFile& cubin) { files.emplace_back(cubin.name, std::move(cubin.bytes)); };
  for (ExportedKernel& kernel : exported.kernels) {
    files.emplace_back(kernel.name + ".cu", kernel.unit);
    std::ranges::for_each(kernel.cubins, add);
  }
  std::ranges::for_each(exported.services.route, add);
  for (auto& [dtype, cubin] : exported.services.finish) add(cubin);
  for (const EmbeddedFile& file : embedded_files())
    if (file.path.starts_with("kernels/")) files.emplace_back(file.path, file.text);
  for (const auto& [name, text] : runtime_files())
    files.emplace_back(name, name == "README.md" ? readme(text, exported, table) : std::string(text));
  return files;
}

// Whether the table's times are those of other machine code than what was compiled.
bool is_of_other_kernels(const TunedTable& table, const Collection& collection) {
  bool known = true;
  for (const ExportedKernel& kernel : collection.exported.kernels) {
    const auto code = collection.codes.find(kernel.name);
    if (code == collection.codes.end()) continue;
    if (code->second.empty())
      known = false;
    else if (code->second != code_of(kernel.cubins.front().bytes))
      return true;
  }
  if (known) return false;
  const Json& identity = table.environment.contains("identity") ? table.environment["identity"] : Json();
  return identity.is_object() && identity.contains("kernels") && identity["kernels"] != hash(kernel_sources());
}

#endif

}  // namespace

#ifdef MOETUNE_HAS_CUDA
Exit export_kernels(const TunedTable& table, const KernelExportOptions& options, const Catalog& catalog,
                    const Terminal& terminal) {
  if (options.output.empty() || options.output == "-")
    throw request_error("an export of kernels is a folder", "give one with -o DIR");
  if (table.device.kind != DeviceKind::cuda)
    throw Error(Exit::no, fmt::format("{}: a table of {} has no kernels to export", options.table, table.device.name));
  Collection collection(table, options, catalog);
  for (const std::string& sentence : collection.notes) note(terminal, sentence);
  for (const std::string& target : collection.target_names())
    if (!contains(collection.exported.cells, target, &ServedCell::arch))
      throw Error(Exit::no, fmt::format("{}: no entry of the table can be exported for {}", options.table, target));
  if (table.choices.empty())
    note(terminal,
         "without a hint of skew, programs get the kernel for the most skewed rows: the table has no robust choices, "
         "which tune --choose makes");
  const fs::path folder = require_kernel_folder(options.output);
  if (!is_folder(folder)) require_writable(folder);
  const OutputLock ours(folder);
  compile_all(collection, options.cache);
  collection.exported.of_other_kernels = is_of_other_kernels(table, collection);
  if (collection.exported.of_other_kernels)
    note(terminal, "the times of the table are those of other kernels than this moetune has");
  write_kernel_folder(folder, files_of(collection.exported, table));
  std::set<std::string> cells;
  for (const ServedCell& served : collection.exported.cells) cells.insert(id(served.cell));
  tell(fmt::format("wrote {} of {} to {}\n", counted(collection.exported.kernels.size(), "kernel"),
                   counted(cells.size(), "cell"), options.output));
  return Exit::yes;
}
#else
Exit export_kernels(const TunedTable&, const KernelExportOptions&, const Catalog&, const Terminal&) {
  throw machine_error("this build of moetune has no CUDA toolkit, so it cannot compile kernels",
                      "build moetune on a machine with the toolkit");
}
#endif

}  // namespace moetune
