// Checks of a manifest and of the files beside it.
#include "runtime/manifest.h"

#include <fmt/format.h>

#include <set>

#include "base/hash.h"
#include "base/system/file.h"
#include "runtime/launch.h"

namespace moetune {
namespace {

void require_kernel(const JsonAt& kernel, const JsonAt& files) {
  LaunchNames names{.sizes = any_sizes()};
  for (const char* rows : {"x_rows", "w_rows", "y_rows"}) evaluate(kernel["sizes"][rows], names.sizes);
  require_operands(kernel["operands"], names);
  require_buffers(kernel["buffers"], names);
  const JsonAt launches = kernel["launches"];
  if (launches[size_t{0}].has("fill")) launches.fail("expected a kernel first");
  each(launches, [&](const JsonAt& launch) { require_launch(launch, names, files); });
}

}  // namespace

std::string manifest_digest(std::string_view manifest) { return Sha256::hex(manifest) + "  manifest.json\n"; }

Json read_manifest(const std::filesystem::path& folder) {
  const std::string path = (folder / "manifest.json").string(), text = read_text(path);
  if (read_text(folder / "manifest.sha256").substr(0, 64) != Sha256::hex(text))
    throw request_error(path + ": was changed or cut short: manifest.sha256 has another digest");
  return parse_json(text, path);
}

void require_manifest(const JsonAt& manifest) {
  require_schema(manifest, "kernels");
  const JsonAt files = manifest["files"];
  const LaunchNames of_route{.sizes = any_sizes(),
                             .pointers = {{"m_sizes", ""}, {"gather_indices", ""}, {"topk_ids", ""}}};
  for (const char* ids : {"int32", "int64"}) require_launch(manifest["route"][ids], of_route, files);
  const LaunchNames of_choose{.sizes = any_sizes(),
                              .pointers = {{"topk_weights", ""}, {"topk_ids", ""}, {"logits", ""}, {"bias", ""}}};
  const LaunchNames of_sum{.sizes = any_sizes(), .pointers = {{"sum", ""}, {"y", ""}}};
  if (manifest.has("choose")) require_launch(manifest["choose"], of_choose, files);  // exports of before have neither
  if (manifest.has("sum"))
    for (const char* y : {"bf16", "fp16"}) require_launch(manifest["sum"][y], of_sum, files);
  std::set<std::string> kernels;
  each(manifest["kernels"], [&](const JsonAt& kernel) {
    require_kernel(kernel, files);
    kernels.insert(kernel["name"].string());
  });
  const auto require_served = [&](const JsonAt& served) {
    if (const std::string name = served["kernel"].string(); !kernels.contains(name))
      served["kernel"].fail(fmt::format("no kernel is called '{}'", name));
  };
  each(manifest["cells"], [&](const JsonAt& cell) {
    require_served(cell);
    if (cell["tuned"].boolean()) cell["time_us"];
  });
  each(manifest["ranges"], [&](const JsonAt& range) {
    require_served(range);
    if (range["tokens"].has("to")) range["tokens"]["to"].integer(range["tokens"]["from"].integer());
  });
}

std::string read_cubin(const std::filesystem::path& folder, const JsonAt& files, const std::string& name) {
  if (name.find_first_of("/\\") != std::string::npos) files[name].fail("a cubin lies beside the manifest");
  std::string bytes = read_text(folder / name);
  if (static_cast<int64_t>(bytes.size()) != files[name]["bytes"].integer() ||
      Sha256::hex(bytes) != files[name]["sha256"].string())
    throw request_error(fmt::format("{}: is not the file that the manifest names: it was changed or cut short",
                                    (folder / name).string()));
  return bytes;
}

}  // namespace moetune
