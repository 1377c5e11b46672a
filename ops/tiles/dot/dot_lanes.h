// Columns of bf16 sixteen at a time, as pairs along K: where the elements of a column lie side by side, and where those of a row do.
// Included by *.simd.cpp only.
#pragma once

#include "ops/tiles/dot/dot.h"
#include "ops/tiles/weights_ahead.h"
#include "simd/bf16_pairs.h"
#include "simd/columns.h"
#include "simd/convert.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {

DODONA_INLINE i32x16 load_pairs(const std::byte* p) {
  return i32x16::load(reinterpret_cast<const std::int32_t*>(p));
}
/// The first `count` of 32 numbers, zeros behind them.
DODONA_INLINE i32x16 load_some_pairs(const std::byte* p, std::int64_t count) {
  if (count >= pair_group) return load_pairs(p);
  std::uint16_t some[pair_group] = {};
  __builtin_memcpy(some, p, static_cast<std::size_t>(2 * count));
  return load_pairs(reinterpret_cast<const std::byte*>(some));
}

/// Whether elements of columns lie side by side, or so that all of their lines find room in a second-level cache.
DODONA_INLINE bool lie_near(const ops::DotColumns& b, std::int64_t k) {
  constexpr std::int64_t room = 1 << 18;
  return b.k_stride == 1 || 2 * k * b.k_stride <= room;
}

/// A group of K of sixteen columns of which the first `count` are there; of others, and of elements of K that are not there, zeros.
struct DotGroup {
  ops::DotColumns b;  ///< from the first column on
  std::int64_t count, begin, k;

  DODONA_INLINE bool along_k() const { return b.k_stride == 1; }
  DODONA_INLINE bool whole() const { return count == 16 && k - begin >= pair_group; }

  /// Columns whose elements lie side by side: words of pairs of each column.
  DODONA_INLINE void lines(i32x16 (&columns)[16]) const {
    const std::byte* const first = b.first + 2 * begin;
    if (whole()) {
      DODONA_UNROLL(16)
      for (int j = 0; j < 16; ++j) columns[j] = load_pairs(first + 2 * j * b.column_stride);
      return;
    }
    for (int j = 0; j < 16; ++j) columns[j] = j < count ? load_some_pairs(first + 2 * j * b.column_stride, k - begin) : i32x16::zero();
  }
  /// Words of pairs, a column in each lane: body(i, word) for the pair 2i and 2i + 1.
  template <class Body>
  DODONA_INLINE void each_pair(const Body& body) const {
    if (!along_k()) return each_pair_of_rows(body);
    if (whole()) return each_word_of_columns(b.first + 2 * begin, 2 * b.column_stride, body);
    i32x16 words[16];
    lines(words);
    transpose(words);
    for (int i = 0; i < 16; ++i) body(i, words[i]);
  }
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  /// What each_pair does, of the four-th four pairs of a whole group.
  template <class Body>
  DODONA_INLINE void each_pair_of_four(int four, const Body& body) const {
    i32x16 words[4];
    if (along_k()) {
      four_words(b.first + 2 * begin + 16 * four, 2 * b.column_stride, words);
    } else {
      DODONA_UNROLL(4)
      for (int i = 0; i < 4; ++i) words[i] = pair_of_rows(4 * four + i);
    }
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) body(4 * four + i, words[i]);
  }
#endif
  /// Asks for what lies `bytes` further along columns, and where they end for the next sixteen; `in_order`: of short columns for those that
  /// follow, in the order of memory; or for what follows in rows.
  DODONA_INLINE void fetch(std::int64_t bytes, bool in_order = false) const {
    if (!along_k()) return fetch_rows();
    if (in_order && 32 * b.column_stride <= short_columns) return fetch_next_columns();
    std::int64_t at = 2 * begin + bytes, columns = 0;
    if (at >= 2 * k) columns = at / (2 * k) * 16, at %= 2 * k;
    const auto first = reinterpret_cast<std::uintptr_t>(b.first) + static_cast<std::uintptr_t>(at + 2 * columns * b.column_stride);
    for (std::int64_t j = 0; j < count; ++j)
      __builtin_prefetch(reinterpret_cast<const void*>(first + static_cast<std::uintptr_t>(2 * j * b.column_stride)));  // NOLINT
  }

 private:
  /// Bytes of sixteen columns that are short.
  static constexpr std::int64_t short_columns = 3 << 14;

  /// So far ahead, in whole sixteens of columns.
  DODONA_INLINE void fetch_next_columns() const {
    constexpr std::int64_t ahead = 16384;
    const std::int64_t sixteen = 32 * b.column_stride, next = (ahead + sixteen - 1) / sixteen * sixteen + 32 * begin;
    const auto first = reinterpret_cast<std::uintptr_t>(b.first) + static_cast<std::uintptr_t>(next);
    for (int line = 0; line < 16; ++line)
      __builtin_prefetch(reinterpret_cast<const void*>(first + static_cast<std::uintptr_t>(64 * line)), 0, 2);  // NOLINT
  }
  DODONA_INLINE void fetch_rows() const {
    constexpr std::int64_t ahead = 128;
    if (lie_near(b, k)) return;
    const std::int64_t end = k - begin < pair_group ? k : begin + pair_group;
    for (std::int64_t i = begin; i < end; ++i) __builtin_prefetch(b.first + 2 * i * b.k_stride + ahead);
  }

  /// Of a whole group.
  DODONA_INLINE i32x16 pair_of_rows(int i) const {
    const std::byte* const first = b.first + 2 * (begin + 2 * i) * b.k_stride;
    return load_16(first) | shl<16>(load_16(first + 2 * b.k_stride));
  }
  /// Rows whose elements lie side by side.
  template <class Body>
  DODONA_INLINE void each_pair_of_rows(const Body& body) const {
    const std::byte* const first = b.first + 2 * begin * b.k_stride;
    if (whole()) {
      DODONA_UNROLL(16)
      for (int i = 0; i < 16; ++i) body(i, pair_of_rows(i));
      return;
    }
    const auto row = [&](std::int64_t i) {
      std::uint16_t some[16] = {};
      if (begin + i < k) __builtin_memcpy(some, first + 2 * i * b.k_stride, static_cast<std::size_t>(2 * count));
      return load_16(some);
    };
    for (int i = 0; i < 16; ++i) body(i, row(2 * i) | shl<16>(row(2 * i + 1)));
  }
};

/// `k` elements from `begin` on of the first `columns` columns, to be asked for in so many turns while others are multiplied.
DODONA_INLINE WeightsAhead ahead_of(const ops::DotColumns& b, std::int64_t columns, std::int64_t begin, std::int64_t k,
                                    std::int64_t turns) {
  const std::int64_t size = bits(b.type) / 8;
  const auto* const first = reinterpret_cast<const std::uint8_t*>(b.first) + begin * b.k_stride * size;
  if (b.k_stride == 1) return {first, columns, b.column_stride * size, k * size, turns};
  return {first, k, b.k_stride * size, columns * size, turns};
}

}  // namespace dodona::DODONA_TIER
