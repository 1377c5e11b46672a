// Registers of matrices as vectors take them: what stands between a warp's rows of 32 lanes and tiles of sums and of operands.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simd/tier.h"

namespace dodona::ptx {

/// Sums of mma.sync and wgmma, four registers for eight columns: register r of lane l has row l / 4 + 8 (r / 2 mod 2) and column
/// 8 (r / 4) + 2 (l mod 4) + r mod 2. To [column][16 rows] and back; `count` registers, a multiple of four, each 32 words.
struct SpreadSums {
  template <class Tier>
  static void run(const std::uint32_t* const* registers, std::size_t count, void* sums);
};
struct GatherSums {
  template <class Tier>
  static void run(const void* sums, std::size_t count, std::uint32_t* const* registers);
};

/// Whether `count` registers hold the words [count][32].
struct SameRegisters {
  template <class Tier>
  static bool run(const std::uint32_t* const* registers, std::size_t count, const void* words);
};

}  // namespace dodona::ptx
