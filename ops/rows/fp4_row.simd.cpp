#include "ops/rows/fp4_row.h"

#include "ops/base/row_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::Fp4Row;

constexpr int group_blocks = 16;
constexpr int group_elements = 256;
constexpr int fetched_ahead = 8192;  ///< bytes

/// Thirty-two elements, two blocks: those of even index, those of odd index. Lanes 0..7 belong to the first block.
DODONA_INLINE Two evens_and_odds(Bf16Lanes, const void* p) {
  return Bf16Lanes::load_two(p);
}
DODONA_INLINE Two evens_and_odds(F16Lanes, const void* p) {
  const Two in_order = F16Lanes::load_two(p);
  const f32x16_pair split = deinterleave(in_order.a, in_order.b);
  return {split.first, split.second};
}

// Magnitudes are compared as integers: NaNs are the largest.
DODONA_INLINE i32x16 magnitude_bits(f32x16 x) {
  return as_i32(abs(x));
}
DODONA_INLINE i32x16 larger_of_pairs(i32x16 a, i32x16 b) {
  const f32x16_pair split = deinterleave(as_f32(a), as_f32(b));
  return max(as_i32(split.first), as_i32(split.second));
}
constexpr std::int32_t infinity_bits = 0x7F800000;

/// Lane i: the bits of the largest magnitude of block i; -1 in the place of NaN elements if they are passed over.
template <class Lanes, bool pass_over_nan>
DODONA_INLINE i32x16 block_maxima(const char* input) {
  const i32x16 infinity = i32x16::splat(infinity_bits), none = i32x16::splat(-1);
  i32x16 m[8];
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const Two x = evens_and_odds(Lanes{}, input + 32 * Lanes::bytes * j);
    i32x16 a = magnitude_bits(x.a), b = magnitude_bits(x.b);
    if (pass_over_nan) {
      a = select(a > infinity, none, a);
      b = select(b > infinity, none, b);
    }
    m[j] = max(a, b);
  }
#pragma GCC unroll 3
  for (int count = 4; count > 0; count /= 2)
#pragma GCC unroll 4
    for (int j = 0; j < count; ++j) m[j] = larger_of_pairs(m[2 * j], m[2 * j + 1]);
  return m[0];
}

/// Zero of the sign where x is denormal.
DODONA_INLINE f32x16 flushed(f32x16 x) {
  return select(abs(x) < f32x16::splat(0x1p-126f), sign_of(x), x);
}
DODONA_INLINE f32x16 reciprocal(f32x16 x) {
  return flushed(f32x16::splat(1.0f) / flushed(x));
}

struct Constants {
  f32x16 encode_scale, decode_scale;
  bool zero_by_amax;
};

/// Sixteen blocks: their scales, and the factors that their elements are multiplied with. Returns whether everything is finite, so that
/// no product is NaN.
template <class Lanes>
DODONA_INLINE bool scale_group(const char* input, const Constants& constants, std::uint8_t* scales, float* factors) {
  i32x16 maxima = block_maxima<Lanes, false>(input);
  const mask16 not_finite = maxima > i32x16::splat(infinity_bits - 1);
  // A block of nothing but NaN leaves -1, whose bits are those of a NaN.
  if (any(not_finite)) maxima = block_maxima<Lanes, true>(input);
  const f32x16 amax = as_f32(maxima);
  const f32x16 value = constants.encode_scale * (amax * f32x16::splat(1.0f / 6.0f));
  store_e4m3(value, scales);
  const f32x16 scale = load_e4m3(scales);
  const mask16 zero = (constants.zero_by_amax ? amax : scale) == f32x16::zero();
  const f32x16 factor = select(zero, f32x16::zero(), reciprocal(scale * constants.decode_scale));
  factor.store(factors);
  return !any(not_finite | ~(abs(factor) < f32x16::splat(__builtin_inff())));
}

/// As to_e2m1_codes, with fewer operations and with other bits above the low eight.
/// Adding 2^(22 + e), e = 0, 1, 2 the exponent of |v| but at least 0, rounds |v| to a multiple of 2^(e-1) and leaves n = |v| / 2^(e-1) in
/// the low bits. The code is n + 2e, and 8 more for negative v: anchors have these, which are even, in their low bits from the start.
template <bool finite>
DODONA_INLINE i32x16 codes_of(f32x16 v) {
  const auto anchor_of = [](std::int32_t e) { return i32x16::splat(((127 + 22 + e) << 23) + 2 * e); };
  const f32x16 magnitude = min(abs(v), f32x16::splat(6.0f));  // NaN becomes 6
  const i32x16 above_two = select(magnitude < f32x16::splat(4.0f), anchor_of(1), anchor_of(2));
  const i32x16 anchor = select(magnitude < f32x16::splat(2.0f), anchor_of(0), above_two);
  i32x16 eight = shr<28>(as_i32(v)) & i32x16::splat(8);
  if (!finite) eight = select(v == v, eight, i32x16::zero());  // the sign of a NaN does not count
  return as_i32(magnitude + as_f32(anchor | eight));
}

/// Two blocks: 16 bytes of codes.
template <class Lanes, bool finite>
DODONA_INLINE void encode_two(const char* input, const float* factors, std::uint8_t* codes) {
  const Two x = evens_and_odds(Lanes{}, input);
  const f32x16 factor = select(mask16::first(8), f32x16::splat(factors[0]), f32x16::splat(factors[1]));
  store_low_8(codes_of<finite>(x.a * factor) + shl<4>(codes_of<finite>(x.b * factor)), codes);
}

template <class Lanes, bool finite>
DODONA_INLINE void encode(const char* input, int blocks, const float* factors, std::uint8_t* codes) {
#pragma GCC unroll 4
  for (int b = 0; b < blocks; b += 2) {
    const char* const here = input + b * 16 * Lanes::bytes;
    // One line each, spread over the pass: both passes over a batch are short, and without this the first one waits for memory.
    // A prefetch beyond the input faults nowhere.
    __builtin_prefetch(here + fetched_ahead);
    encode_two<Lanes, finite>(here, factors + b, codes + 8 * b);
  }
}

DODONA_INLINE void scatter_scales(const std::uint8_t* from, std::int64_t count, std::int64_t tile, std::uint8_t* to) {
  for (; count >= 4; count -= 4, from += 4, to += tile) __builtin_memcpy(to, from, 4);
  for (std::int64_t c = 0; c < count; ++c) to[c] = from[c];
}

/// Groups whose scales are worked out before their codes: several, because the chain from elements to factor is long.
constexpr int batch_groups = 4;

template <class Lanes>
DODONA_INLINE void quantize_batch(const char* input, const Constants& constants, int groups, std::uint8_t* codes, std::uint8_t* scales) {
  float factors[batch_groups * group_blocks];
  bool finite = true;
  for (int g = 0; g < groups; ++g)
    finite &=
        scale_group<Lanes>(input + g * group_elements * Lanes::bytes, constants, scales + g * group_blocks, factors + g * group_blocks);
  if (finite) {
    encode<Lanes, true>(input, groups * group_blocks, factors, codes);
  } else {
    encode<Lanes, false>(input, groups * group_blocks, factors, codes);
  }
}

template <class Lanes>
void quantize_row(const Fp4Row row) {
  const Constants constants{f32x16::splat(row.encode_scale), reciprocal(f32x16::splat(row.encode_scale)), row.zero_by_amax};
  const auto* input = static_cast<const char*>(row.input);
  std::uint8_t scales[batch_groups * group_blocks];
  std::int64_t b = 0;
  while (row.blocks - b >= group_blocks) {
    const std::int64_t whole = (row.blocks - b) / group_blocks;
    const int groups = whole < batch_groups ? static_cast<int>(whole) : batch_groups;
    quantize_batch<Lanes>(input + b * 16 * Lanes::bytes, constants, groups, row.codes + 8 * b, scales);
    scatter_scales(scales, groups * group_blocks, row.tile, row.scales + b / 4 * row.tile);
    b += groups * group_blocks;
  }
  const std::int64_t left = row.blocks - b;
  if (left == 0) return;
  char elements[group_elements * 2] = {};
  std::uint8_t codes[8 * group_blocks];
  __builtin_memcpy(elements, input + b * 16 * Lanes::bytes, static_cast<std::size_t>(left * 16 * Lanes::bytes));
  quantize_batch<Lanes>(elements, constants, 1, codes, scales);
  __builtin_memcpy(row.codes + 8 * b, codes, static_cast<std::size_t>(8 * left));
  scatter_scales(scales, left, row.tile, row.scales + b / 4 * row.tile);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void Fp4RowKernel::run(const Fp4Row& row) {
  using namespace DODONA_TIER;
  if (row.type == DType::bf16) {
    quantize_row<Bf16Lanes>(row);
  } else {
    quantize_row<F16Lanes>(row);
  }
}
template void Fp4RowKernel::run<tier::DODONA_TIER>(const Fp4Row&);

template <class Tier>
void Fp4CodesKernel::run(const Fp4CodesRow& row) {
  using namespace DODONA_TIER;
  const auto* const input = static_cast<const char*>(row.input);
  if (row.type == DType::bf16) {
    encode<Bf16Lanes, false>(input, static_cast<int>(row.blocks), row.factors, row.codes);
  } else {
    encode<F16Lanes, false>(input, static_cast<int>(row.blocks), row.factors, row.codes);
  }
}
template void Fp4CodesKernel::run<tier::DODONA_TIER>(const Fp4CodesRow&);

}  // namespace dodona::ops
