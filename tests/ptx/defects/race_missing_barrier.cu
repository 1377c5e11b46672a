// A thread reads what its neighbour in another warp wrote, with no barrier between.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = threadIdx.x * 2.0f;
  if (mended) __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];  // here
}

template __global__ void kernel<false>(float* out);
template __global__ void kernel<true>(float* out);
