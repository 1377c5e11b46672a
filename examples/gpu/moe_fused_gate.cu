#include <cfloat>
#include <climits>

#include "kernels.h"

namespace {

constexpr int warp_size = 32;
constexpr unsigned all_lanes = 0xffffffffu;
constexpr int warps_per_block = 4;
constexpr int max_experts = 1024, max_groups = warp_size;

struct Candidate {
  float key;
  int expert;
};

/// Ties go to the lower index.
__device__ bool better(Candidate a, Candidate b) {
  return a.key > b.key || (a.key == b.key && a.expert < b.expert);
}

/// The best of the warp's candidates, in every lane.
__device__ Candidate best_of_warp(Candidate mine) {
  for (int offset = warp_size / 2; offset > 0; offset /= 2) {
    const Candidate other{__shfl_xor_sync(all_lanes, mine.key, offset), __shfl_xor_sync(all_lanes, mine.expert, offset)};
    if (better(other, mine)) mine = other;
  }
  return mine;
}

/// Bit g: group g is kept. Lane g ranks group g by the sum of its two best keys, ties to the lower index.
__device__ unsigned groups_kept(const float* keys, int experts, int groups, int kept) {
  const int lane = threadIdx.x % warp_size, members = experts / groups;
  float sum = -INFINITY;
  if (lane < groups) {
    float first = -FLT_MAX, second = -FLT_MAX;
    for (int m = 0; m < members; ++m) {
      const float key = keys[lane * members + m];
      second = fmaxf(second, fminf(first, key));
      first = fmaxf(first, key);
    }
    sum = first + second;
  }
  int rank = 0;
  for (int g = 0; g < groups; ++g) {
    const float other = __shfl_sync(all_lanes, sum, g);
    if (other > sum || (other == sum && g < lane)) ++rank;
  }
  return __ballot_sync(all_lanes, lane < groups && rank < kept);
}

/// A warp works on a token. Lane l looks after the experts l, l + 32, l + 64...
template <bool bug>
__global__ void moe_fused_gate_kernel(const float* logits, const float* bias, float* weights, int* ids, int rows, int experts, int groups,
                                      int kept_groups, int chosen) {
  extern __shared__ float shared[];
  const int lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  const int row = blockIdx.x * warps_per_block + warp;
  if (row >= rows) return;
  float* const scores = shared + warp * 2 * experts;
  float* const keys = scores + experts;
  for (int e = lane; e < experts; e += warp_size) {
    const float score = 1.0f / (1.0f + expf(-logits[static_cast<size_t>(row) * experts + e]));
    const float key = score + bias[e];
    scores[e] = bug ? key : score;
    keys[e] = isnan(key) ? -INFINITY : key;
  }
  __syncwarp();
  const unsigned kept = groups_kept(keys, experts, groups, kept_groups);

  const int members = experts / groups;
  unsigned taken = 0;  // bit i: expert lane + 32 * i
  float sum = 0.0f;
  for (int k = 0; k < chosen; ++k) {
    Candidate mine{-INFINITY, INT_MAX};
    for (int e = lane, i = 0; e < experts; e += warp_size, ++i) {
      const Candidate candidate{keys[e], e};
      if ((kept >> (e / members) & 1) != 0 && (taken >> i & 1) == 0 && better(candidate, mine)) mine = candidate;
    }
    const int expert = best_of_warp(mine).expert;
    if (expert % warp_size == lane) taken |= 1u << (expert / warp_size);
    if (lane == 0) ids[static_cast<size_t>(row) * chosen + k] = expert;
    sum += scores[expert];
  }
  __syncwarp();
  for (int k = lane; k < chosen; k += warp_size) {
    const size_t at = static_cast<size_t>(row) * chosen + k;
    weights[at] = scores[ids[at]] / sum;
  }
}

}  // namespace

cudaError_t moe_fused_gate(const float* logits, const float* bias, float* weights, int* ids, int rows, int experts, int groups,
                           int kept_groups, int chosen, bool bug, cudaStream_t stream) {
  if (rows < 0 || groups <= 0 || groups > max_groups || experts <= 0 || experts > max_experts || experts % groups != 0)
    return cudaErrorInvalidValue;
  if (kept_groups <= 0 || kept_groups > groups || chosen <= 0 || chosen > kept_groups * (experts / groups)) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  const int blocks = (rows + warps_per_block - 1) / warps_per_block;
  const auto kernel = bug ? moe_fused_gate_kernel<true> : moe_fused_gate_kernel<false>;
  kernel<<<blocks, warps_per_block * warp_size, warps_per_block * 2 * experts * sizeof(float), stream>>>(
      logits, bias, weights, ids, rows, experts, groups, kept_groups, chosen);
  return cudaGetLastError();
}
