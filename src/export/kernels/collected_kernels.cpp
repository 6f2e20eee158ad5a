// Collects, compiles and lays out the kernels of an export.
#include "export/kernels/collected_kernels.h"

#include <fmt/format.h>

#include "backend/cuda/compile/compiler.h"
#include "backend/cuda/verify/service.h"
#include "base/embedded.h"
#include "base/group.h"
#include "base/text/units.h"
#include "export/kernels/runtime_files.h"
#include "runtime/manifest.h"
#include "variant/space/space.h"
#include "variant/unit.h"
#include "workload/product/passes.h"

namespace moetune {
namespace {

std::string of_pack(const Candidate& candidate) {
  return fmt::format("its kernel is in the folder of the pack {}", candidate.variant->name);
}

class Collector {
 public:
  Collector(const TunedTable& table, const std::vector<std::string>& archs, const Catalog& catalog)
      : table_(table), usual_(load_space("quick", catalog)) {
    targets_.push_back(table.device);
    for (const std::string& word : archs) {
      const DeviceInfo device = device_of_arch(word);
      if (arch(device) != arch(table.device)) targets_.push_back(device);
    }
    collected_.targets = mapped(targets_, arch);
    for (const Entry& entry : table.entries) add(entry);
    for (const RobustChoice& choice : table.choices) add(choice);
  }
  CollectedKernels collected() && { return std::move(collected_); }

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
      if (own && *candidate == entry.candidate) collected_.codes[name] = entry.code;
      collected_.exported.cells.push_back(
          {.cell = entry.cell,
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
    collected_.exported.ranges.push_back({.shape = choice.shape(),
                                          .tokens = choice.tokens,
                                          .arch = arch(table_.device),
                                          .kernel = kernel(chosen, choice.shape(), table_.device),
                                          .worst_regret = worst_regret(choice, choice.chosen)});
  }

  void left_out(const std::string& what, const std::string& reason) {
    collected_.notes.push_back(fmt::format("{} is left out: {}", what, reason));
  }

  void note_addressing(const std::string& what, const Candidate& launched, const Candidate& winner) {
    if (launched == winner) return;
    collected_.notes.push_back(fmt::format(
        "{} gets its winner with addressing=base, which was not timed: libmoetune makes no arrays of pointers", what));
  }

  // The default of a device that a table's winner cannot run on, for this reason.
  std::optional<Candidate> default_of(const Cell& cell, const DeviceInfo& device, const std::string& reason) {
    const Candidate candidate = default_candidate(usual_, make_problem(cell), device);
    if (cannot_run(candidate, cell.shape, device)) {
      left_out(fmt::format("{} for {}", id(cell), arch(device)), reason);
      return std::nullopt;
    }
    collected_.notes.push_back(fmt::format("{} for {} gets its default, {}: the winner cannot run there", id(cell),
                                           arch(device), text(candidate)));
    return candidate;
  }

  std::string kernel(const Candidate& candidate, const Shape& shape, const DeviceInfo& device) {
    const Variant& variant = *candidate.variant;
    std::string name = kernel_name(candidate, shape);
    std::set<std::string>& archs = collected_.archs[name];
    if (archs.empty())
      collected_.exported.kernels.push_back({.name = name,
                                             .shape = shape,
                                             .candidate = candidate,
                                             .plan = variant.plan(candidate, shape),
                                             .unit = variant.unit(candidate, shape)});
    archs.insert(arch(device));
    return name;
  }

  const TunedTable& table_;
  SearchSpace usual_;
  std::vector<DeviceInfo> targets_;
  CollectedKernels collected_;
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

// Whether the table's times are those of other machine code than what was compiled.
bool is_of_other_kernels(const TunedTable& table, const CollectedKernels& collection) {
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

}  // namespace

CollectedKernels collect_kernels(const TunedTable& table, const std::vector<std::string>& archs,
                                 const Catalog& catalog) {
  return Collector(table, archs, catalog).collected();
}

void compile_kernels(CollectedKernels& collection, const TunedTable& table, bool cache) {
  KernelExport& exported = collection.exported;
  std::set<Dtype> finished;
  std::vector<Format> reordered;
  for (const ExportedKernel& kernel : exported.kernels)
    if (const Product p = product_of(kernel.shape); takes_another_pass(p)) finished.insert(p.d.type.dtype);
  for (const ExportedKernel& kernel : exported.kernels)
    if (const Format& format = kernel.shape.layer.format; format.w.reordered && !contains(reordered, format))
      reordered.push_back(format);
  for (const std::string& target : collection.targets) {
    std::vector<std::string> units = {route_unit()};
    for (const Dtype dtype : finished) units.push_back(finish_unit(dtype));
    for (const Format& format : reordered) units.push_back(reorder_unit(format.w));
    std::vector<ExportedKernel*> kernels;
    for (ExportedKernel& kernel : exported.kernels)
      if (collection.archs[kernel.name].contains(target)) kernels.push_back(&kernel), units.push_back(kernel.unit);
    std::vector<CompiledUnit> compiled = compiled_for(target, units, cache);
    auto next = compiled.begin();
    exported.services.route.push_back(file_of("route", target, std::move(*next++)));
    for (const Dtype dtype : finished)
      exported.services.finish.emplace_back(dtype,
                                            file_of(fmt::format("finish-{}", name(dtype)), target, std::move(*next++)));
    for (const Format& format : reordered)
      exported.services.reorder.emplace_back(
          format, file_of(fmt::format("reorder-{}", format.word), target, std::move(*next++)));
    for (ExportedKernel* kernel : kernels) kernel->cubins.push_back(file_of(kernel->name, target, std::move(*next++)));
  }
  exported.of_other_kernels = is_of_other_kernels(table, collection);
}

std::vector<std::pair<std::string, std::string>> kernel_files(KernelExport& exported, const TunedTable& table) {
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
  for (auto& [format, cubin] : exported.services.reorder) add(cubin);
  for (const EmbeddedFile& file : embedded_files())
    if (file.path.starts_with("kernels/")) files.emplace_back(file.path, file.text);
  for (const auto& [name, text] : runtime_files())
    files.emplace_back(name, name == "README.md" ? readme(text, exported, table) : std::string(text));
  return files;
}

}  // namespace moetune
