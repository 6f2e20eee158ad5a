// Which entries of a table become rows of which serving file.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "export/serving/serving.h"
#include "record/table/table.h"

namespace moetune {

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
  Dtype dtype = Dtype::bf16;
  ServingWinners up, down;
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

}  // namespace moetune
