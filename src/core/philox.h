// Philox4x32-10, the counter-based generator of the samplers and of the synthetic inputs.
#pragma once

#include <array>
#include <cstdint>

namespace dodona {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;
using PhiloxBlock = std::array<std::uint32_t, 4>;

/// Philox4x32-10: four random words from a 128-bit counter and a 64-bit key (both little-endian by words).
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
PhiloxBlock philox4x32_10(PhiloxCounter counter, PhiloxKey key);

/// A word as a float in (0, 1]: fp32(fp32(word) * 2^-32 + 2^-33). 1 comes out for words >= 2^32 - 128; the least value is 2^-33.
/// The product is exact, so a fused multiply-add gives the same bits. Source: cuRAND `curand_uniform`.
constexpr float philox_uniform(std::uint32_t word) {
  return static_cast<float>(word) * 0x1p-32f + 0x1p-33f;
}

/// The words that cuRAND's Philox4x32-10 state yields after `curand_init(seed, subsequence, offset)`:
/// key = (low, high half of seed); counter words 0, 1 = offset / 4, words 2, 3 = subsequence; first word = element offset % 4 of the
/// block. The counter is one 128-bit number when it steps.
class PhiloxStream {
 public:
  PhiloxStream(std::uint64_t seed, std::uint64_t subsequence, std::uint64_t offset);

  std::uint32_t next();
  float next_uniform() { return philox_uniform(next()); }

 private:
  PhiloxCounter counter_;
  PhiloxKey key_;
  PhiloxBlock block_;
  unsigned lane_;
};

}  // namespace dodona
