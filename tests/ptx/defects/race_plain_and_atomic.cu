// One thread reads the counter while others add to it.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(int* out) {
  __shared__ int counter;
  if (threadIdx.x == 0) counter = 0;
  __syncthreads();
  atomicAdd(&counter, 1);
  if (mended) __syncthreads();
  if (threadIdx.x == 40) out[0] = counter;  // here
}

template __global__ void kernel<false>(int* out);
template __global__ void kernel<true>(int* out);
