// Inputs for probes, the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "simd/bit_probe.h"

namespace dodona::samples {

/// SplitMix64.
class Bits {
 public:
  explicit Bits(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// Zeros, denormals, NaNs of both kinds, infinities, values at which functions and conversions change their behaviour.
inline constexpr std::uint32_t special[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
    0xFF800000, 0x7F800001, 0xFF800001, 0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FA00000, 0x3F800000, 0xBF800000, 0x3F7FFFFF,
    0x3F800001, 0x3F000000, 0xBF000000, 0x3EFFFFFF, 0x3FC00000, 0xBFC00000, 0x40200000, 0xC0200000, 0x4B000000, 0x4B000001, 0x4B800000,
    0xCB800000, 0x4EFFFFFF, 0x4F000000, 0xCF000000, 0xCF000001, 0x42B17217, 0x42B17218, 0xC2CFF1B4, 0xC2CFF1B5, 0x43000000, 0xC3150000,
    0xC3160000, 0x3FAAAAAA, 0x3FAAAAAB, 0x3F2AAAAA, 0x3F2AAAAB, 0x43E00000, 0x43E80000, 0x43E80001, 0x3A800000, 0x3A800001, 0x3AC00000,
    0x3C800000, 0x3C7FFFFF, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x47800000, 0x33000000, 0x33000001, 0x38800000, 0x387FFFFF, 0x47600000,
    0x47700000, 0x40A00000, 0x40C00000, 0x3E800000, 0x3F400000, 0x7F7F7FFF, 0x7F7F8000, 0x00004000, 0x00008000, 0x0000C000, 0x7F7FC000};

/// n random words: a third any bits at all, a third floats of moderate size, a third special (seed 0: as they come, then random).
inline std::vector<std::uint32_t> words(std::size_t n, std::uint64_t seed) {
  constexpr std::size_t specials = sizeof special / sizeof *special;
  std::vector<std::uint32_t> out(n);
  Bits bits(seed);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t r = bits.next();
    const auto any = static_cast<std::uint32_t>(r >> 32);
    if (r % 3 == 0) {
      out[i] = any;
    } else if (r % 3 == 1) {
      out[i] = (any & 0x80FFFFFFu) | (112u + static_cast<std::uint32_t>(r >> 8) % 28u) << 23;
    } else {
      out[i] = special[any % specials];
    }
    if (seed == 0 && i < specials) out[i] = special[i];
  }
  return out;
}

/// Results that `info` gives for n elements, and the bytes they take.
inline std::int64_t results(const ProbeInfo& info, std::int64_t n) {
  if (info.group == 0) return info.results;
  return (info.group >= 32 ? n / info.group : (n + info.group - 1) / info.group) * info.results;
}
inline std::int64_t result_bytes(const ProbeInfo& info, std::int64_t n) {
  return (results(info, n) * info.bits_out + 7) / 8;
}

/// Where `info` leaves the bits of a NaN open, gives every NaN the same ones.
inline void settle_nans(const ProbeInfo& info, std::uint32_t* words, std::int64_t n) {
  if (!info.nan_free) return;
  for (std::int64_t i = 0; i < n; ++i)
    if ((words[i] & 0x7FFFFFFFu) > 0x7F800000u) words[i] = 0x7FC00000u;
}

}  // namespace dodona::samples
