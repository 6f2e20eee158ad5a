#include "record/winner_text.h"

#include "variant/variant.h"

namespace moetune {

std::string winner_text(const Entry& entry, const DeviceInfo& device) {
  const Rival* fallback = find_rival(entry, "default");
  Problem problem;  // its rows come from the table: a recording may be gone
  problem.shape = entry.cell.shape;
  problem.routing.tokens = entry.cell.tokens, problem.routing.top_k = entry.cell.shape.layer.top_k;
  problem.routing.m_sizes = entry.m_sizes;
  problem.routing.gather_indices.resize(static_cast<size_t>(entry.figures.rows));
  return short_text(entry.candidate, fallback ? &fallback->candidate : nullptr, problem, device);
}

}  // namespace moetune
