// QServe's weights for sums of integers: unsigned nibbles in tiles of 32 columns x 32 k, see quant/qserve.h. Included by *.simd.cpp only.
// A step of a packed panel has eight vectors of codes: lane r of vector u holds the four bytes of column r with k = 8u..8u+3 in the low
// nibbles, and with k = 8u+4..8u+7 in the high ones.
#pragma once

#include "ops/tiles/panel_i8/panel_i8.h"
#include "ops/tiles/unpack/int8.h"

namespace dodona::DODONA_TIER {

DODONA_INLINE i32x16 low_codes(i32x16 codes) {
  return codes & i32x16::splat(0x0F0F0F0F);
}
DODONA_INLINE i32x16 high_codes(i32x16 codes) {
  return shr<4>(codes) & i32x16::splat(0x0F0F0F0F);
}

/// Step `s` of one or two panels to eight vectors each, `stride` bytes apart. A tile has eight lines of 64 bytes, line c for columns c and
/// 8 + c of both panels of the tile, in whose low and high nibbles they are: words of four k, 4 * (k / 4 mod 4) + 2 * (k / 16 mod 2) +
/// (1 for column 8 + c).
DODONA_INLINE void pack_qserve_codes(const ops::I8Weights& w, std::int64_t panel, std::int64_t panels, std::int64_t s, std::uint8_t* out,
                                     std::int64_t stride) {
  // The chunk that comes next, for which there is time while this one is multiplied.
  constexpr std::int64_t tile_bytes = 512, ahead = ops::i8_chunk / 32 * tile_bytes;
  const std::uint8_t* const tile = w.codes + (panel / 2 * (w.k / 32) + 2 * s) * tile_bytes;
  f32x16 lines[16];
  DODONA_UNROLL(8)
  for (int c = 0; c < 8; ++c) {
    __builtin_prefetch(tile + 64 * c + ahead, 0, 2);
    __builtin_prefetch(tile + 64 * c + tile_bytes + ahead, 0, 2);
    const f32x16_pair split = deinterleave(as_f32(load_bytes(tile + 64 * c)), as_f32(load_bytes(tile + tile_bytes + 64 * c)));
    lines[c] = split.first;
    lines[8 + c] = split.second;
  }
  transpose(lines);  // vector 8 * tile + 2 * (k / 4 mod 4) + k / 16 mod 2
  for (std::int64_t p = panel; p < panel + panels; ++p, out += stride) {
    DODONA_UNROLL(8)
    for (int u = 0; u < 8; ++u) {
      const int first = u / 4 * 8 + (u % 2 * 2) * 2 + u % 4 / 2;
      const i32x16 even = as_i32(lines[first]), odd = as_i32(lines[first + 2]);
      const i32x16 codes = p % 2 == 0 ? low_codes(even) | shl<4>(low_codes(odd)) : high_codes(even) | shl<4>(high_codes(odd));
      codes.store(reinterpret_cast<std::int32_t*>(out + 64 * u));
    }
  }
}

/// Few rows times raw codes: a line of a tile times 32 k of a row, each word of which stands twice as in the line. `Weights` makes weights
/// of codes for 128 k of a tile's columns: from(w, panel, group), then line(c), then low(codes) and high(codes); dot adds products.
template <class Weights>
void multiply_qserve(const ops::I8Weights& w, std::int64_t panel, std::int64_t panels, const ops::I8Rows& a, std::int64_t rows,
                     RawSums& sums) {
  constexpr std::int64_t tile_bytes = 512, tile_k = 32, group_tiles = 4, most_tiles = ops::i8_chunk / tile_k;
  constexpr std::int32_t place[16] = {0, 0, 4, 4, 1, 1, 5, 5, 2, 2, 6, 6, 3, 3, 7, 7};
  const i32x16 first = i32x16::load(place), second = first + i32x16::splat(8);
  const std::uint8_t* tile = w.codes + panel / 2 * (w.k / tile_k) * tile_bytes;
  i32x16 words[raw_rows][most_tiles];
  sums.clear(1, rows);
  for (std::int64_t begin = 0; begin < w.k; begin += ops::i8_chunk, tile += most_tiles * tile_bytes) {
    const std::int64_t left = (w.k - begin) / tile_k, tiles = left < most_tiles ? left : most_tiles;
    const std::int8_t* const codes = a.at(0, begin / ops::i8_chunk).codes;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t t = 0; t < tiles; t += 2) {  // rows are filled up with zeros to whole chunks
        const f32x16 two = as_f32(load_bytes(codes + r * ops::i8_chunk + t * tile_k));
        words[r][t] = as_i32(lookup_16(two, first));
        words[r][t + 1] = as_i32(lookup_16(two, second));
      }
    const auto add = [&](auto count, std::int64_t from, int c) {
      constexpr int many = count;
      i32x16 low[many], high[many];
      DODONA_UNROLL(8)
      for (int r = 0; r < many; ++r) low[r] = sums.of[0][from + r][c], high[r] = sums.of[0][from + r][8 + c];
      const std::int64_t ahead = from == 0 ? most_tiles * tile_bytes : 0;
      for (std::int64_t group = 0; group < tiles; group += group_tiles) {
        const auto of_line = Weights::from(w, panel, (begin / tile_k + group) / group_tiles).line(c);
        const std::int64_t end = tiles - group < group_tiles ? tiles : group + group_tiles;
        for (std::int64_t t = group; t < end; ++t) {
          const std::uint8_t* const p = tile + t * tile_bytes + 64 * c;
          // In the order of memory, whatever that of reading.
          __builtin_prefetch(tile + (c * tiles + t) * 64 + ahead, 0, 2);
          const i32x16 codes_of_four = load_bytes(p);
          const i32x16 low_weights = of_line.low(low_codes(codes_of_four)), high_weights = of_line.high(high_codes(codes_of_four));
          DODONA_UNROLL(8)
          for (int r = 0; r < many; ++r) {
            low[r] = Weights::dot(low[r], low_weights, words[from + r][t]);
            high[r] = Weights::dot(high[r], high_weights, words[from + r][t]);
          }
        }
      }
      DODONA_UNROLL(8)
      for (int r = 0; r < many; ++r) sums.of[0][from + r][c] = low[r], sums.of[0][from + r][8 + c] = high[r];
    };
    for (int c = 0; c < 8; ++c) by_halves<raw_rows>(rows, [&](auto count, std::int64_t from) { add(count, from, c); });
  }
  // Even lanes of line c are of column c, or 16 + c in the high nibbles, and odd lanes of the column eight further on.
  for (std::int64_t r = 0; r < rows; ++r) {
    const LaneSums both = sums_of_lanes(sums.of[0][r]);
    std::int32_t even[16], odd[16], columns[32];
    both.even.store(even);
    both.odd.store(odd);
    for (int c = 0; c < 8; ++c) columns[c] = even[c], columns[8 + c] = odd[c], columns[16 + c] = even[8 + c], columns[24 + c] = odd[8 + c];
    for (std::int64_t p = 0; p < panels; ++p) sums.total[p][r] = i32x16::load(columns + 16 * ((panel + p) % 2));
  }
}

/// Which of a row's words stands at a place of a line: they lie as in the lines of the two tiles that it is made of.
constexpr int qserve_line_word(int place) {
  return place / 8 * 8 + place % 2 * 4 + place % 8 / 2;
}
/// Two panels of raw codes as lines of a column's 64 k (panel_i8_amx_lanes.h). `Weights` makes weights of codes for 128 k: from(w, panel,
/// group), then columns(c), then of(i, codes) for column c + 8 * i.
template <class Weights>
DODONA_INLINE void qserve_lines(const ops::I8Weights& w, std::int64_t panel, std::int64_t begin, std::int64_t end, std::uint8_t* out,
                                std::int64_t stride) {
  constexpr std::int64_t tile_bytes = 512, far = 16 * tile_bytes, group_steps = 2, step_bytes = ops::i8_panel_columns * ops::i8_step;
  while (begin < end) {
    const std::int64_t group = begin / group_steps, left = (group + 1) * group_steps, stop = left < end ? left : end;
    const auto weights = Weights::from(w, panel, group);
    for (int c = 0; c < 8; ++c) {
      const auto of_columns = weights.columns(c);
      const std::uint8_t* p = w.codes + (panel / 2 * (w.k / 32) + 2 * begin) * tile_bytes + 64 * c;
      std::uint8_t* to = out + 64 * c;
      for (std::int64_t s = begin; s < stop; ++s, p += 2 * tile_bytes, to += step_bytes) {
        __builtin_prefetch(p + far, 0, 2);
        __builtin_prefetch(p + tile_bytes + far, 0, 2);
        const f32x16_pair split = deinterleave(as_f32(load_bytes(p)), as_f32(load_bytes(p + tile_bytes)));
        const i32x16 first = as_i32(split.first), second = as_i32(split.second);
        const i32x16 codes[4] = {low_codes(first), low_codes(second), high_codes(first), high_codes(second)};
        DODONA_UNROLL(4)
        for (int i = 0; i < 4; ++i)
          of_columns.of(i, codes[i]).store(reinterpret_cast<std::int32_t*>(to + i / 2 * stride + i % 2 * 8 * ops::i8_step));
      }
    }
    out += (stop - begin) * step_bytes;
    begin = stop;
  }
}

/// Weights as they are, 0 to 15.
struct QserveUnpack {
  static constexpr std::int64_t step_bytes = 512, panels_together = 2;
  static constexpr int offset = 0, most_raw_rows = raw_rows;

  static DODONA_INLINE i32x16 table() { return i32x16::zero(); }
  static DODONA_INLINE void decode(const std::uint8_t* packed, int block, i32x16, i32x16 (&weights)[4]) {
    const i32x16 first = load_bytes(packed + 128 * block), second = load_bytes(packed + 128 * block + 64);
    weights[0] = low_codes(first);
    weights[1] = high_codes(first);
    weights[2] = low_codes(second);
    weights[3] = high_codes(second);
  }
  // 8 * 15 * 128 fits in 16 bits.
  static DODONA_INLINE i32x16 dot(i32x16 sum, const i32x16 (&weights)[4], const i32x16 (&row)[4]) { return dot16_small(sum, weights, row); }

  static void pack(const ops::I8Weights& w, std::int64_t panel, std::int64_t panels, std::int64_t begin, std::int64_t end, bool,
                   std::uint8_t* out) {
    for (std::int64_t s = begin; s < end; ++s)
      pack_qserve_codes(w, panel, panels, s, out + (s - begin) * step_bytes, (end - begin) * step_bytes);
  }
  static constexpr int line_word(int place) { return qserve_line_word(place); }
  static void lines(const ops::I8Weights& w, std::int64_t panel, std::int64_t begin, std::int64_t end, std::uint8_t* out,
                    std::int64_t stride) {
    qserve_lines<Plain>(w, panel, begin, end, out, stride);
  }
  static void multiply_raw(const ops::I8Weights& w, std::int64_t panel, std::int64_t panels, const ops::I8Rows& a, std::int64_t rows,
                           RawSums& sums) {
    multiply_qserve<Plain>(w, panel, panels, a, rows, sums);
  }
  static DODONA_INLINE f32x16_pair row(const std::uint8_t* codes, std::int64_t begin, std::int64_t k) {
    return Int8Unpack::row(codes, begin, k);
  }

 private:
  struct Line {
    static DODONA_INLINE i32x16 low(i32x16 codes) { return codes; }
    static DODONA_INLINE i32x16 high(i32x16 codes) { return codes; }
    static DODONA_INLINE i32x16 of(int, i32x16 codes) { return codes; }
  };
  struct Plain {
    static DODONA_INLINE Plain from(const ops::I8Weights&, std::int64_t, std::int64_t) { return {}; }
    static DODONA_INLINE Line line(int) { return {}; }
    static DODONA_INLINE Line columns(int) { return {}; }
    static DODONA_INLINE i32x16 dot(i32x16 sum, i32x16 weights, i32x16 row) { return dpbusd_small(sum, weights, row); }
  };
};

/// Weights (code * scale + zero) mod 256 as signed bytes, a scale and a zero for each column and 128 k; decoded plus 128. A step ends with
/// a word for each column: the scale in its first byte, the zero in its second.
struct QserveGroupUnpack {
  static constexpr std::int64_t step_bytes = 576, panels_together = 2;
  static constexpr int offset = 128, most_raw_rows = raw_rows;

  static DODONA_INLINE i32x16 table() { return i32x16::zero(); }
  /// Of a step, decoded: words of four k, `word` and the one after it, of even `word`.
  struct Step {
    const std::uint8_t* packed;
    i32x16 scale, zero_plus_128;
    DODONA_INLINE explicit Step(const std::uint8_t* step) : packed(step) {
      const i32x16 words = load_bytes(packed + 512), byte = i32x16::splat(0xFF);
      scale = (words & byte) * i32x16::splat(0x00010001);
      zero_plus_128 = ((shr<8>(words) & byte) ^ i32x16::splat(0x80)) * i32x16::splat(0x01010101);
    }
    /// A product is at most 15 * 17: none reaches the byte beside it.
    DODONA_INLINE i32x16 of(i32x16 codes) const { return add_8(mul_16(codes, scale), zero_plus_128); }
    DODONA_INLINE i32x16_pair two(std::int64_t word) const {
      const i32x16 codes = load_bytes(packed + 32 * word);
      return {of(low_codes(codes)), of(high_codes(codes))};
    }
  };
  static DODONA_INLINE void decode(const std::uint8_t* packed, int block, i32x16 table, i32x16 (&weights)[4]) {
    const Step step(packed);
    QserveUnpack::decode(packed, block, table, weights);
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) weights[i] = step.of(weights[i]);
  }
  static DODONA_INLINE i32x16 dot(i32x16 sum, const i32x16 (&weights)[4], const i32x16 (&row)[4]) {
    return Int8Unpack::dot(sum, weights, row);
  }

  static void pack(const ops::I8Weights& w, std::int64_t panel, std::int64_t panels, std::int64_t begin, std::int64_t end, bool,
                   std::uint8_t* out) {
    for (std::int64_t s = begin; s < end; ++s)
      pack_qserve_codes(w, panel, panels, s, out + (s - begin) * step_bytes, (end - begin) * step_bytes);
    for (std::int64_t p = panel; p < panel + panels; ++p, out += (end - begin) * step_bytes)
      for (std::int64_t s = begin; s < end; s = s / 2 * 2 + 2) pack_scales(w, p, s, end, out + (s - begin) * step_bytes + 512);
  }
  static constexpr int line_word(int place) { return qserve_line_word(place); }
  static void lines(const ops::I8Weights& w, std::int64_t panel, std::int64_t begin, std::int64_t end, std::uint8_t* out,
                    std::int64_t stride) {
    qserve_lines<Groups>(w, panel, begin, end, out, stride);
  }
  static void multiply_raw(const ops::I8Weights& w, std::int64_t panel, std::int64_t panels, const ops::I8Rows& a, std::int64_t rows,
                           RawSums& sums) {
    multiply_qserve<Groups>(w, panel, panels, a, rows, sums);
  }
  static DODONA_INLINE f32x16_pair row(const std::uint8_t* codes, std::int64_t begin, std::int64_t k) {
    return Int8Unpack::row(codes, begin, k);
  }

 private:
  /// Scales of the codes in the low bytes of 16 bits each, and zeros plus 128: of both columns of a line, word by word.
  struct Line {
    i32x16 low_scales, low_zeros, high_scales, high_zeros;
    DODONA_INLINE i32x16 low(i32x16 codes) const { return add_8(mul_16(codes, low_scales), low_zeros); }
    DODONA_INLINE i32x16 high(i32x16 codes) const { return add_8(mul_16(codes, high_scales), high_zeros); }
  };
  struct FourColumns {
    i32x16 scales[4], zeros[4];
    DODONA_INLINE i32x16 of(int i, i32x16 codes) const { return add_8(mul_16(codes, scales[i]), zeros[i]); }
  };
  struct Groups {
    const std::uint8_t *scales, *zeros;

    static DODONA_INLINE Groups from(const ops::I8Weights& w, std::int64_t panel, std::int64_t group) {
      const std::int64_t at = group * w.n + panel / 2 * 32;
      fetch_scales(w, at);
      return {w.scales + at, w.zeros + at};
    }
    /// A word of scales is of columns c, 8 + c, 16 + c and 24 + c.
    DODONA_INLINE Line line(int c) const {
      // Byte 0 for words of even index and byte 1 for odd ones, then bytes 2 and 3.
      const i32x16 two = i32x16::splat(0x01010101), odd = lane_index() & i32x16::splat(1);
      const i32x16 low = odd * two, high = low + i32x16::splat(0x02020202);
      const i32x16 s = splat_bytes(scales + 4 * c), z = splat_bytes(zeros + 4 * c) ^ i32x16::splat(static_cast<std::int32_t>(0x80808080));
      const i32x16 in_words = i32x16::splat(0x00FF00FF);
      return {lookup_bytes(s, low) & in_words, lookup_bytes(z, low), lookup_bytes(s, high) & in_words, lookup_bytes(z, high)};
    }
    /// Of columns c, 8 + c, 16 + c and 24 + c, each alone.
    DODONA_INLINE FourColumns columns(int c) const {
      const i32x16 s = splat_bytes(scales + 4 * c), z = splat_bytes(zeros + 4 * c);
      FourColumns four;
      DODONA_UNROLL(4)
      for (int i = 0; i < 4; ++i) {
        const i32x16 byte = i32x16::splat(i * 0x01010101);
        four.scales[i] = lookup_bytes(s, byte) & i32x16::splat(0x00FF00FF);
        four.zeros[i] = lookup_bytes(z, byte);
      }
      return four;
    }
    static DODONA_INLINE i32x16 dot(i32x16 sum, i32x16 weights, i32x16 row) { return dpbusd(sum, weights, row); }
  };
  /// What lies two tiles further on: 32 bytes of each group, far apart, which no hardware follows.
  static DODONA_INLINE void fetch_scales(const ops::I8Weights& w, std::int64_t at) {
    __builtin_prefetch(w.scales + at + 64);
    __builtin_prefetch(w.zeros + at + 64);
  }
  /// Scales and zeros of the 128 k of step s, for it and for the other one of them where that comes before `end`.
  static DODONA_INLINE void pack_scales(const ops::I8Weights& w, std::int64_t panel, std::int64_t s, std::int64_t end, std::uint8_t* to) {
    // A word has channels i, 8 + i, 16 + i and 24 + i of 32 (quant::qserve_scale_position): two of them are of this panel.
    const std::int64_t first = panel * ops::i8_panel_columns, at = s / 2 * w.n + first / 32 * 32;
    const int shift = static_cast<int>(first % 32);
    std::uint32_t scales[8], zeros[8], words[16];
    fetch_scales(w, at);
    __builtin_memcpy(scales, w.scales + at, sizeof scales);
    __builtin_memcpy(zeros, w.zeros + at, sizeof zeros);
    for (int r = 0; r < 8; ++r) {
      words[r] = (scales[r] >> shift & 0xFF) | (zeros[r] >> shift & 0xFF) << 8;
      words[8 + r] = (scales[r] >> shift >> 8 & 0xFF) | (zeros[r] >> shift >> 8 & 0xFF) << 8;
    }
    __builtin_memcpy(to, words, sizeof words);
    if (s % 2 == 0 && s + 1 < end) __builtin_memcpy(to + step_bytes, words, sizeof words);
  }
};

}  // namespace dodona::DODONA_TIER
