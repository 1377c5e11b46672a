// Products of e4m3 rows with int4 columns that have a scale for every 128 k, see panel_i8.h: sums of integers wherever a block's chain is
// exact, and that chain elsewhere. Included by *.simd.cpp only.
//
// Of a row's block the numbers are whole multiples of a power of two, their unit. No code is beyond 8: where 8 times the sum of their
// magnitudes is at most 2^24 units, no partial sum of the chain is ever rounded, and any order gives its bits. Multiples are written as two
// or three signed bytes, digits to the base 256, and each digit is a row of its own for products of bytes. A block with a NaN has the
// digits of zeros and a unit of NaN, which makes the same of it.
//
// A row's block has 256 bytes of codes, for each of two digits the bytes of even k, then those of odd k, and 512 elsewhere: the third
// digit, or 128 floats where the chain is to be taken. In the places of the block's first sixteen k its unit stands among the scales, what
// the weights' offset adds to the sum, negated, among the corrections, and behind that the number of digits, 0 for floats.
#pragma once

#include "ops/tiles/panel_i8/panel_i8_lanes.h"

namespace dodona::DODONA_TIER {

inline constexpr std::int64_t digits_k = 128, digits_sixteens = digits_k / ops::i8_block, digits_of_chunk = ops::i8_chunk / digits_k;
/// Of a row's block, and of a row's chunk.
inline constexpr std::int64_t digits_bytes = 2 * digits_k, digits_row_bytes = digits_of_chunk * digits_bytes;
inline constexpr std::int64_t digits_rare_bytes = 4 * digits_k, digits_rare_row_bytes = digits_of_chunk * digits_rare_bytes;
/// Of a packed panel: codes of a block, sixteen vectors as in nibbles.h but plus 8, and its scales.
inline constexpr std::int64_t digits_code_bytes = 1024, digits_scale_bytes = 32;
inline constexpr int digits_offset = 8;

// ---- rows of A

/// A byte of every lane, the lowest, and what is left above it.
struct Digit {
  i32x16 low, rest;
};
DODONA_INLINE Digit digit(i32x16 x) {
  const i32x16 low = sra<24>(shl<24>(x));
  return {low, sra<8>(x - low)};
}

/// Whole numbers of a block, sixteen even k and sixteen odd ones at a time, as bytes of digits.
DODONA_INLINE void store_digits(const i32x16 (&numbers)[8], bool three, std::int8_t* to, std::int8_t* third) {
  DODONA_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    const f32x16_pair pair = deinterleave(as_f32(numbers[2 * i]), as_f32(numbers[2 * i + 1]));
    const auto store = [&](i32x16 x, int at) {
      const Digit first = digit(x), second = digit(first.rest);
      store_low_8(first.low, to + at);
      store_low_8(second.low, to + digits_k + at);
      if (three) store_low_8(second.rest, third + at);
    };
    store(as_i32(pair.first), 16 * i);
    store(as_i32(pair.second), 64 + 16 * i);
  }
}

inline void prepare_digits_block(const std::uint8_t* codes, std::int8_t* to, std::int8_t* rare, std::int32_t* corrections, float* unit) {
  // Units of 2^-9, the smallest number.
  constexpr float finest = 512.0f;
  f32x16 x[8];
  mask16 nans = mask16::first(0);
  DODONA_UNROLL(8)
  for (int i = 0; i < 8; ++i) {
    x[i] = load_e4m3(codes + 16 * i);
    nans = nans | is_nan(x[i]);
  }
  const bool no_number = any(nans);
  i32x16 bits = i32x16::zero(), sums = i32x16::zero(), largest = i32x16::zero(), numbers[8];
  DODONA_UNROLL(8)
  for (int i = 0; i < 8; ++i) {
    if (no_number) x[i] = f32x16::zero();
    const i32x16 magnitude = to_i32(abs(x[i]) * f32x16::splat(finest));
    bits = bits | magnitude;
    sums = sums + magnitude;
    largest = max(largest, magnitude);
  }
  std::int32_t lanes_of_bits[16], lanes_of_sums[16], lanes_of_largest[16], all_bits = 0, most = 0;
  std::int64_t sum = 0;
  bits.store(lanes_of_bits);
  sums.store(lanes_of_sums);
  largest.store(lanes_of_largest);
  for (int i = 0; i < 16; ++i) {
    all_bits |= lanes_of_bits[i];
    sum += lanes_of_sums[i];
    most = lanes_of_largest[i] > most ? lanes_of_largest[i] : most;
  }
  const std::int32_t lowest = all_bits == 0 ? 1 : all_bits & -all_bits;
  if (digits_offset * sum > (std::int64_t{1} << 24) * lowest) {
    for (int i = 0; i < 8; ++i) x[i].store(reinterpret_cast<float*>(rare) + 16 * i);
    *unit = 0;
    corrections[0] = corrections[1] = 0;
    return;
  }
  *unit = no_number ? __builtin_nanf("") : static_cast<float>(lowest) / finest;
  const f32x16 factor = f32x16::splat(finest / static_cast<float>(lowest));
  i32x16 total = i32x16::zero();
  DODONA_UNROLL(8)
  for (int i = 0; i < 8; ++i) {
    numbers[i] = to_i32(x[i] * factor);
    total = total + numbers[i];
  }
  // The most that two digits hold is 127 * 257.
  const bool three = most / lowest > 127 * 257;
  store_digits(numbers, three, to, rare);
  std::int32_t of_lanes[16], all = 0;
  total.store(of_lanes);
  for (const std::int32_t lane : of_lanes) all += lane;
  corrections[0] = -digits_offset * all;
  corrections[1] = three ? 3 : 2;
}

inline void prepare_digits(const std::uint8_t* codes, std::int64_t k, const ops::I8Rows& out) {
  for (std::int64_t b = 0; b < k / digits_k; ++b) {
    const ops::I8Rows to = out.at(0, b / digits_of_chunk);
    const std::int64_t at = b % digits_of_chunk;
    prepare_digits_block(codes + b * digits_k, to.codes + at * digits_bytes, to.rare + at * digits_rare_bytes,
                         to.corrections + at * digits_sixteens, to.scales + at * digits_sixteens);
  }
}

// ---- weights

/// Blocks [begin, end) of a panel of raw weights.
inline void pack_blocks(const ops::I8Weights& w, std::int64_t panel, std::int64_t begin, std::int64_t end, std::uint8_t* codes,
                        std::uint8_t* scales) {
  pack_nibbles_of<digits_code_bytes / 2, 0x88888888>(w, panel, 2 * begin, 2 * end, true, codes, [](std::int64_t, std::uint8_t*) {});
  const std::int64_t groups = w.k / digits_k, together = groups % 4 == 0 ? 4 : 1, first = panel * ops::i8_panel_columns;
  for (std::int64_t b = begin; b < end; ++b)
    for (std::int64_t j = 0; j < ops::i8_panel_columns; ++j, scales += 2) {
      const std::int64_t column = first + j < w.n ? first + j : w.n - 1;
      __builtin_memcpy(scales, w.scales + 2 * ((b / together * w.n + column) * together + b % together), 2);
    }
}

/// Blocks of a panel, packed.
struct DigitsWeights {
  const std::uint8_t *codes, *scales;
};

// ---- multiplying

/// At most so many rows at a time, and panels, where rows have two digits: sixteen of 32 registers are sums, and eight are weights.
inline constexpr int digits_rows = many_sums_fit ? 4 : 2, digits_panels = many_sums_fit ? 2 : 1;

/// sums[rows][16 * panels] += a block of rows times some panels, of those rows that have digits. What lies `ahead` is fetched.
template <int rows, int digits, int panels>
void add_digits(const DigitsWeights* w, const ops::I8Rows& a, std::int64_t block, std::int64_t ahead, float* sums) {
  // Sums enough that none waits for itself.
  constexpr int many = rows * digits * panels, apart = many >= 8 || !many_sums_fit ? 1 : many >= 4 ? 2 : 4;
  const std::int8_t *const row = a.codes + block * digits_bytes, *const rare = a.rare + block * digits_rare_bytes;
  i32x16 c[apart][panels][rows][digits];
  DODONA_UNROLL(4)
  for (int s = 0; s < apart; ++s) {
    DODONA_UNROLL(2)
    for (int p = 0; p < panels; ++p) {
      DODONA_UNROLL(4)
      for (int r = 0; r < rows; ++r) {
        DODONA_UNROLL(3)
        for (int d = 0; d < digits; ++d) c[s][p][r][d] = i32x16::zero();
      }
    }
  }
  for (int begin = 0; begin < 16; begin += 2 * apart) {
    DODONA_UNROLL(4)
    for (int s = 0; s < apart; ++s) {
      const int v = begin + 2 * s;
      i32x16 weights[panels][4];
      DODONA_UNROLL(2)
      for (int p = 0; p < panels; ++p) {
        const std::uint8_t* const codes = w[p].codes + block * digits_code_bytes + 64 * v;
        const i32x16 first = load_bytes(codes), second = load_bytes(codes + 64);
        __builtin_prefetch(codes + ahead);
        __builtin_prefetch(codes + 64 + ahead);
        weights[p][0] = low_codes(first);
        weights[p][1] = high_codes(first);
        weights[p][2] = low_codes(second);
        weights[p][3] = high_codes(second);
      }
      DODONA_UNROLL(4)
      for (int r = 0; r < rows; ++r) {
        DODONA_UNROLL(3)
        for (int d = 0; d < digits; ++d) {
          const std::int8_t* const at = (d < 2 ? row + r * digits_row_bytes + d * digits_k : rare + r * digits_rare_row_bytes) + 4 * v;
          const i32x16 four[4] = {splat_bytes(at), splat_bytes(at + 64), splat_bytes(at + 4), splat_bytes(at + 68)};
          DODONA_UNROLL(2)
          for (int p = 0; p < panels; ++p) c[s][p][r][d] = dot16_small(c[s][p][r][d], weights[p], four);  // 8 * 15 * 128: 16 bits
        }
      }
    }
  }
  DODONA_UNROLL(2)
  for (int p = 0; p < panels; ++p) {
    const f32x16 scale = load_bf16(w[p].scales + block * digits_scale_bytes);
    DODONA_UNROLL(4)
    for (int r = 0; r < rows; ++r) {
      i32x16 of_digits[digits];
      DODONA_UNROLL(3)
      for (int d = 0; d < digits; ++d) {
        of_digits[d] = c[0][p][r][d];
        DODONA_UNROLL(4)
        for (int s = 1; s < apart; ++s) of_digits[d] = of_digits[d] + c[s][p][r][d];
      }
      const std::int64_t at = r * ops::i8_chunk_blocks + block * digits_sixteens;
      i32x16 whole = of_digits[0] + shl<8>(of_digits[1]) + i32x16::splat(a.corrections[at]);
      // Rows of two digits have none, but memory of any content.
      if constexpr (digits == 3) whole = whole + (a.corrections[at + 1] == 3 ? shl<16>(of_digits[2]) : i32x16::zero());
      float* const to = sums + r * i8_sums_stride + 16 * p;
      const f32x16 before = f32x16::load(to), exact = to_f32(whole) * f32x16::splat(a.scales[at]);
      const bool has_digits = a.corrections[at + 1] != 0;
      select(has_digits ? mask16::first(16) : mask16::first(0), fma(exact, scale, before), before).store(to);
    }
  }
}

/// Sums of up to four rows that have floats += chains of a block times all panels.
template <int panels>
void add_chains(const DigitsWeights (&w)[ops::i8_tile_panels], const ops::I8Rows& a, const int (&which)[4], int count, std::int64_t block,
                float* sums) {
  constexpr int rows = 4;
  const auto row = [&](int i) {
    return reinterpret_cast<const float*>(a.rare + which[i < count ? i : 0] * digits_rare_row_bytes + block * digits_rare_bytes);
  };
  const float* const x[rows] = {row(0), row(1), row(2), row(3)};
  f32x16 c[rows][panels];
  DODONA_UNROLL(4)
  for (int r = 0; r < rows; ++r) {
    DODONA_UNROLL(2)
    for (int p = 0; p < panels; ++p) c[r][p] = f32x16::zero();
  }
  for (int v = 0; v < 16; ++v) {
    i32x16 codes[panels];
    DODONA_UNROLL(2)
    for (int p = 0; p < panels; ++p) codes[p] = load_bytes(w[p].codes + block * digits_code_bytes + 64 * v);
    DODONA_UNROLL(8)
    for (int i = 0; i < 8; ++i) {
      DODONA_UNROLL(2)
      for (int p = 0; p < panels; ++p) {
        // The mantissa of 2^23: codes plus 8.
        const f32x16 b = as_f32((codes[p] & i32x16::splat(15)) | i32x16::splat(0x4B000000)) - f32x16::splat(8388608.0f + digits_offset);
        codes[p] = shr<4>(codes[p]);
        DODONA_UNROLL(4)
        for (int r = 0; r < rows; ++r) c[r][p] = fma(f32x16::splat(x[r][8 * v + i]), b, c[r][p]);
      }
    }
  }
  DODONA_UNROLL(2)
  for (int p = 0; p < panels; ++p) {
    const f32x16 scale = load_bf16(w[p].scales + block * digits_scale_bytes);
    for (int r = 0; r < count; ++r) {
      float* const to = sums + which[r] * i8_sums_stride + 16 * p;
      fma(c[r][p], scale, f32x16::load(to)).store(to);
    }
  }
}

/// Some rows of one chunk, times its blocks of all panels of a tile.
struct DigitsTask {
  DigitsWeights weights[ops::i8_tile_panels];  ///< the chunk's
  std::int64_t panels, blocks, ahead;
};
template <int rows, int digits>
DODONA_INLINE void add_panels(const DigitsTask& task, const ops::I8Rows& a, std::int64_t block, float* sums) {
  if constexpr (digits == 2 && digits_panels == 2)
    if (task.panels == 2) return add_digits<rows, 2, 2>(task.weights, a, block, task.ahead, sums);
  for (std::int64_t p = 0; p < task.panels; ++p) add_digits<rows, digits, 1>(task.weights + p, a, block, task.ahead, sums + 16 * p);
}
template <int rows>
void add_block(const DigitsTask& task, const ops::I8Rows& a, std::int64_t block, float* sums) {
  int digits = 0, chains = 0, which[4] = {};
  for (int r = 0; r < rows; ++r) {
    const int own = a.corrections[r * ops::i8_chunk_blocks + block * digits_sixteens + 1];
    if (own == 0) which[chains++] = r;
    digits = own > digits ? own : digits;
  }
  if (digits == 2) add_panels<rows, 2>(task, a, block, sums);
  if (digits == 3) add_panels<rows, 3>(task, a, block, sums);
  if (chains == 0) return;
  task.panels == 2 ? add_chains<2>(task.weights, a, which, chains, block, sums)
                   : add_chains<1>(task.weights, a, which, chains, block, sums);
}
template <int rows>
void add_rows(const DigitsTask& task, const ops::I8Rows& a, float* sums) {
  for (std::int64_t block = 0; block < task.blocks; ++block) add_block<rows>(task, a, block, sums);
}
/// The rows that are left when `most` at a time are done: by halves. What follows is fetched with the first of them.
template <int most>
void add_all_rows(DigitsTask& task, const ops::I8Rows& a, std::int64_t rows, float* sums) {
  std::int64_t r = 0;
  for (; rows - r >= most; r += most, task.ahead = 0) add_rows<most>(task, a.at(r, 0), sums + r * i8_sums_stride);
  if constexpr (most > 1)
    if (r < rows) add_all_rows<most / 2>(task, a.at(r, 0), rows - r, sums + r * i8_sums_stride);
}

/// Raw weights of a chunk, packed when it is their turn.
struct DigitsPacked {
  alignas(64) std::uint8_t codes[ops::i8_tile_panels][digits_of_chunk * digits_code_bytes];
  alignas(64) std::uint8_t scales[ops::i8_tile_panels][digits_of_chunk * digits_scale_bytes];
};

/// add(task, rows) for every chunk, of all rows; then the epilogue.
template <class Add>
DODONA_INLINE void multiply_digits(const ops::I8Tile& tile, const Add& add) {
  constexpr std::int64_t far = 2048;  // of two streams
  const ops::I8Weights& w = *tile.weights;
  const std::int64_t blocks = w.k / digits_k, panel_bytes = ops::i8_panel_bytes(tile.format, w.k);
  float* const sums = tile.sums;
  DigitsPacked raw;
  for (std::int64_t i = 0; i < tile.rows * i8_sums_stride; i += 16) f32x16::zero().store(sums + i);
  for (std::int64_t begin = 0; begin < blocks; begin += digits_of_chunk) {
    const std::int64_t end = blocks - begin < digits_of_chunk ? blocks : begin + digits_of_chunk;
    DigitsTask task{.weights = {}, .panels = tile.panels, .blocks = end - begin, .ahead = w.packed != nullptr ? far : 0};
    for (std::int64_t p = 0; p < tile.panels; ++p) {
      if (w.packed != nullptr) {
        const std::uint8_t* const packed = w.packed + (tile.first_panel + p) * panel_bytes;
        task.weights[p] = {packed + begin * digits_code_bytes, packed + blocks * digits_code_bytes + begin * digits_scale_bytes};
      } else {
        pack_blocks(w, tile.first_panel + p, begin, end, raw.codes[p], raw.scales[p]);
        task.weights[p] = {raw.codes[p], raw.scales[p]};
      }
    }
    add(task, tile.a.at(0, begin / digits_of_chunk), sums);
  }
  store_tile<FloatSums>(tile);
}

inline void multiply_digits_tile(const ops::I8Tile& tile) {
  multiply_digits(tile, [&](DigitsTask& task, const ops::I8Rows& a, float* sums) { add_all_rows<digits_rows>(task, a, tile.rows, sums); });
}

}  // namespace dodona::DODONA_TIER
