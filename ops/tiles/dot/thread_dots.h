// Dot products in fp32 as a block of 128 GPU threads adds them.
//
// Thread r adds k = 1024 j + 8 r + u, j outer and u inner, by fused multiply-adds from 0; each warp of 32 threads adds its threads by xor
// 16, 8, 4, 2, 1; then ((((0 + w0) + w1) + w2) + w3). Results that are denormal are flushed: see quant/hopper/fast_math.h.
#pragma once

#include <cstdint>
#include <vector>

#include "dodona/isa.h"
#include "simd/tier.h"

namespace dodona::ops {

inline constexpr std::int64_t dot_threads = 128, dot_loaded = 8, dot_turn = dot_threads * dot_loaded;

/// bf16 rows [rows, k], k a multiple of dot_turn, as the threads read them: numbers that they add at the same time lie side by side.
struct ThreadRows {
  ThreadRows(const std::uint16_t* codes, std::int64_t rows, std::int64_t k, Isa isa);

  std::int64_t k;
  std::vector<float> values;        ///< [rows][k / dot_threads][dot_threads], denormals flushed
  std::vector<int> smallest_field;  ///< of each row: exponent field of its smallest number other than zero
};

/// dots[i] = row `i` of x times row `row` of w.
void thread_dots(const ThreadRows& x, const ThreadRows& w, std::int64_t row, float* dots, Isa isa);

// ---- tiers

struct ThreadRow {
  const std::uint16_t* codes;
  std::int64_t k;
  float* values;
};
struct ThreadRowKernel {
  /// Returns the exponent field of the smallest number other than zero, 255 where there is none.
  template <class Tier>
  static int run(const ThreadRow& row);
};

/// Where no result can be denormal.
struct ThreadDot {
  const float *x, *w;
  std::int64_t steps;  ///< k / dot_threads
};
struct ThreadDotKernel {
  template <class Tier>
  static float run(const ThreadDot& dot);
};

}  // namespace dodona::ops
