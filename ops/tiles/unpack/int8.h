// Signed bytes as operands of panels, in fp32 and as integers. Included by *.simd.cpp only.
#pragma once

#include "ops/tiles/panel_i8.h"
#include "ops/tiles/unpack/fetch.h"
#include "ops/tiles/unpack/raw_sums.h"
#include "ops/tiles/unpack/unpack.h"
#include "simd/dot_i8.h"

namespace dodona::DODONA_TIER {

struct I8Unpack {
  static constexpr int bits = 8;
  static constexpr float left_out = 1.0f;
  static DODONA_INLINE f32x16 load(const std::byte* p) { return to_f32(load_i8(p)); }
  static DODONA_INLINE f32x16 load_partial(const std::byte* p, std::int64_t n) { return to_f32(load_i8_partial(p, n)); }
  static void columns(const Columns& from, std::int64_t k, float* to, std::int64_t to_k) {
    columns_by_transposing<I8Unpack>(from, k, to, to_k);
  }
};

/// As weights of sums of integers: values plus 128 as unsigned bytes. A step of a packed panel is 1024 bytes, sixteen vectors: lane r of
/// vector v holds the four bytes of column r with k = 4v..4v+3.
struct Int8Unpack {
  static constexpr std::int64_t step_bytes = 1024, panels_together = 1, line = 64;
  static constexpr int offset = 128;

  static DODONA_INLINE i32x16 table() { return i32x16::zero(); }
  static DODONA_INLINE void decode(const std::uint8_t* packed, int block, i32x16, i32x16 (&weights)[4]) {
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) weights[i] = load_bytes(packed + 256 * block + 64 * i);
  }
  static DODONA_INLINE i32x16 dot(i32x16 sum, const i32x16 (&weights)[4], const i32x16 (&row)[4]) {
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) sum = dpbusd(sum, weights[i], row[i]);
    return sum;
  }

  static void pack(const ops::I8Weights& w, std::int64_t panel, std::int64_t, std::int64_t begin, std::int64_t end, std::uint8_t* out) {
    const std::uint8_t* const rows = w.codes + panel * ops::i8_panel_columns * w.k;
    const std::int64_t last = w.n - 1 - panel * ops::i8_panel_columns;
    for (std::int64_t s = begin; s < end; ++s) {
      const std::int64_t words = (w.k - s * ops::i8_step) / 4, ahead = fetch_distance(s * ops::i8_step, w.k);
      f32x16 columns[16];
      DODONA_UNROLL(16)
      for (int r = 0; r < 16; ++r) {
        const auto* p = reinterpret_cast<const std::int32_t*>(rows + (r < last ? r : last) * w.k + s * ops::i8_step);
        __builtin_prefetch(reinterpret_cast<const std::byte*>(p) + ahead);
        columns[r] = as_f32(words >= 16 ? i32x16::load(p) : i32x16::load_partial(p, words));
      }
      transpose(columns);
      DODONA_UNROLL(16)
      for (int v = 0; v < 16; ++v)
        (as_i32(columns[v]) ^ i32x16::splat(static_cast<std::int32_t>(0x80808080)))
            .store(reinterpret_cast<std::int32_t*>(out + (s - begin) * step_bytes + 64 * v));
    }
  }

  /// See RawSums: a column after the other, in one stream.
  template <int rows>
  static void multiply_raw(const ops::I8Weights& w, std::int64_t panel, std::int64_t panels, const ops::I8Rows& a, RawSums<rows>& sums) {
    const std::int64_t first = panel * ops::i8_panel_columns, left = w.n - first, many = panels * ops::i8_panel_columns;
    for (std::int64_t j = 0; j < many; ++j) {
      i32x16 sum[rows];
      add_column<rows>(reinterpret_cast<const std::byte*>(w.codes) + (first + (j < left ? j : left - 1)) * w.k, w.k, a, sum);
      DODONA_UNROLL(4)
      for (int r = 0; r < rows; ++r) sums.of[j / 16][r][j % 16] = sum[r];
    }
    for (std::int64_t p = 0; p < panels; ++p) {
      DODONA_UNROLL(4)
      for (int r = 0; r < rows; ++r) sums.total[p][r] = sum_of_lanes(sums.of[p][r]);
    }
  }

  /// See Nvfp4Unpack: bytes in their order.
  static DODONA_INLINE f32x16_pair row(const std::uint8_t* codes, std::int64_t begin, std::int64_t k) {
    const auto* p = reinterpret_cast<const std::int32_t*>(codes + begin);
    const std::int64_t words = (k - begin) / 4;
    return {as_f32(i32x16::load_partial(p, words)), words > 16 ? as_f32(i32x16::load_partial(p + 16, words - 16)) : f32x16::zero()};
  }

 private:
  /// Sixteen lanes of the sums of a column's products.
  template <int rows>
  static DODONA_INLINE void add_column(const std::byte* column, std::int64_t k, const ops::I8Rows& a, i32x16 (&sum)[rows]) {
    constexpr std::int64_t ahead = 4096;
    constexpr int together = 4;
    const i32x16 plus_128 = i32x16::splat(static_cast<std::int32_t>(0x80808080));
    i32x16 c[together][rows];
    DODONA_UNROLL(4)
    for (int v = 0; v < together; ++v) {
      DODONA_UNROLL(4)
      for (int r = 0; r < rows; ++r) c[v][r] = i32x16::zero();
    }
    for (std::int64_t begin = 0; begin < k; begin += ops::i8_chunk) {
      const std::int8_t* const codes = a.at(0, begin / ops::i8_chunk).codes;
      const std::int64_t end = k - begin < ops::i8_chunk ? k - begin : ops::i8_chunk;
      std::int64_t i = 0;
      for (; i + together * line <= end; i += together * line) {
        DODONA_UNROLL(4)
        for (int v = 0; v < together; ++v) {
          const std::byte* const p = column + begin + i + v * line;
          __builtin_prefetch(p + ahead);
          const i32x16 weights = load_bytes(p) ^ plus_128;
          DODONA_UNROLL(4)
          for (int r = 0; r < rows; ++r) c[v][r] = dpbusd(c[v][r], weights, load_bytes(codes + r * ops::i8_chunk + i + v * line));
        }
      }
      for (; i < end; i += line) {  // rows are filled up with zeros
        const i32x16 weights = i32x16::load_partial(reinterpret_cast<const std::int32_t*>(column + begin + i), (end - i) / 4) ^ plus_128;
        DODONA_UNROLL(4)
        for (int r = 0; r < rows; ++r) c[0][r] = dpbusd(c[0][r], weights, load_bytes(codes + r * ops::i8_chunk + i));
      }
    }
    DODONA_UNROLL(4)
    for (int r = 0; r < rows; ++r) sum[r] = (c[0][r] + c[1][r]) + (c[2][r] + c[3][r]);
  }
};

}  // namespace dodona::DODONA_TIER
