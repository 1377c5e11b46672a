#include "ops/rows/norms/layernorm_row.h"

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

/// Sum of term(element) over the row, in 128 chains and a tree; lanes beyond the row count 0.
template <class Term>
DODONA_INLINE float sum(const ops::LayernormRow& row, const Term& term) {
  f32x16 chains[8];
#pragma GCC unroll 8
  for (f32x16& chain : chains) chain = f32x16::zero();
  std::int64_t i = 0;
  for (; i + 128 <= row.n; i += 128) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) chains[k] = chains[k] + term(Bf16Lanes::load(at<Bf16Lanes>(row.input, i + 16 * k)));
  }
  for (int k = 0; i < row.n; i += 16, ++k) {
    float terms[16];
    term(Bf16Lanes::load_partial(at<Bf16Lanes>(row.input, i), row.n - i)).store(terms);
    chains[k] = chains[k] + f32x16::load_partial(terms, row.n - i);
  }
#pragma GCC unroll 3
  for (int step = 4; step > 0; step /= 2) {
#pragma GCC unroll 4
    for (int k = 0; k < step; ++k) chains[k] = chains[k] + chains[k + step];
  }
  return reduce_add(chains[0]);
}

void layernorm_row(const ops::LayernormRow& row) {
  const auto n = static_cast<float>(row.n);
  const f32x16 mean = f32x16::splat(sum(row, [](f32x16 x) { return x; }) / n);
  const float variance = sum(row, [&](f32x16 x) { return (x - mean) * (x - mean); }) / n;
  const f32x16 factor = f32x16::splat(1.0f / __builtin_sqrtf(variance + row.eps));
  for (std::int64_t i = 0; i < row.n; i += 16) {
    const std::int64_t left = row.n - i;
    const f32x16 x = Bf16Lanes::load_partial(at<Bf16Lanes>(row.input, i), left);
    const f32x16 gemma = f32x16::load_partial(row.gemma + i, left), beta = f32x16::load_partial(row.beta + i, left);
    Bf16Lanes::store_partial(fma((x - mean) * factor, gemma, beta), at<Bf16Lanes>(row.out, i), left);
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void LayernormRowKernel::run(const LayernormRow& row) {
  DODONA_TIER::layernorm_row(row);
}
template void LayernormRowKernel::run<tier::DODONA_TIER>(const LayernormRow&);

}  // namespace dodona::ops
