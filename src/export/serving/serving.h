// The tuned-configuration files of vLLM and SGLang: their rows, names and defaults, which entries of a table become
// which rows, one configuration for both projections of a layer, and what is known of the times of the servers' rows.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "export/exporter.h"
#include "record/journal/journal.h"
#include "record/table/table.h"

namespace moetune {

/// What multiplies, as the servers tell it apart.
struct ServingFormat {
  Format type = formats().front();  // bf16
  int64_t top_k = 0;  // of 4 bits, where vLLM's choice of a kernel depends on it
  bool operator==(const ServingFormat&) const = default;
};
ServingFormat serving_format(const Layer& layer);
inline bool has_groups(const ServingFormat& format) { return group_columns(format.type.scales) > 0; }

/// Knobs of the fused Triton kernel that both run for an MoE layer. A block_n of 0: the server chooses all but block_m
/// and group_m when it launches.
struct ServingRow {
  int64_t block_m = 0, block_n = 0, block_k = 0;
  int64_t group_m = 1;               // m tiles walked together
  int64_t warps = 4, stages = 3;     // Triton's own defaults
  std::optional<bool> use_tma = {};  // SGLang's file of the down projection only
  bool operator==(const ServingRow&) const = default;
};

/// Its knobs.
inline constexpr const char *kBlockM = "BLOCK_SIZE_M", *kBlockN = "BLOCK_SIZE_N", *kBlockK = "BLOCK_SIZE_K",
                            *kGroupM = "GROUP_SIZE_M", *kWarps = "num_warps", *kStages = "num_stages";
inline constexpr std::pair<const char*, int64_t ServingRow::*> kRowKnobs[] = {
    {kBlockM, &ServingRow::block_m}, {kBlockN, &ServingRow::block_n}, {kBlockK, &ServingRow::block_k},
    {kGroupM, &ServingRow::group_m}, {kWarps, &ServingRow::warps},    {kStages, &ServingRow::stages}};

/// Token count -> row, in the order of the file.
using ServingRows = std::vector<std::pair<int64_t, ServingRow>>;

/// The rows of one token count: up's, and those of down in SGLang's second file.
struct RowPair {
  ServingRow first, second;
  bool operator==(const RowPair&) const = default;
};

std::string_view name(Server server);

/// The row that a server takes: that of the nearest key, the first of equally near ones.
const ServingRow& nearest_row(const ServingRows& rows, int64_t tokens);

/// Token counts that their own tuners fill.
const std::vector<int64_t>& serving_token_counts();

/// What the server runs for `tokens` where it has no file; `experts` are those of one rank.
ServingRow default_row(Server server, int64_t tokens, int64_t experts, const ServingFormat& format = {});

/// Whether the server runs another kernel than Triton's: vLLM's moe_wna16 of 4 bits, up to six rows an expert, which
/// takes the blocks of the row that it finds.
bool runs_other_kernel(Server server, int64_t tokens, int64_t experts, const ServingFormat& format);

/// The file name that the server looks for. `intermediate` is one rank's, after the SwiGLU halving; `down` is SGLang's
/// second file. Exit::request for a device name that no file can have.
std::string serving_file_name(Server server, int64_t experts, int64_t intermediate, const std::string& device,
                              const ServingFormat& format, bool down);

/// The width that the server gives the experts of a model in place of `intermediate`.
int64_t padded_width(Server server, const std::string& model, int64_t intermediate);

/// The rows of a server's own file of that name, empty where none of `bases`, files or their folders, is it.
ServingRows base_rows(const std::vector<std::filesystem::path>& bases, const std::string& name);

/// What the server runs without other files than its own two: their rows, or its default. A BLOCK_SIZE_K over the block
/// is silently wrong in SGLang: rows have the block's.
RowPair own_rows(Server server, const ServingRows& base, const ServingRows& down_base, int64_t tokens, int64_t experts,
                 const ServingFormat& format);

/// The row with which the server launches its kernel: vLLM clamps BLOCK_SIZE_K to blocks of scales.
ServingRow launched(ServingRow row, const ServingFormat& format);

/// A server's file, in its order. Exit::request, with the place, for one that it would not read.
ServingRows read_serving(const std::filesystem::path& path);

/// Indent 4 and a newline at the end, as both programs write them. vLLM's kernel of groups needs a SPLIT_K in the file.
std::string serving_text(const ServingRows& rows, bool split_k = false);

/// What won for a token count: an entry's winner, or a robust choice.
struct ServingWinner {
  Candidate candidate;
  std::vector<Candidate> ties = {};  // which may replace it
  std::optional<int64_t> last = {};  // token count that a robust choice serves; empty: no end, or no choice
};
using ServingWinners = std::map<int64_t, ServingWinner>;  // by token count

/// One layer of one rank, by the facts that are in the servers' file names.
struct ServingLayer {
  int64_t experts = 0;       // of the rank
  int64_t intermediate = 0;  // of the rank, after the SwiGLU halving
  ServingFormat format = {};
  std::string model = {};
  ServingWinners up = {}, down = {};
  std::vector<Cell> cells = {};  // forward cells of the table, of all routings
};

/// The layers of a table that have a forward winner. Notes name what was left out and what was assumed. Of several
/// routings for a token count uniform is preferred, then balanced, then the first; of several layers with one file name
/// (bf16 and fp16, or two models of the same sizes) the first stays. A projection with robust choices uses those, for
/// the servers' token counts and its own, and none of its entries.
std::vector<ServingLayer> serving_layers(const TunedTable& table, std::vector<std::string>& notes);

/// Whether a candidate is of a pack whose knobs are those of the servers' kernel (BLOCK_SIZE_M, BLOCK_SIZE_N and
/// BLOCK_SIZE_K; GROUP_SIZE_M, num_warps and num_stages where they exist): rows have them unchanged.
bool is_triton(const Candidate& candidate);

/// A pack's candidate where is_triton as a row of the server's file, unchanged; nothing for other candidates.
std::optional<ServingRow> serving_row(const Candidate& candidate);

/// Whether a candidate is of a pack of kernels made elsewhere, in the catalog or not.
bool is_packed(const Candidate& candidate);

/// Equal for the two projections of one layer.
using LayerKey = std::tuple<std::string, int64_t, int64_t, std::string, int64_t, int64_t, int64_t>;
LayerKey key_of_layer(const Layer& layer);
inline int64_t hidden_size(const Layer& layer) { return layer.projection == Projection::up ? layer.k : layer.n; }

/// Times of rows in the cells of a table: contenders of robust choices, winners and their rivals, and the trials of the
/// journal, in this order.
class ServingTimes {
 public:
  ServingTimes(const TunedTable& table, const ServingRequest& request);
  /// Nothing where the row was not timed in the cell.
  std::optional<Estimate> find(const Cell& cell, const ServingRow& row) const;

 private:
  std::map<std::string, std::vector<std::pair<ServingRow, Estimate>>> times_;  // by id
};

/// A row that is worth compiling, and the token counts that it is for.
struct TriedRow {
  ServingRow row;
  std::vector<int64_t> tokens;
};

/// What rows_to_try goes by.
struct RowSearch {
  Server server;
  ServingFormat format;
  std::map<int64_t, double> mean_rows;  // token count -> the most rows of a mean active expert, over the routings
  std::map<std::string, std::vector<int64_t>> values = {};  // of knobs, in place of the usual
  bool full = false;                                        // all that the server's own tuner tries
  int64_t shared_memory = 0;                                // bytes that a block may have
};

/// Tiles as files of servers have them, in all depths, groups and stages that fit into shared memory; large ones for
/// token counts whose experts have so many rows. The first row is for all counts.
std::vector<TriedRow> rows_to_try(const RowSearch& search);

/// A pack's candidate of that row.
Candidate candidate_of(const VariantPtr& variant, const ServingRow& row);

/// The knobs that up and down must have in common: all (none named) for vLLM, BLOCK_SIZE_M for SGLang.
std::vector<std::string> shared_knobs(Server server);

/// Candidates to choose one file's row from: `own`, the winners of these entries, which are of one layer and token
/// count, and those with the least regret in the trials of the journal; with shared knobs, for each value of a winner
/// the best of either projection too.
std::vector<Candidate> serving_contenders(const Entries& entries, const JournalContents& journal,
                                          const std::vector<std::string>& shared, std::vector<Candidate> own);

/// Chooses for each layer and token count the pair of contenders, one for up and one for down with equal values of the
/// knobs `shared` (empty: of all knobs), whose sum of times has the least regret in the worst of the routings.
void choose_together(std::vector<RobustChoice>& choices, const std::vector<std::string>& shared);

/// Whether the table has forward winners of one pack for both projections of a layer, token count, routing and seed.
bool has_pairs(const TunedTable& table);

/// The table with other winners where has_pairs: of all pairs of timed candidates of the pack, one for up and one for
/// down, with equal values of the knobs `shared` (empty: of all knobs), the pair with the least sum of times. Winners
/// that are such a pair stay. The times of the winner and of the default are those of the final, others those of the
/// journal, but never less than the winner's. Ties are dropped there; measurements stay those of each cell's own
/// winner. Notes tell how many pairs were joined, and what that costs. Pairs of cells without two such candidates stay
/// as they are.
TunedTable with_joint_winners(TunedTable table, const JournalContents& journal, const std::vector<std::string>& shared,
                              std::vector<std::string>& notes);

}  // namespace moetune
