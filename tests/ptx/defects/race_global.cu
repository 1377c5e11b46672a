// Threads of a block leave their result in one element of the output.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(int* out) {
  out[mended ? threadIdx.x : threadIdx.x / 40] = threadIdx.x;  // here
}

template __global__ void kernel<false>(int* out);
template __global__ void kernel<true>(int* out);
