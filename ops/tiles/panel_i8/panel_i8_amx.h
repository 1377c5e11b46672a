// Products of panel_i8.h by a matrix unit: sixteen rows of A and sixteen columns of weights in one instruction. The same sums, and the same
// bits: they are exact, whole or, of FP4, those of thirty-two k. Its codes times their scales have few digits and are bf16. The unit rounds
// such a sum and adds it to those before as the contract has it, if its chains are exact. Those of MXFP4 are; those of NVFP4, a pair of
// blocks, as long as their scales are not far apart, and else vectors add what the unit makes of each pair alone.
//
// A matrix unit reads rows in lines that lie close together: rows far apart, but a multiple of some hundred bytes, would compete for the
// same few places of a first-level cache. So rows are packed in sixteens, step by step. Decoded weights are as vectors read them: four k of
// a column side by side, sixteen columns to a line, which is what the unit's right operand is.
//
// The unit is a parameter, so that tests run all of this with a model of its instructions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/tiles/panel_i8/panel_i8.h"

namespace dodona::ops {

/// The most panels that are multiplied together: so many times are rows, which come from a second-level cache or from beyond, used for
/// once.
inline constexpr std::int64_t i8_amx_panels = 16, i8_amx_columns = i8_amx_panels * i8_panel_columns;
/// Of FP4, whose sums stay in tiles for all of K: the most panels that are multiplied together, the most rows, and pairs of blocks of
/// which it is known together whether their sums are exact.
inline constexpr std::int64_t i8_amx_scaled_panels = 4, i8_amx_scaled_rows = 64, i8_amx_scaled_pairs = 4;
/// The most rows whose sums wait for the next chunk of K together: weights are decoded once for all of them.
inline constexpr std::int64_t i8_amx_rows = 256;
/// Rows of A that are packed together.
inline constexpr std::int64_t i8_amx_together = 16;
/// Their bytes of a step, and those of a panel's decoded weights: a byte for each k, for FP4 a bf16.
inline std::int64_t i8_amx_step_bytes(I8Format format) {
  return i8_amx_together * i8_step * (is_fp4(format) ? 2 : 1);
}
/// Bytes of a chunk of K, which is decoded at a time: of sixteen rows, and of a panel. What a tile decodes stays in a first-level cache.
inline constexpr std::int64_t i8_amx_chunk = 8192;

/// Rows of one group made ready, padded with zeros to sixteens and to whole chunks. All rows of a chunk lie together: what decoded weights
/// are multiplied with is one stream, however long K is.
struct I8AmxRows {
  std::uint8_t* codes;  ///< [chunks][rows/16][i8_amx_chunk]: [steps][16][64] bytes, FP4 [2 * steps][16][32] bf16, in the order of weights
  std::int32_t* corrections;  ///< [rows]: what the weights' offset adds to a whole sum, negated
  /// FP4, for every i8_amx_scaled_pairs, [rows]: how many powers of two the scales of two blocks of a pair are apart, at most. And that
  /// of all rows.
  std::uint8_t *apart, *most_apart;
  std::int64_t sixteens;

  static DODONA_INLINE std::int64_t padded(std::int64_t rows) { return (rows + i8_amx_together - 1) / i8_amx_together * i8_amx_together; }
  static std::int64_t code_bytes(I8Format format, std::int64_t rows, std::int64_t k) {
    const std::int64_t chunks = (i8_steps(k) * i8_amx_step_bytes(format) + i8_amx_chunk - 1) / i8_amx_chunk;
    return chunks * padded(rows) / i8_amx_together * i8_amx_chunk;
  }
  static std::int64_t together(I8Format format, std::int64_t k) {
    return is_fp4(format) ? (k + 32 * i8_amx_scaled_pairs - 1) / (32 * i8_amx_scaled_pairs) : 0;
  }
  static std::size_t bytes(I8Format format, std::int64_t rows, std::int64_t k) {
    const std::int64_t all = code_bytes(format, rows, k) + padded(rows) * 4 + together(format, k) * (padded(rows) + 1);
    return static_cast<std::size_t>((all + 63) / 64 * 64);
  }
  static I8AmxRows in(std::byte* memory, I8Format format, std::int64_t rows, std::int64_t k) {
    std::byte *const corrections = memory + code_bytes(format, rows, k), *const apart = corrections + padded(rows) * 4;
    return {reinterpret_cast<std::uint8_t*>(memory), reinterpret_cast<std::int32_t*>(corrections), reinterpret_cast<std::uint8_t*>(apart),
            reinterpret_cast<std::uint8_t*>(apart + together(format, k) * padded(rows)), padded(rows) / i8_amx_together};
  }
  /// Where sixteen rows are, `offset` bytes into K.
  DODONA_INLINE std::uint8_t* at(std::int64_t sixteen, std::int64_t offset) const {
    return codes + (offset / i8_amx_chunk * sixteens + sixteen) * i8_amx_chunk + offset % i8_amx_chunk;
  }
};

/// At most i8_amx_rows rows of one group, and all of its weights.
struct I8AmxJob {
  I8Format format;
  const I8Weights* weights;
  I8AmxRows a;
  std::int64_t row, rows;  ///< first row in the output
  const TileEpilogue* epilogue;
  std::int64_t panels;  ///< of a piece, at most i8_amx_panels
};

/// Memory of a worker.
struct alignas(64) I8AmxScratch {
  float sums[i8_amx_rows * i8_amx_columns];           ///< bits of whole numbers where sums are whole
  std::uint8_t weights[i8_amx_panels][i8_amx_chunk];  ///< decoded
  std::uint8_t packed[2 * i8_amx_chunk];              ///< of raw weights: panels that are packed together
  float dots[i8_amx_together * i8_panel_columns];     ///< a pair of blocks on its way from the unit to vectors
};

/// A row's codes and scales, four scales every 512 bytes (FP4); a row of padding has neither.
struct I8AmxRow {
  const std::uint8_t *codes, *scales;
};

/// A matrix unit.
struct I8MatrixUnit {
  /// Row `row` of a job.
  void (*prepare)(const I8AmxJob& job, const I8AmxRow& from, std::int64_t row);
  /// Pieces [first, last) of a job.
  void (*multiply)(const I8AmxJob& job, std::int64_t first, std::int64_t last, I8AmxScratch& scratch);
  /// Groups of fewer rows than `least`, or `least_raw` where weights are not packed, are left to vectors, which do not wait for sixteen; of
  /// more than `most`, i8_amx_rows at most, a job's would not fit beside the weights in a second-level cache.
  struct Rows {
    std::int64_t least, least_raw, most;
  };
  Rows whole, nvfp4, mxfp4;
  const Rows& rows_of(I8Format format) const { return format == I8Format::nvfp4 ? nvfp4 : format == I8Format::mxfp4 ? mxfp4 : whole; }
  bool takes(I8Format format, const I8Group& group) const {
    if (format == I8Format::e4m3_i4) return false;
    const Rows& limits = rows_of(format);
    return group.rows >= (group.weights.packed != nullptr ? limits.least : limits.least_raw);
  }
};
/// What kernels of a tier use, or nullptr.
const I8MatrixUnit* i8_matrix_unit(Isa isa);

/// i8_multiply of groups whose rows are many enough for the unit.
void i8_multiply_by(const I8MatrixUnit& unit, const I8Product& product, const Exec& exec);

/// The CPU's, for i8_matrix_unit: nothing on tiers that have none.
struct I8AmxKernel {
  template <class Tier>
  static I8MatrixUnit run();
};

}  // namespace dodona::ops
