// Filling operands, moving rows, and probing the clock: the work around a measured kernel.
#pragma once
#include "numbers.cuh"

namespace moetune {

// Element `index` is of the hash of base + index / 2: of its low half if the index is even.
template <class Element>
__device__ __forceinline__ void fill(Element* out, unsigned long long count, unsigned long long base, Filling filling,
                                     int most) {
  const float factor = filling == Filling::random ? spread<Element> : 1;
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x * 2;
  for (unsigned long long i = (static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x) * 2; i < count;
       i += step) {
    const unsigned long long h = splitmix64(base + i / 2);
    for (int half = 0; half < 2 && i + half < count; ++half)
      out[i + half] =
          round_to<Element>(factor * filled_value(filling, static_cast<unsigned>(half ? h >> 32 : h), most));
  }
}

// The same of elements that share a byte.
template <class Packed>
__device__ __forceinline__ void fill_packed(Packed* out, unsigned long long count, unsigned long long base,
                                            Filling filling, int most) {
  const float factor = filling == Filling::random ? spread<Packed> : 1;
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count / 2;
       i += step) {
    const unsigned long long h = splitmix64(base + i);
    const auto element = [&](unsigned bits) { return nibble_of<Packed>(factor * filled_value(filling, bits, most)); };
    out[i] = {
        static_cast<unsigned char>(element(static_cast<unsigned>(h)) | element(static_cast<unsigned>(h >> 32)) << 4)};
  }
}
__device__ __forceinline__ void fill(nibbles* out, unsigned long long count, unsigned long long base, Filling filling,
                                     int most) {
  fill_packed(out, count, base, filling, most);
}
__device__ __forceinline__ void fill(e2m1* out, unsigned long long count, unsigned long long base, Filling filling,
                                     int most) {
  fill_packed(out, count, base, filling, most);
}

template <class Element>
__device__ __forceinline__ void widen(float* out, const Element* in, unsigned long long count) {
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    out[i] = element_at(in, static_cast<long long>(i));
}

// Puts the scales of row from[i], or i without `from`, at out[places[2 i] + column * places[2 i + 1]].
__device__ __forceinline__ void place_scales(float* out, const float* scales, const long long* places, const int* from,
                                             long long rows, long long columns, long long row_stride,
                                             long long column_stride) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* const source = scales + (from ? from[row] : row) * row_stride;
    for (long long j = threadIdx.x; j < columns; j += blockDim.x)
      out[places[2 * row] + j * places[2 * row + 1]] = source[j * column_stride];
  }
}

// Rows in[from[i]], or in[first + i] without `from`, less their zero points, times their scales, where there are any. A
// scale covers row_block rows and column_block columns.
template <class Element>
__device__ __forceinline__ void dequantise(float* out, const Element* in, const int* from, const float* scales,
                                           const Element* zeros, long long first, long long rows, long long width,
                                           long long row_block, long long column_block, long long row_stride,
                                           long long column_stride) {
  for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
    const long long source = from ? from[row] : first + row;
    for (long long j = threadIdx.x; j < width; j += blockDim.x) {
      float value = element_at(in, source * width + j);
      if (zeros) value -= element_at(zeros, source / 2 * 2 * row_stride + j / column_block * 2 + source % 2);
      if (scales) value *= scales[source / row_block * row_stride + j / column_block * column_stride];
      out[row * width + j] = value;
    }
  }
}

// A separate gather, scatter or weighting of rows, as needed without a fused kernel: out[to[i]] = in[from[i]], times
// weights[slots[i]] if there are weights, rounded once. Without `from` or `to`: row i. `round_weights` rounds weights
// to Out first. One block a row; a thread copies 16 bytes where rows are only copied and a multiple of that long.
template <class Out, class In>
__device__ __forceinline__ void move_rows(Out* out, const In* in, const int* from, const int* to, const int* slots,
                                          const float* weights, bool round_weights, int rows, long long width) {
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const In* source = in + (from ? from[row] : row) * width;
    Out* target = out + (to ? to[row] : row) * width;
    if (weights) {
      const float exact = weights[slots[row]], weight = round_weights ? to_float(round_to<Out>(exact)) : exact;
      for (long long j = threadIdx.x; j < width; j += blockDim.x)
        target[j] = round_to<Out>(to_float(source[j]) * weight);
    } else if (sizeof(Out) == sizeof(In) && width * sizeof(Out) % 16 == 0) {
      const uint4* pieces = reinterpret_cast<const uint4*>(source);
      for (long long j = threadIdx.x; j < width * static_cast<long long>(sizeof(Out)) / 16; j += blockDim.x)
        reinterpret_cast<uint4*>(target)[j] = pieces[j];
    } else {
      for (long long j = threadIdx.x; j < width; j += blockDim.x) target[j] = round_to<Out>(to_float(source[j]));
    }
  }
}

// Each SM's cycle counter, out[2 * sm], and the time, out[2 * sm + 1]. Two readings of one SM give its clock between
// them. Launch several blocks an SM, so that no SM is missed.
__device__ __forceinline__ void read_clocks(unsigned long long* out) {
  unsigned sm;
  unsigned long long time;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  if (threadIdx.x == 0) *reinterpret_cast<ulonglong2*>(out + 2 * sm) = make_ulonglong2(clock64(), time);
}

// Bandwidth: every byte is read once.
__device__ __forceinline__ void read_all(const uint4* in, unsigned long long count, unsigned* out) {
  unsigned sum = 0;
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
#pragma unroll 8
  for (unsigned long long i = static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    const uint4 v = in[i];
    sum ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x12345678u) *out = sum;  // or the compiler removes the loads
}

}  // namespace moetune
