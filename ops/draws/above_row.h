// Fast mode's passes over a row of probabilities: what lies above a bar, sixteen numbers at a time. A bar of NaN lets nothing pass.
#pragma once

#include <cstdint>

#include "dodona/isa.h"
#include "simd/tier.h"

namespace dodona::ops {

/// Elements are added up in blocks of so many, in fp32: chains of 16 additions, a tree over lanes.
constexpr std::int64_t sum_block = 512;

/// sums[b] = the sum of the elements above `bar` of block b.
struct BlockSums {
  const float* x;
  std::int64_t n;
  float bar;
  float* sums;
};

struct Above {
  double sum, count;
};
/// Of each bar, how much and how many lie above it. Blocks are added in double.
struct TwoBars {
  const float* x;
  std::int64_t n;
  float bars[2];
  Above* above;  ///< two
};

/// The elements above `bar` in order, and where they stood: `from`'s positions where there are any. Room for n of each; values may be x and
/// positions `from`.
struct Gather {
  const float* x;
  const std::int32_t* from;
  std::int64_t n;
  float bar;
  float* values;
  std::int32_t* positions;  ///< null where nobody asks
  std::int64_t* count;
};

/// maxima[j] = the largest of the elements j, j + groups, j + 2 groups..., -infinity where there is none; NaN is passed over.
struct StrideMaxima {
  static constexpr std::int64_t groups = 1024;
  const float* x;
  std::int64_t n;
  float* maxima;
};

/// to = x * factor where x > bar, else 0. `to` may be written past the caches.
struct ScaleAbove {
  const float* x;
  std::int64_t n;
  float bar, factor;
  float* to;
  bool streamed;
};

/// to = x where x > bar, else -infinity; it may be written past the caches.
struct MaskBelow {
  const float* x;
  std::int64_t n;
  float bar;
  float* to;
  bool streamed;
};

struct AboveRowKernel {
  template <class Tier>
  static void run(const BlockSums& call);
  template <class Tier>
  static void run(const TwoBars& call);
  template <class Tier>
  static void run(const Gather& call);
  template <class Tier>
  static void run(const StrideMaxima& call);
  template <class Tier>
  static void run(const ScaleAbove& call);
  template <class Tier>
  static void run(const MaskBelow& call);
};

}  // namespace dodona::ops
