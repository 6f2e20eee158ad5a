// Exports for the two inference servers.
#pragma once
#include "export/exporter.h"

namespace moetune {

// A server takes the row of the nearest key. Keys are added so that this gives for every token count what `lookup`
// gives by tokens, where the counts beside it were tuned or a robust choice covers it. The server's own counts without
// a winner keep its default row.

/// One file a layer, from up's winners: vLLM runs both projections with one row.
Export export_vllm(const TunedTable& table);

/// One file a layer for up, and a second one for down, whose BLOCK_SIZE_M is up's.
Export export_sglang(const TunedTable& table);

}  // namespace moetune
