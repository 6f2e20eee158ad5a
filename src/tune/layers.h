// Measures layers: the fastest candidates of up and of down, pair by pair as one chain of launches.
#pragma once
#include <atomic>
#include <vector>

#include "record/journal/journal.h"
#include "tune/contest.h"

namespace moetune {

/// The candidates of a cell that a layer tries: the winner, then the fastest others of its trials.
std::vector<Candidate> fastest_candidates(const Entry& entry, const JournalContents& journal);

/// The layers among the table's winners. `request.contenders` gives the candidates of a cell, its winner first; rule
/// and bucket loss are not read. Every pair is verified as a chain and has a few rounds; the fastest of them then meets
/// the pair of both winners, the defaults, the baselines and its own parts in interleaved rounds, and is the layer's
/// pair if it surely beats that of the winners. A pair or a baseline that fails is left out with a note, as is a layer
/// that does not fit into memory. Without `request.contenders` only the table's layers are measured: the pair that
/// each has, whatever is faster, beside the same rivals. Layers that `stop` or the end of the time leaves out are
/// missing. Faults of the machine throw.
std::vector<TunedLayer> measure_layers(const TunedTable& table, Backend& backend, const ContestRequest& request,
                                       const ContestListener& listener, const std::atomic<bool>& stop);

}  // namespace moetune
