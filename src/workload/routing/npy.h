// Arrays of integers in NumPy's .npy format, whatever they mean.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace moetune {

/// An array as it lies in the file: elements are decoded one by one.
struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements
  size_t data = 0;               // offset of the first element
  size_t item_bytes = 0;         // 1, 2, 4 or 8, little endian
  bool is_signed = false;
};

/// Reads the header of `bytes` (format versions 1 to 3; numpy.lib.format) and checks that the data are all there.
/// Takes |u1 |i1 <u2 <i2 <u4 <i4 <u8 <i8 in C or Fortran order. Errors (Exit::request) name `where`.
NpyArray read_npy(const std::string& bytes, const std::string& where);

/// One element; `index` has a number for each dimension, within the shape. Unsigned values over 2^63 come out negative.
int64_t element(const NpyArray& array, const std::string& bytes, std::span<const int64_t> index);

}  // namespace moetune
