// Kernels that make, move, finish and compare what other kernels multiply, for the Element that the unit names before.
#pragma once
#include "service/compare.cuh"
#include "service/finish_kernels.cuh"
#include "service/operand_kernels.cuh"

extern "C" __global__ void fill_weights(moetune::fp32* out, unsigned long long count, unsigned long long base,
                                        moetune::Filling filling, int most) {
  moetune::fill(out, count, base, filling, most);
}
extern "C" __global__ void move_rows(Element* out, const Element* in, const int* from, const int* to, const int* slots,
                                     const float* weights, bool round_weights, int rows, long long width) {
  moetune::move_rows(out, in, from, to, slots, weights, round_weights, rows, width);
}
extern "C" __global__ void narrow_rows(Element* out, const moetune::fp32* in, const int* from, const int* to,
                                       const int* slots, const float* weights, bool round_weights, int rows,
                                       long long width) {
  moetune::move_rows(out, in, from, to, slots, weights, round_weights, rows, width);
}
extern "C" __global__ void slots_reference(moetune::fp32* out, const moetune::fp32* rows, const int* row_of,
                                           const float* weights, int tokens, int top_k, long long width) {
  moetune::sum_slots<Element, 1>(out, rows, row_of, weights, tokens, top_k, width);
}
extern "C" __global__ void gate_reference(moetune::fp32* dh, moetune::fp32* x, float* gradient, const float* sums,
                                          const Element* h, const int* slots, const float* weights,
                                          Activation activation, int interleaved, int rows, long long width) {
  moetune::gate_gradient<1>(dh, x, gradient, sums, h, slots, weights, activation, interleaved, rows, width);
}
template <class Out, class In>
__device__ __forceinline__ void finish_any(Out* out, Out* h, const In* sums, const Element* bias, const int* first_rows,
                                           int experts, Activation activation, bool interleaved, const int* to,
                                           moetune::RowWeights weights, int rows, long long n) {
  constexpr int most = sizeof(In) == 2 ? 8 : 4;
  if (n % (2 * most) == 0)
    moetune::finish_rows<most>(out, h, sums, bias, first_rows, experts, activation, interleaved, to, weights, rows, n);
  else
    moetune::finish_rows<1>(out, h, sums, bias, first_rows, experts, activation, interleaved, to, weights, rows, n);
}
extern "C" __global__ void finish_rows(Element* out, Element* h, const Element* sums, const Element* bias,
                                       const int* first_rows, int experts, Activation activation, bool interleaved,
                                       const int* to, moetune::RowWeights weights, int rows, long long n) {
  finish_any(out, h, sums, bias, first_rows, experts, activation, interleaved, to, weights, rows, n);
}
extern "C" __global__ void finish_sums(Element* out, Element* h, const moetune::fp32* sums, const Element* bias,
                                       const int* first_rows, int experts, Activation activation, bool interleaved,
                                       const int* to, moetune::RowWeights weights, int rows, long long n) {
  finish_any(out, h, sums, bias, first_rows, experts, activation, interleaved, to, weights, rows, n);
}
extern "C" __global__ void finish_reference(moetune::fp32* out, moetune::fp32* h, const moetune::fp32* sums,
                                            const Element* bias, const int* first_rows, int experts,
                                            Activation activation, bool interleaved, const int* to,
                                            moetune::RowWeights weights, int rows, long long n) {
  finish_any(out, h, sums, bias, first_rows, experts, activation, interleaved, to, weights, rows, n);
}
extern "C" __global__ void quantise_rows(moetune::fp8* out, float* scales, const Element* sums, Activation activation,
                                         bool interleaved, const int* to, int rows, long long n) {
  moetune::quantise_rows(out, scales, sums, activation, interleaved, to, rows, n);
}
extern "C" __global__ void compare_quantised(const moetune::fp8* d, const float* scales, const float* reference,
                                             const int* to, long long rows, long long n, float noise,
                                             moetune::Comparison* out) {
  moetune::compare_quantised(d, scales, reference, to, rows, n, noise, out);
}
extern "C" __global__ void place_scales(float* out, const float* scales, const long long* places, const int* from,
                                        long long rows, long long columns, long long row_stride,
                                        long long column_stride) {
  moetune::place_scales(out, scales, places, from, rows, columns, row_stride, column_stride);
}
extern "C" __global__ void compare(const Element* d, const float* reference, const int* to, moetune::RowWeights weights,
                                   long long rows, long long n, const float* rms, long long rms_rows, int precision,
                                   moetune::Comparison* out) {
  moetune::compare(d, reference, to, weights, rows, n, rms, rms_rows, precision, out);
}
extern "C" __global__ void sum_squares(const float* reference, moetune::RowWeights weights, long long rows, long long n,
                                       long long sum_rows, double* sums) {
  moetune::sum_squares<Element>(reference, weights, rows, n, sum_rows, sums);
}
extern "C" __global__ void count_changed(const unsigned char* region, unsigned long long bytes, unsigned char byte,
                                         unsigned long long* changed) {
  moetune::count_changed(region, bytes, byte, changed);
}
extern "C" __global__ void count_unwritten(const Element* d, unsigned long long count, unsigned long long* unwritten) {
  moetune::count_unwritten(d, count, unwritten);
}
extern "C" __global__ void read_clocks(unsigned long long* out) { moetune::read_clocks(out); }
extern "C" __global__ void read_all(const uint4* in, unsigned long long count, unsigned* out) {
  moetune::read_all(in, count, out);
}
