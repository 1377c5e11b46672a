// bf16, f16 and f32 as operands of panels. Included by *.simd.cpp only.
#pragma once

#include "ops/tiles/unpack/unpack.h"

namespace dodona::DODONA_TIER {

struct Bf16Unpack {
  static constexpr int bits = 16;
  static constexpr float left_out = 1.0f;
  static DODONA_INLINE f32x16 load(const std::byte* p) { return load_bf16(p); }
  static DODONA_INLINE f32x16 load_partial(const std::byte* p, std::int64_t n) { return load_bf16_partial(p, n); }
  static void columns(const Columns& from, std::int64_t k, float* to, std::int64_t to_k) {
    const auto pair = [&](std::int64_t i, i32x16 both) __attribute__((always_inline)) {
      as_f32(shl<16>(both)).store(to + i * to_k);
      as_f32(both & i32x16::splat(-0x10000)).store(to + (i + 1) * to_k);
    };
    columns_from<Bf16Unpack>(each_word_of_lines<Bf16Unpack>(from, k, pair), from, k, to, to_k);
  }
};

struct F16Unpack {
  static constexpr int bits = 16;
  static constexpr float left_out = 1.0f;
  static DODONA_INLINE f32x16 load(const std::byte* p) { return load_f16(p); }
  static DODONA_INLINE f32x16 load_partial(const std::byte* p, std::int64_t n) { return load_f16_partial(p, n); }
  static void columns(const Columns& from, std::int64_t k, float* to, std::int64_t to_k) {
    const auto pair = [&](std::int64_t i, i32x16 both) __attribute__((always_inline)) {
      const f32x16_pair values = widen_f16_pairs(both);
      values.first.store(to + i * to_k);
      values.second.store(to + (i + 1) * to_k);
    };
    columns_from<F16Unpack>(each_word_of_lines<F16Unpack>(from, k, pair), from, k, to, to_k);
  }
};

struct F32Unpack {
  static constexpr int bits = 32;
  static constexpr float left_out = 1.0f;
  static DODONA_INLINE f32x16 load(const std::byte* p) { return f32x16::load(reinterpret_cast<const float*>(p)); }
  static DODONA_INLINE f32x16 load_partial(const std::byte* p, std::int64_t n) {
    return f32x16::load_partial(reinterpret_cast<const float*>(p), n);
  }
  static void columns(const Columns& from, std::int64_t k, float* to, std::int64_t to_k) {
    const auto one = [&](std::int64_t i, i32x16 word) __attribute__((always_inline)) {
      as_f32(word).store(to + i * to_k);
    };
    columns_from<F32Unpack>(each_word_of_lines<F32Unpack>(from, k, one), from, k, to, to_k);
  }
};

}  // namespace dodona::DODONA_TIER
