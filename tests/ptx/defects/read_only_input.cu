// A kernel normalises its input in place.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(float* in, float* out) {
  const float x = in[threadIdx.x] * 0.5f;
  (mended ? out : in)[threadIdx.x] = x;  // here
}

template __global__ void kernel<false>(float* in, float* out);
template __global__ void kernel<true>(float* in, float* out);
