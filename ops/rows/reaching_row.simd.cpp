#include "ops/rows/reaching_row.h"

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {
namespace {

/// As score_order, but NaNs of positive sign below the others: no bound lies among them.
DODONA_INLINE mask16 below(f32x16 scores, std::int32_t least) {
  const i32x16 bits = as_i32(scores);
  const i32x16 rising = bits ^ (sra<31>(bits) & i32x16::splat(0x7FFFFFFF));
  return rising - i32x16::splat(0x7FFFFF) < i32x16::splat(least);
}

DODONA_INLINE std::int64_t take(std::uint32_t reaching, std::int64_t first, std::int32_t* positions, std::int64_t count) {
  for (; reaching != 0; reaching &= reaching - 1) positions[count++] = static_cast<std::int32_t>(first + __builtin_ctz(reaching));
  return count;
}

std::int64_t reaching(const ops::ReachingRow& row) {
  std::int64_t count = 0, i = 0;
  // Two vectors at a time: most hold nothing.
  for (; i + 32 <= row.n; i += 32) {
    const std::uint32_t low = below(f32x16::load(row.scores + i), row.least).bits(),
                        high = below(f32x16::load(row.scores + i + 16), row.least).bits();
    count = take(~(low | high << 16), i, row.positions, count);
  }
  for (; i < row.n; i += 16) {
    const mask16 found = ~below(f32x16::load_partial(row.scores + i, row.n - i), row.least) & mask16::first(row.n - i);
    count = take(found.bits(), i, row.positions, count);
  }
  return count;
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
std::int64_t ReachingRowKernel::run(const ReachingRow& row) {
  return DODONA_TIER::reaching(row);
}
template std::int64_t ReachingRowKernel::run<tier::DODONA_TIER>(const ReachingRow&);

}  // namespace dodona::ops
