// Accumulators are stored before the tensor core was waited for.
#include <cuda_runtime_api.h>

__device__ unsigned long long descriptor(const void* tile) {  // no swizzle: cores of 8 rows of 16 bytes
  const unsigned long long address = __cvta_generic_to_shared(tile);
  return ((address & 0x3FFFF) >> 4) | (8ull << 16) | (16ull << 32);
}
#define MULTIPLY(a, b)                                                                                                           \
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"                      \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                                    \
               : "l"(descriptor(a)), "l"(descriptor(b))                                                                            \
               : "memory")

template <bool mended>
__global__ void kernel(const unsigned* in, float* out) {
  __shared__ __align__(128) unsigned a[512], b[64];
  for (int i = threadIdx.x; i < 512; i += 128) a[i] = in[i];
  if (threadIdx.x < 64) b[threadIdx.x] = in[threadIdx.x];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = out[4 * threadIdx.x + i];
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  MULTIPLY(a, b);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  if (mended) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];  // here
}

template __global__ void kernel<false>(const unsigned* in, float* out);
template __global__ void kernel<true>(const unsigned* in, float* out);
