#include "ops/tiles/panel_few.h"

#include "ops/tiles/panel_lanes.h"
#include "simd/dot_i8.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::PanelFewTile;
using ops::PanelOperand;
using ops::PanelProduct;

constexpr std::int64_t tile_columns = ops::panel_few_columns, line = 64, of_word = ops::panel_few_line;

// ---- packing

/// Part of a line, or of sixteen columns: zeros stand for what is not there.
struct Padded {
  alignas(64) std::byte codes[16][line] = {};
  Padded(const Columns& from, std::int64_t bytes) {
    for (std::int64_t j = 0; j < from.count; ++j) __builtin_memcpy(codes[j], from.first + j * from.stride, static_cast<std::size_t>(bytes));
  }
};

/// What is found of codes on the way.
struct Found {
  i32x16 nans = i32x16::zero(), subnormals = i32x16::zero();
  std::int64_t codes = 0;

  DODONA_INLINE bool any_nan() const { return any(~(nans == i32x16::zero())); }
  /// Of e4m3: magnitudes 1 to 7.
  DODONA_INLINE void count_subnormals(i32x16 some) {
    const i32x16 magnitudes = some & i32x16::splat(0x7F7F7F7F);
    const i32x16 from_1 = magnitudes + i32x16::splat(0x7F7F7F7F), from_8 = magnitudes + i32x16::splat(0x78787878);  // in bit 7
    subnormals = dpbusd_small(subnormals, shr<7>(from_1 ^ from_8) & i32x16::splat(0x01010101), i32x16::splat(0x01010101));
    codes += line;
  }
  /// At most one of 2048.
  DODONA_INLINE bool subnormals_are_rare() const {
    std::int32_t counts[16], all = 0;
    subnormals.store(counts);
    for (const std::int32_t count : counts) all += count;
    return all * std::int64_t{2048} <= codes;
  }
};

/// `words` of four bytes of sixteen columns, at most a line of each; what lies `ahead` is fetched.
template <class Unpack, bool counting>
DODONA_INLINE void pack_lines(const std::byte* first, std::int64_t stride, std::int64_t ahead, std::int64_t words, std::byte* to,
                              Found& found) {
  f32x16 columns[16];
  DODONA_UNROLL(16)
  for (int j = 0; j < 16; ++j) {
    fetch_line(first, j * stride + ahead);
    const i32x16 codes = load_bytes(first + j * stride);
    found.nans = found.nans | Unpack::nan_bytes(codes);
    if constexpr (counting) found.count_subnormals(codes);
    columns[j] = as_f32(codes);
  }
  transpose(columns);
  DODONA_UNROLL(16)
  for (int w = 0; w < 16; ++w) {
    if (w >= words) break;
    as_i32(columns[w]).store(reinterpret_cast<std::int32_t*>(to + w * of_word));
  }
}

/// `bytes` of up to sixteen columns.
template <class Unpack, bool counting>
DODONA_INLINE void pack_sixteen(const Columns& from, std::int64_t bytes, std::int64_t ahead, std::byte* to, Found& found) {
  for (std::int64_t begin = 0; begin < bytes; begin += line) {
    const std::int64_t left = bytes - begin;
    std::byte* const out = to + begin / 4 * of_word;
    if (left >= line && from.count == 16) {
      pack_lines<Unpack, counting>(from.first + begin, from.stride, ahead, line / 4, out, found);
    } else {
      const Padded padded({from.first + begin, from.stride, from.count}, left < line ? left : line);
      pack_lines<Unpack, counting>(padded.codes[0], line, 0, ((left < line ? left : line) + 3) / 4, out, found);
    }
  }
}

/// Sixteen columns of `from` after the first `v` sixteen.
DODONA_INLINE Columns sixteen_of(const Columns& from, std::int64_t v) {
  const std::int64_t left = from.count - 16 * v;
  return {from.first + 16 * v * from.stride, from.stride, left < 16 ? left : 16};
}

template <class Unpack>
void pack_panel(const PanelOperand& b, std::int64_t first, std::int64_t count, std::int64_t k, std::byte* panel) {
  if (count < tile_columns) __builtin_memset(panel, 0, static_cast<std::size_t>(ops::panel_few_head + ops::panel_few_bytes(k)));
  Found found;
  for (std::int64_t v = 0; 16 * v < count; ++v)
    pack_sixteen<Unpack, true>(sixteen_of({b.data + first * b.stride, b.stride, count}, v), k, 0, panel + ops::panel_few_head + v * line,
                               found);
  i32x16::zero().store(reinterpret_cast<std::int32_t*>(panel));
  const ops::PanelFewHead head{found.any_nan(), found.subnormals_are_rare()};
  __builtin_memcpy(panel, &head, sizeof head);
}

// ---- multiplying

/// Rows of A from some k on, and where chains of products are kept, tile_columns for each row. A vector of chains is that of sixteen
/// columns; or vectors are those of `blocks` blocks of K of sixteen columns, then those of the next sixteen.
struct Rows {
  const float* a;
  std::int64_t a_stride, of_block;  ///< from row to row, from block to block
  float* chains;
};
/// Packed codes: lines of all vectors for the k of a word, four or eight, then those for the next; and how far ahead of them to fetch, 0
/// where they were just packed.
struct Codes {
  const std::byte* lines;
  std::int64_t ahead;
};

template <class Unpack, bool nans, int blocks, int rows, int vectors>
DODONA_INLINE void add_products(const Rows& r, std::int64_t k, int i, const typename Unpack::Word (&words)[vectors],
                                f32x16 (&c)[rows][vectors]) {
  f32x16 b[vectors];
  DODONA_UNROLL(8)
  for (int v = 0; v < vectors; ++v) b[v] = Unpack::template value<nans>(words[v], i);
  DODONA_UNROLL(8)
  for (int row = 0; row < rows; ++row) {
    const float* const at = r.a + row * r.a_stride + k + i;
    const f32x16 first = f32x16::splat(*at);
    DODONA_UNROLL(8)
    for (int v = 0; v < vectors; ++v) {
      const f32x16 a = v % blocks > 0 ? f32x16::splat(at[v % blocks * r.of_block]) : first;
      c[row][v] = fma(a, b[v], c[row][v]);
    }
  }
}

/// chains = fma(a[k], b[k], chains) for `k` elements in order.
template <class Unpack, bool nans, int blocks, int rows, int vectors>
void multiply(const Rows r, const Codes b, std::int64_t k) {
  f32x16 c[rows][vectors];
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) DODONA_UNROLL(8)
  for (int v = 0; v < vectors; ++v) c[i][v] = f32x16::load(r.chains + i * tile_columns + 16 * v);
  const std::byte* p = b.lines;
  typename Unpack::Word words[vectors];
  const auto take_words = [&] {
    DODONA_UNROLL(8)
    for (int v = 0; v < vectors; ++v) {
      __builtin_prefetch(p + b.ahead + v * line);
      words[v] = Unpack::word(load_bytes(p + v * line));
    }
    p += of_word;
  };
  constexpr int of_k = Unpack::per_word;
  std::int64_t done = 0;
  for (; done + of_k <= k; done += of_k) {
    take_words();
    DODONA_UNROLL(8)
    for (int i = 0; i < of_k; ++i) add_products<Unpack, nans, blocks>(r, done, i, words, c);
  }
  if (done < k) {
    take_words();
    DODONA_UNROLL(8)
    for (int i = 0; i < of_k - 1; ++i)
      if (done + i < k) add_products<Unpack, nans, blocks>(r, done, i, words, c);
  }
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) DODONA_UNROLL(8)
  for (int v = 0; v < vectors; ++v) c[i][v].store(r.chains + i * tile_columns + 16 * v);
}

// Sixteen sums stay in registers beside the codes that they take.
constexpr int most_sums = many_sums_fit ? 16 : 4, most_rows = many_sums_fit ? 8 : 2;

template <class Unpack, bool nans, int blocks, int rows>
void multiply_rows(Rows r, Codes b, std::int64_t vectors, std::int64_t k) {
  constexpr int most = most_sums / rows < 4 ? most_sums / rows : 4, together = most < blocks ? blocks : most;
  const auto next = [&](int count) {
    r.chains += 16 * count;
    b.lines += count * line;
  };
  for (; vectors >= together; vectors -= together, next(together)) multiply<Unpack, nans, blocks, rows, together>(r, b, k);
  for (; vectors > 0; vectors -= blocks, next(blocks)) multiply<Unpack, nans, blocks, rows, blocks>(r, b, k);
}

/// The rows that are left when `most` at a time are done: by halves.
template <class Unpack, bool nans, int blocks, int most>
void multiply_chunk(Rows r, std::int64_t rows, Codes b, std::int64_t vectors, std::int64_t k) {
  for (; rows >= most; rows -= most) {
    multiply_rows<Unpack, nans, blocks, most>(r, b, vectors, k);
    r.a += most * r.a_stride;
    r.chains += most * tile_columns;
  }
  if constexpr (most > 1)
    if (rows > 0) multiply_chunk<Unpack, nans, blocks, most / 2>(r, rows, b, vectors, k);
}

// ---- one tile

/// Sums of products as they are where rows and codes are.
template <class Unpack>
DODONA_INLINE f32x16 whole_chain(const float* chain) {
  return f32x16::load(chain) * f32x16::splat(Unpack::sums_take);
}

/// Memory of a tile.
struct Scratch {
  std::byte* codes;
  float *chains, *sums, *column_scales;
};
Scratch scratch_of(const PanelFewTile& tile) {
  float* const chains = tile.scratch + ops::panel_few_packed_lines / 4;
  float* const sums = chains + tile.product->m * tile_columns;
  return {reinterpret_cast<std::byte*>(tile.scratch), chains, sums, sums + tile.product->m * tile_columns};
}

/// After a block of K: sums += chains * scale of row * scale of column; sixteen chains, then those that lie `of_sixteen` further on.
template <class Unpack>
void add_scaled(const PanelFewTile& tile, const Scratch& s, std::int64_t block, float* chains, std::int64_t of_sixteen) {
  const PanelProduct& p = *tile.product;
  take_scales(p.b_scales, tile.column, tile.columns, block, s.column_scales);
  for (std::int64_t i = 0; i < p.m; ++i, chains += tile_columns) {
    float row_scale;
    take_scales(p.a_scales, i, 1, block, &row_scale);
    float* const sums = s.sums + i * tile_columns;
    for (std::int64_t j = 0; j < tile.columns; j += 16) {
      float* const chain = chains + j / 16 * of_sixteen;
      const f32x16 scale = f32x16::splat(row_scale) * f32x16::load(s.column_scales + j);
      fma(whole_chain<Unpack>(chain), scale, f32x16::load(sums + j)).store(sums + j);
      f32x16::zero().store(chain);
    }
  }
}

/// A tile's columns where they are raw.
Columns raw_columns(const PanelFewTile& tile) {
  const PanelOperand& b = tile.product->b;
  return {b.data + tile.batch * b.batch_stride + tile.column * b.stride, b.stride, tile.columns};
}
/// A tile's panel where they are packed.
const std::byte* packed_panel(const PanelFewTile& tile) {
  return tile.product->b.data + tile.column / tile_columns * tile.product->b.stride;
}
ops::PanelFewHead head_of(const std::byte* panel) {
  ops::PanelFewHead head;
  __builtin_memcpy(&head, panel, sizeof head);
  return head;
}

/// All rows times the vectors of a chunk.
template <class Unpack, int blocks>
void multiply_vectors(const PanelFewTile& tile, const Rows& rows, const Codes& codes, bool nans, std::int64_t vectors, std::int64_t k) {
  if (nans) {
    multiply_chunk<Unpack, true, blocks, most_rows>(rows, tile.product->m, codes, vectors, k);
  } else {
    multiply_chunk<Unpack, false, blocks, most_rows>(rows, tile.product->m, codes, vectors, k);
  }
}

/// Columns of a packed panel.
template <class Unpack>
void multiply_packed(const PanelFewTile& tile, const Scratch& s, const float* a) {
  constexpr std::int64_t far = 4096;  // memory answers in the meantime
  const PanelProduct& p = *tile.product;
  const std::int64_t vectors = (tile.columns + 15) / 16, part = p.block > 0 ? p.block : 512;
  const bool nans = head_of(packed_panel(tile)).nans != 0;
  const std::byte* const lines = packed_panel(tile) + ops::panel_few_head + tile.column % tile_columns / 16 * line;
  for (std::int64_t begin = 0; begin < p.k; begin += part) {
    const std::int64_t k = p.k - begin < part ? p.k - begin : part;
    const Rows rows{a + begin, ops::panel_few_a_stride(p.k), 0, s.chains};
    multiply_vectors<Unpack, 1>(tile, rows, {lines + ops::panel_few_bytes(begin), far}, nans, vectors, k);
    if (p.block > 0) add_scaled<Unpack>(tile, s, begin / p.block, s.chains, 16);
  }
}

/// How elements of raw columns lie: those of a line of each, which are packed at a time, and their bytes.
template <class Unpack>
constexpr std::int64_t line_k = line * 8 / Unpack::bits;
template <class Unpack>
DODONA_INLINE std::int64_t bytes_of(std::int64_t k) {
  return k * Unpack::bits / 8;
}

/// `blocks` blocks of K of raw columns from `begin` on, of `block` elements each, side by side: chains += their products.
template <class Unpack, int blocks>
void multiply_blocks(const PanelFewTile& tile, const Scratch& s, const float* a, std::int64_t begin, std::int64_t block) {
  constexpr std::int64_t far = 256;  // memory answers in the meantime
  const PanelProduct& p = *tile.product;
  const Columns columns = raw_columns(tile);
  const std::int64_t sixteens = (tile.columns + 15) / 16, all = bytes_of<Unpack>(blocks * block), row = bytes_of<Unpack>(p.k);
  const std::int64_t ahead = blocks == 1 ? far : (far + all - 1) / all * all;
  for (std::int64_t from = 0; from < block; from += line_k<Unpack>) {
    const std::int64_t k = block - from < line_k<Unpack> ? block - from : line_k<Unpack>;
    const std::int64_t at = bytes_of<Unpack>(begin + from), beyond = at + ahead - row;
    // Columns that end soon are followed by those of the next tile.
    const std::int64_t next = beyond < 0 ? ahead : columns.count * columns.stride + beyond - at;
    Found found;
    for (std::int64_t v = 0; v < sixteens * blocks; ++v) {
      Columns some = sixteen_of(columns, v / blocks);
      some.first += at + bytes_of<Unpack>(v % blocks * block);
      pack_sixteen<Unpack, false>(some, bytes_of<Unpack>(k), next, s.codes + v * line, found);
    }
    multiply_vectors<Unpack, blocks>(tile, {a + begin + from, ops::panel_few_a_stride(p.k), block, s.chains}, {s.codes, 0}, found.any_nan(),
                                     sixteens * blocks, k);
  }
}

/// Groups of `blocks` scaled blocks from `begin` on, as many as there are; returns where what is left of K begins.
template <class Unpack, int blocks>
std::int64_t multiply_groups(const PanelFewTile& tile, const Scratch& s, const float* a, std::int64_t begin) {
  const std::int64_t k = tile.product->k, block = tile.product->block;
  for (; k - begin >= blocks * block; begin += blocks * block) {
    multiply_blocks<Unpack, blocks>(tile, s, a, begin, block);
    for (int b = 0; b < blocks; ++b) add_scaled<Unpack>(tile, s, begin / block + b, s.chains + 16 * b, 16 * blocks);
  }
  return begin;
}

template <class Unpack>
void multiply_raw(const PanelFewTile& tile, const Scratch& s, const float* a) {
  const std::int64_t k = tile.product->k, block = tile.product->block;
  if (block == 0) return multiply_blocks<Unpack, 1>(tile, s, a, 0, k);
  std::int64_t begin = 0;
  if (ops::panel_few_by_blocks(*tile.product)) {
    if (ops::panel_few_blocks(*tile.product) == 4) begin = multiply_groups<Unpack, 4>(tile, s, a, begin);
    begin = multiply_groups<Unpack, 2>(tile, s, a, begin);
  }
  begin = multiply_groups<Unpack, 1>(tile, s, a, begin);
  if (begin == k) return;
  multiply_blocks<Unpack, 1>(tile, s, a, begin, k - begin);
  add_scaled<Unpack>(tile, s, begin / block, s.chains, 16);
}

template <class Unpack>
void multiply_tile(const PanelFewTile& tile, const float* a) {
  const PanelProduct& p = *tile.product;
  const Scratch s = scratch_of(tile);
  for (std::int64_t i = 0; i < 2 * p.m * tile_columns; i += 16) f32x16::zero().store(s.chains + i);
  if constexpr (Unpack::is_packed) {
    p.b.packed ? multiply_packed<Unpack>(tile, s, a) : multiply_raw<Unpack>(tile, s, a);
  } else {
    multiply_raw<Unpack>(tile, s, a);
  }
  if (p.block == 0)
    for (std::int64_t i = 0; i < p.m * tile_columns; i += 16) whole_chain<Unpack>(s.chains + i).store(s.sums + i);
  const ops::TileEpilogue epilogue = epilogue_of(p, tile.batch);
  for (std::int64_t i = 0; i < p.m; ++i) finish_row<ChainSums>(epilogue, i, tile.column, tile.columns, s.sums + i * tile_columns);
}

/// Whether subnormal codes of a tile are rare; of raw columns the first lines tell. It decides on speed alone.
bool subnormals_are_rare(const PanelFewTile& tile) {
  if (tile.product->b.packed) return head_of(packed_panel(tile)).rare != 0;
  const Columns columns = raw_columns(tile);
  Found found;
  for (std::int64_t j = 0; j < columns.count && tile.product->k >= line; ++j)
    found.count_subnormals(load_bytes(columns.first + j * columns.stride));
  return found.subnormals_are_rare();
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void PanelFewRowsKernel::run(const PanelProduct& p, std::int64_t batch, float* to) {
  using namespace DODONA_TIER;
  const Unpacker a = unpacker(p.a.type), b = unpacker(p.b.type);
  for (std::int64_t i = 0; i < panel_few_a_rows(p); ++i) {
    float* const row = to + i * panel_few_a_stride(p.k);
    a.row(p.a.data + batch * p.a.batch_stride + i % p.m * p.a.stride, p.k, i < p.m ? b.left_out : E4m3Fields::rows_take, row);
    if (p.b.type == DType::i4) I4Fields::scale_row(row, p.k);
  }
}
template void PanelFewRowsKernel::run<tier::DODONA_TIER>(const PanelProduct&, std::int64_t, float*);

template <class Tier>
void PanelFewTileKernel::run(const PanelFewTile& tile) {
  using namespace DODONA_TIER;
  const PanelProduct& p = *tile.product;
  if (p.b.type == DType::i4) {
    multiply_tile<I4Fields>(tile, tile.a);
  } else if (p.b.type == DType::f8_e5m2) {
    multiply_tile<Fp8Unpack<true>>(tile, tile.a);
  } else if (panel_few_a_rows(p) > p.m && (tile.subnormals_are_free || subnormals_are_rare(tile))) {
    multiply_tile<E4m3Fields>(tile, tile.a + p.m * panel_few_a_stride(p.k));
  } else {
    multiply_tile<Fp8Unpack<false>>(tile, tile.a);
  }
}
template void PanelFewTileKernel::run<tier::DODONA_TIER>(const PanelFewTile&);

template <class Tier>
void PanelFewPackKernel::run(const PanelOperand& columns, std::int64_t first, std::int64_t n, std::int64_t k, std::byte* panel) {
  using namespace DODONA_TIER;
  const std::int64_t count = n - first < panel_few_columns ? n - first : panel_few_columns;
  if (columns.type == DType::f8_e5m2) {
    pack_panel<Fp8Unpack<true>>(columns, first, count, k, panel);
  } else {
    pack_panel<Fp8Unpack<false>>(columns, first, count, k, panel);
  }
}
template void PanelFewPackKernel::run<tier::DODONA_TIER>(const PanelOperand&, std::int64_t, std::int64_t, std::int64_t, std::byte*);

}  // namespace dodona::ops
