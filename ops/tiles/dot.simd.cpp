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

DODONA_INLINE void store_pair(f32x16_pair pair, float* out, std::int64_t stride) {
  pair.first.store(out);
  pair.second.store(out + stride);
}

/// Vectors of sixteen floats go `stride` floats apart.
void pack_row(DType type, const void* source, std::int64_t k, float* out, std::int64_t stride) {
  std::int64_t i = 0;
  if (type == DType::bf16) {
    const auto* codes = static_cast<const std::uint16_t*>(source);
    for (; i + step <= k; i += step) {
      const i32x16 words = load_words(codes + i);
      store_pair({even_of_words(words), odd_of_words(words)}, out + i / 16 * stride, stride);
    }
  }
  for (; i < k; i += step) {
    // No address beyond the row is formed when its last part has no second half.
    const f32x16 first = load_any(type, source, i, k - i);
    const f32x16 second = k - i > 16 ? load_any(type, source, i + 16, k - i - 16) : f32x16::zero();
    store_pair(deinterleave(first, second), out + i / 16 * stride, stride);
  }
}

/// Sixteen columns of bf16 and a step of k, rows of columns `stride` elements apart: pairs along k are words, as in a column in memory.
DODONA_INLINE void pack_pairs_across(const std::uint16_t* source, std::int64_t stride, float* out, std::int64_t out_stride) {
  f32x16 words[16];
  DODONA_UNROLL(16)
  for (int i = 0; i < 16; ++i) words[i] = as_f32(load_16(source + 2 * i * stride) | shl<16>(load_16(source + (2 * i + 1) * stride)));
  transpose(words);
  DODONA_UNROLL(16)
  for (int i = 0; i < 16; ++i) store_pair({even_of_words(as_i32(words[i])), odd_of_words(as_i32(words[i]))}, out + i * out_stride, 16);
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
      for (int i = 0; i < 16 && j + i < columns; ++i) store_pair(deinterleave(low[i], high[i]), out + (j + i) * out_stride + begin, 16);
    }
}

// ---- multiplying

/// Read into a register, once: a compiler would read it again for each of its uses, and wait for that.
DODONA_INLINE f32x16 read_once(f32x16 x) {
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
  asm("" : "+v"(x.v.v));
#endif
  return x;
}

/// Columns of bf16 as they lie in memory, k contiguous, and others as far from each other that are fetched meanwhile.
struct Bf16Columns {
  const std::uint16_t* p;
  std::int64_t stride;
  std::uintptr_t next;  ///< as a number: it may point beyond the matrix, where a fetch does nothing
  std::int64_t fetched;

  DODONA_INLINE f32x16 even(std::int64_t j, std::int64_t k) const { return even_of_words(load_words(p + j * stride + k)); }
  DODONA_INLINE f32x16 odd(std::int64_t j, std::int64_t k) const { return odd_of_words(load_words(p + j * stride + k)); }
  template <int columns>
  DODONA_INLINE void fetch(std::int64_t k) const {
    const auto fetch_one = [&](std::int64_t j) {
      const std::uintptr_t address = next + static_cast<std::uintptr_t>(2 * (j * stride + k));
      __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);  // NOLINT(performance-no-int-to-ptr)
    };
    if (fetched == columns) {
      DODONA_UNROLL(8)
      for (int j = 0; j < columns; ++j) fetch_one(j);
    } else {
      for (std::int64_t j = 0; j < fetched; ++j) fetch_one(j);
    }
  }
  /// From column j on, of which columns [first, last) are fetched.
  DODONA_INLINE Bf16Columns from(std::int64_t j, std::int64_t first, std::int64_t last) const {
    return {p + j * stride, stride, next + static_cast<std::uintptr_t>(2 * (j + first) * stride), last - first};
  }
};

/// Columns packed like a row of A.
struct PackedColumns {
  const float* p;
  std::int64_t stride;

  DODONA_INLINE f32x16 even(std::int64_t j, std::int64_t k) const { return f32x16::load(p + j * stride + k); }
  DODONA_INLINE f32x16 odd(std::int64_t j, std::int64_t k) const { return f32x16::load(p + j * stride + k + 16); }
  template <int columns>
  DODONA_INLINE void fetch(std::int64_t) const {}
  DODONA_INLINE PackedColumns from(std::int64_t j, std::int64_t, std::int64_t) const { return {p + j * stride, stride}; }
};

/// A group of rows of A over part of K, and where its sums are kept: sixteen lanes for each row and column, those of columns that are
/// multiplied together side by side.
struct Group {
  const float *a, *next;  ///< and what is read after it
  float* sums;
  std::int64_t k;   ///< whole steps
  bool first_part;  ///< of K: sums begin at zero
};

/// The products of the even or of the odd elements of a step.
template <bool odd, int rows, int columns, class Columns>
DODONA_INLINE void add_products(f32x16 (&c)[rows][columns], const float* a, const Columns& b, std::int64_t k) {
  f32x16 x[columns];
  DODONA_UNROLL(8)
  for (int j = 0; j < columns; ++j) {
    if constexpr (odd)
      x[j] = b.odd(j, k);
    else
      x[j] = b.even(j, k);
  }
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) {
    const f32x16 y = read_once(f32x16::load(a + 16 * i));
    DODONA_UNROLL(8)
    for (int j = 0; j < columns; ++j) c[i][j] = fma(y, x[j], c[i][j]);
  }
}

template <int rows, int columns, class Columns>
void multiply(const Group& g, const Columns& columns_of_b) {
  const Columns b = columns_of_b;
  f32x16 c[rows][columns];
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) DODONA_UNROLL(8)
  for (int j = 0; j < columns; ++j) c[i][j] = g.first_part ? f32x16::zero() : f32x16::load(g.sums + 16 * (i * columns + j));
  const float *a = g.a, *next = g.next;
  for (std::int64_t k = 0; k < g.k; k += step, a += 32 * rows, next += 16) {
    b.template fetch<columns>(k);
    if constexpr (rows > 1) __builtin_prefetch(next, 0, 2);  // one row stays near
    add_products<false>(c, a, b, k);
    add_products<true>(c, a + 16 * rows, b, k);
  }
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) DODONA_UNROLL(8)
  for (int j = 0; j < columns; ++j) c[i][j].store(g.sums + 16 * (i * columns + j));
}

// Sums of all rows and columns that are worked on together stay in registers.
constexpr std::int64_t most_rows = many_sums_fit ? 8 : 2;
/// Rows that wait for memory more than they multiply.
constexpr std::int64_t few_rows = many_sums_fit ? 6 : 2;
constexpr int columns_of(std::int64_t rows) {
  return rows == 1 ? 4 : !many_sums_fit ? 2 : rows <= few_rows ? 4 : 3;
}

/// Rows of A in groups of about equal size.
struct Groups {
  std::int64_t rows, count = (rows + most_rows - 1) / most_rows;

  std::int64_t begin(std::int64_t group) const { return rows * group / count; }
  std::int64_t size(std::int64_t group) const { return begin(group + 1) - begin(group); }
};

void pack_rows(const ops::DotRows& r) {
  const Groups groups{r.rows};
  for (std::int64_t g = 0; g < groups.count; ++g) {
    const std::int64_t begin = groups.begin(g), rows = groups.size(g);
    float* const out = r.destination + begin * ops::dot_padded(r.k);
    for (std::int64_t i = 0; i < rows; ++i)
      pack_row(r.type, static_cast<const std::byte*>(r.source) + (begin + i) * r.stride_bytes, r.k, out + 16 * i, 16 * rows);
  }
}

/// A group, the `turn`-th of `turns` that share the fetching of codes, times columns.
template <int rows, class Columns>
void multiply_columns(Group g, const Columns& b, std::int64_t columns, std::int64_t turn, std::int64_t turns) {
  constexpr int together = columns_of(rows);
  const std::int64_t first = together * turn / turns, last = together * (turn + 1) / turns;
  const float* const next = g.next;
  std::int64_t j = 0;
  for (; j + together <= columns; j += together, g.sums += 16 * rows * together) {
    multiply<rows, together>(g, b.from(j, first, last));
    g.next += g.k / 2;
    if (g.next >= next + rows * g.k) g.next = g.a;  // all is fetched
  }
  for (; j < columns; ++j, g.sums += 16 * rows) multiply<rows, 1>(g, b.from(j, 0, turn == 0 ? 1 : 0));
}

template <int most, class Columns>
void multiply_group(std::int64_t rows, const Group& g, const Columns& b, std::int64_t columns, std::int64_t turn, std::int64_t turns) {
  if constexpr (most > 1)
    if (rows < most) return multiply_group<most - 1>(rows, g, b, columns, turn, turns);
  multiply_columns<most>(g, b, columns, turn, turns);
}

// ---- one tile

void store_vector(const DotTile& tile, f32x16 value, std::int64_t at, std::int64_t left) {
  if (tile.out_type == DType::f32) {
    canonical_nan(value).store_partial(static_cast<float*>(tile.out) + at, left);
  } else if (tile.out_type == DType::bf16) {
    store_bf16_partial(value, static_cast<std::uint16_t*>(tile.out) + at, left);
  } else {
    store_f16_partial(value, static_cast<std::uint16_t*>(tile.out) + at, left);
  }
}

/// reduce_add of the sums at at(n), zeros behind the first `count`.
template <class At>
DODONA_INLINE f32x16 reduce_sixteen(std::int64_t count, const At& at) {
  f32x16 x[16];
  if (count == 16) {
    DODONA_UNROLL(16)
    for (int n = 0; n < 16; ++n) x[n] = f32x16::load(at(n));
  } else {
    DODONA_UNROLL(16)
    for (int n = 0; n < 16; ++n) x[n] = n < count ? f32x16::load(at(n)) : f32x16::zero();
  }
  return reduce_add(x);
}

/// The sums of a group of rows, from `row` on.
void store_rows(const DotTile& tile, const float* sums, std::int64_t row, std::int64_t rows) {
  if (rows == 1) {
    for (std::int64_t j = 0; j < tile.columns; j += 16) {
      const std::int64_t count = tile.columns - j < 16 ? tile.columns - j : 16;
      const f32x16 value = reduce_sixteen(count, [&](int n) { return sums + 16 * (j + n); });
      store_vector(tile, value, row * tile.out_stride + j, count);
    }
    return;
  }
  const std::int64_t together = columns_of(rows), grouped = tile.columns / together * together;
  for (std::int64_t j = 0, count = 0; j < tile.columns; j += count) {
    const std::int64_t side_by_side = j < grouped ? together : 1, left = (j < grouped ? grouped : tile.columns) - j;
    count = left < 16 ? left : 16;
    const float* first[16];
    for (std::int64_t n = 0, at = j % side_by_side; n < count; ++n, ++at) {
      if (at == side_by_side) at = 0;
      first[n] = sums + 16 * (rows * (j + n - at) + at);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t offset = 16 * side_by_side * i;
      const f32x16 value = reduce_sixteen(count, [&](int n) { return first[n] + offset; });
      store_vector(tile, value, (row + i) * tile.out_stride + j, count);
    }
  }
}

/// All rows times columns over the k elements of K that begin at `begin`.
template <class Columns>
void multiply_part(const DotTile& tile, const Columns& b, std::int64_t begin, std::int64_t k) {
  const Groups groups{tile.rows};
  const bool last = begin + k >= tile.k;
  const auto a_of = [&](std::int64_t g, std::int64_t from) {
    return tile.a + groups.begin(g) * ops::dot_padded(tile.k) + groups.size(g) * from;
  };
  for (std::int64_t g = 0; g < groups.count; ++g) {
    const float* const next = g + 1 < groups.count ? a_of(g + 1, begin) : a_of(0, last ? 0 : begin + k);
    float* const sums = tile.scratch + 16 * groups.begin(g) * tile.columns;
    multiply_group<most_rows>(groups.size(g), Group{a_of(g, begin), next, sums, k, begin == 0}, b, tile.columns, g, groups.count);
    if (last) store_rows(tile, sums, groups.begin(g), groups.size(g));
  }
}

/// Codes of bf16 as they lie in memory, [0, end) of K.
void multiply_bf16(const DotTile& tile, std::int64_t end) {
  const auto* const codes = static_cast<const std::uint16_t*>(tile.b);
  // Few rows want long streams from memory, many rows their part of A in the first-level cache.
  const bool few = tile.rows <= few_rows;
  const std::int64_t parts = few ? 1 : (end + ops::dot_block_k - 1) / ops::dot_block_k;
  for (std::int64_t part = 0, begin = 0, k = 0; part < parts; ++part, begin += k) {
    k = end / step * (part + 1) / parts * step - begin;
    // Far enough ahead for memory to answer, and where the next columns of as many streams lie.
    constexpr std::int64_t least = 4096;
    const std::int64_t side_by_side = tile.b_column_stride * columns_of(tile.rows);
    const std::int64_t distance = few ? (side_by_side <= 0 ? least : (least + side_by_side - 1) / side_by_side * side_by_side)
                                  : begin + k < tile.k ? k
                                                       : tile.b_column_stride * tile.columns - begin;
    const auto address = reinterpret_cast<std::uintptr_t>(codes) + static_cast<std::uintptr_t>(2 * (begin + distance));
    multiply_part(tile, Bf16Columns{codes + begin, tile.b_column_stride, address, 0}, begin, k);
  }
}

/// Adds the products of k in [begin, end), packed first: for other types than bf16, other orders in memory, and the end of K.
void multiply_packed(const DotTile& tile, std::int64_t begin, std::int64_t end, float* packed) {
  constexpr std::int64_t stride = ops::dot_block_k + 16;  // columns begin in different cache sets
  const std::int64_t k = end - begin;
  const auto* b = static_cast<const std::byte*>(tile.b) + begin * tile.b_k_stride * (tile.b_type == DType::f32 ? 4 : 2);
  if (tile.b_k_stride == 1) {
    const std::int64_t column_bytes = tile.b_column_stride * (tile.b_type == DType::f32 ? 4 : 2);
    for (std::int64_t j = 0; j < tile.columns; ++j) pack_row(tile.b_type, b + j * column_bytes, k, packed + j * stride, 16);
  } else {
    pack_columns_across(tile.b_type, b, tile.b_k_stride, k, tile.columns, packed, stride);
  }
  multiply_part(tile, PackedColumns{packed, stride}, begin, ops::dot_padded(k));
}

void multiply_tile(const DotTile& tile) {
  float* const packed = tile.scratch + 16 * tile.rows * tile.columns;
  if (tile.k == 0) return multiply_part(tile, PackedColumns{packed, 0}, 0, 0);
  std::int64_t begin = 0;
  if (tile.b_type == DType::bf16 && tile.b_k_stride == 1) {
    begin = tile.k / step * step;
    multiply_bf16(tile, begin);
  }
  for (; begin < tile.k; begin += ops::dot_block_k)
    multiply_packed(tile, begin, tile.k - begin < ops::dot_block_k ? tile.k : begin + ops::dot_block_k, packed);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void DotPackKernel::run(const DotRows& rows) {
  DODONA_TIER::pack_rows(rows);
}
template void DotPackKernel::run<tier::DODONA_TIER>(const DotRows&);

template <class Tier>
void DotTileKernel::run(const DotTile& tile) {
  DODONA_TIER::multiply_tile(tile);
}
template void DotTileKernel::run<tier::DODONA_TIER>(const DotTile&);

}  // namespace dodona::ops
