// Signed bytes as operands of panels, in fp32 and as integers. Included by *.simd.cpp only.
#pragma once

#include "ops/tiles/panel_i8/panel_i8.h"
#include "ops/tiles/unpack/fetch.h"
#include "ops/tiles/unpack/raw_sums.h"
#include "ops/tiles/unpack/unpack.h"
#include "simd/blocks_apart.h"
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
  static constexpr int offset = 128, most_raw_rows = 4;  // more are as fast packed

  static DODONA_INLINE i32x16 table() { return i32x16::zero(); }
  static DODONA_INLINE void decode(const std::uint8_t* packed, int block, i32x16, i32x16 (&weights)[4]) {
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) weights[i] = load_bytes(packed + 256 * block + 64 * i);
  }
  /// Of a step, decoded: words of four k, `word` and the one after it.
  struct Step {
    const std::uint8_t* packed;
    DODONA_INLINE explicit Step(const std::uint8_t* step) : packed(step) {}
    DODONA_INLINE i32x16_pair two(std::int64_t word) const { return {load_bytes(packed + 64 * word), load_bytes(packed + 64 * word + 64)}; }
  };
  static DODONA_INLINE i32x16 dot(i32x16 sum, const i32x16 (&weights)[4], const i32x16 (&row)[4]) {
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) sum = dpbusd(sum, weights[i], row[i]);
    return sum;
  }

  static void pack(const ops::I8Weights& w, std::int64_t panel, std::int64_t, std::int64_t begin, std::int64_t end, bool by_pairs,
                   std::uint8_t* out) {
    const std::uint8_t* const rows = w.codes + panel * ops::i8_panel_columns * w.k;
    const std::int64_t last = w.n - 1 - panel * ops::i8_panel_columns;
    for (std::int64_t s = begin; s < end; ++s) {
      const std::int64_t words = (w.k - s * ops::i8_step) / 4, further = fetch_distance(s * ops::i8_step, w.k);
      f32x16 columns[16];
      DODONA_UNROLL(16)
      for (int r = 0; r < 16; ++r) {
        const auto* p = reinterpret_cast<const std::int32_t*>(rows + (r < last ? r : last) * w.k + s * ops::i8_step);
        __builtin_prefetch(reinterpret_cast<const std::byte*>(p) + further);
        if (by_pairs) fetch_next_pair(w.codes, w.k, panel, s * ops::i8_step, r);
        columns[r] = as_f32(words >= 16 ? i32x16::load(p) : i32x16::load_partial(p, words));
      }
      transpose(columns);
      DODONA_UNROLL(16)
      for (int v = 0; v < 16; ++v)
        (as_i32(columns[v]) ^ i32x16::splat(static_cast<std::int32_t>(0x80808080)))
            .store(reinterpret_cast<std::int32_t*>(out + (s - begin) * step_bytes + 64 * v));
    }
  }

  /// See has_lines: as they lie.
  static constexpr int line_word(int place) { return place; }
  static void lines(const ops::I8Weights& w, std::int64_t panel, std::int64_t begin, std::int64_t end, std::uint8_t* out, std::int64_t) {
    const std::int64_t first = panel * ops::i8_panel_columns, last = w.n - 1 - first;
    for (std::int64_t r = 0; r < ops::i8_panel_columns; ++r) {
      const std::uint8_t* const column = w.codes + (first + (r < last ? r : last)) * w.k;
      for (std::int64_t s = begin; s < end; ++s) {
        const auto* const p = reinterpret_cast<const std::int32_t*>(column + s * ops::i8_step);
        const std::int64_t words = (w.k - s * ops::i8_step) / 4;
        __builtin_prefetch(reinterpret_cast<const std::byte*>(p) + fetch_distance(s * ops::i8_step, w.k), 0, 2);
        (words >= 16 ? i32x16::load(p) : i32x16::load_partial(p, words))
            .store(reinterpret_cast<std::int32_t*>(out + (s - begin) * step_bytes + r * line));
      }
    }
  }

  /// See RawSums: some columns after others, each a stream, for so much of K that rows stay in a first-level cache.
  static void multiply_raw(const ops::I8Weights& w, std::int64_t panel, std::int64_t panels, const ops::I8Rows& a, std::int64_t rows,
                           RawSums& sums) {
    const std::int64_t first = panel * ops::i8_panel_columns, last = w.n - 1 - first, of_row = cached / rows;
    const std::int64_t span = of_row < ops::i8_chunk ? ops::i8_chunk : of_row / ops::i8_chunk * ops::i8_chunk;
    sums.clear(panels, rows);
    for (std::int64_t begin = 0; begin < w.k; begin += span) {
      const std::int64_t end = w.k - begin < span ? w.k : begin + span;
      for (std::int64_t j = 0; j < panels * ops::i8_panel_columns; j += columns_together) {
        Streams from{{}, w.k, begin, end};
        DODONA_UNROLL(2)
        for (int c = 0; c < columns_together; ++c) from.column[c] = w.codes + (first + (j + c < last ? j + c : last)) * w.k;
        by_halves<most_raw_rows>(
            rows, [&](auto count, std::int64_t r) { add_columns<count>(from, r == 0, a.at(r, 0), &sums.of[j / 16][r][j % 16]); });
      }
    }
    for (std::int64_t p = 0; p < panels; ++p)
      for (std::int64_t r = 0; r < rows; ++r) sums.total[p][r] = sum_of_lanes(sums.of[p][r]);
  }

  /// See Nvfp4Unpack: bytes in their order.
  static DODONA_INLINE f32x16_pair row(const std::uint8_t* codes, std::int64_t begin, std::int64_t k) {
    const auto* p = reinterpret_cast<const std::int32_t*>(codes + begin);
    const std::int64_t words = (k - begin) / 4;
    return {as_f32(i32x16::load_partial(p, words)), words > 16 ? as_f32(i32x16::load_partial(p + 16, words - 16)) : f32x16::zero()};
  }

 private:
  static constexpr int columns_together = many_sums_fit ? 2 : 1;
  static constexpr std::int64_t cached = 32768, ahead = 8192;

  /// Bytes [begin, end) of columns of `k`.
  struct Streams {
    const std::uint8_t* column[columns_together];
    std::int64_t k, begin, end;

    /// From what is read at `at` to what is fetched then: what is read next, after the end that of the next columns.
    DODONA_INLINE std::int64_t distance(std::int64_t at) const {
      constexpr std::int64_t far = ahead / columns_together;
      return at + far < end ? far : far + columns_together * k - (end - begin);
    }
  };
  /// sums[r][c], sixteen vectors from row to row, += products of row r and column c, lane by lane. What follows is fetched where
  /// `fetching`.
  template <int rows>
  static DODONA_INLINE void add_columns(const Streams& from, bool fetching, const ops::I8Rows& a, i32x16* sums) {
    const i32x16 plus_128 = i32x16::splat(static_cast<std::int32_t>(0x80808080));
    i32x16 s[columns_together][rows];
    DODONA_UNROLL(8)
    for (int r = 0; r < rows; ++r) {
      DODONA_UNROLL(2)
      for (int c = 0; c < columns_together; ++c) s[c][r] = sums[16 * r + c];
    }
    const auto add = [&](const i32x16(&weights)[columns_together], const std::int8_t* codes) {
      DODONA_UNROLL(8)
      for (int r = 0; r < rows; ++r) {
        const i32x16 row = load_bytes(codes + r * ops::i8_chunk);
        DODONA_UNROLL(2)
        for (int c = 0; c < columns_together; ++c) s[c][r] = dpbusd(s[c][r], weights[c] ^ plus_128, row);
      }
    };
    for (std::int64_t begin = from.begin; begin < from.end; begin += ops::i8_chunk) {
      const std::int8_t* const codes = a.at(0, begin / ops::i8_chunk).codes;
      const std::int64_t left = from.end - begin, end = left < ops::i8_chunk ? left : ops::i8_chunk;
      const std::int64_t distance = fetching ? from.distance(begin) : 0;
      std::int64_t i = 0;
      for (; i + line <= end; i += line) {
        i32x16 weights[columns_together];
        DODONA_UNROLL(2)
        for (int c = 0; c < columns_together; ++c) {
          const std::uint8_t* const p = from.column[c] + begin + i;
          __builtin_prefetch(p + distance, 0, 2);
          weights[c] = load_bytes(p);
        }
        add(weights, codes + i);
      }
      if (i < end) {  // rows are filled up with zeros
        i32x16 weights[columns_together];
        DODONA_UNROLL(2)
        for (int c = 0; c < columns_together; ++c)
          weights[c] = i32x16::load_partial(reinterpret_cast<const std::int32_t*>(from.column[c] + begin + i), (end - i) / 4);
        add(weights, codes + i);
      }
    }
    DODONA_UNROLL(8)
    for (int r = 0; r < rows; ++r) {
      DODONA_UNROLL(2)
      for (int c = 0; c < columns_together; ++c) sums[16 * r + c] = s[c][r];
    }
  }
};

}  // namespace dodona::DODONA_TIER
