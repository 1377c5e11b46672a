#include "ops/draws/softmax_row.h"

#include "simd/math.h"
#include "simd/registers.h"
#include "simd/stream.h"

namespace dodona::DODONA_TIER {
namespace {

/// Exponentials are taken below the largest of their part, so that each is computed once: parts are brought to the row's largest at the
/// end.
constexpr std::int64_t part = 1024;
constexpr std::int64_t most_parts = 4096;

struct Part {
  float most, sum;
};

Part exponentials(const float* logits, std::int64_t n, f32x16 factor, float* to) {
  const f32x16 lowest = f32x16::splat(-3.4028234663852886e38f);
  f32x16 largest[4] = {lowest, lowest, lowest, lowest};  // the second operand of max stays where the first is NaN
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    DODONA_UNROLL(4)
    for (int turn = 0; turn < 4; ++turn) largest[turn] = max(f32x16::load(logits + i + 16 * turn) * factor, largest[turn]);
  }
  for (; i < n; i += 16) {
    const f32x16 x = f32x16::load_partial(logits + i, n - i) * factor;
    largest[0] = max(select(mask16::first(n - i), x, lowest), largest[0]);
  }
  const float most = reduce_max(max(max(largest[0], largest[1]), max(largest[2], largest[3])));
  f32x16 sums[4] = {f32x16::zero(), f32x16::zero(), f32x16::zero(), f32x16::zero()};
  for (i = 0; i + 64 <= n; i += 64) {
    DODONA_UNROLL(4)
    for (int turn = 0; turn < 4; ++turn) {
      // The next part: a prefetch beyond the row faults nowhere.
      __builtin_prefetch(logits + i + 16 * turn + part);
      const f32x16 e = exp(f32x16::load(logits + i + 16 * turn) * factor - f32x16::splat(most));
      e.store(to + i + 16 * turn);
      sums[turn] = sums[turn] + e;
    }
  }
  for (int turn = 0; i < n; i += 16, ++turn) {
    const f32x16 e = exp(f32x16::load_partial(logits + i, n - i) * factor - f32x16::splat(most));
    e.store_partial(to + i, n - i);
    sums[turn] = sums[turn] + select(mask16::first(n - i), e, f32x16::zero());
  }
  return {most, reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]))};
}

void scale(const float* from, std::int64_t n, f32x16 factor, bool streamed, float* to) {
  std::int64_t i = 0;
  if (streamed)
    for (; i + 16 <= n; i += 16) stream(as_i32(canonical_nan(f32x16::load(from + i) * factor)), to + i);
  for (; i + 16 <= n; i += 16) canonical_nan(f32x16::load(from + i) * factor).store(to + i);
  if (i < n) canonical_nan(f32x16::load_partial(from + i, n - i) * factor).store_partial(to + i, n - i);
}

float exp_of(float x) {
  float lanes[16];
  exp(f32x16::splat(x)).store(lanes);
  return lanes[0];
}

void softmax_row(const ops::SoftmaxRow& row) {
  const f32x16 factor = f32x16::splat(row.factor);
  // Rows of more parts than that have longer ones.
  const std::int64_t length = row.n <= part * most_parts ? part : (row.n / most_parts / 16 + 1) * 16;
  Part parts[most_parts];
  const std::int64_t count = (row.n + length - 1) / length;
  float most = -3.4028234663852886e38f, sum = 0;
  for (std::int64_t p = 0; p < count; ++p) {
    const std::int64_t begin = p * length, n = row.n - begin < length ? row.n - begin : length;
    parts[p] = exponentials(row.logits + begin, n, factor, row.exps + begin);
    if (parts[p].most > most) {
      sum = sum * exp_of(most - parts[p].most);
      most = parts[p].most;
    }
    sum = sum + parts[p].sum * exp_of(parts[p].most - most);
  }
  const bool streamed = row.streamed && reinterpret_cast<std::uintptr_t>(row.output) % 64 == 0;
  for (std::int64_t p = 0; p < count; ++p) {
    const std::int64_t begin = p * length, n = row.n - begin < length ? row.n - begin : length;
    scale(row.exps + begin, n, f32x16::splat(exp_of(parts[p].most - most) / sum), streamed, row.output + begin);
  }
  if (streamed) stream_end();
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void SoftmaxRowKernel::run(const SoftmaxRow& row) {
  DODONA_TIER::softmax_row(row);
}
template void SoftmaxRowKernel::run<tier::DODONA_TIER>(const SoftmaxRow&);

}  // namespace dodona::ops
