// A split adds to an output that was allocated and not cleared.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(const float* in, float* out) {
  if (mended) out[threadIdx.x] = 0.0f;
  out[threadIdx.x] += in[threadIdx.x];  // here
}

template __global__ void kernel<false>(const float* in, float* out);
template __global__ void kernel<true>(const float* in, float* out);
