// Two warps write their sum to one place.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(float* out) {
  __shared__ float sum[2];
  if (threadIdx.x % 32 == 0) sum[mended ? threadIdx.x / 32 : 0] = threadIdx.x + 1.0f;  // here
  __syncthreads();
  if (threadIdx.x == 0) out[0] = mended ? sum[0] + sum[1] : sum[0];
}

template __global__ void kernel<false>(float* out);
template __global__ void kernel<true>(float* out);
