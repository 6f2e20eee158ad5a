// The rows of a serving file, as its server reads them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "error_of.h"
#include "export/exporter.h"
#include "export/serving/serving.h"

namespace moetune {

inline ServingRows rows_of(const std::string& text) {
  ServingRows rows;
  const Json json = parse_json(text, "a serving file");
  for (const auto& [tokens, row] : json.items()) {
    if (tokens == "triton_version") continue;
    const JsonAt at(row, tokens);
    rows.emplace_back(std::stoll(tokens), ServingRow{.block_m = at["BLOCK_SIZE_M"].integer(),
                                                     .block_n = at["BLOCK_SIZE_N"].integer(),
                                                     .block_k = at["BLOCK_SIZE_K"].integer(),
                                                     .group_m = at["GROUP_SIZE_M"].integer(),
                                                     .warps = at["num_warps"].integer(),
                                                     .stages = at["num_stages"].integer(),
                                                     .use_tma = {}});
    if (at.has("USE_TMA")) rows.back().second.use_tma = at["USE_TMA"].boolean();
  }
  return rows;
}

inline ServingRow row_for(const ServingRows& rows, int64_t tokens) { return nearest_row(rows, tokens); }

/// That of the key.
inline ServingRow row_of(const ExportedFile& file, int64_t tokens) {
  for (const auto& [key, row] : rows_of(file.text))
    if (key == tokens) return row;
  throw std::runtime_error("no row for " + std::to_string(tokens));
}

/// Whether a note says it.
inline testing::AssertionResult noted(const Export& result, const std::string& part) {
  for (const std::string& note : result.notes)
    if (holds(note, part)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is in none of " << testing::PrintToString(result.notes);
}

}  // namespace moetune
