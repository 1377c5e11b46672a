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
    std::int64_t done = 0;
    if (from.count == 16)
      for (; done + 32 <= k; done += 32) columns_by_pairs(from.first + 2 * done, from.stride, to + done * to_k, to_k);
    if (done < k) columns_by_transposing<Bf16Unpack>({from.first + 2 * done, from.stride, from.count}, k - done, to + done * to_k, to_k);
  }

 private:
  /// Thirty-two of each of sixteen columns: lanes of two are transposed, and then taken apart.
  static DODONA_INLINE void columns_by_pairs(const std::byte* first, std::int64_t stride, float* to, std::int64_t to_k) {
    i32x16 pairs[16];
    DODONA_UNROLL(16)
    for (int j = 0; j < 16; ++j) pairs[j] = i32x16::load(reinterpret_cast<const std::int32_t*>(first + j * stride));
    transpose(pairs);
    DODONA_UNROLL(16)
    for (int i = 0; i < 16; ++i) {
      as_f32(shl<16>(pairs[i])).store(to + 2 * i * to_k);
      as_f32(pairs[i] & i32x16::splat(-0x10000)).store(to + (2 * i + 1) * to_k);
    }
  }
};

struct F16Unpack {
  static constexpr int bits = 16;
  static constexpr float left_out = 1.0f;
  static DODONA_INLINE f32x16 load(const std::byte* p) { return load_f16(p); }
  static DODONA_INLINE f32x16 load_partial(const std::byte* p, std::int64_t n) { return load_f16_partial(p, n); }
  static void columns(const Columns& from, std::int64_t k, float* to, std::int64_t to_k) {
    columns_by_transposing<F16Unpack>(from, k, to, to_k);
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
    columns_by_transposing<F32Unpack>(from, k, to, to_k);
  }
};

}  // namespace dodona::DODONA_TIER
