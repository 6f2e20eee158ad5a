// Chooses experts from a router's logits: scores, the top_k of each token and their weights, by one warp a token.
#pragma once
#include "numbers.cuh"
#include "service/warp.cuh"

namespace moetune {

// A router's logits [tokens, experts].
struct Logits {
  enum Type { of_bf16, of_fp16, of_fp32 };  // as src/runtime/library.cpp counts them
  const void* at;
  int type;
  __device__ __forceinline__ float operator[](long long i) const {
    return type == of_bf16   ? to_float(static_cast<const bf16*>(at)[i])
           : type == of_fp16 ? to_float(static_cast<const fp16*>(at)[i])
                             : to_float(static_cast<const fp32*>(at)[i]);
  }
};

__device__ __forceinline__ float least() { return __uint_as_float(0xff800000u); }

// Larger for larger numbers. NaN is least, so that a token has top_k experts whatever its logits are; 0 is left out.
__device__ __forceinline__ unsigned order_of(float value) {
  const unsigned bits = __float_as_uint(value + 0.0f);  // -0 is 0
  return value != value ? 1 : bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float value_of(unsigned order) {
  return order <= 1 ? least() : __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

// A token's experts in shared memory. Each lane has every 32nd; only scores that were chosen are read by others.
struct Candidates {
  static constexpr int most = 1024;
  float score[most];
  unsigned order[most];  // by what they are chosen; 0: no more
};

// All lanes of a warp call its functions with the same arguments.
struct ChoiceOfToken {
  Candidates& of;
  const int experts, lane = threadIdx.x % 32;

  // Makes scores, and returns what they are to be divided by. Without a bias logits are compared: they are in the order
  // of their scores, and not equal where scores underflow.
  __device__ __forceinline__ float begin(const Logits& logits, long long token, const float* bias, bool sigmoid) {
    float most = least(), sum = 0;
    for (int e = lane; e < experts; e += 32) {
      const float logit = of.score[e] = logits[token * experts + e];
      of.order[e] = order_of(logit);
      most = fmaxf(most, logit);
    }
    most = value_of(warp_max(order_of(most)));
    for (int e = lane; e < experts; e += 32) {
      const float logit = of.score[e], score = sigmoid ? 1 / (1 + expf(-logit)) : expf(logit - most);
      of.score[e] = score;
      sum += score;
    }
    const float whole = sigmoid ? 1 : warp_sum(sum);
    if (bias)
      for (int e = lane; e < experts; e += 32) of.order[e] = order_of(of.score[e] / whole + bias[e]);
    return whole;
  }

  struct Found {
    unsigned order;
    int expert;
  };
  // The largest of experts [first, end) but one; of equal ones the first.
  __device__ __forceinline__ Found largest(int first, int end, int left_out = -1) const {
    unsigned most = 0;
    int mine = -1;
#pragma unroll 4
    for (int e = first + ((lane - first) & 31); e < end; e += 32)
      if (e != left_out && (mine < 0 || of.order[e] > most)) most = of.order[e], mine = e;
    const unsigned all = warp_max(most);
    const unsigned place = mine >= 0 && most == all ? ~static_cast<unsigned>(mine) : 0;  // the first is the largest
    return {all, static_cast<int>(~warp_max(place))};
  }

  // Leaves out all experts but those of the top groups. A group counts by its largest expert, with a bias by the sum of
  // its two largest (DeepSeek-V2, arXiv 2405.04434; -V3, arXiv 2412.19437).
  __device__ __forceinline__ void keep_groups(int groups, int top_groups, bool by_two) {
    const int size = experts / groups;
    unsigned mine = 0;  // of the group `lane`
    for (int g = 0; g < groups; ++g) {
      const Found first = largest(g * size, (g + 1) * size);
      float value = value_of(first.order);
      if (by_two && size > 1) value += value_of(largest(g * size, (g + 1) * size, first.expert).order);
      if (lane == g) mine = order_of(value);
    }
    unsigned kept = 0;  // a bit a group
    for (int g = 0; g < top_groups; ++g) {
      const int group = __ffs(__ballot_sync(~0u, mine == warp_max(mine))) - 1;
      kept |= 1u << group;
      if (lane == group) mine = 0;
    }
    for (int e = lane; e < experts; e += 32)
      if (!(kept >> e / size & 1)) of.order[e] = 0;
  }
};

}  // namespace moetune

// weights and ids [tokens, top_k], in the order of the choice, from logits [tokens, experts] of a type of Logits.
// Scores are sigmoids of the logits, or their softmax; with `renormalises` a token's weights add up to `scale`, the
// bits of a float. A bias [experts], where not null, counts in the choice alone. Only experts of the top groups of
// neighbours are chosen. At most Candidates::most experts, 32 groups and a top_k of 32; blocks of 128 threads.
extern "C" __global__ void __launch_bounds__(128)
    choose(float* weights, int* ids, const void* logits, const float* bias, int type, int tokens, int experts,
           int top_k, int sigmoid, int renormalises, int scale, int groups, int top_groups) {
  using namespace moetune;
  follow_any();
  __shared__ Candidates of_warp[4];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Logits in = {logits, type};
  for (int token = blockIdx.x * 4 + warp; token < tokens; token += gridDim.x * 4) {
    Candidates& of = of_warp[warp];
    ChoiceOfToken choice = {of, experts};
    const float whole = choice.begin(in, token, bias, sigmoid != 0);
    if (groups > 1) choice.keep_groups(groups, top_groups, bias != nullptr);
    int id = 0;
    for (int k = 0; k < top_k; ++k) {
      const int found = choice.largest(0, experts).expert;
      if (found % 32 == lane) of.order[found] = 0;
      if (lane == k) id = found;
    }
    __syncwarp();
    const float weight = lane < top_k ? of.score[id] / whole : 0, all = warp_sum(weight);
    __syncwarp();  // the next token's scores may be written
    if (lane >= top_k) continue;
    weights[static_cast<long long>(token) * top_k + lane] =
        weight * __int_as_float(scale) / (renormalises ? all + 1e-20f : 1);
    ids[static_cast<long long>(token) * top_k + lane] = id;
  }
}
