// Which entries of a table speak for which serving file.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "table/serving.h"
#include "table/table.h"

namespace moetune {

/// One layer of one rank as the servers know it: what their file names tell.
struct ServingLayer {
  int64_t experts = 0;       // of the rank
  int64_t intermediate = 0;  // of the rank, after the SwiGLU halving
  Dtype dtype = Dtype::bf16;
  std::map<int64_t, const Entry*> up, down;  // by tokens, the one entry that speaks for them
};

/// The layers of a table that have a forward winner. Notes tell what was left out and what was assumed. Of several
/// routings for a token count uniform is preferred, then balanced, then the first; of several layers with one file name
/// (bf16 and fp16, or two models of the same sizes) the first stays.
std::vector<ServingLayer> serving_layers(const TunedTable& table, std::vector<std::string>& notes);

/// A candidate in the server's words; nothing, and the reason, where it has none for it. `max_rows` is the most that an
/// expert has: with one m tile an expert every walk over the tiles is the same.
std::optional<ServingRow> serving_row(const Candidate& candidate, int64_t max_rows, std::string& reason);

}  // namespace moetune
