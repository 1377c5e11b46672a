#include "ops/base/ftz_rows.h"

#include "simd/f32x16.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::FtzOperation;
using ops::FtzRow;

constexpr std::int32_t smallest_normal = 0x00800000;

DODONA_INLINE i32x16 magnitude_bits(f32x16 x) {
  return as_i32(x) & i32x16::splat(0x7FFFFFFF);
}
DODONA_INLINE f32x16 flushed(f32x16 x) {
  return select(magnitude_bits(x) < i32x16::splat(smallest_normal), sign_of(x), x);
}

template <FtzOperation operation>
void run(const FtzRow& row) {
  constexpr bool fused = operation == FtzOperation::fma;
  for (std::int64_t i = 0; i < row.n; i += 16) {
    const std::int64_t left = row.n - i;
    const f32x16 x = f32x16::load_partial(row.x + i, left), y = f32x16::load_partial(row.y + i, left);
    const f32x16 z = fused ? f32x16::load_partial(row.z + i, left) : f32x16::zero();
    const f32x16 a = flushed(x), b = flushed(y);
    const f32x16 result = operation == FtzOperation::mul ? a * b : operation == FtzOperation::add ? a + b : fma(a, b, flushed(z));
    if (operation != FtzOperation::add && any(magnitude_bits(result) == i32x16::splat(smallest_normal))) {
      row.one_by_one(operation, row.x + i, row.y + i, fused ? row.z + i : nullptr, lanes_left(left), row.to + i);
    } else {
      canonical_nan(flushed(result)).store_partial(row.to + i, left);
    }
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void FtzRowKernel::run(const FtzRow& row) {
  switch (row.operation) {
    case FtzOperation::mul: return DODONA_TIER::run<FtzOperation::mul>(row);
    case FtzOperation::add: return DODONA_TIER::run<FtzOperation::add>(row);
    case FtzOperation::fma: return DODONA_TIER::run<FtzOperation::fma>(row);
  }
}
template void FtzRowKernel::run<tier::DODONA_TIER>(const FtzRow&);

}  // namespace dodona::ops
