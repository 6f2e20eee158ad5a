// Tiles of 16-bit operands in shared memory: rows of 16-byte chunks, swizzled so that neither cp.async nor ldmatrix has
// bank conflicts.
#pragma once
#include "ptx.cuh"

namespace moetune {

template <int columns>
struct Swizzle {
  static_assert(columns == 16 || columns == 32 || columns == 64 || columns == 128, "rows are 32 to 256 bytes");
  static constexpr int chunks = columns / 8;  // in a row

  static __forceinline__ int key(int row) { return chunks == 2 ? row / 4 % 2 : chunks == 4 ? row / 2 % 4 : row % 8; }
  // Byte offset of chunk `chunk` of row `row`. Eight rows at one chunk index use eight different bank groups. Because
  // of the XOR, a step of 2^i chunks flips one address bit of a chunk below 2^i.
  static __forceinline__ int offset(int row, int chunk) { return (row * chunks + (chunk ^ key(row))) * 16; }
};

// Copies one 16-byte chunk, `load_bytes` at a time as the source's alignment allows. The first `valid` bytes, a
// multiple of load_bytes, are copied; the rest become zeros.
template <int load_bytes>
__forceinline__ void copy_chunk(unsigned destination, const void* source, int valid) {
  if constexpr (load_bytes >= 4) {
#pragma unroll
    for (int at = 0; at < 16; at += load_bytes)
      cp_async<load_bytes>(destination + at, static_cast<const char*>(source) + at, at < valid);
  } else if constexpr (load_bytes == 1) {
#pragma unroll 4
    for (int at = 0; at < 16; ++at) {
      const unsigned short bits = at < valid ? static_cast<const unsigned char*>(source)[at] : 0;
      asm volatile("st.shared.b8 [%0], %1;" ::"r"(destination + at), "h"(bits) : "memory");
    }
  } else {
#pragma unroll
    for (int at = 0; at < 16; at += 2) {
      const unsigned short bits =
          at < valid ? *reinterpret_cast<const unsigned short*>(static_cast<const char*>(source) + at) : 0;
      asm volatile("st.shared.b16 [%0], %1;" ::"r"(destination + at), "h"(bits) : "memory");
    }
  }
}

}  // namespace moetune
