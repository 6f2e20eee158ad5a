// What the baseline adds to the plain product: rounding and storing.
#include "backend/cpu/baseline.h"

namespace moetune {
namespace {

void store(Dtype dtype, void* y, int64_t index, float value) {
  if (dtype == Dtype::fp32) static_cast<float*>(y)[index] = value;
  if (dtype == Dtype::bf16) static_cast<uint16_t*>(y)[index] = to_bf16(value);
  if (dtype == Dtype::fp16) static_cast<uint16_t*>(y)[index] = to_fp16(value);
}

}  // namespace

void loop_baseline(const Args& args, const Shape& shape, ThreadPool& pool, PlainWorkspace<float>& workspace) {
  const Dtype dtype = shape.layer.dtype;
  const Fusion fusion = shape.fusion;
  plain_gemm<float>(args, shape, pool, workspace, [&](int64_t row, int64_t column, float sum) {
    if (fusion.topk_weights) sum = round_to(dtype, sum) * round_to(dtype, args.topk_weights[args.gather_indices[row]]);
    store(dtype, args.y, (fusion.permute_y ? args.gather_indices[row] : row) * args.n + column, sum);
  });
}

}  // namespace moetune
