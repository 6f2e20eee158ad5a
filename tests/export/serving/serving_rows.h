// The rows of a serving file, as its server reads them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "error_of.h"
#include "export/exporter.h"
#include "export/serving/serving.h"

namespace moetune {

inline ServingFormat format_of(std::string_view dtype, std::optional<ScaleKind> scales = {}, int64_t top_k = 8) {
  Layer layer;
  layer.format = find_format(dtype, scales), layer.top_k = top_k;
  return serving_format(layer);
}

inline ServingRows rows_of(const std::string& text) { return parse_serving(text, "a serving file"); }

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
