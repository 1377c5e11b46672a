#include "ops/tiles/panel_i8.h"

#include "ops/tiles/epilogue_lanes.h"
#include "ops/tiles/unpack/int4.h"
#include "ops/tiles/unpack/int8.h"
#include "ops/tiles/unpack/nvfp4.h"
#include "ops/tiles/unpack/qserve.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::I8Format;
using ops::I8Rows;
using ops::I8Tile;
using ops::I8Weights;

constexpr std::int64_t step = ops::i8_step;
constexpr std::int64_t blocks_of_step = step / ops::i8_block;
constexpr int tile_panels = ops::i8_tile_panels;
constexpr std::int64_t sums_stride = tile_panels * 16;
/// Steps that are decoded at a time: what is decoded of two panels stays in a first-level cache.
constexpr std::int64_t chunk_steps = 8;
constexpr std::int64_t chunk_blocks = chunk_steps * blocks_of_step;

// ---- what becomes of a block's sum

/// Every block has scales of its own.
struct ScaledBlocks {
  using Sum = f32x16;
  static constexpr bool scaled = true;
  static DODONA_INLINE Sum load(const float* p) { return f32x16::load(p); }
  static DODONA_INLINE void store(Sum sum, float* p) { sum.store(p); }
  static DODONA_INLINE Sum add(Sum sum, i32x16 dot, f32x16 weight_scales, float row_scale) {
    return fma(to_f32(dot), weight_scales * f32x16::splat(row_scale), sum);
  }
  static DODONA_INLINE f32x16 result(const float* p) { return f32x16::load(p); }
};

/// Integers to the end.
struct WholeSums {
  using Sum = i32x16;
  static constexpr bool scaled = false;
  static DODONA_INLINE Sum load(const float* p) { return as_i32(f32x16::load(p)); }
  static DODONA_INLINE void store(Sum sum, float* p) { as_f32(sum).store(p); }
  static DODONA_INLINE Sum add(Sum sum, i32x16 dot, f32x16, float) { return sum + dot; }
  static DODONA_INLINE f32x16 result(const float* p) { return to_f32(load(p)); }
};

// ---- rows of A

template <class Unpack>
void prepare_row(const std::uint8_t* codes, std::int64_t k, const I8Rows& out) {
  const i32x16 ones = i32x16::splat(0x01010101);
  const std::int64_t padded = ops::i8_steps(k) * step;
  for (std::int64_t begin = 0; begin < padded; begin += 128) {
    const f32x16_pair pair = Unpack::row(codes, begin, k);
    const std::int64_t steps_left = (padded - begin) / step;
    std::int32_t sums[32];
    dpbusd_small(i32x16::zero(), ones, as_i32(pair.first)).store(sums);
    dpbusd_small(i32x16::zero(), ones, as_i32(pair.second)).store(sums + 16);
    as_i32(pair.first).store(reinterpret_cast<std::int32_t*>(out.codes + begin));
    if (steps_left > 1) as_i32(pair.second).store(reinterpret_cast<std::int32_t*>(out.codes + begin + 64));
    for (std::int64_t b = 0; b < (steps_left > 1 ? 8 : 4); ++b)
      out.corrections[begin / 16 + b] = -Unpack::offset * (sums[4 * b] + sums[4 * b + 1] + sums[4 * b + 2] + sums[4 * b + 3]);
  }
}

// ---- multiplying

/// Some rows of A from some step on.
struct Rows {
  const std::int8_t* codes;
  const std::int32_t* corrections;
  const float* scales;
  std::int64_t code_stride, block_stride;

  DODONA_INLINE Rows from(std::int64_t row, std::int64_t s) const {
    return {codes + row * code_stride + s * step, corrections + row * block_stride + s * blocks_of_step,
            scales + row * block_stride + s * blocks_of_step, code_stride, block_stride};
  }
};

/// sum += the product of one block of a row of A, and of a block of 16 columns, decoded.
template <class Unpack, class Sums>
DODONA_INLINE typename Sums::Sum add_block(typename Sums::Sum sum, const Rows& a, std::int64_t row, std::int64_t block,
                                           const i32x16 (&weights)[4], f32x16 scales) {
  const std::int8_t* codes = a.codes + row * a.code_stride + block * ops::i8_block;
  const i32x16 four[4] = {splat_bytes(codes), splat_bytes(codes + 4), splat_bytes(codes + 8), splat_bytes(codes + 12)};
  const i32x16 dot = Unpack::dot(i32x16::splat(a.corrections[row * a.block_stride + block]), weights, four);
  return Sums::add(sum, dot, scales, Sums::scaled ? a.scales[row * a.block_stride + block] : 0.0f);
}

template <class Unpack, class Sums>
DODONA_INLINE f32x16 scales_of(const std::uint8_t* packed, int block) {
  if constexpr (Sums::scaled) {
    return Unpack::scales(packed, block);
  } else {
    return f32x16::zero();
  }
}

template <class Unpack>
DODONA_INLINE void fetch_step(const std::uint8_t* packed) {
  DODONA_UNROLL(16)
  for (int line = 0; line < Unpack::step_bytes / 64; ++line) __builtin_prefetch(packed + 64 * line);
}

/// Few rows of A: sums[rows][16] += A times a panel, decoded on the way.
template <class Unpack, class Sums, int rows>
void multiply_packed(const std::uint8_t* packed, std::int64_t steps, const Rows a, float* sums) {
  const i32x16 table = Unpack::table();
  typename Sums::Sum c[rows];
  DODONA_UNROLL(4)
  for (int r = 0; r < rows; ++r) c[r] = Sums::load(sums + r * sums_stride);
  for (std::int64_t s = 0; s < steps; ++s, packed += Unpack::step_bytes) {
    // A fetch beyond the end does nothing, or fetches the panel that comes next.
    fetch_step<Unpack>(packed + 4096);
    DODONA_UNROLL(4)
    for (int block = 0; block < blocks_of_step; ++block) {
      i32x16 weights[4];
      Unpack::decode(packed, block, table, weights);
      const f32x16 scales = scales_of<Unpack, Sums>(packed, block);
      DODONA_UNROLL(4)
      for (int r = 0; r < rows; ++r) c[r] = add_block<Unpack, Sums>(c[r], a, r, s * blocks_of_step + block, weights, scales);
    }
  }
  DODONA_UNROLL(4)
  for (int r = 0; r < rows; ++r) Sums::store(c[r], sums + r * sums_stride);
}

/// Part of a panel, decoded: for each block 4 x 64 bytes of weights plus their offset, and sixteen scales.
struct Decoded {
  alignas(64) std::uint8_t weights[tile_panels][chunk_blocks * 256];
  alignas(64) float scales[tile_panels][chunk_blocks * 16];
};

template <class Unpack, class Sums>
void decode(const std::uint8_t* packed, std::int64_t steps, std::uint8_t* weights, float* scales) {
  const i32x16 table = Unpack::table();
  for (std::int64_t s = 0; s < steps; ++s, packed += Unpack::step_bytes) {
    fetch_step<Unpack>(packed + chunk_steps * Unpack::step_bytes);
    DODONA_UNROLL(4)
    for (int block = 0; block < blocks_of_step; ++block) {
      i32x16 w[4];
      Unpack::decode(packed, block, table, w);
      DODONA_UNROLL(4)
      for (int i = 0; i < 4; ++i) w[i].store(reinterpret_cast<std::int32_t*>(weights + 64 * i));
      if constexpr (Sums::scaled) Unpack::scales(packed, block).store(scales);
      weights += 256;
      scales += 16;
    }
  }
}

/// sums[rows][16 * panels] += A times decoded panels, all of them in registers.
template <class Unpack, class Sums, int rows, int panels>
void multiply_decoded(const Decoded& b, int first, std::int64_t blocks, const Rows a, float* sums) {
  typename Sums::Sum c[rows][panels];
  DODONA_UNROLL(8)
  for (int r = 0; r < rows; ++r) {
    DODONA_UNROLL(2)
    for (int p = 0; p < panels; ++p) c[r][p] = Sums::load(sums + r * sums_stride + 16 * p);
  }
  for (std::int64_t block = 0; block < blocks; ++block) {
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
      for (int p = 0; p < panels; ++p) c[r][p] = add_block<Unpack, Sums>(c[r][p], a, r, block, weights[p], scales[p]);
    }
  }
  DODONA_UNROLL(8)
  for (int r = 0; r < rows; ++r) {
    DODONA_UNROLL(2)
    for (int p = 0; p < panels; ++p) Sums::store(c[r][p], sums + r * sums_stride + 16 * p);
  }
}

// Rows of A, and panels, that are multiplied at a time: 8 sums, 8 weights, 2 scales of 32 registers.
constexpr int together_rows = many_sums_fit ? 4 : 2, together_panels = many_sums_fit ? 2 : 1;

template <class Unpack, class Sums, int rows>
DODONA_INLINE void multiply_rows(const Decoded& b, std::int64_t panels, std::int64_t blocks, const Rows& a, float* sums) {
  if (together_panels == 2 && panels == 2) {
    multiply_decoded<Unpack, Sums, rows, together_panels>(b, 0, blocks, a, sums);
  } else {
    for (int p = 0; p < panels; ++p) multiply_decoded<Unpack, Sums, rows, 1>(b, p, blocks, a, sums + 16 * p);
  }
}

template <class Unpack, class Sums>
void multiply_chunk(const Decoded& b, std::int64_t panels, std::int64_t blocks, const Rows& a, std::int64_t rows, float* sums) {
  std::int64_t r = 0;
  for (; rows - r >= together_rows; r += together_rows)
    multiply_rows<Unpack, Sums, together_rows>(b, panels, blocks, a.from(r, 0), sums + r * sums_stride);
  for (; r < rows; ++r) multiply_rows<Unpack, Sums, 1>(b, panels, blocks, a.from(r, 0), sums + r * sums_stride);
}

/// At most this many rows are multiplied as the weights are decoded, without storing what is decoded.
constexpr std::int64_t few_rows = 4;

template <class Unpack, class Sums>
DODONA_INLINE void multiply_few(const std::uint8_t* packed, std::int64_t steps, const Rows& a, std::int64_t rows, float* sums) {
  switch (rows) {
    case 1: return multiply_packed<Unpack, Sums, 1>(packed, steps, a, sums);
    case 2: return multiply_packed<Unpack, Sums, 2>(packed, steps, a, sums);
    case 3: return multiply_packed<Unpack, Sums, 3>(packed, steps, a, sums);
    default: return multiply_packed<Unpack, Sums, 4>(packed, steps, a, sums);
  }
}

template <class Sums>
void store_tile(const I8Tile& tile, const float* sums) {
  const std::int64_t first = tile.first_panel * 16, left = tile.weights->n - first;
  const std::int64_t columns = left < tile.panels * 16 ? left : tile.panels * 16;
  for (std::int64_t r = 0; r < tile.rows; ++r) finish_row<Sums>(*tile.epilogue, tile.row + r, first, columns, sums + r * sums_stride);
}

template <class Unpack, class Sums>
void multiply_tile(const I8Tile& tile) {
  const I8Weights& w = *tile.weights;
  const std::int64_t steps = ops::i8_steps(w.k);
  const Rows a{tile.a.codes, tile.a.corrections, tile.a.scales, steps * step, steps * blocks_of_step};
  alignas(64) float sums[ops::i8_tile_rows * sums_stride];
  for (std::int64_t i = 0; i < tile.rows * tile_panels; ++i) f32x16::zero().store(sums + 16 * i);
  const auto packed_panel = [&](std::int64_t p) { return w.packed + (tile.first_panel + p) * steps * Unpack::step_bytes; };
  if (w.packed != nullptr && tile.rows <= few_rows) {
    for (std::int64_t p = 0; p < tile.panels; ++p) multiply_few<Unpack, Sums>(packed_panel(p), steps, a, tile.rows, sums + 16 * p);
    return store_tile<Sums>(tile, sums);
  }
  Decoded decoded;
  alignas(64) std::uint8_t chunk[chunk_steps * Unpack::step_bytes];
  for (std::int64_t s = 0; s < steps; s += chunk_steps) {
    const std::int64_t count = steps - s < chunk_steps ? steps - s : chunk_steps;
    for (std::int64_t p = 0; p < tile.panels; ++p) {
      const std::uint8_t* packed = chunk;
      if (w.packed != nullptr) {
        packed = packed_panel(p) + s * Unpack::step_bytes;
      } else {
        Unpack::pack(w, tile.first_panel + p, s, s + count, chunk);
      }
      if (tile.rows <= few_rows) {
        multiply_few<Unpack, Sums>(packed, count, a.from(0, s), tile.rows, sums + 16 * p);
      } else {
        decode<Unpack, Sums>(packed, count, decoded.weights[p], decoded.scales[p]);
      }
    }
    if (tile.rows > few_rows) multiply_chunk<Unpack, Sums>(decoded, tile.panels, count * blocks_of_step, a.from(0, s), tile.rows, sums);
  }
  store_tile<Sums>(tile, sums);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void I8TileKernel::run(const I8Tile& tile) {
  using namespace DODONA_TIER;
  switch (tile.format) {
    case I8Format::nvfp4: return multiply_tile<Nvfp4Unpack, ScaledBlocks>(tile);
    case I8Format::i8: return multiply_tile<Int8Unpack, WholeSums>(tile);
    case I8Format::i4: return multiply_tile<Int4Unpack, WholeSums>(tile);
    case I8Format::qserve: return multiply_tile<QserveUnpack, WholeSums>(tile);
    case I8Format::qserve_groups: return multiply_tile<QserveGroupUnpack, WholeSums>(tile);
  }
}
template void I8TileKernel::run<tier::DODONA_TIER>(const I8Tile&);

template <class Tier>
void I8PackKernel::run(I8Format format, const I8Weights& weights, std::int64_t panel, std::uint8_t* out) {
  using namespace DODONA_TIER;
  switch (format) {
    case I8Format::nvfp4: return Nvfp4Unpack::pack(weights, panel, 0, i8_steps(weights.k), out);
    case I8Format::i8: return Int8Unpack::pack(weights, panel, 0, i8_steps(weights.k), out);
    case I8Format::i4: return Int4Unpack::pack(weights, panel, 0, i8_steps(weights.k), out);
    case I8Format::qserve: return QserveUnpack::pack(weights, panel, 0, i8_steps(weights.k), out);
    case I8Format::qserve_groups: return QserveGroupUnpack::pack(weights, panel, 0, i8_steps(weights.k), out);
  }
}
template void I8PackKernel::run<tier::DODONA_TIER>(I8Format, const I8Weights&, std::int64_t, std::uint8_t*);

template <class Tier>
void I8RowKernel::run(I8Format format, const std::uint8_t* codes, std::int64_t k, const I8Rows& out) {
  using namespace DODONA_TIER;
  switch (format) {
    case I8Format::nvfp4: return prepare_row<Nvfp4Unpack>(codes, k, out);
    case I8Format::i8: return prepare_row<Int8Unpack>(codes, k, out);
    case I8Format::i4: return prepare_row<Int4Unpack>(codes, k, out);
    case I8Format::qserve: return prepare_row<QserveUnpack>(codes, k, out);
    case I8Format::qserve_groups: return prepare_row<QserveGroupUnpack>(codes, k, out);
  }
}
template void I8RowKernel::run<tier::DODONA_TIER>(I8Format, const std::uint8_t*, std::int64_t, const I8Rows&);

}  // namespace dodona::ops
