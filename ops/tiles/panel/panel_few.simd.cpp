#include "ops/tiles/panel/panel_few.h"

#include <type_traits>

#include "ops/tiles/panel/panel_lanes.h"
#include "simd/bf16_pairs.h"
#include "simd/columns.h"
#include "simd/dot_i8.h"
#include "simd/sum_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::PanelFewTile;
using ops::PanelOperand;
using ops::PanelProduct;

constexpr std::int64_t tile_columns = ops::panel_few_columns, line = 64, of_word = ops::panel_few_line, chunk_k = ops::panel_few_chunk;

// ---- packing

/// Part of a line, or of sixteen columns: zeros stand for what is not there.
struct Padded {
  alignas(64) std::byte codes[16][line] = {};
  Padded(const Columns& from, std::int64_t bytes) {
    for (std::int64_t j = 0; j < from.count; ++j) __builtin_memcpy(codes[j], from.first + j * from.stride, static_cast<std::size_t>(bytes));
  }
};

/// Counts subnormal codes of e4m3: magnitudes 1 to 7.
struct Subnormals {
  i32x16 counts = i32x16::zero();
  std::int64_t codes = 0;

  DODONA_INLINE void count(i32x16 some) {
    const i32x16 magnitudes = some & i32x16::splat(0x7F7F7F7F);
    const i32x16 from_1 = magnitudes + i32x16::splat(0x7F7F7F7F), from_8 = magnitudes + i32x16::splat(0x78787878);  // in bit 7
    counts = dpbusd_small(counts, shr<7>(from_1 ^ from_8) & i32x16::splat(0x01010101), i32x16::splat(0x01010101));
    codes += line;
  }
  /// At most one of 2048.
  DODONA_INLINE bool are_rare() const {
    std::int32_t lanes[16], all = 0;
    counts.store(lanes);
    for (const std::int32_t lane : lanes) all += lane;
    return all * std::int64_t{2048} <= codes;
  }
};

/// A line of each of sixteen columns: words of four bytes, `to_word` bytes apart.
template <class Nans>
DODONA_INLINE void pack_lines(const std::byte* first, std::int64_t stride, std::byte* to, std::int64_t to_word, Nans& nans) {
  each_word_of_columns(
      first, stride, [&](int w, i32x16 codes) __attribute__((always_inline)) {
        nans.look_at(codes);
        codes.store(reinterpret_cast<std::int32_t*>(to + w * to_word));
      });
}

/// `bytes` of up to sixteen columns.
template <class Nans>
DODONA_INLINE void pack_sixteen(const Columns& from, std::int64_t bytes, std::byte* to, Nans& nans) {
  for (std::int64_t begin = 0; begin < bytes; begin += line) {
    const std::int64_t left = bytes - begin;
    std::byte* const out = to + begin / 4 * of_word;
    if (left >= line && from.count == 16) {
      pack_lines(from.first + begin, from.stride, out, of_word, nans);
    } else {
      alignas(64) std::byte words[16][line];
      const Padded padded({from.first + begin, from.stride, from.count}, left < line ? left : line);
      pack_lines(padded.codes[0], line, words[0], line, nans);
      for (std::int64_t w = 0; w < 16 && 4 * w < left; ++w) __builtin_memcpy(out + w * of_word, words[w], line);
    }
  }
}

/// Sixteen columns of `from` after the first `v` sixteen.
DODONA_INLINE Columns sixteen_of(const Columns& from, std::int64_t v) {
  const std::int64_t left = from.count - 16 * v;
  return {from.first + 16 * v * from.stride, from.stride, left < 16 ? left : 16};
}

/// `k` elements of columns, sixteen after sixteen: so few streams at a time meet in a first-level cache without driving each other out,
/// however far apart they begin. Returns whether a code is NaN.
template <class Unpack>
bool pack_columns(const Columns& from, std::int64_t k, std::byte* to) {
  typename Unpack::Nans nans;
  for (std::int64_t v = 0; 16 * v < from.count; ++v) pack_sixteen(sixteen_of(from, v), k, to + v * line, nans);
  return nans.any();
}

template <class Unpack>
void pack_panel(const PanelOperand& b, std::int64_t first, std::int64_t count, std::int64_t k, std::byte* panel) {
  const std::int64_t bytes = ops::panel_few_bytes(k);
  if (count < tile_columns) __builtin_memset(panel, 0, static_cast<std::size_t>(ops::panel_few_head + bytes));
  std::byte* const codes = panel + ops::panel_few_head;
  const bool nans = pack_columns<Unpack>({b.data + first * b.stride, b.stride, count}, k, codes);
  Subnormals subnormals;
  for (std::int64_t at = 0; at < bytes; at += line) subnormals.count(load_bytes(codes + at));
  i32x16::zero().store(reinterpret_cast<std::int32_t*>(panel));
  const ops::PanelFewHead head{nans, subnormals.are_rare()};
  __builtin_memcpy(panel, &head, sizeof head);
}

// ---- multiplying

/// Rows of A from some k on, and where sums of products are kept, tile_columns for each row. A vector of sums is that of sixteen columns,
/// or of one of some blocks of K of sixteen columns.
struct Rows {
  const float* a;
  std::int64_t a_stride, of_block;  ///< from row to row, from block to block
  float* sums;
};
/// What is fetched from memory while packed lines are multiplied, a line for each of theirs: from vector to vector, from a word to the
/// next, and after four words.
struct Fetch {
  const std::byte* first;
  std::int64_t of_vector, of_word, of_words;
  DODONA_INLINE std::int64_t offset(std::int64_t vector, std::int64_t word) const {
    return vector * of_vector + word / 4 * of_words + word % 4 * of_word;
  }
  DODONA_INLINE Fetch at(std::int64_t vector, std::int64_t word) const {
    Fetch f = *this;
    f.first = beyond(f.first, offset(vector, word));
    return f;
  }
};
/// Packed codes: lines of all vectors for the four k of a word, then those for the next.
struct Codes {
  const std::byte* lines;
  Fetch fetch;
};

/// Chains of a group of pair sums, of its even k or of its odd ones.
template <int rows, int vectors>
struct Chains {
  f32x16 of[rows][vectors];

  DODONA_INLINE Chains() {
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) DODONA_UNROLL(8)
    for (int v = 0; v < vectors; ++v) of[i][v] = f32x16::zero();
  }
};

// Words of all vectors at a time; of one row, whose products are few, of one vector after the other where registers do not hold more beside
// the chains.
template <int rows, int vectors>
constexpr int vectors_at_a_time = many_sums_fit || rows > 1 ? vectors : 1;

/// Element i of words of `many` vectors from `first` on, times that of the rows.
template <class Unpack, bool nans, int blocks, int rows, int vectors, int many>
DODONA_INLINE void add_products(const Rows& r, std::int64_t k, int i, int first, const typename Unpack::Word (&words)[many],
                                Chains<rows, vectors>& c) {
  f32x16 b[many];
  DODONA_UNROLL(8)
  for (int v = 0; v < many; ++v) b[v] = Unpack::template value<nans>(words[v], i);
  DODONA_UNROLL(8)
  for (int row = 0; row < rows; ++row) {
    const float* const at = r.a + row * r.a_stride + k + i;
    DODONA_UNROLL(8)
    for (int v = 0; v < many; ++v)
      c.of[row][first + v] = fma(f32x16::splat(at[(first + v) % blocks * r.of_block]), b[v], c.of[row][first + v]);
  }
}

/// Elements [done, end) of a group: every `by`-th of a word's four from `from` on. What comes next is fetched with the first ones.
template <class Unpack, bool nans, int blocks, int from, int by, int rows, int vectors>
DODONA_INLINE void add_to_chains(const Rows& r, const Codes& b, std::int64_t done, std::int64_t end, Chains<rows, vectors>& even,
                                 Chains<rows, vectors>& odd) {
  constexpr int many = vectors_at_a_time<rows, vectors>;
  const std::byte* p = b.lines + done / 4 * of_word;
  const auto add_words = [&](std::int64_t count) __attribute__((always_inline)) {
    DODONA_UNROLL(8)
    for (int first = 0; first < vectors; first += many) {
      typename Unpack::Word words[many];
      DODONA_UNROLL(8)
      for (int v = 0; v < many; ++v) {
        if constexpr (from == 0) fetch_line(b.fetch.first, b.fetch.offset(first + v, done / 4));
        words[v] = Unpack::word(p + (first + v) * line);
      }
      DODONA_UNROLL(4)
      for (int i = from; i < 4; i += by)
        if (i < count) add_products<Unpack, nans, blocks>(r, done, i, first, words, i % 2 == 0 ? even : odd);
      if constexpr (many < vectors) stay(even.of[0][first]);
    }
    if constexpr (rows > 1 && rows * vectors == 4 && by == 2) {
      const auto sum = [&](int i) -> f32x16& { return even.of[i / vectors][i % vectors]; };
      stay(sum(0), sum(1), sum(2), sum(3));
    }
    p += of_word;
  };
  for (; done + 4 <= end; done += 4) add_words(4);
  if (done < end) add_words(end - done);
}

// Chains stay in registers beside the codes that they take: even and odd ones of few sums side by side, else one after the other.
constexpr int most_sums = many_sums_fit ? 16 : 4, most_rows = many_sums_fit ? 8 : 4;

/// Sums of a group, after `done` elements, of `k`.
template <class Unpack, bool nans, int blocks, int rows, int vectors>
DODONA_INLINE void add_group(const Rows& r, const Codes& b, std::int64_t done, std::int64_t k) {
  const std::int64_t end = k - done < pair_group ? k : done + pair_group;
  const auto each = [](const auto& body) {
    DODONA_UNROLL(8)
    for (int i = 0; i < rows; ++i) DODONA_UNROLL(8)
    for (int v = 0; v < vectors; ++v) body(i, v);
  };
  const auto add = [&](int i, int v, f32x16 both) {
    float* const sum = r.sums + i * tile_columns + 16 * v;
    (f32x16::load(sum) + both).store(sum);
  };
  if constexpr (4 * rows * vectors <= most_sums || (rows == 3 && vectors == 1)) {
    Chains<rows, vectors> even, odd;
    add_to_chains<Unpack, nans, blocks, 0, 1>(r, b, done, end, even, odd);
    each([&](int i, int v) { add(i, v, even.of[i][v] + odd.of[i][v]); });
  } else {
    float evens[rows][16 * vectors];
    {
      Chains<rows, vectors> even;
      add_to_chains<Unpack, nans, blocks, 0, 2>(r, b, done, end, even, even);
      each([&](int i, int v) { even.of[i][v].store(evens[i] + 16 * v); });
    }
    Chains<rows, vectors> odd;
    add_to_chains<Unpack, nans, blocks, 1, 2>(r, b, done, end, odd, odd);
    each([&](int i, int v) { add(i, v, f32x16::load(evens[i] + 16 * v) + odd.of[i][v]); });
  }
}

/// sums += those of `k` elements, group by group.
template <class Unpack, bool nans, int blocks, int rows, int vectors>
void multiply(const Rows& r, const Codes& b, std::int64_t k) {
  for (std::int64_t done = 0; done < k; done += pair_group) add_group<Unpack, nans, blocks, rows, vectors>(r, b, done, k);
}

/// `rows` rows times `vectors` vectors, which are those of `blocks` blocks of K if there are several.
template <class Unpack, bool nans, int blocks, int rows>
void multiply_rows(Rows r, Codes b, std::int64_t vectors, std::int64_t k) {
  constexpr int most = most_sums / rows < 4 ? most_sums / rows : 4, side_by_side = most < blocks ? most : blocks;
  const auto next = [&](int count) {
    r.sums += 16 * count;
    if (blocks > 1) r.a += count * r.of_block;
    b.lines += count * line;
    b.fetch = b.fetch.at(count, 0);
  };
  using Widened = std::conditional_t<rows == 2 || rows == 3, typename Unpack::BesideSums, Unpack>;
  for (; vectors >= most; vectors -= most, next(most)) multiply<Widened, nans, side_by_side, rows, most>(r, b, k);
  for (; vectors > 0; vectors -= side_by_side, next(side_by_side)) multiply<Widened, nans, side_by_side, rows, side_by_side>(r, b, k);
}

/// The rows that are left when `most` at a time are done: three, or by halves. What comes next is fetched with the first of them.
template <class Unpack, bool nans, int blocks, int most>
void multiply_by_halves(Rows r, std::int64_t rows, Codes b, std::int64_t vectors, std::int64_t k) {
  for (; rows >= most; rows -= most) {
    multiply_rows<Unpack, nans, blocks, most>(r, b, vectors, k);
    r.a += most * r.a_stride;
    r.sums += most * tile_columns;
    b.fetch = {b.lines, 0, 0, 0};
  }
  if constexpr (most == 4)
    if (rows == 3) return multiply_rows<Unpack, nans, blocks, 3>(r, b, vectors, k);
  if constexpr (most > 1)
    if (rows > 0) multiply_by_halves<Unpack, nans, blocks, most / 2>(r, rows, b, vectors, k);
}

/// All rows times packed codes.
template <class Unpack, int blocks>
void multiply_vectors(const Rows& rows, std::int64_t m, const Codes& codes, bool nans, std::int64_t vectors, std::int64_t k) {
  constexpr int most = blocks > 1 && many_sums_fit ? 2 : most_rows;  // few rows come with blocks side by side
  if (nans) {
    multiply_by_halves<Unpack, true, blocks, most>(rows, m, codes, vectors, k);
  } else {
    multiply_by_halves<Unpack, false, blocks, most>(rows, m, codes, vectors, k);
  }
}

// ---- one tile

/// Sums of products as they are where rows and codes are.
template <class Unpack>
DODONA_INLINE f32x16 whole_sum(const float* sum) {
  return f32x16::load(sum) * f32x16::splat(Unpack::sums_take);
}

/// Memory of a tile.
struct Scratch {
  std::byte* codes;
  float *block, *sums, *column_scales;  ///< sums of a block of K, or of all where there is none; of blocks
};
Scratch scratch_of(const PanelFewTile& tile) {
  float* const codes = tile.scratch + ops::panel_few_lead / 4;
  float* const block = codes + ops::panel_few_bytes(chunk_k) / 4;
  float* const sums = block + tile.product->m * tile_columns;
  return {reinterpret_cast<std::byte*>(codes), block, sums, sums + tile.product->m * tile_columns};
}

/// After a block of K: sums += those of the block * scale of row * scale of column.
template <class Unpack>
void add_scaled(const PanelFewTile& tile, const Scratch& s, std::int64_t block, float* of_block) {
  const PanelProduct& p = *tile.product;
  take_scales(p.b_scales, tile.column, tile.columns, block, s.column_scales);
  for (std::int64_t i = 0; i < p.m; ++i, of_block += tile_columns) {
    float row_scale;
    take_scales(p.a_scales, i, 1, block, &row_scale);
    float* const sums = s.sums + i * tile_columns;
    for (std::int64_t j = 0; j < tile.columns; j += 16) {
      const f32x16 scale = f32x16::splat(row_scale) * f32x16::load(s.column_scales + j);
      fma(whole_sum<Unpack>(of_block + j), scale, f32x16::load(sums + j)).store(sums + j);
      f32x16::zero().store(of_block + j);
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

/// All rows times packed codes of a chunk of K that begins at `begin`, block by block.
template <class Unpack>
void multiply_chunk(const PanelFewTile& tile, const Scratch& s, const float* a, Codes codes, bool nans, std::int64_t begin,
                    std::int64_t chunk) {
  const PanelProduct& p = *tile.product;
  const std::int64_t vectors = (tile.columns + 15) / 16, end = begin + chunk;
  while (begin < end) {
    const std::int64_t left = end - begin, of_block = p.block > 0 ? p.block - begin % p.block : left, k = left < of_block ? left : of_block;
    multiply_vectors<Unpack, 1>({a + begin, ops::panel_few_a_stride(p.k), 0, s.block}, p.m, codes, nans, vectors, k);
    begin += k;
    codes = {codes.lines + ops::panel_few_bytes(k), codes.fetch.at(0, k / 4)};
    if (p.block > 0 && (begin % p.block == 0 || begin == p.k)) add_scaled<Unpack>(tile, s, (begin - 1) / p.block, s.block);
  }
}

/// Columns of a packed panel.
template <class Unpack>
void multiply_packed(const PanelFewTile& tile, const Scratch& s, const float* a) {
  // Memory answers in the meantime. Farther away it answers one row less often, and several rows, of eight lanes, more often.
  const std::int64_t far = sum_lanes == 8 && tile.product->m > 1 ? 8192 : 4096;
  const PanelProduct& p = *tile.product;
  const bool nans = head_of(packed_panel(tile)).nans != 0;
  const std::byte* const lines = packed_panel(tile) + ops::panel_few_head + tile.column % tile_columns / 16 * line;
  multiply_chunk<Unpack>(tile, s, a, {lines, {lines + far, line, of_word, 4 * of_word}}, nans, 0, p.k);
}

/// What follows `done` elements of raw columns: those of the next tile, of so many columns at most, after the last ones.
const std::byte* what_follows(const PanelFewTile& tile, std::int64_t done, std::int64_t columns) {
  const Columns these = raw_columns(tile);
  return done < tile.product->k ? these.first + done : beyond(these.first, columns * these.stride);
}

/// Raw columns: a chunk of them is packed into a first-level cache, and while it is multiplied the next one is fetched.
template <class Unpack>
void multiply_raw(const PanelFewTile& tile, const Scratch& s, const float* a, std::int64_t begin) {
  const PanelProduct& p = *tile.product;
  const Columns columns = raw_columns(tile);
  while (begin < p.k) {
    const std::int64_t k = p.k - begin < chunk_k ? p.k - begin : chunk_k;
    const bool nans = pack_columns<Unpack>({columns.first + begin, columns.stride, columns.count}, k, s.codes);
    const Fetch next{what_follows(tile, begin + k, tile.columns), 16 * columns.stride, line, columns.stride};
    multiply_chunk<Unpack>(tile, s, a, {s.codes, next}, nans, begin, k);
    begin += k;
  }
}

/// Sixteen raw columns, some blocks of K side by side, a line of each at a time: the next lines are packed while sums of these are waited
/// for. Returns where what is left of K begins.
template <class Unpack>
std::int64_t multiply_blocks(const PanelFewTile& tile, const Scratch& s, const float* a) {
  constexpr int blocks = ops::panel_few_blocks;
  const PanelProduct& p = *tile.product;
  const Columns columns = raw_columns(tile);
  std::int64_t begin = 0;
  for (; p.k - begin >= blocks * p.block; begin += blocks * p.block) {
    const std::byte* const next = what_follows(tile, begin + blocks * p.block, 16);
    for (std::int64_t from = 0; from < p.block; from += line) {
      typename Unpack::Nans nans;
      for (int b = 0; b < blocks; ++b)
        pack_sixteen({columns.first + begin + b * p.block + from, columns.stride, columns.count}, line, s.codes + b * line, nans);
      multiply_vectors<Unpack, blocks>({a + begin + from, ops::panel_few_a_stride(p.k), p.block, s.block}, p.m,
                                       {s.codes, {beyond(next, from), p.block, columns.stride, 4 * columns.stride}}, nans.any(), blocks,
                                       line);
    }
    for (int b = 0; b < blocks; ++b) add_scaled<Unpack>(tile, s, begin / p.block + b, s.block + 16 * b);
  }
  return begin;
}

template <class Unpack>
void multiply_tile(const PanelFewTile& tile, const float* a) {
  const PanelProduct& p = *tile.product;
  const Scratch s = scratch_of(tile);
  for (std::int64_t i = 0; i < 2 * p.m * tile_columns; i += 16) f32x16::zero().store(s.block + i);
  if (p.b.packed) {
    multiply_packed<Unpack>(tile, s, a);
  } else {
    multiply_raw<Unpack>(tile, s, a, tile.by_blocks ? multiply_blocks<Unpack>(tile, s, a) : 0);
  }
  if (p.block == 0)
    for (std::int64_t i = 0; i < p.m * tile_columns; i += 16) whole_sum<Unpack>(s.block + i).store(s.sums + i);
  const ops::TileEpilogue epilogue = epilogue_of(p, tile.batch);
  for (std::int64_t i = 0; i < p.m; ++i) finish_row<FloatSums>(epilogue, i, tile.column, tile.columns, s.sums + i * tile_columns);
}

/// Whether subnormal codes of a tile are rare; of raw columns the first lines tell. It decides on speed alone.
bool subnormals_are_rare(const PanelFewTile& tile) {
  if (tile.product->b.packed) return head_of(packed_panel(tile)).rare != 0;
  const Columns columns = raw_columns(tile);
  Subnormals subnormals;
  for (std::int64_t j = 0; j < columns.count && tile.product->k >= line; ++j)
    subnormals.count(load_bytes(columns.first + j * columns.stride));
  return subnormals.are_rare();
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
  }
}
template void PanelFewRowsKernel::run<tier::DODONA_TIER>(const PanelProduct&, std::int64_t, float*);

template <class Tier>
void PanelFewTileKernel::run(const PanelFewTile& tile) {
  using namespace DODONA_TIER;
  const PanelProduct& p = *tile.product;
  if (p.b.type == DType::f8_e5m2) {
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
