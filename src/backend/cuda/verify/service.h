// The service kernels of one dtype: filling, moving, comparing, probing. Compiled like any other unit.
#pragma once
#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <string>

#include "backend/cuda/compile/compiler.h"
#include "backend/cuda/kernel.h"
#include "workload/product/product.h"

namespace moetune {

/// Twin of Comparison in kernels/service/compare.cuh.
struct ComparisonCounts {
  unsigned long long mismatches = 0;
  unsigned long long first = ~0ull;
  double error = 0;
  double rounding = 0;
  unsigned max_ulps_bits = 0;
  unsigned padding = 0;
};

/// Twin of RowWeights in kernels/service/compare.cuh.
struct RowWeights {
  const float* weights = nullptr;
  const int* slots = nullptr;
  bool rounded = false;
};

/// Rows [rows, width] to move; see kernels/service/operands.cuh. Null: no map, no weights.
struct RowMove {
  void* out = nullptr;       // elements of the service's dtype
  const void* in = nullptr;  // the same, or fp32
  bool from_fp32 = false;
  const int* from = nullptr;
  const int* to = nullptr;
  RowWeights weights = {};
  int64_t rows = 0;
  int64_t width = 0;
};

/// Rows of sums [rows, n] in expert order that get bias, activation and weights; see kernels/service/finish.cuh. With
/// scales they get an activation alone and are quantised, and sums are of the service's dtype.
struct FinishedRows {
  void* out = nullptr;         // elements of the service's dtype, or fp32 with to_fp32, or fp8 with scales
  void* h = nullptr;           // [rows, n] elements as those of `out`: sums with their bias; or null
  float* scales = nullptr;     // [rows of out, ceil(n / 2 / 128)], or null
  const void* sums = nullptr;  // elements of the service's dtype, or fp32 with from_fp32
  bool from_fp32 = false, to_fp32 = false;
  const void* bias = nullptr;       // [experts, n] elements of the service's dtype, or null
  const int* first_rows = nullptr;  // [experts + 1]
  int64_t experts = 0;
  Activation activation = Activation::none;
  bool interleaved = false;
  const int* to = nullptr;
  RowWeights weights = {};
  int64_t rows = 0;
  int64_t n = 0;
};

/// Rows [rows, width] that are weighted beside the gradient of their weights; see kernels/service/finish.cuh.
struct WeighedRows {
  void* out = nullptr;        // elements of the service's dtype
  float* gradient = nullptr;  // [slots]
  const float* sums = nullptr;
  const void* x = nullptr;         // elements of the service's dtype
  const int* slots = nullptr;      // [rows]
  const float* weights = nullptr;  // [slots]
  int64_t rows = 0;
  int64_t width = 0;
};

/// Rows of slots that are added by token; see kernels/service/finish.cuh.
struct SlotRows {
  void* out = nullptr;         // [tokens, width] elements of the service's dtype, or both in fp32 with to_fp32
  const void* rows = nullptr;  // [rows, width], the same
  bool to_fp32 = false;
  const int* row_of = nullptr;     // [tokens * top_k]; below 0 where a slot has no row
  const float* weights = nullptr;  // [tokens * top_k], null where rows are weighted already
  int64_t tokens = 0, top_k = 0, width = 0;
};

/// Rows that become gradients of gate and up; see kernels/service/finish.cuh. Null: no weights, no gradient of theirs.
struct GateRows {
  void* dh = nullptr;  // [rows, 2 width] elements of the service's dtype, or fp32 with to_fp32
  void* x = nullptr;   // [rows, width], the same
  bool to_fp32 = false;
  float* gradient = nullptr;  // [slots]
  const float* sums = nullptr;
  const void* h = nullptr;         // [rows, 2 width] elements of the service's dtype
  const int* slots = nullptr;      // [rows]
  const float* weights = nullptr;  // [slots]
  Activation activation = Activation::none;
  bool interleaved = false;
  int64_t rows = 0;
  int64_t width = 0;
};

/// Scales of rows [rows, columns] that are put elsewhere: those of row from[i], or i, at out[places[i][0] + column *
/// places[i][1]].
struct PlacedScales {
  float* out = nullptr;
  const float* scales = nullptr;
  const long long* places = nullptr;
  const int* from = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 0, column_stride = 0;
};

/// Rows [rows, width] of an operand, whose scales and zero points may be null: from[i], or without a map first + i.
struct DequantisedRows {
  float* out = nullptr;
  const void* in = nullptr;  // elements of the service's dtype
  const int* from = nullptr;
  const float* scales = nullptr;
  const void* zeros = nullptr;  // elements as `in`
  int64_t first = 0, rows = 0, width = 0;
  int64_t row_block = 1, column_block = 1;  // that a scale covers
  int64_t row_stride = 0, column_stride = 0;
};

/// W [experts, n, k] in rows, its scales and zero points, to be reordered: see kernels/service/reorder.cuh.
struct ReorderedRows {
  void* out = nullptr;  // [experts, n / 64, k / 64] blocks of reordered_block_bytes
  const void* elements = nullptr;
  const void* scales = nullptr;
  const void* zeros = nullptr;
  int64_t experts = 0, n = 0, k = 0;
  bool combines_gates = false, interleaved = false;
};

/// The text of the service kernels of one dtype; it includes that of finish_unit.
std::string service_unit(Dtype dtype);
/// Kernels of the last pass, kernels/service/finish.cuh, alone; and those that choose experts, sort rows by
/// expert and add up slots, kernels/service/choose.cuh, route.cuh and sum.cuh.
std::string finish_unit(Dtype dtype);
std::string route_unit();

class Service {
 public:
  Service(Dtype dtype, const CompilerOptions& options);

  /// Fills `count` elements of an operand as stored_value says; integers are `most` at most.
  void fill(void* out, int64_t count, Values values, uint64_t seed, int stream_of_values, cudaStream_t stream,
            int most = 4) const;
  /// Fills top-k weights as topk_weight says; `filling` is weight_filling's.
  void fill_weights(float* out, int64_t count, Filling filling, uint64_t seed, cudaStream_t stream) const;
  /// Fills scales of the service's dtype as scale_value says; `filling` is scale_filling's, `seed` scale_seed's.
  void fill_scales(void* out, int64_t count, Filling filling, uint64_t seed, cudaStream_t stream) const;
  void place_scales(const PlacedScales& scales, cudaStream_t stream) const;
  /// Rows of elements times their scales, in fp32; see kernels/service/operands.cuh.
  void dequantise(const DequantisedRows& rows, cudaStream_t stream) const;
  /// Between expert order and the layer's order, weighted or not.
  void move_rows(const RowMove& move, cudaStream_t stream) const;
  /// Elements of the service's dtype as fp32.
  void widen(float* out, const void* in, int64_t count, cudaStream_t stream) const;
  /// row_of[slots[row]] = row.
  void invert(int* row_of, const int* slots, int64_t rows, cudaStream_t stream) const;
  void sum_slots(const SlotRows& rows, cudaStream_t stream) const;
  void weigh_rows(const WeighedRows& rows, cudaStream_t stream) const;
  void finish_rows(const FinishedRows& rows, cudaStream_t stream) const;
  void gate_gradient(const GateRows& rows, cudaStream_t stream) const;
  /// gradient[slots[row]] = the sum of a row of `parts`, [rows, count].
  void add_parts(float* gradient, const float* parts, const int* slots, int64_t rows, int count,
                 cudaStream_t stream) const;
  /// Adds to `counts` on the device what differs; with `rms`, rms[row / rms_rows], measures errors too.
  void compare(const void* d, const float* reference, const int* to, const RowWeights& weights, int64_t rows, int64_t n,
               const float* rms, int64_t rms_rows, ComparisonCounts* counts, cudaStream_t) const;
  /// The same of a quantised result: `scales` of elements, and how far off the sums of each scale's largest may be.
  void compare_quantised(const void* d, const float* scales, const float* reference, const int* to, int64_t rows,
                         int64_t n, float noise, ComparisonCounts* counts, cudaStream_t) const;
  /// Adds the squares of rows to sums[row / sum_rows] on the device.
  void sum_squares(const float* reference, const RowWeights& weights, int64_t rows, int64_t n, int64_t sum_rows,
                   double* sums, cudaStream_t) const;
  void count_changed(const void* region, int64_t bytes, unsigned char byte, unsigned long long* changed,
                     cudaStream_t) const;
  void count_unwritten(const void* d, int64_t elements, unsigned long long* unwritten, cudaStream_t) const;
  /// out: [sms][2] cycles and nanoseconds of each SM.
  void read_clocks(unsigned long long* out, int sms, cudaStream_t) const;
  void read_all(const void* in, int64_t bytes, unsigned* out, cudaStream_t) const;

 private:
  Dtype dtype_;
  std::shared_ptr<Module> module_;
};

/// The services of all dtypes, each compiled when it is first used.
class Services {
 public:
  explicit Services(const CompilerOptions& options) : options_(options) {}
  const Service& of(Dtype dtype);
  /// Throws Exit::bug where a scale can't be stored.
  void reorder(const OperandType& type, const ReorderedRows& rows, cudaStream_t stream);

 private:
  const CompilerOptions& options_;
  std::map<Dtype, std::unique_ptr<Service>> services_;
  std::map<std::string, std::unique_ptr<Module>> reorder_;  // by unit
};

}  // namespace moetune
