#include "ops/rows/rotation/rotate.h"

#include "simd/convert.h"
#include "simd/tiny.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::RotaryRounding;
using ops::RotateHeads;

// Formats: element `load`s and `store`s of the next sixteen or, with n < 16, fewer; and the sixteen pairs of 32 neighbours.

/// Pairs by shuffling: for formats whose elements are not half a lane.
template <class Format>
struct ShuffledPairs {
  static DODONA_INLINE f32x16_pair load_pairs(const std::byte* p, std::int64_t n) {
    return deinterleave(Format::load(p, 2 * n), Format::load(p + 16 * Format::bytes, 2 * n - 16));
  }
  static DODONA_INLINE void store_pairs(f32x16_pair pairs, std::byte* p, std::int64_t n) {
    const f32x16_pair neighbours = interleave(pairs.first, pairs.second);
    Format::store(neighbours.first, p, 2 * n);
    Format::store(neighbours.second, p + 16 * Format::bytes, 2 * n - 16);
  }
};

struct F32 : ShuffledPairs<F32> {
  static constexpr int bytes = 4;
  static constexpr bool may_be_tiny = true;
  static DODONA_INLINE f32x16 load(const std::byte* p, std::int64_t n) {
    const auto* values = reinterpret_cast<const float*>(p);
    return n >= 16 ? f32x16::load(values) : f32x16::load_partial(values, n);
  }
  static DODONA_INLINE void store(f32x16 x, std::byte* p, std::int64_t n) {
    auto* values = reinterpret_cast<float*>(p);
    n >= 16 ? canonical_nan(x).store(values) : canonical_nan(x).store_partial(values, n);
  }
};

struct F16 : ShuffledPairs<F16> {
  static constexpr int bytes = 2;
  static constexpr bool may_be_tiny = false;  // its denormals are normal fp32
  static DODONA_INLINE f32x16 load(const std::byte* p, std::int64_t n) { return n >= 16 ? load_f16(p) : load_f16_partial(p, n); }
  static DODONA_INLINE void store(f32x16 x, std::byte* p, std::int64_t n) { n >= 16 ? store_f16(x, p) : store_f16_partial(x, p, n); }
  static DODONA_INLINE f32x16 round(f32x16 x) { return round_to_f16(x); }
};

struct Bf16 {
  static constexpr int bytes = 2;
  static constexpr bool may_be_tiny = true;
  static DODONA_INLINE f32x16 load(const std::byte* p, std::int64_t n) { return n >= 16 ? load_bf16(p) : load_bf16_partial(p, n); }
  static DODONA_INLINE void store(f32x16 x, std::byte* p, std::int64_t n) { n >= 16 ? store_bf16(x, p) : store_bf16_partial(x, p, n); }
  /// Of a product of two bf16 values. Its NaNs are theirs or the hardware's own, whose low halves are zero: they pass as they are.
  static DODONA_INLINE f32x16 round(f32x16 x) {
    const i32x16 u = as_i32(x), odd = shr<16>(u) & i32x16::splat(1);
    return as_f32((u + i32x16::splat(0x7FFF) + odd) & i32x16::splat(-0x10000));
  }
  // A pair is one lane: the first element in its low half, the second in its high half, where bf16 is fp32 already.
  static DODONA_INLINE f32x16_pair load_pairs(const std::byte* p, std::int64_t n) {
    const auto* lanes = reinterpret_cast<const std::int32_t*>(p);
    const i32x16 both = n >= 16 ? i32x16::load(lanes) : i32x16::load_partial(lanes, n);
    return {as_f32(shl<16>(both)), as_f32(both & i32x16::splat(-0x10000))};
  }
  static DODONA_INLINE void store_pairs(f32x16_pair pairs, std::byte* p, std::int64_t n) {
    const i32x16 both = to_bf16_codes(pairs.first) | shl<16>(to_bf16_codes(pairs.second));
    auto* lanes = reinterpret_cast<std::int32_t*>(p);
    n >= 16 ? both.store(lanes) : both.store_partial(lanes, n);
  }
};

struct RoundOnce {
  using Table = F32;
  static DODONA_INLINE f32x16_pair rotate(f32x16_pair x, f32x16 c, f32x16 s) {
    return {fms(x.first, c, x.second * s), fma(x.second, c, x.first * s)};
  }
  [[gnu::noinline]] static f32x16_pair rotate_tiny(f32x16_pair x, f32x16 c, f32x16 s) {
    const Enlarged u = Enlarged::of(x.first), v = Enlarged::of(x.second);
    Enlarged first, second;
    const bool right = multiply_add(u, c, -multiply(v, s), first) && multiply_add(v, c, multiply(u, s), second);
    return right ? f32x16_pair{first.reduced(), second.reduced()} : rotate(x, c, s);
  }
};

template <class Format>
struct RoundEachStep {
  using Table = Format;
  static DODONA_INLINE f32x16_pair rotate(f32x16_pair x, f32x16 c, f32x16 s) {
    return {Format::round(x.first * c) - Format::round(x.second * s), Format::round(x.second * c) + Format::round(x.first * s)};
  }
  [[gnu::noinline]] static f32x16_pair rotate_tiny(f32x16_pair x, f32x16 c, f32x16 s) {
    const Enlarged u = Enlarged::of(x.first), v = Enlarged::of(x.second);
    const auto product = [](Enlarged a, f32x16 b) { return Format::round(multiply(a, b).reduced()); };
    return {product(u, c) - product(v, s), product(v, c) + product(u, s)};
  }
};

/// The same bits where many elements are denormal, or so small that products are: what some CPUs take thirty times as long for.
template <class Rounding>
struct OfTiny : Rounding {
  static DODONA_INLINE f32x16_pair rotate(f32x16_pair x, f32x16 c, f32x16 s) {
    return all_small(x.first) && all_small(x.second) && all_factors(c) && all_factors(s) ? Rounding::rotate_tiny(x, c, s)
                                                                                         : Rounding::rotate(x, c, s);
  }
};

/// n pairs, at most sixteen, from pair i of a head of `pairs`.
template <class Format, class Rounding, bool neox>
DODONA_INLINE void rotate_block(std::byte* head, const std::byte* cos_sin, std::int64_t i, std::int64_t pairs, std::int64_t n) {
  using Table = typename Rounding::Table;
  const f32x16 c = Table::load(cos_sin + i * Table::bytes, n), s = Table::load(cos_sin + (pairs + i) * Table::bytes, n);
  if constexpr (neox) {
    std::byte *const first = head + i * Format::bytes, *const second = head + (pairs + i) * Format::bytes;
    const f32x16_pair x = Rounding::rotate({Format::load(first, n), Format::load(second, n)}, c, s);
    Format::store(x.first, first, n);
    Format::store(x.second, second, n);
  } else {
    std::byte* const both = head + 2 * i * Format::bytes;
    Format::store_pairs(Rounding::rotate(Format::load_pairs(both, n), c, s), both, n);
  }
}

/// Heads that are slices of wider ones come from memory with gaps, which the hardware's own prefetching follows badly.
DODONA_INLINE void prefetch_head(const RotateHeads& job, std::int64_t h, std::int64_t bytes) {
  if (job.stride == bytes || h >= job.count) return;
  for (std::int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(job.heads + h * job.stride + line, 1);
}

template <class Format, class Rounding, bool neox>
DODONA_INLINE void rotate_head(const RotateHeads& job, std::byte* head) {
  std::int64_t i = 0;
  for (; i + 16 <= job.pairs; i += 16) rotate_block<Format, Rounding, neox>(head, job.cos_sin, i, job.pairs, 16);
  if (i < job.pairs) rotate_block<Format, Rounding, neox>(head, job.cos_sin, i, job.pairs, job.pairs - i);
}

template <class Format, class Rounding, bool neox>
void rotate_heads(const RotateHeads& job) {
  constexpr std::int64_t heads_ahead = 8;
  for (std::int64_t h = 0; h < job.count; ++h) {
    prefetch_head(job, h + heads_ahead, 2 * job.pairs * Format::bytes);
    rotate_head<Format, Rounding, neox>(job, job.heads + h * job.stride);
  }
}

template <class Format, class Rounding>
void rotate_pairing(const RotateHeads& job) {
  if constexpr (Format::may_be_tiny) {
    // The first elements stand for all heads: a wrong guess costs time, not bits.
    if (job.avoid_denormals && any_tiny(Format::load(job.heads, 2 * job.pairs)))
      return job.neox ? rotate_heads<Format, OfTiny<Rounding>, true>(job) : rotate_heads<Format, OfTiny<Rounding>, false>(job);
  }
  job.neox ? rotate_heads<Format, Rounding, true>(job) : rotate_heads<Format, Rounding, false>(job);
}

void rotate(const RotateHeads& job) {
  const bool once = job.rounding == RotaryRounding::once;
  switch (job.type) {
    case DType::bf16: return once ? rotate_pairing<Bf16, RoundOnce>(job) : rotate_pairing<Bf16, RoundEachStep<Bf16>>(job);
    case DType::f16: return once ? rotate_pairing<F16, RoundOnce>(job) : rotate_pairing<F16, RoundEachStep<F16>>(job);
    default: return rotate_pairing<F32, RoundOnce>(job);
  }
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void RotateKernel::run(const RotateHeads& job) {
  DODONA_TIER::rotate(job);
}
template void RotateKernel::run<tier::DODONA_TIER>(const RotateHeads&);

}  // namespace dodona::ops
