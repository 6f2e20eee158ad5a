// Checks of a manifest and of the files beside it.
#include "runtime/manifest.h"

#include <fmt/format.h>

#include <set>

#include "base/hash.h"
#include "base/system/file.h"
#include "base/text/units.h"
#include "runtime/launch.h"

namespace moetune {
namespace {

constexpr const char* kChanged = "was changed or cut short: manifest.sha256 has another digest";

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

std::string digest_line(std::string_view name, std::string_view text) {
  return fmt::format("{}  {}\n", Sha256::hex(text), name);
}

void require_digests(const std::filesystem::path& folder) {
  const std::filesystem::path list = folder / "manifest.sha256";
  const std::vector<std::string> lines = split(read_text(list), '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const size_t blank = std::min(lines[i].find(' '), lines[i].size());
    const std::filesystem::path name = lines[i].substr(std::min(blank + 2, lines[i].size()));
    if (name.empty() || name.is_absolute() || contains(name, ".."))
      throw request_error("expected the digest of a file in this folder and its name").at(Where(list, i + 1));
    if (lines[i] + '\n' != digest_line(name.string(), read_text(folder / name)))
      throw request_error(kChanged, "export the table again").at(folder / name);
  }
}

Json read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "manifest.json";
  const std::string text = read_text(path);
  if (read_text(folder / "manifest.sha256").substr(0, 64) != Sha256::hex(text)) throw request_error(kChanged).at(path);
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
  const LaunchNames of_reorder{
      .sizes = any_sizes(),
      .pointers = {{"reordered", ""}, {"w", ""}, {"w_scales", ""}, {"w_zeros", ""}, {"refused", ""}}};
  if (manifest.has("reorder"))
    for (const auto& [format, launch] : manifest["reorder"].value().items())
      require_launch(manifest["reorder"][format], of_reorder, files);
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
    throw request_error("is not the file that the manifest names: it was changed or cut short").at(folder / name);
  return bytes;
}

}  // namespace moetune
