// Checks a manifest of exported kernels: what loaders will ask of it, without launching.
#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "base/system/file.h"
#include "export/kernels/kernel_manifest.h"
#include "runtime/moetune/sha256.h"
#include "variant/pack/launch_json.h"
#include "workload/shape.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

std::string require_kernel(const JsonAt& kernel, const JsonAt& files, const Catalog& catalog) {
  for (const char* rows : {"x_rows", "w_rows", "y_rows"}) require_formula(kernel["sizes"][rows], any_sizes());
  candidate_from_json(kernel["candidate"], catalog);
  LaunchNames names{.sizes = any_sizes(), .pointers = {}};
  require_operands(kernel["operands"], names);
  require_buffers(kernel["buffers"], names);
  const JsonAt launches = kernel["launches"];
  if (launches[size_t{0}].has("fill")) launches.fail("expected a kernel first");
  each(launches, [&](const JsonAt& launch) { require_launch(launch, names, files); });
  return kernel["name"].string();
}

void require_served(const JsonAt& served, const std::set<std::string>& kernels) {
  if (!kernels.contains(served["kernel"].string()))
    served["kernel"].fail(fmt::format("no kernel is called '{}'", served["kernel"].string()));
}

}  // namespace

void require_kernel_manifest(const JsonAt& json, const Catalog& catalog) {
  require_schema(json, "kernels");
  const JsonAt files = json["files"];
  for (const char* ids : {"int32", "int64"})
    require_launch(json["route"][ids], {.sizes = any_sizes(), .pointers = {"m_sizes", "gather_indices", "topk_ids"}},
                   files);
  std::set<std::string> kernels;
  each(json["kernels"], [&](const JsonAt& kernel) { kernels.insert(require_kernel(kernel, files, catalog)); });
  each(json["cells"], [&](const JsonAt& cell) {
    require_served(cell, kernels);
    if (cell["tuned"].boolean()) cell["time_us"];
  });
  each(json["ranges"], [&](const JsonAt& range) {
    require_served(range, kernels);
    const int64_t from = range["tokens"]["from"].integer();
    if (range["tokens"].has("to")) range["tokens"]["to"].integer(from);
  });
}

void require_files_of_manifest(const JsonAt& json, const fs::path& manifest) {
  const fs::path folder = manifest.parent_path();
  if (read_text(folder / "manifest.sha256").substr(0, 64) != moetune_kernels::Sha256::hex(read_text(manifest)))
    json.fail("was changed or cut short: manifest.sha256 has another digest");
  const JsonAt files = json["files"];
  for (const auto& [name, value] : files.value().items()) {
    if (name.find_first_of("/\\") != std::string::npos) files[name].fail("a cubin lies beside the manifest");
    const std::string bytes = read_text(folder / name);
    if (static_cast<int64_t>(bytes.size()) != files[name]["bytes"].integer() ||
        moetune_kernels::Sha256::hex(bytes) != files[name]["sha256"].string())
      throw request_error(fmt::format("{}: is not the file that the manifest names: it was changed or cut short",
                                      (folder / name).string()));
  }
}

}  // namespace moetune
