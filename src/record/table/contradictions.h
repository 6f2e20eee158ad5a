// Entries of a table file whose parts contradict each other. Checks of single values: table_json.cpp.
#pragma once
#include "record/table/table.h"

namespace moetune {

/// Throws Exit::request, with the place in `json`, where the entry that was read from it contradicts itself: its id and
/// its cell, its figures and its rows, derived figures and their inputs, ratios and times, or a winner or rival that
/// the table's own device cannot run. Ratios and times that are uncertain, or that the file marks as untrusted, may
/// differ; `check` judges candidates of older kernels.
void require_consistent(const Entry& entry, const DeviceInfo& device, const JsonAt& json);

/// Throws Exit::request, with the place of `json`, where the table's own device cannot run a winner, rival or choice.
/// Candidates of older kernels pass: their rules are not known any more.
void require_runnable(const Candidate& candidate, const Shape& shape, const DeviceInfo& device, const JsonAt& json);

}  // namespace moetune
