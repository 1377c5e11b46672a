#include "ops/tiles/fp8_tile.h"

#include "simd/convert.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::Fp8Tile;

constexpr std::int64_t panel = ops::fp8_panel_columns;

// ---- decoding

/// Lanes of four codes: the second and the fourth of each as halves, in place. e4m3 becomes value / 256 (its half of the same fields), and
/// 1.875 for NaN.
template <bool e5m2>
DODONA_INLINE i32x16 halves_of_odd_bytes(i32x16 words) {
  const auto fields = [](std::uint32_t bits) { return i32x16::splat(static_cast<std::int32_t>(bits)); };
  if (e5m2) return words & fields(0xFF00FF00);
  return (shr<1>(words) & fields(0x3F803F80)) | (words & fields(0x80008000));
}

/// Bit 7 of every byte that is a NaN of e4m3.
DODONA_INLINE i32x16 nan_bytes(i32x16 words) {
  return ((words & i32x16::splat(0x7F7F7F7F)) + i32x16::splat(0x01010101)) & i32x16::splat(static_cast<std::int32_t>(0x80808080));
}

/// Sixteen columns, k contiguous, to dst[k][16], row stride `panel`. Returns where e4m3 had NaN codes, which come out finite.
template <bool e5m2>
DODONA_INLINE i32x16 pack_columns(const std::uint8_t* b, std::int64_t stride, std::int64_t k, float* dst) {
  i32x16 nan = i32x16::zero();
  for (std::int64_t begin = 0; begin < k; begin += 64) {
    const std::int64_t words = (k - begin) / 4 < 16 ? (k - begin) / 4 : 16;
    f32x16 columns[16];
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      const auto* p = reinterpret_cast<const std::int32_t*>(b + j * stride + begin);
      columns[j] = as_f32(words == 16 ? i32x16::load(p) : i32x16::load_partial(p, words));
    }
    transpose(columns);
    float* out = dst + begin * panel;
#pragma GCC unroll 16
    for (int w = 0; w < 16; ++w) {
      if (w >= words) break;
      const i32x16 codes = as_i32(columns[w]);
      if (!e5m2) nan = nan | nan_bytes(codes);
      const f32x16_pair even = widen_f16_pairs(halves_of_odd_bytes<e5m2>(shl<8>(codes)));
      const f32x16_pair odd = widen_f16_pairs(halves_of_odd_bytes<e5m2>(codes));
      even.first.store(out + (4 * w) * panel);
      odd.first.store(out + (4 * w + 1) * panel);
      even.second.store(out + (4 * w + 2) * panel);
      odd.second.store(out + (4 * w + 3) * panel);
    }
  }
  return nan;
}

/// No finite value / 256 is beyond 1.75.
DODONA_INLINE void restore_nan(float* dst, std::int64_t k) {
  for (std::int64_t i = 0; i < k; ++i) {
    const f32x16 x = f32x16::load(dst + i * panel);
    select(abs(x) > f32x16::splat(1.8f), as_f32(i32x16::splat(0x7FC00000)), x).store(dst + i * panel);
  }
}

void pack_panel(const std::uint8_t* b, bool e5m2, std::int64_t stride, std::int64_t k, std::int64_t columns, float* dst) {
  for (std::int64_t j = 0; j < columns; j += 16) {
    if (e5m2) {
      pack_columns<true>(b + j * stride, stride, k, dst + j);
    } else if (any(~(pack_columns<false>(b + j * stride, stride, k, dst + j) == i32x16::zero()))) {
      restore_nan(dst + j, k);
    }
  }
}

/// Rows of A times `factor`, the power of two that decoded B lacks.
void decode_rows(const std::uint8_t* a, bool e5m2, std::int64_t stride, std::int64_t rows, std::int64_t k, float factor, float* dst,
                 std::int64_t dst_stride) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < k; j += 16) {
      const std::uint8_t* p = a + i * stride + j;
      if (j % 64 == 0) __builtin_prefetch(p + rows * stride);  // the next tile's rows
      ((e5m2 ? load_e5m2(p) : load_e4m3(p)) * f32x16::splat(factor)).store(dst + i * dst_stride + j);
    }
}

// ---- multiplying

struct Operands {
  const float* a;
  std::int64_t a_stride;
  const float* b;  ///< [k][panel]
  float* c;
  std::int64_t c_stride, k;
};

/// c[rows][16 * vectors] += a b, with all of c in registers.
template <int rows, int vectors>
void multiply(const Operands o) {
  f32x16 c[rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < vectors; ++j) c[i][j] = f32x16::load(o.c + i * o.c_stride + 16 * j);
  for (std::int64_t k = 0; k < o.k; ++k) {
    f32x16 b[vectors];
#pragma GCC unroll 3
    for (int j = 0; j < vectors; ++j) b[j] = f32x16::load(o.b + k * panel + 16 * j);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const f32x16 a = f32x16::splat(o.a[i * o.a_stride + k]);
#pragma GCC unroll 3
      for (int j = 0; j < vectors; ++j) c[i][j] = fma(a, b[j], c[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < vectors; ++j) c[i][j].store(o.c + i * o.c_stride + 16 * j);
}

#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
constexpr int most_rows = 8, most_vectors = 3;  // 24 of 32 registers
#else
constexpr int most_rows = 6, most_vectors = 1;  // 12 of 16 registers of eight lanes
#endif

template <int rows>
DODONA_INLINE void multiply_rows(Operands o, std::int64_t columns) {
  std::int64_t j = 0;
  if constexpr (most_vectors == 3) {
    if (columns == 48) return multiply<rows, 3>(o);
    if (columns == 32) return multiply<rows, 2>(o);
  }
  for (; j < columns; j += 16) {
    multiply<rows, 1>(o);
    o.b += 16;
    o.c += 16;
  }
}

/// Columns of B that are decoded next. Their codes are fetched while others are multiplied; a fetch beyond the end does nothing.
struct Ahead {
  const std::uint8_t* codes;
  std::int64_t stride, k;
};
DODONA_INLINE void fetch(const Ahead& ahead, std::int64_t first, std::int64_t end) {
  for (std::int64_t j = first; j < end; ++j)
    for (std::int64_t k = 0; k < ahead.k; k += 64) __builtin_prefetch(ahead.codes + j * ahead.stride + k);
}

DODONA_INLINE Operands below(Operands o, std::int64_t rows) {
  o.a += rows * o.a_stride;
  o.c += rows * o.c_stride;
  return o;
}

void multiply_panel(Operands o, std::int64_t rows, std::int64_t columns, const Ahead& ahead) {
  const std::int64_t tiles = rows / most_rows + 1;
  std::int64_t tile = 0;
  for (; rows >= most_rows; rows -= most_rows, o = below(o, most_rows), ++tile) {
    fetch(ahead, panel * tile / tiles, panel * (tile + 1) / tiles);
    multiply_rows<most_rows>(o, columns);
  }
  fetch(ahead, panel * tile / tiles, panel);
  if (rows & 4) multiply_rows<4>(o, columns), o = below(o, 4);
  if (rows & 2) multiply_rows<2>(o, columns), o = below(o, 2);
  if (rows & 1) multiply_rows<1>(o, columns);
}

// ---- one tile

void store_rows(const Fp8Tile& tile, const float* c) {
  const f32x16 scale = f32x16::splat(tile.scale);
  for (std::int64_t i = 0; i < tile.rows; ++i)
    for (std::int64_t j = 0; j < tile.columns; j += 16) {
      const f32x16 value = f32x16::load(c + i * tile.columns + j) * scale;
      void* out = static_cast<std::uint16_t*>(tile.out) + i * tile.out_stride + j;
      if (tile.out_type == DType::bf16) {
        store_bf16(value, out);
      } else {
        store_f16(value, out);
      }
    }
}

void multiply_tile(const Fp8Tile& tile) {
  const bool a_e5m2 = tile.a_type == DType::f8_e5m2, b_e5m2 = tile.b_type == DType::f8_e5m2;
  const std::int64_t a_stride = ops::fp8_a_stride(tile.k);
  float* const a = tile.scratch;
  float* const b = a + tile.rows * a_stride;
  float* const c = b + panel * a_stride;
  for (std::int64_t i = 0; i < tile.rows * tile.columns; i += 16) f32x16::zero().store(c + i);
  for (std::int64_t begin = 0; begin < tile.k; begin += ops::fp8_block_k) {
    const std::int64_t k = tile.k - begin < ops::fp8_block_k ? tile.k - begin : ops::fp8_block_k;
    decode_rows(tile.a + begin, a_e5m2, tile.k, tile.rows, k, b_e5m2 ? 1.0f : 256.0f, a, a_stride);
    for (std::int64_t j = 0; j < tile.columns; j += panel) {
      const std::int64_t columns = tile.columns - j < panel ? tile.columns - j : panel;
      const std::uint8_t* const codes = tile.b + j * tile.k + begin;
      pack_panel(codes, b_e5m2, tile.k, k, columns, b);
      multiply_panel({a, a_stride, b, c + j, tile.columns, k}, tile.rows, columns, {codes + columns * tile.k, tile.k, k});
    }
  }
  store_rows(tile, c);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void Fp8TileKernel::run(const Fp8Tile& tile) {
  DODONA_TIER::multiply_tile(tile);
}
template void Fp8TileKernel::run<tier::DODONA_TIER>(const Fp8Tile&);

}  // namespace dodona::ops
