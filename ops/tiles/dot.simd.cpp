#include "ops/tiles/dot.h"

#include "simd/convert.h"
#include "simd/registers.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::DotTile;

constexpr std::int64_t step = ops::dot_step;

// ---- widening: of 32 elements, those of even index and those of odd index

DODONA_INLINE f32x16 even_of_words(i32x16 words) {
  return as_f32(shl<16>(words));
}
DODONA_INLINE f32x16 odd_of_words(i32x16 words) {
  return as_f32(words & i32x16::splat(static_cast<std::int32_t>(0xFFFF0000u)));
}
DODONA_INLINE i32x16 load_words(const std::uint16_t* p) {
  return i32x16::load(reinterpret_cast<const std::int32_t*>(p));
}

/// The first min(n, 16) elements of any type, zeros behind them.
DODONA_INLINE f32x16 load_any(DType type, const void* p, std::int64_t index, std::int64_t n) {
  if (type == DType::f32) return f32x16::load_partial(static_cast<const float*>(p) + index, n);
  const std::uint16_t* const codes = static_cast<const std::uint16_t*>(p) + index;
  return type == DType::bf16 ? load_bf16_partial(codes, n) : load_f16_partial(codes, n);
}

DODONA_INLINE void store_pair(f32x16_pair pair, float* out) {
  pair.first.store(out);
  pair.second.store(out + 16);
}

void pack_row(DType type, const void* source, std::int64_t k, float* out) {
  std::int64_t i = 0;
  if (type == DType::bf16) {
    const auto* codes = static_cast<const std::uint16_t*>(source);
    for (; i + step <= k; i += step) {
      const i32x16 words = load_words(codes + i);
      store_pair({even_of_words(words), odd_of_words(words)}, out + i);
    }
  }
  for (; i < k; i += step) {
    // No address beyond the row is formed when its last part has no second half.
    const f32x16 first = load_any(type, source, i, k - i);
    const f32x16 second = k - i > 16 ? load_any(type, source, i + 16, k - i - 16) : f32x16::zero();
    store_pair(deinterleave(first, second), out + i);
  }
}

/// Sixteen columns of bf16 and a step of k, rows of columns `stride` elements apart: pairs along k are words, as in a column in memory.
DODONA_INLINE void pack_pairs_across(const std::uint16_t* source, std::int64_t stride, float* out, std::int64_t out_stride) {
  f32x16 words[16];
  DODONA_UNROLL(16)
  for (int i = 0; i < 16; ++i) words[i] = as_f32(load_16(source + 2 * i * stride) | shl<16>(load_16(source + (2 * i + 1) * stride)));
  transpose(words);
  DODONA_UNROLL(16)
  for (int i = 0; i < 16; ++i) store_pair({even_of_words(as_i32(words[i])), odd_of_words(as_i32(words[i]))}, out + i * out_stride);
}

/// Columns whose elements are `stride` apart along k, and next to each other along columns.
void pack_columns_across(DType type, const void* source, std::int64_t stride, std::int64_t k, std::int64_t columns, float* out,
                         std::int64_t out_stride) {
  for (std::int64_t j = 0; j < columns; j += 16)
    for (std::int64_t begin = 0; begin < k; begin += step) {
      if (type == DType::bf16 && columns - j >= 16 && k - begin >= step) {
        pack_pairs_across(static_cast<const std::uint16_t*>(source) + begin * stride + j, stride, out + j * out_stride + begin, out_stride);
        continue;
      }
      f32x16 low[16], high[16];
      for (int i = 0; i < 16; ++i) {
        const std::int64_t near = begin + i, far = begin + 16 + i;
        low[i] = near < k ? load_any(type, source, near * stride + j, columns - j) : f32x16::zero();
        high[i] = far < k ? load_any(type, source, far * stride + j, columns - j) : f32x16::zero();
      }
      transpose(low);
      transpose(high);
      for (int i = 0; i < 16 && j + i < columns; ++i) store_pair(deinterleave(low[i], high[i]), out + (j + i) * out_stride + begin);
    }
}

// ---- multiplying

/// Columns of bf16 as they lie in memory, k contiguous.
struct Bf16Columns {
  const std::uint16_t* p;
  std::int64_t stride;
  std::int64_t ahead;  ///< elements to what is fetched meanwhile

  DODONA_INLINE f32x16 even(std::int64_t j, std::int64_t k) const { return even_of_words(load_words(p + j * stride + k)); }
  DODONA_INLINE f32x16 odd(std::int64_t j, std::int64_t k) const { return odd_of_words(load_words(p + j * stride + k)); }
  DODONA_INLINE void fetch(std::int64_t j, std::int64_t k) const {
    // As a number: it may point beyond the matrix, where a fetch does nothing.
    const auto address = reinterpret_cast<std::uintptr_t>(p + j * stride + k) + static_cast<std::uintptr_t>(2 * ahead);
    __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);  // NOLINT(performance-no-int-to-ptr)
  }
  DODONA_INLINE Bf16Columns from(std::int64_t j) const { return {p + j * stride, stride, ahead}; }
};

/// Columns packed like rows of A.
struct PackedColumns {
  const float* p;
  std::int64_t stride;

  DODONA_INLINE f32x16 even(std::int64_t j, std::int64_t k) const { return f32x16::load(p + j * stride + k); }
  DODONA_INLINE f32x16 odd(std::int64_t j, std::int64_t k) const { return f32x16::load(p + j * stride + k + 16); }
  DODONA_INLINE void fetch(std::int64_t, std::int64_t) const {}
  DODONA_INLINE PackedColumns from(std::int64_t j) const { return {p + j * stride, stride}; }
};

/// Rows of A and where their sums are kept: sixteen lanes for each of dot_tile_columns columns.
struct Rows {
  const float* a;
  std::int64_t a_stride;
  float* sums;
  std::int64_t k;   ///< whole steps
  bool first_part;  ///< of K: sums begin at zero
};
constexpr std::int64_t sums_stride = 16 * ops::dot_tile_columns;

template <int rows, int columns, bool fetching, class Columns>
void multiply(const Rows r, const Columns b) {
  f32x16 c[rows][columns];
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) DODONA_UNROLL(8)
  for (int j = 0; j < columns; ++j) c[i][j] = r.first_part ? f32x16::zero() : f32x16::load(r.sums + i * sums_stride + 16 * j);
  for (std::int64_t k = 0; k < r.k; k += step) {
    f32x16 x[columns];
    if constexpr (fetching) {
      DODONA_UNROLL(8)
      for (int j = 0; j < columns; ++j) b.fetch(j, k);
    }
    DODONA_UNROLL(8)
    for (int j = 0; j < columns; ++j) x[j] = b.even(j, k);
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) {
      const f32x16 a = f32x16::load(r.a + i * r.a_stride + k);
      DODONA_UNROLL(8)
      for (int j = 0; j < columns; ++j) c[i][j] = fma(a, x[j], c[i][j]);
    }
    DODONA_UNROLL(8)
    for (int j = 0; j < columns; ++j) x[j] = b.odd(j, k);
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) {
      const f32x16 a = f32x16::load(r.a + i * r.a_stride + k + 16);
      DODONA_UNROLL(8)
      for (int j = 0; j < columns; ++j) c[i][j] = fma(a, x[j], c[i][j]);
    }
  }
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) DODONA_UNROLL(8)
  for (int j = 0; j < columns; ++j) c[i][j].store(r.sums + i * sums_stride + 16 * j);
}

// Sums of all rows and columns that are worked on together stay in registers.
constexpr int most_rows = many_sums_fit ? 6 : 2, most_columns = many_sums_fit ? 4 : 2;
constexpr int most_columns_of_one_row = 4;

template <int rows, bool fetching, class Columns>
void multiply_columns(Rows r, Columns b, std::int64_t columns) {
  constexpr int together = rows == 1 ? most_columns_of_one_row : most_columns;
  for (; columns >= together; columns -= together, r.sums += 16 * together, b = b.from(together)) multiply<rows, together, fetching>(r, b);
  for (; columns > 0; --columns, r.sums += 16, b = b.from(1)) multiply<rows, 1, fetching>(r, b);
}

template <bool fetching, class Columns>
void multiply_rows(const Rows& r, const Columns& b, std::int64_t rows, std::int64_t columns) {
  if (rows == 1) return multiply_columns<1, fetching>(r, b, columns);
  if (rows == 2) return multiply_columns<2, fetching>(r, b, columns);
  if constexpr (most_rows > 2) {
    if (rows == 3) return multiply_columns<3, fetching>(r, b, columns);
    if (rows == 4) return multiply_columns<4, fetching>(r, b, columns);
    if (rows == 5) return multiply_columns<5, fetching>(r, b, columns);
    if (rows == 6) return multiply_columns<6, fetching>(r, b, columns);
  }
}

/// All rows times columns over part of K; B is fetched ahead during the first rows.
template <class Columns>
void multiply_part(Rows r, const Columns& b, std::int64_t rows, std::int64_t columns) {
  multiply_rows<true>(r, b, rows < most_rows ? rows : most_rows, columns);
  for (std::int64_t i = most_rows; i < rows; i += most_rows) {
    r.a += most_rows * r.a_stride;
    r.sums += most_rows * sums_stride;
    multiply_rows<false>(r, b, rows - i < most_rows ? rows - i : most_rows, columns);
  }
}

// ---- one tile

/// reduce_add of sixteen sums at once.
DODONA_INLINE f32x16 reduce_sixteen(const float* sums, std::int64_t count) {
  f32x16 x[16];
  DODONA_UNROLL(16)
  for (int i = 0; i < 16; ++i) x[i] = i < count ? f32x16::load(sums + 16 * i) : f32x16::zero();
  return reduce_add(x);
}

void store_rows(const DotTile& tile, const float* sums) {
  for (std::int64_t i = 0; i < tile.rows; ++i)
    for (std::int64_t j = 0; j < tile.columns; j += 16) {
      const std::int64_t left = tile.columns - j, at = i * tile.out_stride + j;
      const f32x16 value = reduce_sixteen(sums + i * sums_stride + 16 * j, left);
      if (tile.out_type == DType::f32) {
        canonical_nan(value).store_partial(static_cast<float*>(tile.out) + at, left);
      } else if (tile.out_type == DType::bf16) {
        store_bf16_partial(value, static_cast<std::uint16_t*>(tile.out) + at, left);
      } else {
        store_f16_partial(value, static_cast<std::uint16_t*>(tile.out) + at, left);
      }
    }
}

/// Adds the products of k in [begin, end), packed first: for other types than bf16, other orders in memory, and the end of K.
void multiply_packed(const DotTile& tile, Rows rows, std::int64_t begin, std::int64_t end, float* packed) {
  const std::int64_t k = end - begin, stride = ops::dot_packed_stride(ops::dot_block_k);
  const auto* b = static_cast<const std::byte*>(tile.b) + begin * tile.b_k_stride * (tile.b_type == DType::f32 ? 4 : 2);
  if (tile.b_k_stride == 1) {
    const std::int64_t column_bytes = tile.b_column_stride * (tile.b_type == DType::f32 ? 4 : 2);
    for (std::int64_t j = 0; j < tile.columns; ++j) pack_row(tile.b_type, b + j * column_bytes, k, packed + j * stride);
  } else {
    pack_columns_across(tile.b_type, b, tile.b_k_stride, k, tile.columns, packed, stride);
  }
  rows.a += begin;
  rows.k = (k + step - 1) / step * step;
  rows.first_part = begin == 0;
  multiply_part(rows, PackedColumns{packed, stride}, tile.rows, tile.columns);
}

/// Far enough ahead for memory to answer, and where the next columns of as many streams lie.
DODONA_INLINE std::int64_t fetch_distance(const DotTile& tile) {
  constexpr std::int64_t least = 4096;  // elements
  const std::int64_t columns = tile.b_column_stride * (tile.rows == 1 ? most_columns_of_one_row : most_columns);
  return columns <= 0 ? least : (least + columns - 1) / columns * columns;
}

void multiply_tile(const DotTile& tile) {
  float* const sums = tile.scratch;
  float* const packed = sums + tile.rows * sums_stride;
  Rows rows{tile.a, ops::dot_packed_stride(tile.k), sums, 0, true};
  std::int64_t begin = 0;
  if (tile.b_type == DType::bf16 && tile.b_k_stride == 1) {
    const Bf16Columns b{static_cast<const std::uint16_t*>(tile.b), tile.b_column_stride, fetch_distance(tile)};
    const std::int64_t whole = tile.k / step * step;
    // Few rows wait for memory, which wants long streams; many rows want their part of A in the first-level cache.
    const std::int64_t part = tile.rows <= most_rows ? whole : ops::dot_block_k;
    for (; begin < whole; begin += rows.k) {
      rows.k = whole - begin < part ? whole - begin : part;
      rows.a = tile.a + begin;
      rows.first_part = begin == 0;
      multiply_part(rows, Bf16Columns{b.p + begin, b.stride, b.ahead}, tile.rows, tile.columns);
    }
  }
  rows.a = tile.a;
  for (; begin < tile.k; begin += ops::dot_block_k)
    multiply_packed(tile, rows, begin, tile.k - begin < ops::dot_block_k ? tile.k : begin + ops::dot_block_k, packed);
  if (tile.k == 0)
    for (std::int64_t i = 0; i < tile.rows * sums_stride; i += 16) f32x16::zero().store(sums + i);
  store_rows(tile, sums);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void DotPackKernel::run(DType type, const void* source, std::int64_t k, float* destination) {
  DODONA_TIER::pack_row(type, source, k, destination);
}
template void DotPackKernel::run<tier::DODONA_TIER>(DType, const void*, std::int64_t, float*);

template <class Tier>
void DotTileKernel::run(const DotTile& tile) {
  DODONA_TIER::multiply_tile(tile);
}
template void DotTileKernel::run<tier::DODONA_TIER>(const DotTile&);

}  // namespace dodona::ops
