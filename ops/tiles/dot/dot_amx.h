// Products of dot.h by a matrix unit: bf16 by bf16, any number of rows. The unit's own order of sums is that of dot.h (simd/bf16_pairs.h),
// but it flushes denormals: rows whose products with a chunk of K of some columns may have any are added up by vectors from there on.
//
// Rows are packed once, those of sixteen columns a chunk of K at a time. Where a column's elements lie side by side they are copied as they
// are, and it is the rows whose pairs are turned; where a row's do, the other way round.
//
// The unit is a parameter, so that tests run all of this with a model of its instructions.
#pragma once

#include "ops/tiles/dot/dot.h"

namespace dodona::ops {

/// The most rows whose sums wait for the next chunk of K together, and panels of sixteen columns.
inline constexpr std::int64_t dot_job_rows = 256, dot_job_panels = 16;
/// Bytes of a chunk of K of sixteen rows or columns, and its elements of K.
inline constexpr std::int64_t dot_chunk = 8192, dot_chunk_k = dot_chunk / 32;

/// How columns come from memory: all of K of sixteen of them in a row, or a chunk of K of a piece's.
enum class DotColumnsAre { streams, fetched_while_packing, fetched_while_multiplying };

/// Some rows of one of the batch, and all of its columns.
struct DotJob {
  DotRows a;  ///< from the first of the rows on
  DotColumns b;
  std::int64_t rows, n, k;
  std::int64_t panels;  ///< of a piece
  DotColumnsAre columns;
  std::byte* out;  ///< of the first row
  std::int64_t out_stride;
  DType out_type;
  std::byte* packed = nullptr;    ///< [chunks of K][sixteens][dot_chunk]
  std::int32_t* least = nullptr;  ///< of every sixteen the least magnitude but zero, as its bits

  std::int64_t sixteens() const { return (rows + 15) / 16; }
  std::size_t packed_bytes() const { return static_cast<std::size_t>((k + dot_chunk_k - 1) / dot_chunk_k * sixteens() * dot_chunk); }
};

/// Memory of a worker.
struct alignas(64) DotScratch {
  float sums[dot_job_rows * dot_job_panels * 16];
  std::byte columns[dot_job_panels][dot_chunk];
};

struct DotUnit {
  /// Sixteen rows of a job.
  void (*prepare)(const DotJob& job, std::int64_t sixteen);
  /// Pieces [first, last) of its columns.
  void (*multiply)(const DotJob& job, std::int64_t first, std::int64_t last, DotScratch& scratch);
};
/// What kernels of a tier use, or nullptr.
const DotUnit* dot_unit(Isa isa);

bool takes_tiles(const DotProduct& product);
/// dot_multiply of a product that takes_tiles.
void dot_multiply_by(const DotUnit& unit, const DotProduct& product, const Exec& exec);

/// The CPU's, for dot_unit: nothing on tiers that have none.
struct DotAmxKernel {
  template <class Tier>
  static DotUnit run();
};

}  // namespace dodona::ops
