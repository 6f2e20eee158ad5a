// Checks JSON against the schemas in configs/schema, which are the one description of every file. What a schema cannot
// say (sums, references between fields) is checked by the reader of the file.
#pragma once
#include <string_view>

#include "base/json.h"

namespace moetune {

/// Throws Exit::request, with the place, for a document that configs/schema/KIND.json refuses. A schema with a keyword
/// that this program doesn't evaluate throws std::logic_error.
void require_valid(const JsonAt& file, std::string_view kind);

/// Checks against `schema`, whose $refs may name its own $defs and embedded files beside `kind`: for tests.
void require_matches(const JsonAt& file, const Json& schema);

}  // namespace moetune
