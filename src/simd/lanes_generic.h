// Sixteen lanes in a plain array. See f32x16.h for what each operation promises.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/inline.h"

namespace dodona::DODONA_TIER::lanes {

struct f32 {
  float x[16];

  static DODONA_INLINE f32 load_first(const float* p, int n) {
    f32 r{};
    __builtin_memcpy(r.x, p, sizeof(float) * static_cast<std::size_t>(n));
    return r;
  }
  static DODONA_INLINE f32 load(const float* p) { return load_first(p, 16); }
  static DODONA_INLINE f32 splat(float value) {
    f32 r;
    for (float& lane : r.x) lane = value;
    return r;
  }
  DODONA_INLINE void store_first(float* p, int n) const { __builtin_memcpy(p, x, sizeof(float) * static_cast<std::size_t>(n)); }
  DODONA_INLINE void store(float* p) const { store_first(p, 16); }
};

/// Unsigned, so that overflow wraps.
struct i32 {
  std::uint32_t x[16];

  static DODONA_INLINE i32 load_first(const std::int32_t* p, int n) {
    i32 r{};
    __builtin_memcpy(r.x, p, sizeof(std::int32_t) * static_cast<std::size_t>(n));
    return r;
  }
  static DODONA_INLINE i32 load(const std::int32_t* p) { return load_first(p, 16); }
  static DODONA_INLINE i32 splat(std::int32_t value) {
    i32 r;
    for (std::uint32_t& lane : r.x) lane = static_cast<std::uint32_t>(value);
    return r;
  }
  DODONA_INLINE void store_first(std::int32_t* p, int n) const {
    __builtin_memcpy(p, x, sizeof(std::int32_t) * static_cast<std::size_t>(n));
  }
  DODONA_INLINE void store(std::int32_t* p) const { store_first(p, 16); }
};

/// 1 in the lanes that are set.
struct mask {
  std::uint32_t x[16];

  static DODONA_INLINE mask from_bits(std::uint32_t bits) {
    mask r;
    for (int i = 0; i < 16; ++i) r.x[i] = (bits >> i) & 1u;
    return r;
  }
  DODONA_INLINE std::uint32_t to_bits() const {
    std::uint32_t bits = 0;
    for (int i = 0; i < 16; ++i) bits |= x[i] << i;
    return bits;
  }
};

/// What f computes for each lane, from the same lane of its arguments.
template <class Result, class F, class... Args>
DODONA_INLINE Result map(F f, const Args&... args) {
  Result r;
  for (int i = 0; i < 16; ++i) r.x[i] = f(args.x[i]...);
  return r;
}

DODONA_INLINE f32 add(f32 x, f32 y) {
  return map<f32>([](float a, float b) { return a + b; }, x, y);
}
DODONA_INLINE f32 sub(f32 x, f32 y) {
  return map<f32>([](float a, float b) { return a - b; }, x, y);
}
DODONA_INLINE f32 mul(f32 x, f32 y) {
  return map<f32>([](float a, float b) { return a * b; }, x, y);
}
DODONA_INLINE f32 div(f32 x, f32 y) {
  return map<f32>([](float a, float b) { return a / b; }, x, y);
}
DODONA_INLINE f32 fma(f32 x, f32 y, f32 z) {
  return map<f32>([](float a, float b, float c) { return __builtin_fmaf(a, b, c); }, x, y, z);
}
DODONA_INLINE f32 fnma(f32 x, f32 y, f32 z) {
  return map<f32>([](float a, float b, float c) { return __builtin_fmaf(-a, b, c); }, x, y, z);
}
DODONA_INLINE f32 fms(f32 x, f32 y, f32 z) {
  return map<f32>([](float a, float b, float c) { return __builtin_fmaf(a, b, -c); }, x, y, z);
}
DODONA_INLINE f32 min(f32 x, f32 y) {
  return map<f32>([](float a, float b) { return a < b ? a : b; }, x, y);
}
DODONA_INLINE f32 max(f32 x, f32 y) {
  return map<f32>([](float a, float b) { return a > b ? a : b; }, x, y);
}
DODONA_INLINE f32 sqrt(f32 x) {
  return map<f32>([](float a) { return __builtin_sqrtf(a); }, x);
}
DODONA_INLINE f32 floor(f32 x) {
  return map<f32>([](float a) { return __builtin_floorf(a); }, x);
}
DODONA_INLINE f32 round_even(f32 x) {
  return map<f32>([](float a) { return __builtin_rintf(a); }, x);
}

DODONA_INLINE mask lt(f32 x, f32 y) {
  return map<mask>([](float a, float b) { return a < b ? 1u : 0u; }, x, y);
}
DODONA_INLINE mask le(f32 x, f32 y) {
  return map<mask>([](float a, float b) { return a <= b ? 1u : 0u; }, x, y);
}
DODONA_INLINE mask eq(f32 x, f32 y) {
  return map<mask>([](float a, float b) { return a == b ? 1u : 0u; }, x, y);
}
DODONA_INLINE f32 select(mask m, f32 x, f32 y) {
  return map<f32>([](std::uint32_t set, float p, float q) { return set != 0 ? p : q; }, m, x, y);
}

DODONA_INLINE std::int32_t as_signed(std::uint32_t x) {
  return static_cast<std::int32_t>(x);
}
DODONA_INLINE i32 add(i32 x, i32 y) {
  return map<i32>([](std::uint32_t a, std::uint32_t b) { return a + b; }, x, y);
}
DODONA_INLINE i32 sub(i32 x, i32 y) {
  return map<i32>([](std::uint32_t a, std::uint32_t b) { return a - b; }, x, y);
}
DODONA_INLINE i32 mul(i32 x, i32 y) {
  return map<i32>([](std::uint32_t a, std::uint32_t b) { return a * b; }, x, y);
}
DODONA_INLINE i32 min(i32 x, i32 y) {
  return map<i32>([](std::uint32_t a, std::uint32_t b) { return as_signed(a) < as_signed(b) ? a : b; }, x, y);
}
DODONA_INLINE i32 max(i32 x, i32 y) {
  return map<i32>([](std::uint32_t a, std::uint32_t b) { return as_signed(a) > as_signed(b) ? a : b; }, x, y);
}
DODONA_INLINE i32 bit_and(i32 x, i32 y) {
  return map<i32>([](std::uint32_t a, std::uint32_t b) { return a & b; }, x, y);
}
DODONA_INLINE i32 bit_or(i32 x, i32 y) {
  return map<i32>([](std::uint32_t a, std::uint32_t b) { return a | b; }, x, y);
}
DODONA_INLINE i32 bit_xor(i32 x, i32 y) {
  return map<i32>([](std::uint32_t a, std::uint32_t b) { return a ^ b; }, x, y);
}
template <int k>
DODONA_INLINE i32 shl(i32 x) {
  return map<i32>([](std::uint32_t a) { return a << k; }, x);
}
template <int k>
DODONA_INLINE i32 shr(i32 x) {
  return map<i32>([](std::uint32_t a) { return a >> k; }, x);
}
template <int k>
DODONA_INLINE i32 sra(i32 x) {
  return map<i32>([](std::uint32_t a) { return static_cast<std::uint32_t>(as_signed(a) >> k); }, x);
}
DODONA_INLINE i32 add_8(i32 x, i32 y) {
  return map<i32>([](std::uint32_t a, std::uint32_t b) { return ((a & 0x7F7F7F7Fu) + (b & 0x7F7F7F7Fu)) ^ ((a ^ b) & 0x80808080u); }, x, y);
}
DODONA_INLINE i32 mul_16(i32 x, i32 y) {
  return map<i32>(
      [](std::uint32_t a, std::uint32_t b) { return ((a >> 16) * (b >> 16)) << 16 | ((a & 0xFFFFu) * (b & 0xFFFFu) & 0xFFFFu); }, x, y);
}
DODONA_INLINE i32 max_16(i32 x, i32 y) {
  return map<i32>(
      [](std::uint32_t a, std::uint32_t b) {
        const std::uint32_t high = as_signed(a & 0xFFFF0000u) > as_signed(b & 0xFFFF0000u) ? a : b;
        const std::uint32_t low = as_signed(a << 16) > as_signed(b << 16) ? a : b;
        return (high & 0xFFFF0000u) | (low & 0xFFFFu);
      },
      x, y);
}
template <int k>
DODONA_INLINE i32 sra_16(i32 x) {
  return map<i32>(
      [](std::uint32_t a) {
        const auto high = static_cast<std::uint32_t>(as_signed(a) >> k) & 0xFFFF0000u;
        return high | (static_cast<std::uint32_t>(as_signed(a << 16) >> k) >> 16);
      },
      x);
}
DODONA_INLINE mask lt(i32 x, i32 y) {
  return map<mask>([](std::uint32_t a, std::uint32_t b) { return as_signed(a) < as_signed(b) ? 1u : 0u; }, x, y);
}
DODONA_INLINE mask eq(i32 x, i32 y) {
  return map<mask>([](std::uint32_t a, std::uint32_t b) { return a == b ? 1u : 0u; }, x, y);
}
DODONA_INLINE i32 select(mask m, i32 x, i32 y) {
  return map<i32>([](std::uint32_t set, std::uint32_t p, std::uint32_t q) { return set != 0 ? p : q; }, m, x, y);
}

DODONA_INLINE i32 as_i32(f32 a) {
  i32 r;
  __builtin_memcpy(r.x, a.x, sizeof r.x);
  return r;
}
DODONA_INLINE f32 as_f32(i32 a) {
  f32 r;
  __builtin_memcpy(r.x, a.x, sizeof r.x);
  return r;
}
DODONA_INLINE f32 to_f32(i32 x) {
  return map<f32>([](std::uint32_t p) { return static_cast<float>(as_signed(p)); }, x);
}
DODONA_INLINE i32 to_i32_trunc(f32 a) {
  const auto convert = [](float p) {
    return p >= -0x1p31f && p < 0x1p31f ? static_cast<std::uint32_t>(static_cast<std::int32_t>(p)) : 0x80000000u;
  };
  return map<i32>(convert, a);
}
DODONA_INLINE i32 to_i32(f32 a) {
  return to_i32_trunc(round_even(a));
}

DODONA_INLINE mask bit_and(mask x, mask y) {
  return map<mask>([](std::uint32_t a, std::uint32_t b) { return a & b; }, x, y);
}
DODONA_INLINE mask bit_or(mask x, mask y) {
  return map<mask>([](std::uint32_t a, std::uint32_t b) { return a | b; }, x, y);
}
DODONA_INLINE mask bit_xor(mask x, mask y) {
  return map<mask>([](std::uint32_t a, std::uint32_t b) { return a ^ b; }, x, y);
}
DODONA_INLINE mask bit_not(mask x) {
  return map<mask>([](std::uint32_t a) { return a ^ 1u; }, x);
}

// Reductions: lane i with lane i + 8, then + 4, + 2, + 1.
template <class F>
DODONA_INLINE float reduce(F f, f32 a) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.x[i] = f(a.x[i], a.x[i + half]);
  return a.x[0];
}
DODONA_INLINE float reduce_add(f32 a) {
  return reduce([](float p, float q) { return p + q; }, a);
}
DODONA_INLINE float reduce_min(f32 a) {
  return reduce([](float p, float q) { return p < q ? p : q; }, a);
}
DODONA_INLINE float reduce_max(f32 a) {
  return reduce([](float p, float q) { return p > q ? p : q; }, a);
}

DODONA_INLINE void deinterleave(f32& a, f32& b) {
  f32 even, odd;
  for (int i = 0; i < 8; ++i) {
    even.x[i] = a.x[2 * i];
    odd.x[i] = a.x[2 * i + 1];
    even.x[8 + i] = b.x[2 * i];
    odd.x[8 + i] = b.x[2 * i + 1];
  }
  a = even;
  b = odd;
}
DODONA_INLINE void interleave(f32& even, f32& odd) {
  f32 a, b;
  for (int i = 0; i < 8; ++i) {
    a.x[2 * i] = even.x[i];
    a.x[2 * i + 1] = odd.x[i];
    b.x[2 * i] = even.x[8 + i];
    b.x[2 * i + 1] = odd.x[8 + i];
  }
  even = a;
  odd = b;
}

DODONA_INLINE void transpose(f32 (&r)[16]) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < i; ++j) {
      const float upper = r[j].x[i];
      r[j].x[i] = r[i].x[j];
      r[i].x[j] = upper;
    }
  }
}

template <class Code>
struct codes {
  Code x[16];

  static DODONA_INLINE codes load_first(const void* p, int n) {
    codes r{};
    __builtin_memcpy(r.x, p, sizeof(Code) * static_cast<std::size_t>(n));
    return r;
  }
  static DODONA_INLINE codes load(const void* p) { return load_first(p, 16); }
  DODONA_INLINE void store_first(void* p, int n) const { __builtin_memcpy(p, x, sizeof(Code) * static_cast<std::size_t>(n)); }
  DODONA_INLINE void store(void* p) const { store_first(p, 16); }
};
/// Sixteen 8-bit codes.
using codes8 = codes<std::uint8_t>;
/// Sixteen 16-bit codes.
using codes16 = codes<std::uint16_t>;

DODONA_INLINE i32 widen_unsigned(codes8 x) {
  return map<i32>([](std::uint8_t c) { return std::uint32_t{c}; }, x);
}
DODONA_INLINE i32 widen_signed(codes8 x) {
  return map<i32>([](std::uint8_t c) { return static_cast<std::uint32_t>(static_cast<std::int8_t>(c)); }, x);
}
DODONA_INLINE i32 widen_unsigned(codes16 x) {
  return map<i32>([](std::uint16_t c) { return std::uint32_t{c}; }, x);
}
/// Lanes hold 0..65535.
DODONA_INLINE codes16 narrow_to_16(i32 x) {
  return map<codes16>([](std::uint32_t p) { return static_cast<std::uint16_t>(p); }, x);
}
/// Lanes hold 0..255.
DODONA_INLINE codes8 narrow_to_8(i32 x) {
  return map<codes8>([](std::uint32_t p) { return static_cast<std::uint8_t>(p); }, x);
}
struct codes16_pair {
  codes16 low, high;
};
/// The low and the high halves of all lanes.
DODONA_INLINE codes16_pair split_to_16(i32 x) {
  return {map<codes16>([](std::uint32_t p) { return static_cast<std::uint16_t>(p); }, x),
          map<codes16>([](std::uint32_t p) { return static_cast<std::uint16_t>(p >> 16); }, x)};
}
/// The low halves of all lanes, then the high ones.
DODONA_INLINE i32 regroup_16(i32 x) {
  const codes16_pair split = split_to_16(x);
  i32 r;
  for (int i = 0; i < 8; ++i) {
    r.x[i] = split.low.x[2 * i] | std::uint32_t{split.low.x[2 * i + 1]} << 16;
    r.x[8 + i] = split.high.x[2 * i] | std::uint32_t{split.high.x[2 * i + 1]} << 16;
  }
  return r;
}
/// The first sixteen of thirty-two codes, and the others.
DODONA_INLINE codes16_pair sixteens(i32 x) {
  codes16_pair r;
  for (int i = 0; i < 16; ++i) {
    r.low.x[i] = static_cast<std::uint16_t>(x.x[i / 2] >> (i % 2 * 16));
    r.high.x[i] = static_cast<std::uint16_t>(x.x[8 + i / 2] >> (i % 2 * 16));
  }
  return r;
}
/// Lane `index` mod 16 of the table.
DODONA_INLINE f32 lookup_16(f32 table, i32 index) {
  return map<f32>([&](std::uint32_t i) { return table.x[i & 15]; }, index);
}

/// Sixteen codes 0..15 in eight bytes, element 2j in the low nibble of byte j.
DODONA_INLINE std::uint64_t pack_nibbles(codes8 a) {
  std::uint64_t packed = 0;
  for (int i = 0; i < 16; ++i) packed |= std::uint64_t{a.x[i]} << (4 * i);
  return packed;
}

DODONA_INLINE std::uint32_t bits_of(float x) {
  std::uint32_t r;
  __builtin_memcpy(&r, &x, sizeof r);
  return r;
}
DODONA_INLINE float float_of(std::uint32_t bits) {
  float r;
  __builtin_memcpy(&r, &bits, sizeof r);
  return r;
}
DODONA_INLINE float half_to_float(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7FFFu;
  if (magnitude > 0x7C00u) return float_of(sign | 0x7FC00000u | magnitude << 13);  // quiet
  if (magnitude == 0x7C00u) return float_of(sign | 0x7F800000u);
  if (magnitude >= 0x0400u) return float_of(sign | ((magnitude << 13) + (112u << 23)));
  return float_of(sign | bits_of(static_cast<float>(magnitude) * 0x1p-24f));
}
DODONA_INLINE std::uint16_t float_to_half(float x) {
  const std::uint32_t u = bits_of(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7FFFFFFFu;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
  } else if (magnitude >= 0x47800000u) {  // 65536 and above
    half = 0x7C00u;
  } else if (magnitude >= 0x38800000u) {  // normal halves, and what rounds up to infinity
    half = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  } else {  // the sum is rounded where the smallest half has its last bit
    half = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  }
  return static_cast<std::uint16_t>(sign | half);
}
DODONA_INLINE f32 half_to_f32(codes16 x) {
  return map<f32>([](std::uint16_t c) { return half_to_float(c); }, x);
}
DODONA_INLINE codes16 f32_to_half(f32 x) {
  return map<codes16>([](float p) { return float_to_half(p); }, x);
}
/// The half of the same sign, exponent field and mantissa, which is value / 256.
DODONA_INLINE codes16 e4m3_to_half_finite(codes8 x) {
  return map<codes16>([](std::uint8_t c) { return static_cast<std::uint16_t>((c & 0x80) << 8 | (c & 0x7F) << 7); }, x);
}
/// The same, and codes 0x7F and 0xFF become the NaN 0x7E00 with their sign.
DODONA_INLINE codes16 e4m3_to_half(codes8 a) {
  const auto convert = [](std::uint8_t c) {
    const int magnitude = (c & 0x7F) == 0x7F ? 0x7E00 : (c & 0x7F) << 7;
    return static_cast<std::uint16_t>((c & 0x80) << 8 | magnitude);
  };
  return map<codes16>(convert, a);
}
DODONA_INLINE codes16 e5m2_to_half(codes8 x) {
  return map<codes16>([](std::uint8_t c) { return static_cast<std::uint16_t>(c << 8); }, x);
}
DODONA_INLINE f32 e2m1_to_f32(std::uint64_t packed) {
  constexpr float table[16] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  f32 r;
  for (int i = 0; i < 16; ++i) r.x[i] = table[(packed >> (4 * i)) & 0xFu];
  return r;
}

DODONA_INLINE i32 dpbusd(i32 acc, i32 a, i32 b) {
  const auto dot = [](std::uint32_t sum, std::uint32_t u, std::uint32_t s) {
    for (int j = 0; j < 32; j += 8) sum += (u >> j & 0xFFu) * static_cast<std::uint32_t>(static_cast<std::int8_t>(s >> j & 0xFFu));
    return sum;
  };
  return map<i32>(dot, acc, a, b);
}
DODONA_INLINE i32 dpbusd_small(i32 acc, i32 a, i32 b) {
  return dpbusd(acc, a, b);
}
/// Sums of 4 x 4 bytes a lane; see dot_i8.h.
DODONA_INLINE i32 dot16_small(i32 acc, const i32 (&a)[4], const i32 (&b)[4]) {
  // Pairs of 16-bit numbers in registers that every x86-64 and AArch64 CPU has.
  using shorts = std::int16_t __attribute__((vector_size(16)));
  using unsigned_shorts = std::uint16_t __attribute__((vector_size(16)));
  using ints = std::int32_t __attribute__((vector_size(16)));
  for (int i = 0; i < 16; i += 4) {
    shorts pairs{};
    for (int j = 0; j < 4; ++j) {
      unsigned_shorts u;
      shorts s;
      __builtin_memcpy(&u, a[j].x + i, sizeof u);
      __builtin_memcpy(&s, b[j].x + i, sizeof s);
      pairs += (shorts)(u & 0xFF) * ((s << 8) >> 8) + (shorts)(u >> 8) * (s >> 8);
    }
    ints sum;
    __builtin_memcpy(&sum, acc.x + i, sizeof sum);
    sum += (((ints)pairs << 16) >> 16) + ((ints)pairs >> 16);
    __builtin_memcpy(acc.x + i, &sum, sizeof sum);
  }
  return acc;
}
/// Every byte of `indices`, 0..15, replaced by that byte of the table, which is repeated every 16 bytes.
DODONA_INLINE i32 lookup_bytes(i32 table, i32 indices) {
  const auto look_up = [&table](std::uint32_t four) {
    std::uint32_t r = 0;
    for (int j = 0; j < 32; j += 8) {
      const std::uint32_t index = four >> j & 0xFu;
      r |= (table.x[index / 4] >> (8 * (index % 4)) & 0xFFu) << j;
    }
    return r;
  };
  return map<i32>(look_up, indices);
}

}  // namespace dodona::DODONA_TIER::lanes
