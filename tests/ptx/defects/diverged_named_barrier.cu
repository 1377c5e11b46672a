// A named barrier expects 64 threads, and one warp comes.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = threadIdx.x;
  if (mended || threadIdx.x < 32) asm volatile("bar.sync 1, 64;" ::: "memory");  // here
  out[threadIdx.x] = tile[threadIdx.x];
}

template __global__ void kernel<false>(float* out);
template __global__ void kernel<true>(float* out);
