// e4m3 and e5m2 codes as operands of panels. Included by *.simd.cpp only.
#pragma once

#include "ops/tiles/unpack/unpack.h"

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
    const std::int64_t words = from.count == 16 ? k / 4 * 4 : 0;
    if (any(~(pack_words(from, words, to, to_k) == i32x16::zero()))) restore_nan(to, words, to_k);
    if (words < k) columns_by_transposing<Fp8Unpack>({from.first + words, from.stride, from.count}, k - words, to + words * to_k, to_k);
  }

  /// Lanes of four codes: the second and the fourth of each as halves, in place. e4m3 becomes value / 256, and 1.875 for NaN.
  static DODONA_INLINE i32x16 halves_of_odd_bytes(i32x16 words) {
    const auto fields = [](std::uint32_t bits) { return i32x16::splat(static_cast<std::int32_t>(bits)); };
    if (e5m2) return words & fields(0xFF00FF00);
    return sra_16<1>(words) & fields(0xBF80BF80);
  }

  /// Bit 7 of every byte that is a NaN of e4m3.
  static DODONA_INLINE i32x16 nan_bytes(i32x16 words) {
    return ((words & i32x16::splat(0x7F7F7F7F)) + i32x16::splat(0x01010101)) & i32x16::splat(static_cast<std::int32_t>(0x80808080));
  }

  /// Four codes of each of sixteen columns as 16-bit floats of value / left_out: sixteen of the first, the third, the second, the fourth.
  /// Returns where e4m3 had NaN codes, which come out as 1.875.
  static DODONA_INLINE i32x16 store_halves(i32x16 codes, std::uint16_t* to) {
    store_16_of_pairs(halves_of_odd_bytes(shl<8>(codes)), to, to + 16);
    store_16_of_pairs(halves_of_odd_bytes(codes), to + 32, to + 48);
    return e5m2 ? i32x16::zero() : nan_bytes(codes);
  }

 private:
  /// k is a multiple of 4. Returns where e4m3 had NaN codes, which come out finite.
  static DODONA_INLINE i32x16 pack_words(const Columns& from, std::int64_t k, float* to, std::int64_t to_k) {
    i32x16 nan = i32x16::zero();
    for (std::int64_t begin = 0; begin < k; begin += 64) {
      const std::int64_t words = (k - begin) / 4 < 16 ? (k - begin) / 4 : 16;
      f32x16 columns[16];
      DODONA_UNROLL(16)
      for (int j = 0; j < 16; ++j) {
        const auto* p = reinterpret_cast<const std::int32_t*>(from.first + j * from.stride + begin);
        columns[j] = as_f32(words == 16 ? i32x16::load(p) : i32x16::load_partial(p, words));
      }
      transpose(columns);
      float* out = to + begin * to_k;
      DODONA_UNROLL(16)
      for (int w = 0; w < 16; ++w) {
        if (w >= words) break;
        const i32x16 codes = as_i32(columns[w]);
        if (!e5m2) nan = nan | nan_bytes(codes);
        const f32x16_pair even = widen_f16_pairs(halves_of_odd_bytes(shl<8>(codes)));
        const f32x16_pair odd = widen_f16_pairs(halves_of_odd_bytes(codes));
        even.first.store(out + (4 * w) * to_k);
        odd.first.store(out + (4 * w + 1) * to_k);
        even.second.store(out + (4 * w + 2) * to_k);
        odd.second.store(out + (4 * w + 3) * to_k);
      }
    }
    return nan;
  }

  /// No finite value / 256 is beyond 1.75.
  static DODONA_INLINE void restore_nan(float* to, std::int64_t k, std::int64_t to_k) {
    for (std::int64_t i = 0; i < k; ++i) {
      const f32x16 x = f32x16::load(to + i * to_k);
      select(abs(x) > f32x16::splat(1.8f), as_f32(i32x16::splat(0x7FC00000)), x).store(to + i * to_k);
    }
  }
};

}  // namespace dodona::DODONA_TIER
