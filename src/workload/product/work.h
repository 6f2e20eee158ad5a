// How much a product computes and moves.
#pragma once
#include <cstdint>

#include "workload/product/product.h"

namespace moetune {

/// Rows of the result over computed rows: sum m / (sum ceil(m / block_m) * block_m), m an expert's; 1 for no rows.
double tile_occupancy(const Product& product, int64_t block_m);
/// 2 * M * N * K of each expert, real rows only; with the weights' gradient 2 * N a row more.
double flops(const Product& product);

/// Fewest bytes through memory: matrices of experts with rows (all of them where they are written; written and
/// read where they accumulate), rows used once each, results that are filled, scales, row counts, and an index or a
/// weight a row where the fusions read one. What a kernel writes and reads only itself does not count.
double bytes(const Product& product);

}  // namespace moetune
