// What the reference adds to the plain product: where its sums go, with how many roundings.
#include "backend/cpu/reference.h"

#include "backend/cpu/plain_gemm.h"

namespace moetune {
namespace {

int64_t rows(const Args& args) {
  int64_t sum = 0;
  for (int expert = 0; expert < args.experts; ++expert) sum += args.m_sizes[expert];
  return sum;
}

float weight(const Args& args, const Shape& shape, int64_t row) {
  return round_to(shape.layer.dtype, args.topk_weights[args.gather_indices[row]]);
}

}  // namespace

Buffer rounded_reference(const Args& args, const Shape& shape, ThreadPool& pool) {
  const Dtype dtype = shape.layer.dtype;
  Buffer result(rows(args) * args.n * size_bytes(dtype));
  PlainWorkspace<double> workspace;
  plain_gemm<double>(args, shape, pool, workspace, [&](int64_t row, int64_t column, double sum) {
    auto value = static_cast<float>(sum);
    if (shape.fusion.topk_weights) value = round_to(dtype, value) * weight(args, shape, row);
    const int64_t index = row * args.n + column;
    if (dtype == Dtype::fp32) result.as<float>()[index] = value;
    if (dtype == Dtype::bf16) result.as<uint16_t>()[index] = to_bf16(value);
    if (dtype == Dtype::fp16) result.as<uint16_t>()[index] = to_fp16(value);
  });
  return result;
}

Buffer unrounded_reference(const Args& args, const Shape& shape, ThreadPool& pool) {
  Buffer result(rows(args) * args.n * 4);
  PlainWorkspace<double> workspace;
  plain_gemm<double>(args, shape, pool, workspace, [&](int64_t row, int64_t column, double sum) {
    if (shape.fusion.topk_weights) sum *= static_cast<double>(weight(args, shape, row));
    result.as<float>()[row * args.n + column] = static_cast<float>(sum);
  });
  return result;
}

}  // namespace moetune
