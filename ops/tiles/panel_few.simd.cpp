#include "ops/tiles/panel_few.h"

#include "ops/tiles/panel_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::PanelFewTile;
using ops::PanelProduct;

constexpr std::int64_t step = ops::panel_few_step, tile_columns = ops::panel_few_columns, line = 64;

// ---- a step of K of sixteen columns, transposed

/// For every four k, sixteen columns each: k + 0, k + 2, k + 1, k + 3. So 32-bit words of codes fall apart.
constexpr std::int64_t halves_of_four = 64, halves_of_vector = step / 4 * halves_of_four;
constexpr int place_in_four[4] = {0, 32, 16, 48};

/// Bytes ahead of what is read. Beyond the end of the columns lies what is read next, or nothing that a fetch would fault on.
struct Ahead {
  std::int64_t within, beyond;
  DODONA_INLINE void fetch(const std::byte* p, bool last) const {
    const auto address = reinterpret_cast<std::uintptr_t>(p) + static_cast<std::uintptr_t>(last ? beyond : within);
    __builtin_prefetch(reinterpret_cast<const void*>(address), 0, 2);  // NOLINT(performance-no-int-to-ptr)
  }
};

/// A cache line of codes of sixteen columns. Returns where e4m3 had NaN codes, which come out finite.
template <class Unpack>
DODONA_INLINE i32x16 transpose_lines(const std::byte* first, std::int64_t stride, const Ahead& ahead, bool last, std::uint16_t* to) {
  f32x16 columns[16];
  DODONA_UNROLL(16)
  for (int j = 0; j < 16; ++j) {
    const std::byte* const p = first + j * stride;
    ahead.fetch(p, last);
    columns[j] = as_f32(load_bytes(p));
  }
  transpose(columns);
  i32x16 nan = i32x16::zero();
  DODONA_UNROLL(16)
  for (int w = 0; w < 16; ++w) nan = nan | Unpack::store_halves(as_i32(columns[w]), to + w * halves_of_four);
  return nan;
}

/// Part of a step, or of sixteen columns: zeros and copies of the last column stand for what is not there.
struct Padded {
  alignas(64) std::byte codes[16][line];
  Padded(const Columns& from, std::int64_t k) {
    __builtin_memset(codes, 0, sizeof codes);
    for (std::int64_t j = 0; j < 16; ++j)
      __builtin_memcpy(codes[j], from.first + (j < from.count ? j : from.count - 1) * from.stride, static_cast<std::size_t>(k));
  }
};

/// A finite value / 256 is at most 1.75.
void restore_nan(std::uint16_t* halves) {
  for (std::int64_t i = 0; i < line * 16; ++i)
    if ((halves[i] & 0x7FFF) > 0x3F00) halves[i] = 0x7E00;
}

/// `k` elements, at most a line, of up to sixteen columns.
template <class Unpack>
DODONA_INLINE void transpose_part(const Columns& from, std::int64_t k, const Ahead& ahead, bool last, std::uint16_t* to) {
  i32x16 nan;
  if (k == line && from.count == 16) {
    nan = transpose_lines<Unpack>(from.first, from.stride, ahead, last, to);
  } else {
    const Padded padded(from, k);
    nan = transpose_lines<Unpack>(padded.codes[0], line, ahead, last, to);
  }
  if (any(~(nan == i32x16::zero()))) restore_nan(to);
}

/// `k` elements, at most a step, of up to tile_columns columns.
template <class Unpack>
void transpose_columns(const Columns& from, std::int64_t k, const Ahead& ahead, bool last, std::uint16_t* to) {
  for (std::int64_t j = 0; j < from.count; j += 16, to += halves_of_vector)
    for (std::int64_t begin = 0; begin < k; begin += line)
      transpose_part<Unpack>({from.first + j * from.stride + begin, from.stride, from.count - j < 16 ? from.count - j : 16},
                             k - begin < line ? k - begin : line, ahead, last, to + begin / 4 * halves_of_four);
}

// ---- multiplying

/// Rows of A from some k on, and where chains of products are kept: a row of tile_columns for each.
struct Rows {
  const float* a;
  std::int64_t a_stride;
  float* chains;
};

template <int rows, int vectors>
DODONA_INLINE void add_products(const Rows& r, std::int64_t k, const std::uint16_t* halves, f32x16 (&c)[rows][vectors]) {
  f32x16 b[vectors];
  DODONA_UNROLL(8)
  for (int v = 0; v < vectors; ++v) b[v] = load_f16(halves + v * halves_of_vector);
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) {
    const f32x16 a = f32x16::splat(r.a[i * r.a_stride + k]);
    DODONA_UNROLL(8)
    for (int v = 0; v < vectors; ++v) c[i][v] = fma(a, b[v], c[i][v]);
  }
}

/// chains = fma(a[k], b[k], chains) for `k` elements in order.
template <int rows, int vectors>
void multiply(const Rows r, const std::uint16_t* halves, std::int64_t k) {
  f32x16 c[rows][vectors];
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) DODONA_UNROLL(8)
  for (int v = 0; v < vectors; ++v) c[i][v] = f32x16::load(r.chains + i * tile_columns + 16 * v);
  std::int64_t done = 0;
  for (; done + 4 <= k; done += 4, halves += halves_of_four) {
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) add_products(r, done + i, halves + place_in_four[i], c);
  }
  for (int i = 0; done + i < k; ++i) add_products(r, done + i, halves + place_in_four[i], c);
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) DODONA_UNROLL(8)
  for (int v = 0; v < vectors; ++v) c[i][v].store(r.chains + i * tile_columns + 16 * v);
}

template <int rows>
void multiply_rows(Rows r, const std::uint16_t* halves, std::int64_t vectors, std::int64_t k) {
  constexpr int fit = many_sums_fit ? 24 : 4, together = fit / rows >= 8 ? 8 : fit / rows >= 4 ? 4 : fit / rows >= 2 ? 2 : 1;
  for (; vectors >= together; vectors -= together, r.chains += 16 * together, halves += together * halves_of_vector)
    multiply<rows, together>(r, halves, k);
  for (; vectors > 0; --vectors, r.chains += 16, halves += halves_of_vector) multiply<rows, 1>(r, halves, k);
}

void multiply_step(Rows r, std::int64_t rows, const std::uint16_t* halves, std::int64_t vectors, std::int64_t k) {
  constexpr int most = many_sums_fit ? 6 : 2;
  const auto next = [&](std::int64_t count) {
    r.a += count * r.a_stride;
    r.chains += count * tile_columns;
  };
  for (; rows >= most; rows -= most, next(most)) multiply_rows<most>(r, halves, vectors, k);
  if constexpr (most == 6) {
    if (rows & 4) multiply_rows<4>(r, halves, vectors, k), next(4);
    if (rows & 2) multiply_rows<2>(r, halves, vectors, k), next(2);
  }
  if (rows & 1) multiply_rows<1>(r, halves, vectors, k);
}

// ---- one tile

/// After a block of K: sums += chains * scale of row * scale of column.
void add_scaled(const PanelFewTile& tile, std::int64_t block, float* chains, float* sums, float* column_scales) {
  const PanelProduct& p = *tile.product;
  take_scales(p.b_scales, tile.column, tile.columns, block, column_scales);
  for (std::int64_t i = 0; i < p.m; ++i, chains += tile_columns, sums += tile_columns) {
    float row_scale;
    take_scales(p.a_scales, i, 1, block, &row_scale);
    for (std::int64_t j = 0; j < tile.columns; j += 16) {
      const f32x16 scale = f32x16::splat(row_scale) * f32x16::load(column_scales + j);
      fma(f32x16::load(chains + j), scale, f32x16::load(sums + j)).store(sums + j);
      f32x16::zero().store(chains + j);
    }
  }
}

template <class Unpack>
void multiply_tile(const PanelFewTile& tile) {
  constexpr std::int64_t far = 1024;  // bytes: memory answers in the meantime
  const PanelProduct& p = *tile.product;
  auto* const halves = reinterpret_cast<std::uint16_t*>(tile.scratch);
  float* const chains = tile.scratch + tile_columns * step / 2;
  float* const sums = p.block > 0 ? chains + p.m * tile_columns : chains;
  float* const column_scales = chains + 2 * p.m * tile_columns;
  for (std::int64_t i = 0; i < 2 * p.m * tile_columns; i += 16) f32x16::zero().store(chains + i);
  const std::byte* const columns = p.b.data + tile.batch * p.b.batch_stride + tile.column * p.b.stride;
  const std::int64_t distance = p.k < far ? p.k : far;
  const Ahead ahead{distance, distance - p.k + tile.columns * p.b.stride};
  const Rows rows{tile.a, ops::panel_few_a_stride(p.k), chains};
  for (std::int64_t k = 0; k < p.k; k += step) {
    const std::int64_t left = p.k - k, count = left < step ? left : step;
    transpose_columns<Unpack>({columns + k, p.b.stride, tile.columns}, count, ahead, k + distance >= p.k, halves);
    multiply_step({rows.a + k, rows.a_stride, chains}, p.m, halves, (tile.columns + 15) / 16, count);
    if (p.block > 0 && ((k + step) % p.block == 0 || left <= step)) add_scaled(tile, k / p.block, chains, sums, column_scales);
  }
  const ops::TileEpilogue epilogue = epilogue_of(p, tile.batch);
  for (std::int64_t i = 0; i < p.m; ++i) finish_row<ChainSums>(epilogue, i, tile.column, tile.columns, sums + i * tile_columns);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void PanelFewRowsKernel::run(const PanelProduct& p, std::int64_t batch, float* to) {
  using namespace DODONA_TIER;
  const Unpacker a = unpacker(p.a.type), b = unpacker(p.b.type);
  for (std::int64_t i = 0; i < p.m; ++i)
    a.row(p.a.data + batch * p.a.batch_stride + i * p.a.stride, p.k, b.left_out, to + i * panel_few_a_stride(p.k));
}
template void PanelFewRowsKernel::run<tier::DODONA_TIER>(const PanelProduct&, std::int64_t, float*);

template <class Tier>
void PanelFewTileKernel::run(const PanelFewTile& tile) {
  using namespace DODONA_TIER;
  if (tile.product->b.type == DType::f8_e5m2) {
    multiply_tile<Fp8Unpack<true>>(tile);
  } else {
    multiply_tile<Fp8Unpack<false>>(tile);
  }
}
template void PanelFewTileKernel::run<tier::DODONA_TIER>(const PanelFewTile&);

}  // namespace dodona::ops
