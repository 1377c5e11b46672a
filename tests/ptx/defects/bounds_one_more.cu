// A loop runs one round too many, and writes behind the row.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(float* out, int n) {
  for (int i = threadIdx.x; mended ? i < n : i <= n; i += blockDim.x) out[i] = 1.0f;  // here
}

template __global__ void kernel<false>(float* out, int n);
template __global__ void kernel<true>(float* out, int n);
