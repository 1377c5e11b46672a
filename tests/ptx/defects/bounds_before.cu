// A window reaches in front of the first element.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(const float* in, float* out) {
  const int i = static_cast<int>(threadIdx.x) - 1;
  out[threadIdx.x] = mended && i < 0 ? 0.0f : in[i];  // here
}

template __global__ void kernel<false>(const float* in, float* out);
template __global__ void kernel<true>(const float* in, float* out);
