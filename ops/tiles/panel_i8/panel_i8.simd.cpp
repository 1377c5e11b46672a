#include "ops/tiles/panel_i8/panel_i8.h"

#include "ops/tiles/panel_i8/panel_digits_lanes.h"
#include "ops/tiles/panel_i8/panel_i8_lanes.h"
#include "simd/bytes_apart.h"
#include "simd/sum_lanes.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::I8Rows;
using ops::I8Tile;
using ops::I8Weights;

constexpr std::int64_t step = ops::i8_step;
constexpr std::int64_t blocks_of_step = step / ops::i8_block;
constexpr int tile_panels = ops::i8_tile_panels;
constexpr std::int64_t sums_stride = i8_sums_stride;
constexpr std::int64_t chunk_steps = ops::i8_chunk_steps, chunk_blocks = ops::i8_chunk_blocks, chunk_k = ops::i8_chunk;

// ---- rows of A

template <class Unpack, class Sums>
void prepare_row(const std::uint8_t* codes, std::int64_t k, const I8Rows& out) {
  const i32x16 ones = i32x16::splat(0x01010101);
  i32x16 whole = i32x16::zero();
  for (std::int64_t begin = 0; begin < ops::i8_chunks(k) * chunk_k; begin += 128) {
    const f32x16_pair pair = begin < k ? Unpack::row(codes, begin, k) : f32x16_pair{f32x16::zero(), f32x16::zero()};
    const I8Rows to = out.at(0, begin / chunk_k);
    as_i32(pair.first).store(reinterpret_cast<std::int32_t*>(to.codes + begin % chunk_k));
    as_i32(pair.second).store(reinterpret_cast<std::int32_t*>(to.codes + begin % chunk_k + 64));
    const i32x16 first = dpbusd_small(i32x16::zero(), ones, as_i32(pair.first)),
                 second = dpbusd_small(i32x16::zero(), ones, as_i32(pair.second));
    whole = whole + first + second;
    if constexpr (Sums::scaled) {
      std::int32_t sums[32];
      first.store(sums);
      second.store(sums + 16);
      // That of blocks with scales in common stands at the first of them.
      constexpr int lanes = 4 * Sums::of_scales;
      for (int b = 0; b < 8; ++b) {
        std::int32_t sum = 0;
        for (int lane = 0; lane < lanes && b % Sums::of_scales == 0; ++lane) sum += sums[4 * b + lane];
        to.corrections[begin % chunk_k / 16 + b] = -Unpack::offset * sum;
      }
    }
  }
  if constexpr (!Sums::scaled) {
    std::int32_t sums[16], all = 0;
    whole.store(sums);
    for (const std::int32_t sum : sums) all += sum;
    *out.corrections = -Unpack::offset * all;
  }
}

// ---- multiplying

/// sum += the product of one block of a row of A, and of a block of 16 columns, decoded; where blocks go together the last of them adds
/// what is `open`; this one is `turn`. With `chained` a whole sum goes through the products; else they are added up first, so that products
/// of the next block need not wait for it.
template <class Unpack, class Sums, bool chained>
DODONA_INLINE typename Sums::Sum add_block(typename Sums::Sum sum, typename Sums::Open& open, int turn, const I8Rows& a, std::int64_t row,
                                           std::int64_t block, const i32x16 (&weights)[4], f32x16 scales) {
  const std::int8_t* codes = a.codes + row * chunk_k + block * ops::i8_block;
  const i32x16 four[4] = {splat_bytes(codes), splat_bytes(codes + 4), splat_bytes(codes + 8), splat_bytes(codes + 12)};
  if constexpr (Sums::scaled) {
    const std::int64_t at = row * chunk_blocks + block;
    const i32x16 dot = Unpack::dot(Sums::begin(open, turn, a.corrections[at]), weights, four);
    const f32x16 both_scales = scales * f32x16::splat(a.scales[at]);
    if (turn + 1 == Sums::blocks_together) return Sums::add(sum, open, dot, both_scales);
    open = Sums::open(dot, both_scales);
    return sum;
  } else {
    return chained ? Unpack::dot(sum, weights, four) : sum + Unpack::dot(i32x16::zero(), weights, four);
  }
}

/// To a second-level cache: the few fetches that a first-level one can wait for would hold up what comes from the second.
template <class Unpack>
DODONA_INLINE void fetch_step(const std::uint8_t* packed) {
  DODONA_UNROLL(16)
  for (int line = 0; line < Unpack::step_bytes / 64; ++line) __builtin_prefetch(packed + 64 * line, 0, 2);
}

/// What is fetched while `rows` are multiplied: memory answers in the meantime, which is short for one row.
constexpr std::int64_t far_ahead(std::int64_t rows) {
  return rows > 1 ? 4608 : 9216;
}

/// Few rows of A and at most a chunk: sums[rows][16] += A times a panel, decoded on the way. What lies `ahead` is fetched.
template <class Unpack, class Sums, int rows>
void multiply_packed(const std::uint8_t* packed, std::int64_t steps, std::int64_t ahead, const I8Rows a, float* sums) {
  const i32x16 table = Unpack::table();
  typename Sums::Sum c[rows];
  typename Sums::Open open[rows];
  DODONA_UNROLL(16)
  for (int r = 0; r < rows; ++r) c[r] = Sums::load(sums + r * sums_stride);
  for (std::int64_t s = 0; s < steps; ++s, packed += Unpack::step_bytes) {
    // A fetch beyond the end does nothing, or fetches the panel that comes next.
    fetch_step<Unpack>(packed + ahead);
    DODONA_UNROLL(4)
    for (int block = 0; block < blocks_of_step; ++block) {
      i32x16 weights[4];
      Unpack::decode(packed, block, table, weights);
      const f32x16 scales = scales_of<Unpack, Sums>(packed, block);
      DODONA_UNROLL(16)
      for (int r = 0; r < rows; ++r)
        c[r] = add_block<Unpack, Sums, (rows > 4)>(c[r], open[r], block % Sums::blocks_together, a, r, s * blocks_of_step + block, weights,
                                                   scales);
    }
  }
  DODONA_UNROLL(16)
  for (int r = 0; r < rows; ++r) Sums::store(c[r], sums + r * sums_stride);
}

/// Part of a panel, decoded: for each block 4 x 64 bytes of weights plus their offset, and sixteen scales.
struct Decoded {
  alignas(64) std::uint8_t weights[tile_panels][chunk_blocks * 256];
  alignas(64) float scales[tile_panels][chunk_blocks * 16];
};

/// sums[rows][16 * panels] += A times decoded panels, all of them in registers.
template <class Unpack, class Sums, int rows, int panels>
void multiply_decoded(const Decoded& b, int first, std::int64_t blocks, const I8Rows a, float* sums) {
  typename Sums::Sum c[rows][panels];
  typename Sums::Open open[rows][panels];
  DODONA_UNROLL(8)
  for (int r = 0; r < rows; ++r) {
    DODONA_UNROLL(2)
    for (int p = 0; p < panels; ++p) c[r][p] = Sums::load(sums + r * sums_stride + 16 * p);
  }
  for (std::int64_t begin = 0; begin < blocks; begin += Sums::blocks_together) {
    DODONA_UNROLL(2)
    for (int t = 0; t < Sums::blocks_together; ++t) {
      const std::int64_t block = begin + t;
      i32x16 weights[panels][4];
      f32x16 scales[panels];
      DODONA_UNROLL(2)
      for (int p = 0; p < panels; ++p) {
        DODONA_UNROLL(4)
        for (int i = 0; i < 4; ++i) weights[p][i] = load_bytes(b.weights[first + p] + 256 * block + 64 * i);
        scales[p] = Sums::scaled ? f32x16::load(b.scales[first + p] + 16 * block) : f32x16::zero();
      }
      DODONA_UNROLL(8)
      for (int r = 0; r < rows; ++r) {
        DODONA_UNROLL(2)
        for (int p = 0; p < panels; ++p)
          c[r][p] = add_block<Unpack, Sums, (rows * panels > 4)>(c[r][p], open[r][p], t, a, r, block, weights[p], scales[p]);
      }
    }
  }
  DODONA_UNROLL(8)
  for (int r = 0; r < rows; ++r) {
    DODONA_UNROLL(2)
    for (int p = 0; p < panels; ++p) Sums::store(c[r][p], sums + r * sums_stride + 16 * p);
  }
}

/// Whether decoded weights of a format are multiplied byte apart from byte (bytes_apart.h).
template <class Unpack>
constexpr bool multiplies_apart = false;
template <>
constexpr bool multiplies_apart<Int8Unpack> = bytes_go_apart;
template <>
constexpr bool multiplies_apart<QserveGroupUnpack> = bytes_go_apart;

/// Part of some rows of A, taken apart once for the columns of a tile.
template <int rows>
struct RowsApart {
  alignas(64) std::int32_t even[rows][chunk_k / 4], odd[rows][chunk_k / 4];

  DODONA_INLINE RowsApart(const I8Rows& a, std::int64_t k) {
    for (int r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < k; i += 64) {
        const BytesApart bytes = signed_apart(load_bytes(a.codes + r * chunk_k + i));
        bytes.even.store(even[r] + i / 4);
        bytes.odd.store(odd[r] + i / 4);
      }
  }
};

/// Sums in registers, to which four k are added at a time. The sums of each four are told to stay, or GCC puts off the additions of many,
/// and products are stored until then.
template <int rows>
struct SumsApart {
  i32x16 c[rows];

  DODONA_INLINE explicit SumsApart(const float* sums) {
    DODONA_UNROLL(4)
    for (int r = 0; r < rows; ++r) c[r] = WholeSums::load(sums + r * sums_stride);
  }
  DODONA_INLINE void store(float* sums) const {
    DODONA_UNROLL(4)
    for (int r = 0; r < rows; ++r) WholeSums::store(c[r], sums + r * sums_stride);
  }
  DODONA_INLINE void add(i32x16 weights, const RowsApart<rows>& a, std::int64_t word) {
    const BytesApart w = unsigned_apart(weights);
    DODONA_UNROLL(4)
    for (int r = 0; r < rows; ++r) {
      const i32x16 even = add_pairs(i32x16::zero(), w.even, i32x16::splat(a.even[r][word]));
      c[r] = c[r] + add_pairs(even, w.odd, i32x16::splat(a.odd[r][word]));
      stay(c[r]);
    }
  }
};

/// sums[rows][16] += rows times a decoded panel, in registers.
template <int rows>
void multiply_apart(const std::uint8_t* weights, std::int64_t k, const RowsApart<rows>& a, float* sums) {
  SumsApart<rows> of(sums);
  for (std::int64_t word = 0; word < k / 4; word += 2) {
    of.add(load_bytes(weights + 64 * word), a, word);
    of.add(load_bytes(weights + 64 * word + 64), a, word + 1);
  }
  of.store(sums);
}

/// At most a chunk: sums[rows][16] += rows times a panel, decoded on the way. What lies far ahead is fetched.
template <class Unpack, int rows>
void multiply_packed_apart(const std::uint8_t* packed, std::int64_t steps, const RowsApart<rows>& a, float* sums) {
  SumsApart<rows> of(sums);
  for (std::int64_t s = 0; s < steps; ++s, packed += Unpack::step_bytes) {
    fetch_step<Unpack>(packed + far_ahead(rows));
    const typename Unpack::Step weights(packed);
    for (std::int64_t word = 0; word < step / 4; word += 2) {
      const i32x16_pair two = weights.two(word);
      of.add(two.first, a, s * (step / 4) + word);
      of.add(two.second, a, s * (step / 4) + word + 1);
    }
  }
  of.store(sums);
}

// Rows of A, and panels, that are multiplied at a time: 8 sums, 8 weights, 2 scales of 32 registers, and 16 sums where nothing is scaled.
template <class Unpack, class Sums>
constexpr int together_rows = multiplies_apart<Unpack> ? 4
                              : !many_sums_fit         ? 2
                              : Sums::scaled           ? 4
                                                       : 8;
constexpr int together_panels = many_sums_fit ? 2 : 1;

template <class Unpack, class Sums, int rows>
DODONA_INLINE void multiply_rows(const Decoded& b, std::int64_t panels, std::int64_t blocks, const I8Rows& a, float* sums) {
  if constexpr (multiplies_apart<Unpack>) {
    const RowsApart<rows> apart(a, blocks * ops::i8_block);
    for (int p = 0; p < panels; ++p) multiply_apart(b.weights[p], blocks * ops::i8_block, apart, sums + 16 * p);
  } else if (together_panels == 2 && panels == 2) {
    multiply_decoded<Unpack, Sums, rows, together_panels>(b, 0, blocks, a, sums);
  } else {
    for (int p = 0; p < panels; ++p) multiply_decoded<Unpack, Sums, rows, 1>(b, p, blocks, a, sums + 16 * p);
  }
}

/// The rows that are left when `most` at a time are done: by halves. Of what lies ahead some is fetched before each of these.
template <class Unpack, class Sums, int most>
void multiply_chunk(const Decoded& b, std::int64_t panels, std::int64_t blocks, const I8Rows& a, std::int64_t rows, float* sums,
                    WeightsAhead& ahead) {
  std::int64_t r = 0;
  for (; rows - r >= most; r += most) {
    ahead.fetch();
    multiply_rows<Unpack, Sums, most>(b, panels, blocks, a.at(r, 0), sums + r * sums_stride);
  }
  if constexpr (most > 1)
    if (r < rows) multiply_chunk<Unpack, Sums, most / 2>(b, panels, blocks, a.at(r, 0), rows - r, sums + r * sums_stride, ahead);
}

/// Whether there is nothing to decode.
template <class Unpack>
constexpr bool packed_as_decoded = Unpack::step_bytes == step* ops::i8_panel_columns;

/// Rows that a function of their own multiplies as weights are decoded.
constexpr int few_rows = 4;
/// So many rows at a time are multiplied as weights are decoded, without storing what is decoded, and so many all together: they are
/// decoded again for each of those.
template <class Sums>
constexpr int rows_at_once = !many_sums_fit ? few_rows
                             : Sums::scaled ? 8
                                            : 16;
template <class Unpack, class Sums>
constexpr std::int64_t rows_while_decoding = multiplies_apart<Unpack> ? (packed_as_decoded<Unpack> ? 8 : 3)
                                             : !many_sums_fit         ? few_rows
                                             : Sums::scaled           ? 16
                                                                      : 64;

template <class Unpack, class Sums>
DODONA_INLINE void multiply_few(const std::uint8_t* packed, std::int64_t steps, std::int64_t ahead, const I8Rows& a, std::int64_t rows,
                                float* sums) {
  switch (rows) {
    case 0: return;
    case 1: return multiply_packed<Unpack, Sums, 1>(packed, steps, ahead, a, sums);
    case 2: return multiply_packed<Unpack, Sums, 2>(packed, steps, ahead, a, sums);
    case 3: return multiply_packed<Unpack, Sums, 3>(packed, steps, ahead, a, sums);
    default: return multiply_packed<Unpack, Sums, 4>(packed, steps, ahead, a, sums);
  }
}
template <class Unpack, class Sums, int most>
void multiply_while_decoding(const std::uint8_t* packed, std::int64_t steps, std::int64_t ahead, const I8Rows& a, std::int64_t rows,
                             float* sums) {
  std::int64_t r = 0;
  for (; rows - r >= most; r += most, ahead = 0)
    multiply_packed<Unpack, Sums, most>(packed, steps, ahead, a.at(r, 0), sums + r * sums_stride);
  if constexpr (most > few_rows) {
    multiply_while_decoding<Unpack, Sums, most / 2>(packed, steps, ahead, a.at(r, 0), rows - r, sums + r * sums_stride);
  } else {
    multiply_few<Unpack, Sums>(packed, steps, ahead, a.at(r, 0), rows - r, sums + r * sums_stride);
  }
}

/// Few rows times the packed panels of a tile, chunk after chunk, for which rows are taken apart once.
template <class Unpack>
void multiply_tile_apart(const I8Tile& tile) {
  const std::int64_t steps = ops::i8_steps(tile.weights->k), pair_floats = tile.rows * sums_stride;
  by_halves<4>(tile.rows, [&](auto rows, std::int64_t first) {
    for (std::int64_t s = 0; s < steps; s += chunk_steps) {
      const std::int64_t count = steps - s < chunk_steps ? steps - s : chunk_steps;
      const RowsApart<rows> a(tile.a.at(first, s / chunk_steps), count * step);
      for (std::int64_t p = 0; p < tile.panels; ++p)
        multiply_packed_apart<Unpack, rows>(tile.weights->packed + ((tile.first_panel + p) * steps + s) * Unpack::step_bytes, count, a,
                                            tile.sums + p / tile_panels * pair_floats + p % tile_panels * 16 + first * sums_stride);
    }
  });
}

template <class Unpack>
constexpr bool multiplies_raw = requires(RawSums& sums) {
  Unpack::multiply_raw(I8Weights{}, 0, 0, I8Rows{}, 0, sums);
};

/// Few rows times raw weights where their format can do that: sums[rows][32] += A times the panels of a tile.
template <class Unpack, class Sums>
void multiply_few_raw(const I8Tile& tile, float* sums) {
  RawSums raw;
  Unpack::multiply_raw(*tile.weights, tile.first_panel, tile.panels, tile.a, tile.rows, raw);
  for (std::int64_t p = 0; p < tile.panels; ++p)
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      float* const to = sums + r * sums_stride + 16 * p;
      Sums::store(Sums::load(to) + raw.total[p][r], to);
    }
}

/// Steps [s, s + count) of a pair of a tile's panels, or of the one that is left, times all rows.
template <class Unpack, class Sums>
void multiply_pair(const I8Tile& tile, std::int64_t pair, std::int64_t s, std::int64_t count, float* sums) {
  const I8Weights& w = *tile.weights;
  const std::int64_t steps = ops::i8_steps(w.k), first = tile.first_panel + pair;
  const std::int64_t panels = tile.panels - pair < tile_panels ? tile.panels - pair : tile_panels;
  const auto packed_at = [&](std::int64_t panel, std::int64_t from) { return w.packed + (panel * steps + from) * Unpack::step_bytes; };
  const bool decoding = !multiplies_apart<Unpack> && tile.rows <= rows_while_decoding<Unpack, Sums>;
  const I8Rows a = tile.a.at(0, s / chunk_steps);
  Decoded decoded;
  constexpr std::int64_t together = Unpack::panels_together;
  alignas(64) std::uint8_t chunk[together * chunk_steps * Unpack::step_bytes];
  for (std::int64_t p = 0; p < panels; ++p) {
    if (w.packed == nullptr && p % together == 0)
      Unpack::pack(w, first + p, panels - p < together ? panels - p : together, s, s + count, tile.panels <= tile_panels, chunk);
    const std::uint8_t* const packed = w.packed != nullptr ? packed_at(first + p, s) : chunk + p % together * count * Unpack::step_bytes;
    if (decoding) {
      multiply_while_decoding<Unpack, Sums, rows_at_once<Sums>>(packed, count, 0, a, tile.rows, sums + 16 * p);
    } else {
      decode<Unpack, Sums>(packed, count, decoded.weights[p], decoded.scales[p]);
    }
  }
  if (decoding) return;
  WeightsAhead ahead;
  if (w.packed != nullptr)
    ahead = WeightsAhead(s + count < steps ? packed_at(first, s + count) : packed_at(first + tile.panels, 0), panels,
                         steps * Unpack::step_bytes, chunk_steps * Unpack::step_bytes,
                         (tile.rows + together_rows<Unpack, Sums> - 1) / together_rows<Unpack, Sums>);
  multiply_chunk<Unpack, Sums, together_rows<Unpack, Sums>>(decoded, panels, count * blocks_of_step, a, tile.rows, sums, ahead);
}

template <class Unpack, class Sums>
void multiply_tile(const I8Tile& tile) {
  const I8Weights& w = *tile.weights;
  const std::int64_t steps = ops::i8_steps(w.k), pair_floats = tile.rows * sums_stride;
  for (std::int64_t pair = 0; pair < tile.panels; pair += tile_panels)
    for (std::int64_t r = 0; r < tile.rows; ++r)
      for (int p = 0; p < tile_panels; ++p)
        Sums::store(Sums::first(tile.a.at(r, 0).corrections), tile.sums + pair / tile_panels * pair_floats + r * sums_stride + 16 * p);
  const auto steps_from = [&](std::int64_t s) { return steps - s < chunk_steps ? steps - s : chunk_steps; };
  if (w.packed != nullptr && tile.rows <= rows_while_decoding<Unpack, Sums>) {
    if constexpr (multiplies_apart<Unpack>) {
      multiply_tile_apart<Unpack>(tile);
      return store_tile<Sums>(tile);
    }
    for (std::int64_t p = 0; p < tile.panels; ++p)
      for (std::int64_t s = 0; s < steps; s += chunk_steps)
        multiply_while_decoding<Unpack, Sums, rows_at_once<Sums>>(
            w.packed + ((tile.first_panel + p) * steps + s) * Unpack::step_bytes, steps_from(s), far_ahead(tile.rows),
            tile.a.at(0, s / chunk_steps), tile.rows, tile.sums + p / tile_panels * pair_floats + p % tile_panels * 16);
    return store_tile<Sums>(tile);
  }
  if constexpr (multiplies_raw<Unpack>) {
    if (w.packed == nullptr && tile.rows <= Unpack::most_raw_rows) {
      multiply_few_raw<Unpack, Sums>(tile, tile.sums);
      return store_tile<Sums>(tile);
    }
  }
  for (std::int64_t s = 0; s < steps; s += chunk_steps)
    for (std::int64_t pair = 0; pair < tile.panels; pair += tile_panels)
      multiply_pair<Unpack, Sums>(tile, pair, s, steps_from(s), tile.sums + pair / tile_panels * pair_floats);
  store_tile<Sums>(tile);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void I8TileKernel::run(const I8Tile& tile) {
  using namespace DODONA_TIER;
  switch (tile.format) {
    case I8Format::nvfp4: return multiply_tile<Nvfp4Unpack, PairsOfBlocks>(tile);
    case I8Format::mxfp4: return multiply_tile<Mxfp4Unpack, BlocksOfTwo>(tile);
    case I8Format::i8: return multiply_tile<Int8Unpack, WholeSums>(tile);
    case I8Format::i4: return multiply_tile<Int4Unpack, WholeSums>(tile);
    case I8Format::qserve: return multiply_tile<QserveUnpack, WholeSums>(tile);
    case I8Format::qserve_groups: return multiply_tile<QserveGroupUnpack, WholeSums>(tile);
    case I8Format::e4m3_i4: return multiply_digits_tile(tile);
  }
}
template void I8TileKernel::run<tier::DODONA_TIER>(const I8Tile&);

template <class Tier>
void I8PackKernel::run(I8Format format, const I8Weights& weights, std::int64_t panel, std::uint8_t* out) {
  using namespace DODONA_TIER;
  switch (format) {
    case I8Format::nvfp4: return Nvfp4Unpack::pack(weights, panel, 1, 0, i8_steps(weights.k), true, out);
    case I8Format::mxfp4: return Mxfp4Unpack::pack(weights, panel, 1, 0, i8_steps(weights.k), true, out);
    case I8Format::i8: return Int8Unpack::pack(weights, panel, 1, 0, i8_steps(weights.k), true, out);
    case I8Format::i4: return Int4Unpack::pack(weights, panel, 1, 0, i8_steps(weights.k), true, out);
    case I8Format::qserve: return QserveUnpack::pack(weights, panel, 1, 0, i8_steps(weights.k), true, out);
    case I8Format::qserve_groups: return QserveGroupUnpack::pack(weights, panel, 1, 0, i8_steps(weights.k), true, out);
    case I8Format::e4m3_i4: return pack_blocks(weights, panel, 0, weights.k / digits_k, out, out + weights.k * i8_panel_columns / 2);
  }
}
template void I8PackKernel::run<tier::DODONA_TIER>(I8Format, const I8Weights&, std::int64_t, std::uint8_t*);

template <class Tier>
void I8RowKernel::run(I8Format format, const std::uint8_t* codes, std::int64_t k, const I8Rows& out) {
  using namespace DODONA_TIER;
  switch (format) {
    case I8Format::nvfp4: return prepare_row<Nvfp4Unpack, PairsOfBlocks>(codes, k, out);
    case I8Format::mxfp4: return prepare_row<Mxfp4Unpack, BlocksOfTwo>(codes, k, out);
    case I8Format::i8: return prepare_row<Int8Unpack, WholeSums>(codes, k, out);
    case I8Format::i4: return prepare_row<Int4Unpack, WholeSums>(codes, k, out);
    case I8Format::qserve: return prepare_row<QserveUnpack, WholeSums>(codes, k, out);
    case I8Format::qserve_groups: return prepare_row<QserveGroupUnpack, WholeSums>(codes, k, out);
    case I8Format::e4m3_i4: return prepare_digits(codes, k, out);
  }
}
template void I8RowKernel::run<tier::DODONA_TIER>(I8Format, const std::uint8_t*, std::int64_t, const I8Rows&);

}  // namespace dodona::ops
