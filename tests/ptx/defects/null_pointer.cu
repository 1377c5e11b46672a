// An optional bias is added without asking whether there is one.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(const float* in, const float* bias, float* out) {
  const float x = in[threadIdx.x];
  out[threadIdx.x] = mended && bias == nullptr ? x : x + bias[threadIdx.x];  // here
}

template __global__ void kernel<false>(const float* in, const float* bias, float* out);
template __global__ void kernel<true>(const float* in, const float* bias, float* out);
