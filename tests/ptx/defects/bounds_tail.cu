// The last block runs past the end of the input.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (mended && i >= n) return;
  const float x = static_cast<const volatile float*>(in)[i];  // here
  if (i < n) out[i] = x;
}

template __global__ void kernel<false>(const float* in, float* out, int n);
template __global__ void kernel<true>(const float* in, float* out, int n);
