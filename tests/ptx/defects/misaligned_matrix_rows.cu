// Rows of an ldmatrix lie 20 bytes apart.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(const unsigned* in, unsigned* out) {
  __shared__ __align__(16) unsigned tile[64];
  for (int i = threadIdx.x; i < 64; i += 32) tile[i] = in[i];
  __syncthreads();
  unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(tile)) + (threadIdx.x % 8) * (mended ? 16 : 20), x;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(x) : "r"(from) : "memory");  // here
  out[threadIdx.x] = x;
}

template __global__ void kernel<false>(const unsigned* in, unsigned* out);
template __global__ void kernel<true>(const unsigned* in, unsigned* out);
