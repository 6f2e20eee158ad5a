// What the variants have in common: printing units, counting tiles, and rules of legality that aren't one variant's.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "variant/variant.h"

namespace moetune {

/// A unit of about 20 lines: struct Config with the element type, a constant for each knob, the fusions, then `extra`
/// constants; and the entry moetune_kernel, which calls `call`, such as "moetune::Mma<Config>::run(args)".
std::string print_unit(const Variant& variant, const Candidate& candidate, const Shape& shape, const LaunchPlan& plan,
                       const std::vector<std::pair<std::string_view, int64_t>>& extra, std::string_view call);

/// Largest power of two, at most `most`, that divides `bytes`: the widest aligned access to rows of that stride.
int64_t alignment(int64_t bytes, int64_t most);

/// A reason that every kernel variant shares, or nothing: an op or dtype that it lacks.
std::optional<std::string> unsupported(std::string_view variant, const Shape& shape, const std::vector<Dtype>& dtypes);

/// Whether a knob has one of the values that a rule allows.
bool one_of(int value, std::initializer_list<int> values);

/// Tiles of block_m x block_n of all experts.
int64_t tiles_of(int64_t block_m, int64_t block_n, const Problem& problem);

/// Device memory, bytes a block, for the sums of pieces of tiles that are cut along k: each block has fewer than two
/// such tiles, or leaves no more than one part of a tile that blocks share (split 0).
int64_t split_workspace(int split, int block_m, int block_n);

/// How many processors the device has; where it isn't there to tell, as many as the largest of its kind.
int processors_of(const DeviceInfo& device);

/// Why tiles can't be cut so where `blocks_per_sm` blocks run on a processor at the most and `fewest` is the least
/// split that the variant knows, or nothing.
std::optional<std::string> illegal_split(int split, int block_m, int block_n, int fewest, int blocks_per_sm,
                                         const DeviceInfo& device);

}  // namespace moetune
