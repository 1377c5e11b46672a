// Products of panel.h by a matrix unit, fp8 by fp8: both are bf16 exactly, and no sum of their products is denormal, so that the unit's
// pair sums are those of vectors, to the bit.
//
// Rows of A are widened to bf16 once, and packed by sixteens: a matrix unit reads lines that lie close together. Columns are widened a
// chunk of K at a time, into a cache: raw ones, of which memory has lines, to lines of the unit's left operand, so that sums come turned;
// packed ones to words of the right one.
//
// The unit is a parameter, so that tests run all of this with a model of its instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/tiles/panel/panel.h"
#include "simd/inline.h"

namespace dodona::ops {

/// Rows that are packed together, columns of a panel, and elements of K of a step and of a chunk.
inline constexpr std::int64_t panel_amx_together = 16, panel_amx_step = 32, panel_amx_chunk = 256;
/// Bytes of a chunk of sixteen rows, or of a panel.
inline constexpr std::int64_t panel_amx_chunk_bytes = panel_amx_together * panel_amx_chunk * 2;
/// The most rows, and panels, whose sums wait for the next chunk of K together.
inline constexpr std::int64_t panel_amx_rows = 256, panel_amx_panels = 16, panel_amx_columns = panel_amx_panels * panel_amx_together;

/// Rows of a job made ready, padded with zeros to sixteens and to whole chunks: all rows of a chunk lie together, so that they are one
/// stream, however long K is. And their scales, block by block.
struct PanelAmxRows {
  std::uint8_t* lines;  ///< [chunks][sixteens][panel_amx_chunk_bytes]
  float* scales;        ///< [blocks][16 * sixteens]
  std::int64_t sixteens;

  DODONA_INLINE std::uint8_t* at(std::int64_t sixteen, std::int64_t k) const {
    return lines + (k / panel_amx_chunk * sixteens + sixteen) * panel_amx_chunk_bytes + k % panel_amx_chunk * 2 * panel_amx_together;
  }
};

/// At most panel_amx_rows rows of a batch of a product.
struct PanelAmxJob {
  const PanelProduct* product;
  std::int64_t batch, row, rows;
  PanelAmxRows a;
  std::int64_t panels;  ///< of a piece, at most panel_amx_panels
  std::int64_t part;    ///< elements of K whose columns are widened together: a chunk of it, or half
};

/// Memory of a worker.
struct alignas(64) PanelAmxScratch {
  float sums[panel_amx_rows * panel_amx_columns];
  std::uint8_t weights[2][panel_amx_panels][panel_amx_chunk_bytes];  ///< a chunk of a piece, and the next one
  float scales[panel_amx_chunk / panel_amx_step][panel_amx_columns];
  float blocks[2 * panel_amx_together][4 * panel_amx_together];  ///< sums of a block of K on their way from the unit to vectors
};

/// A matrix unit.
struct PanelUnit {
  /// Sixteen rows of a job.
  void (*prepare)(const PanelAmxJob& job, std::int64_t sixteen);
  /// Pieces [first, last) of a job.
  void (*multiply)(const PanelAmxJob& job, std::int64_t first, std::int64_t last, PanelAmxScratch& scratch);
  /// Fewer rows are left to vectors: of raw columns, of packed ones.
  std::int64_t least_raw, least_packed;

  bool takes(const PanelProduct& p) const {
    const auto is_fp8 = [](DType type) { return type == DType::f8_e4m3 || type == DType::f8_e5m2; };
    const bool blocks = p.block == 0 || (p.block % panel_amx_step == 0 && panel_amx_chunk / 2 % p.block == 0);
    return is_fp8(p.a.type) && is_fp8(p.b.type) && blocks && p.k > 0 && p.m >= (p.b.packed ? least_packed : least_raw);
  }
};
/// What kernels of a tier use, or nullptr.
const PanelUnit* panel_unit(Isa isa);

/// panel_multiply of products that the unit takes.
void panel_multiply_by(const PanelUnit& unit, std::span<const PanelProduct> products, const Exec& exec);

/// The CPU's, for panel_unit: nothing on tiers that have none.
struct PanelAmxKernel {
  template <class Tier>
  static PanelUnit run();
};

}  // namespace dodona::ops
