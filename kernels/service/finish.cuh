// Second passes over a product's sums: adding up the slots of a token, the gradient of the top-k weights, and what
// kernels without a function of the result leave to others: bias, activation and weights.
#pragma once
#include "activation.cuh"
#include "args.h"
#include "numbers.cuh"
#include "service/compare.cuh"

namespace moetune {

// row_of[slots[row]] = row. Rows past the last have a slot below 0, here and in weigh_rows.
__device__ __forceinline__ void invert(int* row_of, const int* slots, int rows) {
  for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x)
    if (slots[row] >= 0) row_of[slots[row]] = row;
}

// `count` neighbours of a row of any element as they are loaded and stored at once.
template <class Element, int count>
struct alignas(sizeof(Element) * count) Vector {
  Element of[count];
};

// Rows of sums, [rows, n] in expert order, to rows out[to[i]], or i without `to`: with their expert's bias, gates and
// ups combined, weighted, rounded once. One block a row. With an activation rows of `out` have n / 2 columns; `count`
// divides them. With `h` the sums with their bias are stored there, [rows, n].
template <int count, class Out, class In, class Bias>
__device__ __forceinline__ void finish_rows(Out* out, Out* h, const In* sums, const Bias* bias, const int* first_rows,
                                            int experts, Activation activation, bool interleaved, const int* to,
                                            RowWeights weights, int rows, long long n) {
  const long long columns = activation == Activation::none ? n : n / 2;
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    int expert = 0;
    if (bias)
      for (int end = experts; end - expert > 1;) {
        const int middle = (expert + end) / 2;
        if (first_rows[middle] <= row)
          expert = middle;
        else
          end = middle;
      }
    const float weight = weight_of<Out>(weights, row);
    const In* const from = sums + row * n;
    const auto load = [&](long long column, float(&values)[count]) {
      const auto vector = *reinterpret_cast<const Vector<In, count>*>(from + column);
      for (int i = 0; i < count; ++i)
        values[i] = to_float(vector.of[i]) + (bias ? to_float(bias[expert * n + column + i]) : 0.0f);
      if (!h) return;
      Vector<Out, count> kept;
      for (int i = 0; i < count; ++i) kept.of[i] = round_to<Out>(values[i]);
      *reinterpret_cast<Vector<Out, count>*>(h + row * n + column) = kept;
    };
    for (long long j = threadIdx.x * count; j < columns; j += blockDim.x * count) {
      float values[2][count];
      load(activation != Activation::none && interleaved ? 2 * j : j, values[0]);
      if (activation != Activation::none) load(interleaved ? 2 * j + count : j + columns, values[1]);
      Vector<Out, count> result;
      for (int i = 0; i < count; ++i) {
        float value = values[0][i];
        if (activation != Activation::none) {
          const int at = 2 * i;  // of a gate, where gates and ups alternate
          value = activate(activation, interleaved ? values[at / count][at % count] : values[0][i],
                           interleaved ? values[(at + 1) / count][(at + 1) % count] : values[1][i]);
        }
        if (weights.weights && weights.rounded) value = to_float(round_to<Out>(value));
        result.of[i] = round_to<Out>(weights.weights ? value * weight : value);
      }
      *reinterpret_cast<Vector<Out, count>*>(out + (to ? to[row] : row) * columns + j) = result;
    }
  }
}

// The same of a quantised result: rows of `out` are fp8, with a scale for each kScaleBlock columns. A warp has these.
template <class In>
__device__ __forceinline__ void quantise_rows(fp8* out, float* scales, const In* sums, Activation activation,
                                              bool interleaved, const int* to, int rows, long long n) {
  constexpr int count = kScaleBlock / 32;
  const long long columns = n / 2, blocks = (columns + kScaleBlock - 1) / kScaleBlock, warps = blockDim.x / 32;
  const int lane = threadIdx.x % 32;
  for (long long i = blockIdx.x * warps + threadIdx.x / 32; i < rows * blocks; i += gridDim.x * warps) {
    const long long row = i / blocks, block = i % blocks, target = to ? to[row] : row;
    float value[count] = {}, most = kMinLargest;
    for (int j = 0; j < count; ++j) {
      const long long column = block * kScaleBlock + j * 32 + lane;
      if (column >= columns) break;
      const In* const from = sums + row * n + (interleaved ? 2 * column : column);
      value[j] = activate(activation, to_float(from[0]), to_float(from[interleaved ? 1 : columns]));
      most = fmaxf(most, fabsf(value[j]));
    }
    for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    const float scale = most / kMaxFp8;
    if (lane == 0) scales[target * blocks + block] = scale;
    for (int j = 0; j < count; ++j)
      if (const long long column = block * kScaleBlock + j * 32 + lane; column < columns)
        out[target * columns + column] = round_to<fp8>(value[j] / scale);
  }
}

// out[token] = the sum over the rows of its slots, in their order, rounded; slots with row_of < 0 are left out. Rows
// are rounded to Element and, with weights, by slot, multiplied by these and rounded again, before they are added. One
// block a token.
template <class Element, int count, class Out, class In>
__device__ __forceinline__ void sum_slots(Out* out, const In* rows, const int* row_of, const float* weights, int tokens,
                                          int top_k, long long width) {
  for (int token = blockIdx.x; token < tokens; token += gridDim.x)
    for (long long j = threadIdx.x * count; j < width; j += blockDim.x * count) {
      float total[count] = {};
#pragma unroll 4
      for (int slot = token * top_k; slot < (token + 1) * top_k; ++slot) {
        const int row = row_of[slot];
        if (row < 0) continue;
        const auto part = *reinterpret_cast<const Vector<In, count>*>(rows + row * width + j);
        const float weight = weights ? to_float(round_to<Element>(weights[slot])) : 1;
        for (int i = 0; i < count; ++i)
          total[i] += to_float(round_to<Element>(to_float(round_to<Element>(to_float(part.of[i]))) * weight));
      }
      Vector<Out, count> sum;
      for (int i = 0; i < count; ++i) sum.of[i] = round_to<Out>(total[i]);
      *reinterpret_cast<Vector<Out, count>*>(out + token * width + j) = sum;
    }
}

// The sum over the threads of a block, of at most 1024, in an order that depends on their number alone; for thread 0.
__device__ __forceinline__ float block_sum(float value) {
  __shared__ float of_warp[32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0)
    for (int warp = 1; warp < blockDim.x / 32; ++warp) value += of_warp[warp];
  __syncthreads();
  return value;
}

// For each row: dh [2 width] = round(sums * weight * the derivatives at h [2 width]), and x = round(activate(h)). With
// `gradient`, gradient[slot] = the dot product of sums and x, rounded to h's element. Without weights rows are not
// weighted. One block a row.
template <int count, class Out, class Element>
__device__ __forceinline__ void gate_gradient(Out* dh, Out* x, float* gradient, const float* sums, const Element* h,
                                              const int* slots, const float* weights, Activation activation,
                                              bool interleaved, int rows, long long width) {
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const int slot = slots[row];
    if (slot < 0) continue;
    const float weight = weights ? weights[slot] : 1;
    const Element* const from = h + row * 2 * width;
    Out* const to = dh + row * 2 * width;
    float product = 0;
    for (long long j = threadIdx.x * count; j < width; j += blockDim.x * count) {
      const long long first = interleaved ? 2 * j : j, second = interleaved ? first + count : j + width;
      using Elements = Vector<Element, count>;
      using Outs = Vector<Out, count>;
      const Elements pairs[2] = {*reinterpret_cast<const Elements*>(from + first),
                                 *reinterpret_cast<const Elements*>(from + second)};
      const auto sum = *reinterpret_cast<const Vector<float, count>*>(sums + row * width + j);
      Outs d[2], again;
#pragma unroll
      for (int i = 0; i < count; ++i) {
        const int at = interleaved ? 2 * i : i, next = interleaved ? 2 * i + 1 : i + count;
        const float gate = to_float(pairs[at / count].of[at % count]),
                    up = to_float(pairs[next / count].of[next % count]);
        const Activated made = activated(activation, gate, up);
        again.of[i] = round_to<Out>(made.value);
        product += sum.of[i] * to_float(round_to<Element>(made.value));
        d[at / count].of[at % count] = round_to<Out>(sum.of[i] * weight * made.of_gate);
        d[next / count].of[next % count] = round_to<Out>(sum.of[i] * weight * made.of_up);
      }
      *reinterpret_cast<Outs*>(to + first) = d[0];
      *reinterpret_cast<Outs*>(to + second) = d[1];
      *reinterpret_cast<Outs*>(x + row * width + j) = again;
    }
    if (!gradient) continue;
    product = block_sum(product);
    if (threadIdx.x == 0) gradient[slot] = product;
  }
}

// For each row: out = round(sums * weight), and gradient[slot] = the dot product of sums and x, added in an order that
// depends on the number of threads alone. One block a row, of at most 1024 threads.
template <class Element>
__device__ __forceinline__ void weigh_rows(Element* out, float* gradient, const float* sums, const Element* x,
                                           const int* slots, const float* weights, int rows, long long width) {
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const int slot = slots[row];
    if (slot < 0) continue;
    const float weight = weights[slot];
    float product = 0;
    for (long long j = threadIdx.x; j < width; j += blockDim.x) {
      const float sum = sums[row * width + j];
      product += sum * to_float(x[row * width + j]);
      out[row * width + j] = round_to<Element>(sum * weight);
    }
    product = block_sum(product);
    if (threadIdx.x == 0) gradient[slot] = product;
  }
}

// gradient[slots[row]] = the sum of a row of parts, [rows, count].
__device__ __forceinline__ void add_parts(float* gradient, const float* parts, const int* slots, int rows, int count) {
  for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x) {
    if (slots[row] < 0) continue;
    float sum = 0;
    for (int i = 0; i < count; ++i) sum += parts[static_cast<long long>(row) * count + i];
    gradient[slots[row]] = sum;
  }
}

}  // namespace moetune
