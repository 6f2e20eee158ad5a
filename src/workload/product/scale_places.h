// Where the scales and zero points beside an operand lie.
#pragma once
#include <cstdint>

#include "workload/product/product.h"

namespace moetune {

/// Scales beside an operand: [blocks of rows, blocks of columns], row-major. A channel is a block of one row, a tensor
/// of all.
int64_t scale_count(const Product& product, const Operand& operand);
int64_t scale_index(const Product& product, const Operand& operand, int64_t expert, int64_t row, int64_t column);

/// Scales from an expert to the next, from a row of blocks to the next and from a column of blocks to the next; 0 where
/// there is one.
struct ScaleStrides {
  int64_t expert = 0, row = 0, column = 0;
};
ScaleStrides scale_strides(const Product& product, const Operand& operand);

/// Zero points of uint4 lie as scales do, but those of two rows share a byte, that of the even row in its low bits:
/// [experts, rows / 2, blocks of columns]. Their values, less 8, are of the same stream as W's.
int64_t zero_index(const Product& product, const Operand& operand, int64_t expert, int64_t row, int64_t column);

/// Bytes of a block of a W that is reordered (kernels/reordered.h), 0 of others; and of all of it.
int64_t reordered_block_bytes(const OperandType& type);
int64_t reordered_w_bytes(const Product& product);

}  // namespace moetune
