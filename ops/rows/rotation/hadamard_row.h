// Fast mode of the Hadamard transforms: one row.
#pragma once

#include <cstdint>
#include <span>

#include "dodona/dtype.h"
#include "ops/base/writing.h"
#include "simd/tier.h"

namespace dodona::ops {

/// Elements of one block, which stays in registers.
inline constexpr std::int64_t hadamard_block = 128;

/// out = scale * H x of `n` elements, a power of two of at least hadamard_block; of x and out there are `width`, the other elements of x
/// are zero. Butterflies of stride 1 first, then 2, 4... `out` may be x. With `signs` there are as many such chunks, one behind the other,
/// and an output is a chain over the chunks' in order: bit c of a row's signs is set where that of chunk c is subtracted.
struct HadamardRow {
  const void* x;
  void* out;
  std::int64_t width, n;
  float scale;
  DType type;
  Writing writing;
  const void* next;                           ///< the row of x that comes next, which is fetched meanwhile, or this one
  float* sums;                                ///< room for all chunks; not used for a single block
  std::span<const std::uint64_t> signs = {};  ///< of a multiple of 4 rows, at most 40

  std::int64_t chunks() const { return signs.empty() ? 1 : static_cast<std::int64_t>(signs.size()); }
};

struct HadamardRowKernel {
  template <class Tier>
  static void run(const HadamardRow& row);
};

}  // namespace dodona::ops
