// The tile is read before the asynchronous copy into it was waited for.
#include <cuda_runtime_api.h>

template <bool mended>
__global__ void kernel(const float4* in, float4* out) {
  __shared__ float4 tile[64];
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&tile[threadIdx.x]));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + threadIdx.x) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  if (mended) asm volatile("cp.async.wait_group 0;" ::: "memory");
  out[threadIdx.x] = tile[threadIdx.x];  // here
}

template __global__ void kernel<false>(const float4* in, float4* out);
template __global__ void kernel<true>(const float4* in, float4* out);
