// Products of matrices in fast mode as sums of small integers: NVFP4 by NVFP4, MXFP4 by MXFP4, int8 by int8, int8 by int4, e4m3 by int4.
//
// Sums over sixteen k are exact integers. NVFP4: dot_j is the sum of the products of a block's doubled codes, integers of at most 12, so at
// most 2304, and s_j = A_scale_j * B_scale_j the product of two e4m3 scales, which is exact, as dot_j * s_j is. Each output adds up pairs
// of blocks, k ascending, from +0: acc = acc + fma(dot_j, s_j, dot_i * s_i), i even and j = i + 1. (A pair is 32 k:
// a pair sum rounds at the same places as long as its chains are exact, and then matrix tiles add pairs.) MXFP4: blocks of thirty-two, one
// by one: acc = fma(dot_j, A_scale_j * B_scale_j, acc), which a pair sum is too. int8, int4: the sum over all of K is one integer, exact
// below 2^31, which becomes an fp32 at the end. e4m3 by int4: for every 128 k a chain from +0, k ascending, chain = fma(a[k], b[k], chain),
// and after each acc = fma(chain, B_scale, acc), acc from +0; a chain is a sum of integers wherever the row's numbers show that it is exact
// (panel_digits_lanes.h). Then the epilogue. So an output's bits depend on nothing but its row and its column.
//
// Weights are worked on in panels of 16 columns, one to a lane, and steps of 64 k. What a step of a panel holds is its format's business
// (unpack/nvfp4.h, unpack/int8.h, unpack/int4.h, unpack/qserve.h); K is padded to whole steps with zeros, which change no sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dodona/exec.h"
#include "ops/tiles/epilogue.h"
#include "simd/inline.h"
#include "simd/tier.h"

namespace dodona::ops {

/// Of both operands. A format of its own is a file in unpack/ and a line in panel_i8.simd.cpp.
enum class I8Format {
  nvfp4,  ///< e2m1 codes, two a byte, even k in the low nibble, with e4m3 scales of blocks of 16 in tiles of 128 x 4; both
  mxfp4,  ///< the same with ue8m0 scales of blocks of 32, from 2^-50 to 2^50
  i8,     ///< signed bytes; both
  i4,     ///< rows: signed bytes; weights: signed nibbles, two a byte, even k in the low nibble
  /// rows: signed bytes; weights: unsigned nibbles in QServe's tiles of 32 x 32, n and k multiples of 64
  qserve,
  /// the same, each weight (nibble * scale + zero) mod 256 as a signed byte, with scales of at most 17 and zeros for every 128 k
  qserve_groups,
  /// rows: e4m3; weights: as i4, with bf16 scales for every 128 k, where W4A8 has them (quant/int4.h); k a multiple of 128
  e4m3_i4,
};
inline constexpr int i8_formats = 7;

inline constexpr std::int64_t i8_block = 16, i8_step = 64, i8_panel_columns = 16;
/// Panels that are multiplied together, and the most rows of A in one tile.
inline constexpr std::int64_t i8_tile_panels = 2, i8_tile_rows = 256;
/// The most panels of a tile.
inline constexpr std::int64_t i8_most_panels = 16;
/// Floats of the sums of a tile's rows with such panels.
inline constexpr std::int64_t i8_sums_stride = i8_tile_panels * i8_panel_columns;

inline std::int64_t i8_steps(std::int64_t k) {
  return (k + i8_step - 1) / i8_step;
}
/// Steps that are decoded at a time: what is decoded of the panels of a tile stays in a first-level cache.
inline constexpr std::int64_t i8_chunk_steps = 8, i8_chunk = i8_chunk_steps * i8_step, i8_chunk_blocks = i8_chunk / i8_block;
/// One at least: that of no K has a row's correction.
inline std::int64_t i8_chunks(std::int64_t k) {
  return k <= i8_chunk ? 1 : (k + i8_chunk - 1) / i8_chunk;
}
/// Bytes of a step of a packed panel: codes of sixteen columns, for FP4 the scales of its blocks, for QServe's groups scale and zero, for
/// e4m3 by int4 half of the scales of its block, which lie behind all codes.
inline std::int64_t i8_step_bytes(I8Format format) {
  constexpr std::int64_t bytes[i8_formats] = {576, 576, 1024, 512, 512, 576, 528};
  return bytes[static_cast<int>(format)];
}
inline std::int64_t i8_panel_bytes(I8Format format, std::int64_t k) {
  return i8_steps(k) * i8_step_bytes(format);
}
inline std::int64_t i8_panels(std::int64_t n) {
  return (n + i8_panel_columns - 1) / i8_panel_columns;
}
/// Bytes of packed weights [n, k].
inline std::int64_t i8_packed_bytes(I8Format format, std::int64_t n, std::int64_t k) {
  return i8_panels(n) * i8_panel_bytes(format, k);
}

/// Weights [n, k], packed or raw. k is a multiple of 8; FP4: n and k of 32. Columns that the last panel lacks repeat its last one.
struct I8Weights {
  const std::uint8_t* packed = nullptr;  ///< panels, one after another; nullptr: read those below
  const std::uint8_t* codes = nullptr;   ///< [n, k], or [n, k/2] nibbles
  /// FP4: [align(n,128), align(k/block,4)] in tiles of 128 x 4; qserve_groups: [k/128, n]; e4m3_i4: bf16, [k/512, n, 4] or [k/128, n]
  const std::uint8_t* scales = nullptr;
  std::int64_t n = 0, k = 0;
  const std::uint8_t* zeros = nullptr;  ///< qserve_groups: [k/128, n], like its scales in QServe's order
};

/// Rows of A that are multiplied with one weight.
struct I8Group {
  std::int64_t row, rows;  ///< of A and of the output
  std::int64_t scale_row;  ///< FP4: where the group begins in the matrix of A's scales, a multiple of 128
  I8Weights weights;
  TileEpilogue epilogue;  ///< its rows are those of the whole output
};

/// Products of groups of rows, each with its own weights, all of one n and k. Rows of no group are not touched.
struct I8Product {
  I8Format format = I8Format::i8;
  std::span<const I8Group> groups;
  std::int64_t rows = 0, k = 0;          ///< of A
  const std::uint8_t* codes = nullptr;   ///< [rows, k], or [rows, k/2] nibbles
  const std::uint8_t* scales = nullptr;  ///< FP4: tiles of 128 x 4
  std::int64_t scale_columns = 0;        ///< of that matrix
};
void i8_multiply(const I8Product& product, const Exec& exec);

/// Whether both operands are FP4 with scales of blocks, and of how many elements.
inline bool is_fp4(I8Format format) {
  return format == I8Format::nvfp4 || format == I8Format::mxfp4;
}
inline std::int64_t i8_scale_block(I8Format format) {
  return format == I8Format::mxfp4 ? 32 : 16;
}

/// Packs raw weights to i8_packed_bytes bytes.
void i8_pack(I8Format format, const I8Weights& raw, std::byte* out, const Exec& exec);

// ---- tiles

/// Rows of A made ready: signed bytes in the order in which weights are decoded; what the weights' offset adds to each block's sum,
/// negated; for FP4 scales, of MXFP4 once for every sixteen. Where sums are whole to the end, a row's first correction is that of all of K,
/// and there are no others. All rows of a chunk of K lie together: what a chunk of weights is multiplied with is one stream, however long K
/// is. Rows are padded to whole chunks.
struct I8Rows {
  std::int8_t* codes;         ///< row stride i8_row_bytes
  std::int32_t* corrections;  ///< row stride i8_chunk_blocks
  float* scales;              ///< likewise
  std::int64_t chunk_rows;    ///< rows from a chunk to the next
  std::int64_t row_bytes;
  std::int8_t* rare = nullptr;  ///< row stride rare_bytes
  std::int64_t rare_bytes = 0;

  DODONA_INLINE I8Rows at(std::int64_t row, std::int64_t chunk) const {
    const std::int64_t to = chunk * chunk_rows + row;
    return {codes + to * row_bytes,
            corrections + to * i8_chunk_blocks,
            scales + to * i8_chunk_blocks,
            chunk_rows,
            row_bytes,
            rare + to * rare_bytes,
            rare_bytes};
  }
};
/// Bytes of a row's chunk: of e4m3 two digits of each number (panel_digits_lanes.h). And what is read of few rows alone: a third digit, or
/// numbers in fp32.
inline std::int64_t i8_row_bytes(I8Format format) {
  return format == I8Format::e4m3_i4 ? 2 * i8_chunk : i8_chunk;
}
inline std::int64_t i8_rare_bytes(I8Format format) {
  return format == I8Format::e4m3_i4 ? 4 * i8_chunk : 0;
}

/// Rows [.., rows] of A times `panels` panels of B, pair after pair; of many rows, chunk of K after chunk all of its pairs.
struct I8Tile {
  I8Format format;
  const I8Weights* weights;
  std::int64_t first_panel, panels;
  I8Rows a;
  float* sums;             ///< of each pair [rows][i8_sums_stride], 64-byte aligned
  std::int64_t row, rows;  ///< first row in the output; at most i8_tile_rows
  const TileEpilogue* epilogue;
};

struct I8TileKernel {
  template <class Tier>
  static void run(const I8Tile& tile);
};

/// Packs one panel of raw weights to i8_panel_bytes bytes.
struct I8PackKernel {
  template <class Tier>
  static void run(I8Format format, const I8Weights& weights, std::int64_t panel, std::uint8_t* out);
};

/// Codes and corrections of one row of A; `scales` are not touched.
struct I8RowKernel {
  template <class Tier>
  static void run(I8Format format, const std::uint8_t* codes, std::int64_t k, const I8Rows& out);
};

}  // namespace dodona::ops
