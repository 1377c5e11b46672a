// Rows to codes of eight bits in vector code: largest magnitudes, and codes given a factor. Included by *.simd.cpp only.
#pragma once

#include "ops/base/writing.h"
#include "ops/rows/number_lanes.h"
#include "simd/blocks_apart.h"
#include "simd/pack.h"
#include "simd/registers.h"
#include "simd/words.h"

namespace dodona::DODONA_TIER {

/// Of `count` vectors from the j-th on, that are `all` in the end; one after the other goes into registers, not all at once.
template <int all, int count, class Vector, class Larger>
DODONA_INLINE i32x16 largest_from(int j, const Vector& vector, const Larger& larger) {
  if constexpr (count == 1) {
    return vector(j);
  } else {
    const i32x16 first = largest_from<all, count / 2>(j, vector, larger),
                 second = largest_from<all, count / 2>(j + count / 2, vector, larger);
    const i32x16_pair halves = blocks_apart<all / count>(first, second);
    return larger(halves.first, halves.second);
  }
}
/// Lane i: of the lanes that are block i, in `count` vectors of 16 / count blocks each, of which vector(j) is the j-th, the largest.
template <int count, class Vector, class Larger>
DODONA_INLINE i32x16 largest_of_blocks(const Vector& vector, const Larger& larger) {
  return largest_from<count, count>(0, vector, larger);
}

/// The largest magnitude of n elements. NaN elements are passed over: the maximum keeps its second operand then.
template <class Lanes>
DODONA_INLINE float largest_number(const void* input, std::int64_t n) {
  f32x16 largest[4];
#pragma GCC unroll 4
  for (f32x16& value : largest) value = f32x16::zero();
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const Two x = Lanes::load_two(at<Lanes>(input, i)), y = Lanes::load_two(at<Lanes>(input, i + 32));
    largest[0] = max(abs(x.a), largest[0]);
    largest[1] = max(abs(x.b), largest[1]);
    largest[2] = max(abs(y.a), largest[2]);
    largest[3] = max(abs(y.b), largest[3]);
  }
  for (; i < n; i += 16) largest[0] = max(abs(Lanes::load_partial(at<Lanes>(input, i), n - i)), largest[0]);
  return reduce_max(max(max(largest[0], largest[1]), max(largest[2], largest[3])));
}

/// Sixty-four bf16 of a row that is worked on later.
DODONA_INLINE void fetch_64(const void* next, std::int64_t i) {
  fetch_far<Bf16Lanes>(next, i);
  fetch_far<Bf16Lanes>(next, i + 32);
}

/// What is fetched meanwhile: of each `every` elements, a power of two of at least 64, the first 64 of those that lie `ahead` bytes on.
struct Fetch {
  std::int64_t ahead = 0, every = 64;
};
template <class Lanes>
DODONA_INLINE float largest_magnitude(const void* input, std::int64_t n, Fetch = {}) {
  return largest_number<Lanes>(input, n);
}
/// Of bf16, magnitudes are compared as integers, two to a lane: a NaN is larger than all others. Rows that have none are the rule.
template <>
DODONA_INLINE float largest_magnitude<Bf16Lanes>(const void* input, std::int64_t n, Fetch fetch) {
  const i32x16 magnitude = i32x16::splat(0x7FFF7FFF);
  i32x16 largest[2] = {i32x16::zero(), i32x16::zero()};
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const auto* const pairs = static_cast<const std::int32_t*>(at<Bf16Lanes>(input, i));
    if ((i & (fetch.every - 1)) == 0) fetch_64(reinterpret_cast<const char*>(pairs) + fetch.ahead, 0);
    largest[0] = max_16(i32x16::load(pairs) & magnitude, largest[0]);
    largest[1] = max_16(i32x16::load(pairs + 16) & magnitude, largest[1]);
  }
  const i32x16 pairs = max_16(largest[0], largest[1]);
  f32x16 rest = max(as_f32(shl<16>(pairs)), as_f32(pairs & i32x16::splat(-0x10000)));
  if (any(shl<16>(pairs) > i32x16::splat(0x7F800000)) || any(pairs > i32x16::splat(0x7F80FFFF))) return largest_number<Bf16Lanes>(input, n);
  for (; i < n; i += 16) rest = max(abs(load_bf16_partial(at<Bf16Lanes>(input, i), n - i)), rest);
  return reduce_max(rest);
}

/// Thirty-two bf16 in pairs, widened: those of even index and those of odd index.
struct Pairs {
  f32x16 even, odd;
  static DODONA_INLINE Pairs of(i32x16 pairs) { return {as_f32(shl<16>(pairs)), as_f32(pairs & i32x16::splat(-0x10000))}; }
};
/// Sixty-four bf16 in pairs, and what the first half and the second are multiplied with.
struct Numbers {
  i32x16 first, second;
  f32x16 first_factor, second_factor;
};

/// Sixty-four bf16 in pairs whose factors are powers of two. Products differ from elements in the exponent alone, so that magnitudes are
/// scaled by a difference of codes and rounded to fewer digits in sixteen bits: half as many operations as by way of fp32.
struct Scaled {
  i32x16 first, second;
  i32x16 first_base, second_base;  ///< what is taken from magnitudes, see PowerBases
};
/// What is taken from the magnitude of a bf16 whose factor is a power of two f, in both halves of a lane: `more` less than the code of the
/// bf16 that becomes the one of code `from` times f.
struct PowerBases {
  std::int32_t from, more;
  bool zeros;  ///< factors may be 0 as well: their base is above all numbers

  /// Exponent fields of factors: larger ones have no base, or one of denormal elements; below this infinities and NaN would come to no more
  /// than the largest code.
  static constexpr std::int32_t least_field = 8;
  constexpr std::int32_t most_field() const { return (from >> 7) + 126; }

  /// Whether all factors have a base. Of fewer than sixteen the rest is 1.
  DODONA_INLINE bool has(f32x16 factors) const {
    const i32x16 bits = as_i32(factors), least = i32x16::splat(least_field << 23);
    const i32x16 small = zeros ? select(bits == i32x16::zero(), least, bits) : bits;
    return !any((bits & i32x16::splat(0x7FFFFF)) > i32x16::zero()) && !any(small < least) && !any(bits > i32x16::splat(most_field() << 23));
  }
  DODONA_INLINE i32x16 of(f32x16 factors) const {
    const i32x16 bits = as_i32(factors);
    const i32x16 base = select(bits == i32x16::zero(), i32x16::splat(0x7FFF), i32x16::splat(from + (127 << 7) - more) - shr<16>(bits));
    return base | shl<16>(base);
  }
};

/// Codes of four significant bits of bf16 times one factor, without the products. Those of an octave of numbers take eight steps, in places
/// that the factor decides, one at most within an eighth of sixteen: so that what is added to a number's own code for its eighth makes
/// every step a multiple of sixteen. Other octaves have the same steps.
struct CodeSteps {
  std::uint8_t added[16];
  std::int32_t base;  ///< what a sum is above this is sixteen times the code
  bool exist;

  /// codes_of(x * factor): sixteen codes of products from 1 to 4, of which the least is `one`. A factor has steps where all codes of
  /// octaves that are asked for are of numbers that are not denormal.
  template <class CodesOf>
  static DODONA_INLINE CodeSteps of(float factor, std::int32_t one, const CodesOf& codes_of) {
    std::int32_t bits, codes[128];
    __builtin_memcpy(&bits, &factor, sizeof bits);
    if (bits < 9 << 23 || bits >= 246 << 23) return {{}, 0, false};
    const std::int32_t octave = (2 * 127 - (bits >> 23)) << 7, least = 16 * (one - 1);
    for (int m = 0; m < 128; m += 16)
      codes_of(as_f32(shl<16>(lane_index() + i32x16::splat(octave + m))) * f32x16::splat(factor)).store(codes + m);
    CodeSteps steps{{}, octave - least, true};
    for (int eighth = 0; eighth < 16; ++eighth) {
      const std::int32_t* const own = codes + 8 * eighth;
      steps.exist = steps.exist && own[7] - own[0] <= 1;
      int before = 1;
      while (before < 8 && own[before] == own[0]) ++before;
      steps.added[eighth] = static_cast<std::uint8_t>(16 * own[0] + 16 - before - 8 * eighth - least);
    }
    return steps;
  }
};

/// What kernels make of NaN follows from the order in which they clamp: fmaxf(fminf(v, 448), -448) turns it into +448, the other order
/// into -448.
///
/// The codes of to_e4m3_codes with fewer operations: with e the exponent of |v|, at least -6, adding 2^(20 + e) rounds |v| to a multiple
/// of 2^(e-3), and leaves n = |v| / 2^(e-3) in the low bits. The code is n + 8 (e + 6), whose second part, which is even, the anchor has
/// in its low bits from the start.
template <std::int32_t nan_code>
struct E4m3Codes {
  static DODONA_INLINE i32x16 of(f32x16 v) {
    const f32x16 magnitude = min(abs(v), f32x16::splat(448.0f));
    const i32x16 code = rounded(magnitude).bits & i32x16::splat(0x7F), sign = shr<24>(as_i32(v)) & i32x16::splat(0x80);
    return select(v == v, code | sign, i32x16::splat(nan_code));
  }
  /// Sixty-four codes of x * factor, all finite and the factors without a sign, so that no code is that of a NaN and signs are those of x.
  static DODONA_INLINE i32x16 of_numbers(const Numbers& x) {
    return bytes_signed_like<7>(pairs(x.first, x.first_factor), pairs(x.second, x.second_factor), x.first, x.second);
  }

  /// Of 2^-6 times 2^k the code is 8, 7 is what rounding needs.
  static constexpr PowerBases bases{(127 - 7) << 7, 7, true};
  /// What of_numbers gives, but where a product is below 2^-6 and not 0, whose code has fewer digits: returns whether none is. `largest`
  /// becomes the largest code; larger ones than largest_code are of products that saturate, infinities and NaN.
  static DODONA_INLINE bool of_powers(const Scaled& x, i32x16& largest, i32x16& codes) {
    const Dropped first = dropped(x.first, x.first_base), second = dropped(x.second, x.second_base);
    largest = max_16(max_16(first.code, second.code), largest);
    codes = bytes_signed_like<7>(first.code, second.code, x.first, x.second);
    return !any((first.tiny | second.tiny) > i32x16::zero());
  }
  /// The same of numbers, or infinities, times a factor that has steps. Codes saturate.
  static DODONA_INLINE bool of_steps(i32x16 first, i32x16 second, const Sixteen& added, i32x16 base, i32x16& codes) {
    const Dropped x = stepped(first, added, base), y = stepped(second, added, base);
    codes = bytes_signed_like<7>(x.code, y.code, first, second);
    return !any((x.tiny | y.tiny) > i32x16::zero());
  }
  static DODONA_INLINE CodeSteps steps_of(float factor) {
    return CodeSteps::of(
        factor, 7 << 3, [](f32x16 v) __attribute__((always_inline)) { return rounded(v).bits & i32x16::splat(0x7F); });
  }
  static constexpr std::int32_t largest_code = 0x7E;

  /// A magnitude of at most 448 to the nearest e4m3: its code in the low seven bits, and what it stands for.
  struct Rounded {
    i32x16 bits;
    f32x16 value;
  };
  static DODONA_INLINE Rounded rounded(f32x16 magnitude) {
    const f32x16 anchor = anchor_of(magnitude), sum = magnitude + anchor;
    return {as_i32(sum), sum - anchor};
  }

 private:
  static constexpr std::int32_t least = (127 - 6) << 23;
  /// Anchors of numbers whose exponent field ends with the bits i. Fields from 121 to 135 are asked for.
  struct Anchors {
    alignas(64) std::int32_t bits[16];
  };
  static constexpr Anchors anchors = [] {
    Anchors table{};
    for (int e = -6; e <= 8; ++e) table.bits[(127 + e) & 15] = ((127 + 20 + e) << 23) + 8 * (e + 6);
    return table;
  }();

  /// Codes, and a number above 0 where they are not those.
  struct Dropped {
    i32x16 code, tiny;
  };
  static DODONA_INLINE Dropped dropped(i32x16 both, i32x16 base) {
    const i32x16 magnitude = both & splat_16(0x7FFF);
    // A base is seven less than a multiple of 128: bit 4 of a magnitude is that of its excess before the seven came to it.
    const i32x16 excess = excess_16(magnitude, base), odd = shr_16<4>(magnitude) & splat_16(1);
    return {shr_16<4>(add_16(excess, odd)), min_16(excess_16(splat_16(128 + 7), excess), magnitude)};
  }

  static DODONA_INLINE Dropped stepped(i32x16 both, const Sixteen& added, i32x16 base) {
    const i32x16 magnitude = both & splat_16(0x7FFF), excess = excess_16(add_16(magnitude, added[shr_16<3>(magnitude)]), base);
    return {min_16(shr_16<4>(excess), splat_16(largest_code)), min_16(excess_16(splat_16(8 * 16), excess), magnitude)};
  }

  static DODONA_INLINE i32x16 pairs(i32x16 both, f32x16 factor) {
    const Pairs x = Pairs::of(both & i32x16::splat(0x7FFF7FFF));
    return in_turn_16(clamped(x.even * factor), clamped(x.odd * factor));
  }
  /// Between the code and the sum's exponent there is nothing.
  static DODONA_INLINE i32x16 clamped(f32x16 magnitude) { return rounded(min(magnitude, f32x16::splat(448.0f))).bits; }
  static DODONA_INLINE f32x16 anchor_of(f32x16 magnitude) {
    if constexpr (registers.of_f32x16 == 1) {
      const i32x16 field = shr<23>(as_i32(max(magnitude, f32x16::splat(0x1p-6f))));
      return lookup_16(as_f32(i32x16::load(anchors.bits)), field);
    } else {
      const i32x16 exponent = max(as_i32(magnitude) & i32x16::splat(0x7F800000), i32x16::splat(least));
      return as_f32(exponent + shr<20>(exponent) + i32x16::splat((20 << 23) - (least >> 20)));
    }
  }
};
/// Clamped to -128 and 127, NaN to -128, and cut toward zero.
struct CutI8Codes {
  static DODONA_INLINE i32x16 of(f32x16 v) { return cut(v) & i32x16::splat(0xFF); }
  static DODONA_INLINE i32x16 of_numbers(const Numbers& x) {
    return signed_bytes(pairs(x.first, x.first_factor), pairs(x.second, x.second_factor));
  }

 private:
  static DODONA_INLINE i32x16 pairs(i32x16 both, f32x16 factor) {
    const Pairs x = Pairs::of(both);
    return in_turn_16(cut(x.even * factor), cut(x.odd * factor));
  }
  static DODONA_INLINE i32x16 cut(f32x16 v) { return to_i32_trunc(min(max(v, f32x16::splat(-128.0f)), f32x16::splat(127.0f))); }
};

/// Half away from zero, clamped; NaN to 0.
struct HalfAwayI8Codes {
  static DODONA_INLINE i32x16 of(f32x16 v) { return nearest(select(v == v, v, f32x16::zero())) & i32x16::splat(0xFF); }
  static DODONA_INLINE i32x16 of_numbers(const Numbers& x) {
    return signed_bytes(pairs(x.first, x.first_factor), pairs(x.second, x.second_factor));
  }

 private:
  static DODONA_INLINE i32x16 pairs(i32x16 both, f32x16 factor) {
    const Pairs x = Pairs::of(both);
    return in_turn_16(nearest(x.even * factor), nearest(x.odd * factor));
  }
  /// The largest number below a half is added and the sum cut: half itself comes to one by the sum's rounding to even.
  static DODONA_INLINE i32x16 nearest(f32x16 v) {
    const f32x16 clamped = min(max(v, f32x16::splat(-128.0f)), f32x16::splat(127.0f));
    return to_i32_trunc(clamped + copysign(f32x16::splat(0x1.fffffep-2f), clamped));
  }
};

/// Thirty-two codes. What the lanes hold is the element type's business, see Lanes::load_two.
template <class Codes>
DODONA_INLINE void store_codes(Bf16Lanes, Two v, std::uint8_t* codes) {
  lanes::narrow_to_16((Codes::of(v.a) | shl<8>(Codes::of(v.b))).v).store(codes);
}
template <class Codes, class Lanes>
DODONA_INLINE void store_codes(InOrder<Lanes>, Two v, std::uint8_t* codes) {
  lanes::narrow_to_8(Codes::of(v.a).v).store(codes);
  lanes::narrow_to_8(Codes::of(v.b).v).store(codes + 16);
}

/// Codes of x * scaling.
template <class Codes, class Lanes>
DODONA_INLINE void quantize(const void* input, std::int64_t n, float scaling, std::uint8_t* codes) {
  const f32x16 factor = f32x16::splat(scaling);
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const Two x = Lanes::load_two(at<Lanes>(input, i));
    store_codes<Codes>(Lanes{}, {x.a * factor, x.b * factor}, codes + i);
  }
  for (; i < n; i += 16) {
    const f32x16 x = Lanes::load_partial(at<Lanes>(input, i), n - i);
    store_low_8_partial(Codes::of(x * factor), codes + i, n - i);
  }
}

/// Codes of a row's elements times a factor for each `size` of them. While they are made, the row that comes next is fetched.
struct RowToCodes {
  const void* input;
  std::int64_t groups, size;
  const float* factors;
  const void* next;  ///< or what a fetch does no harm to
  std::uint8_t* codes;
  ops::Writing writing = ops::Writing::cached;  ///< of bf16; others go into the caches

  /// Whether groups are made of thirty-twos, 2^shift() of them, or there is but one.
  DODONA_INLINE bool in_halves() const { return groups == 1 || (size >= 32 && (size & (size - 1)) == 0); }
  DODONA_INLINE int shift() const { return groups == 1 ? 62 : __builtin_ctzll(static_cast<unsigned long long>(size)) - 5; }
  /// What is left of a row with one factor.
  DODONA_INLINE RowToCodes from(std::int64_t i) const {
    return {at<Bf16Lanes>(input, i), 1, size - i, factors, at<Bf16Lanes>(next, i), codes + i, writing};
  }
  /// Whether codes are written sixty-four at a time to multiples of sixty-four.
  DODONA_INLINE bool streams() const { return writing != ops::Writing::cached && can_stream(codes) && in_halves(); }
};
template <class Codes, class Lanes>
DODONA_INLINE void quantize_groups(const RowToCodes& row) {
  for (std::int64_t g = 0; g < row.groups; ++g)
    quantize<Codes, Lanes>(at<Lanes>(row.input, g * row.size), row.size, row.factors[g], row.codes + g * row.size);
}

/// Elements and factors, looked at on the way.
struct Looked {
  PairsSeen seen;
  bool factors = true;  ///< are finite, and without a sign

  DODONA_INLINE void factors_are_numbers(f32x16 x) {
    const i32x16 bits = as_i32(x);
    factors &= !any(bits < i32x16::zero()) && !any(bits > i32x16::splat(0x7F7FFFFF));
  }
  DODONA_INLINE i32x16 pairs(const void* p) { return seen.load(p); }
  DODONA_INLINE bool finite() const { return factors && seen.up_to(0x7F7F); }
};
/// Sixty-four bytes, into the caches or, to a multiple of as many, past them.
DODONA_INLINE void put_64(i32x16 bytes, std::uint8_t* p, bool streamed) {
  streamed ? stream(bytes, p) : bytes.store(reinterpret_cast<std::int32_t*>(p));
}

/// Whether all of a row's factors have a base.
DODONA_INLINE bool all_have(const PowerBases& bases, const float* factors, std::int64_t count) {
  for (std::int64_t g = 0; g < count; g += 16)
    if (!bases.has(f32x16::load_partial(factors + g, count - g, 1.0f))) return false;
  return true;
}
/// Several groups in halves whose factors all have a base; returns whether all elements were numbers.
template <class Codes>
DODONA_INLINE bool quantize_by_powers(const RowToCodes& row, bool streamed) {
  const int shift = row.shift();
  i32x16 largest = i32x16::zero();
  for (std::int64_t g = 0; g < row.groups; g += 16) {
    const float* const factors = row.factors + g;
    const std::int64_t groups = row.groups - g < 16 ? row.groups - g : 16, halves = groups << shift;
    std::int32_t bases[16];
    Codes::bases.of(f32x16::load_partial(factors, groups, 1.0f)).store(bases);
    std::int64_t half = 0;
    for (; half + 2 <= halves; half += 2) {
      const std::int64_t i = g * row.size + 32 * half, first = half >> shift, second = (half + 1) >> shift;
      const void *const input = at<Bf16Lanes>(row.input, i), *const rest = at<Bf16Lanes>(input, 32);
      fetch_64(row.next, i);
      const Scaled x{i32x16::load(static_cast<const std::int32_t*>(input)), i32x16::load(static_cast<const std::int32_t*>(rest)),
                     i32x16::splat(bases[first]), i32x16::splat(bases[second])};
      i32x16 codes;
      if (Codes::of_powers(x, largest, codes)) {
        put_64(codes, row.codes + i, streamed);
      } else {
        quantize<Codes, Bf16Lanes>(input, 32, factors[first], row.codes + i);
        quantize<Codes, Bf16Lanes>(rest, 32, factors[second], row.codes + i + 32);
      }
    }
    if (half < halves) {
      const std::int64_t i = g * row.size + 32 * half;
      quantize<Codes, Bf16Lanes>(at<Bf16Lanes>(row.input, i), 32, factors[half >> shift], row.codes + i);
    }
  }
  return !any(excess_16(largest, splat_16(Codes::largest_code)) > i32x16::zero());
}
/// A row in halves; returns whether all elements were numbers, and all factors numbers without a sign.
template <class Codes>
DODONA_INLINE bool quantize_halves(const RowToCodes& row, bool streamed) {
  const int shift = row.shift();
  Looked looked;
  for (std::int64_t g = 0; g < row.groups; g += 16) looked.factors_are_numbers(f32x16::load_partial(row.factors + g, row.groups - g));
  const std::int64_t size = row.groups * row.size;
  std::int64_t i = 0;
  for (; i + 64 <= size; i += 64) {
    fetch_64(row.next, i);
    const std::int64_t half = i / 32;
    const Numbers x{looked.pairs(at<Bf16Lanes>(row.input, i)), looked.pairs(at<Bf16Lanes>(row.input, i + 32)),
                    f32x16::splat(row.factors[half >> shift]), f32x16::splat(row.factors[(half + 1) >> shift])};
    put_64(Codes::of_numbers(x), row.codes + i, streamed);
  }
  if (i < size) quantize<Codes, Bf16Lanes>(at<Bf16Lanes>(row.input, i), size - i, row.factors[row.groups - 1], row.codes + i);
  return looked.finite();
}
/// A row with one factor, as long as few of its codes are denormal, which are made another way. Returns how many codes were made, a
/// multiple of sixty-four; `numbers` becomes whether none was a NaN.
template <class Codes>
DODONA_INLINE std::int64_t quantize_by_steps(const RowToCodes& row, bool streamed, bool& numbers) {
  const float factor = row.factors[0];
  const CodeSteps steps = Codes::steps_of(factor);
  if (!steps.exist) return 0;
  const Sixteen added = Sixteen::of(steps.added);
  const i32x16 base = splat_16(steps.base);
  PairsSeen seen;
  std::int64_t i = 0, tiny = 0;
  for (; i + 64 <= row.size && 4 * tiny <= i + 1024; i += 64) {
    fetch_64(row.next, i);
    const i32x16 first = seen.load(at<Bf16Lanes>(row.input, i)), second = seen.load(at<Bf16Lanes>(row.input, i + 32));
    i32x16 codes;
    if (!Codes::of_steps(first, second, added, base, codes)) {
      codes = Codes::of_numbers({first, second, f32x16::splat(factor), f32x16::splat(factor)});
      tiny += 64;
    }
    put_64(codes, row.codes + i, streamed);
  }
  numbers = seen.up_to(0x7F80);
  return i;
}
/// The same as quantize_halves of a row that may have one factor for all.
template <class Codes>
DODONA_INLINE bool quantize_by_factors(const RowToCodes& row, bool streamed) {
  if constexpr (requires { Codes::steps_of(1.0f); }) {
    // Fewer would not be worth the table.
    if (row.groups == 1 && row.size >= 2048) {
      bool numbers = true;
      const std::int64_t done = quantize_by_steps<Codes>(row, streamed, numbers);
      return numbers && quantize_halves<Codes>(row.from(done), streamed);
    }
  }
  return quantize_halves<Codes>(row, streamed);
}
template <class Codes>
DODONA_INLINE void quantize_row(Bf16Lanes, const RowToCodes& row) {
  const bool streamed = row.streams();
  bool numbers = false;
  if (row.in_halves()) {
    bool powers = false;
    if constexpr (requires { Codes::bases; }) {
      powers = row.groups > 1 && all_have(Codes::bases, row.factors, row.groups);
      if (powers) numbers = quantize_by_powers<Codes>(row, streamed);
    }
    if (!powers) numbers = quantize_by_factors<Codes>(row, streamed);
  }
  if ((streamed && !numbers) || row.writing == ops::Writing::streamed_last) stream_end();
  if (!numbers) quantize_groups<Codes, Bf16Lanes>(row);
}
template <class Codes, class Lanes>
DODONA_INLINE void quantize_row(InOrder<Lanes>, const RowToCodes& row) {
  quantize_groups<Codes, Lanes>(row);
}

}  // namespace dodona::DODONA_TIER
