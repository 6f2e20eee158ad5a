// What servers have in common: names and texts of files, the rows in them, and where they are looked up.
#include "export/serving/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdlib>

#include "base/error.h"
#include "base/json.h"
#include "base/system/file.h"
#include "base/text/text.h"
#include "base/text/units.h"
#include "workload/routing/routing.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlock = 128;  // rows, and columns, of W that one scale of a block covers

bool is_in_every_row(std::string_view knob) { return knob == kBlockM || knob == kGroupM; }

std::string triton_folder(std::string_view triton) { return "triton_" + replaced(triton, ".", {"_"}); }

// {3, 6, 0} of "configs/triton_3_6_0"; nothing for other folders.
std::vector<int64_t> version_of(const fs::path& folder) {
  std::vector<int64_t> numbers;
  const std::string name = folder.filename().string();
  if (!name.starts_with("triton_")) return numbers;
  for (const std::string& word : split(name, '_'))
    if (!word.empty() && word.size() < 10 && word.find_first_not_of("0123456789") == std::string::npos)
      numbers.push_back(std::stoll(word));
  return numbers;
}

// Folders in the server's order: its installed Triton's, then those of others, the newest first.
void sort_folders(const Server& server, std::string_view triton, std::vector<fs::path>& folders) {
  std::ranges::sort(folders);
  std::ranges::stable_sort(folders, std::ranges::greater(), [&](const fs::path& folder) {
    const std::vector<int64_t> version = version_of(folder);
    return server.triton_folders ? std::pair(folder.filename() == triton_folder(triton), version)
                                 : std::pair(version.empty(), std::vector<int64_t>());
  });
}

std::vector<fs::path> folders_in(const Server& server, const fs::path& configs, std::string_view triton) {
  if (!server.triton_folders) return {configs};
  std::vector<fs::path> folders;
  std::error_code error;
  for (const auto& one : fs::directory_iterator(configs, error))
    if (one.is_directory(error) && !version_of(one.path()).empty()) folders.push_back(one.path());
  sort_folders(server, triton, folders);
  return folders;
}

// The folder with the files that the package of this kernel brings; empty where it is not there.
fs::path bundled_folder(const Server& server, const fs::path& kernel, std::string_view triton) {
  const auto holds = [&](const fs::path& folder) {
    return is_folder(folder) && !folders_in(server, folder, triton).empty();
  };
  fs::path parent = kernel.parent_path();
  if (kernel.empty()) return {};
  if (holds(parent / "configs")) return parent / "configs";
  for (; parent.has_relative_path(); parent = parent.parent_path())
    for (const std::string_view folder : server.bundled)
      if (holds(parent / folder)) return parent / folder;
  return {};
}

ServingRows rows_of_place(const std::vector<fs::path>& places, const std::string& name, fs::path& source) {
  for (const fs::path& place : places) {
    const fs::path file = is_folder(place) ? place / name : place;
    if (file.filename() != name || !is_there(file)) continue;
    source = file;
    return read_serving(file);
  }
  return {};
}

}  // namespace

ServingFormat serving_format(const Layer& layer) {
  const Format& format = layer.format;
  const bool groups = group_columns(format.scales) > 0;
  return {.element = std::string(format.dtype),
          .word = multiplies_fp8(format) ? fmt::format("fp8-{}", name(format.scales)) : std::string(format.word),
          .scales = format.scales,
          .x_bytes = has_scales(format.x) ? 1 : 2,
          .w_bytes = groups                 ? 0
                     : is_quantised(format) ? 1
                                            : 2,
          .top_k = groups ? layer.top_k : 0};
}

std::span<const Server* const> servers() {
  static constexpr const Server* kServers[] = {&kVllm, &kSglang};
  return kServers;
}

std::vector<std::string> server_words() {
  return mapped(servers(), [](const Server* server) { return std::string(server->word); });
}

const Server& find_server(std::string_view word) { return *servers()[place_of_word("program", word, server_words())]; }

const FormatName* find_format_name(const Server& server, const ServingFormat& format) {
  const auto found = std::ranges::find(server.formats, format.element, &FormatName::element);
  return found == server.formats.end() ? nullptr : &*found;
}

const FormatName& format_name(const Server& server, const ServingFormat& format) {
  if (const FormatName* found = find_format_name(server, format)) return *found;
  throw request_error(fmt::format("{}'s kernel has no {}: it looks up no file for it", server.title, format.element),
                      fmt::format("it has {}", fmt::join(mapped(server.formats, &FormatName::element), ", ")));
}

const std::vector<int64_t>& serving_token_counts() {
  static const std::vector<int64_t> counts = {1,  2,   4,   8,   16,   24,   32,   48,   64,
                                              96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096};
  return counts;
}

bool runs_other_kernel(const Server& server, int64_t tokens, int64_t experts, const ServingFormat& format) {
  return format.groups() && tokens * format.top_k <= server.rows_of_other_kernel * experts;
}

ServingRow default_row(const Server& server, int64_t tokens, int64_t experts, const ServingFormat& format) {
  if (runs_other_kernel(server, tokens, experts, format))
    return {.block_m = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(tokens, 16))))};
  return server.default_row(tokens, experts, format);
}

std::string serving_file_name(const Server& server, int64_t experts, int64_t intermediate, const std::string& device,
                              const ServingFormat& format, bool down) {
  const std::string_view dtype = format_name(server, format).dtype;
  const std::string part = server.device_part(device);
  const auto is_safe = [](unsigned char c) {
    return std::isalnum(c) || std::string_view("-_.+()").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (part.empty() || !std::ranges::all_of(part, is_safe))
    throw request_error(fmt::format("the device name '{}' cannot be part of a file name", device));
  if (format.groups() && server.counts_bytes) intermediate /= 2;
  return fmt::format("E={},N={},device_name={}{}{}{}{}{}.json", experts, intermediate, part,
                     dtype.empty() ? "" : ",dtype=", dtype, format.blocks() ? server.block_shape : "",
                     server.names_channels && format.scales == ScaleKind::channel && format.quantised_x()
                         ? ",per_channel_quant=True"
                         : "",
                     down ? "_down" : "");
}

int64_t padded_width(const Server& server, std::string_view model, int64_t intermediate) {
  for (const Padding& one : server.paddings)
    if (model.starts_with(one.model) && one.width == intermediate) return one.padded;
  return intermediate;
}

std::string file_prefix(const Server& server, std::string_view triton) {
  return server.triton_folders ? fmt::format("configs/{}/", triton_folder(triton.empty() ? "X.Y.Z" : triton)) : "";
}

const ServingRow& nearest_row(const ServingRows& rows, int64_t tokens) {
  return std::ranges::min_element(rows, {}, [&](const auto& row) { return std::abs(row.first - tokens); })->second;
}

ServingRows read_serving(const fs::path& path) { return parse_serving(read_text(path), path.string()); }

ServingRows parse_serving(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where, Dialect::python);
  const JsonAt file(json, where);
  if (!json.is_object()) file.fail("expected an object");
  ServingRows rows;
  for (const auto& [key, value] : json.items()) {
    if (key == "triton_version") continue;
    const JsonAt at = file[key];
    ServingRow row;
    const bool whole = !at.has("SPLIT_K") || at.has(kBlockN);  // else a row that leaves the rest to the server
    for (const auto& [knob, member] : kRowKnobs)
      if (whole || is_in_every_row(knob)) row.*member = at[knob].integer(1, kMaxSide);
    if (at.has("USE_TMA")) row.use_tma = at["USE_TMA"].boolean();
    rows.emplace_back(parse_integer(key, at.where(), 1, kMaxRows), row);
  }
  if (rows.empty()) throw request_error(fmt::format("{}: has no rows", where));
  return rows;
}

std::string serving_text(const ServingRows& rows, bool split_k) {
  Json json = Json::object();
  for (const auto& [tokens, row] : rows) {
    Json& item = json[std::to_string(tokens)];
    for (const auto& [knob, value] : kRowKnobs)
      if (row.block_n != 0 || is_in_every_row(knob)) item[knob] = row.*value;
    if (split_k) item["SPLIT_K"] = 1;
    if (row.use_tma) item["USE_TMA"] = *row.use_tma;
  }
  return json.dump(4) + "\n";
}

LookUp look_up(const Server& server, const fs::path& kernel, std::string_view triton, const fs::path& variable) {
  const bool replaced = !variable.empty() && server.variable_hides_bundled;
  LookUp found;
  found.bundled = replaced ? variable / "configs" : bundled_folder(server, kernel, triton);
  if (!variable.empty() && !replaced) found.places.push_back(variable);
  if (!found.bundled.empty())
    for (const fs::path& folder : folders_in(server, found.bundled, triton)) found.places.push_back(folder);
  found.known = !found.bundled.empty();
  return found;
}

LookUp look_up_below(const Server& server, const std::vector<fs::path>& bases, std::string_view triton) {
  LookUp found{.known = true};
  for (const fs::path& base : bases) {
    std::vector<fs::path> places = {base};
    std::error_code error;
    if (is_folder(base))
      for (const auto& one :
           fs::recursive_directory_iterator(base, fs::directory_options::skip_permission_denied, error))
        if (one.is_directory(error)) places.push_back(one.path());
    sort_folders(server, triton, places);
    found.places.insert(found.places.end(), places.begin(), places.end());
  }
  return found;
}

RowPair ServedFile::own(int64_t tokens) const {
  const auto cut = [&](ServingRow row) {
    if (format.blocks()) row.block_k = std::min(row.block_k, kBlock);
    return row;
  };
  RowPair pair;
  pair.first = cut(rows.empty() ? default_row(*server, tokens, experts, format) : nearest_row(rows, tokens));
  if (pair.first.block_n == 0 && !runs_other_kernel(*server, tokens, experts, format))
    pair.first.block_n = 64, pair.first.block_k = 32;  // what it chooses at a launch
  pair.second = down_rows.empty() ? pair.first : cut(nearest_row(down_rows, tokens));
  if (server->down_files && down_rows.empty()) pair.second.use_tma = false;
  pair.second.block_m = pair.first.block_m;
  return pair;
}

ServedFile served_file(const Server& server, const Layer& layer, int64_t intermediate, const std::string& device) {
  ServedFile file{.server = &server,
                  .experts = layer.local_experts(),
                  .intermediate = intermediate,
                  .format = serving_format(layer)};
  const auto named = [&](bool down) {
    return serving_file_name(server, file.experts, padded_width(server, layer.model, intermediate), device, file.format,
                             down);
  };
  file.name = named(false);
  if (server.down_files) file.down_name = named(true);
  return file;
}

void find_rows(ServedFile& file, const LookUp& places) {
  file.rows = rows_of_place(places.places, file.name, file.source);
  if (!file.down_name.empty()) file.down_rows = rows_of_place(places.places, file.down_name, file.down_source);
}

std::string obstacle(const ServedFile& file) {
  if (!file.server->splits_blocks || !file.format.blocks() || file.intermediate % kBlock == 0) return "";
  return fmt::format("{} splits blocks of {} for experts of width {}, and moetune tunes whole ones", file.server->title,
                     kBlock, file.intermediate);
}

}  // namespace moetune
