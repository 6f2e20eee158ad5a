// The text form of JSON files that people read and git compares. Not the compact form of journal lines.
#pragma once
#include <string>

#include "base/json.h"

namespace moetune {

/// Indented by two, a newline at the end. Arrays of plain values stay on one line whatever their length; objects of
/// plain values stay on one line where they fit into 160 columns: a new winner is then one changed line.
std::string pretty_json(const Json& json);

/// On one line, without a newline. Bytes that are not UTF-8, as in a compiler's message, become U+FFFD.
std::string compact_json(const Json& json);

}  // namespace moetune
