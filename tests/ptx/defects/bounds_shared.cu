// A transposed index leaves the tile in shared memory.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(float* out) {
  __shared__ float tile[4][16];
  const int row = threadIdx.x / 16, column = threadIdx.x % 16;
  (&tile[0][0])[mended ? row * 16 + column : column * 16 + row] = threadIdx.x;  // here
  __syncthreads();
  out[threadIdx.x] = tile[row][column];
}

template __global__ void kernel<false>(float* out);
template __global__ void kernel<true>(float* out);
