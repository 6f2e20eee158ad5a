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

/// What multiplies, as the servers' names tell it apart; scales of fp8.
struct ServingFormat {
  Dtype dtype = Dtype::bf16;
  ScaleKind scales = ScaleKind::none;
  bool operator==(const ServingFormat&) const = default;
};

/// Knobs of the fused Triton kernel that both run for an MoE layer.
struct ServingRow {
  int64_t block_m = 0, block_n = 0, block_k = 0;
  int64_t group_m = 1;            // m tiles walked together
  int64_t warps = 4, stages = 3;  // Triton's own defaults
  std::optional<bool> use_tma;    // SGLang's file of the down projection only
  bool operator==(const ServingRow&) const = default;
};

/// Its knobs.
inline constexpr const char *kBlockM = "BLOCK_SIZE_M", *kBlockN = "BLOCK_SIZE_N", *kBlockK = "BLOCK_SIZE_K",
                            *kGroupM = "GROUP_SIZE_M", *kWarps = "num_warps", *kStages = "num_stages";

/// Token count -> row, in the order of the file.
using ServingRows = std::vector<std::pair<int64_t, ServingRow>>;

std::string_view name(Server server);

/// The row that a server takes: that of the nearest key, the first of equally near ones.
const ServingRow& nearest_row(const ServingRows& rows, int64_t tokens);

/// Token counts that their own tuners fill.
const std::vector<int64_t>& serving_token_counts();

/// What the server runs for `tokens` where it has no file; `experts` are those of one rank.
ServingRow default_row(Server server, int64_t tokens, int64_t experts, const ServingFormat& format = {});

/// The file name that the server looks for. `intermediate` is one rank's, after the SwiGLU halving; `down` is SGLang's
/// second file. Exit::request for a device name that no file can have.
std::string serving_file_name(Server server, int64_t experts, int64_t intermediate, const std::string& device,
                              const ServingFormat& format, bool down);

/// The width that the server gives the experts of a model in place of `intermediate`.
int64_t padded_width(Server server, const std::string& model, int64_t intermediate);

/// A server's file, in its order. Exit::request, with the place, for one that it would not read.
ServingRows read_serving(const std::filesystem::path& path);

/// Indent 4 and a newline at the end, as both programs write them.
std::string serving_text(const ServingRows& rows);

/// What won for a token count: an entry's winner, or a robust choice.
struct ServingWinner {
  Candidate candidate;
  std::vector<Candidate> ties;       // which may replace it
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

/// Times of rows in the cells of a table: those timed after the run, contenders of robust choices, winners and their
/// rivals, and the trials of the journal, in this order.
class ServingTimes {
 public:
  ServingTimes(const TunedTable& table, const ServingRequest& request);
  /// Nothing where the row was not timed in the cell.
  std::optional<Estimate> find(const Cell& cell, const ServingRow& row) const;
  /// A candidate of the table's pack with these knobs, as text.
  std::string text_of(const ServingRow& row) const;

 private:
  std::map<std::string, std::vector<std::pair<ServingRow, Estimate>>> times_;  // by id
  Candidate sample_;
};

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
