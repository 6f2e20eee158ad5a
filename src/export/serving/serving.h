// Which entries of a table become which rows of servers' files, one configuration for both projections of a layer, and
// what is known of the times of the servers' own rows. Files and servers: server.h.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "export/exporter.h"
#include "export/serving/server.h"
#include "record/journal/journal.h"
#include "record/table/table.h"

namespace moetune {

/// How a server's files are made.
struct ServingRequest {
  const TunedTable* measured = nullptr;      // whose times count, where `table` has joint winners; null: the table
  const JournalContents* journal = nullptr;  // of its run, for times of other candidates
  LookUp places = {};                        // of the server's own files
  bool unproven = false;                     // rows too that are not known to be faster than the server's own
  std::string prefix = {};                   // before the files' names: file_prefix
};

/// One file a layer, from up's winners where the server runs both projections with one row; else a second file for
/// down, whose BLOCK_SIZE_M is up's. A server takes the row of the nearest key. Keys are such that this gives for every
/// token count what `lookup` gives by tokens, where the counts beside it were tuned or a robust choice covers it, and
/// what the server would run without the file elsewhere: the row of the file that it bundles, or its default. A winner
/// has a row only if it is faster than that in each cell of its token count, by more than the intervals of their times.
Export export_serving(const Server& server, const TunedTable& table, const ServingRequest& request);

/// Where to put the files so that the server finds them, and none of its others is hidden.
std::string install_advice(const Server& server, bool has_base);

/// What won for a token count: an entry's winner, or a robust choice.
struct ServingWinner {
  Candidate candidate;
  std::vector<Candidate> ties = {};  // which may replace it
  std::optional<int64_t> last = {};  // token count that a robust choice serves; empty: no end, or no choice
};
using ServingWinners = std::map<int64_t, ServingWinner>;  // by token count

/// A file, and what a table has for it.
struct ServingLayer {
  ServedFile file = {};
  std::string model = {};
  ServingWinners up = {}, down = {};
  std::vector<Cell> cells = {};  // forward cells of the table, of all routings
};

/// The layers of a table that have a forward winner. Notes name what was left out and what was assumed. Of several
/// routings for a token count uniform is preferred, then balanced, then the first; of several layers with one file name
/// (bf16 and fp16, or two models of the same sizes) the first stays. A projection with robust choices uses those, for
/// the servers' token counts and its own, and none of its entries.
std::vector<ServingLayer> serving_layers(const Server& server, const TunedTable& table,
                                         std::vector<std::string>& notes);

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

inline const ServingRow& row_for(const RowPair& rows, const Cell& cell) {
  return cell.shape.layer.projection == Projection::down ? rows.second : rows.first;
}

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

/// Which rows are searched.
struct RowSearch {
  const Server* server = nullptr;
  ServingFormat format = {};
  std::map<int64_t, double> mean_rows = {};  // token count -> the most rows of a mean active expert, over the routings
  std::map<std::string, std::vector<int64_t>> values = {};  // of knobs, in place of the usual
  bool full = false;                                        // all that the server's own tuner tries
  int64_t shared_memory = 0;                                // bytes that a block may have
};

/// Tiles as files of servers have them, in all depths, groups and stages that fit into shared memory; large ones for
/// token counts whose experts have so many rows. The first row is for all counts.
std::vector<TriedRow> rows_to_try(const RowSearch& search);

/// A pack's candidate of that row.
Candidate candidate_of(const VariantPtr& variant, const ServingRow& row);

/// The knobs that up and down must have in common: BLOCK_SIZE_M where down has a file, else all (none named).
std::vector<std::string> shared_knobs(const Server& server);

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
/// winner. Notes say how many pairs have joint winners, and what that costs. Pairs of cells without two such candidates
/// stay as they are.
TunedTable with_paired_winners(TunedTable table, const JournalContents& journal, const std::vector<std::string>& shared,
                               std::vector<std::string>& notes);

}  // namespace moetune
