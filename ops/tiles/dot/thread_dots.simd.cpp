#include "ops/tiles/dot/thread_dots.h"

#include "simd/convert.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {
namespace {

constexpr int vectors = static_cast<int>(ops::dot_threads) / 16;

int deal(const ops::ThreadRow& row) {
  constexpr std::int32_t most = 0x7FFFFFFF, smallest_normal = 0x00800000;
  i32x16 smallest = i32x16::splat(most);
  for (std::int64_t turn = 0; turn < row.k; turn += ops::dot_turn)
    for (std::int64_t warp = 0; warp < ops::dot_threads; warp += 32) {
      f32x16 block[16];  // two threads a row
      DODONA_UNROLL(16)
      for (int i = 0; i < 16; ++i) {
        const f32x16 x = load_bf16(row.codes + turn + warp * ops::dot_loaded + 16 * i);
        const i32x16 magnitude = as_i32(x) & i32x16::splat(most);
        const mask16 normal = ~(magnitude < i32x16::splat(smallest_normal));
        block[i] = select(normal, x, sign_of(x));
        smallest = select(normal, min(smallest, magnitude), smallest);
      }
      transpose(block);
      float* const to = row.values + turn + warp;
      DODONA_UNROLL(8)
      for (int u = 0; u < 8; ++u) {
        const f32x16_pair threads = interleave(block[u], block[u + 8]);
        threads.first.store(to + u * ops::dot_threads);
        threads.second.store(to + u * ops::dot_threads + 16);
      }
    }
  std::int32_t lanes[16], least = most;
  smallest.store(lanes);
  for (int i = 0; i < 16; ++i) least = lanes[i] < least ? lanes[i] : least;
  return least >> 23;
}

float thread_dot(const ops::ThreadDot& dot) {
  f32x16 sums[vectors];
  DODONA_UNROLL(8)
  for (int v = 0; v < vectors; ++v) sums[v] = f32x16::zero();
  for (std::int64_t at = 0; at < dot.steps * ops::dot_threads; at += ops::dot_threads) {
    DODONA_UNROLL(8)
    for (int v = 0; v < vectors; ++v) sums[v] = fma(f32x16::load(dot.x + at + 16 * v), f32x16::load(dot.w + at + 16 * v), sums[v]);
  }
  float total = 0;
  DODONA_UNROLL(4)
  for (int v = 0; v < vectors; v += 2) total = total + reduce_add(sums[v] + sums[v + 1]);
  return total;
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
int ThreadRowKernel::run(const ThreadRow& row) {
  return DODONA_TIER::deal(row);
}
template int ThreadRowKernel::run<tier::DODONA_TIER>(const ThreadRow&);

template <class Tier>
float ThreadDotKernel::run(const ThreadDot& dot) {
  return DODONA_TIER::thread_dot(dot);
}
template float ThreadDotKernel::run<tier::DODONA_TIER>(const ThreadDot&);

}  // namespace dodona::ops
