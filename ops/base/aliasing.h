// Where scratch memory lies beside what is read meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dodona::ops {

/// A load waits for an earlier store that has its low twelve bits in common, whatever the others are: rows of some thousand elements
/// often begin at the same ones, and what is made of them in a place that does, too, took a fifth longer.
inline constexpr std::size_t aliasing_bytes = 4096;

/// The line of the aliasing_bytes from `scratch` on, which begins on one, that has the most distance from both in low bits.
inline std::byte* least_aliased(std::byte* scratch, const void* read, const void* also_read) {
  const auto low_bits = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
  constexpr std::uintptr_t bytes = aliasing_bytes;
  const std::uintptr_t between = (low_bits(also_read) - low_bits(read)) % bytes;
  // The middle of the larger of the two stretches between them.
  const std::uintptr_t best = low_bits(read) + between / 2 + (between <= bytes / 2 ? bytes / 2 : 0);
  return scratch + (best - low_bits(scratch)) % bytes / 64 * 64;
}

}  // namespace dodona::ops
