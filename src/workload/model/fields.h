// Fields of a config.json by their many names.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace moetune {

using FieldNames = std::vector<std::string>;

/// Objects that are searched for a field, the innermost first.
using Scopes = std::vector<JsonAt>;

/// The value at a dotted path; nothing if a step is missing or null.
std::optional<JsonAt> field(JsonAt json, const std::string& path);

struct Found {
  std::string name;
  JsonAt at;
};

/// The first of these names that an object has, in the order of the names.
std::optional<Found> first_field(const Scopes& scopes, const FieldNames& names);

/// The value of the first of these fields; null without one.
Json value_of(const JsonAt& json, const FieldNames& names);

/// The string at a dotted path; empty without one.
std::string text_of(const JsonAt& json, const std::string& path);

std::string lower(std::string text);

bool has_one_of(const std::string& text, const FieldNames& words);

}  // namespace moetune
