// Checks parts of files by the rules of configs/schema/parts.json, also by those that readers don't check.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace moetune {

// Each throws Exit::request, with the place, where the value is not such a part.

void require_number(const JsonAt& json, double least = 0);
/// Infinities and NaN are written as null.
void require_number_or_null(const JsonAt& object, std::string_view key, double least = 0);
void require_positive(const JsonAt& json);
void require_text(const JsonAt& json);  // not empty
void require_word(const JsonAt& json, const std::vector<std::string>& known);
void require_texts(const JsonAt& array);
void require_object(const JsonAt& json);
void require_counts(const JsonAt& json);  // reason -> how many, at least one
/// A text that the regular expression matches as a whole; `wanted` says for people what that is.
void require_pattern(const JsonAt& json, const char* pattern, std::string_view wanted);

void require_tool(const JsonAt& tool);  // of this program
void require_device(const JsonAt& json);
void require_environment(const JsonAt& json);  // "device" and "environment" of a file
void require_cell(const JsonAt& json);
void require_contender(const JsonAt& json);
void require_verdict(const JsonAt& json);
void require_figures(const JsonAt& json);
void require_derived(const JsonAt& derived);
void require_entry(const JsonAt& json);  // of a table
void require_steps(const JsonAt& json);  // "training_steps" of a file, where it has them

/// read(0), which takes top_k from a recording; where that gives neither top_k nor tokens, read(1): the layer of a
/// sweep may have any top_k. Throws the error of read(0) where both fail.
void with_open_top_k(const std::function<void(int64_t top_k)>& read);

/// read(array[i]) for each.
template <typename Read>
void each(const JsonAt& array, Read read) {
  for (size_t i = 0; i < array.size(); ++i) read(array[i]);
}

}  // namespace moetune
