#include <algorithm>

#include "kernels.h"

namespace {

constexpr int warp_size = 32;
constexpr int max_threads = 1024;
constexpr int lanes = 8;          // bf16 values in the widest load
constexpr int max_width = 12000;  // of what fits into 48 KiB of shared memory, with 32 numbers to spare

struct alignas(16) Pack {
  __nv_bfloat16 value[lanes];
};

__device__ float sum_over_warp(float x) {
  for (int offset = warp_size / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

/// The sum over the block, in every thread of it.
__device__ float sum_over_block(float x) {
  __shared__ float of_warp[warp_size];
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  x = sum_over_warp(x);
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();
  return sum_over_warp(lane < blockDim.x / warp_size ? of_warp[lane] : 0.0f);
}

/// A block works on a row. It keeps the sum in shared memory, as fp32: what the residual stores of it is rounded.
template <bool bug>
__global__ void fused_add_rmsnorm_kernel(Pack* input, Pack* residual, const Pack* weight, int packs, float eps) {
  extern __shared__ float h[];  // value i of pack p at i * packs + p: neighbours in a warp are neighbours here
  Pack* const x = input + static_cast<size_t>(blockIdx.x) * packs;
  Pack* const r = residual + static_cast<size_t>(blockIdx.x) * packs;
  float squares = 0.0f;
  for (int p = threadIdx.x; p < packs; p += blockDim.x) {
    const Pack added = x[p];
    Pack stream = r[p];
    for (int i = 0; i < lanes; ++i) {
      float sum = __bfloat162float(added.value[i]) + __bfloat162float(stream.value[i]);
      stream.value[i] = __float2bfloat16_rn(sum);
      if (bug) sum = __bfloat162float(stream.value[i]);
      squares = fmaf(sum, sum, squares);
      h[i * packs + p] = sum;
    }
    r[p] = stream;
  }
  const float factor = rsqrtf(sum_over_block(squares) / static_cast<float>(packs * lanes) + eps);
  for (int p = threadIdx.x; p < packs; p += blockDim.x) {
    const Pack w = weight[p];
    Pack y;
    for (int i = 0; i < lanes; ++i) y.value[i] = __float2bfloat16_rn(h[i * packs + p] * factor * __bfloat162float(w.value[i]));
    x[p] = y;
  }
}

}  // namespace

cudaError_t fused_add_rmsnorm(__nv_bfloat16* input, __nv_bfloat16* residual, const __nv_bfloat16* weight, int rows, int width, float eps,
                              bool bug, cudaStream_t stream) {
  if (rows < 0 || width <= 0 || width % lanes != 0 || width > max_width) return cudaErrorInvalidValue;
  if (rows == 0) return cudaSuccess;
  const int packs = width / lanes;
  const int threads = (std::min(max_threads, packs) + warp_size - 1) / warp_size * warp_size;
  const auto kernel = bug ? fused_add_rmsnorm_kernel<true> : fused_add_rmsnorm_kernel<false>;
  kernel<<<rows, threads, width * sizeof(float), stream>>>(reinterpret_cast<Pack*>(input), reinterpret_cast<Pack*>(residual),
                                                           reinterpret_cast<const Pack*>(weight), packs, eps);
  return cudaGetLastError();
}
