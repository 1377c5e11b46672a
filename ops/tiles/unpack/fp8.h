// e4m3 and e5m2 codes as operands of panels. Included by *.simd.cpp only.
#pragma once

#include <type_traits>

#include "ops/tiles/unpack/unpack.h"
#include "simd/bytes_apart.h"
#include "simd/dot_i8.h"
#include "simd/nan_codes.h"

namespace dodona::DODONA_TIER {

template <bool e5m2>
struct Fp8Unpack {
  static constexpr int bits = 8;
  static constexpr float left_out = e5m2 ? 1.0f : 256.0f;  // an e4m3 code is a half of the same fields, and a value / 256

  static DODONA_INLINE f32x16 load(const std::byte* p) { return e5m2 ? load_e5m2(p) : load_e4m3(p); }
  static DODONA_INLINE f32x16 load_partial(const std::byte* p, std::int64_t n) {
    return e5m2 ? load_e5m2_partial(p, n) : load_e4m3_partial(p, n);
  }
  static void columns(const Columns& from, std::int64_t k, float* to, std::int64_t to_k) {
    Nans nans;
    const std::int64_t done = each_word_of_lines<Fp8Unpack>(
        from, k, [&](std::int64_t begin, i32x16 codes) __attribute__((always_inline)) {
          nans.look_at(codes);
          const Word values = word(codes);
          DODONA_UNROLL(4)
          for (int i = 0; i < 4; ++i) value<false>(values, i).store(to + (begin + i) * to_k);
        });
    if (nans.any()) restore_nan(to, done, to_k);
    columns_from<Fp8Unpack>(done, from, k, to, to_k);
  }

  /// Pairs of codes as halves of value / left_out, in place. NaN codes of e4m3 become 1.875.
  struct Halves {
    i32x16 even, odd;  ///< of the low bytes, of the high bytes
  };
  static DODONA_INLINE Halves halves(i32x16 codes) {
    const auto fields = [](std::uint32_t bits) { return i32x16::splat(static_cast<std::int32_t>(bits)); };
    const i32x16 even = shl<8>(codes);
    if (e5m2) return {even & fields(0xFF00FF00), codes & fields(0xFF00FF00)};
    // What the shift brings in from a neighbour is masked.
    return {sra_16<1>(even) & fields(0xBF80BF80), sra_16<1>(codes) & fields(0xBF80BF80)};
  }

  // ---- words of four codes in lanes, the first in the low byte: what products of few rows take (panel_few.h)

  /// What rows of the other operand are multiplied by, and then sums of products.
  static constexpr float rows_take = left_out, sums_take = 1.0f;
  /// The first two codes of all lanes, then the others.
  using Word = Halves;
  static DODONA_INLINE Word word(i32x16 codes) { return halves(regroup_16(codes)); }
  static DODONA_INLINE Word word(const std::byte* codes) { return word(load_bytes(codes)); }
  using BesideSums = Fp8Unpack;
  /// Code i of every lane. `restoring` makes NaNs of NaN codes again: no finite value / 256 is beyond 1.75.
  template <bool restoring>
  static DODONA_INLINE f32x16 value(const Word& w, int i) {
    const i32x16 pairs = i % 2 == 0 ? w.even : w.odd;
    const f32x16 x = i < 2 ? widen_first_f16(pairs) : widen_last_f16(pairs);
    if constexpr (!restoring || e5m2) return x;
    return select(abs(x) > f32x16::splat(1.8f), as_f32(i32x16::splat(0x7FC00000)), x);
  }

  /// `k` elements of sixteen columns, packed (panel_few.h), fours of which lie `four_stride` bytes apart, to to[k][16], row stride `to_k`.
  template <bool restoring>
  static void packed_columns(const std::byte* fours, std::int64_t four_stride, std::int64_t k, float* to, std::int64_t to_k) {
    for (std::int64_t begin = 0; begin < k; begin += 4, fours += four_stride, to += 4 * to_k) {
      const Word codes = word(i32x16::load(reinterpret_cast<const std::int32_t*>(fours)));
      DODONA_UNROLL(4)
      for (int i = 0; i < 4; ++i) {
        if (begin + i == k) return;
        value<restoring>(codes, i).store(to + i * to_k);
      }
    }
  }

  /// What looks for codes that come out finite though they are NaN.
  using Nans = std::conditional_t<e5m2, NoNanCodes, NanCodes>;

 private:
  /// No finite value / 256 is beyond 1.75.
  static DODONA_INLINE void restore_nan(float* to, std::int64_t k, std::int64_t to_k) {
    for (std::int64_t i = 0; i < k; ++i) {
      const f32x16 x = f32x16::load(to + i * to_k);
      select(abs(x) > f32x16::splat(1.8f), as_f32(i32x16::splat(0x7FC00000)), x).store(to + i * to_k);
    }
  }
};

/// e4m3 by e4m3 with few rows, in half as many instructions: a code shifted to where fp32 has its sign, exponent and mantissa is value /
/// 2^120, exactly. What is subnormal there is so in fp32 too, which costs some processors a hundred cycles: for weights that have few such.
struct E4m3Fields {
  /// 448 * 2^119 is finite. Products are halves of theirs, and so are sums, rounded alike: none is smaller than 2^-19.
  static constexpr float rows_take = 0x1p119f, sums_take = 2.0f;
  using Nans = NanCodes;

  /// Two codes in each half of a lane, beside bits that `value` masks.
  using Word = BytesApart;
  static DODONA_INLINE Word word(const std::byte* codes) { return signed_apart_16_times(load_bytes(codes)); }
  template <bool restoring>
  static DODONA_INLINE f32x16 value(const Word& w, int i) {
    const i32x16 pairs = i % 2 == 0 ? w.even : w.odd;
    return masked<restoring>(i < 2 ? shl<16>(pairs) : pairs);
  }

#if DODONA_TIER_v3
  /// For two and three rows, whose sums leave few registers for words: a code is loaded as the high byte of its lane. Reads three bytes
  /// before it.
  struct BesideSums {
    static constexpr float sums_take = E4m3Fields::sums_take;
    using Word = const std::byte*;
    static DODONA_INLINE Word word(const std::byte* codes) { return codes; }
    template <bool restoring>
    static DODONA_INLINE f32x16 value(Word codes, int i) {
      return masked<restoring>(sra<4>(load_bytes(codes + i - 3)));
    }
  };
#else
  using BesideSums = E4m3Fields;
#endif

 private:
  template <bool restoring>
  static DODONA_INLINE f32x16 masked(i32x16 code) {
    const i32x16 magnitude = i32x16::splat(0x07F00000), x = code & i32x16::splat(static_cast<std::int32_t>(0x87F00000));
    if constexpr (!restoring) return as_f32(x);
    return as_f32(select((x & magnitude) == magnitude, i32x16::splat(0x7FC00000), x));
  }
};

}  // namespace dodona::DODONA_TIER
