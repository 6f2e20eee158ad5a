// What moetune knows of a server that reads tuned files: one record each, in a file of its name. And what such files
// have in common: formats, rows, names, the look-up. Not which winners become rows: serving.h.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workload/shape.h"

namespace moetune {

/// What is multiplied, as far as servers tell formats apart.
struct ServingFormat {
  std::string element = "bf16";  // of W, as --dtype has it
  std::string word = "bf16";     // as pack_triton.py spells the format: "fp8-block"
  ScaleKind scales = ScaleKind::none;
  int64_t x_bytes = 2, w_bytes = 2;  // of an element in shared memory; 0: W is unpacked in registers
  int64_t top_k = 0;                 // of groups, where the server's choice of a kernel depends on it
  bool blocks() const { return scales == ScaleKind::block; }
  bool groups() const { return group_columns(scales) > 0; }
  bool quantised_x() const { return x_bytes == 1; }
};
/// The only place that reads a layer's number format.
ServingFormat serving_format(const Layer& layer);

/// Knobs of the fused Triton kernel that servers run for an MoE layer. A block_n of 0: the server chooses all but
/// block_m and group_m when it launches.
struct ServingRow {
  int64_t block_m = 0, block_n = 0, block_k = 0;
  int64_t group_m = 1;               // m tiles walked together
  int64_t warps = 4, stages = 3;     // Triton's own defaults
  std::optional<bool> use_tma = {};  // in a file of the down projection only
  bool operator==(const ServingRow&) const = default;
};

inline constexpr const char *kBlockM = "BLOCK_SIZE_M", *kBlockN = "BLOCK_SIZE_N", *kBlockK = "BLOCK_SIZE_K",
                            *kGroupM = "GROUP_SIZE_M", *kWarps = "num_warps", *kStages = "num_stages";
inline constexpr std::pair<const char*, int64_t ServingRow::*> kRowKnobs[] = {
    {kBlockM, &ServingRow::block_m}, {kBlockN, &ServingRow::block_n}, {kBlockK, &ServingRow::block_k},
    {kGroupM, &ServingRow::group_m}, {kWarps, &ServingRow::warps},    {kStages, &ServingRow::stages}};

/// Token count -> row, in the order of the file.
using ServingRows = std::vector<std::pair<int64_t, ServingRow>>;

/// The rows of up and down for one token count. They are equal where a server has one file for both.
struct RowPair {
  ServingRow first, second;
  bool operator==(const RowPair&) const = default;
};

/// The word of a format in file names; empty: the part is left out.
struct FormatName {
  std::string_view element, dtype;
};

/// A width of experts that a server pads, in models whose names begin so.
struct Padding {
  std::string_view model;
  int64_t width, padded;
};

struct Server {
  std::string_view word, title;  // "vllm", as options have it; "vLLM"
  std::string_view description;  // of its files
  std::string_view release;      // whose rules these are
  std::string_view triton;       // that this release's torch requires

  // Where it looks for files.
  std::string_view variable;            // of the environment: names a folder
  bool variable_hides_bundled = false;  // that folder replaces its own files, for every layer
  bool triton_folders = false;          // files lie in configs/triton_X_Y_Z of a folder
  std::span<const std::string_view>
      bundled;  // folders of its bundled files inside its package, the newest layout first
  std::string_view command, groups_arguments;  // that serves a model; what it needs for 4 bits

  // Names and texts of files.
  std::span<const FormatName> formats;  // that it has files for
  std::string_view block_shape;         // in the names of formats with scales of 128x128 blocks
  bool names_channels = false;          // scales of rows of X and W are in the name
  bool counts_bytes = false;            // the width of 4-bit experts is that of a row of W in bytes
  bool down_files = false;              // a second file for down, with up's BLOCK_SIZE_M; else both GEMMs have one row
  std::string (*device_part)(std::string device) = nullptr;
  std::span<const Padding> paddings = {};

  // What it runs.
  ServingRow (*default_row)(int64_t tokens, int64_t experts, const ServingFormat& format) = nullptr;
  int64_t rows_of_other_kernel = 0;     // of 4 bits, up to so many rows an expert run another kernel than Triton's
  bool slot_blocks = false;             // few tokens run a kernel that takes each slot for a block
  bool splits_blocks = false;           // it makes smaller blocks of scales where 128 does not divide a width
  bool fuses_shared_experts = false;    // into the routed ones
  std::span<const int64_t> fp8_depths;  // BLOCK_SIZE_K that its own files have for fp8
};

extern const Server kVllm, kSglang;

/// All servers: each is a word of --for and of export's --format.
std::span<const Server* const> servers();
std::vector<std::string> server_words();
const Server& find_server(std::string_view word);  // Exit::request with the nearest

/// Its name of the format; null where it has no files for it.
const FormatName* find_format_name(const Server& server, const ServingFormat& format);
/// Exit::request where it has no files for the format.
const FormatName& format_name(const Server& server, const ServingFormat& format);

/// Token counts that the servers' own tuners fill.
const std::vector<int64_t>& serving_token_counts();

/// What the server runs for `tokens` where it has no file; `experts` are those of one rank.
ServingRow default_row(const Server& server, int64_t tokens, int64_t experts, const ServingFormat& format = {});

/// Whether the server runs another kernel than Triton's, which takes only the BLOCK_SIZE_M of the row that it finds.
bool runs_other_kernel(const Server& server, int64_t tokens, int64_t experts, const ServingFormat& format);

/// The file name that the server looks for. `intermediate` is one rank's, after the SwiGLU halving; `down` is the
/// second file. Exit::request for a format that it has no files for, and for a device name that no file can have.
std::string serving_file_name(const Server& server, int64_t experts, int64_t intermediate, const std::string& device,
                              const ServingFormat& format, bool down);

/// The width that the server gives the experts of a model in place of `intermediate`.
int64_t padded_width(const Server& server, std::string_view model, int64_t intermediate);

/// "configs/triton_3_6_0/", what stands before the names of its files in a folder; empty where nothing does.
std::string file_prefix(const Server& server, std::string_view triton);

/// The row that a server takes: that of the nearest key, the first of equally near ones.
const ServingRow& nearest_row(const ServingRows& rows, int64_t tokens);

/// A server's file, in its order. Exit::request, with the place, for one that it would not read.
ServingRows read_serving(const std::filesystem::path& path);
ServingRows parse_serving(std::string_view text, const std::string& where);

/// Indent 4 and a newline at the end, as the servers write them. The kernel of groups needs a SPLIT_K in some files.
std::string serving_text(const ServingRows& rows, bool split_k = false);

/// Where a server looks for files: folders in its order, or files.
struct LookUp {
  std::vector<std::filesystem::path> places = {};
  std::filesystem::path bundled = {};  // the folder of its bundled files; empty where it was not found
  bool known = false;                  // else the server may have files that were not found
};

/// Of an installed server, whose kernel is in the file `kernel` and which runs that Triton. `variable` is the value of
/// server.variable; empty where it is not set.
LookUp look_up(const Server& server, const std::filesystem::path& kernel, std::string_view triton,
               const std::filesystem::path& variable);

/// Of files that people name: files, and folders with all folders below, in the server's order.
LookUp look_up_below(const Server& server, const std::vector<std::filesystem::path>& bases, std::string_view triton);

/// A layer of one rank, as a server looks it up.
struct ServedFile {
  const Server* server = nullptr;
  int64_t experts = 0;       // of the rank
  int64_t intermediate = 0;  // of the rank, after the SwiGLU halving, before padding
  ServingFormat format = {};
  std::string name = {}, down_name = {};                // of its files; no down_name where there is one file
  ServingRows rows = {}, down_rows = {};                // of those that the server has; empty where it has none
  std::filesystem::path source = {}, down_source = {};  // where those were found

  /// What the server runs: the row of the nearest key, else its default. A BLOCK_SIZE_K above a block of scales, which
  /// vLLM clamps and SGLang multiplies wrongly, is cut to the block.
  RowPair own(int64_t tokens) const;
};

/// With its names. Errors as of serving_file_name.
ServedFile served_file(const Server& server, const Layer& layer, int64_t intermediate, const std::string& device);
/// Reads the rows that the server would find.
void find_rows(ServedFile& file, const LookUp& places);

/// Why moetune cannot tune this file for its server; empty where it can.
std::string obstacle(const ServedFile& file);

}  // namespace moetune
