// Half of a warp waits at a barrier in a branch, the other half goes on to another.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = threadIdx.x;
  if (mended || threadIdx.x % 2 == 0) {
    __syncthreads();  // here
    out[threadIdx.x] = tile[63 - threadIdx.x];
  } else {
    out[threadIdx.x] = 0.0f;
    asm volatile("bar.sync 1;" ::: "memory");
  }
}

template __global__ void kernel<false>(float* out);
template __global__ void kernel<true>(float* out);
