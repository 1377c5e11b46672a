// A unit of attention by a matrix unit: scores, and outputs in the rows of their queries. Queries, keys, values and rounded weights are
// bf16, or codes that bf16 holds, and the order of sums is that of attend.h; so the bits are those of vectors.
//
// The unit is a parameter, so that tests run all of this with a model of its instructions.
#pragma once

#include "ops/softmax/fast/attend.h"

namespace dodona::ops {

struct AttendTiles {
  /// Whether unit.partial has been made; if not, it is to be made by vectors: values are infinite or NaN, and some queries do not see them.
  bool (*run)(const AttendUnit& unit);
};
/// What kernels of a tier use, or nullptr.
const AttendTiles* attend_tiles(Isa isa);

/// Types whose numbers bf16 holds.
inline bool held_by_tiles(DType type) {
  return type == DType::bf16 || type == DType::f8_e4m3;
}
/// Whether all operands are such.
bool takes_tiles(const AttendUnit& unit);
/// Floats of AttendUnit::scratch for it, `separate` as attend_scratch_floats has it.
std::int64_t attend_tiles_scratch_floats(std::int64_t lanes, std::int64_t key_width, std::int64_t value_width);

/// The CPU's, for attend_tiles: nothing on tiers that have none.
struct AttendAmxKernel {
  template <class Tier>
  static AttendTiles run();
};

// ---- memory

/// Bytes of sixteen rows of `width` elements in lines or words: whole chunks, as ops/tiles/tile_sums.h has them.
inline constexpr std::int64_t attend_chunk = 8192, attend_step = 1024;
inline constexpr std::int64_t attend_chunks(std::int64_t width) {
  return (width + 255) / 256;
}

/// Where the operands of a unit lie in its scratch.
struct AttendTilesMemory {
  std::byte *queries, *keys, *values, *weights, *row;
  float *scores, *outputs;

  /// From `p` on, which may be nullptr where only its `bytes` are asked for.
  static AttendTilesMemory in(std::byte* p, std::int64_t lanes, std::int64_t key_width, std::int64_t value_width, std::int64_t* bytes);
};

}  // namespace dodona::ops
