#include "ops/tiles/panel_few.h"

#include "ops/tiles/panel_lanes.h"
#include "simd/dot_i8.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::PanelFewTile;
using ops::PanelOperand;
using ops::PanelProduct;

constexpr std::int64_t chunk = ops::panel_few_chunk, tile_columns = ops::panel_few_columns, line = 64, of_four = ops::panel_few_line;

// ---- packing

/// Part of a line, or of sixteen columns: zeros stand for what is not there.
struct Padded {
  alignas(64) std::byte codes[16][line] = {};
  Padded(const Columns& from, std::int64_t k) {
    for (std::int64_t j = 0; j < from.count; ++j) __builtin_memcpy(codes[j], from.first + j * from.stride, static_cast<std::size_t>(k));
  }
};

/// `fours` fours of sixteen columns, at most a line of each. Returns where there are NaN codes.
template <class Unpack>
DODONA_INLINE i32x16 pack_lines(const std::byte* first, std::int64_t stride, std::int64_t fours, std::byte* to) {
  f32x16 columns[16];
  DODONA_UNROLL(16)
  for (int j = 0; j < 16; ++j) columns[j] = as_f32(load_bytes(first + j * stride));
  transpose(columns);
  i32x16 nan = i32x16::zero();
  DODONA_UNROLL(16)
  for (int w = 0; w < 16; ++w) {
    if (w >= fours) break;
    nan = nan | Unpack::nan_bytes(as_i32(columns[w]));
    regroup_16(as_i32(columns[w])).store(reinterpret_cast<std::int32_t*>(to + w * of_four));
  }
  return nan;
}

/// `k` elements of up to 64 columns; with every line of sixteen of them, a share of what comes next is fetched. Returns whether there are
/// NaN codes.
template <class Unpack>
bool pack_columns(const Columns& from, std::int64_t k, const Ahead& ahead, std::byte* to) {
  i32x16 nan = i32x16::zero();
  const std::int64_t vectors = (from.count + 15) / 16, parts = vectors * ((k + line - 1) / line);
  std::int64_t part = 0;
  for (std::int64_t v = 0; v < vectors; ++v) {
    const Columns some{from.first + 16 * v * from.stride, from.stride, from.count - 16 * v < 16 ? from.count - 16 * v : 16};
    for (std::int64_t begin = 0; begin < k; begin += line, ++part) {
      fetch(ahead, from.count * part / parts, from.count * (part + 1) / parts);
      std::byte* const out = to + begin / 4 * of_four + v * line;
      if (k - begin >= line && some.count == 16) {
        nan = nan | pack_lines<Unpack>(some.first + begin, some.stride, line / 4, out);
      } else {
        const std::int64_t left = k - begin < line ? k - begin : line;
        const Padded padded({some.first + begin, some.stride, some.count}, left);
        nan = nan | pack_lines<Unpack>(padded.codes[0], line, (left + 3) / 4, out);
      }
    }
  }
  return any(~(nan == i32x16::zero()));
}

template <class Unpack>
void pack_panel(const PanelOperand& b, std::int64_t first, std::int64_t count, std::int64_t k, std::byte* panel) {
  if (count < tile_columns) __builtin_memset(panel, 0, static_cast<std::size_t>(ops::panel_few_head + ops::panel_few_bytes(k)));
  const bool nans = pack_columns<Unpack>({b.data + first * b.stride, b.stride, count}, k, {b.data, 0, 0}, panel + ops::panel_few_head);
  i32x16 head = i32x16::zero();
  if (nans) head = select(mask16::first(1), i32x16::splat(1), head);
  head.store(reinterpret_cast<std::int32_t*>(panel));
}

// ---- multiplying

/// Rows of A from some k on, and where chains of products are kept: a row of tile_columns for each.
struct Rows {
  const float* a;
  std::int64_t a_stride;
  float* chains;
};
/// Packed codes, and how far ahead of them to fetch.
struct Codes {
  const std::byte* lines;
  std::int64_t ahead;
};

template <class Unpack, bool nans, int rows, int vectors>
DODONA_INLINE void add_products(const Rows& r, std::int64_t k, int i, const typename Unpack::Halves (&four)[vectors],
                                f32x16 (&c)[rows][vectors]) {
  f32x16 b[vectors];
  DODONA_UNROLL(8)
  for (int v = 0; v < vectors; ++v) b[v] = Unpack::template value<nans>(four[v], i);
  DODONA_UNROLL(8)
  for (int row = 0; row < rows; ++row) {
    const f32x16 a = f32x16::splat(r.a[row * r.a_stride + k + i]);
    DODONA_UNROLL(8)
    for (int v = 0; v < vectors; ++v) c[row][v] = fma(a, b[v], c[row][v]);
  }
}

/// chains = fma(a[k], b[k], chains) for `k` elements in order.
template <class Unpack, bool nans, int rows, int vectors>
void multiply(const Rows r, const Codes b, std::int64_t k) {
  f32x16 c[rows][vectors];
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) DODONA_UNROLL(8)
  for (int v = 0; v < vectors; ++v) c[i][v] = f32x16::load(r.chains + i * tile_columns + 16 * v);
  const std::byte* p = b.lines;
  const auto take_four = [&](typename Unpack::Halves(&four)[vectors]) {
    DODONA_UNROLL(8)
    for (int v = 0; v < vectors; ++v) {
      __builtin_prefetch(p + b.ahead + v * line);
      four[v] = Unpack::halves(load_bytes(p + v * line));
    }
    p += of_four;
  };
  typename Unpack::Halves four[vectors];
  std::int64_t done = 0;
  for (; done + 4 <= k; done += 4) {
    take_four(four);
    DODONA_UNROLL(4)
    for (int i = 0; i < 4; ++i) add_products<Unpack, nans>(r, done, i, four, c);
  }
  if (done < k) {
    take_four(four);
    add_products<Unpack, nans>(r, done, 0, four, c);
    if (done + 1 < k) add_products<Unpack, nans>(r, done, 1, four, c);
    if (done + 2 < k) add_products<Unpack, nans>(r, done, 2, four, c);
  }
  DODONA_UNROLL(8)
  for (int i = 0; i < rows; ++i) DODONA_UNROLL(8)
  for (int v = 0; v < vectors; ++v) c[i][v].store(r.chains + i * tile_columns + 16 * v);
}

// Sixteen sums stay in registers beside the codes that they take.
constexpr int most_sums = many_sums_fit ? 16 : 4, most_rows = many_sums_fit ? 8 : 2;

template <class Unpack, bool nans, int rows>
void multiply_rows(Rows r, Codes b, std::int64_t vectors, std::int64_t k) {
  constexpr int together = most_sums / rows < 4 ? most_sums / rows : 4;
  for (; vectors >= together; vectors -= together, r.chains += 16 * together, b.lines += together * line)
    multiply<Unpack, nans, rows, together>(r, b, k);
  for (; vectors > 0; --vectors, r.chains += 16, b.lines += line) multiply<Unpack, nans, rows, 1>(r, b, k);
}

/// The rows that are left when `most` at a time are done: by halves.
template <class Unpack, bool nans, int most>
void multiply_chunk(Rows r, std::int64_t rows, const Codes& b, std::int64_t vectors, std::int64_t k) {
  for (; rows >= most; rows -= most) {
    multiply_rows<Unpack, nans, most>(r, b, vectors, k);
    r.a += most * r.a_stride;
    r.chains += most * tile_columns;
  }
  if constexpr (most > 1)
    if (rows > 0) multiply_chunk<Unpack, nans, most / 2>(r, rows, b, vectors, k);
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

/// Where the codes of a tile come from, chunk by chunk.
template <class Unpack>
class Chunks {
 public:
  explicit Chunks(const PanelFewTile& tile) : tile_(tile) {
    const PanelProduct& p = *tile.product;
    const PanelOperand& b = p.b;
    if (b.packed) {
      const std::byte* const panel = b.data + tile.column / tile_columns * b.stride;
      lines_ = panel + ops::panel_few_head + tile.column % tile_columns / 16 * line;
      nans_ = panel[0] != std::byte{0};
    } else {
      columns_ = {b.data + tile.batch * b.batch_stride + tile.column * b.stride, b.stride, tile.columns};
    }
  }
  /// `k` elements from `begin` on.
  DODONA_INLINE Codes at(std::int64_t begin, std::int64_t k) {
    constexpr std::int64_t far = 4096;  // memory answers in the meantime
    if (tile_.product->b.packed) return {lines_ + begin / 4 * of_four, far};
    const std::int64_t all = tile_.product->k, next = begin + k;
    const auto upto = [](std::int64_t left) { return left < chunk ? left : chunk; };
    const Ahead ahead = next < all ? Ahead{columns_.first + next, columns_.stride, upto(all - next)}
                                   : Ahead{columns_.first + tile_.columns * columns_.stride, columns_.stride, upto(all)};
    auto* const to = reinterpret_cast<std::byte*>(tile_.scratch);
    nans_ = pack_columns<Unpack>({columns_.first + begin, columns_.stride, columns_.count}, k, ahead, to);
    return {to, 0};
  }
  bool nans() const { return nans_; }

 private:
  const PanelFewTile& tile_;
  const std::byte* lines_ = nullptr;
  Columns columns_{};
  bool nans_ = false;
};

template <class Unpack>
void multiply_tile(const PanelFewTile& tile) {
  const PanelProduct& p = *tile.product;
  float* const chains = tile.scratch + ops::panel_few_bytes(chunk) / 4;
  float* const sums = p.block > 0 ? chains + p.m * tile_columns : chains;
  float* const column_scales = chains + 2 * p.m * tile_columns;
  for (std::int64_t i = 0; i < 2 * p.m * tile_columns; i += 16) f32x16::zero().store(chains + i);
  Chunks<Unpack> chunks(tile);
  const std::int64_t vectors = (tile.columns + 15) / 16, part = p.block > 0 ? p.block : chunk;
  for (std::int64_t begin = 0; begin < p.k; begin += chunk) {
    const std::int64_t end = p.k - begin < chunk ? p.k : begin + chunk;
    Codes codes = chunks.at(begin, end - begin);
    for (std::int64_t k = begin; k < end; k += part, codes.lines += part / 4 * of_four) {
      const Rows rows{tile.a + k, ops::panel_few_a_stride(p.k), chains};
      const std::int64_t count = end - k < part ? end - k : part;
      if (chunks.nans()) {
        multiply_chunk<Unpack, true, most_rows>(rows, p.m, codes, vectors, count);
      } else {
        multiply_chunk<Unpack, false, most_rows>(rows, p.m, codes, vectors, count);
      }
      if (p.block > 0) add_scaled(tile, k / p.block, chains, sums, column_scales);
    }
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
