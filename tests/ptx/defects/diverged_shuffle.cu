// A shuffle names all lanes, and only some of them are there.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(const float* in, float* out) {
  float x = in[threadIdx.x];
  if (mended || threadIdx.x < 20) x += __shfl_xor_sync(0xffffffffu, x, 16);  // here
  out[threadIdx.x] = x;
}

template __global__ void kernel<false>(const float* in, float* out);
template __global__ void kernel<true>(const float* in, float* out);
