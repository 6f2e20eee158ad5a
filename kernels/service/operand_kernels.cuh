// Kernels that make operands, for the Element that the unit names before: see operands.cuh.
#pragma once
#include "service/operands.cuh"

extern "C" __global__ void fill(Element* out, unsigned long long count, unsigned long long base,
                                moetune::Filling filling, int most) {
  moetune::fill(out, count, base, filling, most);
}
extern "C" __global__ void dequantise(float* out, const Element* in, const int* from, const float* scales,
                                      const Element* zeros, long long first, long long rows, long long width,
                                      long long row_block, long long column_block, long long row_stride,
                                      long long column_stride) {
  moetune::dequantise(out, in, from, scales, zeros, first, rows, width, row_block, column_block, row_stride,
                      column_stride);
}
extern "C" __global__ void widen(float* out, const Element* in, unsigned long long count) {
  moetune::widen(out, in, count);
}
