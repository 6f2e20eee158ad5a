// A problem is a shape with its realised rows: all that is needed to compute it. A cell is what a problem is made from.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "workload/routing/routing.h"
#include "workload/shape.h"

namespace moetune {

/// One point of a sweep: a table has one winner for each cell.
struct Cell {
  Shape shape;
  int64_t tokens = 0;
  RoutingSpec routing;
  uint64_t seed = 0;
  bool operator==(const Cell&) const = default;
};

/// Readable and unique: "qwen3-30b-a3b/up/fwd/bf16/t256/zipf:1", then what differs from its default (/e64, /permute_x,
/// /tp2, /ep8, /seed3); for a custom layer, its sizes.
std::string id(const Cell& cell);

/// What a cell is, part by part: its id, the parts of its layer and shape, tokens, routing and seed. Fusions are "true"
/// or "false".
using Fields = std::vector<std::pair<std::string, std::string>>;  // names and values, in order
Fields fields_of(const Cell& cell);

/// "zipf:1, seed 3"; a seed of 0 is left out.
std::string routing_title(const Cell& cell);

/// "4096 tokens, zipf:1, seed 3": what differs between the cells of a shape.
std::string cell_title(const Cell& cell);

/// Places of cells in the list, by decreasing work: tokens times top_k, n and k. Equals keep their order.
std::vector<size_t> by_work(const std::vector<Cell>& cells);

Json to_json(const Cell& cell);
Cell cell_from_json(const JsonAt& json);

/// A seed may use all 64 bits, more than JsonAt::integer takes.
uint64_t seed_from_json(const JsonAt& json);

/// The rows are realised; seed feeds the operands' values too.
struct Problem {
  Shape shape;
  Routing routing = {};
  uint64_t seed = 0;

  int64_t rows() const { return routing.rows(); }  // of the grouped GEMM
  int64_t active_experts() const;
  bool operator==(const Problem&) const = default;
};

Problem make_problem(const Cell& cell);

/// Everything, rows included: another process can compute the same thing from it.
Json to_json(const Problem& problem);
Problem problem_from_json(const JsonAt& json);

/// Values of the operands, the same on every backend: element `index` of operand `stream`, before rounding to the
/// dtype. A pair of neighbours shares one hash: h = splitmix64(splitmix64(seed * 4 + stream) + index / 2); Filling
/// (kernels/formulas.h) makes a value of the low half of h for an even index, of the high half for an odd one. Stream
/// 2, the top-k weights, is the same in both.
enum class Values { integer, random };
enum ValueStream : int { kStreamX = 0, kStreamW = 1, kStreamWeights = 2, kStreamDy = 3 };
float operand_value(Values values, uint64_t seed, int stream, uint64_t index, int most = 4);
float value_of(Filling filling, uint64_t seed, int stream, uint64_t index, int most = 4);

}  // namespace moetune
