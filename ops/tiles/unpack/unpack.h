// What a number format says of itself to be an operand of panels, and what follows from it. Included by *.simd.cpp only.
//
//   struct FormatUnpack {
//     static constexpr int bits = 8;                                         // of an element
//     static constexpr float left_out = 1;                                   // a power of two that `columns` leaves out of each value,
//                                                                            // and that rows of the other operand take on
//     static f32x16 load(const std::byte* p);                                // sixteen values, exactly
//     static f32x16 load_partial(const std::byte* p, std::int64_t n);        // the first min(n, 16), zeros behind them
//     static void columns(const Columns& from, std::int64_t k, float* to, std::int64_t to_k);  // see columns_by_transposing
//   };
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/columns.h"
#include "simd/convert.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {

/// Up to sixteen columns with k contiguous.
struct Columns {
  const std::byte* first;
  std::int64_t stride;  ///< bytes from column to column
  std::int64_t count;
};

/// Elements [0, k) of sixteen columns to to[k][16], row stride `to_k`; columns that are not there repeat the last one.
template <class Unpack>
void columns_by_transposing(const Columns& from, std::int64_t k, float* to, std::int64_t to_k) {
  for (std::int64_t begin = 0; begin < k; begin += 16) {
    f32x16 block[16];
    for (int j = 0; j < 16; ++j) {
      const std::byte* p = from.first + (j < from.count ? j : from.count - 1) * from.stride + begin * Unpack::bits / 8;
      block[j] = Unpack::load_partial(p, k - begin) * f32x16::splat(1.0f / Unpack::left_out);
    }
    transpose(block);
    for (int i = 0; i < 16 && begin + i < k; ++i) block[i].store(to + (begin + i) * to_k);
  }
}

/// Whole lines of sixteen columns, words of which are unpacked as they are: body(k, word) for four bytes of every column, of which element
/// k is the first. Returns where what is left of K begins.
template <class Unpack, class Body>
DODONA_INLINE std::int64_t each_word_of_lines(const Columns& from, std::int64_t k, const Body& body) {
  constexpr std::int64_t of_word = 32 / Unpack::bits, of_line = 16 * of_word;
  std::int64_t begin = 0;
  for (; from.count == 16 && begin + of_line <= k; begin += of_line)
    each_word_of_columns(
        from.first + begin * Unpack::bits / 8,
        from.stride, [&](int w, i32x16 word) __attribute__((always_inline)) { body(begin + w * of_word, word); });
  return begin;
}
/// What is left of K, from `begin` on.
template <class Unpack>
void columns_from(std::int64_t begin, const Columns& from, std::int64_t k, float* to, std::int64_t to_k) {
  if (begin < k)
    columns_by_transposing<Unpack>({from.first + begin * Unpack::bits / 8, from.stride, from.count}, k - begin, to + begin * to_k, to_k);
}

/// Elements [0, k) of a row, times `factor`.
template <class Unpack>
void unpack_row(const std::byte* row, std::int64_t k, float factor, float* to) {
  const f32x16 f = f32x16::splat(factor);
  std::int64_t i = 0;
  for (; i + 16 <= k; i += 16) (Unpack::load(row + i * Unpack::bits / 8) * f).store(to + i);
  if (i < k) (Unpack::load_partial(row + i * Unpack::bits / 8, k - i) * f).store_partial(to + i, k - i);
}

}  // namespace dodona::DODONA_TIER
