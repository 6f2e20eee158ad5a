// One configuration for the up and the down projection of a layer, for servers that launch both with the same knobs.
#pragma once
#include <string>
#include <tuple>
#include <vector>

#include "record/journal/journal.h"
#include "record/table/table.h"

namespace moetune {

/// Whether a candidate is of a pack of kernels made elsewhere, in the catalog or not.
bool is_packed(const Candidate& candidate);

/// Equal for the two projections of one layer.
using LayerKey = std::tuple<std::string, int64_t, int64_t, Dtype, int64_t, int64_t, int64_t>;
LayerKey key_of_layer(const Layer& layer);
inline int64_t hidden_size(const Layer& layer) { return layer.projection == Projection::up ? layer.k : layer.n; }

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
