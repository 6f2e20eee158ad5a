// Packs on disk, and their files.
#include "variant/pack/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/hash.h"
#include "base/system/file.h"
#include "runtime/launch.h"
#include "runtime/manifest.h"

namespace moetune {
namespace {

constexpr const char *kManifest = "pack.json", *kExport = "manifest.json";
constexpr size_t kHashDigits = 12;

int number_of(const std::string& arch) { return std::stoi(arch.substr(3)); }

// "sm_90a" runs on compute capability 9.0 alone, a cubin for "sm_80" on 8.0 and newer 8.x, PTX for it on everything
// newer.
bool runs_on(const std::string& arch, bool ptx, int capability) {
  return closeness(arch, capability) > 0 || (ptx && arch.back() != 'a' && number_of(arch) <= capability);
}

std::string short_hash(const std::string& text) { return Hash().add(text).hex().substr(0, kHashDigits); }

// The pack of a manifest, whose files are there.
Pack whole_pack(const JsonAt& json, const std::filesystem::path& folder) {
  Pack pack = pack_from_json(json);
  pack.folder = folder;
  for (const auto& [name, file] : pack.files) read_pack_file(pack, name);
  return pack;
}

// Packs have one launch, and no gradients of gates: what they compute doesn't tell the projection.
bool fits_no_pack(const JsonAt& kernel) {
  const auto reads_h = [](const Json& operand) { return operand["name"] == "h" && operand["access"] == "read"; };
  return kernel["launches"].value().size() > 1 || std::ranges::any_of(kernel["operands"].value(), reads_h);
}

// Packs of an export's kernels. The names of those that are left out are added to `left_out`.
std::vector<Pack> exported_packs(const std::filesystem::path& folder, std::vector<std::string>& left_out) {
  const Json manifest = read_manifest(folder);
  const JsonAt root(manifest, (folder / kExport).string());
  require_manifest(root);
  std::vector<Pack> packs;
  each(root["kernels"], [&](const JsonAt& kernel) {
    if (fits_no_pack(kernel)) return left_out.push_back(kernel["name"].string());
    const Json json = pack_of_exported(kernel, root["files"]);
    Pack& pack = packs.emplace_back(whole_pack(JsonAt(json, kernel.place()), folder));
    pack.hash = short_hash(json.dump());
    each(root["cells"], [&](const JsonAt& cell) {
      if (cell["kernel"].string() == kernel["name"].string()) pack.cells.push_back(cell["id"].string());
    });
  });
  return packs;
}

bool has_manifest(const std::filesystem::path& folder) {
  return is_there(folder / kManifest) || is_there(folder / kExport);
}

// The folder, or its subfolders, in the order of their names.
std::vector<std::filesystem::path> pack_folders(const std::filesystem::path& folder) {
  if (has_manifest(folder)) return {folder};
  std::vector<std::filesystem::path> inside;
  std::error_code error;
  for (const auto& one : std::filesystem::directory_iterator(folder, error))
    if (has_manifest(one.path())) inside.push_back(one.path());
  std::ranges::sort(inside);
  return inside;
}

}  // namespace

bool holds_packs(const std::filesystem::path& folder) { return !pack_folders(folder).empty(); }

std::vector<Pack> load_packs(const std::filesystem::path& folder, std::vector<std::string>& left_out) {
  std::vector<Pack> packs;
  for (const std::filesystem::path& one : pack_folders(folder)) {
    if (is_there(one / kManifest))
      packs.push_back(load_pack(one));
    else
      std::ranges::move(exported_packs(one, left_out), std::back_inserter(packs));
  }
  if (packs.empty() && !left_out.empty())
    throw request_error(
        fmt::format("--pack: {}: all its kernels run a second pass: {}", folder.string(), fmt::join(left_out, ", ")),
        "export a table that has other winners too");
  if (packs.empty()) packs.push_back(load_pack(folder));  // which says what is missing
  return packs;
}

Pack load_pack(const std::filesystem::path& folder) {
  if (!is_folder(folder))
    throw request_error(fmt::format("--pack: {} is not a folder", folder.string()),
                        "name a folder that contains a pack.json");
  const std::filesystem::path path = folder / kManifest;
  const std::string text = read_text(path);
  const Json json = parse_json(text, path.string());
  Pack pack = whole_pack(JsonAt(json, path.string()), folder);
  pack.hash = short_hash(text);
  return pack;
}

void require_files_of_pack(const JsonAt& json, const std::filesystem::path& manifest) {
  whole_pack(json, manifest.parent_path());
}

std::string read_pack_file(const Pack& pack, const std::string& name) {
  const PackFile& file = pack.files.at(name);
  const std::filesystem::path path = pack.folder / name;
  std::string bytes = read_text(path);
  const auto fail = [&](const std::string& what) {
    return request_error(fmt::format("{}: {}", path.string(), what),
                         "the file was changed or cut short after the pack was made: make the pack again");
  };
  if (std::ssize(bytes) != file.bytes)
    throw fail(fmt::format("has {} bytes, but {} says {}", bytes.size(), kManifest, file.bytes));
  if (Sha256::hex(bytes) != file.sha256) throw fail(fmt::format("its SHA-256 differs from the one in {}", kManifest));
  return bytes;
}

const std::string* file_for(const Pack& pack, const std::map<std::string, std::string>& files, int capability) {
  const std::string* best = nullptr;
  std::tuple<bool, int, bool> rank_of_best;
  for (const auto& [arch, name] : files) {
    const bool ptx = name.ends_with(".ptx");
    const std::tuple rank(!ptx, number_of(arch), arch.ends_with('a'));
    if (!pack.files.contains(name) || !runs_on(arch, ptx, capability) || (best && rank < rank_of_best)) continue;
    best = &name, rank_of_best = rank;
  }
  return best;
}

}  // namespace moetune
