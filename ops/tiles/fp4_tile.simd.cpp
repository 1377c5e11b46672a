#include "ops/tiles/fp4_tile.h"

#include "simd/convert.h"
#include "simd/dot_i8.h"

namespace dodona::DODONA_TIER {
namespace {

using ops::Fp4Rows;
using ops::Fp4Tile;
using ops::Fp4Weights;

constexpr std::int64_t panel_rows = ops::fp4_panel_rows, step = ops::fp4_step, step_bytes = ops::fp4_step_bytes;
constexpr std::int64_t blocks_of_step = step / ops::fp4_block;
constexpr int tile_panels = ops::fp4_tile_panels;
/// Steps that are decoded at a time: what is decoded of two panels stays in a first-level cache.
constexpr std::int64_t chunk_steps = 8;
constexpr std::int64_t chunk_blocks = chunk_steps * blocks_of_step;

struct Table {
  alignas(64) std::uint8_t bytes[64];
};
/// 16 bytes, four times over: twice the value of every code, plus `offset`.
constexpr Table doubled_codes(int offset) {
  constexpr int magnitude[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  Table table{};
  for (int i = 0; i < 64; ++i) table.bytes[i] = static_cast<std::uint8_t>(offset + (i & 8 ? -1 : 1) * magnitude[i & 7]);
  return table;
}
constexpr int weight_offset = 12;
constexpr Table signed_table = doubled_codes(0), offset_table = doubled_codes(weight_offset);

/// Codes of even k, or of odd k, looked up.
DODONA_INLINE i32x16 low_nibbles(i32x16 table, i32x16 codes) {
  return lookup_bytes(table, codes & i32x16::splat(0x0F0F0F0F));
}
DODONA_INLINE i32x16 high_nibbles(i32x16 table, i32x16 codes) {
  return lookup_bytes(table, shr<4>(codes) & i32x16::splat(0x0F0F0F0F));
}

// ---- packing

/// Bytes of a row that are fetched before they are transposed.
constexpr std::int64_t fetch_ahead = 512;

/// Scales of blocks 4s..4s+3 of the panel's rows to 4 x 16 bytes. A tile of 128 x 4 scales keeps row r at (r mod 32)*16 + (r/32)*4.
DODONA_INLINE void pack_scales(const Fp4Weights& w, std::int64_t panel, std::int64_t s, std::uint8_t* out) {
  const std::int64_t row = panel * panel_rows, blocks = w.k / ops::fp4_block;
  const std::uint8_t* tile = w.scales + (row / 128 * ((blocks + 3) / 4) + s) * 512 + row % 32 * 16;
  f32x16 fours[4];  // of four rows each, all four of what lies 32 rows apart
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    fours[i] = as_f32(load_bytes(tile + 64 * i));
    __builtin_prefetch(tile + 4096 + 64 * i);
  }
  const auto pick = [](f32x16 a, f32x16 b, bool odd) {
    const f32x16_pair split = deinterleave(a, b);
    return odd ? split.second : split.first;
  };
  const auto which = static_cast<unsigned>(row % 128 / 32);
  const f32x16 first = pick(fours[0], fours[1], which & 1), second = pick(fours[2], fours[3], which & 1);
  i32x16 words = as_i32(pick(first, second, which & 2));
  // Half a step at the end: the scales beyond are padding of any content.
  if (blocks - s * blocks_of_step < blocks_of_step) words = words & i32x16::splat(0xFFFF);
  store_low_8(words, out);
  store_low_8(shr<8>(words), out + 16);
  store_low_8(shr<16>(words), out + 32);
  store_low_8(shr<24>(words), out + 48);
}

/// Steps [begin, end) of a panel. A transposition takes two steps.
void pack_steps(const Fp4Weights& w, std::int64_t panel, std::int64_t begin, std::int64_t end, std::uint8_t* out) {
  const std::int64_t stride = w.k / 2;
  const std::uint8_t* rows = w.codes + panel * panel_rows * stride;
  for (std::int64_t s = begin; s < end; s += 2) {
    const std::int64_t words = (w.k - s * step) / 8;
    // Sixteen streams that no hardware follows. Beyond the end of the rows the next tile's begin, or nothing that a fetch would fault on.
    const bool last = s * (step / 2) + fetch_ahead >= stride;
    const std::int64_t ahead = fetch_ahead + (last ? (tile_panels * panel_rows - 1) * stride : 0);
    f32x16 lanes_of_rows[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r) {
      const std::uint8_t* p = rows + r * stride + s * (step / 2);
      __builtin_prefetch(p + ahead);
      const auto* p32 = reinterpret_cast<const std::int32_t*>(p);
      lanes_of_rows[r] = as_f32(words >= 16 ? i32x16::load(p32) : i32x16::load_partial(p32, words));
    }
    transpose(lanes_of_rows);
    std::uint8_t* to = out + (s - begin) * step_bytes;
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) as_i32(lanes_of_rows[v]).store(reinterpret_cast<std::int32_t*>(to + 64 * v));
    pack_scales(w, panel, s, to + 512);
    if (s + 1 == end) break;
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) as_i32(lanes_of_rows[8 + v]).store(reinterpret_cast<std::int32_t*>(to + step_bytes + 64 * v));
    pack_scales(w, panel, s + 1, to + step_bytes + 512);
  }
}

// ---- rows of A

void prepare_row(const std::uint8_t* codes, std::int64_t k, const Fp4Rows& out) {
  const i32x16 table = load_bytes(signed_table.bytes), ones = i32x16::splat(0x01010101);
  const std::int64_t padded = ops::fp4_steps(k) * step;
  for (std::int64_t begin = 0; begin < padded; begin += 128) {
    const std::int64_t words = (k - begin) / 8;
    const i32x16 raw = i32x16::load_partial(reinterpret_cast<const std::int32_t*>(codes + begin / 2), words);
    // Bytes that do not exist are code zero, and so zeros.
    const f32x16_pair pair = interleave(as_f32(low_nibbles(table, raw)), as_f32(high_nibbles(table, raw)));
    const std::int64_t steps_left = (padded - begin) / step;
    std::int32_t sums[32];
    dpbusd_small(i32x16::zero(), ones, as_i32(pair.first)).store(sums);
    dpbusd_small(i32x16::zero(), ones, as_i32(pair.second)).store(sums + 16);
    as_i32(pair.first).store(reinterpret_cast<std::int32_t*>(out.codes + begin));
    if (steps_left > 1) as_i32(pair.second).store(reinterpret_cast<std::int32_t*>(out.codes + begin + 64));
    for (std::int64_t b = 0; b < (steps_left > 1 ? 8 : 4); ++b)
      out.corrections[begin / 16 + b] = -weight_offset * (sums[4 * b] + sums[4 * b + 1] + sums[4 * b + 2] + sums[4 * b + 3]);
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

/// acc += the product of one block of a row of A, and of a block of 16 weight rows, decoded.
DODONA_INLINE f32x16 add_block(f32x16 acc, const Rows& a, std::int64_t row, std::int64_t block, const i32x16 (&weights)[4], f32x16 scales) {
  const std::int8_t* codes = a.codes + row * a.code_stride + block * ops::fp4_block;
  const i32x16 four[4] = {splat_bytes(codes), splat_bytes(codes + 4), splat_bytes(codes + 8), splat_bytes(codes + 12)};
  const i32x16 dot = dot16_small(i32x16::splat(a.corrections[row * a.block_stride + block]), weights, four);
  return fma(to_f32(dot), scales * f32x16::splat(a.scales[row * a.block_stride + block]), acc);
}

DODONA_INLINE void decode_block(const std::uint8_t* packed, int block, i32x16 table, i32x16 (&weights)[4]) {
  const i32x16 first = load_bytes(packed + 128 * block), second = load_bytes(packed + 128 * block + 64);
  weights[0] = low_nibbles(table, first);
  weights[1] = high_nibbles(table, first);
  weights[2] = low_nibbles(table, second);
  weights[3] = high_nibbles(table, second);
}

/// Few rows of A: acc[rows][16] += A times a panel, decoded on the way.
template <int rows>
void multiply_packed(const std::uint8_t* packed, std::int64_t steps, const Rows a, float* acc, std::int64_t acc_stride) {
  const i32x16 table = load_bytes(offset_table.bytes);
  f32x16 c[rows];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) c[r] = f32x16::load(acc + r * acc_stride);
  for (std::int64_t s = 0; s < steps; ++s, packed += step_bytes) {
    // A fetch beyond the end does nothing, or fetches the panel that comes next.
#pragma GCC unroll 9
    for (int line = 0; line < 9; ++line) __builtin_prefetch(packed + 4096 + 64 * line);
#pragma GCC unroll 4
    for (int block = 0; block < blocks_of_step; ++block) {
      i32x16 weights[4];
      decode_block(packed, block, table, weights);
      const f32x16 scales = load_e4m3(packed + 512 + 16 * block);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) c[r] = add_block(c[r], a, r, s * blocks_of_step + block, weights, scales);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) c[r].store(acc + r * acc_stride);
}

/// Part of a panel, decoded: for each block 4 x 64 bytes of weights plus 12, and sixteen scales.
struct Decoded {
  alignas(64) std::uint8_t weights[tile_panels][chunk_blocks * 256];
  alignas(64) float scales[tile_panels][chunk_blocks * 16];
};

void decode(const std::uint8_t* packed, std::int64_t steps, std::uint8_t* weights, float* scales) {
  const i32x16 table = load_bytes(offset_table.bytes);
  for (std::int64_t s = 0; s < steps; ++s, packed += step_bytes) {
#pragma GCC unroll 9
    for (int line = 0; line < 9; ++line) __builtin_prefetch(packed + chunk_steps * step_bytes + 64 * line);
#pragma GCC unroll 4
    for (int block = 0; block < blocks_of_step; ++block) {
      i32x16 w[4];
      decode_block(packed, block, table, w);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) w[i].store(reinterpret_cast<std::int32_t*>(weights + 64 * i));
      load_e4m3(packed + 512 + 16 * block).store(scales);
      weights += 256;
      scales += 16;
    }
  }
}

/// acc[rows][16 * panels] += A times decoded panels, all of acc in registers.
template <int rows, int panels>
void multiply_decoded(const Decoded& b, int first, std::int64_t blocks, const Rows a, float* acc, std::int64_t acc_stride) {
  f32x16 c[rows][panels];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int p = 0; p < panels; ++p) c[r][p] = f32x16::load(acc + r * acc_stride + 16 * p);
  for (std::int64_t block = 0; block < blocks; ++block) {
    i32x16 weights[panels][4];
    f32x16 scales[panels];
#pragma GCC unroll 2
    for (int p = 0; p < panels; ++p) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) weights[p][i] = load_bytes(b.weights[first + p] + 256 * block + 64 * i);
      scales[p] = f32x16::load(b.scales[first + p] + 16 * block);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (int p = 0; p < panels; ++p) c[r][p] = add_block(c[r][p], a, r, block, weights[p], scales[p]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int p = 0; p < panels; ++p) c[r][p].store(acc + r * acc_stride + 16 * p);
}

// Rows of A, and panels, that are multiplied at a time.
#if DODONA_TIER_v4 || DODONA_TIER_v4_vnni
constexpr int together_rows = 4, together_panels = 2;  // 8 sums, 8 weights, 2 scales of 32 registers
#else
constexpr int together_rows = 2, together_panels = 1;
#endif

template <int rows>
DODONA_INLINE void multiply_rows(const Decoded& b, std::int64_t panels, std::int64_t blocks, const Rows& a, float* acc) {
  constexpr std::int64_t stride = tile_panels * 16;
  if (together_panels == 2 && panels == 2) {
    multiply_decoded<rows, together_panels>(b, 0, blocks, a, acc, stride);
  } else {
    for (int p = 0; p < panels; ++p) multiply_decoded<rows, 1>(b, p, blocks, a, acc + 16 * p, stride);
  }
}

void multiply_chunk(const Decoded& b, std::int64_t panels, std::int64_t blocks, Rows a, std::int64_t rows, float* acc) {
  std::int64_t r = 0;
  for (; rows - r >= together_rows; r += together_rows)
    multiply_rows<together_rows>(b, panels, blocks, a.from(r, 0), acc + r * tile_panels * 16);
  for (; r < rows; ++r) multiply_rows<1>(b, panels, blocks, a.from(r, 0), acc + r * tile_panels * 16);
}

/// At most this many rows are multiplied as the weights are decoded, without storing what is decoded.
constexpr std::int64_t few_rows = 4;

DODONA_INLINE void multiply_few(const std::uint8_t* packed, std::int64_t steps, const Rows& a, std::int64_t rows, float* acc) {
  constexpr std::int64_t stride = tile_panels * 16;
  switch (rows) {
    case 1: return multiply_packed<1>(packed, steps, a, acc, stride);
    case 2: return multiply_packed<2>(packed, steps, a, acc, stride);
    case 3: return multiply_packed<3>(packed, steps, a, acc, stride);
    default: return multiply_packed<4>(packed, steps, a, acc, stride);
  }
}

void store_tile(const Fp4Tile& tile, const float* acc) {
  const f32x16 alpha = f32x16::splat(tile.alpha), quarter = f32x16::splat(0.25f);
  for (std::int64_t r = 0; r < tile.rows; ++r)
    for (std::int64_t p = 0; p < tile.panels; ++p) {
      const f32x16 value = f32x16::load(acc + (r * tile_panels + p) * 16) * quarter * alpha;
      const std::int64_t at = r * tile.out_stride + 16 * p;
      switch (tile.out_type) {
        case DType::bf16: store_bf16(value, static_cast<std::uint16_t*>(tile.out) + at); break;
        case DType::f16: store_f16(value, static_cast<std::uint16_t*>(tile.out) + at); break;
        default: canonical_nan(value).store(static_cast<float*>(tile.out) + at); break;
      }
    }
}

void multiply_tile(const Fp4Tile& tile) {
  const Fp4Weights& w = tile.weights;
  const std::int64_t steps = ops::fp4_steps(w.k);
  const Rows a{tile.a.codes, tile.a.corrections, tile.a.scales, steps * step, steps * blocks_of_step};
  alignas(64) float acc[ops::fp4_tile_rows * tile_panels * 16];
  for (std::int64_t i = 0; i < tile.rows * tile_panels; ++i) f32x16::zero().store(acc + 16 * i);
  const auto packed_panel = [&](std::int64_t p) { return w.packed + (tile.first_panel + p) * ops::fp4_panel_bytes(w.k); };
  if (w.packed != nullptr && tile.rows <= few_rows) {
    for (std::int64_t p = 0; p < tile.panels; ++p) multiply_few(packed_panel(p), steps, a, tile.rows, acc + 16 * p);
    return store_tile(tile, acc);
  }
  Decoded decoded;
  alignas(64) std::uint8_t chunk[chunk_steps * step_bytes];
  for (std::int64_t s = 0; s < steps; s += chunk_steps) {
    const std::int64_t count = steps - s < chunk_steps ? steps - s : chunk_steps;
    for (std::int64_t p = 0; p < tile.panels; ++p) {
      const std::uint8_t* packed = chunk;
      if (w.packed != nullptr) {
        packed = packed_panel(p) + s * step_bytes;
      } else {
        pack_steps(w, tile.first_panel + p, s, s + count, chunk);
      }
      if (tile.rows <= few_rows) {
        multiply_few(packed, count, a.from(0, s), tile.rows, acc + 16 * p);
      } else {
        decode(packed, count, decoded.weights[p], decoded.scales[p]);
      }
    }
    if (tile.rows > few_rows) multiply_chunk(decoded, tile.panels, count * blocks_of_step, a.from(0, s), tile.rows, acc);
  }
  store_tile(tile, acc);
}

}  // namespace
}  // namespace dodona::DODONA_TIER

namespace dodona::ops {

template <class Tier>
void Fp4TileKernel::run(const Fp4Tile& tile) {
  DODONA_TIER::multiply_tile(tile);
}
template void Fp4TileKernel::run<tier::DODONA_TIER>(const Fp4Tile&);

template <class Tier>
void Fp4PackKernel::run(const Fp4Weights& weights, std::int64_t panel, std::uint8_t* out) {
  DODONA_TIER::pack_steps(weights, panel, 0, fp4_steps(weights.k), out);
}
template void Fp4PackKernel::run<tier::DODONA_TIER>(const Fp4Weights&, std::int64_t, std::uint8_t*);

template <class Tier>
void Fp4ActivationKernel::run(const std::uint8_t* codes, std::int64_t k, const Fp4Rows& out) {
  DODONA_TIER::prepare_row(codes, k, out);
}
template void Fp4ActivationKernel::run<tier::DODONA_TIER>(const std::uint8_t*, std::int64_t, const Fp4Rows&);

}  // namespace dodona::ops
