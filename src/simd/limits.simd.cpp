#include "simd/limits.h"

#include "simd/dot_i8.h"
#include "simd/f32x16.h"
#include "simd/stream.h"

namespace dodona {
namespace DODONA_TIER {
/// Accumulators of sixteen lanes that fit in this tier's registers with room for two operands.
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni || DODONA_TIER_generic
inline constexpr int float_chains = 16, integer_chains = 12;
#else
inline constexpr int float_chains = 6, integer_chains = 4;
#endif
}  // namespace DODONA_TIER

template <class Tier>
std::int64_t LimitKernel::run(const void* data, std::int64_t bytes) {
  using namespace DODONA_TIER;
  const auto* p = static_cast<const std::int32_t*>(data);
  i32x16 a = i32x16::zero(), b = a, c = a, d = a;
  for (std::int64_t i = 0; i + 64 <= bytes / 4; i += 64) {
    __builtin_prefetch(p + i + 1024);
    __builtin_prefetch(p + i + 1040);
    __builtin_prefetch(p + i + 1056);
    __builtin_prefetch(p + i + 1072);
    a = a + i32x16::load(p + i);
    b = b + i32x16::load(p + i + 16);
    c = c + i32x16::load(p + i + 32);
    d = d + i32x16::load(p + i + 48);
  }
  std::int32_t lanes[16];
  ((a + b) + (c + d)).store(lanes);
  std::int64_t sum = 0;
  for (const std::int32_t lane : lanes) sum += lane;
  return sum;
}
template std::int64_t LimitKernel::run<tier::DODONA_TIER>(const void*, std::int64_t);

template <class Tier>
void StreamCopyLimitKernel::run(const void* from, void* to, std::int64_t bytes) {
  using namespace DODONA_TIER;
  const auto* p = static_cast<const std::int32_t*>(from);
  auto* q = static_cast<std::int32_t*>(to);
  for (std::int64_t i = 0; i < bytes / 4; i += 16) stream(i32x16::load(p + i), q + i);
  stream_end();
}
template void StreamCopyLimitKernel::run<tier::DODONA_TIER>(const void*, void*, std::int64_t);

template <class Tier>
void UpdateLimitKernel::run(void* data, std::int64_t bytes) {
  using namespace DODONA_TIER;
  auto* p = static_cast<std::int32_t*>(data);
  const i32x16 one = i32x16::splat(1);
  for (std::int64_t i = 0; i < bytes / 4; i += 16) (i32x16::load(p + i) + one).store(p + i);
}
template void UpdateLimitKernel::run<tier::DODONA_TIER>(void*, std::int64_t);

template <class Tier>
float FmaLimitKernel::run(std::int64_t rounds) {
  using namespace DODONA_TIER;
  constexpr int chains = float_chains;
  f32x16 acc[16];
  for (auto& x : acc) x = f32x16::splat(1.0f);
  const f32x16 factor = f32x16::splat(0.999f), term = f32x16::splat(0.001f);
  for (std::int64_t r = 0; r < rounds * 16; r += chains)
    for (int k = 0; k < chains; ++k) acc[k] = fma(acc[k], factor, term);
  f32x16 sum = acc[0];
  for (int k = 1; k < 16; ++k) sum = sum + acc[k];
  return reduce_add(sum);
}
template float FmaLimitKernel::run<tier::DODONA_TIER>(std::int64_t);

template <class Tier>
std::int64_t DotLimitKernel::run(std::int64_t rounds) {
  using namespace DODONA_TIER;
  constexpr int chains = integer_chains;
  std::int32_t a[16];
  i32x16::splat(0x01020304).store(a);
  // Read anew each time, as in a kernel. Otherwise the compiler would make the same products, or the same sums, only once.
  const auto read = [&a] {
    asm volatile("" : : "r"(a) : "memory");
    return i32x16::load(a);
  };
  // Unrolled from the start: sums that are addressed by a variable would live in memory, and the limit would be that of stores.
  i32x16 acc[chains];
#pragma GCC unroll 12
  for (int k = 0; k < chains; ++k) acc[k] = read();
  const i32x16 b = i32x16::splat(0x01FF0201);
  for (std::int64_t r = 0; r < rounds * 12; r += chains) {
#pragma GCC unroll 12
    for (int k = 0; k < chains; ++k) acc[k] = dpbusd_small(acc[k], read(), b);
  }
  i32x16 sum = acc[0];
#pragma GCC unroll 12
  for (int k = 1; k < chains; ++k) sum = sum + acc[k];
  std::int32_t lanes[16];
  sum.store(lanes);
  std::int64_t total = 0;
  for (const std::int32_t lane : lanes) total += lane;
  return total;
}
template std::int64_t DotLimitKernel::run<tier::DODONA_TIER>(std::int64_t);

}  // namespace dodona
