#include "ops/rows/quantize/fp4_row.h"

#include "ops/rows/quantize/code_lanes.h"

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
constexpr std::int32_t infinity_bits = 0x7F800000;

/// Lane i: the bits of the largest magnitude of block i; -1 in the place of NaN elements if they are passed over.
template <class Lanes, bool pass_over_nan>
DODONA_INLINE i32x16 widened_maxima(const char* input) {
  const i32x16 infinity = i32x16::splat(infinity_bits), none = i32x16::splat(-1);
  const auto larger = [](i32x16 a, i32x16 b) __attribute__((always_inline)) {
    return max(a, b);
  };
  const auto pairs = [&](int j) __attribute__((always_inline)) {
    const Two x = evens_and_odds(Lanes{}, input + 32 * Lanes::bytes * j);
    i32x16 a = magnitude_bits(x.a), b = magnitude_bits(x.b);
    if (pass_over_nan) {
      a = select(a > infinity, none, a);
      b = select(b > infinity, none, b);
    }
    return max(a, b);
  };
  return largest_of_blocks<8>(pairs, larger);
}
DODONA_INLINE i32x16 block_maxima(F16Lanes, const char* input) {
  return widened_maxima<F16Lanes, false>(input);
}
/// Two to a lane until the end.
DODONA_INLINE i32x16 block_maxima(Bf16Lanes, const char* input) {
  const auto larger = [](i32x16 a, i32x16 b) __attribute__((always_inline)) {
    return max_16(a, b);
  };
  const auto magnitudes = [&](int j) __attribute__((always_inline)) {
    return i32x16::load(reinterpret_cast<const std::int32_t*>(input + 64 * j)) & i32x16::splat(0x7FFF7FFF);
  };
  const i32x16 pairs = largest_of_blocks<8>(magnitudes, larger);
  return max(shl<16>(pairs), pairs & i32x16::splat(-0x10000));
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
  bool plain_scale;  ///< the encode scale is finite and has no sign
  bool zero_by_amax;
};

/// Sixteen scales, and what their elements are multiplied with.
DODONA_INLINE f32x16 factor_of(f32x16 amax, f32x16 scale, const Constants& constants) {
  const f32x16 factor = reciprocal(scale * constants.decode_scale);
  if (constants.zero_by_amax) return select(amax == f32x16::zero(), f32x16::zero(), factor);
  return select(scale == f32x16::zero(), f32x16::zero(), factor);
}
/// Of blocks that may hold infinities or NaN, or an encode scale that is no number: e4m3 as it is, its NaN too.
template <class Lanes>
DODONA_INLINE void rare_factors(const char* input, const Constants& constants, std::uint8_t* scales, float* factors) {
  // A block of nothing but NaN leaves -1, whose bits are those of a NaN.
  const f32x16 amax = as_f32(widened_maxima<Lanes, true>(input));
  store_e4m3(constants.encode_scale * (amax * f32x16::splat(1.0f / 6.0f)), scales);
  factor_of(amax, load_e4m3(scales), constants).store(factors);
}
/// Of numbers: amax and scale have no sign. Returns whether all factors are numbers, so that no product is NaN.
DODONA_INLINE bool plain_factors(f32x16 amax, const Constants& constants, std::uint8_t* scales, float* factors) {
  using Codes = E4m3Codes<0x7F>;
  const f32x16 value = min(constants.encode_scale * (amax * f32x16::splat(1.0f / 6.0f)), f32x16::splat(448.0f));
  const Codes::Rounded rounded = Codes::rounded(value);
  store_low_8(rounded.bits & i32x16::splat(0x7F), scales);
  const f32x16 factor = factor_of(amax, rounded.value, constants);
  factor.store(factors);
  return all(factor < f32x16::splat(__builtin_inff()));
}

/// `groups` times sixteen blocks: their scales, and the factors that their elements are multiplied with. One step after the other for all
/// of them, because the way from elements to factors is long. Returns whether everything is finite, and no factor has a sign.
template <class Lanes, int groups>
DODONA_INLINE bool scale_groups(const char* input, const Constants& constants, std::uint8_t* scales, float* factors) {
  constexpr int bytes = group_elements * Lanes::bytes;
  std::int32_t maxima[groups * group_blocks];
  i32x16 largest = i32x16::zero();
#pragma GCC unroll 1
  for (int g = 0; g < groups; ++g) {
    const i32x16 those = block_maxima(Lanes{}, input + g * bytes);
    those.store(maxima + g * group_blocks);
    largest = max(largest, those);
  }
  if (!constants.plain_scale || any(largest > i32x16::splat(infinity_bits - 1))) {
    for (int g = 0; g < groups; ++g)
      rare_factors<Lanes>(input + g * bytes, constants, scales + g * group_blocks, factors + g * group_blocks);
    return false;
  }
  bool finite = true;
  DODONA_UNROLL(4)
  for (int g = 0; g < groups; ++g) {
    const int at = g * group_blocks;
    finite &= plain_factors(as_f32(i32x16::load(maxima + at)), constants, scales + at, factors + at);
  }
  return finite;
}

constexpr std::int32_t anchor_of(std::int32_t e) {
  return ((127 + 22 + e) << 23) + 2 * e;
}
/// As to_e2m1_codes, with fewer operations and with other bits above the low eight.
/// Adding 2^(22 + e), e = 0, 1, 2 the exponent of |v| but at least 0, rounds |v| to a multiple of 2^(e-1) and leaves n = |v| / 2^(e-1) in
/// the low bits. The code is n + 2e, and 8 more for negative v: anchors have 2e, which is even, in their low bits from the start.
struct E2m1Codes {
  static DODONA_INLINE i32x16 of(f32x16 v) {
    // The sign of a NaN does not count.
    return clamped(abs(v)) | select(v == v, shr<28>(as_i32(v)) & i32x16::splat(8), i32x16::zero());
  }
  /// Thirty-two codes of magnitudes of `both` times a factor without a sign, all finite.
  static DODONA_INLINE i32x16 of_numbers(i32x16 both, f32x16 factor) {
    const Pairs x = Pairs::of(both & i32x16::splat(0x7FFF7FFF));
    return in_turn_16(clamped(x.even * factor), clamped(x.odd * factor));
  }

  /// Of a quarter times 2^k: halves are rounded from there on.
  static constexpr PowerBases bases{(127 - 2) << 7, 0, false};
  /// The same codes; `largest` becomes the largest one, larger ones than largest_code are of what is no number, or too large.
  static DODONA_INLINE i32x16 of_powers(i32x16 both, i32x16 base, i32x16& largest) {
    const i32x16 codes = dropped(both, base);
    largest = max_16(codes, largest);
    return codes;
  }
  static constexpr std::int32_t largest_code = 7;

 private:
  /// Anchors of numbers whose exponent field ends with the bits i. Fields from 127 to 129 are asked for.
  struct Anchors {
    alignas(64) std::int32_t bits[16];
  };
  static constexpr Anchors anchors = [] {
    Anchors table{};
    for (int e = 0; e <= 2; ++e) table.bits[(127 + e) & 15] = anchor_of(e);
    return table;
  }();

  /// With t the excess over a quarter in units of 1/128 of a power of two: from 1 on, where t is 256, the code is t / 64 rounded to even,
  /// less 2; from 1/2 on t / 128 rounded, and above a quarter 1 at least. Each is at most the code where it does not apply.
  static DODONA_INLINE i32x16 dropped(i32x16 both, i32x16 base) {
    const i32x16 t = excess_16(both & splat_16(0x7FFF), base), odd = shr_16<6>(t) & splat_16(1);
    const i32x16 normal = add_16(shr_16<6>(add_16(add_16(t, splat_16(31)), odd)), splat_16(0xFFFE));
    return max_16(max_16(min_16(t, splat_16(1)), shr_16<7>(add_16(t, splat_16(64)))), normal);
  }

  /// NaN becomes 6.
  static DODONA_INLINE i32x16 clamped(f32x16 without_sign) {
    const f32x16 magnitude = min(without_sign, f32x16::splat(6.0f));
    if constexpr (registers.of_f32x16 == 1) {
      const i32x16 field = shr<23>(as_i32(max(magnitude, f32x16::splat(1.0f))));
      return as_i32(magnitude + lookup_16(as_f32(i32x16::load(anchors.bits)), field));
    } else {
      const i32x16 above_two = select(magnitude < f32x16::splat(4.0f), i32x16::splat(anchor_of(1)), i32x16::splat(anchor_of(2)));
      const i32x16 anchor = select(magnitude < f32x16::splat(2.0f), i32x16::splat(anchor_of(0)), above_two);
      return as_i32(magnitude + as_f32(anchor));
    }
  }
};

/// Of two blocks side by side, that have one factor or each its own.
template <int blocks_of_factor>
DODONA_INLINE f32x16 factors_of_two(const float* factors) {
  if (blocks_of_factor == 2) return f32x16::splat(factors[0]);
  return select(mask16::first(8), f32x16::splat(factors[0]), f32x16::splat(factors[1]));
}

/// Two blocks: 16 bytes of codes.
template <class Lanes, int blocks_of_factor>
DODONA_INLINE void encode_two(const char* input, const float* factors, std::uint8_t* codes) {
  const Two x = evens_and_odds(Lanes{}, input);
  const f32x16 factor = factors_of_two<blocks_of_factor>(factors);
  store_low_8(E2m1Codes::of(x.a * factor) + shl<4>(E2m1Codes::of(x.b * factor)), codes);
}
template <class Lanes, int blocks_of_factor = 1>
DODONA_INLINE void encode(const char* input, std::int64_t blocks, const float* factors, std::uint8_t* codes) {
  for (std::int64_t b = 0; b < blocks; b += 2)
    encode_two<Lanes, blocks_of_factor>(input + b * 16 * Lanes::bytes, factors + b / blocks_of_factor, codes + 8 * b);
}

/// Eights of blocks: code(pairs, block) gives the codes of two without their signs, see E2m1Codes. What lies `fetched` bytes on is fetched,
/// spread over the pass: both passes over a batch are short, and without this the first one waits for memory. A prefetch beyond the input
/// faults nowhere. Returns how many blocks there were.
template <class Code>
DODONA_INLINE std::int64_t encode_eights(const char* input, std::int64_t blocks, std::int64_t fetched, std::uint8_t* to, const Code& code) {
  std::int64_t b = 0;
  for (; b + 8 <= blocks; b += 8) {
    const char* const x = input + b * 32;
    i32x16 pairs[4], codes[4];
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      fetch_far<Bf16Lanes>(x + fetched, 32 * i);
      pairs[i] = i32x16::load(reinterpret_cast<const std::int32_t*>(x + 64 * i));
      codes[i] = code(pairs[i], b + 2 * i);
    }
    nibbles_signed_like(codes, pairs).store(reinterpret_cast<std::int32_t*>(to + 8 * b));
  }
  return b;
}
/// Finite elements, and factors too, that have no sign.
DODONA_INLINE void encode_numbers(const char* input, std::int64_t blocks, const float* factors, std::int64_t fetched, std::uint8_t* codes) {
  const auto code = [&](i32x16 pairs, std::int64_t block) __attribute__((always_inline)) {
    return E2m1Codes::of_numbers(pairs, factors_of_two<1>(factors + block));
  };
  const std::int64_t b = encode_eights(input, blocks, fetched, codes, code);
  encode<Bf16Lanes>(input + b * 32, blocks - b, factors + b, codes + 8 * b);
}
/// Pairs of blocks whose factors all have a base; returns whether all elements were numbers.
DODONA_INLINE bool encode_by_powers(const char* input, std::int64_t blocks, const float* factors, std::int64_t fetched,
                                    std::uint8_t* codes) {
  constexpr std::int64_t step = 32;  // blocks of sixteen factors
  i32x16 largest = i32x16::zero();
  for (std::int64_t begin = 0; begin < blocks; begin += step) {
    const std::int64_t count = blocks - begin < step ? blocks - begin : step;
    const char* const x = input + begin * 32;
    const float* const those = factors + begin / 2;
    std::int32_t bases[16];
    E2m1Codes::bases.of(f32x16::load_partial(those, count / 2, 1.0f)).store(bases);
    const auto code = [&](i32x16 pairs, std::int64_t block) __attribute__((always_inline)) {
      return E2m1Codes::of_powers(pairs, i32x16::splat(bases[block / 2]), largest);
    };
    const std::int64_t done = encode_eights(x, count, fetched, codes + 8 * begin, code);
    encode<Bf16Lanes, 2>(x + done * 32, count - done, those + done / 2, codes + 8 * (begin + done));
  }
  return !any(excess_16(largest, splat_16(E2m1Codes::largest_code)) > i32x16::zero());
}

/// A batch whose elements and factors are all `finite`, or not.
DODONA_INLINE void encode_batch(Bf16Lanes, const char* input, int blocks, const float* factors, bool finite, std::uint8_t* codes) {
  finite ? encode_numbers(input, blocks, factors, fetched_ahead, codes) : encode<Bf16Lanes>(input, blocks, factors, codes);
}
DODONA_INLINE void encode_batch(F16Lanes, const char* input, int blocks, const float* factors, bool, std::uint8_t* codes) {
  encode<F16Lanes>(input, blocks, factors, codes);
}

DODONA_INLINE void scatter_scales(const std::uint8_t* from, std::int64_t count, std::int64_t tile, std::uint8_t* to) {
  for (; count >= 4; count -= 4, from += 4, to += tile) __builtin_memcpy(to, from, 4);
  for (std::int64_t c = 0; c < count; ++c) to[c] = from[c];
}

/// Groups whose scales are worked out before their codes.
constexpr int batch_groups = 4;

template <class Lanes, int groups>
DODONA_INLINE void quantize_batch(const char* input, const Constants& constants, std::uint8_t* codes, std::uint8_t* scales) {
  float factors[groups * group_blocks];
  const bool finite = scale_groups<Lanes, groups>(input, constants, scales, factors);
  encode_batch(Lanes{}, input, groups * group_blocks, factors, finite, codes);
}

template <class Lanes>
void quantize_row(const Fp4Row row) {
  std::int32_t bits;
  __builtin_memcpy(&bits, &row.encode_scale, sizeof bits);
  const Constants constants{f32x16::splat(row.encode_scale), reciprocal(f32x16::splat(row.encode_scale)), bits >= 0 && bits < infinity_bits,
                            row.zero_by_amax};
  const auto* input = static_cast<const char*>(row.input);
  std::uint8_t scales[batch_groups * group_blocks];
  std::int64_t b = 0;
  while (row.blocks - b >= group_blocks) {
    const char* const first = input + b * 16 * Lanes::bytes;
    const int groups = row.blocks - b >= batch_groups * group_blocks ? batch_groups : 1;
    groups > 1 ? quantize_batch<Lanes, batch_groups>(first, constants, row.codes + 8 * b, scales)
               : quantize_batch<Lanes, 1>(first, constants, row.codes + 8 * b, scales);
    scatter_scales(scales, groups * group_blocks, row.tile, row.scales + b / 4 * row.tile);
    b += groups * group_blocks;
  }
  const std::int64_t left = row.blocks - b;
  if (left == 0) return;
  char elements[group_elements * 2] = {};
  std::uint8_t codes[8 * group_blocks];
  __builtin_memcpy(elements, input + b * 16 * Lanes::bytes, static_cast<std::size_t>(left * 16 * Lanes::bytes));
  quantize_batch<Lanes, 1>(elements, constants, codes, scales);
  __builtin_memcpy(row.codes + 8 * b, codes, static_cast<std::size_t>(8 * left));
  scatter_scales(scales, left, row.tile, row.scales + b / 4 * row.tile);
}

/// Sixteen blocks from b on, or those that are left. Returns whether a largest magnitude is 0.
DODONA_INLINE bool power_scales(const ops::PowerScales& row, std::int64_t b) {
  const std::int64_t left = row.blocks - b < group_blocks ? row.blocks - b : group_blocks;
  const f32x16 maxima = f32x16::load_partial(row.maxima + b, left, 1.0f);
  const i32x16 magnitude = magnitude_bits(maxima * f32x16::splat(row.part));
  const mask16 nan = magnitude > i32x16::splat(infinity_bits), none = magnitude < i32x16::splat(0x00400001);
  const i32x16 above = shr<23>(magnitude + i32x16::splat(0x7FFFFF));
  const i32x16 number = select(none, i32x16::zero(), min(above, i32x16::splat(254)));
  // The inverse of 2^127 is denormal, and has no exponent.
  const i32x16 inverse = max(shl<23>(i32x16::splat(254) - number), i32x16::splat(0x00400000));
  const f32x16 factor = as_f32(select(nan, i32x16::splat(0x7FC00000), select(none, i32x16::zero(), inverse)));
  factor.store_partial(row.factors + b, left);
  std::uint8_t scales[group_blocks];
  store_low_8(select(nan, i32x16::splat(255), number), scales);
  scatter_scales(scales, left, row.tile, row.scales + b / 4 * row.tile);
  return any(maxima == f32x16::zero());
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
  if (row.type != DType::bf16) return encode<F16Lanes, 2>(input, row.blocks, row.factors, row.codes);
  const std::int64_t to_next = row.next != nullptr ? static_cast<const char*>(row.next) - input : 0;
  if (all_have(E2m1Codes::bases, row.factors, row.blocks / 2) && encode_by_powers(input, row.blocks, row.factors, to_next, row.codes))
    return;
  encode<Bf16Lanes, 2>(input, row.blocks, row.factors, row.codes);
}
template void Fp4CodesKernel::run<tier::DODONA_TIER>(const Fp4CodesRow&);

template <class Tier>
bool PowerScalesKernel::run(const PowerScales& row) {
  using namespace DODONA_TIER;
  bool zero = false;
  for (std::int64_t b = 0; b < row.blocks; b += group_blocks) zero |= power_scales(row, b);
  return zero;
}
template bool PowerScalesKernel::run<tier::DODONA_TIER>(const PowerScales&);

}  // namespace dodona::ops
