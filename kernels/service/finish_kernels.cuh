// Kernels of a last pass, for the Element that the unit names before: see finish.cuh.
#pragma once
#include "service/finish.cuh"

using moetune::Activation;

extern "C" __global__ void invert(int* row_of, const int* slots, int rows) { moetune::invert(row_of, slots, rows); }
extern "C" __global__ void sum_slots(Element* out, const Element* rows, const int* row_of, const float* weights,
                                     int tokens, int top_k, long long width) {
  if (width % 8 == 0)
    moetune::sum_slots<Element, 16 / sizeof(Element)>(out, rows, row_of, weights, tokens, top_k, width);
  else
    moetune::sum_slots<Element, 1>(out, rows, row_of, weights, tokens, top_k, width);
}
extern "C" __global__ void gate_gradient(Element* dh, Element* x, float* gradient, const float* sums, const Element* h,
                                         const int* slots, const float* weights, Activation activation, int interleaved,
                                         int rows, long long width) {
  if (width % 8 == 0)
    moetune::gate_gradient<16 / sizeof(Element)>(dh, x, gradient, sums, h, slots, weights, activation, interleaved,
                                                 rows, width);
  else
    moetune::gate_gradient<1>(dh, x, gradient, sums, h, slots, weights, activation, interleaved, rows, width);
}
extern "C" __global__ void add_parts(float* gradient, const float* parts, const int* slots, int rows, int count) {
  moetune::add_parts(gradient, parts, slots, rows, count);
}
extern "C" __global__ void weigh_rows(Element* out, float* gradient, const float* sums, const Element* x,
                                      const int* slots, const float* weights, int rows, long long width) {
  moetune::weigh_rows(out, gradient, sums, x, slots, weights, rows, width);
}
