// The last part of the tile is summed, and nobody filled it.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(const float* in, float* out, int n) {
  __shared__ float tile[64];
  if (mended || threadIdx.x < n) tile[threadIdx.x] = threadIdx.x < n ? in[threadIdx.x] : 0.0f;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x ^ 1];  // here
}

template __global__ void kernel<false>(const float* in, float* out, int n);
template __global__ void kernel<true>(const float* in, float* out, int n);
